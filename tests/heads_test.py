"""Tests of the tasks: BERT with its heads."""

import json
import os

import numpy as np
import numpy_bert
import pytest
import symbolic
import tensorflow as tf

import checkpoint
import heads
from modeling import BertConfig

TESTDATA = os.path.join(os.path.dirname(__file__), "testdata")
SEED = tf.constant([12345, 7])
# Float32 rounding through two layers of numbers near 1.
ATOL = 2e-5

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=12,
    type_vocab_size=2,
)
# Task: the model's class, and the size of its head if it has a choice.
TASKS = {
    "classifier": (heads.BertClassifier, 3),
    "pretrainer": (heads.BertPretrainer,),
    "span": (heads.BertSpanModel,),
    "token": (heads.BertTokenClassifier, 5),
}


def build(task, config=CONFIG, **options):
    model_class, *num_labels = TASKS[task]
    return model_class(config, *num_labels, **options)


def variables_of(model):
    """By name on disk: the path without the model's own name."""
    return {v.path.partition("/")[2]: v for v in model.variables}


def shapes_of(model):
    return {name: tuple(v.shape) for name, v in variables_of(model).items()}


def make(task, config=CONFIG, **options):
    """A model with random weights, and those in float64."""
    model = build(task, config, **options)
    weights = numpy_bert.random_weights(shapes_of(model))
    assign(model, weights)
    return model, weights


def assign(model, weights):
    for name, variable in variables_of(model).items():
        variable.assign(weights[name])


def make_batch():
    rng = np.random.default_rng(0)
    mask = np.arange(12) < np.array([12, 7, 4])[:, np.newaxis]
    return {
        "input_ids": rng.integers(20, size=(3, 12), dtype=np.int32),
        "input_mask": mask.astype(np.int32),
        "segment_ids": rng.integers(2, size=(3, 12), dtype=np.int32),
        "masked_lm_positions": np.array(
            [[1, 11, 5], [6, 2, 0], [3, 0, 0]], np.int32
        ),
    }


def as_tensors(batch):
    return {name: tf.constant(column) for name, column in batch.items()}


REMOVE_PADDING = pytest.mark.parametrize("remove_padding", [True, False])


# Names.


def names_of_layer(number):
    scope = f"bert/encoder/layer_{number}"
    denses = [
        f"{scope}/attention/self/{part}" for part in ("query", "key", "value")
    ]
    denses += [
        f"{scope}/{half}"
        for half in ("attention/output/dense", "intermediate/dense")
    ]
    denses.append(f"{scope}/output/dense")
    norms = [
        f"{scope}/{half}/LayerNorm" for half in ("attention/output", "output")
    ]
    return [f"{d}/{v}" for d in denses for v in ("kernel", "bias")] + [
        f"{n}/{v}" for n in norms for v in ("beta", "gamma")
    ]


NAMES_OF_BERT = [
    "bert/embeddings/word_embeddings",
    "bert/embeddings/token_type_embeddings",
    "bert/embeddings/position_embeddings",
    "bert/embeddings/LayerNorm/beta",
    "bert/embeddings/LayerNorm/gamma",
    *names_of_layer(0),
    *names_of_layer(1),
    "bert/pooler/dense/kernel",
    "bert/pooler/dense/bias",
]
SHAPES_OF_HEADS = {
    "classifier": {"output_weights": (3, 16), "output_bias": (3,)},
    "pretrainer": {
        "cls/predictions/transform/dense/kernel": (16, 16),
        "cls/predictions/transform/dense/bias": (16,),
        "cls/predictions/transform/LayerNorm/beta": (16,),
        "cls/predictions/transform/LayerNorm/gamma": (16,),
        "cls/predictions/output_bias": (20,),
        "cls/seq_relationship/output_weights": (2, 16),
        "cls/seq_relationship/output_bias": (2,),
    },
    "span": {
        "cls/squad/output_weights": (2, 16),
        "cls/squad/output_bias": (2,),
    },
    "token": {
        "cls/token/output_weights": (5, 16),
        "cls/token/output_bias": (5,),
    },
}


@pytest.mark.parametrize("task", TASKS)
def test_variables_have_the_released_names(task):
    model = build(task)
    wanted = sorted([*NAMES_OF_BERT, *SHAPES_OF_HEADS[task]])
    # A list: no variable may be there twice.
    assert sorted(v.path.partition("/")[2] for v in model.variables) == wanted


@pytest.mark.parametrize("task", TASKS)
def test_variables_of_the_head_have_the_released_shapes(task):
    shapes = shapes_of(build(task))
    got = {name: shapes[name] for name in SHAPES_OF_HEADS[task]}
    assert got == SHAPES_OF_HEADS[task]


@pytest.mark.parametrize("task", TASKS)
def test_a_second_model_of_a_process_has_the_same_names(task):
    assert shapes_of(build(task)) == shapes_of(build(task))


def test_the_pretrainer_has_the_variables_of_a_released_checkpoint():
    with open(
        os.path.join(TESTDATA, "model", "bert_base_chinese_variables.json"),
        encoding="utf-8",
    ) as reader:
        released = {n: tuple(shape) for n, shape in json.load(reader).items()}
    config = BertConfig(21128, type_vocab_size=2)
    shapes = symbolic.shapes_of(lambda: heads.BertPretrainer(config))
    assert shapes == released


@pytest.mark.parametrize("task", ["classifier", "pretrainer", "token"])
def test_all_variables_are_trained(task):
    model = build(task)
    assert len(model.trainable_variables) == len(model.variables)


def test_the_span_model_saves_the_pooler_but_does_not_train_it():
    model = build("span")
    trained = {v.path for v in model.trainable_variables}
    frozen = [
        n for n, v in variables_of(model).items() if v.path not in trained
    ]
    assert sorted(frozen) == [
        "bert/pooler/dense/bias",
        "bert/pooler/dense/kernel",
    ]


def test_the_seed_decides_the_initial_head():
    one, same, other = (
        build("classifier", random_seed=seed).output_weights.numpy()
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).all()


# Numbers.


@REMOVE_PADDING
def test_classifier_logits_are_linear_in_the_pooled_output(remove_padding):
    model, weights = make("classifier", remove_padding=remove_padding)
    batch = make_batch()
    _, pooled_output = numpy_bert.encode(weights, CONFIG, batch)
    wanted = (
        pooled_output @ weights["output_weights"].T + weights["output_bias"]
    )
    got = model(as_tensors(batch))["logits"]
    np.testing.assert_allclose(got, wanted, atol=ATOL)


@REMOVE_PADDING
def test_pretrainer_predicts_masked_tokens_and_next_sentence(remove_padding):
    model, weights = make("pretrainer", remove_padding=remove_padding)
    batch = make_batch()
    layers, pooled_output = numpy_bert.encode(weights, CONFIG, batch)
    positions = batch["masked_lm_positions"]
    masked = layers[-1][np.arange(3)[:, np.newaxis], positions].reshape(9, 16)
    scope = "cls/predictions"
    x = numpy_bert.dense(masked, weights, f"{scope}/transform/dense")
    x = numpy_bert.ACTIVATIONS["gelu"](x)
    x = numpy_bert.layer_norm(x, weights, f"{scope}/transform/LayerNorm")
    table = weights["bert/embeddings/word_embeddings"]
    wanted = x @ table.T + weights[f"{scope}/output_bias"]
    outputs = model(as_tensors(batch))
    np.testing.assert_allclose(outputs["masked_lm_logits"], wanted, atol=ATOL)
    scope = "cls/seq_relationship"
    np.testing.assert_allclose(
        outputs["next_sentence_logits"],
        pooled_output @ weights[f"{scope}/output_weights"].T
        + weights[f"{scope}/output_bias"],
        atol=ATOL,
    )


def linear_of_sequence(weights, scope, batch):
    layers, _ = numpy_bert.encode(weights, CONFIG, batch)
    return (
        layers[-1] @ weights[f"{scope}/output_weights"].T
        + weights[f"{scope}/output_bias"]
    )


@REMOVE_PADDING
def test_span_logits_are_linear_in_the_sequence_output(remove_padding):
    model, weights = make("span", remove_padding=remove_padding)
    batch = make_batch()
    wanted = linear_of_sequence(weights, "cls/squad", batch)
    is_real = batch["input_mask"] != 0
    outputs = model(as_tensors(batch))
    for i, name in enumerate(("start_logits", "end_logits")):
        np.testing.assert_allclose(
            outputs[name].numpy()[is_real],
            wanted[:, :, i][is_real],
            atol=ATOL,
        )


def test_padding_has_no_part_in_a_span():
    model, _ = make("span", remove_padding=True)
    batch = make_batch()
    outputs = model(as_tensors(batch))
    for logits in outputs.values():
        probabilities = tf.nn.softmax(logits).numpy()
        assert (probabilities[batch["input_mask"] == 0] == 0.0).all()


def test_padding_has_a_part_in_a_span_as_released():
    model, weights = make("span", remove_padding=False)
    batch = make_batch()
    wanted = linear_of_sequence(weights, "cls/squad", batch)
    got = model(as_tensors(batch))["start_logits"]
    np.testing.assert_allclose(got, wanted[:, :, 0], atol=ATOL)


@REMOVE_PADDING
def test_token_logits_are_linear_in_the_sequence_output(remove_padding):
    model, weights = make("token", remove_padding=remove_padding)
    batch = make_batch()
    wanted = linear_of_sequence(weights, "cls/token", batch)
    is_real = batch["input_mask"] != 0
    got = model(as_tensors(batch))["logits"].numpy()
    np.testing.assert_allclose(got[is_real], wanted[is_real], atol=ATOL)


@pytest.mark.parametrize("task", TASKS)
def test_logits_are_float32_and_finite(task):
    outputs = make(task)[0](as_tensors(make_batch()))
    for logits in outputs.values():
        assert logits.dtype == tf.float32
        assert np.isfinite(logits).all()


# Dropout.


@pytest.mark.parametrize("task", ["classifier", "token"])
def test_the_head_drops_whatever_the_configuration_says(task):
    # As released: 0.1 of the pooled output, even where BERT drops nothing.
    config = BertConfig.from_dict(
        {
            **CONFIG.to_dict(),
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
    )
    model, _ = make(task, config)
    batch = as_tensors(make_batch())
    gap = model(batch, seed=SEED)["logits"] - model(batch)["logits"]
    assert np.abs(gap).max() > 1e-2


@pytest.mark.parametrize("task", TASKS)
def test_inference_does_not_drop(task):
    model, _ = make(task)
    batch = as_tensors(make_batch())
    tf.nest.map_structure(
        np.testing.assert_array_equal, model(batch), model(batch)
    )


# As recorded from the release: testdata/train. All dropout is off.


def recorded(name):
    path = os.path.join(TESTDATA, "train", "recorded.json")
    with open(path, encoding="utf-8") as reader:
        return json.load(reader)[name]


def released_model(task):
    path = os.path.join(TESTDATA, "train", "bert_config.json")
    config = BertConfig.from_json_file(path)
    if task == "pretrainer":
        model = heads.BertPretrainer(config)
    else:
        model = heads.BertClassifier(config, 3, dropout_prob=0.0)
    prefix = os.path.join(TESTDATA, "train", "bert_model.ckpt")
    assign(model, checkpoint.read(prefix, list(variables_of(model))))
    return model


def first_batch(file_name):
    """The first eight records, as the names and lists they consist of."""
    path = os.path.join(TESTDATA, "train", file_name)
    rows = [
        {
            name: entry.int64_list.value or entry.float_list.value
            for name, entry in tf.train.Example.FromString(
                record
            ).features.feature.items()
        }
        for record in tf.data.TFRecordDataset(path).take(8).as_numpy_iterator()
    ]
    batch = {
        name: np.array([list(row[name]) for row in rows]) for name in rows[0]
    }
    return {
        name: tf.constant(
            column, tf.float32 if column.dtype.kind == "f" else tf.int32
        )
        for name, column in batch.items()
    }


def assert_gradients_as_recorded(model, gradients, wanted):
    names = [v.path.partition("/")[2] for v in model.trainable_variables]
    assert set(names) == set(wanted)
    for name, gradient in zip(names, gradients, strict=True):
        gradient = tf.convert_to_tensor(gradient).numpy().astype(np.float64)
        norm, total = wanted[name]["l2"], wanted[name]["sum"]
        # Rounding of backward passes by different kernels; a sum of n numbers
        # is less sure than their norm by a root of n. (That of a key's bias is
        # 0, and its record rounding.)
        tolerance = 1e-4 * norm + 1e-5
        assert abs(np.linalg.norm(gradient) - norm) < tolerance, name
        assert abs(gradient.sum() - total) < tolerance * np.sqrt(
            gradient.size
        ), name


@pytest.mark.parametrize("seed", [None, SEED], ids=["plain", "fused"])
def test_pretraining_gradients_are_those_of_the_release(seed):
    model = released_model("pretrainer")
    batch = first_batch("pretrain_first_batch.tfrecord")
    wanted = recorded("pretrain_gather")
    with tf.GradientTape() as tape:
        outputs = model(batch, seed=seed)
        per_token = tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.reshape(batch["masked_lm_ids"], [-1]),
            outputs["masked_lm_logits"],
        )
        weights = tf.reshape(batch["masked_lm_weights"], [-1])
        masked_lm_loss = tf.reduce_sum(per_token * weights) / (
            tf.reduce_sum(weights) + 1e-5
        )
        next_sentence_loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                batch["next_sentence_labels"][:, 0],
                outputs["next_sentence_logits"],
            )
        )
        total_loss = masked_lm_loss + next_sentence_loss
    np.testing.assert_allclose(
        [masked_lm_loss, next_sentence_loss],
        wanted["masked_lm_loss"] + wanted["next_sentence_loss"],
        rtol=1e-5,
    )
    gradients = tape.gradient(
        total_loss, [v.value for v in model.trainable_variables]
    )
    assert_gradients_as_recorded(model, gradients, wanted["step0_grads"])


@pytest.mark.parametrize("seed", [None, SEED], ids=["plain", "fused"])
def test_classifier_gradients_are_those_of_the_release(seed):
    model = released_model("classifier")
    batch = first_batch("classifier.tfrecord")
    wanted = recorded("classifier_onehot")
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                batch["label_ids"][:, 0], model(batch, seed=seed)["logits"]
            )
        )
    np.testing.assert_allclose(loss, wanted["total_loss"][0], rtol=1e-5)
    gradients = tape.gradient(
        loss, [v.value for v in model.trainable_variables]
    )
    assert_gradients_as_recorded(model, gradients, wanted["step0_grads"])
