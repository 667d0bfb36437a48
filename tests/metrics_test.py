"""Tests of the scores: by hand, and against formulas written another way."""

import math

import numpy as np
import pytest

import metrics

LABELS = [1, 1, 1, 0, 0, 0, 0, 1]
PREDICTIONS = [1, 0, 1, 0, 1, 0, 0, 1]
# By hand: TP 3, FN 1, FP 1, TN 3.


def random_ids(num_labels, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_labels, size=200)
    guesses = rng.integers(num_labels, size=200)
    return labels, np.where(rng.random(200) < 0.5, labels, guesses)


def test_accuracy_is_the_share_of_right_answers():
    assert metrics.accuracy(LABELS, PREDICTIONS) == 6 / 8


def test_f1_by_hand():
    # precision 3/4, recall 3/4
    assert metrics.f1(LABELS, PREDICTIONS) == 0.75


def test_f1_counts_label_one_alone():
    # TP 1, FP 2, FN 0: precision 1/3, recall 1, F1 1/2.
    assert metrics.f1([1, 0, 0, 0], [1, 1, 1, 0]) == 0.5


def test_f1_is_zero_where_nothing_is_positive():
    assert metrics.f1([0, 0], [0, 0]) == 0.0


def test_matthews_by_hand():
    # (TP TN - FP FN) / sqrt(4 * 4 * 4 * 4) = (9 - 1) / 16
    assert metrics.matthews_corrcoef(LABELS, PREDICTIONS) == 0.5


@pytest.mark.parametrize("num_labels", [2, 3, 5])
def test_matthews_is_the_correlation_of_indicators(num_labels):
    labels, predictions = random_ids(num_labels)
    x, y = np.eye(num_labels)[labels], np.eye(num_labels)[predictions]
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    expected = np.sum(x * y) / math.sqrt(np.sum(x * x) * np.sum(y * y))
    score = metrics.matthews_corrcoef(labels, predictions)
    assert score == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [([1, 0, 1], [1, 1, 1]), ([1, 1], [0, 1]), ([0, 0], [0, 0]), ([], [])],
)
def test_matthews_of_a_single_class_is_zero(labels, predictions):
    assert metrics.matthews_corrcoef(labels, predictions) == 0.0


def test_matthews_survives_large_counts():
    labels = np.repeat([0, 1], 60_000)
    assert metrics.matthews_corrcoef(labels, labels) == pytest.approx(1.0)
    assert metrics.matthews_corrcoef(labels, 1 - labels) == pytest.approx(-1.0)


def test_pearson_by_hand():
    # x - 2 = [-1, 0, 1], y - 3 = [-2, 1, 1]: 3 / sqrt(2 * 6)
    score = metrics.pearson([1, 2, 3], [1, 4, 4])
    assert score == pytest.approx(3 / math.sqrt(12), abs=1e-15)


def test_pearson_agrees_with_numpy():
    rng = np.random.default_rng(1)
    x = rng.normal(size=100).astype(np.float32)
    y = x + rng.normal(size=100).astype(np.float32)
    expected = np.corrcoef(x.astype(float), y.astype(float))[0, 1]
    assert metrics.pearson(x, y) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("score", [metrics.pearson, metrics.spearman])
@pytest.mark.parametrize("constant", [[0.1] * 3, [0.0] * 3])
def test_correlation_with_a_constant_is_zero(score, constant):
    assert score([1.0, 2.0, 4.0], constant) == 0.0
    assert score(constant, [1.0, 2.0, 4.0]) == 0.0


@pytest.mark.parametrize("score", [metrics.pearson, metrics.spearman])
def test_correlation_of_nothing_is_zero(score):
    assert score([], []) == 0.0


def test_correlation_never_leaves_its_range():
    x = np.array([0.1, 0.2, 0.3, 0.7, 1.1])
    assert -1.0 <= metrics.pearson(x, -3 * x) <= -1.0 + 1e-15
    assert 1.0 - 1e-15 <= metrics.pearson(x, 3 * x) <= 1.0


def test_spearman_sees_order_alone():
    assert metrics.spearman([1, 2, 3, 4], [1, 8, 27, 64]) == pytest.approx(1)
    # Ranks differ by 0, 1, 1, 0: 1 - 6 * 2 / (4 * 15)
    score = metrics.spearman([1, 2, 3, 4], [10, 30, 20, 40])
    assert score == pytest.approx(0.8, abs=1e-15)


def test_spearman_gives_ties_their_average_rank():
    # Ranks [1, 2.5, 2.5, 4] and [1, 2, 3, 4], less 2.5 each.
    x, y = [-1.5, 0, 0, 1.5], [-1.5, -0.5, 0.5, 1.5]
    expected = np.dot(x, y) / math.sqrt(np.dot(x, x) * np.dot(y, y))
    score = metrics.spearman([0, 5, 5, 9], [1, 2, 3, 4])
    assert score == pytest.approx(expected, abs=1e-15)


def test_confusion_matrix_has_true_rows_and_predicted_columns():
    confusion = metrics.confusion_matrix([0, 0, 1, 2], [0, 1, 1, 0], 3)
    np.testing.assert_array_equal(confusion, [[1, 1, 0], [0, 1, 0], [1, 0, 0]])


def test_confusion_matrix_counts_as_a_loop_does():
    labels, predictions = random_ids(4)
    expected = np.zeros((4, 4), int)
    for label, prediction in zip(labels, predictions, strict=True):
        expected[label, prediction] += 1
    confusion = metrics.confusion_matrix(labels, predictions, 4)
    np.testing.assert_array_equal(confusion, expected)


@pytest.mark.parametrize("bad", [3, -1])
def test_confusion_matrix_refuses_an_id_outside_the_labels(bad):
    with pytest.raises(ValueError, match=f"predictions: got id {bad}"):
        metrics.confusion_matrix([0, 1], [0, bad], 3)


def test_scores_of_each_label_by_hand():
    scores = metrics.per_label_scores([[3, 1, 0], [1, 3, 0], [0, 0, 0]])
    np.testing.assert_array_equal(scores.precision, [0.75, 0.75, 0])
    np.testing.assert_array_equal(scores.recall, [0.75, 0.75, 0])
    np.testing.assert_array_equal(scores.f1, [0.75, 0.75, 0])
    np.testing.assert_array_equal(scores.support, [4, 4, 0])


def test_score_of_label_one_is_the_binary_f1():
    labels, predictions = random_ids(2)
    confusion = metrics.confusion_matrix(labels, predictions, 2)
    scores = metrics.per_label_scores(confusion)
    assert scores.f1[1] == metrics.f1(labels, predictions)


@pytest.mark.parametrize(
    "score",
    [
        metrics.accuracy,
        metrics.f1,
        metrics.matthews_corrcoef,
        metrics.pearson,
        metrics.spearman,
    ],
)
def test_scores_refuse_lists_of_different_lengths(score):
    with pytest.raises(ValueError, match="Got 2 labels and 3 predictions"):
        score([0, 1], [0, 1, 1])


def test_accuracy_of_nothing_is_zero():
    assert metrics.accuracy([], []) == 0.0


def test_column_and_row_are_the_same_values():
    assert metrics.pearson([[1], [2], [4]], [1, 2, 4]) == pytest.approx(1.0)


def test_scores_are_plain_floats():
    for score in (metrics.accuracy, metrics.f1, metrics.matthews_corrcoef):
        assert type(score(LABELS, PREDICTIONS)) is float
