"""Tests of writing records, finding them by number and batching them."""

import gzip
import itertools
import json
import os

import numpy as np
import pytest
import tensorflow as tf

import input_pipeline
from input_pipeline import Records

SPEC = {
    "input_ids": ((3,), "int32"),
    "label_ids": ((), "int32"),
    "rating": ((), "float32"),
    "is_real_example": ((), "int32"),
}
# As it was recorded from the release, see testdata/README.md.
RECORDED = os.path.join(
    os.path.dirname(__file__), "testdata", "classifier_features"
)


def make_feature(i):
    return {
        "input_ids": [i, i + 1, -i],
        "label_ids": i % 2,
        "rating": i / 8.0,
        "is_real_example": 1,
    }


def write(path, numbers):
    features = map(make_feature, numbers)
    input_pipeline.write_records(str(path), features, SPEC)
    return str(path)


def number_of(record):
    example = tf.train.Example.FromString(record)
    return example.features.feature["input_ids"].int64_list.value[0]


def numbers_of(records):
    return [number_of(records[i]) for i in range(len(records))]


# Writing.


def test_records_come_back_as_they_were_written(tmp_path):
    path = write(tmp_path / "a", range(4))
    (batch,) = input_pipeline.eval_dataset(path, SPEC, 4)
    assert {
        name: column.numpy().tolist() for name, column in batch.items()
    } == {
        "input_ids": [[0, 1, 0], [1, 2, -1], [2, 3, -2], [3, 4, -3]],
        "label_ids": [0, 1, 0, 1],
        "rating": [0.0, 0.125, 0.25, 0.375],
        "is_real_example": [1, 1, 1, 1],
    }


def test_batches_have_the_shapes_and_dtypes_of_the_spec(tmp_path):
    path = write(tmp_path / "a", range(4))
    train = input_pipeline.train_dataset(Records([path]), SPEC, 2, 0)(0)
    for dataset in (train, input_pipeline.eval_dataset(path, SPEC, 2)):
        assert dataset.element_spec == {
            name: tf.TensorSpec([2, *shape], dtype)
            for name, (shape, dtype) in SPEC.items()
        }


def test_number_of_records_is_returned(tmp_path):
    features = map(make_feature, range(5))
    path = str(tmp_path / "a")
    assert input_pipeline.write_records(path, features, SPEC) == 5


def test_a_record_is_what_the_release_wrote():
    path = os.path.join(RECORDED, "mrpc_dev_lower_len32.tfrecord")
    spec = {
        **{
            name: ((32,), "int32")
            for name in ("input_ids", "input_mask", "segment_ids")
        },
        "label_ids": ((), "int32"),
        "is_real_example": ((), "int32"),
    }
    with gzip.open(os.path.join(RECORDED, "features.json.gz")) as reader:
        (features,) = (
            entry["features"]["lower=True,len=32"]
            for entry in json.load(reader)
            if (entry["task"], entry["split"]) == ("mrpc", "dev")
        )
    records = Records([path])
    assert len(records) == len(features)
    for i, feature in enumerate(features):
        feature["label_ids"] = feature.pop("label_id")
        wanted = tf.train.Example.FromString(records[i])
        written = input_pipeline.serialize(feature, spec)
        assert tf.train.Example.FromString(written) == wanted


def test_the_same_record_is_the_same_bytes():
    backwards = dict(reversed(make_feature(1).items()))
    assert input_pipeline.serialize(
        backwards, SPEC
    ) == input_pipeline.serialize(make_feature(1), SPEC)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": [1, 2]}, "input_ids of a record has 2 values"),
        ({"input_ids": [1] * 4}, "input_ids of a record has 4 values"),
        ({"label_ids": [0, 1]}, "label_ids of a record has 2 values"),
        ({"segment_ids": [0, 0, 0]}, "A record has .*'segment_ids'"),
    ],
)
def test_a_record_unlike_its_spec_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        input_pipeline.serialize({**make_feature(0), **change}, SPEC)


def test_a_record_that_lacks_a_name_is_refused():
    feature = make_feature(0)
    del feature["rating"]
    with pytest.raises(ValueError, match="its spec .*'rating'"):
        input_pipeline.serialize(feature, SPEC)


def interrupted():
    yield make_feature(0)
    raise KeyboardInterrupt


def test_an_interrupted_write_leaves_no_file(tmp_path):
    path = str(tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        input_pipeline.write_records(path, interrupted(), SPEC)
    assert os.listdir(tmp_path) == []


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = write(tmp_path / "a", [7, 8])
    with pytest.raises(KeyboardInterrupt):
        input_pipeline.write_records(path, interrupted(), SPEC)
    assert numbers_of(Records([path])) == [7, 8]


# By number.


def test_records_are_found_by_number(tmp_path):
    records = Records([write(tmp_path / "a", range(5))])
    assert [number_of(records[i]) for i in (3, 0, 4, 3)] == [3, 0, 4, 3]


def test_records_of_several_files_are_counted_on(tmp_path):
    paths = [
        write(tmp_path / "a", [0, 1]),
        write(tmp_path / "b", []),
        write(tmp_path / "c", [2, 3, 4]),
    ]
    assert numbers_of(Records(paths)) == [0, 1, 2, 3, 4]


def test_records_of_different_sizes_are_found(tmp_path):
    path = str(tmp_path / "a")
    wanted = [b"", b"x" * 1000, b"yy", b""]
    with tf.io.TFRecordWriter(path) as writer:
        for record in wanted:
            writer.write(record)
    records = Records([path])
    assert [records[i] for i in range(4)] == wanted


def test_no_file_is_refused():
    with pytest.raises(ValueError, match="no record file"):
        Records([])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Records([str(tmp_path / "nowhere")])


def test_files_without_records_are_named(tmp_path):
    paths = [write(tmp_path / name, []) for name in ("a", "b")]
    with pytest.raises(ValueError, match="There is no record in .*a, .*b"):
        Records(paths)


def damaged(path, damage):
    with open(path, "rb") as reader:
        content = bytearray(reader.read())
    with open(path, "wb") as writer:
        writer.write(damage(content))


def flip(position):
    def damage(content):
        content[position] ^= 1
        return content

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: -len(content) // 4 - 20],
        lambda content: content[:5],
        lambda content: content + b"\0",
        flip(0),
        flip(9),
        flip(20),
        flip(-1),
        lambda content: b"text_a\ttext_b\nThis is no record file.\n",
    ],
    ids=[
        "a byte lost",
        "more than a record lost",
        "first length lost",
        "a byte too many",
        "length",
        "checksum of the length",
        "content",
        "checksum of the content",
        "text",
    ],
)
def test_a_damaged_file_is_named(tmp_path, damage):
    good, bad = (write(tmp_path / name, range(4)) for name in ("good", "bad"))
    damaged(bad, damage)
    with pytest.raises(ValueError, match=f"^{bad} is damaged: write it again"):
        Records([good, bad])


def test_a_damaged_file_is_described_by_where_it_is_damaged(tmp_path):
    path = write(tmp_path / "a", range(100))
    size = os.path.getsize(path)
    damaged(path, lambda content: content[:-1])
    # A record is 1 / 100 of the file, and its content ends four bytes before.
    with pytest.raises(ValueError, match=f"at {size * 99 // 100}\\D"):
        Records([path])


# The order of training.


def take(number, order):
    return list(itertools.islice(order, number))


def test_each_epoch_is_a_permutation():
    order = take(30, input_pipeline.record_order(10, 0, 0))
    for epoch in range(3):
        epoch_order = order[10 * epoch : 10 * epoch + 10]
        assert sorted(epoch_order) == list(range(10))


def test_epochs_differ():
    order = take(100, input_pipeline.record_order(50, 0, 0))
    assert order[:50] != order[50:]
    assert order[:50] != list(range(50))


def test_seeds_differ():
    one, two = (
        take(50, input_pipeline.record_order(50, seed, 0)) for seed in (0, 1)
    )
    assert one != two


def test_an_epoch_is_not_that_of_the_next_seed():
    one = take(100, input_pipeline.record_order(50, 0, 0))
    two = take(100, input_pipeline.record_order(50, 1, 0))
    assert one[50:] != two[:50]


@pytest.mark.parametrize("start", [1, 9, 10, 11, 25])
def test_a_start_drops_what_comes_before(start):
    whole = take(start + 15, input_pipeline.record_order(10, 3, 0))
    assert take(15, input_pipeline.record_order(10, 3, start)) == whole[start:]


def test_a_start_far_away_costs_nothing():
    # A billion epochs in: they are not drawn.
    order = input_pipeline.record_order(10, 3, 10**10 + 4)
    assert len(set(take(6, order))) == 6


def test_a_record_is_at_every_place_equally_often():
    order = np.array(take(20_000, input_pipeline.record_order(10, 0, 0)))
    counts = np.bincount(order[::10])
    # 2,000 epochs, a tenth of them each: five standard deviations.
    assert np.abs(counts - 200).max() < 5.0 * np.sqrt(200 * 0.9)


def train_numbers(records, batch_size, seed, step, num_batches):
    dataset_from = input_pipeline.train_dataset(records, SPEC, batch_size, seed)
    return [
        batch["input_ids"].numpy()[:, 0].tolist()
        for batch in dataset_from(step).take(num_batches)
    ]


@pytest.fixture(name="records")
def fixture_records(tmp_path):
    return Records([write(tmp_path / "train", range(10))])


def test_batches_are_full_across_the_ends_of_epochs(records):
    batches = train_numbers(records, 4, 0, 0, 5)
    assert [len(batch) for batch in batches] == [4] * 5
    # Twenty records: each of the ten twice.
    assert sorted(sum(batches, [])) == sorted([*range(10), *range(10)])


def test_a_batch_may_be_larger_than_an_epoch(records):
    (batch,) = train_numbers(records, 25, 0, 0, 1)
    assert set(np.bincount(batch)) <= {2, 3}


def test_batches_follow_the_order(records):
    batches = train_numbers(records, 4, 6, 0, 5)
    assert sum(batches, []) == take(20, input_pipeline.record_order(10, 6, 0))


@pytest.mark.parametrize("step", [1, 2, 5, 13])
def test_a_resumed_run_sees_what_it_would_have_seen(records, step):
    whole = train_numbers(records, 4, 6, 0, step + 3)
    assert train_numbers(records, 4, 6, step, 3) == whole[step:]


def test_a_batch_of_training_is_parsed_by_the_spec(records):
    dataset = input_pipeline.train_dataset(records, SPEC, 4, 0)(0)
    (batch,) = dataset.take(1)
    for row, i in enumerate(batch["input_ids"].numpy()[:, 0].tolist()):
        for name, value in make_feature(i).items():
            np.testing.assert_array_equal(batch[name][row], value)


# The order of evaluation.


def eval_column(path, name, batch_size):
    dataset = input_pipeline.eval_dataset(path, SPEC, batch_size)
    return [batch[name].numpy().tolist() for batch in dataset]


def test_evaluation_reads_in_order(tmp_path):
    path = write(tmp_path / "eval", range(6))
    ratings = eval_column(path, "rating", 3)
    assert ratings == [[0.0, 0.125, 0.25], [0.375, 0.5, 0.625]]


def test_the_last_batch_is_filled_with_rows_that_are_not_real(tmp_path):
    path = write(tmp_path / "eval", range(1, 6))
    is_real = eval_column(path, "is_real_example", 3)
    assert is_real == [[1, 1, 1], [1, 1, 0]]
    assert eval_column(path, "input_ids", 3)[1][2] == [0, 0, 0]


def test_a_file_smaller_than_a_batch_is_one_batch(tmp_path):
    path = write(tmp_path / "eval", range(2))
    assert eval_column(path, "is_real_example", 4) == [[1, 1, 0, 0]]


def test_an_empty_file_has_no_batch(tmp_path):
    assert eval_column(write(tmp_path / "eval", []), "rating", 4) == []
