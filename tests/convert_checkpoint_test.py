"""Tests for convert_checkpoint.py."""

import json
import math
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from absl import flags

import checkpoint
import convert_checkpoint
import modeling

safetensors_numpy = pytest.importorskip("safetensors.numpy")

# Recorded from transformers, see testdata/README.md.
OUTPUTS = os.path.join(
    os.path.dirname(__file__), "testdata", "checkpoints", "transformers.npz"
)
HF_CONFIG = {
    "architectures": ["BertForPreTraining"],
    "model_type": "bert",
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 8,
    "type_vocab_size": 3,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
}
LAYER_SHAPES = {
    "attention.self.query.weight": (16, 16),
    "attention.self.query.bias": (16,),
    "attention.self.key.weight": (16, 16),
    "attention.self.key.bias": (16,),
    "attention.self.value.weight": (16, 16),
    "attention.self.value.bias": (16,),
    "attention.output.dense.weight": (16, 16),
    "attention.output.dense.bias": (16,),
    "attention.output.LayerNorm.weight": (16,),
    "attention.output.LayerNorm.bias": (16,),
    "intermediate.dense.weight": (24, 16),
    "intermediate.dense.bias": (24,),
    "output.dense.weight": (16, 24),
    "output.dense.bias": (16,),
    "output.LayerNorm.weight": (16,),
    "output.LayerNorm.bias": (16,),
}
HF_SHAPES = {
    "bert.embeddings.word_embeddings.weight": (20, 16),
    "bert.embeddings.position_embeddings.weight": (8, 16),
    "bert.embeddings.token_type_embeddings.weight": (3, 16),
    "bert.embeddings.LayerNorm.weight": (16,),
    "bert.embeddings.LayerNorm.bias": (16,),
    **{
        f"bert.encoder.layer.{layer}.{name}": shape
        for layer in range(2)
        for name, shape in LAYER_SHAPES.items()
    },
    "bert.pooler.dense.weight": (16, 16),
    "bert.pooler.dense.bias": (16,),
    "cls.predictions.bias": (20,),
    "cls.predictions.transform.dense.weight": (16, 16),
    "cls.predictions.transform.dense.bias": (16,),
    "cls.predictions.transform.LayerNorm.weight": (16,),
    "cls.predictions.transform.LayerNorm.bias": (16,),
    "cls.seq_relationship.weight": (2, 16),
    "cls.seq_relationship.bias": (2,),
}
EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"


def make_tensors(shapes=None):
    """Weights as a formula: the recorded outputs hold on any machine."""
    return {
        name: np.sin(np.arange(math.prod(shape)) * (number + 7.1))
        .reshape(shape)
        .astype(np.float32)
        for number, (name, shape) in enumerate((shapes or HF_SHAPES).items())
    }


def make_hf_dir(path, tensors=None, *, drop=(), **config):
    """Writes a Hugging Face directory; `tensors` are added or replaced."""
    path.mkdir(exist_ok=True)
    tensors = make_tensors() | (tensors or {})
    tensors = {n: v for n, v in tensors.items() if not n.startswith(drop)}
    safetensors_numpy.save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(HF_CONFIG | config))
    (path / "vocab.txt").write_text("".join(f"t{i}\n" for i in range(20)))
    return str(path)


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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_widened(tmp_path, dtype):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    narrow = {name: v.astype(dtype) for name, v in make_tensors().items()}
    _, tensors = convert(tmp_path, narrow)
    got = tensors["bert/embeddings/word_embeddings"]
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, narrow[EMBEDDINGS].astype(np.float32))


def test_shards_are_put_together(tmp_path):
    hf_dir = make_hf_dir(tmp_path / "hf")
    os.remove(f"{hf_dir}/model.safetensors")
    weight_map = {}
    tensors = make_tensors()
    for shard in range(3):
        names = list(tensors)[shard::3]
        safetensors_numpy.save_file(
            {n: tensors[n] for n in names}, f"{hf_dir}/{shard}.safetensors"
        )
        weight_map |= dict.fromkeys(names, f"{shard}.safetensors")
    index = tmp_path / "hf" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    plan = convert_checkpoint.convert(hf_dir, str(tmp_path / "out"))
    assert {source for _, source in plan.used} == set(HF_SHAPES)

    os.remove(f"{hf_dir}/1.safetensors")
    with pytest.raises(ValueError, match="1.safetensors: no such file"):
        convert_checkpoint.convert(hf_dir, str(tmp_path / "other"))
    index.write_text(json.dumps({"weight_map": {"x": "0.safetensors"}}))
    with pytest.raises(ValueError, match="lists x, wanted what is in its"):
        convert_checkpoint.convert(hf_dir, str(tmp_path / "other"))


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


def test_quantized_weights_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is of type I8, wanted one of F32"):
        convert(tmp_path, {EMBEDDINGS: np.ones((20, 16), np.int8)})


# The configuration.


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu", "gelu_erf"),
        ("gelu_new", "gelu"),
        ("gelu_pytorch_tanh", "gelu"),
        ("relu", "relu"),
    ],
)
def test_activations_keep_what_they_compute(theirs, ours):
    config = convert_checkpoint.convert_config(
        HF_CONFIG | {"hidden_act": theirs}
    )
    assert config.hidden_act == ours


def test_only_another_layer_norm_eps_is_written():
    config = convert_checkpoint.convert_config(HF_CONFIG)
    assert "layer_norm_eps" not in config.to_dict()
    config = convert_checkpoint.convert_config(
        HF_CONFIG | {"layer_norm_eps": 1e-5}
    )
    assert config.layer_norm_epsilon == 1e-5


def test_absent_keys_have_hugging_face_defaults():
    config = convert_checkpoint.convert_config({})
    assert (config.type_vocab_size, config.hidden_act) == (2, "gelu_erf")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "roberta"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("hidden_act", "silu"),
        ("num_attention_heads", 3),
    ],
)
def test_other_models_are_refused(tmp_path, key, value):
    with pytest.raises(ValueError, match=rf"config\.json: .*{key}"):
        convert(tmp_path, **{key: value})


# Files.


def test_the_vocabulary_is_copied_byte_for_byte(tmp_path):
    hf_dir = make_hf_dir(tmp_path / "hf")
    vocabulary = "[PAD]\r\na\u00a0\n##é".encode()
    (tmp_path / "hf" / "vocab.txt").write_bytes(vocabulary)
    convert_checkpoint.convert(hf_dir, str(tmp_path / "out"))
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == vocabulary


def test_the_vocabulary_is_made_from_tokenizer_json(tmp_path):
    hf_dir = make_hf_dir(tmp_path / "hf")
    os.remove(f"{hf_dir}/vocab.txt")
    tokenizer = {
        "model": {"type": "WordPiece", "vocab": {"##é": 1, "[PAD]": 0}},
        "added_tokens": [
            {"id": 0, "content": "[PAD]"},
            {"id": 2, "content": "x"},
        ],
    }
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(tokenizer))
    convert_checkpoint.convert(hf_dir, str(tmp_path / "out"))
    written = (tmp_path / "out" / "vocab.txt").read_text(encoding="utf-8")
    assert written == "[PAD]\n##é\nx\n"

    tokenizer["model"]["type"] = "BPE"
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ValueError, match="of type 'BPE', wanted 'WordPiece'"):
        convert_checkpoint.convert(hf_dir, str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("vocab.txt", None, "has neither vocab.txt nor tokenizer.json; copy"),
        ("vocab.txt", b"t\n" * 21, "got 21 entries, wanted 1 to 20"),
        ("vocab.txt", b"", "got 0 entries"),
        ("config.json", None, "config.json: no such file.*hf download"),
        ("config.json", b"{", r"config\.json: is no JSON file"),
        ("config.json", b"[]", "wanted a JSON object"),
        ("model.safetensors", None, "download the model's safetensors files"),
        ("model.safetensors", b"", "truncated or corrupt; download it again"),
        (
            "model.safetensors",
            b"version https://git-lfs.github.com/spec/v1\nsize 1\n",
            "Git LFS pointer; run git lfs pull",
        ),
    ],
)
def test_missing_and_broken_files_are_named(tmp_path, name, contents, message):
    hf_dir = make_hf_dir(tmp_path / "hf")
    if contents is None:
        os.remove(f"{hf_dir}/{name}")
    else:
        (tmp_path / "hf" / name).write_bytes(contents)
    with pytest.raises(ValueError, match=message):
        convert_checkpoint.convert(hf_dir, str(tmp_path / "out"))


def test_truncated_weights_are_refused(tmp_path):
    hf_dir = make_hf_dir(tmp_path / "hf")
    path = f"{hf_dir}/model.safetensors"
    os.truncate(path, os.path.getsize(path) - 1)
    with pytest.raises(ValueError, match=r"model\.safetensors: .*truncated"):
        convert_checkpoint.convert(hf_dir, str(tmp_path / "out"))


def test_a_pickle_is_never_opened(tmp_path):
    hf_dir = make_hf_dir(tmp_path / "hf")
    os.remove(f"{hf_dir}/model.safetensors")
    (tmp_path / "hf" / "pytorch_model.bin").write_bytes(b"cos\nabort\n(tR.")
    with pytest.raises(ValueError, match="pytorch_model.bin is a pickle.*run:"):
        convert_checkpoint.convert(hf_dir, str(tmp_path / "out"))


def test_says_how_to_install_safetensors(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ValueError, match=r"pip install -e \.\[hf\]"):
        convert_checkpoint.find_tensors(make_hf_dir(tmp_path / "hf"))


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
