"""Tests of BertConfig and the activations it names."""

import json
import logging
import math
import os

import numpy as np
import pytest
import tensorflow as tf

import bert_config
import modeling
from bert_config import BertConfig

# Recorded from the release, see testdata/README.md.
with open(
    os.path.join(os.path.dirname(__file__), "testdata/model/recorded.json"),
    encoding="utf-8",
) as reader:
    RECORDED = json.load(reader)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def config_with(**changes):
    return BertConfig.from_dict({"vocab_size": 10, **changes})


# Reading and writing.


def test_has_the_released_defaults():
    wanted = RECORDED["bert_config"]["defaults"]
    assert BertConfig(vocab_size=10).to_dict() == wanted


def test_writes_the_bytes_of_the_release():
    written = BertConfig(vocab_size=10).to_json_string()
    assert written == RECORDED["bert_config"]["json"]


def test_a_file_comes_back_byte_for_byte(tmp_path):
    text = RECORDED["bert_config"]["json"].replace('"gelu"', '"relu"')
    path = write(tmp_path / "bert_config.json", text)
    assert BertConfig.from_json_file(path).to_json_string() == text


def test_a_file_needs_nothing_but_the_vocabulary_size(tmp_path):
    path = write(tmp_path / "bert_config.json", '{"vocab_size": 10}')
    wanted = RECORDED["bert_config"]["defaults"]
    assert BertConfig.from_json_file(path).to_dict() == wanted


def test_unknown_keys_are_kept():
    wanted = RECORDED["bert_config"]["from_dict_extra_keys"]
    assert BertConfig.from_dict(wanted).to_dict() == wanted


def test_unknown_keys_are_named_in_the_log(caplog):
    caplog.set_level(logging.INFO, logger="absl")
    config_with(pooler_fc_size=768, directionality="bidi")
    assert "directionality, pooler_fc_size" in caplog.text


def test_known_keys_are_not_worth_a_line_in_the_log(caplog):
    caplog.set_level(logging.INFO, logger="absl")
    config_with(hidden_size=24)
    assert not caplog.text


def test_log_says_that_layer_norm_eps_is_used(caplog):
    caplog.set_level(logging.INFO, logger="absl")
    config_with(layer_norm_eps=1e-5)
    assert "except layer_norm_eps" in caplog.text


def test_a_change_of_the_dict_leaves_the_config_alone():
    config = config_with(layers=[1, 2])
    config.to_dict()["layers"].append(3)
    assert config.to_dict()["layers"] == [1, 2]


@pytest.mark.parametrize("name", ["BertConfig", "gelu", "get_activation"])
def test_is_importable_from_modeling_as_released(name):
    assert getattr(modeling, name) is getattr(bert_config, name)


# LayerNorm's epsilon.


def test_layer_norm_epsilon_is_the_released_one():
    assert BertConfig(vocab_size=10).layer_norm_epsilon == 1e-12


def test_layer_norm_epsilon_of_a_file_is_taken():
    assert config_with(layer_norm_eps=1e-5).layer_norm_epsilon == 1e-5


# Impossible values.

WHOLE_NUMBERS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
PROBABILITIES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
NUMBERS = ("initializer_range", "layer_norm_eps")


@pytest.mark.parametrize("value", [0, -12, True, 12.0, "12", math.nan, [12]])
@pytest.mark.parametrize("key", WHOLE_NUMBERS)
def test_refuses_what_is_no_positive_whole_number(key, value):
    with pytest.raises(ValueError, match=f"^{key} must be a whole number"):
        config_with(**{key: value})


@pytest.mark.parametrize("key", WHOLE_NUMBERS[1:])
def test_refuses_a_null_size(key):
    with pytest.raises(ValueError, match=f"^{key} must .* got None"):
        config_with(**{key: None})


@pytest.mark.parametrize("value", [1.0, -0.1, 1.5, math.nan, True, "0.1", [0]])
@pytest.mark.parametrize("key", PROBABILITIES)
def test_refuses_what_is_no_probability(key, value):
    with pytest.raises(ValueError, match=f"^{key} must be a probability"):
        config_with(**{key: value})


@pytest.mark.parametrize("value", [0, 0.0, 0.999, None])
@pytest.mark.parametrize("key", PROBABILITIES)
def test_takes_every_dropout_that_leaves_something(key, value):
    assert config_with(**{key: value}).to_dict()[key] == value


@pytest.mark.parametrize(
    "value", [-0.02, math.nan, math.inf, True, "0.02", None, [0.02]]
)
@pytest.mark.parametrize("key", NUMBERS)
def test_refuses_what_is_no_number(key, value):
    with pytest.raises(ValueError, match=f"^{key} must be a number"):
        config_with(**{key: value})


def test_refuses_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match=r"hidden_size \(10\).*heads \(3\)"):
        config_with(hidden_size=10, num_attention_heads=3)


@pytest.mark.parametrize("value", ["swish", 3, ["gelu"]])
def test_refuses_an_unknown_hidden_act(value):
    with pytest.raises(ValueError, match="hidden_act must be one of gelu, "):
        config_with(hidden_act=value)


def test_the_constructor_refuses_too():
    with pytest.raises(ValueError, match="hidden_size must be a whole number"):
        BertConfig(vocab_size=10, hidden_size=0)


@pytest.mark.parametrize("json_object", [{}, {"vocab_size": None}])
def test_refuses_a_dict_without_vocab_size(json_object):
    with pytest.raises(ValueError, match="vocab_size is missing"):
        BertConfig.from_dict(json_object)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting"),
        ("", "Expecting value"),
        ("[10]", "expected a JSON object"),
        ("null", "expected a JSON object"),
        ('{"hidden_size": 8}', "vocab_size is missing"),
        ('{"vocab_size": 9, "hidden_size": 0}', "hidden_size must be"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, message):
    path = write(tmp_path / "my_config.json", text)
    with pytest.raises(ValueError, match=f"my_config.json: {message}"):
        BertConfig.from_json_file(path)


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "my_config.json").write_bytes(b'{"vocab_size": "\xff"}')
    with pytest.raises(ValueError, match="my_config.json: .*utf-8"):
        BertConfig.from_json_file(str(tmp_path / "my_config.json"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        BertConfig.from_json_file(str(tmp_path / "nowhere.json"))


# Activations.


def test_gelu_is_the_one_of_the_release():
    recorded = RECORDED["activations"]
    got = bert_config.gelu(tf.constant(recorded["x"]))
    # A few float32 roundings of numbers up to 6.
    np.testing.assert_allclose(got, recorded["gelu"], atol=1e-6)


def test_gelu_erf_is_the_exact_one():
    x = np.linspace(-6.0, 6.0, 49, dtype=np.float32)
    wanted = [v * 0.5 * (1.0 + math.erf(v / math.sqrt(2.0))) for v in x]
    np.testing.assert_allclose(bert_config.gelu_erf(x), wanted, atol=1e-6)


def test_the_two_gelus_differ():
    # By 0.00047 at most: Hugging Face weights need the right one.
    x = tf.linspace(-6.0, 6.0, 1201)
    gap = tf.abs(bert_config.gelu(x) - bert_config.gelu_erf(x))
    assert 4e-4 < float(tf.reduce_max(gap)) < 5e-4


FUNCTIONS = {
    "relu": tf.nn.relu,
    "gelu": bert_config.gelu,
    "tanh": tf.tanh,
    "None": None,
}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (name, function)
        for name, function in RECORDED["get_activation"].items()
        if not function.startswith("ValueError")
    ],
)
def test_activations_have_the_released_names(name, function):
    got = bert_config.get_activation(None if name == "None" else name)
    assert got is FUNCTIONS[function]


def test_the_exact_gelu_has_a_name_of_its_own():
    assert bert_config.get_activation("gelu_erf") is bert_config.gelu_erf


def test_a_function_is_its_own_activation():
    assert bert_config.get_activation(tf.sin) is tf.sin


def test_unsupported_activation_is_refused_as_released():
    with pytest.raises(ValueError, match="Unsupported activation: 'swish'"):
        bert_config.get_activation("swish")
