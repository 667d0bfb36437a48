"""Tests for glue.py: the tasks, their files, labels and scores."""

import pytest
from recorded_classifier import (
    PROCESSORS,
    RECORDED,
    RECORDED_SETS,
    TESTDATA,
    recorded_examples,
)

import glue
import metrics


def write(directory, content, name="train.tsv"):
    (directory / name).write_bytes(content.encode("utf-8"))
    return str(directory)


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


# --- Stored labels -----------------------------------------------------------


def test_stored_labels_are_read_in_their_order(tmp_path):
    path = str(tmp_path / "labels.json")
    glue.write_labels(path, ["体育", "high life"], "TSV")
    assert glue.read_labels(path, "tsv") == ["体育", "high life"]


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
