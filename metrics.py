"""The official scores of GLUE-style tasks, on the host, from NumPy arrays.

They are no ratio of sums over batches, so they are computed once, from the
predictions for the whole set. Labels and predictions are ids, int
`[num_examples]`, or for `pearson` and `spearman` values, float
`[num_examples]`. Where a score is 0/0 it is 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class LabelScores(NamedTuple):
    """Scores of every label on its own; each array is `[num_labels]`."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    support: NDArray[np.int64]


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the share of predictions that equal their label.

    Raises:
      ValueError: the two do not have the same length.
    """
    labels, predictions = _same_length(labels, predictions)
    return _ratio(np.sum(labels == predictions), labels.size)


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the F1 score of label 1: 2 TP / (2 TP + FP + FN).

    Raises:
      ValueError: the two do not have the same length.
    """
    labels, predictions = _same_length(labels, predictions)
    true_positives = np.sum((labels == 1) & (predictions == 1))
    return _ratio(
        2 * true_positives, np.sum(labels == 1) + np.sum(predictions == 1)
    )


def matthews_corrcoef(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Matthews' correlation of two label lists, in [-1, 1].

    For more than two labels this is R_K of Gorodkin 2004, "Comparing two
    K-category assignments by a K-category correlation coefficient", equation
    8; with two labels it is Matthews 1975. One single label on either side
    gives 0.

    Raises:
      ValueError: the two do not have the same length, or an id is negative.
    """
    labels, predictions = _same_length(labels, predictions)
    num_labels = 1 + int(max(labels.max(initial=0), predictions.max(initial=0)))
    # float64: products of counts leave int64 at about 3e9 examples.
    confusion = confusion_matrix(labels, predictions, num_labels).astype(float)
    total = confusion.sum()
    true_counts, predicted_counts = confusion.sum(axis=1), confusion.sum(axis=0)
    covariance = np.trace(confusion) * total - true_counts @ predicted_counts
    true_variance = total**2 - true_counts @ true_counts
    predicted_variance = total**2 - predicted_counts @ predicted_counts
    return _ratio(covariance, np.sqrt(true_variance * predicted_variance))


def pearson(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Pearson's linear correlation of two value lists, in [-1, 1].

    A constant list has no correlation with anything: 0.

    Raises:
      ValueError: the two do not have the same length.
    """
    x, y = _same_length(labels, predictions)
    # By comparison, not by variance: the mean of [.1, .1, .1] is not .1 in
    # float64, and the rounding would then be scaled up to a correlation.
    if x.size == 0 or np.all(x == x[0]) or np.all(y == y[0]):
        return 0.0
    x, y = x.astype(np.float64), y.astype(np.float64)
    x, y = x - x.mean(), y - y.mean()
    score = (x / np.linalg.norm(x)) @ (y / np.linalg.norm(y))
    return float(np.clip(score, -1.0, 1.0))


def spearman(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Spearman's rank correlation of two value lists, in [-1, 1].

    That is Pearson's of the ranks; equal values share their average rank. A
    constant list gives 0.

    Raises:
      ValueError: the two do not have the same length.
    """
    labels, predictions = _same_length(labels, predictions)
    return pearson(_average_ranks(labels), _average_ranks(predictions))


def confusion_matrix(
    labels: ArrayLike, predictions: ArrayLike, num_labels: int
) -> NDArray[np.int64]:
    """Returns counts, int64 `[num_labels, num_labels]`: row true, column said.

    Raises:
      ValueError: the two do not have the same length, or an id is not in
        [0, num_labels).
    """
    labels, predictions = _same_length(labels, predictions)
    labels, predictions = labels.astype(np.int64), predictions.astype(np.int64)
    for name, ids in (("labels", labels), ("predictions", predictions)):
        outside = ids[(ids < 0) | (ids >= num_labels)]
        if outside.size:
            raise ValueError(
                f"{name}: got id {outside[0]}, wanted 0 to {num_labels - 1}."
            )
    cells = np.bincount(
        labels * num_labels + predictions, minlength=num_labels**2
    )
    return cells.reshape(num_labels, num_labels).astype(np.int64)


def per_label_scores(confusion: ArrayLike) -> LabelScores:
    """Returns precision, recall, F1 and support of every label.

    Args:
      confusion: counts as `confusion_matrix` gives them, `[num_labels,
        num_labels]`.
    """
    confusion = np.asarray(confusion, dtype=np.int64)
    hits = np.diag(confusion)
    support, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    return LabelScores(
        precision=_ratios(hits, predicted),
        recall=_ratios(hits, support),
        f1=_ratios(2 * hits, support + predicted),
        support=support,
    )


def _average_ranks(values: NDArray) -> NDArray[np.float64]:
    """Ranks from 1; for [3, 1, 3] they are [2.5, 1, 2.5]."""
    _, positions, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    return (np.cumsum(counts) - (counts - 1) / 2)[positions.reshape(-1)]


def _same_length(
    labels: ArrayLike, predictions: ArrayLike
) -> tuple[NDArray, NDArray]:
    """Both as flat arrays: [n] and [n, 1] mean the same n values."""
    labels, predictions = np.ravel(labels), np.ravel(predictions)
    if labels.size != predictions.size:
        raise ValueError(
            f"Got {labels.size} labels and {predictions.size} predictions, "
            "wanted one prediction for each label."
        )
    return labels, predictions


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else 0.0


def _ratios(numerators: NDArray, denominators: NDArray) -> NDArray[np.float64]:
    result = np.zeros(len(numerators))
    return np.divide(
        numerators, denominators, out=result, where=denominators != 0
    )
