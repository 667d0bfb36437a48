"""Tests for convert_checkpoint.py."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from hugging_face_dir import (
    EMBEDDINGS,
    HF_SHAPES,
    make_hf_dir,
    make_tensors,
    safetensors_numpy,
)

import checkpoint
import convert_checkpoint
import modeling

# Recorded from transformers, see testdata/README.md.
OUTPUTS = os.path.join(
    os.path.dirname(__file__), "testdata", "checkpoints", "transformers.npz"
)
DECODER = "cls.predictions.decoder.weight"


def convert(tmp_path, tensors=None, *, drop=(), **config):
    """Returns the plan and the tensors of the converted checkpoint."""
    hf_dir = make_hf_dir(tmp_path / "hf", tensors, drop=drop, **config)
    plan = convert_checkpoint.convert(hf_dir, str(tmp_path / "out"))
    return plan, checkpoint.read(str(tmp_path / "out" / "bert_model.ckpt"))


def released_names(num_layers=2):
    """The names of a released checkpoint (Base has 12 layers)."""
    dense, norm = ("kernel", "bias"), ("gamma", "beta")
    layer = {
        "attention/self/query": dense,
        "attention/self/key": dense,
        "attention/self/value": dense,
        "attention/output/dense": dense,
        "attention/output/LayerNorm": norm,
        "intermediate/dense": dense,
        "output/dense": dense,
        "output/LayerNorm": norm,
    }
    scopes = {
        f"bert/encoder/layer_{number}/{scope}": names
        for number in range(num_layers)
        for scope, names in layer.items()
    }
    scopes |= {
        "bert/embeddings/LayerNorm": norm,
        "bert/pooler/dense": dense,
        "cls/predictions/transform/dense": dense,
        "cls/predictions/transform/LayerNorm": norm,
    }
    return {
        f"{scope}/{n}" for scope, names in scopes.items() for n in names
    } | {
        "bert/embeddings/word_embeddings",
        "bert/embeddings/position_embeddings",
        "bert/embeddings/token_type_embeddings",
        "cls/predictions/output_bias",
        "cls/seq_relationship/output_weights",
        "cls/seq_relationship/output_bias",
    }


# What is computed.


def run_bert(output_dir, recorded):
    """Returns the converted model's sequence and pooled output."""
    config = modeling.BertConfig.from_json_file(
        f"{output_dir}/bert_config.json"
    )
    model = modeling.BertModel(config, remove_padding=False)
    model.build()
    tensors = checkpoint.read(f"{output_dir}/bert_model.ckpt")
    for variable in model.weights:
        variable.assign(tensors[variable.path[variable.path.index("bert/") :]])
    outputs = model(
        tf.constant(recorded["input_ids"]),
        tf.constant(recorded["input_mask"]),
        tf.constant(recorded["segment_ids"]),
    )
    return (
        outputs.sequence_output.numpy(),
        outputs.pooled_output.numpy(),
        tensors,
    )


def test_computes_what_transformers_computes(tmp_path):
    recorded = np.load(OUTPUTS)
    convert(tmp_path)
    sequence, pooled, weights = run_bert(tmp_path / "out", recorded)
    # Float32 rounding of values up to 3 and logits up to 6.
    is_real = recorded["input_mask"] == 1
    np.testing.assert_allclose(
        sequence[is_real], recorded["sequence_output"][is_real], atol=1e-5
    )
    np.testing.assert_allclose(pooled, recorded["pooled_output"], atol=1e-5)
    scope = "cls/predictions/transform"
    hidden = sequence @ weights[f"{scope}/dense/kernel"]
    hidden += weights[f"{scope}/dense/bias"]
    hidden *= 0.5 + 0.5 * np.vectorize(math.erf)(hidden / math.sqrt(2))
    hidden -= hidden.mean(-1, keepdims=True)
    hidden /= hidden.std(-1, keepdims=True)
    hidden *= weights[f"{scope}/LayerNorm/gamma"]
    hidden += weights[f"{scope}/LayerNorm/beta"]
    logits = hidden @ weights["bert/embeddings/word_embeddings"].T
    logits += weights["cls/predictions/output_bias"]
    np.testing.assert_allclose(
        logits[is_real], recorded["masked_lm_logits"][is_real], atol=5e-5
    )
    logits = pooled @ weights["cls/seq_relationship/output_weights"].T
    logits += weights["cls/seq_relationship/output_bias"]
    np.testing.assert_allclose(
        logits, recorded["next_sentence_logits"], atol=5e-5
    )


# Names and tensors.


def test_writes_the_released_names_and_files(tmp_path):
    plan, tensors = convert(tmp_path)
    assert set(tensors) == released_names()
    assert sorted(os.listdir(tmp_path / "out")) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "vocab.txt",
    ]
    assert {source for _, source in plan.used} == set(HF_SHAPES)
    assert plan.unused == {}
    assert plan.missing_parts == ["classification head", "span head"]


def test_kernels_are_transposed_and_head_weights_are_not(tmp_path):
    _, tensors = convert(tmp_path)
    source = make_tensors()
    np.testing.assert_array_equal(
        tensors["bert/encoder/layer_1/intermediate/dense/kernel"],
        source["bert.encoder.layer.1.intermediate.dense.weight"].T,
    )
    np.testing.assert_array_equal(
        tensors["cls/seq_relationship/output_weights"],
        source["cls.seq_relationship.weight"],
    )


def test_a_model_without_prefix_and_with_gamma_and_beta_is_the_same(tmp_path):
    _, wanted = convert(tmp_path)
    renamed = {
        name.removeprefix("bert.")
        .replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in make_tensors().items()
    }
    hf_dir = make_hf_dir(tmp_path / "hf")
    safetensors_numpy.save_file(renamed, f"{hf_dir}/model.safetensors")
    convert_checkpoint.convert(hf_dir, str(tmp_path / "out"), overwrite=True)
    got = checkpoint.read(str(tmp_path / "out" / "bert_model.ckpt"))
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name], value)


@pytest.mark.parametrize(
    ("architecture", "module", "num_outputs", "scope"),
    [
        ("BertForSequenceClassification", "classifier", 5, ""),
        ("BertForTokenClassification", "classifier", 5, "cls/token/"),
        ("BertForQuestionAnswering", "qa_outputs", 2, "cls/squad/"),
    ],
)
def test_heads_go_to_their_scope(
    tmp_path, architecture, module, num_outputs, scope
):
    head = make_tensors(
        {
            f"{module}.weight": (num_outputs, 16),
            f"{module}.bias": (num_outputs,),
        }
    )
    _, tensors = convert(
        tmp_path, head, drop=("cls.",), architectures=[architecture]
    )
    for name in ("weight", "bias"):
        np.testing.assert_array_equal(
            tensors[f"{scope}output_{name.replace('weight', 'weights')}"],
            head[f"{module}.{name}"],
        )


def test_what_is_not_used_is_named_with_its_reason(tmp_path, caplog):
    plan, _ = convert(
        tmp_path,
        {
            "bert.embeddings.position_ids": np.arange(8)[np.newaxis],
            DECODER: make_tensors()[EMBEDDINGS],
            "adapter.weight": np.ones(3, np.float32),
        },
    )
    assert plan.unused == {
        "bert.embeddings.position_ids": "a buffer, not a weight",
        DECODER: f"tied: the same numbers as {EMBEDDINGS}",
        "adapter.weight": "nothing in a released BERT corresponds to it",
    }
    assert "Unused: adapter.weight" in caplog.text


def test_a_decoder_of_its_own_leaves_the_masked_lm_head_out(tmp_path, caplog):
    other = make_tensors()[EMBEDDINGS] + 1
    plan, tensors = convert(tmp_path, {DECODER: other})
    assert plan.unused[DECODER] == f"not tied: other numbers than {EMBEDDINGS}"
    assert len(plan.unused) == 6
    assert not [name for name in tensors if name.startswith("cls/predictions")]
    assert f"Unused: {DECODER} (not tied" in caplog.text


def test_a_tied_tensor_may_have_its_second_name_alone(tmp_path):
    bias = make_tensors()["cls.predictions.bias"]
    _, tensors = convert(
        tmp_path,
        {
            DECODER: make_tensors()[EMBEDDINGS],
            "cls.predictions.decoder.bias": bias,
        },
        drop=(EMBEDDINGS, "cls.predictions.bias"),
    )
    assert set(tensors) == released_names()
    np.testing.assert_array_equal(tensors["cls/predictions/output_bias"], bias)


def test_a_missing_pooler_is_allowed_and_said(tmp_path, caplog):
    plan, tensors = convert(tmp_path, drop=("bert.pooler", "cls."))
    assert "pooler" in plan.missing_parts
    assert not [name for name in tensors if not name.startswith("bert/e")]
    assert "no pooler: bert/pooler/dense starts from random" in caplog.text


@pytest.mark.parametrize(
    ("drop", "config", "message"),
    [
        ("bert.encoder.layer.1.output.dense.bias", {}, "encoder lacks 1 of 37"),
        ("bert.pooler.dense.bias", {}, "pooler lacks 1 of 2"),
        ("cls.predictions.bias", {}, "masked LM head lacks 1 of 5"),
        (
            "x",
            {"intermediate_size": 32},
            r"intermediate.dense.weight is \[24, 16\], wanted \[32, 16\]",
        ),
        ("x", {"num_hidden_layers": 1}, r"layer\.1\..* is in none of the 1"),
        ("x", {"num_hidden_layers": 3}, "encoder lacks 16 of 53"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, drop, config, message):
    with pytest.raises(ValueError, match=message):
        convert(tmp_path, drop=(drop,), **config)
    assert not (tmp_path / "out").exists()


# Files.


def test_the_vocabulary_is_copied_byte_for_byte(tmp_path):
    hf_dir = make_hf_dir(tmp_path / "hf")
    vocabulary = "[PAD]\r\na\u00a0\n##é".encode()
    (tmp_path / "hf" / "vocab.txt").write_bytes(vocabulary)
    convert_checkpoint.convert(hf_dir, str(tmp_path / "out"))
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == vocabulary


def test_an_earlier_conversion_is_replaced_only_if_told(tmp_path):
    convert(tmp_path)
    hf_dir = make_hf_dir(tmp_path / "hf", drop=("cls.",))
    with pytest.raises(FileExistsError, match="bert_model.ckpt.*--overwrite"):
        convert_checkpoint.convert(hf_dir, str(tmp_path / "out"))
    prefix = str(tmp_path / "out" / "bert_model.ckpt")
    assert set(checkpoint.list_variables(prefix)) == released_names()
    convert_checkpoint.convert(hf_dir, str(tmp_path / "out"), overwrite=True)
    assert set(checkpoint.list_variables(prefix)) == {
        name for name in released_names() if name.startswith("bert/")
    }


# The script.


def test_flags_are_defined_where_asked():
    values = flags.FlagValues()
    convert_checkpoint.define_flags(values)
    assert {"hf_dir", "output_dir", "overwrite"} <= set(values)


@pytest.mark.slow
def test_the_script_converts_and_fails_in_one_line(tmp_path):
    script = convert_checkpoint.__file__

    def run(hf_dir):
        return subprocess.run(
            [
                sys.executable,
                script,
                f"--hf_dir={hf_dir}",
                f"--output_dir={tmp_path}/out",
            ],
            capture_output=True,
            text=True,
        )

    done = run(make_hf_dir(tmp_path / "hf"))
    assert done.returncode == 0
    assert (tmp_path / "out" / "bert_model.ckpt.index").exists()
    failed = run(tmp_path / "hf")
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith("convert_checkpoint.py: ")
