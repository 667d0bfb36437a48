"""Losses as weighted sums over a batch: {name: (sum, weight)}.

Only training.py divides, after adding sums and weights over micro-batches and
replicas, so a loss of several parts is the same however a batch is cut. The
weights depend on the batch alone and come from functions of their own: they
are added up before the first backward pass. Rows of padding weigh nothing.
"""

from collections.abc import Mapping

import tensorflow as tf

Batch = Mapping[str, tf.Tensor]
WeightedSums = dict[str, tuple[tf.Tensor, tf.Tensor]]


def classifier_loss_weights(batch: Batch) -> dict[str, tf.Tensor]:
    """Returns {"loss": number of real examples}, float32 [].

    Args:
      batch: holds `is_real_example`, int32 [B].
    """
    return {"loss": tf.reduce_sum(tf.cast(batch["is_real_example"], "float32"))}


def classifier_example_loss(
    outputs: Mapping[str, tf.Tensor], batch: Batch
) -> tf.Tensor:
    """Returns the loss of each example, float32 [B].

    Cross entropy for integer labels, squared error for real ones.

    Args:
      outputs: holds `logits`, float32 [B, num_labels].
      batch: holds `label_ids`, int32 or float32 [B].
    """
    logits, labels = outputs["logits"], batch["label_ids"]
    if labels.dtype.is_floating:
        return tf.square(logits[:, 0] - labels)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def classifier_loss(
    outputs: Mapping[str, tf.Tensor], batch: Batch
) -> WeightedSums:
    """Returns {"loss": (sum over real examples, their number)}, float32 [].

    Args:
      outputs: holds `logits`, float32 [B, num_labels].
      batch: holds `label_ids` and `is_real_example`, [B].
    """
    is_real = tf.cast(batch["is_real_example"], tf.float32)
    example_loss = classifier_example_loss(outputs, batch)
    weights = classifier_loss_weights(batch)
    return {"loss": (tf.reduce_sum(example_loss * is_real), weights["loss"])}
