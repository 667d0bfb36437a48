"""Tests for classifier_features.py, and against the released features."""

import json

import numpy as np
import pytest
from recorded_classifier import (
    PROCESSORS,
    RECORDED,
    RECORDED_SETS,
    TESTDATA,
    recorded_examples,
)

import classifier_features
import tokenization
from classifier_examples import InputExample, PaddingInputExample


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


@pytest.mark.parametrize(
    "setting", ["True,len=32", "True,len=64", "False,len=64"]
)
@pytest.mark.parametrize(("task", "split"), RECORDED_SETS)
def test_features_are_the_released_ones(task, split, setting, vocab_file):
    do_lower_case, max_seq_length = setting.split(",len=")
    tokenizer = tokenization.FullTokenizer(
        vocab_file, do_lower_case=do_lower_case == "True"
    )
    examples = recorded_examples(task, split) + [PaddingInputExample()]
    converted = classifier_features.convert_examples_to_features(
        examples,
        PROCESSORS[task]().get_labels(),
        int(max_seq_length),
        tokenizer,
    )
    recorded = RECORDED[task, split]["features"][f"lower={setting}"]
    assert [vars(result) for result in converted] == recorded


def test_records_are_those_the_released_writer_wrote(vocab_file):
    import tensorflow as tf

    examples = recorded_examples("mrpc", "dev") + [PaddingInputExample()]
    tokenizer = tokenization.FullTokenizer(vocab_file)
    records = [
        result.as_record()
        for result in classifier_features.convert_examples_to_features(
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
    result = classifier_features.convert_single_example(
        0,
        InputExample("x", "yes", label="1"),
        ["0", "1"],
        6,
        WordTokenizer(),
    )
    record, spec = result.as_record(), classifier_features.classifier_spec(6)
    assert list(record) == list(spec)
    for name, (shape, dtype) in spec.items():
        assert np.asarray(record[name], dtype).shape == shape


def test_regression_labels_are_floats_in_the_spec():
    assert classifier_features.classifier_spec(6, is_regression=True)[
        "label_ids"
    ] == (
        (),
        "float32",
    )


def test_tokenizer_without_encode_is_enough():
    example = InputExample("x", "yes no", "so", "b")
    result = classifier_features.convert_single_example(
        0, example, ["a", "b"], 8, WordTokenizer()
    )
    assert result.input_ids == [0, 2, 3, 1, 4, 1, 0, 0]
    assert result.input_mask == [1, 1, 1, 1, 1, 1, 0, 0]
    assert result.segment_ids == [0, 0, 0, 0, 1, 1, 0, 0]
    assert (result.label_id, result.is_real_example) == (1, True)


def test_without_labels_the_label_is_a_number():
    example = InputExample("x", "yes", label="2.5")
    result = classifier_features.convert_single_example(
        0, example, [], 8, WordTokenizer()
    )
    assert result.label_id == 2.5


def test_padding_of_a_regression_task_has_a_float_label():
    result = classifier_features.convert_single_example(
        0, PaddingInputExample(), [], 8, WordTokenizer()
    )
    assert type(result.label_id) is float


@pytest.mark.parametrize("label", [None, "nan", "much"])
def test_refuses_a_regression_label_that_is_no_number(label):
    example = InputExample("dev-3", "yes", label=label)
    with pytest.raises(ValueError, match="example dev-3: got label"):
        classifier_features.convert_single_example(
            0, example, [], 8, WordTokenizer()
        )


def test_refuses_an_example_with_an_unknown_label():
    example = InputExample("dev-3", "yes", label="c")
    with pytest.raises(ValueError, match="dev-3: got label 'c', wanted one of"):
        classifier_features.convert_single_example(
            0, example, ["a"], 8, WordTokenizer()
        )


def test_refuses_a_vocabulary_without_the_special_tokens(tmp_path):
    (tmp_path / "vocab.txt").write_text("yes\nno\n", encoding="utf-8")
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
    example = InputExample("x", "yes", label="a")
    with pytest.raises(ValueError, match="CLS"):
        classifier_features.convert_single_example(
            0, example, ["a"], 8, tokenizer
        )


def test_truncated_examples_are_counted(log):
    examples = [InputExample("x", "yes " * n, label="a") for n in range(8)]
    list(
        classifier_features.convert_examples_to_features(
            examples, ["a"], 6, WordTokenizer()
        )
    )
    warnings = [r.getMessage() for r in log.records if r.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith("3 of 8 examples are longer than max_seq")


def test_nothing_is_said_of_truncation_where_there_is_none(log):
    examples = [InputExample("x", "yes yes", "no no no", label="a")]
    list(
        classifier_features.convert_examples_to_features(
            examples, ["a"], 8, WordTokenizer()
        )
    )
    assert not [r for r in log.records if r.levelname == "WARNING"]


def test_first_five_examples_are_logged_with_tokens_and_label(log):
    examples = [InputExample(f"x-{i}", "yes", label="b") for i in range(7)]
    list(
        classifier_features.convert_examples_to_features(
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
