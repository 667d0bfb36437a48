"""Tests of the shared flags, their checks and how a script ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from absl import flags

import common_flags

ROOT = Path(__file__).resolve().parent.parent


def end(main, *arguments):
    """Runs a main function; returns what the process would exit with."""
    try:
        common_flags._run_main(main, ["/a/dir/run_it.py", *arguments])
    except SystemExit as error:
        return error.code
    return None


def raising(error):
    def main(unused_argv):
        raise error

    return main


def graph_error(cause):
    return (
        "Graph execution error:\n\nDetected at node zeros defined at (most "
        'recent call last):\n  File "x.py", line 8, in f\n    y = f(x)\n\n'
        f"{cause}\n\t [[{{{{node zeros}}}}]]\nHint: report more.\n "
        "[Op:__inference_f_15]"
    )


# --- How a script ends -------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a.tsv, line 3: got 1 column."),
        FileNotFoundError("a.tsv, line 3: got 1 column."),
        OSError("a.tsv, line 3: got 1 column."),
    ],
)
def test_mistake_of_the_user_is_one_line(error):
    assert end(raising(error)) == "run_it.py: a.tsv, line 3: got 1 column."


def test_mistake_of_ours_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        end(raising(ZeroDivisionError("oops")))


def test_success_ends_with_nothing():
    assert end(lambda argv: None) is None


def test_status_of_a_signal_is_kept():
    assert end(raising(SystemExit(143))) == 143
    assert end(raising(KeyboardInterrupt())) == 130


def test_argument_that_is_no_flag_is_refused():
    message = end(lambda argv: None, "true")
    assert message.startswith("run_it.py: unexpected argument 'true'")


@pytest.mark.parametrize(
    ("error", "message", "wanted"),
    [
        (
            tf.errors.ResourceExhaustedError,
            graph_error("OOM when allocating tensor with shape[9,9]"),
            "OOM when allocating tensor with shape[9,9]. Use a smaller batch "
            "or shorter sequences.",
        ),
        (
            tf.errors.ResourceExhaustedError,
            "/dev/full; No space left on device",
            "/dev/full; No space left on device",
        ),
        (
            tf.errors.InvalidArgumentError,
            graph_error("indices = 7 is not in [0, 3)"),
            "indices = 7 is not in [0, 3)",
        ),
        (
            tf.errors.DataLossError,
            "{{function_node __wrapped__IteratorGetNext_device_/job:x}} "
            "corrupted record at 0 [Op:IteratorGetNext] name: ",
            "corrupted record at 0",
        ),
        (
            tf.errors.UnknownError,
            "Graph execution error:\n\nDetected at node PyFunc defined at "
            "(most recent call last):\n<stack traces unavailable>\nOSError: "
            "inner\nTraceback (most recent call last):\n\n  File",
            "OSError: inner",
        ),
    ],
)
def test_error_of_tensorflow_is_its_one_line_that_matters(
    error, message, wanted
):
    assert end(raising(error(None, None, message))) == f"run_it.py: {wanted}"


def test_real_error_of_a_graph_is_told():
    @tf.function
    def look_up(i):
        return tf.gather(tf.zeros([3]), i)

    message = end(lambda argv: look_up(tf.constant(7)))
    assert message == "run_it.py: indices = 7 is not in [0, 3)"


def output_of(program, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout


def test_log_shows_information_unless_told_otherwise():
    program = (
        "import common_flags; from absl import logging; "
        "common_flags.run(lambda argv: logging.info('for your information'))"
    )
    assert "for your information" in output_of(program)
    assert output_of(program, "--verbosity=-1") == ""


@pytest.mark.parametrize("script", ["run_classifier", "convert_checkpoint"])
def test_keras_runs_on_tensorflow_whatever_is_configured(script):
    program = f"import {script}, keras; print(keras.backend.backend())"
    # Before it, what TensorFlow says of itself.
    assert output_of(program, KERAS_BACKEND="jax").endswith("\ntensorflow\n")


# --- Checks ------------------------------------------------------------------


@pytest.fixture
def values():
    values = flags.FlagValues()
    common_flags.define_model_flags(values)
    common_flags.define_training_flags(values)
    common_flags.define_batch_size_flags(values, train=32, eval=8)
    common_flags.define_tpu_flags(values)
    flags.DEFINE_float("rate", 0.5, "", flag_values=values, lower_bound=0.0)

    def parse(*arguments):
        required = ("bert_config_file", "vocab_file", "output_dir")
        values(["script", *(f"--{name}=x" for name in required), *arguments])
        return values

    return parse


def test_tpu_is_refused(values):
    common_flags.check_devices(values("--tpu_name=a", "--num_tpu_cores=2"))
    with pytest.raises(ValueError, match="--use_tpu=true: .*Leave the flag"):
        common_flags.check_devices(values("--use_tpu"))


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_number_that_is_not_finite_is_refused(values, value):
    common_flags.check_numbers(values("--rate=1e30"))
    with pytest.raises(ValueError, match=f"--rate={value}: "):
        common_flags.check_numbers(values(f"--rate={value}"))


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_seed_that_does_not_fit_is_refused(values, seed):
    assert values(f"--random_seed={2**31 - 1}").random_seed == 2**31 - 1
    with pytest.raises(flags.IllegalFlagValueError, match="random_seed"):
        values(f"--random_seed={seed}")


@pytest.mark.parametrize(
    "argument",
    [
        "--train_batch_size=0",
        "--eval_batch_size=-1",
        "--save_checkpoints_steps=0",
        "--keep_checkpoint_max=-1",
        "--iterations_per_loop=0",
    ],
)
def test_count_below_its_least_is_refused(values, argument):
    with pytest.raises(flags.IllegalFlagValueError):
        values(argument)


def check_lengths(max_seq_length=16, vocab_entries=100):
    common_flags.check_lengths(
        max_seq_length,
        16,
        vocab_entries,
        100,
        vocab_file="v.txt",
        bert_config_file="c.json",
    )


def test_lengths_that_just_fit_are_fine():
    check_lengths()


def test_sequence_longer_than_the_positions_is_refused():
    with pytest.raises(ValueError) as error:
        check_lengths(max_seq_length=17)
    assert str(error.value) == (
        "--max_seq_length=17 is more than the 16 positions of the model "
        "(max_position_embeddings in c.json): use at most 16."
    )


def test_vocabulary_larger_than_the_table_is_refused():
    with pytest.raises(ValueError) as error:
        check_lengths(vocab_entries=101)
    assert "v.txt has 101 entries, the model only 100 (vocab_size in c" in str(
        error.value
    )


def test_vocabulary_without_special_tokens_is_refused():
    common_flags.check_vocabulary({"[UNK]", "[CLS]", "[SEP]", "a"}, "v.txt")
    with pytest.raises(ValueError, match=r"v.txt has no \[UNK\], \[SEP\]: "):
        common_flags.check_vocabulary({"[CLS]": 0}, "v.txt")


def test_output_dir_must_not_be_a_file(tmp_path):
    common_flags.check_output_dir(str(tmp_path))
    common_flags.check_output_dir(str(tmp_path / "new"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="--output_dir=.*file is not"):
        common_flags.check_output_dir(str(tmp_path / "file"))
