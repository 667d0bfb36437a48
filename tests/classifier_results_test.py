"""Tests for classifier_results.py."""

import numpy as np
import pytest

import classifier_results
import metrics


def test_eval_results_are_sorted_key_value_lines(tmp_path):
    path = tmp_path / "eval_results.txt"
    # Values and bytes of a recorded run of the release.
    classifier_results.write_eval_results(
        str(path),
        {
            "loss": np.float32(1.144495),
            "global_step": 0,
            "eval_loss": np.float32(1.2139026),
            "eval_accuracy": np.float32(1 / 3),
        },
    )
    assert path.read_bytes() == (
        b"eval_accuracy = 0.33333334\n"
        b"eval_loss = 1.2139026\n"
        b"global_step = 0\n"
        b"loss = 1.144495\n"
    )


def test_test_results_are_float32_between_tabs(tmp_path):
    path = tmp_path / "test_results.tsv"
    rows = [
        np.array([0.22173531, 0.40957108, 0.3686936], np.float32),
        np.array([0.21016084, 0.35550243, 0.4343367], np.float32),
    ]
    assert classifier_results.write_test_results(str(path), iter(rows)) == 2
    assert path.read_bytes() == (
        b"0.22173531\t0.40957108\t0.3686936\n"
        b"0.21016084\t0.35550243\t0.4343367\n"
    )


def test_test_results_of_a_regression_are_one_number(tmp_path):
    path = tmp_path / "test_results.tsv"
    classifier_results.write_test_results(
        str(path), np.array([2.5, 0.1], np.float32)
    )
    assert path.read_text() == "2.5\n0.1\n"


def test_predictions_are_in_the_form_of_a_glue_submission(tmp_path):
    path = tmp_path / "test_predictions.tsv"
    count = classifier_results.write_test_predictions(
        str(path), ["neutral", "体育"]
    )
    assert count == 2
    assert path.read_text("utf-8") == "index\tprediction\n0\tneutral\n1\t体育\n"
    classifier_results.write_test_predictions(
        str(path), np.array([0.1], np.float32)
    )
    assert path.read_text() == "index\tprediction\n0\t0.1\n"


def test_interrupted_results_leave_the_old_file(tmp_path):
    path = tmp_path / "test_results.tsv"
    path.write_text("old")

    def interrupted():
        yield [0.5]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        classifier_results.write_test_results(str(path), interrupted())
    assert path.read_text() == "old"


def test_eval_report_lines_up(tmp_path):
    path = tmp_path / "eval_report.txt"
    confusion = metrics.confusion_matrix([0, 0, 1, 1], [0, 1, 1, 1], 2)
    scores = metrics.per_label_scores(confusion)
    classifier_results.write_eval_report(
        str(path), ["no", "体育"], confusion, scores
    )
    assert path.read_text("utf-8") == (
        "3 of 4 examples are right.\n"
        "\n"
        "label          precision  recall      f1  support\n"
        "no                1.0000  0.5000  0.6667        2\n"
        "体育              0.6667  1.0000  0.8000        2\n"
        "macro average     0.8333  0.7500  0.7333        4\n"
        "\n"
        "How often a true label (row) was predicted as another (column):\n"
        "\n"
        "          [0]  [1]\n"
        "[0] no      1    1\n"
        "[1] 体育    0    2\n"
    )
