"""A Hugging Face BERT directory: its names, configuration and files.

`tensor_rules` is the table of what each tensor is called there and in a
released checkpoint; nothing here writes a file.
"""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import file_io
import tokenization
from bert_config import BertConfig

# What Hugging Face takes for a key that config.json does not have.
_CONFIG_DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
_RELEASED_LAYER_NORM_EPS = 1e-12
# Hugging Face's "gelu" is exact, the release's is the tanh approximation.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
}

# What safetensors calls the types that can be widened to float32.
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}

# The parts of a BERT, as `tensor_rules` has them.
ENCODER = "encoder"
POOLER = "pooler"
MASKED_LM = "masked LM head"
CLASSIFIER = "classification head"


class TensorRule(NamedTuple):
    """One tensor under its two names.

    Attributes:
      released: its name in a released checkpoint.
      hugging_face: its name there, with the `bert.` prefix.
      shape: its released shape; a string is a key of bert_config.json, or
        "num_labels", which is any number.
      is_transposed: whether Hugging Face has it the other way round.
    """

    released: str
    hugging_face: str
    shape: tuple[str | int, ...]
    is_transposed: bool = False


class SourceTensor(NamedTuple):
    """Where a tensor of the source is, and what its header says."""

    path: str
    shape: tuple[int, ...]
    dtype: str


def tensor_rules(
    num_hidden_layers: int, *, is_token_classifier: bool = False
) -> dict[str, list[TensorRule]]:
    """Returns the two names of all tensors of a BERT and its heads, by part.

    Args:
      num_hidden_layers: number of encoder layers.
      is_token_classifier: whether Hugging Face's `classifier` is the head on
        every token; the head on the pooled output has the same name there.
    """
    hidden, wide = "hidden_size", "intermediate_size"
    encoder = [
        _embeddings("word_embeddings", "vocab_size"),
        _embeddings("position_embeddings", "max_position_embeddings"),
        _embeddings("token_type_embeddings", "type_vocab_size"),
        *_layer_norm("bert/embeddings/LayerNorm"),
    ]
    for layer in range(num_hidden_layers):
        scope = f"bert/encoder/layer_{layer}"
        encoder += [
            *_dense(f"{scope}/attention/self/query"),
            *_dense(f"{scope}/attention/self/key"),
            *_dense(f"{scope}/attention/self/value"),
            *_dense(f"{scope}/attention/output/dense"),
            *_layer_norm(f"{scope}/attention/output/LayerNorm"),
            *_dense(f"{scope}/intermediate/dense", (hidden, wide)),
            *_dense(f"{scope}/output/dense", (wide, hidden)),
            *_layer_norm(f"{scope}/output/LayerNorm"),
        ]
    masked_lm = [
        *_dense("cls/predictions/transform/dense"),
        *_layer_norm("cls/predictions/transform/LayerNorm"),
        TensorRule(
            "cls/predictions/output_bias",
            "cls.predictions.bias",
            ("vocab_size",),
        ),
    ]
    classifier_scope = "cls/token/" if is_token_classifier else ""
    return {
        ENCODER: encoder,
        POOLER: _dense("bert/pooler/dense"),
        MASKED_LM: masked_lm,
        "next sentence head": _head(
            "cls/seq_relationship/", "cls.seq_relationship", 2
        ),
        CLASSIFIER: _head(classifier_scope, "classifier", "num_labels"),
        "span head": _head("cls/squad/", "qa_outputs", 2),
    }


def _module(scope: str) -> str:
    """Returns Hugging Face's name of a layer, regular but for the heads."""
    return scope.replace("/layer_", "/layer/").replace("/", ".")


def _embeddings(name: str, num_entries: str) -> TensorRule:
    scope = f"bert/embeddings/{name}"
    shape = (num_entries, "hidden_size")
    return TensorRule(scope, f"{_module(scope)}.weight", shape)


def _dense(
    scope: str, shape: tuple[str, str] = ("hidden_size", "hidden_size")
) -> list[TensorRule]:
    hf = _module(scope)
    return [
        TensorRule(f"{scope}/kernel", f"{hf}.weight", shape, True),
        TensorRule(f"{scope}/bias", f"{hf}.bias", shape[1:]),
    ]


def _layer_norm(scope: str) -> list[TensorRule]:
    hf = _module(scope)
    return [
        TensorRule(f"{scope}/gamma", f"{hf}.weight", ("hidden_size",)),
        TensorRule(f"{scope}/beta", f"{hf}.bias", ("hidden_size",)),
    ]


def _head(scope: str, hf: str, num_outputs: str | int) -> list[TensorRule]:
    # As released: a head's weights lie as Hugging Face's, not as a kernel.
    shape = (num_outputs, "hidden_size")
    return [
        TensorRule(f"{scope}output_weights", f"{hf}.weight", shape),
        TensorRule(f"{scope}output_bias", f"{hf}.bias", shape[:1]),
    ]


def canonical_names(sources: Iterable[str]) -> dict[str, str]:
    """Returns the names of the source by the names that the rules have.

    Raises:
      ValueError: two of them are one name of the rules.
    """
    names = {}
    for source in sources:
        # The first conversions of the release kept its gamma and beta.
        name = source.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        # BertModel saved without a head has no prefix.
        if name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = f"bert.{name}"
        if name in names:
            raise ValueError(
                f"got {names[name]} and {source}, wanted one of them: both "
                f"are {name}"
            )
        names[name] = source
    return names


def read_config(path: str) -> tuple[dict[str, Any], BertConfig]:
    """Returns the contents of config.json and what it becomes.

    Raises:
      ValueError: there is no such file, or the model is no BERT encoder.
    """
    if not file_io.exists(path):
        raise ValueError(
            f"{path}: no such file, wanted the directory of a Hugging Face "
            "BERT on this machine; download it first, for example with "
            "hf download NAME --local-dir=DIRECTORY"
        )
    hf_config = read_json(path)
    try:
        return hf_config, convert_config(hf_config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def convert_config(hf_config: Mapping[str, Any]) -> BertConfig:
    """Returns the configuration that computes what Hugging Face's computes.

    Args:
      hf_config: the contents of config.json.

    Raises:
      ValueError: the model is no BERT encoder as released.
    """
    for key, wanted in (
        ("model_type", "bert"),
        ("position_embedding_type", "absolute"),
        ("is_decoder", False),
        ("add_cross_attention", False),
    ):
        got = hf_config.get(key, wanted)
        if got != wanted:
            raise ValueError(
                f"{key} is {got!r}, wanted {wanted!r}: only BERT encoders as "
                "released can be converted"
            )
    config = {
        key: hf_config.get(key, default)
        for key, default in _CONFIG_DEFAULTS.items()
    }
    activation = str(config["hidden_act"])
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"hidden_act is {activation!r}, wanted one of "
            f"{', '.join(_ACTIVATIONS)}: no other can be converted"
        )
    config["hidden_act"] = _ACTIVATIONS[activation]
    epsilon = hf_config.get("layer_norm_eps", _RELEASED_LAYER_NORM_EPS)
    if epsilon != _RELEASED_LAYER_NORM_EPS:
        config["layer_norm_eps"] = epsilon
    return BertConfig.from_dict(config)


def find_tensors(hf_dir: str) -> dict[str, SourceTensor]:
    """Returns every tensor of a directory's safetensors files, by name.

    Reads headers only, and never opens a pickle.

    Raises:
      ValueError: there are no such files, one is truncated or corrupt, or the
        package safetensors is not installed.
    """
    path = os.path.join(hf_dir, "model.safetensors")
    if file_io.exists(path):
        return _tensors_of_file(path)
    index_path = f"{path}.index.json"
    if not file_io.exists(index_path):
        raise ValueError(_no_weights_message(hf_dir))
    weight_map = read_json(index_path).get("weight_map") or {}
    sources = {}
    for shard in sorted(set(map(str, weight_map.values()))):
        sources |= _tensors_of_file(os.path.join(hf_dir, shard))
    absent = [name for name in weight_map if name not in sources]
    if absent or not weight_map:
        raise ValueError(
            f"{index_path}: lists {first_few(absent) or 'nothing'}, wanted "
            "what is in its files; download the directory again"
        )
    return sources


def _tensors_of_file(path: str) -> dict[str, SourceTensor]:
    try:
        import safetensors
    except ImportError:
        raise ValueError(
            f"{path}: reading it takes the package safetensors, which is not "
            "installed; run: pip install -e .[hf]"
        ) from None
    if not file_io.exists(path):
        raise ValueError(
            f"{path}: no such file; model.safetensors.index.json lists it, "
            "download it too"
        )
    try:
        with safetensors.safe_open(path, "numpy") as reader:
            slices = {name: reader.get_slice(name) for name in reader.keys()}
            return {
                name: SourceTensor(
                    path, tuple(view.get_shape()), view.get_dtype()
                )
                for name, view in slices.items()
            }
    except safetensors.SafetensorError as error:
        with file_io.open_file(path, "rb") as reader:
            is_pointer = reader.read(12) == b"version http"
        advice = (
            "it is a Git LFS pointer; run git lfs pull"
            if is_pointer
            else "it is truncated or corrupt; download it again"
        )
        raise ValueError(
            f"{path}: cannot be read as safetensors: {advice} ({error})"
        ) from error


def _no_weights_message(hf_dir: str) -> str:
    """Says what to do where there are no safetensors files."""
    found = [
        name
        for name in file_io.list_dir(hf_dir)
        if name.endswith((".bin", ".pt", ".pth", ".ckpt"))
    ]
    message = (
        f"{hf_dir}: has neither model.safetensors nor "
        "model.safetensors.index.json"
    )
    if not found:
        return f"{message}; download the model's safetensors files"
    return (
        f"{message}; {found[0]} is a pickle, which can run code when it is "
        "opened and is never read here. Where PyTorch is installed, run: "
        'python -c "import torch, safetensors.torch as s; '
        f"t = torch.load('{found[0]}', map_location='cpu', weights_only=True); "
        "s.save_file({k: v.clone().contiguous() for k, v in t.items()}, "
        "'model.safetensors')\""
    )


def read_tensor(name: str, source: SourceTensor) -> np.ndarray:
    """Returns a tensor of any float type of 2 or 4 bytes as float32.

    Raises:
      ValueError: it is of another type, such as a quantized one.
    """
    if source.dtype not in _DTYPES:
        raise ValueError(
            f"{name} of {source.path} is of type {source.dtype}, wanted one of "
            f"{', '.join(_DTYPES)}; use weights that are not quantized"
        )
    # Not safe_open: older releases of it give NumPy no bfloat16.
    with file_io.open_file(source.path, "rb") as reader:
        header_size = int.from_bytes(reader.read(8), "little")
        begin, end = json.loads(reader.read(header_size))[name]["data_offsets"]
        reader.seek(8 + header_size + begin)
        values = np.frombuffer(reader.read(end - begin), _DTYPES[source.dtype])
    return values.reshape(source.shape).astype(np.float32, copy=False)


def read_vocabulary(hf_dir: str, vocab_size: int) -> bytes:
    """Returns the contents of vocab.txt, made from tokenizer.json if need be.

    Raises:
      ValueError: there is no WordPiece vocabulary, or it has more entries than
        the model.
    """
    path = os.path.join(hf_dir, "vocab.txt")
    json_path = os.path.join(hf_dir, "tokenizer.json")
    if file_io.exists(path):
        num_tokens = max(tokenization.load_vocab(path).values(), default=-1) + 1
        with file_io.open_file(path, "rb") as reader:
            contents = reader.read()
    elif file_io.exists(json_path):
        path = json_path
        tokens = _tokens_of_tokenizer(json_path)
        num_tokens = len(tokens)
        contents = "".join(f"{token}\n" for token in tokens).encode("utf-8")
    else:
        raise ValueError(
            f"{hf_dir}: has neither vocab.txt nor tokenizer.json; copy the "
            "vocabulary the model was trained with to vocab.txt there"
        )
    if not 0 < num_tokens <= vocab_size:
        raise ValueError(
            f"{path}: got {num_tokens} entries, wanted 1 to {vocab_size} "
            "(vocab_size of config.json); use the vocabulary of this model"
        )
    return contents


def _tokens_of_tokenizer(path: str) -> list[str]:
    """Returns the tokens of a tokenizer.json by id."""
    tokenizer = read_json(path)
    model = tokenizer.get("model", {})
    if model.get("type") != "WordPiece":
        raise ValueError(
            f"{path}: got a tokenizer of type {model.get('type')!r}, wanted "
            "'WordPiece', the only one of a released BERT"
        )
    tokens = {index: token for token, index in model["vocab"].items()}
    for added in tokenizer.get("added_tokens", []):
        tokens.setdefault(added["id"], added["content"])
    if sorted(tokens) != list(range(len(tokens))) or any(
        "\n" in token for token in tokens.values()
    ):
        raise ValueError(
            f"{path}: its {len(tokens)} ids are not 0 to {len(tokens) - 1}, or "
            "a token contains a line break; write vocab.txt by hand, the token "
            "of id n in line n + 1"
        )
    return [tokens[index] for index in range(len(tokens))]


def read_json(path: str) -> dict[str, Any]:
    """Returns the object that a JSON file holds.

    Raises:
      ValueError: it is no JSON, or another value.
    """
    with file_io.open_file(path) as reader:
        try:
            contents = json.load(reader)
        except ValueError as error:
            raise ValueError(
                f"{path}: is no JSON file ({error}); download it again"
            ) from error
    if not isinstance(contents, dict):
        raise ValueError(f"{path}: wanted a JSON object, got another value")
    return contents


def first_few(names: Iterable[str]) -> str:
    """Returns the first few names, for a message."""
    names = list(names)
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
