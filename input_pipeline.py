"""Records: written, found again by number, and read in batches.

A record is described once, by a spec {name: (shape, dtype)} that writer and
reader share; shape is a tuple, dtype "int32" or "float32". On disk it is a
`tf.train.Example` in a TFRecord file, as the release wrote it.

Training reads by number: which records step n sees is a function of the seed
and n, so a resumed run starts at its step and reads nothing before it.
"""

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import file_io

Spec = Mapping[str, tuple[tuple[int, ...], str]]

# A record is preceded by its length and the length's checksum, and followed by
# its own checksum (the TFRecord format).
_HEADER_BYTES = 12
_FOOTER_BYTES = 4


def write_records(
    path: str, features: Iterable[Mapping[str, Any]], spec: Spec
) -> int:
    """Writes a TFRecord file, all of it or none.

    Args:
      path: the file.
      features: {name: number or list of numbers} for each record.
      spec: names, shapes and dtypes.

    Returns:
      The number of records.

    Raises:
      ValueError: a record differs from the spec.
    """
    num_records = 0
    beside = f"{path}.partial"
    try:
        with tf.io.TFRecordWriter(beside) as writer:
            for feature in features:
                writer.write(serialize(feature, spec))
                num_records += 1
        file_io.rename(beside, path)
    except BaseException:
        if file_io.exists(beside):
            file_io.remove(beside)
        raise
    return num_records


def serialize(feature: Mapping[str, Any], spec: Spec) -> bytes:
    """Returns one record as a serialized `tf.train.Example`.

    Raises:
      ValueError: names or sizes differ from the spec.
    """
    if set(feature) != set(spec):
        raise ValueError(
            f"A record has {sorted(feature)}, its spec {sorted(spec)}."
        )
    example = tf.train.Example()
    for name, (shape, dtype) in spec.items():
        values = np.ravel(np.asarray(feature[name], dtype))
        if values.size != np.prod(shape, dtype=int):
            raise ValueError(
                f"{name} of a record has {values.size} values, its spec "
                f"{shape}."
            )
        entry = example.features.feature[name]
        if dtype == "float32":
            entry.float_list.value.extend(values.tolist())
        else:
            entry.int64_list.value.extend(values.tolist())
    return example.SerializeToString(deterministic=True)


class Records:
    """The records of TFRecord files, by number from 0, without loading them.

    Args:
      paths: the files, in order.

    Raises:
      ValueError: no file, a damaged file, or not one record in them.
    """

    def __init__(self, paths: Sequence[str]):
        if not paths:
            raise ValueError("There is no record file to read.")
        self._buffers = [_map_file(path) for path in paths]
        sizes = [
            _record_sizes(path, len(buffer))
            for path, buffer in zip(paths, self._buffers, strict=True)
        ]
        self._file_index = np.repeat(
            np.arange(len(paths)), [len(s) for s in sizes]
        )
        self._sizes = np.concatenate(sizes)
        self._offsets = np.concatenate([_offsets(s) for s in sizes])
        if not len(self):
            raise ValueError(f"There is no record in {', '.join(paths)}.")

    def __len__(self) -> int:
        """The number of records."""
        return len(self._sizes)

    def __getitem__(self, index: int) -> bytes:
        """Returns a serialized record."""
        start = self._offsets[index]
        buffer = self._buffers[self._file_index[index]]
        return bytes(buffer[start : start + self._sizes[index]])


def _map_file(path: str) -> bytes | mmap.mmap:
    """The bytes of a file; those of a remote one are fetched at once."""
    with file_io.open_file(path, "rb") as reader:
        try:
            return mmap.mmap(reader.fileno(), 0, access=mmap.ACCESS_READ)
        except (AttributeError, OSError, ValueError):  # Remote, or empty.
            return reader.read()


def _record_sizes(path: str, num_bytes: int) -> np.ndarray:
    """Sizes of the records of a file in bytes, its checksums verified."""
    dataset = tf.data.TFRecordDataset(path).map(tf.strings.length).batch(4096)
    batches = [np.zeros(0, np.int64)]
    try:
        batches.extend(
            batch.astype(np.int64) for batch in dataset.as_numpy_iterator()
        )
    except tf.errors.DataLossError as e:
        raise ValueError(
            f"{path} is damaged: write it again. ({e.message})"
        ) from None
    sizes = np.concatenate(batches)
    # TensorFlow takes a file that breaks off in a header for one that ends.
    num_read = int(np.sum(sizes + _HEADER_BYTES + _FOOTER_BYTES))
    if num_read != num_bytes:
        raise ValueError(
            f"{path} is damaged: write it again. (It breaks off at {num_read}, "
            f"{num_bytes - num_read} bytes into a record.)"
        )
    return sizes


def _offsets(sizes: np.ndarray) -> np.ndarray:
    """Where each record of a file begins, from the sizes of all."""
    ends = np.cumsum(sizes + _HEADER_BYTES + _FOOTER_BYTES)
    return ends - sizes - _FOOTER_BYTES


def record_order(
    num_records: int, random_seed: int, start: int
) -> Iterator[int]:
    """Yields record numbers for ever: each epoch all of them, shuffled anew.

    Args:
      num_records: records in an epoch.
      random_seed: with the number of the epoch it determines the order.
      start: how many to leave out at the start; they are not drawn.
    """
    epoch, position = divmod(start, num_records)
    while True:
        generator = np.random.default_rng([random_seed, epoch])
        yield from generator.permutation(num_records)[position:].tolist()
        epoch, position = epoch + 1, 0


def train_dataset(
    records: Records, spec: Spec, batch_size: int, random_seed: int
) -> Callable[[int], tf.data.Dataset]:
    """Returns a function from a step to the dataset that begins there.

    Every batch is full: an epoch's last one is filled from the next epoch.

    Args:
      records: what to train on.
      spec: names, shapes and dtypes.
      batch_size: global batch, in examples.
      random_seed: see `record_order`.

    Returns:
      A function of the number of steps made so far; its datasets have no end
      and yield {name: dtype [batch_size, *shape]}.
    """

    def dataset_from(step: int) -> tf.data.Dataset:
        def batches():
            order = record_order(len(records), random_seed, step * batch_size)
            while True:
                yield [records[next(order)] for _ in range(batch_size)]

        dataset = tf.data.Dataset.from_generator(
            batches, output_signature=tf.TensorSpec([batch_size], tf.string)
        )
        return dataset.map(_parser(spec)).prefetch(tf.data.AUTOTUNE)

    return dataset_from


def eval_dataset(path: str, spec: Spec, batch_size: int) -> tf.data.Dataset:
    """Returns the records of a file in order.

    The last batch is filled up with rows of zeros, `is_real_example` included.

    Args:
      path: a TFRecord file.
      spec: names, shapes and dtypes.
      batch_size: global batch, in examples.

    Returns:
      A dataset of {name: dtype [batch_size, *shape]}.
    """
    parse = _parser(spec)

    def fill_up(serialized):
        batch = parse(serialized)
        missing = batch_size - tf.shape(serialized)[0]
        filled = {}
        for name, tensor in batch.items():
            paddings = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
            tensor = tf.pad(tensor, paddings)
            filled[name] = tf.ensure_shape(tensor, [batch_size, *spec[name][0]])
        return filled

    dataset = tf.data.TFRecordDataset(path).batch(batch_size)
    return dataset.map(fill_up).prefetch(tf.data.AUTOTUNE)


def _parser(spec: Spec) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns a function from string [B] to {name: dtype [B, *shape]}."""
    columns = {
        name: tf.io.FixedLenFeature(
            shape, tf.float32 if dtype == "float32" else tf.int64
        )
        for name, (shape, dtype) in spec.items()
    }

    def parse(serialized):
        parsed = tf.io.parse_example(serialized, columns)
        # A TPU has no int64.
        return {
            name: tf.cast(tensor, spec[name][1])
            for name, tensor in parsed.items()
        }

    return parse
