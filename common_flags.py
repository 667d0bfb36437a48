"""Flags that several scripts share, their checks, and how a script ends.

Imported by every script before anything that imports TensorFlow.
"""

import functools
import math
import os
import re
import sys
from collections.abc import Callable, Container, Sequence

# Keras reads this once, when it is imported, and TensorFlow imports part of it.
os.environ["KERAS_BACKEND"] = "tensorflow"
# Of TensorFlow's own log, warnings and worse.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from absl import app, flags, logging  # noqa: E402

import file_io  # noqa: E402


def define_model_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of a model and its vocabulary."""
    flags.DEFINE_string(
        "bert_config_file",
        None,
        "The bert_config.json of the model.",
        flag_values=flag_values,
        required=True,
    )
    flags.DEFINE_string(
        "vocab_file",
        None,
        "The vocabulary the model was trained with, one entry a line.",
        flag_values=flag_values,
        required=True,
    )
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Whether to lower-case text: true for uncased, false for cased models.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Where weights come from while output_dir has no checkpoint, usually "
        "a released bert_model.ckpt.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "remove_padding",
        True,
        "Whether to compute on real tokens only. The numbers are the same; "
        "false is the released computation on every position.",
        flag_values=flag_values,
    )


def define_training_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of a training run that all training scripts have."""
    flags.DEFINE_string(
        "output_dir",
        None,
        "Directory for checkpoints and results. A run that was stopped goes on "
        "from the checkpoint it finds here.",
        flag_values=flag_values,
        required=True,
    )
    flags.DEFINE_integer(
        "random_seed",
        12345,
        "Seed of initial weights, dropout and the order of examples.",
        flag_values=flag_values,
        lower_bound=0,
        upper_bound=2**31 - 1,
    )
    flags.DEFINE_integer(
        "save_checkpoints_steps",
        1000,
        "Steps between checkpoints.",
        flag_values=flag_values,
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "keep_checkpoint_max",
        5,
        "How many checkpoints to keep; 0 keeps all.",
        flag_values=flag_values,
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "iterations_per_loop",
        1000,
        "The most steps to run without looking at the clock; progress is shown "
        "at least that often.",
        flag_values=flag_values,
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "clip_sparse_rows",
        False,
        "Clip by the norm the release used on CPU and GPU, which counts the "
        "embedding gradients of a repeated token one by one. False is the "
        "true norm, which it used on a TPU.",
        flag_values=flag_values,
    )


def define_batch_size_flags(
    flag_values: flags.FlagValues, **defaults: int
) -> None:
    """Defines `NAME_batch_size` for each NAME=default, in examples."""
    for name, default in defaults.items():
        flags.DEFINE_integer(
            f"{name}_batch_size",
            default,
            f"Examples in a batch for {name}.",
            flag_values=flag_values,
            lower_bound=1,
        )


def define_tpu_flags(flag_values: flags.FlagValues) -> None:
    """Defines the released flags of a TPU, refused by `check_devices`."""
    flags.DEFINE_bool(
        "use_tpu",
        False,
        "Whether to run on a TPU. Not supported yet.",
        flag_values=flag_values,
    )
    for name, meaning in (
        ("tpu_name", "Name of the TPU."),
        ("tpu_zone", "Zone of the TPU."),
        ("gcp_project", "Google Cloud project of the TPU."),
        ("master", "TensorFlow master of the TPU."),
    ):
        flags.DEFINE_string(
            name,
            None,
            f"{meaning} Means something with use_tpu only.",
            flag_values=flag_values,
        )
    flags.DEFINE_integer(
        "num_tpu_cores",
        8,
        "Cores of the TPU. Means something with use_tpu only.",
        flag_values=flag_values,
    )


def check_devices(flag_values: flags.FlagValues) -> None:
    """Refuses what this version cannot run on.

    Raises:
      ValueError: `use_tpu` is set.
    """
    if flag_values.use_tpu:
        raise ValueError(
            "--use_tpu=true: this version runs on a GPU or a CPU. Leave the "
            "flag out."
        )


def check_numbers(flag_values: flags.FlagValues) -> None:
    """Refuses `nan` and `inf`, which are within the bounds of every flag.

    Raises:
      ValueError: a flag is one of them.
    """
    for name in flag_values:
        value = flag_values[name].value
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"--{name}={value}: give a finite number.")


def check_output_dir(output_dir: str) -> None:
    """Checks that a directory is there or can be made.

    Raises:
      NotADirectoryError: there is something else of that name.
    """
    if file_io.exists(output_dir) and not file_io.is_dir(output_dir):
        raise NotADirectoryError(
            f"--output_dir={output_dir} is not a directory: choose another "
            "name, or remove what is there."
        )


def check_vocabulary(vocab: Container[str], vocab_file: str) -> None:
    """Checks that a vocabulary is one of BERT.

    Raises:
      ValueError: it lacks a token that every sequence may need.
    """
    missing = [t for t in ("[UNK]", "[CLS]", "[SEP]") if t not in vocab]
    if missing:
        raise ValueError(
            f"{vocab_file} has no {', '.join(missing)}: use the vocabulary "
            "that came with the checkpoint."
        )


def check_lengths(
    max_seq_length: int,
    max_position_embeddings: int,
    vocab_entries: int,
    vocab_size: int,
    *,
    vocab_file: str,
    bert_config_file: str,
) -> None:
    """Checks that sequence length and vocabulary fit the model.

    Raises:
      ValueError: the sequence is longer than the model's positions, or the
        vocabulary has more entries than the model's table.
    """
    if max_seq_length > max_position_embeddings:
        raise ValueError(
            f"--max_seq_length={max_seq_length} is more than the "
            f"{max_position_embeddings} positions of the model "
            f"(max_position_embeddings in {bert_config_file}): use at most "
            f"{max_position_embeddings}."
        )
    if vocab_entries > vocab_size:
        raise ValueError(
            f"{vocab_file} has {vocab_entries} entries, the model only "
            f"{vocab_size} (vocab_size in {bert_config_file}): use the "
            "vocabulary and the configuration that came with the checkpoint."
        )


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Parses the flags and runs `main`; a user's mistake ends in one line.

    A ValueError, a missing file or an error of TensorFlow's input and output is
    printed without a traceback and the process ends with status 1.
    """
    # The default; --verbosity=-1 leaves warnings alone.
    logging.set_verbosity(logging.INFO)
    app.run(functools.partial(_run_main, main))


def _run_main(
    main: Callable[[Sequence[str]], None], argv: Sequence[str]
) -> None:
    status = _status_of(main, argv)
    # Not where the error was caught: it holds what `main` held, and an iterator
    # that outlives Python has TensorFlow put a warning below our message.
    if status is not None:
        sys.exit(status)


def _status_of(
    main: Callable[[Sequence[str]], None], argv: Sequence[str]
) -> str | int | None:
    """Runs `main`; returns what to exit with, None if all went well."""
    script = os.path.basename(argv[0])
    try:
        if len(argv) > 1:
            raise ValueError(
                f"unexpected argument {argv[1]!r}: flags are written as "
                "--name=value, and yes and no as --name and --noname."
            )
        main(argv)
    except SystemExit as error:
        return error.code
    except (ValueError, OSError) as error:
        return f"{script}: {error}"
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # TensorFlow's errors share a base class, but are no OSError.
        message = getattr(error, "message", None)
        if not type(error).__module__.startswith("tensorflow") or not message:
            raise
        hint = ""
        is_disk_full = "No space left" in message
        if (
            type(error).__name__ == "ResourceExhaustedError"
            and not is_disk_full
        ):
            hint = ". Use a smaller batch or shorter sequences."
        return f"{script}: {_cause(message)}{hint}"
    return None


def _cause(message: str) -> str:
    """The one line of TensorFlow's message that says what happened.

    It may be preceded by where the operation was defined, a heading and
    indented lines, and be in the midst of names of operations:

        Graph execution error:

        Detected at node zeros defined at (most recent call last):
          File "training.py", line 313, in run_steps
        OOM when allocating tensor with shape[40000,40000,1000]
    """
    headings = ("Graph execution error", "Detected at node", "<stack traces")
    lines = [
        line
        for line in message.splitlines()
        if line.strip() and not line.startswith((" ", "\t", *headings))
    ]
    line = (lines or message.splitlines())[0]
    return re.sub(r"\{\{.*?\}\} ?| \[Op:.*", "", line)
