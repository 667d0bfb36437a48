"""BERT's encoder as Keras layers.

Shapes are written with these letters: B batch_size, S seq_length, T number of
tokens the encoder computes on, H hidden_size, N num_attention_heads, D size of
one head, F from (query) positions, P max_predictions_per_seq, V vocab_size.

Layers are named after the scopes of the released checkpoints, so the path of a
variable without its first component is its name on disk.
"""

import zlib
from typing import NamedTuple

import keras
import tensorflow as tf

import kernels

# The released names that people import from this module.
from bert_config import (  # noqa: F401
    BertConfig,
    gelu,
    get_activation,
)
from token_layout import (
    make_token_layout,
    merge_heads,
    split_heads,
    unpack_sequence,
)


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
        fuse=False,
    ):
        """Returns the sum of the three embeddings, float [T, H].

        Args:
          input_ids: int32 [T].
          token_type_ids: int32 [T].
          position_ids: int32 [T].
          num_positions: int32 [], larger than every position.
          seed: int32 [2] or None.
          fuse: see kernels.py.
        """
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
        return kernels.norm_and_drop(
            x,
            self.layer_norm.gamma,
            self.layer_norm.beta,
            self.fold_in(seed),
            rate=self.config.hidden_dropout_prob,
            epsilon=self.config.layer_norm_epsilon,
            fuse=fuse,
        )


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
        heads = self.config.num_attention_heads
        # Three products: one with the kernels side by side is no faster, and
        # putting them there takes time.
        query, key, value = self.projections
        if first_only:
            first = query(tf.gather(x, layout.first_token))  # [B, H]
            first = tf.reshape(first, [-1, heads, 1, first.shape[1] // heads])
            queries = [tf.gather(first, g.sequences) for g in layout.groups]
        else:
            queries = split_heads(query(x), layout, heads)
        keys = split_heads(key(x), layout, heads)
        values = split_heads(value(x), layout, heads)
        contexts = [
            self._attend(*part, seed, number, layout.fuse)
            for number, part in enumerate(
                zip(queries, keys, values, layout.groups, strict=True)
            )
        ]
        if not first_only:
            return merge_heads(contexts, layout)
        sequences = tf.concat([g.sequences for g in layout.groups], axis=0)
        context = tf.reshape(tf.concat(contexts, axis=0), [-1, x.shape[1]])
        return tf.gather(context, tf.argsort(sequences))

    def _attend(self, query, key, value, group, seed, number, fuse):
        """Returns float [G, N, F, D] for one group of sequences."""
        seed = self.fold_in(seed)
        if seed is not None:
            seed += [0, number]  # Another mask for each group.
        probs = kernels.attention_probs(
            tf.matmul(query, key, transpose_b=True),  # [G, N, F, L]
            group.scores_adder,
            seed,
            head_size=query.shape[-1],
            rate=self.config.attention_probs_dropout_prob,
            fuse=fuse,
        )
        return tf.matmul(probs, value)  # [G, N, F, D]


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
        kernels.py. None: where there is no GPU, because XLA's code for every
        shape of batch takes longer to make there and saves less.
      name: the scope of the variables.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        random_seed: int = 0,
        remove_padding: bool = True,
        fuse: bool | None = None,
        name: str = "bert",
    ):
        super().__init__(config, random_seed, name)
        self.remove_padding = remove_padding
        if fuse is None:
            fuse = not tf.config.list_physical_devices("GPU")
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
            fuse=layout.fuse,
        )
        layers = self.encoder(
            embedded, layout=layout, seed=seed, first_only=first_token_only
        )
        if first_token_only:
            first_token = layers.pop()
        else:
            first_token = tf.gather(layers[-1], layout.first_token)
        sequences = [unpack_sequence(x, layout) for x in layers]
        return BertOutputs(
            pooled_output=self.pooler(first_token),
            sequence_output=None if first_token_only else sequences[-1],
            all_encoder_layers=sequences,
            embedding_output=unpack_sequence(embedded, layout),
        )
