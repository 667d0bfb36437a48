"""Which positions of a batch the encoder computes on, and the way there.

B batch_size, S seq_length, T number of rows computed on, N number of heads, D
size of one head, G sequences in a group, L positions of a group.
"""

import dataclasses

import tensorflow as tf

import kernels

# What is added to the score of a masked position (quirk of the release: a
# number, not infinity, so a sequence without any real token still attends).
MASKED_SCORE = -10000.0

# How many numbers of rows, and of positions, a batch of one shape can have.
_NUM_ROW_SHAPES = 32
_NUM_LENGTHS = 16
# Sequences are sorted by length into so many groups, each as long as its
# longest one: attention on padding costs its square.
_NUM_GROUPS = 4


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionGroup:
    """Sequences that attention works on together.

    Attributes:
      sequences: int32 [G], which of the batch.
      token_row: int32 [G, L], the row of each position, T where nothing is
        computed.
      scores_adder: float32 [G, 1, 1, L], 0 at real and -10000 at masked
        positions.
    """

    sequences: tf.Tensor
    token_row: tf.Tensor
    scores_adder: tf.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class TokenLayout:
    """Where the rows the encoder computes on stand in the batch.

    With `remove_padding` those are the real tokens, plus as much padding as
    makes their number one of a few dozen: XLA and oneDNN prepare code for every
    new shape. Without it they are all B * S positions, `token_index` is None
    and there is one group. Either way the dense layers see a matrix [T, H], for
    which TensorFlow merges bias and activation into the product.

    Attributes:
      token_index: int32 [T], position of each row in the flattened
        `batch_shape`.
      first_token: int32 [B], the row that holds position 0 of each sequence.
      batch_shape: int32 [2], B and S. Here S may end after the last real token.
      full_length: int32 [], S of the batch as it was given.
      groups: which together hold every sequence once.
      fuse: whether the layers use fused kernels.
    """

    token_index: tf.Tensor | None
    first_token: tf.Tensor
    batch_shape: tf.Tensor
    full_length: tf.Tensor
    groups: list[AttentionGroup]
    fuse: bool


def make_token_layout(
    input_mask: tf.Tensor, remove_padding: bool, fuse: bool = False
) -> TokenLayout:
    """Finds the rows to compute on.

    Args:
      input_mask: int32 [B, S], nonzero at real positions. A row of zeros counts
        as real everywhere, and so does position 0, which the pooler reads.
      remove_padding: leave the other positions out.
      fuse: kept for the layers.
    """
    shape = tf.shape(input_mask)
    batch_size, full_length = shape[0], shape[1]
    adder = (1.0 - tf.cast(input_mask, tf.float32)) * MASKED_SCORE
    if not remove_padding:
        rows = tf.range(batch_size * full_length)
        rows = tf.reshape(rows, shape)
        group = AttentionGroup(
            tf.range(batch_size), rows, adder[:, tf.newaxis, tf.newaxis]
        )
        return TokenLayout(None, rows[:, 0], shape, full_length, [group], fuse)

    is_real = tf.not_equal(input_mask, 0)
    is_real |= ~tf.reduce_any(is_real, axis=1, keepdims=True)
    is_real |= tf.equal(tf.range(full_length), 0)
    # Positions up to and including the last real one.
    lengths = tf.reduce_max(
        tf.where(is_real, tf.range(1, full_length + 1), 0), axis=1
    )
    length = kernels.round_up(tf.reduce_max(lengths), full_length, _NUM_LENGTHS)
    is_real = is_real[:, :length]
    num_tokens = tf.reduce_sum(tf.cast(is_real, tf.int32), axis=1)
    # A part of the full length, or there would be 32 sizes for each length.
    num_rows = kernels.round_up(
        tf.reduce_sum(num_tokens), batch_size * full_length, _NUM_ROW_SHAPES
    )
    is_real = tf.reshape(is_real, [-1])
    order = tf.concat([tf.where(is_real), tf.where(~is_real)], axis=0)
    token_index = tf.cast(order[:num_rows, 0], tf.int32)
    num_rows = tf.size(token_index)  # Or fewer, if there are no more.
    token_row = tf.tensor_scatter_nd_update(
        tf.fill([batch_size * length], num_rows),
        token_index[:, tf.newaxis],
        tf.range(num_rows),
    )
    return TokenLayout(
        token_index,
        tf.cumsum(num_tokens, exclusive=True),
        tf.stack([batch_size, length]),
        full_length,
        _make_groups(
            lengths,
            tf.reshape(token_row, [batch_size, length]),
            adder,
            input_mask.shape[0],
        ),
        fuse,
    )


def _make_groups(lengths, token_row, adder, batch_size):
    """Sorts the sequences of a batch into groups of the same number."""
    num_groups = _NUM_GROUPS
    while num_groups > 1 and (not batch_size or batch_size % num_groups):
        num_groups //= 2
    by_length = tf.split(
        tf.argsort(lengths, direction="DESCENDING", stable=True), num_groups
    )
    groups = []
    for sequences in by_length:
        length = kernels.round_up(
            tf.gather(lengths, sequences[0]), tf.shape(adder)[1], _NUM_LENGTHS
        )
        group_adder = tf.gather(adder[:, :length], sequences)
        groups.append(
            AttentionGroup(
                sequences,
                tf.gather(token_row[:, :length], sequences),
                group_adder[:, tf.newaxis, tf.newaxis],
            )
        )
    return groups


def unpack_sequence(rows: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
    """[T, H] to [B, S, H] as the batch was given; zero where not computed."""
    batch_size, length = layout.batch_shape[0], layout.batch_shape[1]
    width = rows.shape[1]
    if layout.token_index is not None:
        rows = tf.scatter_nd(
            layout.token_index[:, tf.newaxis],
            rows,
            tf.stack([batch_size * length, width]),
        )
    sequence = tf.reshape(rows, [batch_size, length, width])
    return tf.pad(sequence, [[0, 0], [0, layout.full_length - length], [0, 0]])


# ---------------------------------------------------------------------------
# Between rows, for the dense layers, and heads, for attention.


def split_heads(
    rows: tf.Tensor, layout: TokenLayout, num_heads: int
) -> list[tf.Tensor]:
    """Brings rows into the order of attention.

    Args:
      rows: float [T, N * D].
      layout: of these rows.
      num_heads: N.

    Returns:
      For each group float [G, N, L, D]. What stands at padding is finite and
      any: attention gives it no weight.
    """
    if layout.token_index is None:
        shape = tf.unstack(layout.batch_shape)
        size = rows.shape[1] // num_heads
        x = tf.reshape(rows, [*shape, num_heads, size])
        return [tf.transpose(x, [0, 2, 1, 3])]

    @tf.custom_gradient
    def split(rows):
        # Row T does not exist: at padding, take the last instead.
        groups = _gather_in(rows, layout, num_heads, tf.shape(rows)[0] - 1)
        return groups, lambda *dy: _gather_out(dy, layout)

    groups = split(rows)
    # A custom gradient unwraps a list of one.
    return groups if isinstance(groups, list | tuple) else [groups]


def merge_heads(groups: list[tf.Tensor], layout: TokenLayout) -> tf.Tensor:
    """Brings what attention made back into rows.

    Args:
      groups: for each group float [G, N, L, D].
      layout: of the rows.

    Returns:
      float [T, N * D].
    """
    num_heads, size = groups[0].shape[1], groups[0].shape[3]
    if layout.token_index is None:
        x = tf.transpose(groups[0], [0, 2, 1, 3])
        return tf.reshape(x, [-1, num_heads * size])

    @tf.custom_gradient
    def merge(*groups):
        def gradient(dy):
            # Nothing is read at padding, so its gradient is zero.
            dy = tf.pad(dy, [[0, 1], [0, 0]])
            return _gather_in(dy, layout, num_heads, tf.shape(dy)[0] - 1)

        return _gather_out(groups, layout), gradient

    return merge(*groups)


def _gather_in(rows, layout, num_heads, last_row):
    """[T, N * D] to [G, N, L, D] for each group, in one copy."""
    slices = tf.reshape(rows, [-1, rows.shape[1] // num_heads])
    head = tf.range(num_heads)[:, tf.newaxis]
    result = []
    for group in layout.groups:
        row = tf.minimum(group.token_row, last_row) * num_heads
        index = row[:, tf.newaxis, :] + head  # [G, N, L]
        result.append(tf.gather(slices, index))
    return result


def _gather_out(groups, layout):
    """[G, N, L, D] of each group to [T, N * D], in one copy."""
    num_heads, size = groups[0].shape[1], groups[0].shape[3]
    # For each sequence: its first slice, and from a head to the next.
    starts, steps = [], []
    num_slices = 0
    for group, x in zip(layout.groups, groups, strict=True):
        length = tf.shape(x)[2]
        ones = tf.ones_like(group.sequences)
        sequence = tf.range(tf.size(ones))
        starts.append(num_slices + sequence * num_heads * length)
        steps.append(ones * length)
        num_slices += tf.size(x) // size
    sequences = tf.concat([g.sequences for g in layout.groups], axis=0)
    in_batch_order = tf.tensor_scatter_nd_update(
        tf.zeros([layout.batch_shape[0], 2], tf.int32),
        sequences[:, tf.newaxis],
        tf.stack([tf.concat(starts, axis=0), tf.concat(steps, axis=0)], axis=1),
    )
    sequence = layout.token_index // layout.batch_shape[1]
    position = layout.token_index % layout.batch_shape[1]
    start, step = tf.unstack(
        tf.gather(in_batch_order, sequence)[:, :, tf.newaxis], axis=1
    )  # [T, 1]
    position = position[:, tf.newaxis]
    index = start + position + tf.range(num_heads) * step  # [T, N]
    # A row of padding may lie beyond the length of its group: it gets zeros.
    index = tf.where(position < step, index, num_slices)
    zeros = tf.zeros([1, size], groups[0].dtype)
    slices = tf.concat(
        [*(tf.reshape(x, [-1, size]) for x in groups), zeros], axis=0
    )
    return tf.reshape(tf.gather(slices, index), [-1, num_heads * size])
