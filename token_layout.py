"""Which positions of a batch the encoder computes on, and the way there.

B batch_size, S seq_length, T number of tokens computed on, X any width.
"""

import dataclasses

import tensorflow as tf

import kernels

# What is subtracted from the score of a masked position (quirk of the release:
# a number, not infinity, so a row without any real token still attends).
MASKED_SCORE = -10000.0


@dataclasses.dataclass(frozen=True, eq=False)
class TokenLayout:
    """Where the rows the encoder computes on stand in the batch.

    With `remove_padding` those are the real tokens, plus as much padding as
    makes their number one of a few dozen: XLA and oneDNN prepare code for every
    new shape. Without it they are all B * S positions and `token_index` is
    None. Either way the dense layers see a matrix [T, H], for which TensorFlow
    merges bias and activation into the product.

    Attributes:
      token_index: int32 [T], position of each row in the flattened [B, S].
      first_token: int32 [B], the row that holds position 0 of each sequence.
      batch_shape: int32 [2], B and S. Here S may end after the last real token.
      full_length: int32 [], S of the batch as it was given.
      scores_adder: float32 [B, 1, 1, S], 0 at real and -10000 at masked
        positions.
      fuse: whether the layers use fused kernels.
    """

    token_index: tf.Tensor | None
    first_token: tf.Tensor
    batch_shape: tf.Tensor
    full_length: tf.Tensor
    scores_adder: tf.Tensor
    fuse: bool


# How many numbers of rows, and of positions, a batch of one shape can have.
_NUM_ROW_SHAPES = 32
_NUM_LENGTHS = 16


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
    token_index = None
    first_token = tf.range(batch_size) * full_length
    if remove_padding:
        is_real = tf.not_equal(input_mask, 0)
        is_real |= ~tf.reduce_any(is_real, axis=1, keepdims=True)
        is_real |= tf.equal(tf.range(full_length), 0)
        last_real = tf.reduce_max(tf.where(is_real)[:, 1])
        length = kernels.round_up(
            tf.cast(last_real, tf.int32) + 1, full_length, _NUM_LENGTHS
        )
        is_real, input_mask = is_real[:, :length], input_mask[:, :length]
        num_tokens = tf.reduce_sum(tf.cast(is_real, tf.int32), axis=1)
        first_token = tf.cumsum(num_tokens, exclusive=True)
        num_rows = kernels.round_up(
            tf.reduce_sum(num_tokens), batch_size * length, _NUM_ROW_SHAPES
        )
        is_real = tf.reshape(is_real, [-1])
        order = tf.concat([tf.where(is_real), tf.where(~is_real)], axis=0)
        token_index = tf.cast(order[:num_rows, 0], tf.int32)
        shape = tf.stack([batch_size, length])
    adder = (1.0 - tf.cast(input_mask, tf.float32)) * MASKED_SCORE
    return TokenLayout(
        token_index,
        first_token,
        shape,
        full_length,
        adder[:, tf.newaxis, tf.newaxis, :],
        fuse,
    )


def unpack(rows: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
    """[T, X] to [B * S, X], zero where nothing was computed."""
    if layout.token_index is None:
        return rows
    num_positions = tf.reduce_prod(layout.batch_shape)
    return tf.scatter_nd(
        layout.token_index[:, tf.newaxis],
        rows,
        tf.stack([num_positions, rows.shape[1]]),
    )


def pack(positions: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
    """[B * S, X] to [T, X]: the inverse of `unpack`."""
    if layout.token_index is None:
        return positions

    # The built-in gradient of a gather adds up rows that may repeat; ours do
    # not, and a scatter takes half the time.
    @tf.custom_gradient
    def gather(positions):
        return tf.gather(positions, layout.token_index), lambda dy: unpack(
            dy, layout
        )

    return gather(positions)


def unpack_sequence(rows: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
    """[T, H] to [B, S, H] with S as in the batch that was given."""
    batch_size, length = layout.batch_shape[0], layout.batch_shape[1]
    sequence = tf.reshape(
        unpack(rows, layout), [batch_size, length, rows.shape[1]]
    )
    return tf.pad(sequence, [[0, 0], [0, layout.full_length - length], [0, 0]])
