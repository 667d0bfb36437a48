"""Tests for classifier_examples.py: any table, and the user's own files.

The released tasks' tables are in glue_test.py.
"""

import pytest

from classifier_examples import DataProcessor, InputExample, TsvProcessor


def write(directory, content, name="train.tsv"):
    (directory / name).write_bytes(content.encode("utf-8"))
    return str(directory)


def tsv_train(directory, content, columns=None):
    processor = TsvProcessor(columns)
    return processor, processor.get_train_examples(write(directory, content))


def test_base_processor_implements_nothing():
    processor = DataProcessor()
    for read in (
        processor.get_train_examples,
        processor.get_dev_examples,
        processor.get_test_examples,
    ):
        with pytest.raises(NotImplementedError):
            read("anywhere")
    with pytest.raises(NotImplementedError):
        processor.get_labels()


def test_subclasses_read_rows_as_before(tmp_path):
    write(tmp_path, 'a\t"b\r\nc\td\n')
    rows = DataProcessor._read_tsv(str(tmp_path / "train.tsv"))
    assert rows == [["a", '"b'], ["c", "d"]]


def test_header_names_the_columns_in_any_order(tmp_path):
    _, examples = tsv_train(
        tmp_path, "id\tlabel\ttext_b\ttext_a\n9\tyes\tB\tA\n"
    )
    assert examples == [InputExample("train-1", "A", "B", "yes")]


def test_columns_are_given_for_files_without_header(tmp_path):
    _, examples = tsv_train(
        tmp_path, "A\t7\tyes\nC\t8\tno\n", ("text_a", "_", "label")
    )
    assert examples == [
        InputExample("train-0", "A", None, "yes"),
        InputExample("train-1", "C", None, "no"),
    ]


def test_labels_are_found_in_the_training_file_and_sorted(tmp_path):
    processor, _ = tsv_train(
        tmp_path, "text_a\tlabel\na\tsport\nb\tart\nc\tsport\nd\thigh life\n"
    )
    assert processor.get_labels() == ["art", "high life", "sport"]


def test_labels_that_are_all_integers_are_sorted_as_numbers(tmp_path):
    processor, _ = tsv_train(
        tmp_path, "text_a\tlabel\na\t10\nb\t9\nc\t-1\nd\t0\n"
    )
    assert processor.get_labels() == ["-1", "0", "9", "10"]


def test_labels_lose_the_spaces_around_them_and_texts_do_not(tmp_path):
    _, examples = tsv_train(tmp_path, "label\ttext_a\n high life \t a \n")
    assert (examples[0].label, examples[0].text_a) == ("high life", " a ")


def test_labels_are_unknown_before_the_training_file_is_read(tmp_path):
    with pytest.raises(ValueError, match="labels of the TSV task are not kno"):
        TsvProcessor().get_test_examples(str(tmp_path))


def test_given_labels_make_the_training_file_unnecessary(tmp_path):
    processor = TsvProcessor(labels=["体育", "high life"])
    write(tmp_path, "text_a\nx\n", "test.tsv")
    assert processor.get_labels() == ["体育", "high life"]
    assert processor.get_test_examples(str(tmp_path)) == [
        InputExample("test-1", "x", None, "体育")
    ]


def test_test_file_without_header_may_lack_the_label(tmp_path):
    processor = TsvProcessor(("label", "text_a"), ["no", "yes"])
    write(tmp_path, "a\nb\n", "test.tsv")
    examples = processor.get_test_examples(str(tmp_path))
    assert [(e.text_a, e.label) for e in examples] == [("a", "no"), ("b", "no")]


def test_labels_in_a_test_file_are_not_read(tmp_path):
    processor = TsvProcessor(("label", "text_a"), ["no", "yes"])
    write(tmp_path, "?\ta\n", "test.tsv")
    examples = processor.get_test_examples(str(tmp_path))
    assert [(e.text_a, e.label) for e in examples] == [("a", "no")]


def test_unknown_label_in_dev_names_file_line_and_the_known_ones(tmp_path):
    processor, _ = tsv_train(tmp_path, "text_a\tlabel\na\tyes\nb\tno\n")
    write(tmp_path, "text_a\tlabel\na\tyes\nb\tmaybe\n", "dev.tsv")
    with pytest.raises(
        ValueError,
        match="dev.tsv, line 3: got label 'maybe', wanted one of 'no', 'yes'",
    ):
        processor.get_dev_examples(str(tmp_path))


def test_pairs_in_one_file_and_single_texts_in_another_are_refused(tmp_path):
    processor, _ = tsv_train(tmp_path, "text_a\ttext_b\tlabel\na\tb\tyes\n")
    write(tmp_path, "text_a\tlabel\na\tyes\n", "dev.tsv")
    with pytest.raises(
        ValueError, match="dev.tsv, line 1: got no column text_b"
    ):
        processor.get_dev_examples(str(tmp_path))


def test_unbalanced_quotes_are_text(tmp_path):
    _, examples = tsv_train(
        tmp_path, 'text_a\tlabel\n"Well\tyes\nsaid "he""\tno\n'
    )
    assert [e.text_a for e in examples] == ['"Well', 'said "he""']


def test_windows_line_ends_and_byte_order_mark_leave_no_trace(tmp_path):
    _, examples = tsv_train(
        tmp_path, "\ufefftext_a\tlabel\r\na\tyes\r\nb\tno\r\n\r\n"
    )
    assert [(e.text_a, e.label) for e in examples] == [
        ("a", "yes"),
        ("b", "no"),
    ]


def test_byte_order_mark_is_no_part_of_the_first_label(tmp_path):
    processor, _ = tsv_train(
        tmp_path, "\ufeffyes\ta\nyes\tb\n", ("label", "text_a")
    )
    assert processor.get_labels() == ["yes"]


def test_nul_characters_and_line_separators_stay_in_the_text(tmp_path):
    _, examples = tsv_train(tmp_path, "text_a\tlabel\na\0b\u2028c\x0bd\tyes\n")
    assert examples[0].text_a == "a\0b\u2028c\x0bd"


def test_fields_have_no_longest_length(tmp_path):
    text = "word " * 30_000
    _, examples = tsv_train(tmp_path, f"text_a\tlabel\n{text}\tyes\n")
    assert examples[0].text_a == text


def test_blank_lines_at_the_end_are_nothing(tmp_path):
    _, examples = tsv_train(tmp_path, "text_a\tlabel\na\tyes\n\n  \n\n")
    assert len(examples) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "train.tsv: the file is empty"),
        ("text_a\tlabel\n", "train.tsv: got no examples"),
        ("text_a\tlabel\na\tyes\n\nb\tno\n", "line 3: got a blank line"),
        ("text_a\tlabel\na\n", "line 2: got 1 columns, wanted 2"),
        ("text_a\tlabel\na\tb\tc\n", "line 2: got 3 columns, wanted 2"),
        ("text_a\tlabel\na\t \n", "line 2: got an empty label"),
        ("text_a\nb\n", "wanted one, and only one, named 'label'"),
        ("label\ttext_a\tlabel\ny\tb\ty\n", "only one, named 'label'"),
        ("good film\tyes\n", "wanted a header that names text_a, label"),
    ],
)
def test_malformed_training_files_are_refused(content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        tsv_train(tmp_path, content)


def test_invalid_utf8_names_file_and_line(tmp_path):
    data = b"text_a\tlabel\na\tyes\ncaf\xe9\tno\n"
    (tmp_path / "train.tsv").write_bytes(data)
    with pytest.raises(ValueError, match=r"train.tsv, line 3"):
        TsvProcessor().get_train_examples(str(tmp_path))


def test_header_where_columns_were_given_is_refused(tmp_path):
    with pytest.raises(ValueError, match="line 1: got a header, wanted data"):
        tsv_train(tmp_path, "text_a\tlabel\na\tyes\n", ("text_a", "label"))


@pytest.mark.parametrize(
    "columns",
    [("label",), ("text_a", "text_a"), ("text_a", "lable"), ("text_b", "_")],
)
def test_columns_that_make_no_sense_are_refused(columns):
    with pytest.raises(ValueError, match="columns: got"):
        TsvProcessor(columns)
