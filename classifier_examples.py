"""Sentence classification: files of rows to examples.

A file is UTF-8 text, one example a line, columns separated by one TAB. Quotes
are ordinary characters, everywhere: `"Well` is four letters and a quote.
"""

import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from absl import logging

import file_io


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


def usual_layouts(
    text_a: str, text_b: str | None = None, label: str = "label"
) -> dict[str, Layout]:
    """Returns the usual three files, with headers; only test has no labels."""
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
            if not low <= finite_float(label, where) <= high:
                raise ValueError(
                    f"{where}: got label {label}, wanted {low} to {high}."
                )
            return label
        label = self.label_synonyms.get(label, label)
        if label not in self.labels:
            raise ValueError(
                f"{where}: got label {label!r}, wanted one of "
                f"{shorten(self.labels)}."
            )
        return label


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
        self.layouts = usual_layouts("text_a", "text_b")
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
                shorten(self.labels),
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
                f"{path}, line 1: got columns {shorten(names)}; wanted a "
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
                f"{path}, line 1: got columns {shorten(names)}; wanted one, "
                f"and only one, named {name!r}."
            )
        layout = layout._replace(**{field: names.index(name)})
    return layout


def _cell(row: Sequence[str], position: int | None) -> str | None:
    return None if position is None else row[position]


def finite_float(text: str | None, where: str) -> float:
    """Returns the value that the label of a regression task stands for.

    Raises:
      ValueError: it is not a finite number; the message begins with `where`.
    """
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


def shorten(names: Iterable[str]) -> str:
    """Returns names for a message, cut where there are many or a long one."""
    names = [repr(n if len(n) <= 40 else n[:40] + "...") for n in names]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(names[:20]) + more
