"""Sentence classification: raw files to examples to features, and results out.

One processor per task turns the files of a directory into `InputExample`s;
`convert_examples_to_features` turns those into ids; the `write_*` functions
turn what a model said into the files people hand in. Scores are not computed
here: `Task.metric_names` names functions of `metrics`, and the script that
knows both puts them together.

A file is UTF-8 text, one example a line, columns separated by one TAB. Quotes
are ordinary characters, everywhere: `"Well` is four letters and a quote.
"""

import itertools
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from absl import logging

import features
import file_io

# How many examples are shown in the log, and after how many progress is.
_NUM_LOGGED_EXAMPLES = 5
_EXAMPLES_PER_LOG_LINE = 10_000


@dataclass
class InputExample:
    """One raw example.

    Attributes:
      guid: its name, unique within the file, such as "dev-17".
      text_a: the only or the first text.
      text_b: the second text of a pair; None or "" is a single text.
      label: the label as text, for a regression task the number as text.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | None = None


class PaddingInputExample:
    """Fills a batch up to its fixed size (TPU); its features weigh nothing.

    A class of its own, not None, so that an example that went missing is
    never taken for padding.
    """


@dataclass
class InputFeatures:
    """One example as ids, each list `max_seq_length` long.

    Attributes:
      input_ids: ids of [CLS] a [SEP] b [SEP], then 0.
      input_mask: 1 for a token, 0 for padding.
      segment_ids: 0 for the first text, 1 for the second, 0 for padding.
      label_id: index into the label list; the value itself for regression.
      is_real_example: False for padding.
    """

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    label_id: int | float
    is_real_example: bool = True

    def as_record(self) -> dict[str, list[int] | int | float]:
        """Returns the record that `classifier_spec` describes."""
        return {
            "input_ids": self.input_ids,
            "input_mask": self.input_mask,
            "segment_ids": self.segment_ids,
            "label_ids": self.label_id,
            "is_real_example": int(self.is_real_example),
        }


def classifier_spec(
    max_seq_length: int, is_regression: bool = False
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Returns shape and dtype of everything in a classifier record."""
    sequence = ((max_seq_length,), "int32")
    return {
        "input_ids": sequence,
        "input_mask": sequence,
        "segment_ids": sequence,
        "label_ids": ((), "float32" if is_regression else "int32"),
        "is_real_example": ((), "int32"),
    }


# --- Examples to features ----------------------------------------------------


def convert_single_example(
    ex_index: int,
    example: InputExample | PaddingInputExample,
    label_list: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: Any,
) -> InputFeatures:
    """Converts one example into ids.

    Args:
      ex_index: its number; the first five are logged.
      example: the example, or padding.
      label_list: all labels, in the order of their ids. None or empty means
        regression: the label is read as a number.
      max_seq_length: length of the result, in tokens; longer text is
        truncated as `features.pack` does.
      tokenizer: a `tokenization.FullTokenizer`, or anything with `tokenize`
        and `convert_tokens_to_ids` (`encode` is used where there is one).

    Raises:
      ValueError: the label is not in the list, or the vocabulary lacks [CLS]
        or [SEP], or `max_seq_length` leaves no room for text.
    """
    label_ids = {label: i for i, label in enumerate(label_list or ())}
    result, _ = _convert(example, label_ids, max_seq_length, tokenizer)
    if ex_index < _NUM_LOGGED_EXAMPLES and result.is_real_example:
        _log_example(example, result, tokenizer)
    return result


def convert_examples_to_features(
    examples: Sequence[InputExample | PaddingInputExample],
    label_list: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: Any,
) -> Iterator[InputFeatures]:
    """Yields the features of each example, in order.

    Logs the first five, progress, and at the end how many were truncated.
    Arguments and errors are those of `convert_single_example`.
    """
    label_ids = {label: i for i, label in enumerate(label_list or ())}
    num_truncated = 0
    for ex_index, example in enumerate(examples):
        if ex_index % _EXAMPLES_PER_LOG_LINE == 0:
            logging.info("Writing example %d of %d", ex_index, len(examples))
        result, is_truncated = _convert(
            example, label_ids, max_seq_length, tokenizer
        )
        num_truncated += is_truncated
        if ex_index < _NUM_LOGGED_EXAMPLES and result.is_real_example:
            _log_example(example, result, tokenizer)
        yield result
    if num_truncated:
        logging.warning(
            "%d of %d examples are longer than max_seq_length = %d tokens; "
            "the rest of their text was cut off.",
            num_truncated,
            len(examples),
            max_seq_length,
        )


def _convert(
    example: InputExample | PaddingInputExample,
    label_ids: Mapping[str, int],
    max_seq_length: int,
    tokenizer: Any,
) -> tuple[InputFeatures, bool]:
    """Features, and whether text was cut off; no label ids: regression."""
    if isinstance(example, PaddingInputExample):
        zeros = features.pad([], max_seq_length)
        label_id = 0 if label_ids else 0.0
        padding = InputFeatures(zeros, zeros[:], zeros[:], label_id, False)
        return padding, False
    cls, sep = _special_ids(tokenizer)
    ids_a = _encode(example.text_a, tokenizer)
    ids_b = _encode(example.text_b, tokenizer) if example.text_b else []
    ids, segment_ids = features.pack(ids_a, ids_b, max_seq_length, cls, sep)
    num_wanted = len(ids_a) + len(ids_b) + (3 if ids_b else 2)
    result = InputFeatures(
        input_ids=features.pad(ids, max_seq_length),
        input_mask=features.pad([1] * len(ids), max_seq_length),
        segment_ids=features.pad(segment_ids, max_seq_length),
        label_id=_label_id(example, label_ids),
    )
    return result, num_wanted > max_seq_length


def _encode(text: str, tokenizer: Any) -> list[int]:
    if hasattr(tokenizer, "encode"):
        return tokenizer.encode(text)
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))


def _special_ids(tokenizer: Any) -> list[int]:
    try:
        return tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    except KeyError as error:
        raise ValueError(
            f"The vocabulary has no token {error}; got a file that is not a "
            "BERT vocabulary, wanted one with [CLS] and [SEP]."
        ) from None


def _label_id(
    example: InputExample, label_ids: Mapping[str, int]
) -> int | float:
    if not label_ids:
        return _finite_float(example.label, f"example {example.guid}")
    if example.label not in label_ids:
        raise ValueError(
            f"Example {example.guid}: got label {example.label!r}, wanted one "
            f"of {_shorten(label_ids)}."
        )
    return label_ids[example.label]


def _log_example(
    example: InputExample, result: InputFeatures, tokenizer: Any
) -> None:
    ids = result.input_ids[: sum(result.input_mask)]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    logging.info("*** Example ***")
    logging.info("guid: %s", example.guid)
    logging.info("tokens: %s", " ".join(tokens))
    logging.info("input_ids: %s", " ".join(map(str, result.input_ids)))
    logging.info("input_mask: %s", " ".join(map(str, result.input_mask)))
    logging.info("segment_ids: %s", " ".join(map(str, result.segment_ids)))
    logging.info("label: %s (id = %s)", example.label, result.label_id)


# --- Files to examples -------------------------------------------------------


class Layout(NamedTuple):
    """One file of a task and its columns: positions, or names in its header.

    `label` None means that the file has none: its examples get the task's
    first label, which nothing reads.
    """

    file: str
    text_a: int | str
    text_b: int | str | None = None
    label: int | str | None = None
    has_header: bool = True


def _layouts(
    text_a: str, text_b: str | None = None, label: str = "label"
) -> dict[str, Layout]:
    """The usual three files, with headers; the test file has no labels."""
    return {
        "train": Layout("train.tsv", text_a, text_b, label),
        "dev": Layout("dev.tsv", text_a, text_b, label),
        "test": Layout("test.tsv", text_a, text_b),
    }


class DataProcessor:
    """What a task must be able to do; subclass it for your own data."""

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to train on."""
        raise NotImplementedError()

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to evaluate on."""
        raise NotImplementedError()

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to predict; their labels mean nothing."""
        raise NotImplementedError()

    def get_labels(self) -> list[str]:
        """Returns all labels in the order of their ids; [] for regression."""
        raise NotImplementedError()

    @classmethod
    def _read_tsv(
        cls, input_file: str, quotechar: None = None
    ) -> list[list[str]]:
        """Returns the rows of a file, header included, for subclasses."""
        if quotechar is not None:
            raise ValueError(
                f"quotechar: got {quotechar!r}, wanted None: quotes are "
                "ordinary characters here."
            )
        return [row for _, row in _read_rows(input_file)]


class TableProcessor(DataProcessor):
    """Reads the files of a task the way its class attributes describe them.

    Attributes:
      layouts: one `Layout` for each set: "train", "dev", "test" or a name
        that stands in the guid instead, such as "dev_matched".
      labels: all labels; () for regression.
      label_range: for regression, lowest and highest label there can be.
      label_synonyms: what a label is also called in the files.
      guid_column: which column names the example; None: the row's number.
      skips_malformed: whether labelled rows with a wrong number of columns
        are left out, counted and logged, instead of refused.
    """

    layouts: Mapping[str, Layout] = {}
    labels: tuple[str, ...] = ("0", "1")
    label_range: tuple[float, float] | None = None
    label_synonyms: Mapping[str, str] = {}
    guid_column: int | None = None
    skips_malformed = False

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to train on, in file order.

        Raises:
          FileNotFoundError: the file is not in `data_dir`.
          ValueError: a row has the wrong number of columns or an unknown
            label, a line is blank or not UTF-8, or there is no example.
        """
        return self._read(data_dir, "train")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to evaluate on; see `get_train_examples`."""
        return self._read(data_dir, "dev")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to predict; see `get_train_examples`."""
        return self._read(data_dir, "test")

    def get_labels(self) -> list[str]:
        """Returns all labels in the order of their ids; [] for regression."""
        return list(self.labels)

    def _read(self, data_dir: str, set_type: str) -> list[InputExample]:
        path = self._find(data_dir, self.layouts[set_type].file)
        rows = _read_rows(path)
        first = next(rows, None)
        if first is None:
            raise ValueError(f"{path}: the file is empty; wanted examples.")
        layout, fewest, most = self._locate(set_type, path, first[1])
        if not layout.has_header:
            rows = itertools.chain([first], rows)

        examples: list[InputExample] = []
        num_unwanted = num_malformed = 0
        for line_number, row in rows:
            where = f"{path}, line {line_number}"
            if not self._is_wanted(set_type, row):
                num_unwanted += 1
            elif fewest <= len(row) <= most:
                guid = line_number - 1
                if self.guid_column is not None:
                    guid = row[self.guid_column]
                examples.append(
                    InputExample(
                        guid=f"{set_type}-{guid}",
                        text_a=row[layout.text_a],
                        text_b=_cell(row, layout.text_b),
                        label=self._label(_cell(row, layout.label), where),
                    )
                )
            # Not in a test file: each of its rows is owed a prediction.
            elif self.skips_malformed and layout.label is not None:
                num_malformed += 1
            else:
                raise ValueError(
                    f"{where}: got {len(row)} columns, wanted {fewest}; "
                    "columns are separated by one TAB."
                )
        if num_unwanted:
            logging.info("%s: left out %d rows.", path, num_unwanted)
        if num_malformed:
            logging.warning(
                "%s: left out %d rows with a wrong number of columns.",
                path,
                num_malformed,
            )
        if not examples:
            raise ValueError(f"{path}: got no examples, wanted at least one.")
        return examples

    def _find(self, data_dir: str, file: str) -> str:
        path = os.path.join(data_dir, file)
        if file_io.exists(path):
            return path
        wanted = ", ".join(layout.file for layout in self.layouts.values())
        raise FileNotFoundError(
            f"{path} does not exist. The files of this task in data_dir are: "
            f"{wanted}."
        )

    def _locate(
        self, set_type: str, path: str, first_row: list[str]
    ) -> tuple[Layout, int, float]:
        """The layout as positions; the fewest and most columns of a row."""
        layout = self.layouts[set_type]
        if isinstance(layout.text_a, str):
            names = _column_names(first_row)
            return _resolve(layout, path, names), len(names), len(names)
        # As released: more columns than the task reads do no harm.
        fewest = 1 + max(c for c in layout[1:4] if c is not None)
        return layout, fewest, math.inf

    def _is_wanted(self, set_type: str, row: list[str]) -> bool:
        """Whether the row is one of the task's at all."""
        return True

    def _label(self, label: str | None, where: str) -> str:
        """The label as the task writes it, checked."""
        if label is None:
            return self.labels[0] if self.labels else "0"
        if self.label_range is not None:
            low, high = self.label_range
            if not low <= _finite_float(label, where) <= high:
                raise ValueError(
                    f"{where}: got label {label}, wanted {low} to {high}."
                )
            return label
        label = self.label_synonyms.get(label, label)
        if label not in self.labels:
            raise ValueError(
                f"{where}: got label {label!r}, wanted one of "
                f"{_shorten(self.labels)}."
            )
        return label


class ColaProcessor(TableProcessor):
    """CoLA: is the sentence acceptable? (Warstadt et al. 2018)."""

    layouts = {
        "train": Layout("train.tsv", 3, label=1, has_header=False),
        "dev": Layout("dev.tsv", 3, label=1, has_header=False),
        "test": Layout("test.tsv", 1),
    }


class Sst2Processor(TableProcessor):
    """SST-2: is the film review positive? (Socher et al. 2013)."""

    layouts = _layouts("sentence")


class MrpcProcessor(TableProcessor):
    """MRPC: do both sentences say the same? (Dolan and Brockett 2005)."""

    layouts = {
        "train": Layout("train.tsv", 3, 4, 0),
        "dev": Layout("dev.tsv", 3, 4, 0),
        "test": Layout("test.tsv", 3, 4),
    }


class StsbProcessor(TableProcessor):
    """STS-B: how alike are both sentences, 0 to 5? (Cer et al. 2017)."""

    layouts = _layouts("sentence1", "sentence2", "score")
    labels = ()
    label_range = (0.0, 5.0)


class QqpProcessor(TableProcessor):
    """QQP: are both questions the same? (Quora Question Pairs)."""

    layouts = _layouts("question1", "question2", "is_duplicate")
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

    layouts = _layouts("question", "sentence")
    labels = ("entailment", "not_entailment")


class RteProcessor(TableProcessor):
    """RTE: does sentence1 entail sentence2? (Bentivogli et al. 2009)."""

    layouts = _layouts("sentence1", "sentence2")
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


class TsvProcessor(TableProcessor):
    """The user's own train.tsv, dev.tsv and test.tsv.

    The first line names the columns: `text_a`, `label` and, for pairs,
    `text_b`, in any order; further columns are ignored. A file without such a
    line is read with `columns`. test.tsv may lack the label, and where it has
    one it is not read. Labels lose the spaces around them, texts do not.

    Attributes:
      columns: names of the columns of files without a header, "_" for one to
        ignore, such as ("label", "text_a"); None: the files have a header.
      labels: all labels. They are those given (`read_labels`), else those of
        the training file, sorted, as numbers if they all are: 2 before 10.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
    ):
        """Raises ValueError where `columns` makes no sense."""
        self.columns = tuple(columns) if columns else None
        self.labels = tuple(labels) if labels else ()
        used = [c for c in self.columns or ("text_a",) if c != "_"]
        allowed = {"text_a", "text_b", "label"}
        if (
            "text_a" not in used
            or len(set(used)) < len(used)
            or not allowed.issuperset(used)
        ):
            raise ValueError(
                f"columns: got {','.join(self.columns)}, wanted text_a, once, "
                "and label, and text_b for pairs; _ for a column to ignore."
            )
        self.layouts = _layouts("text_a", "text_b")
        self._is_pair: bool | None = None  # Until a file is read.

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        """Returns the examples to train on; finds the labels if not given.

        Raises:
          FileNotFoundError: train.tsv is not in `data_dir`.
          ValueError: as in `TableProcessor`, naming file and line.
        """
        examples = self._read(data_dir, "train")
        if not self.labels:
            self.labels = tuple(_sort_labels({e.label for e in examples}))
            logging.info(
                "%d labels in train.tsv: %s",
                len(self.labels),
                _shorten(self.labels),
            )
        return examples

    def get_labels(self) -> list[str]:
        """Returns all labels in the order of their ids.

        Raises:
          ValueError: there was no training file to find them in, yet.
        """
        if not self.labels:
            raise ValueError(
                "The labels of the TSV task are not known: read the training "
                "examples first, or give the labels stored at training."
            )
        return list(self.labels)

    def _read(self, data_dir: str, set_type: str) -> list[InputExample]:
        if set_type != "train":
            self.get_labels()  # Raises before anything is read.
        return super()._read(data_dir, set_type)

    def _locate(
        self, set_type: str, path: str, first_row: list[str]
    ) -> tuple[Layout, int, float]:
        names = _column_names(first_row)
        layout = self.layouts[set_type]
        if self.columns:
            if "text_a" in names:
                raise ValueError(
                    f"{path}, line 1: got a header, wanted data: columns were "
                    "given, which is for files without a header."
                )
            # The row is data. It must not begin with the byte order mark that
            # spreadsheets write, which would make a label of its own.
            first_row[0] = first_row[0].removeprefix("\ufeff")
            names = list(self.columns)
            layout = layout._replace(has_header=False)
            is_short = len(first_row) == len(names) - 1
            if set_type == "test" and is_short and "label" in names:
                names.remove("label")
        elif "text_a" not in names:
            raise ValueError(
                f"{path}, line 1: got columns {_shorten(names)}; wanted a "
                "header that names text_a, label and, for pairs, text_b. For "
                "files without one, give the columns' names in file order "
                "(--tsv_columns=label,text_a)."
            )
        is_pair = "text_b" in names
        if self._is_pair not in (None, is_pair):
            raise ValueError(
                f"{path}, line 1: got {'a' if is_pair else 'no'} column "
                "text_b, wanted the same as in the file read before."
            )
        self._is_pair = is_pair
        if not is_pair:
            layout = layout._replace(text_b=None)
        return _resolve(layout, path, names), len(names), len(names)

    def _label(self, label: str | None, where: str) -> str:
        if label is None:
            return self.get_labels()[0]
        label = label.strip()
        if not label:
            raise ValueError(f"{where}: got an empty label.")
        return super()._label(label, where) if self.labels else label


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


# --- Results -----------------------------------------------------------------


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


# --- Rows, columns and labels ------------------------------------------------


def _read_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Line number, from 1, and columns; blank lines only at the end."""
    first_blank = None
    for line_number, line in enumerate(file_io.read_lines(path), start=1):
        if "\t" not in line and not line.strip():
            first_blank = first_blank or line_number
            continue
        if first_blank is not None:
            raise ValueError(
                f"{path}, line {first_blank}: got a blank line, wanted an "
                "example; remove the line."
            )
        yield line_number, line.split("\t")


def _column_names(header: Sequence[str]) -> list[str]:
    """The header's names; spreadsheets begin files with a byte order mark."""
    return [name.removeprefix("\ufeff").strip() for name in header]


def _resolve(layout: Layout, path: str, names: Sequence[str]) -> Layout:
    """The layout with the positions of the columns it names."""
    for field in ("text_a", "text_b", "label"):
        name = getattr(layout, field)
        if name is None:
            continue
        if names.count(name) != 1:
            raise ValueError(
                f"{path}, line 1: got columns {_shorten(names)}; wanted one, "
                f"and only one, named {name!r}."
            )
        layout = layout._replace(**{field: names.index(name)})
    return layout


def _cell(row: Sequence[str], position: int | None) -> str | None:
    return None if position is None else row[position]


def _finite_float(text: str | None, where: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{where}: got label {text!r}, wanted a number.")
    return value


def _sort_labels(labels: Iterable[str]) -> list[str]:
    labels = sorted(labels)
    if all(re.fullmatch("[+-]?[0-9]{1,18}", label) for label in labels):
        labels.sort(key=int)
    return labels


def _shorten(names: Iterable[str]) -> str:
    """The names for a message, cut where there are many or a long one."""
    names = [repr(n if len(n) <= 40 else n[:40] + "...") for n in names]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(names[:20]) + more
