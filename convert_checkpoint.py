"""Converts a Hugging Face BERT directory to the released files.

Reads `config.json`, `model.safetensors` (or its shards) and `vocab.txt`;
writes `bert_config.json`, `bert_model.ckpt` and `vocab.txt`:

    python convert_checkpoint.py --hf_dir=DIRECTORY --output_dir=OUTPUT
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from absl import app, flags, logging

# Before Keras is imported; a user's own Keras settings may name another one.
os.environ["KERAS_BACKEND"] = "tensorflow"

import checkpoint
import file_io
import modeling
import tokenization

CHECKPOINT_NAME = "bert_model.ckpt"
CONFIG_NAME = "bert_config.json"
VOCAB_NAME = "vocab.txt"

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

_ENCODER = "encoder"
_POOLER = "pooler"
_MASKED_LM = "masked LM head"
_CLASSIFIER = "classification head"
# Hugging Face may write a tied tensor twice, or under its second name alone.
_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


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


class Plan(NamedTuple):
    """What becomes of every tensor of the source.

    Attributes:
      used: (rule, name in the source) of every tensor to write.
      unused: the reason, by name in the source, of every other one.
      missing_parts: the parts of a BERT that the source does not have.
    """

    used: list[tuple[TensorRule, str]]
    unused: dict[str, str]
    missing_parts: list[str]


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
        _ENCODER: encoder,
        _POOLER: _dense("bert/pooler/dense"),
        _MASKED_LM: masked_lm,
        "next sentence head": _head(
            "cls/seq_relationship/", "cls.seq_relationship", 2
        ),
        _CLASSIFIER: _head(classifier_scope, "classifier", "num_labels"),
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


def convert_config(hf_config: Mapping[str, Any]) -> modeling.BertConfig:
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
    return modeling.BertConfig.from_dict(config)


def make_plan(
    sources: Mapping[str, SourceTensor],
    config: modeling.BertConfig,
    architecture: str = "",
) -> Plan:
    """Decides what becomes of every tensor.

    Args:
      sources: the tensors of the source, by their name there.
      config: the converted configuration.
      architecture: Hugging Face's class name, which tells heads apart that
        have the same tensors.

    Raises:
      ValueError: an encoder tensor is missing, a part is incomplete, or a
        tensor has another shape than the configuration says.
    """
    names = _canonical_names(sources)
    rules = tensor_rules(
        config.num_hidden_layers,
        is_token_classifier="BertForTokenClassification" in architecture,
    )
    unused = {}
    for name in [name for name in names if name.endswith(_BUFFERS)]:
        unused[names.pop(name)] = "a buffer, not a weight"
    tied, is_tied = _take_tied(names, sources)
    unused |= tied
    if not is_tied:
        reason = "a released one decodes with the word embeddings"
        unused |= _without(rules.pop(_MASKED_LM), names, reason)
    if "BertForMultipleChoice" in architecture:
        reason = "the release has no head for multiple choice"
        unused |= _without(rules.pop(_CLASSIFIER), names, reason)
    used = []
    missing_parts = []
    for part, part_rules in rules.items():
        absent = [r for r in part_rules if r.hugging_face not in names]
        if len(absent) == len(part_rules) and part != _ENCODER:
            missing_parts.append(part)
            continue
        if absent:
            raise ValueError(
                f"the {part} lacks {len(absent)} of {len(part_rules)} tensors, "
                f"wanted {_some(rule.hugging_face for rule in absent)}; there "
                f"are {_some(sources)}; config.json and the weights are not "
                "of one BERT model"
            )
        for rule in part_rules:
            source = names.pop(rule.hugging_face)
            _check_shape(rule, source, sources[source].shape, config)
            used.append((rule, source))
    for name, source in names.items():
        if name.startswith("bert.encoder.layer."):
            raise ValueError(
                f"{source} is in none of the {config.num_hidden_layers} "
                "layers (num_hidden_layers of config.json); config.json and "
                "the weights are not of one BERT model"
            )
        unused[source] = "nothing in a released BERT corresponds to it"
    return Plan(used, unused, missing_parts)


def _canonical_names(sources: Iterable[str]) -> dict[str, str]:
    """Returns the names of the source by the names that the rules have."""
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


def _without(
    rules: Iterable[TensorRule], names: dict[str, str], reason: str
) -> dict[str, str]:
    """Takes the tensors of a part out of `names`: all unused, for a reason."""
    return {
        names.pop(rule.hugging_face): reason
        for rule in rules
        if rule.hugging_face in names
    }


def _take_tied(
    names: dict[str, str], sources: Mapping[str, SourceTensor]
) -> tuple[dict[str, str], bool]:
    """Takes second copies out of `names`; returns reasons and whether equal."""
    unused = {}
    is_tied = True
    for second, first in _TIED.items():
        if second not in names:
            continue
        source = names.pop(second)
        twin = names.setdefault(first, source)
        if twin == source:
            continue
        one, other = sources[source], sources[twin]
        if one.shape == other.shape and np.array_equal(
            read_tensor(source, one), read_tensor(twin, other)
        ):
            unused[source] = f"tied: the same numbers as {twin}"
        else:
            unused[source] = f"not tied: other numbers than {twin}"
            is_tied = False
    return unused, is_tied


def _some(names: Iterable[str]) -> str:
    """Returns the first few names."""
    names = list(names)
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _check_shape(
    rule: TensorRule,
    source: str,
    shape: tuple[int, ...],
    config: modeling.BertConfig,
) -> None:
    """Refuses a tensor of another shape than the configuration says."""
    num_labels = shape[0] if shape else 0
    known = config.to_dict() | {"num_labels": num_labels}
    wanted = tuple(known.get(size, size) for size in rule.shape)
    wanted = wanted[::-1] if rule.is_transposed else wanted
    if shape != wanted:
        sizes = rule.shape[::-1] if rule.is_transposed else rule.shape
        raise ValueError(
            f"{source} is {list(shape)}, wanted {list(wanted)} "
            f"({', '.join(map(str, sizes))} of config.json); config.json and "
            "the weights are not of one model"
        )


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
    weight_map = _read_json(index_path).get("weight_map") or {}
    sources = {}
    for shard in sorted(set(map(str, weight_map.values()))):
        sources |= _tensors_of_file(os.path.join(hf_dir, shard))
    absent = [name for name in weight_map if name not in sources]
    if absent or not weight_map:
        raise ValueError(
            f"{index_path}: lists {_some(absent) or 'nothing'}, wanted what is "
            "in its files; download the directory again"
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
    path = os.path.join(hf_dir, VOCAB_NAME)
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
            f"{hf_dir}: has neither {VOCAB_NAME} nor tokenizer.json; copy the "
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
    tokenizer = _read_json(path)
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


def convert(hf_dir: str, output_dir: str, *, overwrite: bool = False) -> Plan:
    """Writes the released files of a Hugging Face BERT directory.

    All is checked before the first weight is read, and the checkpoint is
    written last: where it is, the rest is.

    Args:
      hf_dir: a local directory with config.json, safetensors and vocabulary.
      output_dir: where to write; created if missing.
      overwrite: whether to replace an earlier conversion there.

    Raises:
      ValueError: something in `hf_dir` is missing, broken or no BERT.
      OSError: a file cannot be written, or exists and `overwrite` is false.
    """
    if not overwrite:
        _refuse_existing(output_dir)
    hf_config, config = _read_config(os.path.join(hf_dir, "config.json"))
    contents = {
        CONFIG_NAME: config.to_json_string().encode("utf-8"),
        VOCAB_NAME: read_vocabulary(hf_dir, config.vocab_size),
    }
    sources = find_tensors(hf_dir)
    try:
        architecture = str(hf_config.get("architectures"))
        plan = make_plan(sources, config, architecture)
    except ValueError as error:
        raise ValueError(f"{hf_dir}: {error}") from error
    tensors = {}
    for rule, source in plan.used:
        tensor = read_tensor(source, sources[source])
        tensors[rule.released] = tensor.T if rule.is_transposed else tensor
    file_io.make_dirs(output_dir)
    prefix = os.path.join(output_dir, CHECKPOINT_NAME)
    if file_io.exists(f"{prefix}.index"):
        # Half-way, old weights with a new configuration would look complete.
        file_io.remove(f"{prefix}.index")
    for name, content in contents.items():
        path = os.path.join(output_dir, name)
        with file_io.atomic_writer(path, "wb") as writer:
            writer.write(content)
    checkpoint.write(prefix, tensors)
    _log_plan(plan, sources)
    _log_advice(hf_dir, hf_config)
    logging.info("Wrote %s with %d tensors", prefix, len(tensors))
    return plan


def _refuse_existing(output_dir: str) -> None:
    """Raises if a file would be replaced."""
    names = (f"{CHECKPOINT_NAME}.index", CONFIG_NAME, VOCAB_NAME)
    existing = [
        name for name in names if file_io.exists(os.path.join(output_dir, name))
    ]
    if existing:
        raise FileExistsError(
            f"{output_dir}: already has {', '.join(existing)}; give another "
            "--output_dir, or --overwrite to replace"
        )


def _read_config(path: str) -> tuple[dict[str, Any], modeling.BertConfig]:
    """Returns the contents of config.json and what it becomes."""
    if not file_io.exists(path):
        raise ValueError(
            f"{path}: no such file, wanted the directory of a Hugging Face "
            "BERT on this machine; download it first, for example with "
            "hf download NAME --local-dir=DIRECTORY"
        )
    hf_config = _read_json(path)
    try:
        return hf_config, convert_config(hf_config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _log_plan(plan: Plan, sources: Mapping[str, SourceTensor]) -> None:
    """Logs what became of every tensor of the source."""
    for rule, source in plan.used:
        logging.info(
            "%s <- %s %s%s",
            rule.released,
            source,
            list(sources[source].shape),
            " transposed" * rule.is_transposed,
        )
    for source, reason in sorted(plan.unused.items()):
        is_expected = reason.startswith(("tied:", "a buffer"))
        level = logging.INFO if is_expected else logging.WARNING
        logging.log(level, "Unused: %s (%s)", source, reason)
    if _POOLER in plan.missing_parts:
        logging.warning(
            "The source has no pooler: bert/pooler/dense starts from random "
            "numbers where it is used (classification, next sentence)"
        )
    heads = [part for part in plan.missing_parts if part != _POOLER]
    logging.info("Not in the source: %s", ", ".join(heads) or "nothing")


def _log_advice(hf_dir: str, hf_config: Mapping[str, Any]) -> None:
    """Logs what else the scripts need to be told about this model."""
    path = os.path.join(hf_dir, "tokenizer_config.json")
    if file_io.exists(path):
        do_lower_case = _read_json(path).get("do_lower_case")
        if isinstance(do_lower_case, bool):
            logging.info("Use it with --do_lower_case=%s", do_lower_case)
    if labels := hf_config.get("id2label"):
        logging.info("Labels of its head, if any, by row: %s", labels)


def _read_json(path: str) -> dict[str, Any]:
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


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this script's flags."""
    flags.DEFINE_string(
        "hf_dir",
        None,
        "Local Hugging Face directory of a BERT: config.json, "
        "model.safetensors (or shards and their index), vocab.txt.",
        flag_values=flag_values,
        required=True,
    )
    flags.DEFINE_string(
        "output_dir",
        None,
        "Where to write bert_config.json, bert_model.ckpt and vocab.txt.",
        flag_values=flag_values,
        required=True,
    )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Whether to replace an earlier conversion in output_dir.",
        flag_values=flag_values,
    )


def main(_: list[str]) -> None:
    """Converts, or says in one line why not."""
    logging.set_verbosity(logging.INFO)
    values = flags.FLAGS
    try:
        convert(values.hf_dir, values.output_dir, overwrite=values.overwrite)
    except (ValueError, OSError) as error:
        sys.exit(f"convert_checkpoint.py: {error}")


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    app.run(main)
