"""Tests of run_classifier.py in this process, with a model of one layer.

scripts_test.py runs it as people do.
"""

import json
import math
import os
import pathlib
import re
import shutil

import numpy as np
import pytest
from absl import flags

import checkpoint
import common_flags
import heads
import metrics
import modeling
import run_classifier
import tokenization
import training

TESTDATA = pathlib.Path(__file__).resolve().parent / "testdata"
WORDS = ["good", "bad", "film", "a", "the", "##ly", "very", "end"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
CONFIG = {
    "vocab_size": len(VOCAB),
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "initializer_range": 0.5,
}
TRAIN = "".join(
    f"a {word} {other}\t{label}\n"
    for word, label in (("good", "yes"), ("bad", "no"))
    for other in WORDS
)
DEV = "the good film\tyes\nbad\tno\nvery bad\tno\n"
TEST = "good\t?\nbad\t?\nthe end\t?\n"
HEADER = "text_a\tlabel\n"


def run(values):
    """Runs the script with these flags; returns what it exits with, or None.

    A ValueError becomes one line there, anything unforeseen is raised here.
    """
    argv = ["/some/where/run_classifier.py"]
    for name, value in values.items():
        if value is not None:
            argv.append(f"--{name}={value}")
    flag_values = flags.FlagValues()
    run_classifier.define_flags(flag_values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flags, "FLAGS", flag_values)
        try:
            common_flags._run_main(run_classifier.main, flag_values(argv))
        except SystemExit as error:
            return error.code
    return None


def write(path, content):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, str):
        content = json.dumps(content)
    path.write_text(content, encoding="utf-8", newline="")
    return str(path)


def write_init(prefix, num_labels=None, seed=0, **changes):
    """A checkpoint of random weights, with a head or as it was released."""
    config = modeling.BertConfig.from_dict({**CONFIG, **changes})
    model = heads.BertClassifier(config, num_labels or 2, random_seed=seed)
    weights = training.named_variables(model)
    if num_labels is None:
        weights = {n: w for n, w in weights.items() if n.startswith("bert/")}
    checkpoint.write(str(prefix), weights)
    return str(prefix)


@pytest.fixture
def task(tmp_path):
    """The flags of a task with labels no and yes; nothing is trained yet."""
    for name, content in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        write(tmp_path / "data" / f"{name}.tsv", HEADER + content)
    return {
        "task_name": "TSV",
        "data_dir": str(tmp_path / "data"),
        "vocab_file": write(tmp_path / "vocab.txt", "\n".join(VOCAB) + "\n"),
        "bert_config_file": write(tmp_path / "bert_config.json", CONFIG),
        "output_dir": str(tmp_path / "out"),
        "max_seq_length": 8,
        "train_batch_size": 4,
        "num_train_epochs": 1,
        "learning_rate": 0.01,
        # One shape of batch is one compilation.
        "remove_padding": "false",
    }


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """A directory after training, evaluation and prediction."""
    tmp_path = tmp_path_factory.mktemp("trained")
    values = task.__wrapped__(tmp_path)
    done = {"do_train": True, "do_eval": True, "do_predict": True}
    assert run({**values, **done}) is None
    return tmp_path


@pytest.fixture
def trained(trained_once, task, tmp_path):
    """The flags of a task that is trained already."""
    shutil.copytree(trained_once / "out", tmp_path / "out")
    return task


def contents(directory):
    return {
        str(p.relative_to(directory)): p.read_bytes()
        for p in pathlib.Path(directory).rglob("*")
        if p.is_file()
    }


def results(values, name="eval_results.txt"):
    text = pathlib.Path(values["output_dir"], name).read_text("utf-8")
    return dict(line.split(" = ") for line in text.splitlines())


# --- Names and scores --------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "InputExample",
        "InputFeatures",
        "PaddingInputExample",
        "DataProcessor",
        "XnliProcessor",
        "MnliProcessor",
        "MrpcProcessor",
        "ColaProcessor",
        "convert_single_example",
        "convert_examples_to_features",
        "file_based_convert_examples_to_features",
    ],
)
def test_released_name_is_importable(name):
    assert callable(getattr(run_classifier, name))


def scores_of(metric_names, labels, logits, batch_size=2):
    """What `_scores` says, the losses being 0, 1, 2, ..."""
    labels, logits = np.array(labels), np.array(logits, np.float32)
    columns = {
        "logits": logits,
        "label_ids": labels,
        "example_loss": np.arange(len(labels), dtype=np.float32),
    }
    fields = dict.fromkeys(run_classifier._Task._fields)
    fields["is_regression"] = logits.shape[1] == 1
    fields["metric_names"] = metric_names
    definition = run_classifier._Task(**fields)
    return run_classifier._scores(definition, columns, batch_size)


def test_loss_counts_the_short_last_batch_fully():
    scores = scores_of(("accuracy",), [0, 1, 1, 0, 1], [[0, 1]] * 5)
    assert scores["loss"] == pytest.approx((0.5 + 2.5 + 4.0) / 3)
    assert scores["eval_loss"] == pytest.approx(2.0)
    assert scores["eval_accuracy"] == pytest.approx(3 / 5)


def test_scores_of_classes_are_those_of_the_argmax():
    labels = [0, 1, 1, 0, 1, 1]
    logits = [[2, 1], [0, 3], [4, 1], [1, 3], [0, 1], [-5, -1]]
    scores = scores_of(("matthews_corrcoef", "f1"), labels, logits)
    said = [0, 1, 0, 1, 1, 1]
    # 3 of 4 said 1 are right, 3 of 4 that are 1 were found.
    assert scores["eval_f1"] == pytest.approx(0.75)
    assert scores["eval_matthews_corrcoef"] == pytest.approx(
        np.corrcoef(labels, said)[0, 1], rel=1e-6
    )
    assert set(scores) == {
        "eval_loss",
        "loss",
        "eval_accuracy",
        "eval_f1",
        "eval_matthews_corrcoef",
    }


def test_scores_of_values_are_correlations_and_no_accuracy():
    labels, logits = [0.0, 2.5, 5.0, 1.0], [[0.5], [2.0], [3.0], [0.7]]
    scores = scores_of(("pearson", "spearman"), labels, logits)
    assert scores["eval_pearson"] == pytest.approx(
        np.corrcoef(labels, np.ravel(logits))[0, 1], rel=1e-6
    )
    assert scores["eval_spearman"] == pytest.approx(1.0)
    assert set(scores) == {
        "eval_loss",
        "loss",
        "eval_pearson",
        "eval_spearman",
    }


def test_every_official_score_is_a_function_of_metrics():
    names = {
        name
        for task in run_classifier.glue.TASKS.values()
        for name in task.metric_names
    }
    assert all(callable(getattr(metrics, name)) for name in names)


# --- A run -------------------------------------------------------------------


def test_run_writes_its_results(trained):
    assert sorted(
        name
        for name in contents(trained["output_dir"])
        if "tfevents" not in name
    ) == [
        "checkpoint",
        "eval.tf_record",
        "eval_report.txt",
        "eval_results.txt",
        "labels.json",
        "model.ckpt-4.data-00000-of-00001",
        "model.ckpt-4.index",
        "predict.tf_record",
        "test_predictions.tsv",
        "test_results.tsv",
        "train.tf_record",
    ]
    assert list(results(trained)) == [
        "eval_accuracy",
        "eval_loss",
        "global_step",
        "loss",
    ]
    assert results(trained)["global_step"] == "4"


def test_prediction_alone_repeats_it_without_training_data(trained):
    before = contents(trained["output_dir"])
    os.remove(os.path.join(trained["data_dir"], "train.tsv"))
    os.remove(os.path.join(trained["output_dir"], "test_results.tsv"))
    os.remove(os.path.join(trained["output_dir"], "test_predictions.tsv"))
    assert run({**trained, "do_predict": True}) is None
    assert contents(trained["output_dir"]) == before


def test_predicted_label_is_the_most_probable_one(trained):
    output_dir = pathlib.Path(trained["output_dir"])
    rows = [
        [float(x) for x in line.split("\t")]
        for line in (output_dir / "test_results.tsv").read_text().splitlines()
    ]
    np.testing.assert_allclose(np.sum(rows, axis=1), 1.0, rtol=1e-5)
    predicted = (output_dir / "test_predictions.tsv").read_text().splitlines()
    assert predicted[0] == "index\tprediction"
    assert predicted[1:] == [
        f"{i}\t{['no', 'yes'][int(np.argmax(row))]}"
        for i, row in enumerate(rows)
    ]


def test_batch_size_and_padding_change_no_prediction(trained):
    path = pathlib.Path(trained["output_dir"], "test_results.tsv")
    before = np.loadtxt(path)
    options = {"predict_batch_size": 2, "remove_padding": "true"}
    assert run({**trained, **options, "do_predict": True}) is None
    np.testing.assert_allclose(np.loadtxt(path), before, atol=1e-6)


@pytest.mark.parametrize("form", ["prefix", "file", "directory", "relative"])
def test_trained_model_is_used_from_another_directory(
    trained, tmp_path, form, monkeypatch
):
    out = pathlib.Path(trained["output_dir"])
    wanted = (out / "test_predictions.tsv").read_bytes()
    monkeypatch.chdir(out)
    forms = {
        "prefix": str(out / "model.ckpt-4"),
        "file": str(out / "model.ckpt-4.index"),
        "directory": str(out),
        "relative": "model.ckpt-4",
    }
    new = {"output_dir": str(tmp_path / "an other"), "do_predict": True}
    assert run({**trained, **new, "init_checkpoint": forms[form]}) is None
    predictions = tmp_path / "an other" / "test_predictions.tsv"
    assert predictions.read_bytes() == wanted


def test_labels_are_those_of_the_checkpoint_in_use(trained, tmp_path):
    # What a first attempt left behind says nothing about another checkpoint.
    labels = {"task_name": "tsv", "is_regression": False, "labels": ["a", "b"]}
    write(tmp_path / "new" / "labels.json", labels)
    new = {
        "output_dir": str(tmp_path / "new"),
        "init_checkpoint": trained["output_dir"],
        "do_predict": True,
    }
    assert run({**trained, **new}) is None
    predictions = (tmp_path / "new" / "test_predictions.tsv").read_text()
    assert {line.split("\t")[1] for line in predictions.splitlines()[1:]} <= {
        "no",
        "yes",
    }


def test_labels_of_a_run_that_never_started_are_no_obstacle(task):
    # Such as one with the wrong --task_name or an init_checkpoint that does
    # not fit.
    labels = {"task_name": "mrpc", "is_regression": False, "labels": ["0", "1"]}
    path = write(pathlib.Path(task["output_dir"]) / "labels.json", labels)
    assert run({**task, "do_train": True, "num_train_epochs": 0.25}) is None
    assert json.loads(pathlib.Path(path).read_text())["labels"] == ["no", "yes"]


def test_finished_training_is_evaluated_again(trained):
    before = contents(trained["output_dir"])
    assert run({**trained, "do_train": True, "do_eval": True}) is None
    after = contents(trained["output_dir"])
    assert all(after[name] == before[name] for name in before)


def test_regression_predicts_values_and_scores_correlations(task):
    header = "index\tsentence1\tsentence2\tscore\n"
    rows = "".join(f"{i}\tgood\tthe end\t{i / 2}\n" for i in range(8))
    for name in ("train", "dev"):
        write(f"{task['data_dir']}/{name}.tsv", header + rows)
    test = "index\tsentence1\tsentence2\n" + "0\tbad\tgood film\n" * 3
    write(f"{task['data_dir']}/test.tsv", test)
    done = {"do_train": True, "do_eval": True, "do_predict": True}
    assert run({**task, **done, "task_name": "STS-B"}) is None
    assert list(results(task)) == [
        "eval_loss",
        "eval_pearson",
        "eval_spearman",
        "global_step",
        "loss",
    ]
    out = pathlib.Path(task["output_dir"])
    assert not (out / "eval_report.txt").exists()
    values = (out / "test_results.tsv").read_text().split()
    predictions = (out / "test_predictions.tsv").read_text().splitlines()
    assert predictions[1:] == [f"{i}\t{v}" for i, v in enumerate(values)]
    assert checkpoint.read(task["output_dir"])["output_weights"].shape == (1, 8)
    # And the directory stays what it is.
    message = run({**task, "do_train": True})
    assert "got a model of task 'sts-b', wanted one of task 'tsv'" in message


def test_scores_are_those_of_the_example_losses(trained):
    options = {"do_eval": True, "eval_batch_size": 2}
    assert run({**trained, **options}) is None
    model = heads.BertClassifier(modeling.BertConfig(**CONFIG), 2)
    training.load_weights(model, trained["output_dir"])
    tokenizer = tokenization.FullTokenizer(trained["vocab_file"])
    example_loss, num_right = [], 0
    for line in DEV.splitlines():
        text, label = line.split("\t")
        ids = [2, *tokenizer.encode(text), 3]
        one = np.array([ids], np.int32)
        logits = model(
            {
                "input_ids": one,
                "input_mask": np.ones_like(one),
                "segment_ids": np.zeros_like(one),
            }
        )["logits"].numpy()[0]
        label_id = ["no", "yes"].index(label)
        example_loss.append(np.logaddexp(*logits) - logits[label_id])
        num_right += logits.argmax() == label_id
    scores = {name: float(text) for name, text in results(trained).items()}
    first, last = np.mean(example_loss[:2]), example_loss[2]
    assert scores["eval_accuracy"] == pytest.approx(num_right / 3)
    assert scores["eval_loss"] == pytest.approx(np.mean(example_loss), rel=1e-5)
    assert scores["loss"] == pytest.approx((first + last) / 2, rel=1e-5)


# --- The released results ----------------------------------------------------


@pytest.fixture
def mnli(tmp_path):
    """The flags of the recorded run."""
    data_dir = TESTDATA / "classifier_features" / "data" / "mnli"
    shutil.copytree(data_dir, tmp_path / "mnli")
    return {
        "task_name": "MNLI",
        "data_dir": str(tmp_path / "mnli"),
        "vocab_file": str(TESTDATA / "e2e" / "vocab_small.txt"),
        "bert_config_file": str(TESTDATA / "train" / "bert_config.json"),
        "init_checkpoint": str(TESTDATA / "train" / "bert_model.ckpt"),
        "output_dir": str(tmp_path / "out"),
        "max_seq_length": 48,
        "eval_batch_size": 5,
        "predict_batch_size": 5,
        "do_eval": True,
        "do_predict": True,
    }


@pytest.mark.parametrize("remove_padding", ["true", "false"])
def test_results_are_the_recorded_ones(mnli, remove_padding):
    assert run({**mnli, "remove_padding": remove_padding}) is None
    recorded = TESTDATA / "e2e" / "mnli"
    text = (recorded / "eval_results.txt").read_text()
    wanted = dict(line.split(" = ") for line in text.splitlines())
    assert list(results(mnli)) == list(wanted)
    for name, value in results(mnli).items():
        assert float(value) == pytest.approx(float(wanted[name]), abs=1e-5)
    out = pathlib.Path(mnli["output_dir"])
    np.testing.assert_allclose(
        np.loadtxt(out / "test_results.tsv"),
        np.loadtxt(recorded / "test_results.tsv"),
        atol=1e-5,
    )


def test_mismatched_sets_have_files_of_their_own(mnli):
    data_dir = pathlib.Path(mnli["data_dir"])
    matched = (data_dir / "dev_matched.tsv").read_text("utf-8").splitlines(True)
    half = "".join(matched[: len(matched) // 2])
    write(data_dir / "dev_mismatched.tsv", half)
    shutil.copy(data_dir / "test_matched.tsv", data_dir / "test_mismatched.tsv")
    assert run(mnli) is None
    out = pathlib.Path(mnli["output_dir"])
    assert results(mnli, "eval_results_mismatched.txt") != results(mnli)
    assert (out / "eval_report_mismatched.txt").exists()
    for name in ("test_results", "test_predictions"):
        # Of the same sentences, so they say the same.
        assert (out / f"{name}_mismatched.tsv").read_bytes() == (
            out / f"{name}.tsv"
        ).read_bytes()


# --- Odd input that is fine --------------------------------------------------


def examples_of(values, monkeypatch):
    """The number of label ids and the examples that would be trained on."""
    seen = {}

    def stop(values, task, model, examples):
        seen["labels"], seen["examples"] = task.label_list, examples

    monkeypatch.setattr(run_classifier, "_train", stop)
    assert run({**values, "do_train": True}) is None
    return seen["labels"], [(e.text_a, e.label) for e in seen["examples"]]


def test_hundred_labels_are_sorted_as_numbers(task, monkeypatch):
    rows = "".join(f"good\t{i}\n" for i in reversed(range(100)))
    write(f"{task['data_dir']}/train.tsv", HEADER + rows)
    labels, _ = examples_of(task, monkeypatch)
    assert labels == [str(i) for i in range(100)]


def test_windows_line_ends_and_no_final_one(task, monkeypatch):
    content = (HEADER + "good\tyes\nbad\tno").replace("\n", "\r\n")
    write(f"{task['data_dir']}/train.tsv", content)
    labels, examples = examples_of(task, monkeypatch)
    assert labels == ["no", "yes"]
    assert examples == [("good", "yes"), ("bad", "no")]


def test_file_without_header(task, monkeypatch):
    write(f"{task['data_dir']}/train.tsv", "x\tyes\tgood\nx\tno\tbad\n")
    _, examples = examples_of(
        {**task, "tsv_columns": "_,label,text_a"}, monkeypatch
    )
    assert examples == [("good", "yes"), ("bad", "no")]


def test_very_long_line_is_cut(trained):
    long = "good " * 100_000
    write(f"{trained['data_dir']}/test.tsv", f"{HEADER}{long}\t?\nbad\t?\n")
    assert run({**trained, "do_predict": True}) is None
    path = pathlib.Path(trained["output_dir"], "test_results.tsv")
    assert len(path.read_text().splitlines()) == 2


def test_shortest_sequence_has_room_for_one_token(trained):
    options = {"do_predict": True, "max_seq_length": 3}
    assert run({**trained, **options}) is None


def test_batch_larger_than_the_training_set(task):
    options = {"train_batch_size": 40, "num_train_epochs": 2.5}
    assert run({**task, **options, "do_train": True}) is None
    assert checkpoint.latest_checkpoint(task["output_dir"]).endswith("ckpt-1")


def test_leftover_of_a_killed_run_is_replaced(task):
    path = pathlib.Path(write(f"{task['output_dir']}/eval.tf_record", "x"))
    path.with_name("eval.tf_record.partial").write_bytes(b"half a rec")
    init = write_init(f"{task['output_dir']}/../init.ckpt", num_labels=2)
    write(
        f"{task['output_dir']}/../labels.json",
        {"task_name": "tsv", "is_regression": False, "labels": ["no", "yes"]},
    )
    assert run({**task, "do_eval": True, "init_checkpoint": init}) is None
    assert list(path.parent.glob("*.partial")) == []


# --- Mistakes ----------------------------------------------------------------


def mistake_of(values, **changes):
    """Runs with changed flags; the mistake's line, which must be one line."""
    values = {**values, **changes}
    before = contents(values["output_dir"])
    message = run(values)
    assert isinstance(message, str)
    assert message.startswith("run_classifier.py: ")
    # TensorFlow's own words may follow in brackets, but no traceback.
    assert "Traceback" not in message
    assert "\n" not in message
    assert contents(values["output_dir"]) == before
    return message


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"do_train": None}, "nothing to do: give at least one of --do_train"),
        ({"use_tpu": "true"}, "--use_tpu=true: .*GPU or a CPU"),
        ({"task_name": "mlni"}, "Task not found: got 'mlni', wanted one of"),
        (
            {"task_name": "MRPC", "tsv_columns": "label,text_a"},
            "--tsv_columns describes files of your own",
        ),
        ({"tsv_columns": "label,txt"}, "got label,txt, wanted text_a"),
        ({"vocab_file": "nowhere.txt"}, "no such file: 'nowhere.txt'"),
        ({"bert_config_file": "nowhere.json"}, "no such file: 'nowhere.json'"),
        ({"data_dir": "nowhere"}, "--data_dir=nowhere is not a directory"),
        ({"init_checkpoint": "no/bert_model.ckpt"}, "no such checkpoint"),
        (
            {"max_seq_length": 17},
            r"--max_seq_length=17 is more than the 16 positions of the model",
        ),
        (
            {"init_checkpoint": "cased_L-12_H-768_A-12/bert_model.ckpt"},
            "do_lower_case",
        ),
        ({"num_train_epochs": "nan"}, "--num_train_epochs=nan"),
        ({"num_train_epochs": "inf"}, "--num_train_epochs=inf"),
        ({"learning_rate": "nan"}, "--learning_rate=nan"),
        ({"learning_rate": "inf"}, "--learning_rate=inf"),
        ({"warmup_proportion": "nan"}, "--warmup_proportion=nan"),
    ],
    ids=str,
)
def test_flag_that_cannot_be_is_refused(trained, changes, wanted):
    message = mistake_of(trained, **{"do_train": "true", **changes})
    assert re.search(wanted, message)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("random_seed", -1),
        ("random_seed", 2**31),
        ("train_batch_size", 0),
        ("max_seq_length", 2),
        ("learning_rate", "fast"),
        ("learning_rate", -1),
        ("warmup_proportion", 1.5),
        ("do_train", "maybe"),
        ("save_checkpoints_steps", 0),
    ],
)
def test_flag_out_of_its_range_is_refused(task, flag, value):
    with pytest.raises(flags.IllegalFlagValueError, match=f"--{flag}"):
        run({**task, flag: value})


def test_flag_with_a_space_for_the_equals_sign_is_refused(trained):
    values = flags.FlagValues()
    run_classifier.define_flags(values)
    argv = ["run_classifier.py", "--do_train", "true"]
    argv += [f"--{name}={value}" for name, value in trained.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flags, "FLAGS", values)
        with pytest.raises(SystemExit) as error:
            common_flags._run_main(run_classifier.main, values(argv))
    assert "unexpected argument 'true'" in error.value.code


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("train.tsv", None, "train.tsv does not exist"),
        ("train.tsv", "", "train.tsv: the file is empty"),
        ("train.tsv", HEADER, "train.tsv: got no examples"),
        ("train.tsv", HEADER + "good\n", "train.tsv, line 2: got 1 columns"),
        (
            "train.tsv",
            HEADER + "a\tno\nb\tyes\tx\n",
            "train.tsv, line 3: got 3 columns, wanted 2",
        ),
        ("train.tsv", "text\tlabel\n", "line 1: got columns 'text', 'label'"),
        ("train.tsv", HEADER + "a\t \n", "line 2: got an empty label"),
        ("dev.tsv", HEADER + "good\tmaybe\n", "line 2: got label 'maybe'"),
        ("dev.tsv", None, "dev.tsv does not exist"),
        ("test.tsv", None, "test.tsv does not exist"),
        ("test.tsv", HEADER + "\n\ngood\tx\n", "line 2: got a blank line"),
    ],
)
def test_bad_data_is_found_before_training(trained, name, content, wanted):
    path = os.path.join(trained["data_dir"], name)
    if content is None:
        os.remove(path)
    else:
        write(path, content)
    done = dict.fromkeys(("do_train", "do_eval", "do_predict"), "true")
    assert wanted in mistake_of(trained, **done)


def test_text_that_is_not_utf8_names_file_and_line(trained):
    path = pathlib.Path(trained["data_dir"], "dev.tsv")
    path.write_bytes(HEADER.encode() + b"good\tyes\ncaf\xe9\tno\n")
    message = mistake_of(trained, do_eval="true")
    assert "dev.tsv, line 3: the file must be UTF-8" in message


def test_one_label_is_refused(task):
    write(f"{task['data_dir']}/train.tsv", HEADER + "good\tyes\nbad\tyes\n")
    message = mistake_of(task, do_train="true")
    assert "all training examples have the label 'yes'" in message


def test_less_than_one_step_is_refused(task):
    message = run({**task, "do_train": "true", "num_train_epochs": 0.1})
    assert "16 training examples, --train_batch_size=4 and" in message
    assert "make less than one step" in message


def test_vocabulary_larger_than_the_model_is_refused(trained):
    with open(trained["vocab_file"], "a") as writer:
        writer.write("more\n")
    message = mistake_of(trained, do_predict="true")
    assert re.search("vocab.txt has 14 entries, the model only 13", message)


@pytest.mark.parametrize("content", ["", "\n", "good\nbad\n"])
def test_file_that_is_no_vocabulary_is_refused(task, content):
    write(task["vocab_file"], content)
    message = mistake_of(task, do_train="true")
    assert re.search(r"vocab.txt(: got an empty| has no .*\[CLS\])", message)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("{", "bert_config.json: "),
        ("[]", "bert_config.json: expected a JSON object"),
        ("{}", "bert_config.json: vocab_size is missing"),
        ({**CONFIG, "hidden_size": 9}, "bert_config.json: hidden_size"),
    ],
)
def test_bad_configuration_names_its_file(trained, content, wanted):
    write(trained["bert_config_file"], content)
    assert wanted in mistake_of(trained, do_predict="true")


def test_no_checkpoint_to_predict_with(task):
    message = mistake_of(task, do_predict="true")
    assert "there is no checkpoint in --output_dir" in message


def test_checkpoint_without_head_cannot_predict(task, tmp_path):
    init = write_init(tmp_path / "bert_model.ckpt")
    write(
        tmp_path / "labels.json",
        {"task_name": "tsv", "is_regression": False, "labels": ["no", "yes"]},
    )
    message = run({**task, "do_predict": "true", "init_checkpoint": init})
    assert "has no output_weights, output_bias" in message


def test_checkpoint_without_labels_cannot_predict(task, tmp_path):
    init = write_init(tmp_path / "bert_model.ckpt", num_labels=2)
    message = mistake_of(task, do_predict="true", init_checkpoint=init)
    assert f"{tmp_path}/labels.json is missing" in message


def test_lost_labels_are_not_guessed(trained):
    os.remove(os.path.join(trained["output_dir"], "labels.json"))
    for done in ("do_train", "do_predict"):
        message = mistake_of(trained, **{done: "true"})
        assert f"{trained['output_dir']}/labels.json is missing" in message


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"num_labels": 3}, "output_weights is [2, 8] in the model and [3, 8]"),
        (
            {"hidden_size": 16},
            "is [16] in the checkpoint",
        ),
        (
            {"vocab_size": 20},
            "bert/embeddings/word_embeddings is [13, 8] in the model and [20, "
            "8] in the checkpoint",
        ),
    ],
)
def test_checkpoint_of_another_shape_is_refused(
    task, tmp_path, changes, wanted
):
    init = write_init(tmp_path / "bert_model.ckpt", **changes)
    message = run({**task, "do_train": "true", "init_checkpoint": init})
    if "hidden_size" in changes:
        assert re.search(r"beta is \[8\] in the model and \[16\]", message)
    else:
        assert wanted in message
    # After which the right one is as good as at first.
    init = write_init(tmp_path / "bert_model.ckpt")
    options = {"num_train_epochs": 0.25, "init_checkpoint": init}
    assert run({**task, **options, "do_train": "true"}) is None


def damage(path, how):
    data = pathlib.Path(path).read_bytes()
    if how == "truncated":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = b""
    else:
        middle = len(data) // 2
        flipped = bytes(255 - x for x in data[middle : middle + 8])
        data = data[:middle] + flipped + data[middle + 8 :]
    pathlib.Path(path).write_bytes(data)


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
@pytest.mark.parametrize("how", ["truncated", "empty", "flipped"])
def test_damaged_checkpoint_is_refused(task, tmp_path, suffix, how):
    init = write_init(tmp_path / "bert_model.ckpt")
    damage(init + suffix, how)
    message = run({**task, "do_train": "true", "init_checkpoint": init})
    assert re.search(
        "bert_model.ckpt: (truncated|cannot read|other shapes|not one)", message
    )
    assert "\n" not in message


@pytest.mark.parametrize("done", ["do_train", "do_predict"])
def test_run_whose_checkpoints_are_all_damaged_is_not_begun_anew(trained, done):
    damage(f"{trained['output_dir']}/model.ckpt-4.index", "flipped")
    message = mistake_of(trained, **{done: "true"})
    assert "model.ckpt-4.index: not one checkpoint of this run" in message


def test_damaged_data_of_the_run_is_left_as_it_is(trained):
    path = f"{trained['output_dir']}/model.ckpt-4.data-00000-of-00001"
    damage(path, "flipped")
    message = mistake_of(trained, do_train="true")
    assert "model.ckpt-4: cannot read the data of" in message


def test_weight_that_is_not_a_number_is_refused(task, tmp_path):
    prefix = write_init(tmp_path / "bert_model.ckpt", num_labels=2)
    values = checkpoint.read(prefix)
    values["bert/pooler/dense/kernel"][3, 3] = math.nan
    checkpoint.write(prefix, values)
    write(
        tmp_path / "labels.json",
        {"task_name": "tsv", "is_regression": False, "labels": ["no", "yes"]},
    )
    task["init_checkpoint"] = prefix
    message = run({**task, "do_train": "true"})
    assert "of step 1 is not a finite number" in message
    assert checkpoint.latest_checkpoint(task["output_dir"]) is None
    for done in ("do_eval", "do_predict"):
        message = run({**task, done: "true"})
        assert "not a finite number" in message
    assert not {"eval_results.txt", "test_results.tsv"} & set(
        contents(task["output_dir"])
    )


@pytest.mark.parametrize(
    "other",
    [
        {"task_name": "MRPC", "labels": ["0", "1"]},
        {"task_name": "squad", "labels": []},
    ],
)
def test_directory_of_another_task_is_refused(trained, other):
    write(
        f"{trained['output_dir']}/labels.json",
        {"is_regression": False, **other},
    )
    message = mistake_of(trained, do_train="true")
    assert re.search("directory", message)


def test_directory_of_another_model_is_refused(trained):
    write(trained["bert_config_file"], {**CONFIG, "intermediate_size": 16})
    before = checkpoint.read(trained["output_dir"])
    message = run({**trained, "do_train": "true"})
    assert "is of another task or another model" in message
    after = checkpoint.read(trained["output_dir"])
    assert all(after[n].tobytes() == v.tobytes() for n, v in before.items())


def test_other_classes_than_those_trained_on_are_refused(trained):
    write(f"{trained['data_dir']}/train.tsv", HEADER + "a\tno\nb\tperhaps\n")
    message = mistake_of(trained, do_train="true")
    assert "train.tsv, line 3: got label 'perhaps', wanted one of" in message


def test_output_dir_that_is_a_file_is_refused(task):
    write(task["output_dir"], "x")
    message = run({**task, "do_train": "true"})
    assert f"--output_dir={task['output_dir']} is not a directory" in message


def test_output_dir_that_cannot_be_made_is_refused(task):
    message = run({**task, "do_train": "true", "output_dir": "/proc/no/out"})
    assert message.startswith("run_classifier.py: ")
    assert "/proc/no" in message


@pytest.mark.parametrize("name", ["labels.json", "train.tf_record.partial"])
def test_output_that_cannot_be_written_is_refused(task, name):
    os.makedirs(os.path.join(task["output_dir"], name))
    message = run({**task, "do_train": "true"})
    assert message.startswith("run_classifier.py: ")
    assert name in message
