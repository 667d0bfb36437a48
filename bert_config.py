"""The hyperparameters of a BERT model and the activations they name."""

import copy
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

import file_io


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Gaussian error linear unit, with the tanh approximation of the release.

    Hendrycks and Gimpel 2016, section 2.

    Args:
      x: float tensor of any shape.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    return tf.nn.gelu(x, approximate=True)


def gelu_erf(x: tf.Tensor) -> tf.Tensor:
    """Exact Gaussian error linear unit: what Hugging Face calls "gelu".

    Args:
      x: float tensor of any shape.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    return tf.nn.gelu(x, approximate=False)


_ACTIVATIONS: Mapping[str, Callable | None] = {
    "": None,
    "linear": None,
    "relu": tf.nn.relu,
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "tanh": tf.tanh,
}


def get_activation(name: str | Callable | None) -> Callable | None:
    """Returns the function for a `hidden_act`, None for the identity.

    Args:
      name: one of "relu", "gelu", "gelu_erf", "tanh", "linear", in any case; ""
        and None mean "linear". A function is returned as it is.

    Raises:
      ValueError: the name is not one of them.
    """
    if name is None or callable(name):
        return name
    try:
        return _ACTIVATIONS[name.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(sorted(filter(None, _ACTIVATIONS)))
        raise ValueError(
            f"Unsupported activation: {name!r}; hidden_act must be one of "
            f"{known}."
        ) from None


class BertConfig:
    """The hyperparameters of a BERT model, as in `bert_config.json`.

    Defaults are the released ones. Keys that are not hyperparameters of ours
    (the Chinese and multilingual models carry `pooler_fc_size` and others) are
    kept, written back by `to_dict` and named in the log.

    Args:
      vocab_size: number of entries of the vocabulary.
      hidden_size: width of the encoder and the pooler.
      num_hidden_layers: number of encoder layers.
      num_attention_heads: heads of each layer; divides `hidden_size`.
      intermediate_size: width of the feed-forward layer.
      hidden_act: activation of the feed-forward layer, see `get_activation`.
      hidden_dropout_prob: probability of dropping an activation.
      attention_probs_dropout_prob: probability of dropping an attention weight.
      max_position_embeddings: longest sequence, in tokens.
      type_vocab_size: number of segment ids.
      initializer_range: standard deviation of the truncated normal initializer.

    Raises:
      ValueError: a value no model can have; the message names the key.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        hidden_act: str = "gelu",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 16,
        initializer_range: float = 0.02,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.hidden_act = hidden_act
        self.intermediate_size = intermediate_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range
        self._validate()

    @property
    def layer_norm_epsilon(self) -> float:
        """Added to the variance: 1e-12 as released unless a file says else."""
        return float(getattr(self, "layer_norm_eps", 1e-12))

    def _validate(self) -> None:
        for key in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            value = getattr(self, key)
            if type(value) is not int or value < 1:
                raise ValueError(
                    f"{key} must be a whole number of at least 1, got "
                    f"{value!r}."
                )
        for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, key)
            # None is how the release itself switches dropout off.
            if value is not None and not _is_number(value, 0.0, 1.0):
                raise ValueError(
                    f"{key} must be a probability in [0, 1), got {value!r}."
                )
        for key in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, key, 0.0)
            if not _is_number(value, 0.0, math.inf):
                raise ValueError(
                    f"{key} must be a number of at least 0, got {value!r}."
                )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) must be a multiple of "
                f"num_attention_heads ({self.num_attention_heads})."
            )
        get_activation(self.hidden_act)

    @classmethod
    def from_dict(cls, json_object: Mapping[str, Any]) -> "BertConfig":
        """Builds a configuration from the keys of `bert_config.json`.

        Raises:
          ValueError: `vocab_size` is missing or a value is impossible.
        """
        if json_object.get("vocab_size") is None:
            raise ValueError(
                "vocab_size is missing from the BERT configuration: give the "
                "number of entries of the model's vocabulary."
            )
        config = cls(vocab_size=json_object["vocab_size"])
        unknown = [key for key in json_object if key not in vars(config)]
        vars(config).update(json_object)
        config._validate()
        if unknown:
            logging.info(
                "Keys of the BERT configuration that are kept but change "
                "nothing%s: %s",
                " (except layer_norm_eps)" * ("layer_norm_eps" in unknown),
                ", ".join(sorted(unknown)),
            )
        return config

    @classmethod
    def from_json_file(cls, json_file: str) -> "BertConfig":
        """Reads `bert_config.json`.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: not UTF-8, not JSON, or an impossible value; the message
            names the file.
        """
        with file_io.open_file(json_file) as reader:
            try:
                json_object = json.load(reader)
                if not isinstance(json_object, dict):
                    raise ValueError("expected a JSON object")
                return cls.from_dict(json_object)
            except ValueError as e:
                raise ValueError(f"{json_file}: {e}") from e

    def to_dict(self) -> dict[str, Any]:
        """Returns the hyperparameters and the keys kept from the file."""
        return copy.deepcopy(vars(self))

    def to_json_string(self) -> str:
        """Returns the contents of a `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def _is_number(value: Any, low: float, high: float) -> bool:
    """Whether `value` is an int or a float in [low, high)."""
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return is_numeric and low <= value < high
