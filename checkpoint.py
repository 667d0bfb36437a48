"""Reads and writes weights by name, in the released checkpoint format.

A checkpoint is a prefix such as `model.ckpt-1000` that stands for
`model.ckpt-1000.index` and `model.ckpt-1000.data-00000-of-00001`: the
name-based format of TensorFlow 1, which `tf.train.load_checkpoint` and TF1's
`Saver` read too. A prefix may be given as one of its file names or as the
directory it is in.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

import file_io

# What a run saves to resume exactly, beyond variables, slots and the step
# (the loss scale, the best score), is named under this scope.
BOOKKEEPING_SCOPE = "training/"

_STATE_FILE = "checkpoint"
# A checkpoint is written under this suffix and renamed when it is whole.
_UNFINISHED = ".tmp"
# Stands in for a checkpoint of the same step while that one is replaced.
_REPLACEMENT = ".replacement"

_STEP_NAME = re.compile(r"model\.ckpt-(\d+)")
_UNFINISHED_FILE = re.compile(
    r"model\.ckpt-\d+(\.replacement)?\.tmp\.|checkpoint\.tmp"
)
_REPLACEMENT_FILE = re.compile(r"model\.ckpt-\d+\.replacement\.")
_FILE_SUFFIX = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_SHARD_SUFFIX = re.compile(r"\.data-(\d{5})-of-(\d{5})$")
_SLOT = re.compile(r"/adam_[mv]$")
_NUM_NAMES_SHOWN = 5


class Match(NamedTuple):
    """How the variables of a model and of a checkpoint compare, by name.

    Attributes:
      from_checkpoint: the model's variables that the checkpoint has.
      missing: the model's variables that it lacks, which stay as initialized.
      unused: the checkpoint's weights that the model has no variable for.
    """

    from_checkpoint: list[str]
    missing: list[str]
    unused: list[str]


def latest_checkpoint(output_dir: str) -> str | None:
    """Returns the prefix of the newest complete checkpoint, or None.

    The state file decides. Without one, or when it names a checkpoint that is
    not complete (or was written before the directory was moved), it is the
    complete `model.ckpt-N` of the highest N, and a warning says so.
    """
    if not file_io.is_dir(output_dir):
        return None
    reason = "there is no readable state file"
    chosen, _ = _read_state(output_dir)
    if chosen is not None:
        # An absolute path may be one from before the directory was moved.
        moved = os.path.join(output_dir, os.path.basename(chosen))
        for candidate in dict.fromkeys((moved, chosen)):
            problem = _problem(candidate)
            if problem is None:
                return candidate
        reason = f"the state file's choice cannot be used: {problem}"
    names = {
        _FILE_SUFFIX.sub("", name) for name in file_io.list_dir(output_dir)
    }
    steps = [int(m[1]) for m in map(_STEP_NAME.fullmatch, names) if m]
    for step in sorted(steps, reverse=True):
        candidate = _step_prefix(output_dir, step)
        problem = _problem(candidate)
        if problem is None:
            logging.warning(
                "%s: taking the checkpoint of the highest step, %s (%s)",
                output_dir,
                candidate,
                reason,
            )
            return candidate
        logging.warning("Passing over a checkpoint: %s", problem)
    return None


def resolve(path: str) -> str:
    """Returns the prefix that `path` means.

    Args:
      path: a prefix, the name of one of its files, or a directory: then its
        latest checkpoint, or the only checkpoint that is in it.

    Raises:
      ValueError: a directory without a checkpoint, or with several and no
        state file.
    """
    path = os.fspath(path)
    if not file_io.is_dir(path):
        return _FILE_SUFFIX.sub("", path)
    latest = latest_checkpoint(path)
    if latest is not None:
        return latest
    found = [n for n in file_io.list_dir(path) if n.endswith(".index")]
    if len(found) == 1:
        return os.path.join(path, found[0].removesuffix(".index"))
    raise ValueError(
        f"{path}: got a directory with {_some(found) or 'no checkpoint'}, "
        "wanted one checkpoint; give its prefix, for example "
        "DIRECTORY/bert_model.ckpt"
    )


def list_variables(prefix: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Returns the shape and dtype ("float32") of every tensor, by name.

    Raises:
      ValueError: there is no such checkpoint, it is truncated or corrupt, or
        it is not name-based.
    """
    reader, _ = _open(prefix)
    return _variables(reader)


def read(
    prefix: str, names: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
    """Returns tensors by name; every byte read is checked by its checksum.

    Args:
      prefix: the checkpoint.
      names: the tensors wanted; all of them if None.

    Raises:
      ValueError: as `list_variables`, or the checkpoint lacks one of `names`.
    """
    reader, prefix = _open(prefix)
    variables = _variables(reader)
    names = sorted(variables) if names is None else list(names)
    absent = [name for name in names if name not in variables]
    if absent:
        raise ValueError(
            f"{prefix}: has no {_some(absent)}; it has {_some(variables)}"
        )
    tensors = {}
    for name in names:
        with _reading_errors(prefix, f"the data of {name}"):
            tensors[name] = np.asarray(reader.get_tensor(name))
    return tensors


def match(variables: Mapping[str, Iterable[int]], prefix: str) -> Match:
    """Compares a model's variables with a checkpoint it is to start from.

    Args:
      variables: the shape of each variable of the model, by name on disk.
      prefix: the checkpoint.

    Raises:
      ValueError: as `list_variables`; a variable has another shape in the
        checkpoint; or nothing under `bert/` is in the checkpoint.
    """
    shapes = {
        name: shape for name, (shape, _) in list_variables(prefix).items()
    }
    wanted = {name: tuple(shape) for name, shape in variables.items()}
    different = [
        f"{name} is {_brackets(shape)} in the model and "
        f"{_brackets(shapes[name])} in the checkpoint"
        for name, shape in wanted.items()
        if name in shapes and shapes[name] != shape
    ]
    if different:
        raise ValueError(
            f"{resolve(prefix)}: other shapes than the model's: "
            f"{_some(different, separator='; ')}; use the bert_config.json "
            "(for a fine-tuned head also the number of labels) that the "
            "checkpoint was made with"
        )
    found = Match(
        from_checkpoint=[name for name in wanted if name in shapes],
        missing=[name for name in wanted if name not in shapes],
        unused=[n for n in sorted(shapes) if n not in wanted and is_weight(n)],
    )
    if any(name.startswith("bert/") for name in found.missing) and not any(
        name.startswith("bert/") for name in found.from_checkpoint
    ):
        raise ValueError(
            f"{resolve(prefix)}: not one variable under bert/ is in this "
            f"checkpoint, which has {_some(sorted(shapes))}; wanted the "
            "released names, such as bert/embeddings/word_embeddings "
            "(convert_checkpoint.py converts Hugging Face weights)"
        )
    return found


def is_weight(name: str) -> bool:
    """Returns whether a tensor is a weight, and not what training added."""
    return not (
        name == "global_step"
        or name.startswith(BOOKKEEPING_SCOPE)
        or _SLOT.search(name)
    )


def write(
    prefix: str, tensors: Mapping[str, np.ndarray | tf.Tensor | tf.Variable]
) -> None:
    """Writes a checkpoint that is either whole or not there.

    The index appears last, after all data is on disk. An existing checkpoint
    of this prefix is replaced; if that is interrupted, neither may be left
    (`save` never lets this happen to the latest one).

    Values are taken one at a time. Variables and tensors in host memory are
    not copied; NumPy arrays are, so they cost their size once more.

    Args:
      prefix: where to write; its directory is created.
      tensors: the values, of any dtype, by name.

    Raises:
      ValueError: there are no tensors.
      OSError: the files cannot be written; the disk may be full.
    """
    if not tensors:
        raise ValueError(f"{prefix}: got no tensors to write, wanted some")
    file_io.make_dirs(os.path.dirname(prefix) or ".")
    unfinished = prefix + _UNFINISHED
    _remove_all(_files(unfinished))  # Of a run that was killed.
    names = sorted(tensors)
    try:
        # A GPU would otherwise hold a second copy of what comes from NumPy.
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=unfinished,
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.convert_to_tensor(tensors[n]) for n in names],
            )
        written = _files(unfinished)
        for path in written:
            _sync(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            _remove_all(_files(unfinished))
        if isinstance(error, tf.errors.OpError):
            raise OSError(
                f"{prefix}: cannot write the checkpoint: {error.message}; "
                "check free space and permissions"
            ) from error
        raise
    # From here until the last rename there is no checkpoint of this prefix,
    # and never an index that belongs to other data.
    _remove_all(_index_and_shards(prefix))
    for path in sorted(written):  # ".data-" sorts before ".index".
        file_io.rename(path, prefix + path.removeprefix(unfinished))


def save(
    output_dir: str,
    step: int,
    tensors: Mapping[str, np.ndarray | tf.Tensor | tf.Variable],
    *,
    keep_checkpoint_max: int = 5,
) -> str:
    """Writes `model.ckpt-{step}`, makes it the latest, removes the oldest.

    Killed at any moment, `latest_checkpoint` finds a complete checkpoint
    (once there was one), and the next save removes what was left lying.
    Older checkpoints are those of the state file, so rotation goes on after
    a restart and files it does not list are never touched.

    Args:
      output_dir: the directory of the run; created if missing.
      step: the global step, in updates. A checkpoint of it is replaced.
      tensors: as for `write`.
      keep_checkpoint_max: number of checkpoints to keep; 0 keeps all.

    Returns:
      The prefix written.

    Raises:
      ValueError: a negative `step` or `keep_checkpoint_max`, or no tensors.
      OSError: the files cannot be written.
    """
    if step < 0 or keep_checkpoint_max < 0:
        raise ValueError(
            f"got step {step} and keep_checkpoint_max {keep_checkpoint_max}, "
            "wanted no negative number (0 keeps all checkpoints)"
        )
    prefix = _step_prefix(output_dir, step)
    name = os.path.basename(prefix)
    file_io.make_dirs(output_dir)
    _remove_unfinished(output_dir)
    older, gone = _listed_checkpoints(output_dir, other_than=name)
    latest = latest_checkpoint(output_dir)
    if latest == prefix:
        # Two files cannot be replaced in one instant.
        latest = prefix + _REPLACEMENT
        write(latest, tensors)
    last = os.path.basename(latest or "")
    if last in older or last.endswith(_REPLACEMENT):
        # Listed before it is written: killed between that and becoming the
        # latest, it would stay for ever.
        others = [other for other in older if other != last]
        _write_state(output_dir, [*others, name, last])
    write(prefix, tensors)
    _write_state(output_dir, [*older, name])
    num_doomed = len(older) + 1 - keep_checkpoint_max
    doomed = older[: max(0, num_doomed)] if keep_checkpoint_max else []
    for other in [*doomed, *gone]:
        _remove_all(_files(os.path.join(output_dir, other)))
    _remove_all(_matching(output_dir, _REPLACEMENT_FILE))
    if doomed:
        # Only now: a killed save must not forget what it did not delete.
        _write_state(output_dir, [*older[len(doomed) :], name])
    return prefix


def slim(src_prefix: str, dst_prefix: str) -> list[str]:
    """Writes a checkpoint of the weights alone and returns their names.

    Adam's slots, the step and the run's bookkeeping are left out: a third of
    the size, for starting other runs from.

    Raises:
      ValueError: as `list_variables`, or the checkpoint has no weights.
      OSError: the files cannot be written.
    """
    names = sorted(filter(is_weight, list_variables(src_prefix)))
    write(dst_prefix, read(src_prefix, names))
    return names


def _open(path: str) -> tuple[Any, str]:
    """Returns a reader and the prefix, once all files are known to be there."""
    prefix = resolve(path)
    index = prefix + ".index"
    if not file_io.exists(index) and not file_io.exists(prefix):
        raise ValueError(
            f"{prefix}: no such checkpoint (there is no {index}); give the "
            "path without .index or .data-00000-of-00001"
        )
    # A file without the suffix may be of TensorFlow's first, one-file format.
    is_sharded = file_io.exists(index)
    with _reading_errors(prefix, index if is_sharded else "this file"):
        reader = tf.train.load_checkpoint(prefix)
        variables = _variables(reader)
    if any(
        name == "_CHECKPOINTABLE_OBJECT_GRAPH" or "/.ATTRIBUTES/" in name
        for name in variables
    ):
        raise ValueError(
            f"{prefix}: got an object-based checkpoint of TensorFlow 2 or "
            "Keras, wanted a name-based one as BERT was released; use the "
            "TF1 release of these weights, or convert their Hugging Face "
            "version with convert_checkpoint.py"
        )
    if is_sharded:
        _check_shards(prefix, variables)
    return reader, prefix


def _variables(reader) -> dict[str, tuple[tuple[int, ...], str]]:
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    return {n: (tuple(shapes[n]), dtypes[n].name) for n in sorted(shapes)}


def _check_shards(
    prefix: str, variables: Mapping[str, tuple[tuple[int, ...], str]]
) -> None:
    """Refuses missing and shortened data files without reading them."""
    num_bytes = {}
    for path in _index_and_shards(prefix):
        if shard := _SHARD_SUFFIX.search(path):
            size = tf.io.gfile.stat(path).length
            num_bytes.setdefault(int(shard[2]), []).append(size)
    whole = [sizes for total, sizes in num_bytes.items() if len(sizes) == total]
    if not whole:
        total = max(num_bytes, default=1)
        raise ValueError(
            f"{prefix}: {len(num_bytes.get(total, []))} of {total} data files "
            f"({prefix}.data-?????-of-{total:05d}) are beside {prefix}.index; "
            "copy the checkpoint again, with all its files"
        )
    wanted = sum(
        math.prod(shape) * tf.as_dtype(dtype).size
        for shape, dtype in variables.values()
        if dtype != "string"  # Its size is in the data.
    )
    got = max(map(sum, whole))
    if got < wanted:
        raise ValueError(
            f"{prefix}: truncated, its data ({prefix}.data-*) has {got} of "
            f"{wanted} bytes; copy or download it again"
        )


@contextlib.contextmanager
def _reading_errors(prefix: str, what: str) -> Iterator[None]:
    """Turns what the reader raises, by error code, into one ValueError."""
    try:
        yield
    except (tf.errors.OpError, RuntimeError, IndexError) as error:
        raise ValueError(
            f"{prefix}: cannot read {what}; it is truncated, corrupt or no "
            "TensorFlow checkpoint; copy or download it again "
            f"({type(error).__name__}: {error})"
        ) from error


def _problem(prefix: str) -> str | None:
    """Returns why a checkpoint cannot be used, or None."""
    try:
        _open(prefix)
    except ValueError as error:
        return str(error)
    return None


def _step_prefix(output_dir: str, step: int) -> str:
    return os.path.join(output_dir, f"model.ckpt-{step}")


def _read_state(output_dir: str) -> tuple[str | None, list[str]]:
    """Returns the latest and all checkpoint paths of the state file."""
    try:
        state = tf.train.get_checkpoint_state(output_dir)
    except ValueError:  # Bytes that are no text, or no path in it.
        state = None
    if state is None:
        return None, []
    return state.model_checkpoint_path, list(state.all_model_checkpoint_paths)


def _write_state(output_dir: str, names: list[str]) -> None:
    """Writes the state file: names, oldest first, the last is the latest."""
    # Relative, so the directory can be moved.
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    path = os.path.join(output_dir, _STATE_FILE)
    with file_io.atomic_writer(path) as writer:
        writer.write("\n".join(lines) + "\n")


def _listed_checkpoints(
    output_dir: str, *, other_than: str
) -> tuple[list[str], list[str]]:
    """Returns the state file's checkpoints that are here, and are not."""
    here, gone = [], []
    for path in _read_state(output_dir)[1]:
        name = os.path.basename(path)
        if _STEP_NAME.fullmatch(name) and name != other_than:
            index = os.path.join(output_dir, name + ".index")
            (here if file_io.exists(index) else gone).append(name)
    return here, gone


def _remove_unfinished(output_dir: str) -> None:
    """Removes what a killed save left, but for a checkpoint's stand-in."""
    for path in _matching(output_dir, _UNFINISHED_FILE):
        if path.endswith(_UNFINISHED + ".index"):
            # Killed while renaming: the data may have its name, without index.
            prefix = path.removesuffix(_UNFINISHED + ".index")
            if not file_io.exists(prefix + ".index"):
                _remove_all(_index_and_shards(prefix))
        file_io.remove(path)


def _matching(directory: str, pattern: re.Pattern[str]) -> list[str]:
    """Returns the paths in a directory whose name begins with a pattern."""
    names = file_io.list_dir(directory)
    return [os.path.join(directory, n) for n in names if pattern.match(n)]


def _files(prefix: str) -> list[str]:
    """Returns the files of a prefix, temporary ones too, the index first."""
    directory, name = os.path.split(prefix)
    paths = _matching(directory or ".", re.compile(re.escape(name) + r"\."))
    return sorted(paths, key=lambda path: not path.endswith(".index"))


def _index_and_shards(prefix: str) -> list[str]:
    """Returns the files that make a checkpoint, the index first."""
    return [
        path
        for path in _files(prefix)
        if _FILE_SUFFIX.sub("", os.path.basename(path))
        == os.path.basename(prefix)
    ]


def _remove_all(paths: Iterable[str]) -> None:
    for path in paths:
        file_io.remove(path)


def _sync(path: str) -> None:
    """Flushes a local file to disk, or a rename may outlive its data."""
    if os.path.exists(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _some(names: Iterable[str], separator: str = ", ") -> str:
    """Returns the first few names, and how many more there are."""
    names = list(names)
    text = separator.join(names[:_NUM_NAMES_SHOWN])
    more = len(names) - _NUM_NAMES_SHOWN
    return f"{text} and {more} more" if more > 0 else text


def _brackets(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
