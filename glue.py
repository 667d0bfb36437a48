"""Sentence classification: the tasks, their files, labels and scores.

Scores are not computed here: `Task.metric_names` names functions of `metrics`,
and the script that knows both puts them together.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import file_io
from classifier_examples import (
    DataProcessor,
    InputExample,
    Layout,
    TableProcessor,
    TsvProcessor,
    usual_layouts,
)


class ColaProcessor(TableProcessor):
    """CoLA: is the sentence acceptable? (Warstadt et al. 2018)."""

    layouts = {
        "train": Layout("train.tsv", 3, label=1, has_header=False),
        "dev": Layout("dev.tsv", 3, label=1, has_header=False),
        "test": Layout("test.tsv", 1),
    }


class Sst2Processor(TableProcessor):
    """SST-2: is the film review positive? (Socher et al. 2013)."""

    layouts = usual_layouts("sentence")


class MrpcProcessor(TableProcessor):
    """MRPC: do both sentences say the same? (Dolan and Brockett 2005)."""

    layouts = {
        "train": Layout("train.tsv", 3, 4, 0),
        "dev": Layout("dev.tsv", 3, 4, 0),
        "test": Layout("test.tsv", 3, 4),
    }


class StsbProcessor(TableProcessor):
    """STS-B: how alike are both sentences, 0 to 5? (Cer et al. 2017)."""

    layouts = usual_layouts("sentence1", "sentence2", "score")
    labels = ()
    label_range = (0.0, 5.0)


class QqpProcessor(TableProcessor):
    """QQP: are both questions the same? (Quora Question Pairs)."""

    layouts = usual_layouts("question1", "question2", "is_duplicate")
    # The published train.tsv has a few rows that are cut short.
    skips_malformed = True


class MnliProcessor(TableProcessor):
    """MultiNLI: does text_a entail text_b? (Williams et al. 2018).

    "dev" and "test" are the matched sets (genres that are in the training
    data too); the mismatched ones have methods of their own.
    """

    layouts = {
        "train": Layout("train.tsv", 8, 9, -1),
        "dev_matched": Layout("dev_matched.tsv", 8, 9, -1),
        "dev_mismatched": Layout("dev_mismatched.tsv", 8, 9, -1),
        "test": Layout("test_matched.tsv", 8, 9),
        "test_mismatched": Layout("test_mismatched.tsv", 8, 9),
    }
    labels = ("contradiction", "entailment", "neutral")
    guid_column = 0

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the matched examples to evaluate on."""
        return self._read(data_dir, "dev_matched")

    def get_dev_mismatched_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to evaluate on, of genres not trained on."""
        return self._read(data_dir, "dev_mismatched")

    def get_test_mismatched_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to predict, of genres not trained on."""
        return self._read(data_dir, "test_mismatched")


class QnliProcessor(TableProcessor):
    """QNLI: does the sentence answer the question? (Wang et al. 2018)."""

    layouts = usual_layouts("question", "sentence")
    labels = ("entailment", "not_entailment")


class RteProcessor(TableProcessor):
    """RTE: does sentence1 entail sentence2? (Bentivogli et al. 2009)."""

    layouts = usual_layouts("sentence1", "sentence2")
    labels = ("entailment", "not_entailment")


class WnliProcessor(TableProcessor):
    """WNLI: does the pronoun mean what sentence2 says? (Levesque 2011)."""

    layouts = RteProcessor.layouts


class NoTestSetError(FileNotFoundError, NotImplementedError):
    """XNLI's test file is missing; as released it is not implemented, too."""


class XnliProcessor(TableProcessor):
    """XNLI: MultiNLI in 15 languages (Conneau et al. 2018).

    The training data is one language's translation; the dev and test files
    hold all languages, and the others' rows are left out.
    """

    labels = ("contradiction", "entailment", "neutral")
    label_synonyms = {"contradictory": "contradiction"}

    def __init__(self, language: str = "zh"):
        self.language = language

    @property
    def layouts(self) -> dict[str, Layout]:
        """The three files; which one is for training depends on language."""
        train = f"multinli.train.{self.language}.tsv"
        return {
            "train": Layout(os.path.join("multinli", train), 0, 1, 2),
            "dev": Layout("xnli.dev.tsv", 6, 7, 1),
            "test": Layout("xnli.test.tsv", 6, 7, 1),
        }

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to predict, with their labels.

        Raises:
          NoTestSetError: the file is not there. The release never read it,
            and raised NotImplementedError: this is one.
          ValueError: as in `get_dev_examples`.
        """
        try:
            return self._read(data_dir, "test")
        except FileNotFoundError as error:
            raise NoTestSetError(str(error)) from None

    def _is_wanted(self, set_type: str, row: list[str]) -> bool:
        return set_type == "train" or row[0] == self.language


class Task(NamedTuple):
    """What there is to know about a task.

    Attributes:
      processor: reads its files.
      metric_names: its official scores, which are functions of `metrics`; the
        first is the one to choose the best checkpoint by.
      is_regression: whether labels are values.
    """

    processor: type[DataProcessor]
    metric_names: tuple[str, ...] = ("accuracy",)
    is_regression: bool = False


TASKS: Mapping[str, Task] = {
    "cola": Task(ColaProcessor, ("matthews_corrcoef",)),
    "sst-2": Task(Sst2Processor),
    "mrpc": Task(MrpcProcessor, ("f1", "accuracy")),
    "sts-b": Task(StsbProcessor, ("pearson", "spearman"), is_regression=True),
    "qqp": Task(QqpProcessor, ("f1", "accuracy")),
    "mnli": Task(MnliProcessor),
    "qnli": Task(QnliProcessor),
    "rte": Task(RteProcessor),
    "wnli": Task(WnliProcessor),
    "xnli": Task(XnliProcessor),
    "tsv": Task(TsvProcessor),
}


def canonical_task_name(name: str) -> str:
    """Returns the key of `TASKS` for a name as people write it ("SST2").

    Raises:
      ValueError: there is no such task.
    """
    key = {"sst2": "sst-2", "stsb": "sts-b"}.get(name.lower(), name.lower())
    if key not in TASKS:
        raise ValueError(
            f"Task not found: got {name!r}, wanted one of {', '.join(TASKS)}."
        )
    return key


def write_labels(
    path: str,
    labels: Sequence[str],
    task_name: str,
    *,
    is_regression: bool = False,
) -> None:
    """Writes what the ids of a trained classifier mean, as JSON.

    Args:
      path: the file, beside the checkpoint.
      labels: all labels in the order of their ids; [] for regression.
      task_name: which task it was trained on.
      is_regression: whether it gives a value, not a label.
    """
    content = {
        "task_name": canonical_task_name(task_name),
        "is_regression": is_regression,
        "labels": list(labels),
    }
    with file_io.atomic_writer(path) as writer:
        json.dump(content, writer, ensure_ascii=False, indent=2)
        writer.write("\n")


def read_labels(path: str, task_name: str) -> list[str]:
    """Returns the labels that `write_labels` wrote, [] for regression.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is not from `write_labels`, or another task's.
    """
    try:
        content = json.loads("\n".join(file_io.read_lines(path)))
        labels, written_for = content["labels"], content["task_name"]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise ValueError(
            f"{path}: got a file that does not list labels; remove it and "
            "train again, or use another output directory."
        ) from None
    if written_for != canonical_task_name(task_name):
        raise ValueError(
            f"{path}: got a model of task {written_for!r}, wanted one of task "
            f"{task_name!r}; use another output directory."
        )
    return labels
