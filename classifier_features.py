"""Sentence classification: examples to features.

`convert_examples_to_features` turns texts into ids; `classifier_spec` describes
the records they are written as.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import logging

import features
from classifier_examples import (
    InputExample,
    PaddingInputExample,
    finite_float,
    shorten,
)

# How many examples are shown in the log, and after how many progress is.
_NUM_LOGGED_EXAMPLES = 5
_EXAMPLES_PER_LOG_LINE = 10_000


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
        return finite_float(example.label, f"example {example.guid}")
    if example.label not in label_ids:
        raise ValueError(
            f"Example {example.guid}: got label {example.label!r}, wanted one "
            f"of {shorten(label_ids)}."
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
