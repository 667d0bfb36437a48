"""Converts a Hugging Face BERT directory to the released files.

Reads `config.json`, `model.safetensors` (or its shards) and `vocab.txt`;
writes `bert_config.json`, `bert_model.ckpt` and `vocab.txt`:

    python convert_checkpoint.py --hf_dir=DIRECTORY --output_dir=OUTPUT
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import common_flags  # isort: skip  # Before TensorFlow: see there.
import numpy as np
from absl import flags, logging

import bert_config
import checkpoint
import file_io
import hugging_face

CHECKPOINT_NAME = "bert_model.ckpt"
CONFIG_NAME = "bert_config.json"
VOCAB_NAME = "vocab.txt"

# Hugging Face may write a tied tensor twice, or under its second name alone.
_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


class Plan(NamedTuple):
    """What becomes of every tensor of the source.

    Attributes:
      used: (rule, name in the source) of every tensor to write.
      unused: the reason, by name in the source, of every other one.
      missing_parts: the parts of a BERT that the source does not have.
    """

    used: list[tuple[hugging_face.TensorRule, str]]
    unused: dict[str, str]
    missing_parts: list[str]


def make_plan(
    sources: Mapping[str, hugging_face.SourceTensor],
    config: bert_config.BertConfig,
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
    names = hugging_face.canonical_names(sources)
    rules = hugging_face.tensor_rules(
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
        unused |= _without(rules.pop(hugging_face.MASKED_LM), names, reason)
    if "BertForMultipleChoice" in architecture:
        reason = "the release has no head for multiple choice"
        unused |= _without(rules.pop(hugging_face.CLASSIFIER), names, reason)
    used = []
    missing_parts = []
    for part, part_rules in rules.items():
        absent = [r for r in part_rules if r.hugging_face not in names]
        if len(absent) == len(part_rules) and part != hugging_face.ENCODER:
            missing_parts.append(part)
            continue
        if absent:
            wanted = hugging_face.first_few(r.hugging_face for r in absent)
            got = hugging_face.first_few(sources)
            raise ValueError(
                f"the {part} lacks {len(absent)} of {len(part_rules)} tensors, "
                f"wanted {wanted}; there are {got}; config.json and the "
                "weights are not of one BERT model"
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


def _without(
    rules: Iterable[hugging_face.TensorRule], names: dict[str, str], reason: str
) -> dict[str, str]:
    """Takes the tensors of a part out of `names`: all unused, for a reason."""
    return {
        names.pop(rule.hugging_face): reason
        for rule in rules
        if rule.hugging_face in names
    }


def _take_tied(
    names: dict[str, str], sources: Mapping[str, hugging_face.SourceTensor]
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
            hugging_face.read_tensor(source, one),
            hugging_face.read_tensor(twin, other),
        ):
            unused[source] = f"tied: the same numbers as {twin}"
        else:
            unused[source] = f"not tied: other numbers than {twin}"
            is_tied = False
    return unused, is_tied


def _check_shape(
    rule: hugging_face.TensorRule,
    source: str,
    shape: tuple[int, ...],
    config: bert_config.BertConfig,
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
    hf_config, config = hugging_face.read_config(
        os.path.join(hf_dir, "config.json")
    )
    contents = {
        CONFIG_NAME: config.to_json_string().encode("utf-8"),
        VOCAB_NAME: hugging_face.read_vocabulary(hf_dir, config.vocab_size),
    }
    sources = hugging_face.find_tensors(hf_dir)
    try:
        architecture = str(hf_config.get("architectures"))
        plan = make_plan(sources, config, architecture)
    except ValueError as error:
        raise ValueError(f"{hf_dir}: {error}") from error
    tensors = {}
    for rule, source in plan.used:
        tensor = hugging_face.read_tensor(source, sources[source])
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


def _log_plan(
    plan: Plan, sources: Mapping[str, hugging_face.SourceTensor]
) -> None:
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
    if hugging_face.POOLER in plan.missing_parts:
        logging.warning(
            "The source has no pooler: bert/pooler/dense starts from random "
            "numbers where it is used (classification, next sentence)"
        )
    heads = [part for part in plan.missing_parts if part != hugging_face.POOLER]
    logging.info("Not in the source: %s", ", ".join(heads) or "nothing")


def _log_advice(hf_dir: str, hf_config: Mapping[str, Any]) -> None:
    """Logs what else the scripts need to be told about this model."""
    path = os.path.join(hf_dir, "tokenizer_config.json")
    if file_io.exists(path):
        do_lower_case = hugging_face.read_json(path).get("do_lower_case")
        if isinstance(do_lower_case, bool):
            logging.info("Use it with --do_lower_case=%s", do_lower_case)
    if labels := hf_config.get("id2label"):
        logging.info("Labels of its head, if any, by row: %s", labels)


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


def main(unused_argv: Sequence[str]) -> None:
    """Converts a directory, as the flags say."""
    values = flags.FLAGS
    convert(values.hf_dir, values.output_dir, overwrite=values.overwrite)


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    common_flags.run(main)
