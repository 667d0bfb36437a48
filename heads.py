"""The tasks: BERT with the heads of pre-training and fine-tuning.

A task is a Keras model whose variables carry the names of the released
checkpoints. The release keeps the kernel of a head's last layer transposed, as
[outputs, hidden_size]; so do we. Letters of shapes are those of modeling.py.
"""

import keras
import tensorflow as tf

import kernels
from modeling import (
    BertConfig,
    BertLayer,
    BertModel,
    BertOutputs,
    Dense,
    LayerNorm,
    create_initializer,
    fold_in,
)
from token_layout import MASKED_SCORE


class Projection(BertLayer):
    """A linear layer onto `num_outputs` logits."""

    def __init__(self, config, random_seed, name, num_outputs):
        super().__init__(config, random_seed, name)
        self.num_outputs = num_outputs

    def build(self, input_shape=None):
        """Creates `output_weights` and `output_bias`."""
        self.output_weights = self.add_kernel(
            "output_weights", (self.num_outputs, self.config.hidden_size)
        )
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.num_outputs,), initializer="zeros"
        )

    def call(self, x):
        """float [T, H] to float32 [T, num_outputs]."""
        return _logits(x, self.output_weights, self.output_bias)


class Transform(BertLayer):
    """Dense layer and LayerNorm before the masked-token logits."""

    def __init__(self, config, random_seed, name="transform"):
        super().__init__(config, random_seed, name)
        self.dense = Dense(
            config, random_seed, "dense", config.hidden_size, config.hidden_act
        )
        self.layer_norm = LayerNorm(config, random_seed, "LayerNorm")

    def build(self, input_shape=None):
        """Creates both."""
        self.dense.build((None, self.config.hidden_size))
        self.layer_norm.build((None, self.config.hidden_size))

    def call(self, x):
        """float [T, H] to [T, H]."""
        return self.layer_norm(self.dense(x))


class Predictions(BertLayer):
    """The masked language model's head (Devlin et al. 2019, section 3.1)."""

    def __init__(self, config, random_seed, name="predictions"):
        super().__init__(config, random_seed, name)
        self.transform = Transform(config, random_seed)

    def build(self, input_shape=None):
        """Creates the transform and the bias; the kernel is the word table."""
        self.transform.build(None)
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.config.vocab_size,),
            initializer="zeros",
        )

    def call(self, x, embedding_table):
        """float [T, H] and [V, H] to float32 logits [T, V]."""
        return _logits(self.transform(x), embedding_table, self.output_bias)


class Heads(BertLayer):
    """The scope `cls` around heads that have a scope of their own."""

    def __init__(self, config, random_seed, heads, name="cls"):
        super().__init__(config, random_seed, name)
        self.heads = heads

    def build(self, input_shape=None):
        """Creates the heads."""
        for head in self.heads:
            head.build(None)


def _logits(x, output_weights, output_bias):
    """float [T, H], [outputs, H] and [outputs] to float32 [T, outputs]."""
    x = tf.matmul(x, output_weights, transpose_b=True)
    return tf.cast(tf.nn.bias_add(x, output_bias), tf.float32)


class _BertTask(keras.Model):
    """A BERT with heads, built on construction so that its variables exist.

    Every task is called with a batch (a dict with int32 [B, S] `input_ids`,
    `input_mask` and `segment_ids`) and the int32 [2] `seed` of the step's
    dropout, None for inference, and returns a dict of float32 tensors.
    """

    def __init__(self, config, name, heads=(), *, random_seed, **bert_options):
        super().__init__(name=name)
        self.config = config
        self.random_seed = random_seed
        self.bert = BertModel(config, random_seed=random_seed, **bert_options)
        self.cls = Heads(config, random_seed, list(heads)) if heads else None
        self.build()

    def build(self, input_shape=None):
        """Creates all variables."""
        self.bert.build(None)
        if self.cls is not None:
            self.cls.build(None)
        self.built = True

    def encode(self, batch, seed, first_token_only=False) -> BertOutputs:
        """Runs BERT on a batch."""
        return self.bert(
            batch["input_ids"],
            batch["input_mask"],
            batch["segment_ids"],
            seed=seed,
            first_token_only=first_token_only,
        )


class BertClassifier(_BertTask):
    """Classes, or one real number, from the pooled output.

    Args:
      config: the `BertConfig`.
      num_labels: number of classes; 1 for regression.
      dropout_prob: probability of dropping a pooled activation. As released it
        does not follow the configuration.
      random_seed: see `BertModel`.
      **bert_options: see `BertModel`.
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        *,
        dropout_prob: float = 0.1,
        random_seed: int = 0,
        **bert_options,
    ):
        self.num_labels = num_labels
        self.dropout_prob = dropout_prob
        super().__init__(
            config,
            "classifier",
            random_seed=random_seed,
            **bert_options,
        )

    def build(self, input_shape=None):
        """Creates all variables; the head's have no scope, as released."""
        self.output_weights = self.add_weight(
            name="output_weights",
            shape=(self.num_labels, self.config.hidden_size),
            initializer=create_initializer(
                self.config, self.random_seed, "output_weights"
            ),
        )
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.num_labels,), initializer="zeros"
        )
        super().build()

    def call(self, batch, seed=None) -> dict[str, tf.Tensor]:
        """Returns `logits` and `probabilities`, both [B, num_labels].

        For a regression the logit is the value and `probabilities` is 1.
        """
        outputs = self.encode(batch, seed, first_token_only=True)
        pooled_output = kernels.dropout(
            outputs.pooled_output,
            self.dropout_prob,
            fold_in(seed, "pooled_output"),
        )
        logits = _logits(pooled_output, self.output_weights, self.output_bias)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}


class BertPretrainer(_BertTask):
    """Masked tokens and next sentence (Devlin et al. 2019, section 3.1)."""

    def __init__(
        self,
        config: BertConfig,
        *,
        random_seed: int = 0,
        **bert_options,
    ):
        self.predictions = Predictions(config, random_seed)
        self.seq_relationship = Projection(
            config, random_seed, "seq_relationship", 2
        )
        super().__init__(
            config,
            "pretrainer",
            [self.predictions, self.seq_relationship],
            random_seed=random_seed,
            **bert_options,
        )

    def call(self, batch, seed=None) -> dict[str, tf.Tensor]:
        """Returns `masked_lm_logits` and `next_sentence_logits`.

        Args:
          batch: also holds int32 [B, P] `masked_lm_positions`.
          seed: int32 [2] or None.

        Returns:
          `masked_lm_logits` [B * P, V] and `next_sentence_logits` [B, 2].
        """
        outputs = self.encode(batch, seed)
        masked = tf.gather(
            outputs.sequence_output,
            batch["masked_lm_positions"],
            batch_dims=1,
        )
        return {
            "masked_lm_logits": self.predictions(
                tf.reshape(masked, [-1, self.config.hidden_size]),
                self.bert.get_embedding_table(),
            ),
            "next_sentence_logits": self.seq_relationship(
                outputs.pooled_output
            ),
        }


class BertSpanModel(_BertTask):
    """Start and end of an answer (Devlin et al. 2019, section 4.2)."""

    def __init__(
        self,
        config: BertConfig,
        *,
        random_seed: int = 0,
        **bert_options,
    ):
        self.squad = Projection(config, random_seed, "squad", 2)
        super().__init__(
            config,
            "span",
            [self.squad],
            random_seed=random_seed,
            **bert_options,
        )
        # Nothing here reads the pooled output: saved, but never trained.
        self.bert.pooler.trainable = False

    def call(self, batch, seed=None) -> dict[str, tf.Tensor]:
        """Returns `start_logits` and `end_logits` [B, S].

        With `remove_padding` the logits of padding are lowered by 10000, so
        that it has no part in the softmax.
        """
        sequence_output = self.encode(batch, seed).sequence_output
        shape = tf.shape(sequence_output)
        logits = self.squad(
            tf.reshape(sequence_output, [-1, self.config.hidden_size])
        )
        logits = tf.reshape(logits, [shape[0], shape[1], 2])
        if self.bert.remove_padding:
            padding = 1.0 - tf.cast(batch["input_mask"], tf.float32)
            logits += padding[:, :, tf.newaxis] * MASKED_SCORE
        start_logits, end_logits = tf.unstack(logits, axis=2)
        return {"start_logits": start_logits, "end_logits": end_logits}


class BertTokenClassifier(_BertTask):
    """A label for every token (Devlin et al. 2019, section 5.3)."""

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        *,
        dropout_prob: float = 0.1,
        random_seed: int = 0,
        **bert_options,
    ):
        self.dropout_prob = dropout_prob
        self.token = Projection(config, random_seed, "token", num_labels)
        super().__init__(
            config,
            "token_classifier",
            [self.token],
            random_seed=random_seed,
            **bert_options,
        )

    def call(self, batch, seed=None) -> dict[str, tf.Tensor]:
        """Returns `logits` [B, S, num_labels]."""
        sequence_output = self.encode(batch, seed).sequence_output
        shape = tf.shape(sequence_output)
        sequence_output = self.token.dropout(
            tf.reshape(sequence_output, [-1, self.config.hidden_size]),
            self.dropout_prob,
            seed,
        )
        logits = self.token(sequence_output)
        return {"logits": tf.reshape(logits, [shape[0], shape[1], -1])}
