"""Hugging Face directories of a tiny BERT, made for tests."""

import json
import math

import numpy as np
import pytest

safetensors_numpy = pytest.importorskip("safetensors.numpy")

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
