"""Trains the same model on one and on two devices and prints the difference.

Usage: python tests/two_replicas.py DIRECTORY
"""

import json
import sys

import numpy as np
import tensorflow as tf

import checkpoint
import heads
import input_pipeline
import losses
import modeling
import optimization
import training

LENGTH = 8
SPEC = {
    **{
        name: ((LENGTH,), "int32")
        for name in ("input_ids", "input_mask", "segment_ids")
    },
    "label_ids": ((), "int32"),
    "is_real_example": ((), "int32"),
}
CONFIG = modeling.BertConfig(
    vocab_size=30,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=LENGTH,
    type_vocab_size=2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def write_records(path: str) -> None:
    """Writes 24 texts of any length; a quarter of them weigh nothing."""
    generator = np.random.default_rng(1)
    features = []
    for i in range(24):
        num_tokens = generator.integers(1, LENGTH + 1)
        mask = (np.arange(LENGTH) < num_tokens).astype(np.int32)
        features.append(
            {
                "input_ids": generator.integers(0, 30, LENGTH) * mask,
                "input_mask": mask,
                "segment_ids": 0 * mask,
                "label_ids": i % 3,
                "is_real_example": int(i % 4 > 0),
            }
        )
    input_pipeline.write_records(path, features, SPEC)


def final_values(
    strategy: tf.distribute.Strategy, path: str, output_dir: str
) -> dict[str, np.ndarray]:
    """Trains for six steps; returns weights and slots."""
    with strategy.scope():
        model = heads.BertClassifier(CONFIG, 3, dropout_prob=0.0)
    training.train(
        model,
        optimization.create_optimizer(1e-3, 6, 1),
        losses.classifier_loss,
        input_pipeline.train_dataset(
            input_pipeline.Records([path]), SPEC, 8, 1
        ),
        loss_weights_fn=losses.classifier_loss_weights,
        num_train_steps=6,
        output_dir=output_dir,
        batch_size=8,
        strategy=strategy,
    )
    return checkpoint.read(checkpoint.latest_checkpoint(output_dir))


def main(directory: str) -> None:
    """Compares one device with two."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    path = f"{directory}/train.tf_record"
    write_records(path)
    one = final_values(tf.distribute.get_strategy(), path, f"{directory}/1")
    two = final_values(
        tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        path,
        f"{directory}/2",
    )
    differences = [np.max(np.abs(one[name] - two[name])) for name in one]
    print(json.dumps({"largest_difference": float(max(differences))}))


if __name__ == "__main__":
    main(sys.argv[1])
