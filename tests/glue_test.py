"""Tests of tasks, their files, features and results.

testdata/classifier_features was recorded from the release, see there.
"""

import gzip
import json
import logging
from pathlib import Path

import numpy as np
import pytest

import glue
import metrics
import tokenization

TESTDATA = Path(__file__).parent / "testdata" / "classifier_features"
PROCESSORS = {
    "cola": glue.ColaProcessor,
    "mnli": glue.MnliProcessor,
    "mrpc": glue.MrpcProcessor,
    "xnli": glue.XnliProcessor,
}
with gzip.open(TESTDATA / "features.json.gz", "rt", encoding="utf-8") as reader:
    RECORDED = {(t["task"], t["split"]): t for t in json.load(reader)}
RECORDED_SETS = [key for key, t in RECORDED.items() if "error" not in t]


class WordTokenizer:
    """Knows its vocabulary by heart: [CLS] 0, [SEP] 1 and three words."""

    words = ("[CLS]", "[SEP]", "yes", "no", "so")

    def tokenize(self, text):
        return text.split()

    def convert_tokens_to_ids(self, tokens):
        return [self.words.index(token) for token in tokens]

    def convert_ids_to_tokens(self, ids):
        return [self.words[i] for i in ids]


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
    """The tokens the recorded texts need, at their released ids."""
    vocab = json.loads((TESTDATA / "vocab.json").read_text("utf-8"))
    lines = [f"[not needed {i}]" for i in range(1 + max(vocab.values()))]
    for token, token_id in vocab.items():
        lines[token_id] = token
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def log(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("absl"), "propagate", True)
    caplog.set_level(logging.INFO, logger="absl")
    return caplog


def recorded_examples(task, split):
    processor = PROCESSORS[task]()
    read = getattr(processor, f"get_{split}_examples")
    return read(str(TESTDATA / "data" / task))


def write(directory, content, name="train.tsv"):
    (directory / name).write_bytes(content.encode("utf-8"))
    return str(directory)


def tsv_train(directory, content, columns=None):
    processor = glue.TsvProcessor(columns)
    return processor, processor.get_train_examples(write(directory, content))


# --- As released -------------------------------------------------------------


@pytest.mark.parametrize(("task", "split"), RECORDED_SETS)
def test_examples_are_the_released_ones(task, split):
    examples = recorded_examples(task, split)
    recorded = RECORDED[task, split]["examples"]
    assert [vars(example) for example in examples] == recorded


@pytest.mark.parametrize(("task", "split"), RECORDED_SETS)
def test_labels_are_the_released_ones(task, split):
    labels = PROCESSORS[task]().get_labels()
    assert labels == RECORDED[task, split]["labels"]


@pytest.mark.parametrize(
    "setting", ["True,len=32", "True,len=64", "False,len=64"]
)
@pytest.mark.parametrize(("task", "split"), RECORDED_SETS)
def test_features_are_the_released_ones(task, split, setting, vocab_file):
    do_lower_case, max_seq_length = setting.split(",len=")
    tokenizer = tokenization.FullTokenizer(
        vocab_file, do_lower_case=do_lower_case == "True"
    )
    examples = recorded_examples(task, split) + [glue.PaddingInputExample()]
    converted = glue.convert_examples_to_features(
        examples,
        PROCESSORS[task]().get_labels(),
        int(max_seq_length),
        tokenizer,
    )
    recorded = RECORDED[task, split]["features"][f"lower={setting}"]
    assert [vars(result) for result in converted] == recorded


def test_records_are_those_the_released_writer_wrote(vocab_file):
    import tensorflow as tf

    examples = recorded_examples("mrpc", "dev") + [glue.PaddingInputExample()]
    tokenizer = tokenization.FullTokenizer(vocab_file)
    records = [
        result.as_record()
        for result in glue.convert_examples_to_features(
            examples, ["0", "1"], 32, tokenizer
        )
    ]
    path = str(TESTDATA / "mrpc_dev_lower_len32.tfrecord")
    for record, data in zip(
        records, tf.data.TFRecordDataset(path), strict=True
    ):
        written = tf.train.Example.FromString(data.numpy()).features.feature
        assert set(written) == set(record)
        for name, value in record.items():
            assert list(written[name].int64_list.value) == list(
                np.atleast_1d(value)
            )


def test_records_match_their_spec():
    result = glue.convert_single_example(
        0,
        glue.InputExample("x", "yes", label="1"),
        ["0", "1"],
        6,
        WordTokenizer(),
    )
    record, spec = result.as_record(), glue.classifier_spec(6)
    assert list(record) == list(spec)
    for name, (shape, dtype) in spec.items():
        assert np.asarray(record[name], dtype).shape == shape


def test_regression_labels_are_floats_in_the_spec():
    assert glue.classifier_spec(6, is_regression=True)["label_ids"] == (
        (),
        "float32",
    )


def test_xnli_test_is_still_a_not_implemented_error():
    with pytest.raises(NotImplementedError, match="xnli.test.tsv does not"):
        recorded_examples("xnli", "test")


def test_xnli_reads_its_test_file_where_there_is_one(tmp_path):
    dev = (TESTDATA / "data" / "xnli" / "xnli.dev.tsv").read_bytes()
    (tmp_path / "xnli.test.tsv").write_bytes(dev)
    examples = glue.XnliProcessor().get_test_examples(str(tmp_path))
    recorded = RECORDED["xnli", "dev"]["examples"]
    assert [e.text_a for e in examples] == [e["text_a"] for e in recorded]
    assert examples[0].guid == "test-2"


def test_xnli_reads_another_language():
    processor = glue.XnliProcessor("de")
    examples = processor.get_dev_examples(str(TESTDATA / "data" / "xnli"))
    assert examples[0].guid == "dev-1"


def test_mnli_reads_the_mismatched_sets(tmp_path):
    for matched in ("dev_matched", "test_matched"):
        content = (TESTDATA / "data" / "mnli" / f"{matched}.tsv").read_bytes()
        name = matched.replace("matched", "mismatched")
        (tmp_path / f"{name}.tsv").write_bytes(content)
    processor = glue.MnliProcessor()
    dev = processor.get_dev_mismatched_examples(str(tmp_path))
    test = processor.get_test_mismatched_examples(str(tmp_path))
    assert dev[0].guid == "dev_mismatched-0"
    assert test[0].guid == "test_mismatched-0"
    assert dev[0].text_a == recorded_examples("mnli", "dev")[0].text_a


def test_base_processor_implements_nothing():
    processor = glue.DataProcessor()
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
    rows = glue.DataProcessor._read_tsv(str(tmp_path / "train.tsv"))
    assert rows == [["a", '"b'], ["c", "d"]]


# --- Features ----------------------------------------------------------------


def test_tokenizer_without_encode_is_enough():
    example = glue.InputExample("x", "yes no", "so", "b")
    result = glue.convert_single_example(
        0, example, ["a", "b"], 8, WordTokenizer()
    )
    assert result.input_ids == [0, 2, 3, 1, 4, 1, 0, 0]
    assert result.input_mask == [1, 1, 1, 1, 1, 1, 0, 0]
    assert result.segment_ids == [0, 0, 0, 0, 1, 1, 0, 0]
    assert (result.label_id, result.is_real_example) == (1, True)


def test_without_labels_the_label_is_a_number():
    example = glue.InputExample("x", "yes", label="2.5")
    result = glue.convert_single_example(0, example, [], 8, WordTokenizer())
    assert result.label_id == 2.5


def test_padding_of_a_regression_task_has_a_float_label():
    result = glue.convert_single_example(
        0, glue.PaddingInputExample(), [], 8, WordTokenizer()
    )
    assert type(result.label_id) is float


@pytest.mark.parametrize("label", [None, "nan", "much"])
def test_refuses_a_regression_label_that_is_no_number(label):
    example = glue.InputExample("dev-3", "yes", label=label)
    with pytest.raises(ValueError, match="example dev-3: got label"):
        glue.convert_single_example(0, example, [], 8, WordTokenizer())


def test_refuses_an_example_with_an_unknown_label():
    example = glue.InputExample("dev-3", "yes", label="c")
    with pytest.raises(ValueError, match="dev-3: got label 'c', wanted one of"):
        glue.convert_single_example(0, example, ["a"], 8, WordTokenizer())


def test_refuses_a_vocabulary_without_the_special_tokens(tmp_path):
    (tmp_path / "vocab.txt").write_text("yes\nno\n", encoding="utf-8")
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
    example = glue.InputExample("x", "yes", label="a")
    with pytest.raises(ValueError, match="CLS"):
        glue.convert_single_example(0, example, ["a"], 8, tokenizer)


def test_truncated_examples_are_counted(log):
    examples = [glue.InputExample("x", "yes " * n, label="a") for n in range(8)]
    list(glue.convert_examples_to_features(examples, ["a"], 6, WordTokenizer()))
    warnings = [r.getMessage() for r in log.records if r.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith("3 of 8 examples are longer than max_seq")


def test_nothing_is_said_of_truncation_where_there_is_none(log):
    examples = [glue.InputExample("x", "yes yes", "no no no", label="a")]
    list(glue.convert_examples_to_features(examples, ["a"], 8, WordTokenizer()))
    assert not [r for r in log.records if r.levelname == "WARNING"]


def test_first_five_examples_are_logged_with_tokens_and_label(log):
    examples = [glue.InputExample(f"x-{i}", "yes", label="b") for i in range(7)]
    list(
        glue.convert_examples_to_features(
            examples, ["a", "b"], 6, WordTokenizer()
        )
    )
    lines = [record.getMessage() for record in log.records]
    assert [line for line in lines if line.startswith("guid")] == [
        f"guid: x-{i}" for i in range(5)
    ]
    assert "tokens: [CLS] yes [SEP]" in lines
    assert "input_ids: 0 2 1 0 0 0" in lines
    assert "label: b (id = 1)" in lines


# --- The other GLUE tasks ----------------------------------------------------

GLUE_FILES = [
    ("sst-2", "sentence\tlabel", "it works \t1", "it works ", None, "1"),
    (
        "sts-b",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1"
        "\tsentence2\tscore",
        "0\tnews\tf\t2012\t1\tnone\tnone\tA plane.\tA bird.\t3.800",
        "A plane.",
        "A bird.",
        "3.800",
    ),
    (
        "qqp",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "7\t1\t2\tWhy?\tHow?\t0",
        "Why?",
        "How?",
        "0",
    ),
    (
        "qnli",
        "index\tquestion\tsentence\tlabel",
        "0\tWho?\tI did.\tnot_entailment",
        "Who?",
        "I did.",
        "not_entailment",
    ),
    (
        "rte",
        "index\tsentence1\tsentence2\tlabel",
        "0\tIt rains.\tIt is wet.\tentailment",
        "It rains.",
        "It is wet.",
        "entailment",
    ),
    (
        "wnli",
        "index\tsentence1\tsentence2\tlabel",
        "0\tIt fell.\tThe cup fell.\t1",
        "It fell.",
        "The cup fell.",
        "1",
    ),
]


@pytest.mark.parametrize(
    ("task", "header", "row", "text_a", "text_b", "label"), GLUE_FILES
)
def test_reads_the_labelled_files_of_glue(
    task, header, row, text_a, text_b, label, tmp_path
):
    write(tmp_path, f"{header}\n{row}\n")
    processor = glue.TASKS[task].processor()
    assert processor.get_train_examples(str(tmp_path)) == [
        glue.InputExample("train-1", text_a, text_b, label)
    ]


@pytest.mark.parametrize(
    ("task", "header", "text_a", "text_b", "label"),
    [
        ("sst-2", "index\tsentence", "a", None, "0"),
        ("qqp", "id\tquestion1\tquestion2", "a", "b", "0"),
        ("qnli", "index\tquestion\tsentence", "a", "b", "entailment"),
        ("sts-b", "index\tsentence1\tsentence2", "a", "b", "0"),
    ],
)
def test_unlabelled_test_files_get_a_label_nobody_reads(
    task, header, text_a, text_b, label, tmp_path
):
    row = "\t".join(x for x in ("0", text_a, text_b) if x)
    write(tmp_path, f"{header}\n{row}\n", "test.tsv")
    processor = glue.TASKS[task].processor()
    assert processor.get_test_examples(str(tmp_path)) == [
        glue.InputExample("test-1", text_a, text_b, label)
    ]


@pytest.mark.parametrize("score", ["5.1", "-1", "inf", "high"])
def test_refuses_a_similarity_outside_zero_to_five(score, tmp_path):
    write(tmp_path, f"sentence1\tsentence2\tscore\na\tb\t{score}\n")
    with pytest.raises(ValueError, match=r"train.tsv, line 2: got label"):
        glue.StsbProcessor().get_train_examples(str(tmp_path))


def test_qqp_rows_that_are_cut_short_are_counted_and_left_out(tmp_path, log):
    write(tmp_path, "id\tquestion1\tquestion2\tis_duplicate\n"
          "1\ta\tb\t1\n2\ta\n3\tc\td\t0\n")  # fmt: skip
    examples = glue.QqpProcessor().get_train_examples(str(tmp_path))
    assert [e.guid for e in examples] == ["train-1", "train-3"]
    assert "left out 1 rows with a wrong number of columns" in log.text


def test_qqp_test_rows_are_never_left_out(tmp_path):
    write(tmp_path, "id\tquestion1\tquestion2\n0\ta\tb\n1\ta\n", "test.tsv")
    with pytest.raises(ValueError, match="line 3: got 2 columns, wanted 3"):
        glue.QqpProcessor().get_test_examples(str(tmp_path))


def test_other_tasks_refuse_rows_that_are_cut_short(tmp_path):
    write(tmp_path, "sentence\tlabel\na\t1\nb\n")
    with pytest.raises(ValueError, match="line 3: got 1 columns, wanted 2"):
        glue.Sst2Processor().get_train_examples(str(tmp_path))


def test_released_tasks_refuse_rows_that_are_cut_short(tmp_path):
    write(tmp_path, "Quality\t#1\t#2\tA\tB\n1\t2\t3\ta\tb\n1\t2\t3\ta\n")
    with pytest.raises(ValueError, match="line 3: got 4 columns, wanted 5"):
        glue.MrpcProcessor().get_train_examples(str(tmp_path))


def test_released_tasks_refuse_an_unknown_label(tmp_path):
    write(tmp_path, "gj04\t2\t\ta\n")
    with pytest.raises(
        ValueError, match="line 1: got label '2', wanted one of '0', '1'"
    ):
        glue.ColaProcessor().get_train_examples(str(tmp_path))


def test_missing_file_is_named_with_what_the_task_needs(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        glue.MrpcProcessor().get_dev_examples(str(tmp_path))
    assert str(tmp_path / "dev.tsv") in str(error.value)
    assert "train.tsv, dev.tsv, test.tsv" in str(error.value)


def test_header_without_the_tasks_column_is_refused(tmp_path):
    write(tmp_path, "text\tlabel\na\t1\n")
    with pytest.raises(ValueError, match="line 1: got columns 'text', 'label'"):
        glue.Sst2Processor().get_train_examples(str(tmp_path))


# --- The user's own files ----------------------------------------------------


def test_header_names_the_columns_in_any_order(tmp_path):
    _, examples = tsv_train(
        tmp_path, "id\tlabel\ttext_b\ttext_a\n9\tyes\tB\tA\n"
    )
    assert examples == [glue.InputExample("train-1", "A", "B", "yes")]


def test_columns_are_given_for_files_without_header(tmp_path):
    _, examples = tsv_train(
        tmp_path, "A\t7\tyes\nC\t8\tno\n", ("text_a", "_", "label")
    )
    assert examples == [
        glue.InputExample("train-0", "A", None, "yes"),
        glue.InputExample("train-1", "C", None, "no"),
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
        glue.TsvProcessor().get_test_examples(str(tmp_path))


def test_stored_labels_make_the_training_file_unnecessary(tmp_path):
    path = str(tmp_path / "labels.json")
    glue.write_labels(path, ["体育", "high life"], "TSV")
    labels = glue.read_labels(path, "tsv")
    processor = glue.TsvProcessor(labels=labels)
    write(tmp_path, "text_a\nx\n", "test.tsv")
    assert processor.get_labels() == ["体育", "high life"]
    assert processor.get_test_examples(str(tmp_path)) == [
        glue.InputExample("test-1", "x", None, "体育")
    ]


def test_test_file_without_header_may_lack_the_label(tmp_path):
    processor = glue.TsvProcessor(("label", "text_a"), ["no", "yes"])
    write(tmp_path, "a\nb\n", "test.tsv")
    examples = processor.get_test_examples(str(tmp_path))
    assert [(e.text_a, e.label) for e in examples] == [("a", "no"), ("b", "no")]


def test_labels_in_a_test_file_are_not_read(tmp_path):
    processor = glue.TsvProcessor(("label", "text_a"), ["no", "yes"])
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
        glue.TsvProcessor().get_train_examples(str(tmp_path))


def test_header_where_columns_were_given_is_refused(tmp_path):
    with pytest.raises(ValueError, match="line 1: got a header, wanted data"):
        tsv_train(tmp_path, "text_a\tlabel\na\tyes\n", ("text_a", "label"))


@pytest.mark.parametrize(
    "columns",
    [("label",), ("text_a", "text_a"), ("text_a", "lable"), ("text_b", "_")],
)
def test_columns_that_make_no_sense_are_refused(columns):
    with pytest.raises(ValueError, match="columns: got"):
        glue.TsvProcessor(columns)


def test_labels_of_another_task_are_refused(tmp_path):
    path = str(tmp_path / "labels.json")
    glue.write_labels(path, [], "STS-B", is_regression=True)
    assert glue.read_labels(path, "stsb") == []
    with pytest.raises(ValueError, match="model of task 'sts-b', wanted one"):
        glue.read_labels(path, "CoLA")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"labels": 3'])
def test_file_that_holds_no_labels_is_refused(content, tmp_path):
    write(tmp_path, content, "labels.json")
    with pytest.raises(ValueError, match="labels.json: got a file that does"):
        glue.read_labels(str(tmp_path / "labels.json"), "tsv")


# --- The table of tasks ------------------------------------------------------


def test_every_metric_of_a_task_exists():
    for task in glue.TASKS.values():
        for name in task.metric_names:
            assert callable(getattr(metrics, name))


def test_regression_is_what_has_no_labels():
    for name, task in glue.TASKS.items():
        if name != "tsv":
            assert task.is_regression == (not task.processor().get_labels())


@pytest.mark.parametrize(
    ("name", "key"), [("MRPC", "mrpc"), ("SST2", "sst-2"), ("StsB", "sts-b")]
)
def test_task_names_are_read_in_any_case_and_spelling(name, key):
    assert glue.canonical_task_name(name) == key


def test_unknown_task_is_refused():
    with pytest.raises(ValueError, match="Task not found: got 'imdb'"):
        glue.canonical_task_name("imdb")


# --- Results -----------------------------------------------------------------


def test_eval_results_are_sorted_key_value_lines(tmp_path):
    path = tmp_path / "eval_results.txt"
    # Values and bytes of a recorded run of the release.
    glue.write_eval_results(
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
    assert glue.write_test_results(str(path), iter(rows)) == 2
    assert path.read_bytes() == (
        b"0.22173531\t0.40957108\t0.3686936\n"
        b"0.21016084\t0.35550243\t0.4343367\n"
    )


def test_test_results_of_a_regression_are_one_number(tmp_path):
    path = tmp_path / "test_results.tsv"
    glue.write_test_results(str(path), np.array([2.5, 0.1], np.float32))
    assert path.read_text() == "2.5\n0.1\n"


def test_predictions_are_in_the_form_of_a_glue_submission(tmp_path):
    path = tmp_path / "test_predictions.tsv"
    count = glue.write_test_predictions(str(path), ["neutral", "体育"])
    assert count == 2
    assert path.read_text("utf-8") == "index\tprediction\n0\tneutral\n1\t体育\n"
    glue.write_test_predictions(str(path), np.array([0.1], np.float32))
    assert path.read_text() == "index\tprediction\n0\t0.1\n"


def test_interrupted_results_leave_the_old_file(tmp_path):
    path = tmp_path / "test_results.tsv"
    path.write_text("old")

    def interrupted():
        yield [0.5]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        glue.write_test_results(str(path), interrupted())
    assert path.read_text() == "old"


def test_eval_report_lines_up(tmp_path):
    path = tmp_path / "eval_report.txt"
    confusion = metrics.confusion_matrix([0, 0, 1, 1], [0, 1, 1, 1], 2)
    scores = metrics.per_label_scores(confusion)
    glue.write_eval_report(str(path), ["no", "体育"], confusion, scores)
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
