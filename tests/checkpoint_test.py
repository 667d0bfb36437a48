"""Tests for checkpoint.py."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import checkpoint
import file_io

SHAPES = {
    "bert/embeddings/word_embeddings": (7, 4),
    "bert/pooler/dense/bias": (4,),
}


def make_tensors(seed=0):
    rng = np.random.default_rng(seed)
    tensors = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }
    slots = {
        f"{name}/adam_{slot}": np.full_like(value, seed)
        for name, value in tensors.items()
        for slot in "mv"
    }
    return tensors | slots | {"global_step": np.int64(seed)}


def assert_same(got, wanted):
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name], value)
        assert got[name].dtype == np.asarray(value).dtype


def write_with_tf1(prefix, tensors, **saver_arguments):
    """Writes as the release did: a Saver in a graph and a session."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in tensors.items():
            tf.compat.v1.get_variable(name, initializer=value)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(**saver_arguments).save(
            session, prefix, write_meta_graph=False
        )


def names_in(directory):
    return sorted(os.listdir(directory))


def state_lists(directory):
    """The steps the state file lists, as TensorFlow reads it."""
    state = tf.train.get_checkpoint_state(str(directory))
    return [int(p.split("-")[-1]) for p in state.all_model_checkpoint_paths]


# Reading.


def test_reads_what_tf1_wrote(tmp_path):
    prefix = str(tmp_path / "bert_model.ckpt")
    write_with_tf1(prefix, make_tensors())
    assert_same(checkpoint.read(prefix), make_tensors())
    variables = checkpoint.list_variables(prefix)
    assert variables["bert/embeddings/word_embeddings"] == ((7, 4), "float32")
    assert variables["global_step"] == ((), "int64")


def test_reads_the_one_file_format_of_first_tensorflow(tmp_path):
    prefix = str(tmp_path / "model.ckpt")
    write_with_tf1(
        prefix, make_tensors(), write_version=tf.compat.v1.train.SaverDef.V1
    )
    assert_same(checkpoint.read(prefix), make_tensors())


def test_reads_only_the_names_wanted(tmp_path):
    prefix = str(tmp_path / "a")
    checkpoint.write(prefix, make_tensors())
    assert list(checkpoint.read(prefix, ["global_step"])) == ["global_step"]
    with pytest.raises(ValueError, match="has no output_bias; it has bert/"):
        checkpoint.read(prefix, ["output_bias"])


@pytest.mark.parametrize(
    "name",
    ["", "a.ckpt", "a.ckpt.index", "a.ckpt.data-00000-of-00001", "a.ckpt.meta"],
)
def test_a_prefix_may_be_given_as_a_file_or_as_its_directory(tmp_path, name):
    checkpoint.write(str(tmp_path / "a.ckpt"), make_tensors())
    path = str(tmp_path / name) if name else str(tmp_path)
    assert checkpoint.resolve(path) == str(tmp_path / "a.ckpt")
    assert_same(checkpoint.read(path), make_tensors())


def test_a_directory_of_several_checkpoints_needs_a_name(tmp_path):
    with pytest.raises(ValueError, match="no checkpoint.*give its prefix"):
        checkpoint.resolve(str(tmp_path))
    checkpoint.write(str(tmp_path / "a"), make_tensors())
    checkpoint.write(str(tmp_path / "b"), make_tensors())
    with pytest.raises(ValueError, match="a.index, b.index.*give its prefix"):
        checkpoint.resolve(str(tmp_path))


def shorten(path, num_bytes):
    os.truncate(path, os.path.getsize(path) - num_bytes)


def flip_a_bit(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda index, data: shorten(data, 1), r"a\.data-\*.* of \d+ bytes"),
        (lambda index, data: shorten(index, 1), r"a\.index"),
        (lambda index, data: os.truncate(index, 0), r"a\.index"),
        (lambda index, data: flip_a_bit(index), r"a\.index"),
        (lambda index, data: index.write_bytes(b"no" * 99), r"a\.index"),
        (lambda index, data: data.unlink(), r"0 of 1 data files"),
        (lambda index, data: index.unlink(), r"no such checkpoint.*a\.index"),
    ],
)
def test_damaged_files_are_named_without_reading_the_data(
    tmp_path, damage, message
):
    prefix = str(tmp_path / "a")
    checkpoint.write(prefix, make_tensors())
    damage(tmp_path / "a.index", tmp_path / "a.data-00000-of-00001")
    with pytest.raises(ValueError, match=message):
        checkpoint.list_variables(prefix)
    with pytest.raises(ValueError, match=message):
        checkpoint.read(prefix)


def test_a_changed_bit_of_the_data_is_found_when_it_is_read(tmp_path):
    prefix = str(tmp_path / "a")
    checkpoint.write(prefix, {"bert/x": np.zeros(100, np.float32)})
    flip_a_bit(tmp_path / "a.data-00000-of-00001")
    with pytest.raises(ValueError, match="cannot read the data of bert/x"):
        checkpoint.read(prefix)


def test_a_missing_shard_of_several_is_noticed(tmp_path):
    parts = [str(tmp_path / "0"), str(tmp_path / "1")]
    for part, (name, value) in zip(parts, make_tensors().items(), strict=False):
        checkpoint.write(part, {name: value})
    prefix = str(tmp_path / "merged")
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=prefix
    )
    assert len(checkpoint.read(prefix)) == 2
    os.remove(f"{prefix}.data-00001-of-00002")
    with pytest.raises(ValueError, match="1 of 2 data files"):
        checkpoint.read(prefix)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK" * 500)
    with pytest.raises(ValueError, match="no TensorFlow checkpoint"):
        checkpoint.read(str(tmp_path / "pytorch_model.bin"))


def test_an_object_based_checkpoint_is_refused(tmp_path):
    prefix = tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(tmp_path / "a"))
    with pytest.raises(ValueError, match="object-based.*wanted a name-based"):
        checkpoint.list_variables(prefix)


# Writing.


def test_tensorflow_reads_what_is_written(tmp_path):
    tensors = make_tensors(3)
    prefix = checkpoint.save(str(tmp_path), 3, tensors)
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix
    for reader in (
        tf.train.load_checkpoint(str(tmp_path)),
        tf.compat.v1.train.NewCheckpointReader(prefix),
    ):
        names = reader.get_variable_to_shape_map()
        assert_same(
            {n: np.asarray(reader.get_tensor(n)) for n in names}, tensors
        )


def test_a_tf1_saver_restores_what_is_written(tmp_path):
    tensors = make_tensors(3)
    prefix = checkpoint.save(str(tmp_path), 3, tensors)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(
                name, initializer=np.zeros_like(value)
            )
            for name, value in tensors.items()
        }
        tf.compat.v1.train.Saver().restore(session, prefix)
        assert_same(session.run(variables), tensors)


def test_keeps_every_dtype(tmp_path):
    tensors = {
        dtype: np.arange(-3, 3).astype(dtype)
        for dtype in ("float16", "float64", "int8", "int32", "bool")
    }
    tensors["bfloat16"] = np.arange(6).astype(ml_dtypes.bfloat16)
    checkpoint.write(str(tmp_path / "a"), tensors)
    assert_same(checkpoint.read(str(tmp_path / "a")), tensors)


def test_variables_and_tensors_are_written_as_they_are(tmp_path):
    prefix = str(tmp_path / "a")
    value = np.arange(4, dtype=np.float32)
    checkpoint.write(
        prefix, {"variable": tf.Variable(value), "tensor": tf.constant(value)}
    )
    assert_same(checkpoint.read(prefix), {"variable": value, "tensor": value})


def test_creates_the_directory_and_leaves_no_temporary_file(tmp_path):
    checkpoint.write(str(tmp_path / "new" / "a"), make_tensors())
    files = ["a.data-00000-of-00001", "a.index"]
    assert names_in(tmp_path / "new") == files


def test_replaces_a_checkpoint_of_other_shards(tmp_path):
    (tmp_path / "a.data-00000-of-00002").write_bytes(b"old")
    (tmp_path / "a.index").write_bytes(b"old")
    checkpoint.write(str(tmp_path / "a"), make_tensors())
    assert names_in(tmp_path) == ["a.data-00000-of-00001", "a.index"]


def test_a_full_disk_is_an_os_error_and_loses_nothing(tmp_path, monkeypatch):
    prefix = checkpoint.save(str(tmp_path), 1, make_tensors(1))
    files = names_in(tmp_path)

    def save_v2(prefix, **_):
        with open(f"{prefix}.data-00000-of-00001", "w") as writer:
            writer.write("half")
        raise tf.errors.ResourceExhaustedError(None, None, "No space left")

    monkeypatch.setattr(tf.raw_ops, "SaveV2", save_v2)
    with pytest.raises(OSError, match=r"ckpt-2: .*No space left; check free"):
        checkpoint.save(str(tmp_path), 2, make_tensors(2))
    assert checkpoint.latest_checkpoint(str(tmp_path)) == prefix
    assert names_in(tmp_path) == files


def test_nothing_to_write_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no tensors"):
        checkpoint.write(str(tmp_path / "a"), {})


def test_slim_leaves_weights_alone(tmp_path):
    tensors = make_tensors(1)
    extra = {checkpoint.BOOKKEEPING_SCOPE + "loss_scale": np.float32(1)}
    checkpoint.write(str(tmp_path / "a"), tensors | extra)
    names = checkpoint.slim(str(tmp_path / "a"), str(tmp_path / "b"))
    assert names == sorted(SHAPES)
    assert_same(
        checkpoint.read(str(tmp_path / "b")), {n: tensors[n] for n in names}
    )


# Matching.


def test_match_tells_found_missing_and_unused_apart(tmp_path):
    prefix = str(tmp_path / "a")
    checkpoint.write(
        prefix, make_tensors() | {"cls/predictions/output_bias": np.ones(7)}
    )
    wanted = SHAPES | {"output_bias": (2,)}
    assert checkpoint.match(wanted, prefix) == checkpoint.Match(
        from_checkpoint=list(SHAPES),
        missing=["output_bias"],
        unused=["cls/predictions/output_bias"],
    )


def test_match_names_the_variable_of_another_shape_and_both_shapes(tmp_path):
    checkpoint.write(str(tmp_path / "a"), make_tensors())
    wanted = SHAPES | {"bert/embeddings/word_embeddings": (9, 4)}
    with pytest.raises(
        ValueError,
        match=r"word_embeddings is \[9, 4\] in the model and \[7, 4\] in",
    ):
        checkpoint.match(wanted, str(tmp_path / "a"))


def test_match_refuses_a_checkpoint_of_something_else(tmp_path):
    checkpoint.write(str(tmp_path / "a"), {"resnet/kernel": np.ones(3)})
    with pytest.raises(ValueError, match="under bert/.*has resnet/kernel"):
        checkpoint.match(SHAPES, str(tmp_path / "a"))


# Saving: rotation and the state file.


def test_keeps_the_newest_and_remembers_across_restarts(tmp_path):
    for step in (1, 2, 3):
        checkpoint.save(
            str(tmp_path), step, make_tensors(step), keep_checkpoint_max=2
        )
    assert state_lists(tmp_path) == [2, 3]
    assert names_in(tmp_path) == [
        "checkpoint",
        "model.ckpt-2.data-00000-of-00001",
        "model.ckpt-2.index",
        "model.ckpt-3.data-00000-of-00001",
        "model.ckpt-3.index",
    ]


def test_zero_keeps_all_and_a_smaller_number_later_removes_them(tmp_path):
    for step in range(7):
        checkpoint.save(
            str(tmp_path), step, make_tensors(), keep_checkpoint_max=0
        )
    assert state_lists(tmp_path) == list(range(7))
    checkpoint.save(str(tmp_path), 7, make_tensors(), keep_checkpoint_max=1)
    assert state_lists(tmp_path) == [7]
    assert len(names_in(tmp_path)) == 3


def test_files_the_state_file_does_not_list_are_never_removed(tmp_path):
    checkpoint.write(str(tmp_path / "model.ckpt-1"), make_tensors())
    checkpoint.write(str(tmp_path / "bert_model.ckpt"), make_tensors())
    for step in (10, 11):
        checkpoint.save(
            str(tmp_path), step, make_tensors(), keep_checkpoint_max=1
        )
    assert (tmp_path / "model.ckpt-1.index").exists()
    assert (tmp_path / "bert_model.ckpt.index").exists()
    assert not (tmp_path / "model.ckpt-10.index").exists()


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoint.save(str(tmp_path), 1, make_tensors(1))
    checkpoint.save(str(tmp_path), 2, make_tensors(2))
    for seed in (8, 9):
        prefix = checkpoint.save(str(tmp_path), 1, make_tensors(seed))
    assert_same(checkpoint.read(prefix), make_tensors(9))
    assert checkpoint.latest_checkpoint(str(tmp_path)) == prefix
    assert state_lists(tmp_path) == [2, 1]
    assert len(names_in(tmp_path)) == 5


@pytest.mark.parametrize(("step", "keep"), [(-1, 5), (1, -1)])
def test_negative_numbers_are_refused(tmp_path, step, keep):
    with pytest.raises(ValueError, match="no negative number"):
        checkpoint.save(
            str(tmp_path), step, make_tensors(), keep_checkpoint_max=keep
        )


# The latest checkpoint.


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.latest_checkpoint(str(tmp_path)) is None
    assert checkpoint.latest_checkpoint(str(tmp_path / "missing")) is None


def test_a_moved_directory_keeps_its_latest(tmp_path):
    for step in (1, 2):
        checkpoint.save(str(tmp_path / "old"), step, make_tensors())
    os.rename(tmp_path / "old", tmp_path / "new")
    latest = str(tmp_path / "new" / "model.ckpt-2")
    assert checkpoint.latest_checkpoint(str(tmp_path / "new")) == latest
    # TF1's Saver writes absolute paths.
    (tmp_path / "new" / "checkpoint").write_text(
        f'model_checkpoint_path: "{tmp_path}/old/model.ckpt-1"\n'
    )
    earlier = str(tmp_path / "new" / "model.ckpt-1")
    assert checkpoint.latest_checkpoint(str(tmp_path / "new")) == earlier


@pytest.mark.parametrize(
    "state",
    [
        None,
        b"",
        b"\xff\x00\x81",
        b"model_checkpoint_path",
        b'model_checkpoint_path: "model.ckpt-77"',
        b'model_checkpoint_path: "model.ckpt-11"',
    ],
)
def test_without_a_usable_state_the_highest_complete_step_is_taken(
    tmp_path, caplog, state
):
    for step in (2, 10, 11):
        checkpoint.save(str(tmp_path), step, make_tensors())
    shorten(tmp_path / "model.ckpt-11.data-00000-of-00001", 1)
    if state is None:
        os.remove(tmp_path / "checkpoint")
    else:
        (tmp_path / "checkpoint").write_bytes(state)
    latest = checkpoint.latest_checkpoint(str(tmp_path))
    assert latest == str(tmp_path / "model.ckpt-10")
    assert "taking the checkpoint of the highest step" in caplog.text


# Interruptions.


class Killed(BaseException):
    """Not an Exception: nothing handles a SIGKILL."""


@contextlib.contextmanager
def killed_at(moment):
    """Fails at the given change to the disk, and at every later one."""
    num_changes = 0

    def mortal(function):
        def call(*args, **kwargs):
            nonlocal num_changes
            num_changes += 1
            if num_changes > moment:
                raise Killed
            return function(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "remove", "open_file"):
            patch.setattr(file_io, name, mortal(getattr(file_io, name)))
        save_v2 = tf.raw_ops.SaveV2
        patch.setattr(tf.raw_ops, "SaveV2", mortal(save_v2))
        yield


@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("steps", [(1, 2, 3), (3, 3, 3), (2, 3, 2)])
def test_killed_between_any_two_changes_a_complete_one_is_left(
    tmp_path, steps, keep
):
    for moment in itertools.count():
        output_dir = tmp_path / str(moment)

        def save(number, output_dir=str(output_dir)):
            checkpoint.save(
                output_dir,
                steps[number],
                make_tensors(number),
                keep_checkpoint_max=keep,
            )

        save(0)
        is_killed = True
        with contextlib.suppress(Killed), killed_at(moment):
            save(1)
            is_killed = False
        latest = checkpoint.latest_checkpoint(str(output_dir))
        assert tf.train.latest_checkpoint(str(output_dir)) == latest
        tensors = checkpoint.read(latest)
        assert int(tensors["global_step"]) in (0, 1)
        assert_same(tensors, make_tensors(int(tensors["global_step"])))

        save(2)  # After the restart: leaves nothing but what is to be kept.
        kept = state_lists(output_dir)
        assert kept[-1] == steps[2]
        assert len(kept) == len(set(kept)) <= (keep or 3)
        assert names_in(output_dir) == ["checkpoint"] + sorted(
            f"model.ckpt-{step}.{end}"
            for step in kept
            for end in ("index", "data-00000-of-00001")
        )
        if not is_killed:
            assert moment > 4
            break


def test_a_killed_write_never_leaves_an_index_without_its_data(tmp_path):
    prefix = str(tmp_path / "bert_model.ckpt")
    for moment in range(7):
        checkpoint.write(prefix, make_tensors(1))
        with contextlib.suppress(Killed), killed_at(moment):
            checkpoint.write(prefix, make_tensors(2))
        if os.path.exists(f"{prefix}.index"):
            tensors = checkpoint.read(prefix)
            assert_same(tensors, make_tensors(int(tensors["global_step"])))
        else:
            with pytest.raises(ValueError, match="no such checkpoint"):
                checkpoint.read(prefix)
    assert int(checkpoint.read(prefix)["global_step"]) == 2


SAVE_FOREVER = """
import sys
import numpy as np
import checkpoint
step = int(sys.argv[2])
while True:
    step += 1
    for seed in (step, -step):  # Every step twice: written, then replaced.
        tensors = {f"bert/{i}": np.full(50_000, seed) for i in range(8)}
        checkpoint.save(sys.argv[1], step, tensors, keep_checkpoint_max=2)
        print(step, flush=True)
"""


@pytest.mark.slow
def test_killed_at_random_moments_the_latest_is_complete(tmp_path):
    rng = random.Random(12345)
    step = 0
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOREVER, str(tmp_path), str(step)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.path.dirname(checkpoint.__file__),
        )
        with process:
            process.stdout.readline()
            time.sleep(rng.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
        latest = checkpoint.latest_checkpoint(str(tmp_path))
        assert tf.train.latest_checkpoint(str(tmp_path)) == latest
        values = np.stack(list(checkpoint.read(latest).values()))
        assert len(values) == 8 and (values == values[0, 0]).all()
        assert abs(values[0, 0]) > step
        step = abs(int(values[0, 0]))
    checkpoint.save(str(tmp_path), step + 1, make_tensors())
    assert not [n for n in names_in(tmp_path) if "tmp" in n or "repl" in n]
