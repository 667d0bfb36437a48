"""BERT's configuration, encoder and heads, as Keras layers.

Shapes are written with these letters: B batch_size, S seq_length, T number of
tokens the encoder computes on, H hidden_size, N num_attention_heads, D size of
one head, F from (query) positions, P max_predictions_per_seq, V vocab_size.

Layers are named after the scopes of the released checkpoints, so the path of a
variable without its first component is its name on disk.
"""

import copy
import dataclasses
import json
import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

import file_io
import kernels

# What is subtracted from the score of a masked position (quirk of the release:
# a number, not infinity, so a row without any real token still attends).
MASKED_SCORE = -10000.0


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
        for key in ("initializer_range", "layer_norm_epsilon"):
            if not _is_number(getattr(self, key), 0.0, math.inf):
                raise ValueError(
                    f"{key} must be a number of at least 0, got "
                    f"{getattr(self, key)!r}."
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


# ---------------------------------------------------------------------------
# Tokens: which positions of a batch the encoder computes on.


@dataclasses.dataclass(frozen=True, eq=False)
class TokenLayout:
    """Where the rows the encoder computes on stand in the batch.

    With `remove_padding` those are the real tokens, plus as much padding as
    makes their number one of a few dozen: XLA and oneDNN prepare code for every
    new shape. Without it they are all B * S positions and `token_index` is
    None. Either way the dense layers see a matrix [T, H], for which TensorFlow
    merges bias and activation into the product.

    Attributes:
      token_index: int32 [T], position of each row in the flattened [B, S].
      first_token: int32 [B], the row that holds position 0 of each sequence.
      batch_shape: int32 [2], B and S. Here S may end after the last real token.
      full_length: int32 [], S of the batch as it was given.
      scores_adder: float32 [B, 1, 1, S], 0 at real and -10000 at masked
        positions.
      fuse: whether the layers use fused kernels.
    """

    token_index: tf.Tensor | None
    first_token: tf.Tensor
    batch_shape: tf.Tensor
    full_length: tf.Tensor
    scores_adder: tf.Tensor
    fuse: bool


# How many numbers of rows, and of positions, a batch of one shape can have.
_NUM_ROW_SHAPES = 32
_NUM_LENGTHS = 16


def make_token_layout(
    input_mask: tf.Tensor, remove_padding: bool, fuse: bool = False
) -> TokenLayout:
    """Finds the rows to compute on.

    Args:
      input_mask: int32 [B, S], nonzero at real positions. A row of zeros counts
        as real everywhere, and so does position 0, which the pooler reads.
      remove_padding: leave the other positions out.
      fuse: kept for the layers.
    """
    shape = tf.shape(input_mask)
    batch_size, full_length = shape[0], shape[1]
    token_index = None
    first_token = tf.range(batch_size) * full_length
    if remove_padding:
        is_real = tf.not_equal(input_mask, 0)
        is_real |= ~tf.reduce_any(is_real, axis=1, keepdims=True)
        is_real |= tf.equal(tf.range(full_length), 0)
        last_real = tf.reduce_max(tf.where(is_real)[:, 1])
        length = kernels.round_up(
            tf.cast(last_real, tf.int32) + 1, full_length, _NUM_LENGTHS
        )
        is_real, input_mask = is_real[:, :length], input_mask[:, :length]
        num_tokens = tf.reduce_sum(tf.cast(is_real, tf.int32), axis=1)
        first_token = tf.cumsum(num_tokens, exclusive=True)
        num_rows = kernels.round_up(
            tf.reduce_sum(num_tokens), batch_size * length, _NUM_ROW_SHAPES
        )
        is_real = tf.reshape(is_real, [-1])
        order = tf.concat([tf.where(is_real), tf.where(~is_real)], axis=0)
        token_index = tf.cast(order[:num_rows, 0], tf.int32)
        shape = tf.stack([batch_size, length])
    adder = (1.0 - tf.cast(input_mask, tf.float32)) * MASKED_SCORE
    return TokenLayout(
        token_index,
        first_token,
        shape,
        full_length,
        adder[:, tf.newaxis, tf.newaxis, :],
        fuse,
    )


def _unpack(rows: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
    """[T, X] to [B * S, X], zero where nothing was computed."""
    if layout.token_index is None:
        return rows
    num_positions = tf.reduce_prod(layout.batch_shape)
    return tf.scatter_nd(
        layout.token_index[:, tf.newaxis],
        rows,
        tf.stack([num_positions, rows.shape[1]]),
    )


def _pack(positions: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
    """[B * S, X] to [T, X]: the inverse of `_unpack`."""
    if layout.token_index is None:
        return positions

    # The built-in gradient of a gather adds up rows that may repeat; ours do
    # not, and a scatter takes half the time.
    @tf.custom_gradient
    def gather(positions):
        return tf.gather(positions, layout.token_index), lambda dy: _unpack(
            dy, layout
        )

    return gather(positions)


def _unpack_sequence(rows: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
    """[T, H] to [B, S, H] with S as in the batch that was given."""
    batch_size, length = layout.batch_shape[0], layout.batch_shape[1]
    sequence = tf.reshape(
        _unpack(rows, layout), [batch_size, length, rows.shape[1]]
    )
    return tf.pad(sequence, [[0, 0], [0, layout.full_length - length], [0, 0]])


def fold_in(seed: tf.Tensor | None, scope: str) -> tf.Tensor | None:
    """Derives the seed of the layer called `scope`."""
    if seed is None:
        return None
    return tf.random.experimental.stateless_fold_in(
        seed, zlib.crc32(scope.encode()) & 0x7FFFFFFF, alg="philox"
    )


def create_initializer(
    config: BertConfig, random_seed: int, name: str
) -> keras.initializers.Initializer:
    """The truncated normal of the release, drawn for the variable `name`."""
    return keras.initializers.TruncatedNormal(
        stddev=config.initializer_range,
        seed=zlib.crc32(f"{random_seed}/{name}".encode()),
    )


# ---------------------------------------------------------------------------
# Layers.


class BertLayer(keras.layers.Layer):
    """A layer that knows the configuration and where its randomness is from."""

    def __init__(self, config: BertConfig, random_seed: int, name: str):
        super().__init__(name=name)
        self.config = config
        self.random_seed = random_seed

    @property
    def scope(self) -> str:
        """The layer's name in a checkpoint."""
        return self.path.partition("/")[2]

    def add_kernel(self, name: str, shape: tuple[int, ...]):
        """Adds a weight drawn from the truncated normal of the release."""
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=create_initializer(
                self.config, self.random_seed, f"{self.scope}/{name}"
            ),
        )

    def fold_in(self, seed):
        """Derives this layer's seed from the step's; None stays None."""
        return fold_in(seed, self.scope)

    def dropout(self, x, rate, seed):
        """Drops with a mask of this layer's own."""
        return kernels.dropout(x, rate, self.fold_in(seed))


class Dense(BertLayer):
    """`activation(x @ kernel + bias)` of a matrix."""

    def __init__(self, config, random_seed, name, units, activation=None):
        super().__init__(config, random_seed, name)
        self.units = units
        self.activation = get_activation(activation)

    def build(self, input_shape):
        """Creates `kernel` [input size, units] and `bias` [units]."""
        self.kernel = self.add_kernel("kernel", (input_shape[-1], self.units))
        self.bias = self.add_weight(
            name="bias", shape=(self.units,), initializer="zeros"
        )

    def call(self, x, fuse=False):
        """float [T, input size] to [T, units]."""
        x = tf.matmul(x, self.kernel)
        if self.activation is None:
            return tf.nn.bias_add(x, self.bias)
        return kernels.bias_activation(
            x, self.bias, activation=self.activation, fuse=fuse
        )


class LayerNorm(BertLayer):
    """Layer normalisation over the last axis."""

    def build(self, input_shape):
        """Creates `beta` and `gamma` [size of the last axis]."""
        shape = (input_shape[-1],)
        self.beta = self.add_weight(
            name="beta", shape=shape, initializer="zeros"
        )
        self.gamma = self.add_weight(
            name="gamma", shape=shape, initializer="ones"
        )

    def call(self, x):
        """float [..., H] to the same shape."""
        return kernels.layer_norm(
            x, self.gamma, self.beta, self.config.layer_norm_epsilon
        )


class Embeddings(BertLayer):
    """Word, position and segment embeddings, normalised and dropped."""

    def __init__(self, config, random_seed, name="embeddings"):
        super().__init__(config, random_seed, name)
        self.layer_norm = LayerNorm(config, random_seed, "LayerNorm")

    def build(self, input_shape=None):
        """Creates the three tables and the LayerNorm."""
        config, width = self.config, self.config.hidden_size
        self.word_embeddings = self.add_kernel(
            "word_embeddings", (config.vocab_size, width)
        )
        self.token_type_embeddings = self.add_kernel(
            "token_type_embeddings", (config.type_vocab_size, width)
        )
        self.position_embeddings = self.add_kernel(
            "position_embeddings", (config.max_position_embeddings, width)
        )
        self.layer_norm.build((None, width))

    def call(
        self,
        input_ids,
        token_type_ids,
        position_ids,
        num_positions,
        seed=None,
    ):
        """Int32 ids [T], three times, below int32 [], to float [T, H]."""
        x = tf.gather(tf.convert_to_tensor(self.word_embeddings), input_ids)
        # A table of two rows: a matrix product is faster than a gather, whose
        # gradient adds thousands of rows into two, one after the other.
        token_type = tf.one_hot(
            token_type_ids, self.config.type_vocab_size, dtype=x.dtype
        )
        x += tf.matmul(token_type, self.token_type_embeddings)
        # A slice has a dense gradient, as released (it counts differently in
        # the norm of `train`'s clip_sparse_rows).
        x += tf.gather(self.position_embeddings[:num_positions], position_ids)
        x = self.layer_norm(x)
        return self.dropout(x, self.config.hidden_dropout_prob, seed)


class SelfAttention(BertLayer):
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, config, random_seed, name="self"):
        super().__init__(config, random_seed, name)
        self.projections = [
            Dense(config, random_seed, part, config.hidden_size)
            for part in ("query", "key", "value")
        ]

    def build(self, input_shape=None):
        """Creates the kernels and biases of query, key and value."""
        for projection in self.projections:
            projection.build((None, self.config.hidden_size))

    def call(self, x, layout, seed=None, first_only=False):
        """Lets every token look at the real tokens of its sequence.

        Args:
          x: float [T, H].
          layout: the `TokenLayout` of these rows.
          seed: int32 [2] or None.
          first_only: only position 0 looks.

        Returns:
          float [T, H], or [B, H] with `first_only`.
        """
        query, key, value = self._project(x, layout, first_only)
        probs = kernels.attention_probs(
            tf.matmul(query, key, transpose_b=True),  # [B, N, F, S]
            layout.scores_adder,
            self.fold_in(seed),
            head_size=query.shape[-1],
            rate=self.config.attention_probs_dropout_prob,
            fuse=layout.fuse,
        )
        context = tf.matmul(probs, value)  # [B, N, F, D]
        context = tf.transpose(context, [0, 2, 1, 3])
        context = tf.reshape(context, [-1, x.shape[1]])  # [B * F, H]
        return context if first_only else _pack(context, layout)

    def _project(self, x, layout, first_only):
        """Returns query [B, N, F, D], key and value [B, N, S, D]."""
        if first_only:
            first = tf.gather(x, layout.first_token)
            query = self._heads(self.projections[0](first), [-1, 1], 1)
            return *query, *self._fused(x, self.projections[1:], layout)
        return self._fused(x, self.projections, layout)

    def _fused(self, x, projections, layout):
        """Applies projections as one matrix product."""
        kernel = tf.concat([p.kernel for p in projections], axis=1)
        bias = tf.concat([p.bias for p in projections], axis=0)
        rows = tf.nn.bias_add(tf.matmul(x, kernel), bias)
        return self._heads(
            _unpack(rows, layout), layout.batch_shape, len(projections)
        )

    def _heads(self, rows, batch_shape, num_parts):
        """[B * F, parts * H] to a list of [B, N, F, D], one a part."""
        heads = self.config.num_attention_heads
        size = self.config.hidden_size // heads
        x = tf.reshape(
            rows, [batch_shape[0], batch_shape[1], num_parts, heads, size]
        )
        return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), num=num_parts)


class Output(BertLayer):
    """Projects to hidden_size, drops, adds the residual and normalises."""

    def __init__(self, config, random_seed, name="output"):
        super().__init__(config, random_seed, name)
        self.dense = Dense(config, random_seed, "dense", config.hidden_size)
        self.layer_norm = LayerNorm(config, random_seed, "LayerNorm")

    def build(self, input_shape):
        """Creates the dense layer and the LayerNorm."""
        self.dense.build(input_shape)
        self.layer_norm.build((None, self.config.hidden_size))

    def call(self, x, residual, seed=None, fuse=False):
        """float [T, input size] and the residual [T, H] to [T, H]."""
        return kernels.add_and_norm(
            tf.matmul(x, self.dense.kernel),
            self.dense.bias,
            residual,
            self.layer_norm.gamma,
            self.layer_norm.beta,
            self.fold_in(seed),
            rate=self.config.hidden_dropout_prob,
            epsilon=self.config.layer_norm_epsilon,
            fuse=fuse,
        )


class Attention(BertLayer):
    """Self-attention and its output projection."""

    def __init__(self, config, random_seed, name="attention"):
        super().__init__(config, random_seed, name)
        self.self_attention = SelfAttention(config, random_seed)
        self.output_layer = Output(config, random_seed)

    def build(self, input_shape=None):
        """Creates both halves."""
        self.self_attention.build(None)
        self.output_layer.build((None, self.config.hidden_size))

    def call(self, x, layout, seed=None, first_only=False):
        """float [T, H] to [T, H], or to [B, H] with `first_only`."""
        context = self.self_attention(
            x, layout=layout, seed=seed, first_only=first_only
        )
        if first_only:
            x = tf.gather(x, layout.first_token)
        return self.output_layer(context, x, seed=seed, fuse=layout.fuse)


class Intermediate(BertLayer):
    """The widening half of the feed-forward network."""

    def __init__(self, config, random_seed, name="intermediate"):
        super().__init__(config, random_seed, name)
        self.dense = Dense(
            config,
            random_seed,
            "dense",
            config.intermediate_size,
            config.hidden_act,
        )

    def build(self, input_shape=None):
        """Creates the dense layer."""
        self.dense.build((None, self.config.hidden_size))

    def call(self, x, fuse=False):
        """float [T, H] to [T, intermediate_size]."""
        return self.dense(x, fuse=fuse)


class TransformerLayer(BertLayer):
    """One encoder layer (Devlin et al. 2019, section 3)."""

    def __init__(self, config, random_seed, name):
        super().__init__(config, random_seed, name)
        self.attention = Attention(config, random_seed)
        self.intermediate = Intermediate(config, random_seed)
        self.output_layer = Output(config, random_seed)

    def build(self, input_shape=None):
        """Creates attention and feed-forward network."""
        self.attention.build(None)
        self.intermediate.build(None)
        self.output_layer.build((None, self.config.intermediate_size))

    def call(self, x, layout, seed=None, first_only=False):
        """float [T, H] to [T, H], or to [B, H] with `first_only`."""
        x = self.attention(x, layout=layout, seed=seed, first_only=first_only)
        widened = self.intermediate(x, fuse=layout.fuse)
        return self.output_layer(widened, x, seed=seed, fuse=layout.fuse)


class Encoder(BertLayer):
    """The stack of encoder layers."""

    def __init__(self, config, random_seed, name="encoder"):
        super().__init__(config, random_seed, name)
        self.transformer_layers = [
            TransformerLayer(config, random_seed, f"layer_{i}")
            for i in range(config.num_hidden_layers)
        ]

    def build(self, input_shape=None):
        """Creates the layers."""
        for layer in self.transformer_layers:
            layer.build(None)

    def call(self, x, layout, seed=None, first_only=False):
        """float [T, H] to the list of every layer's [T, H].

        With `first_only` the last one is [B, H]: nothing reads the other
        positions of the last layer, so they are not computed.
        """
        outputs = []
        last = len(self.transformer_layers) - 1
        for i, layer in enumerate(self.transformer_layers):
            x = layer(
                x,
                layout=layout,
                seed=seed,
                first_only=first_only and i == last,
            )
            outputs.append(x)
        return outputs


class Pooler(BertLayer):
    """Dense layer with tanh on the first token."""

    def __init__(self, config, random_seed, name="pooler"):
        super().__init__(config, random_seed, name)
        self.dense = Dense(
            config, random_seed, "dense", config.hidden_size, "tanh"
        )

    def build(self, input_shape=None):
        """Creates the dense layer."""
        self.dense.build((None, self.config.hidden_size))

    def call(self, first_token):
        """float [B, H] to [B, H]."""
        return self.dense(first_token)


class BertOutputs(NamedTuple):
    """What `BertModel` returns; positions of padding may hold zeros.

    Attributes:
      pooled_output: float [B, H].
      sequence_output: float [B, S, H], of the last layer.
      all_encoder_layers: list of float [B, S, H].
      embedding_output: float [B, S, H], what the first layer is given.
    """

    pooled_output: tf.Tensor
    sequence_output: tf.Tensor | None
    all_encoder_layers: list[tf.Tensor]
    embedding_output: tf.Tensor


class BertModel(BertLayer):
    """BERT without a head (Devlin et al. 2019, section 3).

    Args:
      config: the `BertConfig`.
      random_seed: initial weights are a function of it and of their names.
      remove_padding: compute on real tokens only: the same numbers at real
        positions and zeros at the others. Needs dynamic shapes, so it is off on
        a TPU and under XLA.
      fuse: compile the passes between matrix products in training, see
        kernels.py. For a CPU.
      name: the scope of the variables.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        random_seed: int = 0,
        remove_padding: bool = True,
        fuse: bool = True,
        name: str = "bert",
    ):
        super().__init__(config, random_seed, name)
        self.remove_padding = remove_padding
        self.fuse = fuse
        self.embeddings = Embeddings(config, random_seed)
        self.encoder = Encoder(config, random_seed)
        self.pooler = Pooler(config, random_seed)

    def build(self, input_shape=None):
        """Creates all variables."""
        self.embeddings.build(None)
        self.encoder.build(None)
        self.pooler.build(None)

    def get_embedding_table(self) -> keras.Variable:
        """Returns the word embeddings, float [V, H]."""
        return self.embeddings.word_embeddings

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        token_type_ids: tf.Tensor | None = None,
        *,
        seed: tf.Tensor | None = None,
        first_token_only: bool = False,
    ) -> BertOutputs:
        """Encodes a batch.

        Args:
          input_ids: int32 [B, S].
          input_mask: int32 [B, S], 1 at real and 0 at padding positions; None
            means all real.
          token_type_ids: int32 [B, S]; None means all 0.
          seed: int32 [2] of this step's dropout; None is inference.
          first_token_only: compute only what `pooled_output` depends on;
            `sequence_output` is then None and the last layer missing from
            `all_encoder_layers`.

        Raises:
          ValueError: S is larger than max_position_embeddings.
        """
        seq_length = input_ids.shape[1]
        longest = self.config.max_position_embeddings
        if seq_length is not None and seq_length > longest:
            raise ValueError(
                f"A sequence of {seq_length} tokens is longer than the "
                f"{longest} positions of this model (max_position_embeddings): "
                f"shorten it to at most {longest}."
            )
        if input_mask is None:
            input_mask = tf.ones_like(input_ids)
        if token_type_ids is None:
            token_type_ids = tf.zeros_like(input_ids)
        layout = make_token_layout(
            input_mask, self.remove_padding, fuse=self.fuse and seed is not None
        )
        length = layout.batch_shape[1]

        def pack_ids(ids):
            ids = tf.reshape(ids[:, :length], [-1])
            if layout.token_index is None:
                return ids
            return tf.gather(ids, layout.token_index)

        position_ids = tf.broadcast_to(tf.range(length), layout.batch_shape)
        embedded = self.embeddings(
            pack_ids(input_ids),
            pack_ids(token_type_ids),
            pack_ids(position_ids),
            length,
            seed=seed,
        )
        layers = self.encoder(
            embedded, layout=layout, seed=seed, first_only=first_token_only
        )
        if first_token_only:
            first_token = layers.pop()
        else:
            first_token = tf.gather(layers[-1], layout.first_token)
        sequences = [_unpack_sequence(x, layout) for x in layers]
        return BertOutputs(
            pooled_output=self.pooler(first_token),
            sequence_output=None if first_token_only else sequences[-1],
            all_encoder_layers=sequences,
            embedding_output=_unpack_sequence(embedded, layout),
        )
