"""Sentence classification: what a model said to the files people open."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import file_io


def write_eval_results(path: str, result: Mapping[str, Any]) -> None:
    """Writes `key = value` lines, sorted by key, as released."""
    with file_io.atomic_writer(path) as writer:
        for key in sorted(result):
            # str(): in an f-string a NumPy float32 has float64's digits.
            writer.write(f"{key} = {str(result[key])}\n")


def write_test_results(path: str, probabilities: Iterable[Any]) -> int:
    """Writes each example's numbers on a line, TAB between them, as released.

    Args:
      path: the file to write.
      probabilities: one row for each example, in input order: float
        `[num_labels]`, or for regression the value.

    Returns:
      The number of lines written.
    """
    num_lines = 0
    with file_io.atomic_writer(path) as writer:
        for row in probabilities:
            values = map(str, np.ravel(np.asarray(row, np.float32)))
            writer.write("\t".join(values) + "\n")
            num_lines += 1
    return num_lines


def write_test_predictions(
    path: str, predictions: Iterable[str | float]
) -> int:
    """Writes the form the GLUE server takes: `index TAB prediction` lines.

    Args:
      path: the file to write.
      predictions: a label name or a value for each example, in input order.

    Returns:
      The number of predictions written.
    """
    index = -1
    with file_io.atomic_writer(path) as writer:
        writer.write("index\tprediction\n")
        for index, prediction in enumerate(predictions):
            if not isinstance(prediction, str):
                prediction = str(np.float32(prediction))
            writer.write(f"{index}\t{prediction}\n")
    return index + 1


def write_eval_report(
    path: str,
    label_list: Sequence[str],
    confusion: np.ndarray,
    scores: Any,
) -> None:
    """Writes scores for each label and the confusion matrix, to be read.

    Args:
      path: the file to write.
      label_list: all labels in the order of their ids.
      confusion: int `[num_labels, num_labels]`, row true, column predicted.
      scores: attributes precision, recall, f1 and support, `[num_labels]`
        each: what `metrics.per_label_scores(confusion)` gives.
    """
    names = ("precision", "recall", "f1")
    columns = [getattr(scores, name) for name in names]
    table = [["label", *names, "support"]]
    for i, label in enumerate(label_list):
        values = [f"{column[i]:.4f}" for column in columns]
        table.append([label, *values, str(scores.support[i])])
    averages = [f"{np.mean(column):.4f}" for column in columns]
    num_examples = int(np.sum(confusion))
    table.append(["macro average", *averages, str(num_examples)])

    # Labels may be long, so the matrix' columns are headed by numbers.
    keys = [f"[{i}]" for i in range(len(label_list))]
    matrix = [["", *keys]]
    for key, label, row in zip(keys, label_list, confusion, strict=True):
        matrix.append([f"{key} {label}", *(str(count) for count in row)])

    num_right = int(np.trace(confusion))
    with file_io.atomic_writer(path) as writer:
        writer.write(f"{num_right} of {num_examples} examples are right.\n\n")
        writer.write(_align(table))
        writer.write("\nHow often a true label (row) was predicted as another ")
        writer.write("(column):\n\n")
        writer.write(_align(matrix))


def _align(table: Sequence[Sequence[str]]) -> str:
    """The cells in columns, the first one flush left, the others right."""
    widths = [max(map(_width, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        gaps = [" " * (w - _width(c)) for c, w in zip(row, widths, strict=True)]
        cells = [row[0] + gaps[0]]
        cells += [gap + c for c, gap in zip(row[1:], gaps[1:], strict=True)]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def _width(text: str) -> int:
    """How many columns of a terminal the text takes; a Chinese letter is 2."""
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
