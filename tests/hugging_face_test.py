"""Tests for hugging_face.py."""

import json
import os
import sys

import ml_dtypes
import numpy as np
import pytest
from hugging_face_dir import (
    EMBEDDINGS,
    HF_CONFIG,
    make_hf_dir,
    make_tensors,
    safetensors_numpy,
)

import hugging_face


def read_all(hf_dir):
    """Reads a whole directory; returns the vocabulary and the tensors."""
    _, config = hugging_face.read_config(f"{hf_dir}/config.json")
    vocabulary = hugging_face.read_vocabulary(hf_dir, config.vocab_size)
    return vocabulary, read_tensors(hf_dir)


def read_tensors(hf_dir):
    sources = hugging_face.find_tensors(hf_dir)
    return {
        name: hugging_face.read_tensor(name, source)
        for name, source in sources.items()
    }


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
    config = hugging_face.convert_config(HF_CONFIG | {"hidden_act": theirs})
    assert config.hidden_act == ours


def test_only_another_layer_norm_eps_is_written():
    config = hugging_face.convert_config(HF_CONFIG)
    assert "layer_norm_eps" not in config.to_dict()
    config = hugging_face.convert_config(HF_CONFIG | {"layer_norm_eps": 1e-5})
    assert config.layer_norm_epsilon == 1e-5


def test_absent_keys_have_hugging_face_defaults():
    config = hugging_face.convert_config({})
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
    hf_dir = make_hf_dir(tmp_path / "hf", **{key: value})
    with pytest.raises(ValueError, match=rf"config\.json: .*{key}"):
        hugging_face.read_config(f"{hf_dir}/config.json")


# Tensors.


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_widened(tmp_path, dtype):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    narrow = {name: v.astype(dtype) for name, v in make_tensors().items()}
    got = read_tensors(make_hf_dir(tmp_path / "hf", narrow))[EMBEDDINGS]
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
    read = read_tensors(hf_dir)
    assert set(read) == set(tensors)
    for name, value in tensors.items():
        np.testing.assert_array_equal(read[name], value)

    os.remove(f"{hf_dir}/1.safetensors")
    with pytest.raises(ValueError, match="1.safetensors: no such file"):
        read_all(hf_dir)
    index.write_text(json.dumps({"weight_map": {"x": "0.safetensors"}}))
    with pytest.raises(ValueError, match="lists x, wanted what is in its"):
        read_all(hf_dir)


def test_quantized_weights_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is of type I8, wanted one of F32"):
        read_tensors(
            make_hf_dir(
                tmp_path / "hf", {EMBEDDINGS: np.ones((20, 16), np.int8)}
            )
        )


# Files.


def test_the_vocabulary_is_read_byte_for_byte(tmp_path):
    hf_dir = make_hf_dir(tmp_path / "hf")
    vocabulary = "[PAD]\r\na\u00a0\n##é".encode()
    (tmp_path / "hf" / "vocab.txt").write_bytes(vocabulary)
    assert hugging_face.read_vocabulary(hf_dir, 20) == vocabulary


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
    contents = hugging_face.read_vocabulary(hf_dir, 20)
    assert contents.decode("utf-8") == "[PAD]\n##é\nx\n"

    tokenizer["model"]["type"] = "BPE"
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ValueError, match="of type 'BPE', wanted 'WordPiece'"):
        hugging_face.read_vocabulary(hf_dir, 20)


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
        read_all(hf_dir)


def test_truncated_weights_are_refused(tmp_path):
    hf_dir = make_hf_dir(tmp_path / "hf")
    path = f"{hf_dir}/model.safetensors"
    os.truncate(path, os.path.getsize(path) - 1)
    with pytest.raises(ValueError, match=r"model\.safetensors: .*truncated"):
        read_all(hf_dir)


def test_a_pickle_is_never_opened(tmp_path):
    hf_dir = make_hf_dir(tmp_path / "hf")
    os.remove(f"{hf_dir}/model.safetensors")
    (tmp_path / "hf" / "pytorch_model.bin").write_bytes(b"cos\nabort\n(tR.")
    with pytest.raises(ValueError, match="pytorch_model.bin is a pickle.*run:"):
        read_all(hf_dir)


def test_says_how_to_install_safetensors(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ValueError, match=r"pip install -e \.\[hf\]"):
        hugging_face.find_tensors(make_hf_dir(tmp_path / "hf"))
