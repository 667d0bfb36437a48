"""Tests of the passes between the matrix products."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import kernels

SEED = tf.constant([5, 9])
# Two float32 evaluations of a few operations on numbers near 1.
ATOL = 1e-5


def random(*shape, seed=0):
    values = np.random.default_rng([seed, *shape]).normal(size=shape)
    return tf.constant(values.astype(np.float32))


def softmax64(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def layer_norm64(x, gamma, beta, epsilon):
    x = np.asarray(x, np.float64)
    deviation = x - x.mean(axis=-1, keepdims=True)
    x = deviation / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    return x * np.asarray(gamma) + np.asarray(beta)


# round_up.

LIMITS = pytest.mark.parametrize("limit", [1, 7, 33, 128, 4095])


@LIMITS
def test_rounded_sizes_hold_what_is_needed_and_little_more(limit):
    sizes = np.arange(1, limit + 1, dtype=np.int32)
    rounded = kernels.round_up(sizes, tf.constant(limit), 32).numpy()
    assert (rounded >= sizes).all()
    assert (rounded - sizes < max(limit / 32, 1)).all()


@LIMITS
def test_rounded_sizes_are_few(limit):
    rounded = kernels.round_up(tf.range(1, limit + 1), tf.constant(limit), 32)
    # "About": a limit of 63 cannot be divided by 32 and keeps step 1.
    assert len(set(rounded.numpy())) <= 2 * 32


# dropout.


def dropped_ones(shape, rate, seed, fuse):
    """Ones of which each generator, XLA's or TensorFlow's, drops some."""
    if not fuse:
        return kernels.dropout(tf.ones(shape), rate, tf.constant(seed))
    # LayerNorm of a constant row is beta.
    return kernels.norm_and_drop(
        tf.zeros(shape),
        tf.ones(shape[-1:]),
        tf.ones(shape[-1:]),
        tf.constant(seed),
        rate=rate,
        epsilon=1e-12,
        fuse=True,
    )


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_drops_the_given_share_and_keeps_the_mean(fuse, rate):
    dropped = dropped_ones([1000, 100], rate, SEED, fuse).numpy()
    # Five standard deviations of the mean of 100,000 coins.
    tolerance = 5.0 * np.sqrt(rate * (1.0 - rate) / dropped.size)
    assert abs(np.mean(dropped == 0.0) - rate) < tolerance
    assert abs(dropped.mean() - 1.0) < tolerance / (1.0 - rate)


def test_kept_elements_are_scaled_up():
    x = random(50, 20)
    dropped = kernels.dropout(x, 0.2, SEED).numpy()
    kept = dropped != 0.0
    np.testing.assert_allclose(dropped[kept], x[kept] / 0.8, rtol=1e-6)


@pytest.mark.parametrize("fuse", [True, False])
def test_same_seed_draws_the_same_mask(fuse):
    one, two = (dropped_ones([50, 20], 0.5, SEED, fuse) for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("other", [[5, 10], [6, 9], [9, 5]])
def test_another_seed_draws_an_unrelated_mask(fuse, other):
    one, two = (
        dropped_ones([1000, 100], 0.5, seed, fuse).numpy()
        for seed in (SEED, other)
    )
    share_of_both = np.mean((one != 0.0) & (two != 0.0))
    # A quarter, within five standard deviations.
    assert abs(share_of_both - 0.25) < 5.0 * np.sqrt(0.25 * 0.75 / 100_000)


def test_masks_of_rows_are_unrelated():
    dropped = kernels.dropout(tf.ones([2, 10_000]), 0.5, SEED).numpy()
    share_of_both = np.mean((dropped != 0.0).all(axis=0))
    assert abs(share_of_both - 0.25) < 5.0 * np.sqrt(0.25 * 0.75 / 10_000)


@pytest.mark.parametrize(
    ("rate", "seed"), [(0.5, None), (0.0, SEED), (None, SEED)]
)
def test_without_seed_or_rate_nothing_is_dropped(rate, seed):
    x = random(3, 4)
    assert kernels.dropout(x, rate, seed) is x


# layer_norm.


def test_layer_norm_is_that_of_the_paper():
    x, gamma, beta = 3.0 + random(6, 16), random(16), random(16, seed=1)
    np.testing.assert_allclose(
        kernels.layer_norm(x, gamma, beta, 1e-3),
        layer_norm64(x, gamma, beta, 1e-3),
        atol=ATOL,
    )


def test_layer_norm_of_a_constant_row_is_beta():
    beta = random(16)
    got = kernels.layer_norm(tf.ones([2, 16]), random(16), beta, 1e-12)
    np.testing.assert_allclose(got, [beta, beta], atol=ATOL)


def test_layer_norm_of_float16_computes_in_float32():
    # In float16 the square of a deviation of 300 is infinite.
    x = tf.cast(300.0 * random(4, 64), tf.float16)
    got = kernels.layer_norm(x, tf.ones(64), tf.zeros(64), 1e-12)
    assert got.dtype == tf.float16
    # Rounding the result to float16, near 3: 2^-10.
    wanted = layer_norm64(x, np.ones(64), np.zeros(64), 1e-12)
    np.testing.assert_allclose(got, wanted, atol=2.0**-9)


# The passes, each as (function of (inputs, seed, fuse), inputs).

ADDER = tf.constant([[0, 0, 0, -10000], [0] * 4], tf.float32)[
    :, tf.newaxis, tf.newaxis
]


def bias_activation(inputs, unused_seed, fuse):
    return kernels.bias_activation(*inputs, activation=tf.tanh, fuse=fuse)


def add_and_norm(inputs, seed, fuse):
    return kernels.add_and_norm(
        *inputs, seed, rate=0.5, epsilon=1e-12, fuse=fuse
    )


def norm_and_drop(inputs, seed, fuse):
    return kernels.norm_and_drop(
        *inputs, seed, rate=0.5, epsilon=1e-12, fuse=fuse
    )


def attention_probs(inputs, seed, fuse):
    return kernels.attention_probs(
        *inputs, ADDER, seed, head_size=4, rate=0.5, fuse=fuse
    )


BIAS_ACTIVATION = (bias_activation, [random(6, 8), random(8)])
ADD_AND_NORM = (
    add_and_norm,
    [
        random(6, 8),
        random(8),
        random(6, 8, seed=1),
        random(8, seed=1),
        random(8, seed=2),
    ],
)
NORM_AND_DROP = (norm_and_drop, [random(6, 8), random(8), random(8, seed=1)])
ATTENTION_PROBS = (attention_probs, [random(2, 2, 4, 4)])


def run(function, inputs, seed, fuse):
    """Output, and gradients of a sum weighted so that no two elements count
    the same."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = function(inputs, seed, fuse)
        total = tf.reduce_sum(output * random(*output.shape, seed=7))
    return output, tape.gradient(total, inputs)


def test_bias_activation_adds_before_it_activates():
    x, bias = BIAS_ACTIVATION[1]
    got = bias_activation((x, bias), None, fuse=False)
    np.testing.assert_allclose(got, np.tanh(x.numpy() + bias), atol=ATOL)


def test_add_and_norm_normalises_the_sum():
    x, bias, residual, gamma, beta = ADD_AND_NORM[1]
    np.testing.assert_allclose(
        add_and_norm(ADD_AND_NORM[1], None, fuse=False),
        layer_norm64(x.numpy() + bias + residual, gamma, beta, 1e-12),
        atol=ATOL,
    )


def test_attention_probs_are_a_softmax_over_real_positions():
    scores = ATTENTION_PROBS[1][0]
    got = attention_probs([scores], None, fuse=False).numpy()
    wanted = softmax64(scores.numpy().astype(np.float64) / 2.0 + ADDER.numpy())
    np.testing.assert_allclose(got, wanted, atol=ATOL)
    assert (got[0, :, :, 3] == 0.0).all()


def test_attention_probs_of_float16_see_scores_beside_the_adder():
    # In float16 -10000 + 3.7 is -10000: all equal.
    scores = tf.cast(random(1, 1, 2, 4), tf.float16)
    adder = tf.fill([1, 1, 1, 4], -10000.0)
    got = kernels.attention_probs(
        scores, adder, None, head_size=1, rate=0.0, fuse=False
    )
    assert got.dtype == tf.float16
    # Scores keep steps of 2^-10 beside 10000 in float32.
    wanted = softmax64(scores.numpy().astype(np.float64))
    np.testing.assert_allclose(got, wanted, atol=2.0**-9)


@pytest.mark.parametrize(
    "kernel", [BIAS_ACTIVATION, ADD_AND_NORM, NORM_AND_DROP, ATTENTION_PROBS]
)
def test_fused_is_the_same_without_dropout(kernel):
    fused = run(*kernel, seed=None, fuse=True)
    plain = run(*kernel, seed=None, fuse=False)
    tf.nest.map_structure(
        functools.partial(np.testing.assert_allclose, atol=ATOL), fused, plain
    )


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize(
    "kernel", [ADD_AND_NORM, NORM_AND_DROP, ATTENTION_PROBS]
)
def test_gradients_with_dropout_are_those_of_finite_differences(kernel, fuse):
    function, inputs = kernel
    _, gradients = run(function, inputs, SEED, fuse)
    distance = 1e-2

    @tf.function
    def total(inputs):
        output = function(inputs, SEED, fuse)
        return tf.reduce_sum(output * random(*output.shape, seed=7))

    for i, (value, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        for index in np.ndindex(*value.shape):
            step = np.zeros(value.shape, np.float32)
            step[index] = distance
            ends = [
                total([*inputs[:i], value + sign * step, *inputs[i + 1 :]])
                for sign in (1, -1)
            ]
            slope = (ends[0] - ends[1]) / (2.0 * distance)
            # Float32 rounding of a sum near 5 over 0.02, and the third
            # derivative times 1e-4 / 6.
            assert abs(slope - gradient[index]) < 2e-3, (i, index)


def test_fused_dropout_drops_elements_of_the_product_alone():
    x, bias, residual, gamma, _ = ADD_AND_NORM[1]
    zeros = tf.zeros(8)
    _, gradients = run(
        add_and_norm, [x, bias, residual, gamma, zeros], SEED, fuse=True
    )
    is_dropped = gradients[0].numpy() == 0.0
    # 48 coins within three standard deviations; the residual always passes.
    assert 13 <= is_dropped.sum() <= 35
    assert (gradients[2].numpy() != 0.0).all()


def test_fused_dropout_of_probabilities_keeps_or_doubles_them():
    scores = random(2, 2, 4, 4)
    kept = attention_probs([scores], None, fuse=True).numpy()
    dropped = attention_probs([scores], SEED, fuse=True).numpy()
    is_zero = dropped == 0.0
    # Of 64, 8 are masked anyway.
    assert 8 + 16 <= is_zero.sum() <= 8 + 40
    np.testing.assert_allclose(
        dropped[~is_zero], 2.0 * kept[~is_zero], atol=ATOL
    )


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize(
    "kernel", [ADD_AND_NORM, NORM_AND_DROP, ATTENTION_PROBS]
)
def test_the_seed_decides_the_mask(kernel, fuse):
    function, inputs = kernel
    one, again, other = (
        function(inputs, tf.constant(seed), fuse).numpy()
        for seed in ([5, 9], [5, 9], [5, 10])
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
