"""The passes between the matrix products, each of them one loop over memory.

On a CPU a training step of BERT spends as long on element-wise operations as on
matrix products when every addition and every dropout walks through memory on
its own. With `fuse` the operations between two products are one function that
XLA compiles into a few loops, for the forward and for the backward pass. The
backward pass starts from the inputs again: of what is in between only the mask
of dropout is kept.

XLA compiles once for every shape: `round_up` keeps the number of shapes small.
Without `fuse` the same functions are ordinary TensorFlow, which is right for
inference (TensorFlow merges bias and activation into the product), for a GPU
and inside a step that is compiled as a whole.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def round_up(
    size: tf.Tensor, full_size: tf.Tensor, num_shapes: int
) -> tf.Tensor:
    """Rounds up to a multiple of full_size / num_shapes, or to full_size.

    Args:
      size: int32 [], the number of rows needed.
      full_size: int32 [], the largest number there can be.
      num_shapes: how many different results there may be, about.

    Returns:
      int32 [], at least `size` and at most `full_size`.
    """
    step = tf.maximum(full_size // num_shapes, 1)
    return tf.minimum((size + step - 1) // step * step, full_size)


def dropout(
    x: tf.Tensor, rate: float | None, seed: tf.Tensor | None
) -> tf.Tensor:
    """Sets each element to 0 with probability `rate` and scales up the others.

    Args:
      x: float tensor of any shape.
      rate: probability in [0, 1); None is 0.
      seed: int32 [2]; the same seed and shape give the same zeros. None means
        inference: `x` is returned.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    if seed is None or not rate:
        return x
    return _drop(x, _draw_kept(tf.shape(x), rate, seed, "philox"), rate)


def _draw_kept(shape, rate, seed, alg):
    """Which elements dropout keeps: bool of `shape`."""
    return tf.random.stateless_uniform(shape, seed, alg=alg) >= rate


def _drop(x, kept, rate):
    """Applies a mask of `_draw_kept`; None keeps everything."""
    if kept is None:
        return x
    return tf.where(kept, x * (1.0 / (1.0 - rate)), tf.zeros([], x.dtype))


def layer_norm(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
) -> tf.Tensor:
    """Normalises the last axis, in float32 (Ba et al. 2016, section 3).

    Args:
      x: float [..., H].
      gamma: float [H], multiplied with.
      beta: float [H], added.
      epsilon: added to the variance.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    x32 = tf.cast(x, tf.float32)
    centred = x32 - tf.reduce_mean(x32, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    scale = tf.math.rsqrt(variance + epsilon)
    normalised = centred * scale * tf.cast(gamma, tf.float32)
    return tf.cast(normalised + tf.cast(beta, tf.float32), x.dtype)


def bias_activation(
    x: tf.Tensor, bias: tf.Tensor, *, activation: Callable, fuse: bool
) -> tf.Tensor:
    """Adds a bias and applies an activation.

    Args:
      x: float [T, X], a matrix product.
      bias: float [X].
      activation: applied to the sum.
      fuse: see the module.

    Returns:
      float [T, X].
    """
    return _run(_bias_activation, (x, bias), fuse=fuse, activation=activation)


def _bias_activation(x, bias, unused_kept, unused_rate, *, activation):
    return activation(tf.nn.bias_add(x, bias))


def add_and_norm(
    x: tf.Tensor,
    bias: tf.Tensor,
    residual: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    seed: tf.Tensor | None,
    *,
    rate: float | None,
    epsilon: float,
    fuse: bool,
) -> tf.Tensor:
    """Returns LayerNorm(dropout(x + bias) + residual).

    Args:
      x: float [T, H], a matrix product.
      bias: float [H].
      residual: float [T, H].
      gamma: float [H], see `layer_norm`.
      beta: float [H].
      seed: int32 [2] or None, see `dropout`.
      rate: probability of dropping an element.
      epsilon: see `layer_norm`.
      fuse: see the module.

    Returns:
      float [T, H].
    """
    return _run(
        _add_and_norm,
        (x, bias, residual, gamma, beta),
        fuse=fuse,
        rate=rate,
        seed=seed,
        epsilon=epsilon,
    )


def _add_and_norm(x, bias, residual, gamma, beta, kept, rate, *, epsilon):
    x = _drop(tf.nn.bias_add(x, bias), kept, rate)
    return layer_norm(x + residual, gamma, beta, epsilon)


def norm_and_drop(
    x: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    seed: tf.Tensor | None,
    *,
    rate: float | None,
    epsilon: float,
    fuse: bool,
) -> tf.Tensor:
    """Returns dropout(LayerNorm(x)).

    Args:
      x: float [T, H].
      gamma: float [H], see `layer_norm`.
      beta: float [H].
      seed: int32 [2] or None, see `dropout`.
      rate: probability of dropping an element.
      epsilon: see `layer_norm`.
      fuse: see the module.

    Returns:
      float [T, H].
    """
    return _run(
        _norm_and_drop,
        (x, gamma, beta),
        fuse=fuse,
        rate=rate,
        seed=seed,
        epsilon=epsilon,
    )


def _norm_and_drop(x, gamma, beta, kept, rate, *, epsilon):
    return _drop(layer_norm(x, gamma, beta, epsilon), kept, rate)


def attention_probs(
    scores: tf.Tensor,
    adder: tf.Tensor,
    seed: tf.Tensor | None,
    *,
    head_size: int,
    rate: float | None,
    fuse: bool,
) -> tf.Tensor:
    """Returns dropout(softmax(scores / sqrt(head_size) + adder)).

    Computed in float32: in float16 -10000 + 3.7 is -10000.

    Args:
      scores: float [B, N, F, S], products of queries and keys.
      adder: float32 [B, 1, 1, S], 0 at real and -10000 at masked positions.
      seed: int32 [2] or None, see `dropout`.
      head_size: size of one query.
      rate: probability of dropping an attention weight.
      fuse: see the module.

    Returns:
      A tensor of the shape and dtype of `scores`.
    """
    return _run(
        _attention_probs,
        (scores,),
        (adder,),
        fuse=fuse,
        rate=rate,
        seed=seed,
        scale=1.0 / math.sqrt(head_size),
    )


def _attention_probs(scores, adder, kept, rate, *, scale):
    probs = tf.nn.softmax(tf.cast(scores, tf.float32) * scale + adder)
    return tf.cast(_drop(probs, kept, rate), scores.dtype)


def _run(
    function: Callable,
    inputs: tuple[tf.Tensor, ...],
    constants: tuple[tf.Tensor, ...] = (),
    *,
    fuse: bool,
    rate: float | None = None,
    seed: tf.Tensor | None = None,
    **static: Any,
) -> tf.Tensor:
    """Calls `function`, which drops elements of the shape of its first input.

    It is differentiable in `inputs`, not in `constants`.
    """
    if seed is None or not rate:
        rate = seed = None
    if not fuse:
        kept = None
        if rate:
            kept = _draw_kept(tf.shape(inputs[0]), rate, seed, "philox")
        return function(*inputs, *constants, kept, rate, **static)
    forward, backward = _compiled(function, rate, tuple(sorted(static.items())))

    @tf.custom_gradient
    def differentiable(*inputs):
        output, kept = forward(inputs, constants, seed)
        return output, lambda dy: backward(inputs, constants, kept, dy)

    return differentiable(*map(tf.convert_to_tensor, inputs))


@functools.cache
def _compiled(
    function: Callable, rate: float | None, static: tuple
) -> tuple[Callable, Callable]:
    """The two compiled passes, shared by all layers: one compilation each."""
    compile_ = functools.partial(
        tf.function, jit_compile=True, autograph=False, reduce_retracing=True
    )

    @compile_
    def forward(inputs, constants, seed):
        kept = None
        if rate:
            # Of XLA's generators this one makes the fastest loops.
            kept = _draw_kept(tf.shape(inputs[0]), rate, seed, "threefry")
        return function(*inputs, *constants, kept, rate, **dict(static)), kept

    @compile_
    def backward(inputs, constants, kept, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs, *constants, kept, rate, **dict(static))
        return tape.gradient(output, inputs, upstream)

    return forward, backward
