"""Lists of tokens or ids to the layout BERT reads: [CLS] a [SEP] b [SEP].

Every function works on tokens and on ids alike, because none of them looks at
an element. The layout is that of Devlin et al. 2019, section 3, figure 2:

    tokens:       [CLS] where is it ? [SEP] under the ta ##ble [SEP]
    segment_ids:    0     0   0  0  0   0     1    1   1   1     1
"""

from collections.abc import Sequence
from typing import TypeVar

_Token = TypeVar("_Token", int, str)


def truncate_seq_pair(
    tokens_a: list[_Token], tokens_b: list[_Token], max_num_tokens: int
) -> None:
    """Shortens the longer list, from its end, until both fit together.

    One token at a time: a token of a short sequence carries more than one of
    a long sequence, so an equal share off both would lose more. A tie takes
    from `tokens_b`.

    Args:
      tokens_a: first sequence, changed in place.
      tokens_b: second sequence, changed in place.
      max_num_tokens: the most that both may hold together, in tokens.

    Raises:
      ValueError: `max_num_tokens` is negative.
    """
    if max_num_tokens < 0:
        raise ValueError(
            f"max_num_tokens: got {max_num_tokens}, wanted 0 or more."
        )
    while len(tokens_a) + len(tokens_b) > max_num_tokens:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        longer.pop()


def pack(
    tokens_a: Sequence[_Token],
    tokens_b: Sequence[_Token] | None,
    max_seq_length: int,
    cls: _Token,
    sep: _Token,
) -> tuple[list[_Token], list[int]]:
    """Returns `[CLS] a [SEP] b [SEP]` and its segment ids, not padded.

    An empty or missing second sequence gives the one-text layout, also when
    truncation is what emptied it (as released).

    Args:
      tokens_a: first sequence, tokens or ids; not changed.
      tokens_b: second sequence, or None; not changed.
      max_seq_length: the most the result may hold, in tokens, [CLS] and every
        [SEP] included.
      cls: the [CLS] token or its id.
      sep: the [SEP] token or its id.

    Returns:
      The sequence and as many segment ids: 0 up to the first [SEP], 1 after.

    Raises:
      ValueError: `max_seq_length` has no room for [CLS] and the [SEP]s.
    """
    num_special = 3 if tokens_b else 2
    if max_seq_length < num_special:
        raise ValueError(
            f"max_seq_length: got {max_seq_length}, wanted {num_special} or "
            "more: [CLS] and [SEP] alone take that many."
        )
    tokens_a = list(tokens_a)
    tokens_b = list(tokens_b) if tokens_b else []
    truncate_seq_pair(tokens_a, tokens_b, max_seq_length - num_special)

    sequence = [cls, *tokens_a, sep]
    segment_ids = [0] * len(sequence)
    if tokens_b:
        sequence += [*tokens_b, sep]
        segment_ids += [1] * (len(tokens_b) + 1)
    return sequence, segment_ids


def pad(ids: Sequence[int], max_seq_length: int) -> list[int]:
    """Returns `ids` filled up with 0 to `max_seq_length` elements.

    Raises:
      ValueError: `ids` is longer than `max_seq_length`.
    """
    if len(ids) > max_seq_length:
        raise ValueError(
            f"Got {len(ids)} ids, wanted at most max_seq_length = "
            f"{max_seq_length}: truncate before padding."
        )
    return [*ids, *[0] * (max_seq_length - len(ids))]
