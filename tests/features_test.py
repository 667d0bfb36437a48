"""Tests of the [CLS] a [SEP] b [SEP] layout."""

import pytest

import features


@pytest.mark.parametrize(
    ("num_a", "num_b", "limit", "left_a", "left_b"),
    [
        (3, 2, 5, 3, 2),
        (5, 2, 5, 3, 2),
        (2, 5, 5, 2, 3),
        (4, 4, 7, 4, 3),
        (4, 4, 6, 3, 3),
        (1, 9, 1, 1, 0),
        (9, 1, 1, 1, 0),
        (3, 3, 0, 0, 0),
    ],
)
def test_truncates_the_longer_text_first_and_b_on_a_tie(
    num_a, num_b, limit, left_a, left_b
):
    a, b = list(range(num_a)), list(range(num_b))
    features.truncate_seq_pair(a, b, limit)
    assert (a, b) == (list(range(left_a)), list(range(left_b)))


def test_refuses_to_truncate_below_nothing():
    with pytest.raises(ValueError, match="got -1, wanted 0 or more"):
        features.truncate_seq_pair([1], [2], -1)


def test_packs_a_pair():
    sequence, segment_ids = features.pack(
        ["no", "way"], ["yes"], 8, "[CLS]", "[SEP]"
    )
    assert sequence == ["[CLS]", "no", "way", "[SEP]", "yes", "[SEP]"]
    assert segment_ids == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("tokens_b", [None, []])
def test_packs_a_single_text(tokens_b):
    assert features.pack([7, 8], tokens_b, 8, 1, 2) == ([1, 7, 8, 2], [0] * 4)


def test_packed_pair_is_exactly_as_long_as_allowed():
    sequence, segment_ids = features.pack([5] * 9, [6] * 9, 10, 1, 2)
    assert sequence == [1, 5, 5, 5, 5, 2, 6, 6, 6, 2]
    assert segment_ids == [0] * 6 + [1] * 4


def test_second_text_that_truncation_empties_leaves_no_separator():
    assert features.pack([5], [6] * 9, 4, 1, 2) == ([1, 5, 2], [0, 0, 0])


def test_packing_leaves_its_arguments_alone():
    a, b = [5] * 9, [6] * 9
    features.pack(a, b, 6, 1, 2)
    assert (len(a), len(b)) == (9, 9)


@pytest.mark.parametrize(("b", "length"), [(None, 1), ([6], 2)])
def test_refuses_a_length_without_room_for_the_separators(b, length):
    with pytest.raises(ValueError, match=f"max_seq_length: got {length}"):
        features.pack([5], b, length, 1, 2)


def test_smallest_length_holds_the_separators_alone():
    assert features.pack([5], None, 2, 1, 2) == ([1, 2], [0, 0])


def test_pads_to_the_length():
    assert features.pad([4, 5], 4) == [4, 5, 0, 0]


def test_refuses_to_pad_what_is_too_long():
    with pytest.raises(ValueError, match="Got 3 ids, wanted at most"):
        features.pad([1, 2, 3], 2)
