"""Tests of which positions the encoder computes on."""

import numpy as np
import pytest
import tensorflow as tf

import token_layout
from token_layout import make_token_layout

MASK = np.array(
    [
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 1, 1, 0, 0],  # Holes.
        [0, 1, 0, 0, 0, 0, 0, 0],  # Position 0 masked, but read by the pooler.
        [1, 0, 0, 0, 0, 0, 0, 0],
    ],
    np.int32,
)
# The positions of MASK that must be computed, flattened.
NEEDED = [0, 1, 2, 8, 10, 12, 13, 16, 17, 24]
NO_TOKEN = np.array([[1, 1, 0, 0], [0, 0, 0, 0]], np.int32)
REMOVE_PADDING = pytest.mark.parametrize("remove_padding", [True, False])


def random(*shape, seed=0):
    return tf.random.stateless_normal(shape, [seed, 1])


def as_given(index, length, full_length):
    """Positions in [B, length], flattened, as positions in [B, full_length]."""
    return index // length * full_length + index % length


def positions_of(layout):
    """Positions the rows stand for, in the batch as it was given."""
    length, full_length = int(layout.batch_shape[1]), int(layout.full_length)
    return as_given(layout.token_index.numpy(), length, full_length).tolist()


# Without removal.


@pytest.fixture(name="full_layout")
def fixture_full_layout():
    return make_token_layout(tf.constant(MASK), remove_padding=False)


def test_without_removal_every_position_is_a_row(full_layout):
    assert full_layout.token_index is None
    assert full_layout.batch_shape.numpy().tolist() == [4, 8]
    assert full_layout.first_token.numpy().tolist() == [0, 8, 16, 24]


def test_without_removal_all_sequences_are_one_group(full_layout):
    (group,) = full_layout.groups
    assert group.sequences.numpy().tolist() == [0, 1, 2, 3]
    assert group.token_row.numpy().ravel().tolist() == list(range(32))


def test_masked_positions_are_lowered_by_ten_thousand(full_layout):
    (group,) = full_layout.groups
    assert group.scores_adder.shape == (4, 1, 1, 8)
    np.testing.assert_array_equal(
        group.scores_adder[:, 0, 0], np.where(MASK, 0.0, -10000.0)
    )


def test_without_removal_the_sequence_is_a_reshape(full_layout):
    x = random(32, 3)
    np.testing.assert_array_equal(
        token_layout.unpack_sequence(x, full_layout), tf.reshape(x, [4, 8, 3])
    )


# With removal: rows.


@pytest.fixture(name="layout")
def fixture_layout():
    return make_token_layout(tf.constant(MASK), remove_padding=True)


def test_real_tokens_come_first_and_in_order(layout):
    assert positions_of(layout)[: len(NEEDED)] == NEEDED


def test_no_position_is_computed_twice(layout):
    positions = positions_of(layout)
    assert len(set(positions)) == len(positions)


def test_first_token_is_the_row_of_position_zero(layout):
    positions = np.array(positions_of(layout))
    first = positions[layout.first_token.numpy()]
    assert first.tolist() == [0, 8, 16, 24]


def test_a_sequence_without_real_tokens_counts_as_real_everywhere():
    layout = make_token_layout(tf.constant(NO_TOKEN), remove_padding=True)
    assert positions_of(layout)[:6] == [0, 1, 4, 5, 6, 7]


def test_a_batch_ends_after_its_last_real_token():
    mask = np.zeros([3, 64], np.int32)
    mask[:, :5] = 1
    mask[1, 9] = 1
    layout = make_token_layout(tf.constant(mask), remove_padding=True)
    # 10 positions, rounded up to a multiple of 64 / 16.
    assert layout.batch_shape.numpy().tolist() == [3, 12]
    assert int(layout.full_length) == 64


def test_a_full_batch_is_computed_whole():
    layout = make_token_layout(tf.ones([3, 7], tf.int32), remove_padding=True)
    assert positions_of(layout) == list(range(21))


def test_a_batch_of_one_token_is_possible():
    layout = make_token_layout(tf.ones([1, 1], tf.int32), remove_padding=True)
    assert positions_of(layout) == [0]


def test_random_masks_lose_no_token_and_make_few_shapes():
    # Every new shape costs XLA and oneDNN a compilation.
    rng = np.random.default_rng(0)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def layout_of(mask):
        layout = make_token_layout(mask, remove_padding=True)
        return layout.token_index, layout.batch_shape[1]

    num_rows, lengths = set(), set()
    for _ in range(200):
        num_tokens = rng.integers(1, rng.integers(2, 129), 16)
        mask = np.arange(128) < num_tokens[:, np.newaxis]
        index, length = layout_of(tf.constant(mask.astype(np.int32)))
        positions = as_given(index.numpy(), int(length), 128)
        assert set(np.flatnonzero(mask)) <= set(positions)
        lengths.add(int(length))
        num_rows.add(len(positions))
    assert len(lengths) <= 16
    assert len(num_rows) <= 64


def test_rows_added_for_the_shape_are_few():
    mask = np.zeros([16, 128], np.int32)
    mask[:, :50] = 1
    mask[3, 100] = 1
    layout = make_token_layout(tf.constant(mask), remove_padding=True)
    # 801 tokens; a 64th of 16 * 128 positions is 32.
    assert 801 <= len(layout.token_index) < 801 + 32


def test_unpacked_rows_stand_where_their_tokens_are(layout):
    num_rows = len(layout.token_index)
    rows = np.arange(1.0, num_rows + 1, dtype=np.float32)[:, np.newaxis]
    unpacked = token_layout.unpack_sequence(tf.constant(rows), layout)
    wanted = np.zeros(MASK.size, np.float32)
    wanted[positions_of(layout)] = rows[:, 0]
    np.testing.assert_array_equal(unpacked, wanted.reshape([4, 8, 1]))


# With removal: groups.


def mask_of(num_tokens, length=64):
    mask = np.arange(length) < np.array(num_tokens)[:, np.newaxis]
    return tf.constant(mask.astype(np.int32))


LENGTHS = [9, 40, 3, 64, 17, 17, 1, 30]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 6, 8])
def test_every_sequence_is_in_one_group(batch_size):
    layout = make_token_layout(mask_of(LENGTHS[:batch_size]), True)
    members = np.concatenate([g.sequences for g in layout.groups])
    assert sorted(members) == list(range(batch_size))


def test_groups_are_as_long_as_their_longest_sequence():
    layout = make_token_layout(mask_of(LENGTHS), True)
    # Pairs from long to short; lengths in steps of 64 / 16.
    got = [
        (g.sequences.numpy().tolist(), g.token_row.shape[1])
        for g in layout.groups
    ]
    assert got == [([3, 1], 64), ([7, 4], 32), ([5, 0], 20), ([2, 6], 4)]


def test_scores_of_a_group_are_those_of_its_sequences():
    layout = make_token_layout(tf.constant(MASK), True)
    for group in layout.groups:
        length = group.token_row.shape[1]
        mask = MASK[group.sequences.numpy(), :length]
        np.testing.assert_array_equal(
            group.scores_adder[:, 0, 0], np.where(mask, 0.0, -10000.0)
        )


def test_rows_of_a_group_are_those_of_its_tokens():
    layout = make_token_layout(tf.constant(MASK), True)
    positions = positions_of(layout)
    for group in layout.groups:
        for sequence, rows in zip(
            group.sequences.numpy(), group.token_row.numpy(), strict=True
        ):
            for i, row in enumerate(rows):
                position = sequence * 8 + i
                if position in positions:
                    assert positions[row] == position
                else:
                    assert row == len(positions)


# Into heads and back: 3 heads of size 5.


@REMOVE_PADDING
def test_heads_are_split_sequence_by_sequence(remove_padding):
    layout = make_token_layout(tf.constant(MASK), remove_padding)
    num_rows = len(positions_of(layout)) if remove_padding else 32
    rows = random(num_rows, 3 * 5)
    groups = token_layout.split_heads(rows, layout, 3)
    for group, x in zip(layout.groups, groups, strict=True):
        # [G, L, N, D] against [G, N, L, D].
        token_row = group.token_row.numpy()
        is_computed = token_row < num_rows
        wanted = rows.numpy()[np.where(is_computed, token_row, 0)]
        wanted = wanted.reshape([*token_row.shape, 3, 5])
        got = np.transpose(x, [0, 2, 1, 3])
        np.testing.assert_array_equal(got[is_computed], wanted[is_computed])


def test_what_stands_at_padding_is_finite():
    layout = make_token_layout(tf.constant(MASK), remove_padding=True)
    rows = random(len(layout.token_index), 3 * 5)
    for x in token_layout.split_heads(rows, layout, 3):
        assert np.isfinite(x).all()


@REMOVE_PADDING
def test_merged_heads_are_the_rows_again(remove_padding):
    layout = make_token_layout(tf.constant(MASK), remove_padding)
    num_rows = len(positions_of(layout)) if remove_padding else 32
    rows = random(num_rows, 15)
    groups = token_layout.split_heads(rows, layout, 3)
    merged = token_layout.merge_heads(groups, layout)
    # Padding that was added for the shape may be zero.
    num_real = len(NEEDED) if remove_padding else 32
    np.testing.assert_array_equal(merged[:num_real], rows[:num_real])


@REMOVE_PADDING
def test_gradients_of_the_way_there_and_back_are_exact(remove_padding):
    layout = make_token_layout(tf.constant(MASK), remove_padding)
    num_rows = len(positions_of(layout)) if remove_padding else 32
    num_real = len(NEEDED) if remove_padding else 32
    rows, factor = random(num_rows, 15), random(num_rows, 15, seed=1)
    # As in the model: nothing reads the outputs of padding.
    factor *= tf.cast(tf.range(num_rows) < num_real, tf.float32)[:, tf.newaxis]
    with tf.GradientTape() as tape:
        tape.watch(rows)
        groups = token_layout.split_heads(rows, layout, 3)
        merged = token_layout.merge_heads([2.0 * x for x in groups], layout)
        total = tf.reduce_sum(merged * factor)
    np.testing.assert_array_equal(tape.gradient(total, rows), 2.0 * factor)
