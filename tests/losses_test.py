"""Tests of the losses as weighted sums."""

import numpy as np
import pytest
import tensorflow as tf

import losses

LOGITS = np.array(
    [[2.0, -1.0, 0.5], [0.0, 0.0, 0.0], [-3.0, 4.0, 1.0], [9.0, -9.0, 0.0]],
    np.float32,
)
LABELS = [0, 2, 2, 1]
RATINGS = [0.5, 4.0, 2.5, 3.0]


def batch_of(labels, is_real=(1, 1, 1, 1)):
    return {
        "label_ids": tf.constant(labels),
        "is_real_example": tf.constant(is_real),
    }


def cross_entropies():
    probabilities = np.exp(LOGITS.astype(np.float64))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return -np.log(probabilities[np.arange(4), LABELS])


def squared_errors():
    return (LOGITS[:, 0].astype(np.float64) - RATINGS) ** 2


KINDS = pytest.mark.parametrize(
    ("labels", "wanted"),
    [(LABELS, cross_entropies()), (RATINGS, squared_errors())],
    ids=["classes", "regression"],
)


def outputs_for(labels):
    width = 3 if labels is LABELS else 1
    return {"logits": tf.constant(LOGITS[:, :width])}


@KINDS
def test_example_loss_is_that_of_the_formula(labels, wanted):
    got = losses.classifier_example_loss(outputs_for(labels), batch_of(labels))
    # Float32 rounding of numbers up to 36.
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@KINDS
def test_loss_is_the_sum_and_the_number_of_examples(labels, wanted):
    sums = losses.classifier_loss(outputs_for(labels), batch_of(labels))
    np.testing.assert_allclose(sums["loss"], [wanted.sum(), 4.0], rtol=1e-6)


@KINDS
def test_padding_rows_weigh_nothing(labels, wanted):
    batch = batch_of(labels, (1, 0, 1, 0))
    sums = losses.classifier_loss(outputs_for(labels), batch)
    np.testing.assert_allclose(
        sums["loss"], [wanted[0] + wanted[2], 2.0], rtol=1e-6
    )


def test_padding_rows_have_no_gradient():
    logits = tf.constant(LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        sums = losses.classifier_loss(
            {"logits": logits}, batch_of(LABELS, (1, 0, 1, 0))
        )
        total = sums["loss"][0]
    is_zero = (tape.gradient(total, logits).numpy() == 0.0).all(axis=1)
    assert is_zero.tolist() == [False, True, False, True]


def test_a_batch_of_padding_sums_up_to_nothing():
    sums = losses.classifier_loss(
        {"logits": tf.constant(LOGITS)}, batch_of(LABELS, (0, 0, 0, 0))
    )
    assert [float(x) for x in sums["loss"]] == [0.0, 0.0]


def test_a_batch_cut_in_two_adds_up_to_the_whole():
    batch = batch_of(LABELS, (1, 1, 1, 0))
    whole = losses.classifier_loss({"logits": LOGITS}, batch)["loss"]
    halves = [
        losses.classifier_loss(
            {"logits": LOGITS[rows]},
            {name: column[rows] for name, column in batch.items()},
        )["loss"]
        for rows in (slice(0, 2), slice(2, 4))
    ]
    np.testing.assert_allclose(np.sum(halves, axis=0), whole, rtol=1e-6)


@pytest.mark.parametrize("labels", [LABELS, RATINGS])
def test_weights_of_a_batch_are_those_of_its_loss(labels):
    batch = batch_of(labels, (1, 0, 1, 1))
    sums = losses.classifier_loss(outputs_for(labels), batch)
    weights = losses.classifier_loss_weights(batch)
    assert {name: float(w) for name, w in weights.items()} == {
        name: float(w) for name, (_, w) in sums.items()
    }
