"""Tests of the encoder."""

import itertools
import json
import os

import keras
import numpy as np
import numpy_bert
import pytest
import symbolic
import tensorflow as tf

from modeling import BertConfig, BertModel

TESTDATA = os.path.join(os.path.dirname(__file__), "testdata", "model")
SEED = tf.constant([12345, 7])
# Float32 rounding through three layers of numbers near 1; 2e-6 is usual.
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


def config_with(**changes):
    return BertConfig.from_dict({**CONFIG.to_dict(), **changes})


class Root(keras.Model):
    """A model above BERT, whose name is the part of a path that no checkpoint
    has."""

    def __init__(self, config, **bert_options):
        super().__init__(name="root")
        self.bert = BertModel(config, **bert_options)
        self.build()

    def build(self, input_shape=None):
        self.bert.build(None)


def names_of(variables):
    return [v.path.partition("/")[2] for v in variables]


def make_bert(config=CONFIG, weights=None, **options):
    """A BertModel and its float64 weights by name, random if not given."""
    root = Root(config, **options)
    variables = dict(zip(names_of(root.variables), root.variables, strict=True))
    if weights is None:
        weights = numpy_bert.random_weights(
            {name: v.shape for name, v in variables.items()}
        )
    for name, variable in variables.items():
        variable.assign(weights[name])
    return root.bert, weights


def make_batch(config=CONFIG, input_mask=None, seed=0):
    rng = np.random.default_rng(seed)
    if input_mask is None:
        # Full, short, one token, with holes.
        input_mask = np.arange(12) < np.array([12, 7, 1, 10])[:, np.newaxis]
        input_mask[3, 2:5] = False
    input_mask = np.asarray(input_mask, np.int32)
    shape = input_mask.shape
    return {
        "input_ids": rng.integers(config.vocab_size, size=shape, dtype="int32"),
        "input_mask": input_mask,
        "segment_ids": rng.integers(
            config.type_vocab_size, size=shape, dtype="int32"
        ),
    }


def run(bert, batch, **arguments):
    return bert(
        tf.constant(batch["input_ids"]),
        tf.constant(batch["input_mask"]),
        tf.constant(batch["segment_ids"]),
        **arguments,
    )


def is_computed(batch):
    """Where the outputs mean something when padding is removed."""
    return batch["input_mask"] != 0


REMOVE_PADDING = pytest.mark.parametrize("remove_padding", [True, False])


# Numbers.


@REMOVE_PADDING
def test_first_layer_is_that_of_the_release(remove_padding):
    with np.load(os.path.join(TESTDATA, "first_layer.npz")) as recorded:
        recorded = dict(recorded)
    config = BertConfig.from_dict(json.loads(str(recorded["config"])))
    rng = np.random.default_rng(0)
    recorded |= {
        f"bert/pooler/dense/{name}": rng.normal(size=(96,) * rank)
        for name, rank in (("kernel", 2), ("bias", 1))
    }
    bert, _ = make_bert(config, recorded, remove_padding=remove_padding)
    outputs = run(bert, recorded)
    # Every fourth position was kept.
    is_real = recorded["input_mask"][:, ::4] != 0
    np.testing.assert_allclose(
        outputs.embedding_output.numpy()[:2, ::4][is_real[:2]],
        recorded["embedding_output"][is_real[:2]],
        atol=ATOL,
    )
    got = outputs.sequence_output.numpy()[:, ::4]
    wanted = recorded["encoder_layer_0"]
    np.testing.assert_allclose(got[is_real], wanted[is_real], atol=ATOL)
    # No token of row 2 is real: 10000 eats four digits of its scores.
    assert not is_real[2].any()
    np.testing.assert_allclose(got[2], wanted[2], atol=1e-3)


@REMOVE_PADDING
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_act": "relu", "num_hidden_layers": 3, "type_vocab_size": 3},
        {"hidden_act": "linear", "num_attention_heads": 16},
        {"hidden_act": "tanh", "num_attention_heads": 1},
        {"intermediate_size": 5, "hidden_size": 6, "num_hidden_layers": 1},
    ],
)
def test_every_layer_is_that_of_the_paper(remove_padding, changes):
    config = config_with(**changes)
    bert, weights = make_bert(config, remove_padding=remove_padding)
    batch = make_batch(config)
    outputs = run(bert, batch)
    layers, pooled_output = numpy_bert.encode(weights, config, batch)
    got = [outputs.embedding_output, *outputs.all_encoder_layers]
    is_real = is_computed(batch)
    for layer, wanted in zip(got, layers, strict=True):
        np.testing.assert_allclose(
            layer.numpy()[is_real], wanted[is_real], atol=ATOL
        )
    np.testing.assert_allclose(outputs.pooled_output, pooled_output, atol=ATOL)


def test_without_removal_padding_is_computed_too():
    bert, weights = make_bert(remove_padding=False)
    batch = make_batch()
    layers, _ = numpy_bert.encode(weights, CONFIG, batch)
    np.testing.assert_allclose(
        run(bert, batch).sequence_output, layers[-1], atol=ATOL
    )


def test_layer_norm_eps_of_the_configuration_is_used():
    config = config_with(layer_norm_eps=0.5)
    bert, weights = make_bert(config)
    batch = make_batch(config)
    table = "bert/embeddings"
    row = (
        weights[f"{table}/word_embeddings"][batch["input_ids"][0, 0]]
        + weights[f"{table}/token_type_embeddings"][batch["segment_ids"][0, 0]]
        + weights[f"{table}/position_embeddings"][0]
    )
    wanted = numpy_bert.layer_norm(row, weights, f"{table}/LayerNorm", 0.5)
    got = run(bert, batch).embedding_output[0, 0]
    np.testing.assert_allclose(got, wanted, atol=ATOL)


# Masks.

MASKS = {
    "holes": [[1, 0, 1, 1, 0, 0, 1, 0], [1, 1, 0, 1, 0, 0, 0, 0]],
    "position 0 masked": [[0, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0, 0]],
    "all full": [[1] * 8] * 2,
    "one row": [[1, 1, 1, 0, 0, 0, 0, 0]],
    "one token": [[1]],
    "ends early": [[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] * 3,
    # Attention works on groups of sequences of like lengths.
    "many": np.arange(12) < np.array([[3], [12], [1], [7], [7], [2], [9], [5]]),
    "not four groups": np.arange(12)
    < np.array([[3], [12], [1], [7], [7], [2]]),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_removing_padding_changes_no_real_position(mask):
    batch = make_batch(input_mask=mask)
    removed, kept = (
        run(make_bert(remove_padding=remove_padding)[0], batch)
        for remove_padding in (True, False)
    )
    is_real = is_computed(batch)
    np.testing.assert_allclose(
        removed.sequence_output.numpy()[is_real],
        kept.sequence_output.numpy()[is_real],
        atol=ATOL,
    )
    np.testing.assert_allclose(
        removed.pooled_output, kept.pooled_output, atol=ATOL
    )


@REMOVE_PADDING
def test_a_row_without_real_tokens_attends_to_all(remove_padding):
    bert, weights = make_bert(remove_padding=remove_padding)
    batch = make_batch(input_mask=[[0] * 8, [1] * 3 + [0] * 5])
    layers, pooled_output = numpy_bert.encode(weights, CONFIG, batch)
    outputs = run(bert, batch)
    # Beside -10000 a float32 has steps of 1e-3.
    np.testing.assert_allclose(
        outputs.sequence_output[0], layers[-1][0], atol=5e-3
    )
    np.testing.assert_allclose(outputs.pooled_output, pooled_output, atol=5e-3)


@REMOVE_PADDING
def test_what_stands_in_padding_has_no_influence(remove_padding):
    bert, _ = make_bert(remove_padding=remove_padding)
    batch = make_batch()
    is_real = is_computed(batch)
    other = make_batch(seed=1)
    changed = {
        **batch,
        "input_ids": np.where(is_real, batch["input_ids"], other["input_ids"]),
        "segment_ids": np.where(is_real, batch["segment_ids"], 0),
    }
    assert (changed["input_ids"] != batch["input_ids"]).any()
    one, two = run(bert, batch), run(bert, changed)
    # exp(-10000) is 0 exactly.
    np.testing.assert_array_equal(
        one.sequence_output.numpy()[is_real],
        two.sequence_output.numpy()[is_real],
    )
    np.testing.assert_array_equal(one.pooled_output, two.pooled_output)


def test_a_real_token_has_influence_on_the_others():
    bert, _ = make_bert()
    batch = make_batch(input_mask=[[1, 1, 1, 0]])
    changed = {**batch, "input_ids": (batch["input_ids"] + [0, 0, 1, 0]) % 20}
    gap = run(bert, batch).pooled_output - run(bert, changed).pooled_output
    assert np.abs(gap).max() > 1e-2


def test_sequences_do_not_see_each_other():
    bert, _ = make_bert()
    batch = make_batch()
    alone = {name: column[1:2] for name, column in batch.items()}
    np.testing.assert_allclose(
        run(bert, alone).pooled_output,
        run(bert, batch).pooled_output[1:2],
        atol=ATOL,
    )


@REMOVE_PADDING
def test_without_mask_and_types_all_is_real_and_of_type_zero(remove_padding):
    bert, _ = make_bert(remove_padding=remove_padding)
    input_ids = make_batch()["input_ids"]
    wanted = run(
        bert,
        {
            "input_ids": input_ids,
            "input_mask": np.ones_like(input_ids),
            "segment_ids": np.zeros_like(input_ids),
        },
    )
    got = bert(tf.constant(input_ids))
    np.testing.assert_array_equal(got.sequence_output, wanted.sequence_output)


@REMOVE_PADDING
@pytest.mark.parametrize("num_hidden_layers", [1, 2])
def test_first_token_only_gives_the_same_pooled_output(
    remove_padding, num_hidden_layers
):
    config = config_with(num_hidden_layers=num_hidden_layers)
    bert, _ = make_bert(config, remove_padding=remove_padding)
    batch = make_batch()
    first = run(bert, batch, first_token_only=True)
    full = run(bert, batch)
    np.testing.assert_allclose(
        first.pooled_output, full.pooled_output, atol=ATOL
    )
    assert first.sequence_output is None
    assert len(first.all_encoder_layers) == num_hidden_layers - 1


def test_shapes_may_be_unknown_when_traced():
    bert, _ = make_bert()
    batch = make_batch()
    ids = tf.TensorSpec([None, None], tf.int32)
    traced = tf.function(
        lambda *arguments: bert(*arguments).sequence_output,
        input_signature=[ids] * 3,
    )
    np.testing.assert_allclose(
        traced(batch["input_ids"], batch["input_mask"], batch["segment_ids"]),
        run(bert, batch).sequence_output,
        atol=ATOL,
    )


def test_a_sequence_longer_than_the_positions_is_refused():
    bert, _ = make_bert()
    batch = make_batch(input_mask=np.ones([2, 13]))
    with pytest.raises(ValueError, match="13 tokens .* 12 positions"):
        run(bert, batch)


def test_the_embedding_table_is_the_word_table():
    bert, weights = make_bert()
    np.testing.assert_array_equal(
        bert.get_embedding_table(), weights["bert/embeddings/word_embeddings"]
    )


# Gradients.


def gradients_of(batch, **options):
    """Of a sum over all that is computed from real tokens, by name."""
    config = config_with(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    bert, _ = make_bert(config, **options)
    rng = np.random.default_rng(3)
    shape = (*batch["input_ids"].shape, config.hidden_size)
    factors = rng.normal(size=shape) * is_computed(batch)[:, :, np.newaxis]
    with tf.GradientTape() as tape:
        outputs = run(bert, batch, seed=SEED)
        total = tf.reduce_sum(outputs.sequence_output * factors)
        total += tf.reduce_sum(outputs.pooled_output * factors[:, 0])
    gradients = tape.gradient(total, [v.value for v in bert.variables])
    return {
        name: tf.convert_to_tensor(gradient).numpy()
        for name, gradient in zip(
            names_of(bert.variables), gradients, strict=True
        )
    }


@pytest.mark.parametrize(
    ("remove_padding", "fuse"), [(True, False), (True, True), (False, True)]
)
def test_every_variable_has_the_gradient_of_the_plain_model(
    remove_padding, fuse
):
    batch = make_batch(input_mask=MASKS["many"])
    got = gradients_of(batch, remove_padding=remove_padding, fuse=fuse)
    wanted = gradients_of(batch, remove_padding=False, fuse=False)
    assert set(got) == set(wanted)
    for name, gradient in wanted.items():
        # Sums over 46 tokens through two layers in another order. (That of a
        # key's bias is 0: a softmax does not see it.)
        tolerance = 1e-5 * max(1.0, np.abs(gradient).max())
        np.testing.assert_allclose(
            got[name], gradient, rtol=0, atol=tolerance, err_msg=name
        )


def test_gradients_are_those_of_finite_differences_of_the_paper():
    # In float64 the distance can be small; three elements of each variable.
    config = config_with(hidden_dropout_prob=0.0)
    batch = make_batch(input_mask=[[1, 1, 1, 0], [1, 1, 1, 1]])
    bert, weights = make_bert(config)
    factors = np.random.default_rng(3).normal(size=[2, 16])
    with tf.GradientTape() as tape:
        pooled_output = run(bert, batch).pooled_output
        total = tf.reduce_sum(pooled_output * factors)
    gradients = tape.gradient(total, [v.value for v in bert.variables])

    def total64():
        return np.sum(numpy_bert.encode(weights, config, batch)[1] * factors)

    rng = np.random.default_rng(4)
    for name, gradient in zip(names_of(bert.variables), gradients, strict=True):
        gradient = tf.convert_to_tensor(gradient).numpy()
        value = weights[name]
        for _ in range(3):
            index = tuple(rng.integers(value.shape))
            before, ends = value[index], []
            for sign in (1, -1):
                value[index] = before + sign * 1e-5
                ends.append(total64())
            value[index] = before
            slope = (ends[0] - ends[1]) / 2e-5
            # Float32 rounding of gradients near 1.
            assert abs(gradient[index] - slope) < 1e-4, (name, index)


# Dropout.

DROPPING = config_with(
    hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5
)


def test_inference_does_not_drop():
    batch = make_batch()
    outputs = [
        run(make_bert(config)[0], batch).sequence_output
        for config in (
            DROPPING,
            config_with(
                hidden_dropout_prob=None, attention_probs_dropout_prob=None
            ),
        )
    ]
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize("fuse", [True, False])
def test_a_seed_decides_all_masks(fuse):
    bert, _ = make_bert(DROPPING, fuse=fuse)
    batch = make_batch()
    one, again, other = (
        run(bert, batch, seed=tf.constant(seed)).pooled_output.numpy()
        for seed in ([0, 1], [0, 1], [0, 2])
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-2


@pytest.mark.parametrize(
    "rates",
    [
        {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.0},
        {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.5},
    ],
)
def test_each_rate_drops_on_its_own(rates):
    bert, _ = make_bert(config_with(**rates))
    batch = make_batch()
    gap = (
        run(bert, batch, seed=SEED).pooled_output
        - run(bert, batch).pooled_output
    )
    assert np.abs(gap).max() > 1e-2


def test_hidden_dropout_drops_its_share_of_the_embeddings():
    bert, _ = make_bert(config_with(hidden_dropout_prob=0.25))
    input_mask = np.ones([256, 12])
    output = run(bert, make_batch(input_mask=input_mask), seed=SEED)
    share = np.mean(output.embedding_output == 0.0)
    # Five standard deviations of 49,152 coins.
    assert abs(share - 0.25) < 5.0 * np.sqrt(0.25 * 0.75 / (256 * 12 * 16))


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("half", ["attention", "feed-forward"])
def test_hidden_dropout_drops_its_share_of_each_half_of_a_layer(half, fuse):
    bert, _ = make_bert(config_with(hidden_dropout_prob=0.25))
    layer = bert.encoder.transformer_layers[1]
    output_layer = (
        layer.attention if half == "attention" else layer
    ).output_layer
    # All ones, normalised: what was dropped is below the mean of its row.
    output_layer.dense.kernel.assign(0.0 * output_layer.dense.kernel)
    output_layer.dense.bias.assign(np.ones(16))
    output_layer.layer_norm.gamma.assign(np.ones(16))
    output_layer.layer_norm.beta.assign(np.zeros(16))
    x = tf.zeros([3000, output_layer.dense.kernel.shape[0]])
    got = output_layer(x, tf.zeros([3000, 16]), seed=SEED, fuse=fuse)
    share = np.mean(got < -0.5)
    # Five standard deviations of 48,000 coins.
    assert abs(share - 0.25) < 5.0 * np.sqrt(0.25 * 0.75 / 48_000)


@REMOVE_PADDING
@pytest.mark.parametrize("fuse", [True, False])
def test_equal_sequences_get_masks_of_their_own(remove_padding, fuse):
    config = config_with(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5
    )
    bert, _ = make_bert(config, remove_padding=remove_padding, fuse=fuse)
    row = make_batch(input_mask=[[1] * 12])
    batch = {name: np.repeat(column, 8, 0) for name, column in row.items()}
    pooled_output = run(bert, batch, seed=SEED).pooled_output.numpy()
    for one, two in itertools.combinations(pooled_output, 2):
        assert np.abs(one - two).max() > 1e-3


def test_no_two_layers_that_drop_share_a_seed():
    bert, _ = make_bert(config_with(num_hidden_layers=12))
    layers = [bert.embeddings]
    for layer in bert.encoder.transformer_layers:
        layers += [
            layer.attention.self_attention,
            layer.attention.output_layer,
            layer.output_layer,
        ]
    seeds = {tuple(layer.fold_in(SEED).numpy()) for layer in layers}
    assert len(seeds) == 1 + 3 * 12


def test_a_layer_has_another_seed_at_every_step():
    layer = make_bert()[0].embeddings
    seeds = [layer.fold_in(tf.constant([1, step])) for step in range(100)]
    assert len({tuple(seed.numpy()) for seed in seeds}) == 100


# Initial weights.


def initial_weights(random_seed):
    root = Root(CONFIG, random_seed=random_seed)
    names = names_of(root.variables)
    return {
        name: v.numpy() for name, v in zip(names, root.variables, strict=True)
    }


def is_drawn(name):
    return name.endswith(("kernel", "embeddings"))


def test_same_random_seed_gives_the_same_weights():
    one, two = initial_weights(5), initial_weights(5)
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name])


def test_another_random_seed_gives_other_weights():
    one, two = initial_weights(5), initial_weights(6)
    assert not [n for n in one if is_drawn(n) and (one[n] == two[n]).any()]


def test_weights_of_different_variables_are_unrelated():
    weights = initial_weights(5)
    shape = (16, 16)
    drawn = [w for n, w in weights.items() if is_drawn(n) and w.shape == shape]
    assert len(drawn) == 2 * 4 + 1
    correlations = np.corrcoef([value.ravel() for value in drawn])
    # 36 pairs of 256 numbers: 4.5 standard deviations of 1 / 16.
    assert np.abs(correlations - np.eye(9)).max() < 4.5 / 16.0


def test_kernels_are_drawn_from_a_truncated_normal():
    config = config_with(vocab_size=4000, initializer_range=0.05)
    table = Root(config).bert.get_embedding_table().numpy() / 0.05
    assert np.abs(table).max() <= 2.0
    # Of a normal cut off at two standard deviations the released initializer
    # keeps 0.8796; five standard errors of 64,000 draws.
    assert abs(table.std() - 0.8796) < 5.0 * 0.8796 / np.sqrt(2.0 * 64_000)
    assert abs(table.mean()) < 5.0 * 0.8796 / np.sqrt(64_000)


def test_biases_start_at_zero_and_gammas_at_one():
    weights = initial_weights(5)
    for name, value in weights.items():
        if not is_drawn(name):
            wanted = 1.0 if name.endswith("gamma") else 0.0
            np.testing.assert_array_equal(value, wanted)


# Names and sizes.


def test_chinese_base_has_the_released_variables():
    with open(
        os.path.join(TESTDATA, "bert_base_chinese_variables.json"),
        encoding="utf-8",
    ) as reader:
        released = json.load(reader)
    wanted = {
        name: tuple(shape)
        for name, shape in released.items()
        if name.startswith("bert/")
    }
    config = BertConfig(CHINESE, type_vocab_size=2)
    assert symbolic.shapes_of(lambda: Root(config)) == wanted


# Published size, (vocab_size, hidden_size, num_hidden_layers): parameters of
# BertModel. The 24 small models are those of Turc et al. 2019.
UNCASED, CASED, CHINESE = 30522, 28996, 21128
MULTILINGUAL_CASED, MULTILINGUAL_UNCASED = 119547, 105879
PARAMETER_COUNTS = {
    (UNCASED, 128, 2): 4_385_920,
    (UNCASED, 128, 4): 4_782_464,
    (UNCASED, 128, 6): 5_179_008,
    (UNCASED, 128, 8): 5_575_552,
    (UNCASED, 128, 10): 5_972_096,
    (UNCASED, 128, 12): 6_368_640,
    (UNCASED, 256, 2): 9_591_040,
    (UNCASED, 256, 4): 11_170_560,
    (UNCASED, 256, 6): 12_750_080,
    (UNCASED, 256, 8): 14_329_600,
    (UNCASED, 256, 10): 15_909_120,
    (UNCASED, 256, 12): 17_488_640,
    (UNCASED, 512, 2): 22_458_880,
    (UNCASED, 512, 4): 28_763_648,
    (UNCASED, 512, 6): 35_068_416,
    (UNCASED, 512, 8): 41_373_184,
    (UNCASED, 512, 10): 47_677_952,
    (UNCASED, 512, 12): 53_982_720,
    (UNCASED, 768, 2): 38_603_520,
    (UNCASED, 768, 4): 52_779_264,
    (UNCASED, 768, 6): 66_955_008,
    (UNCASED, 768, 8): 81_130_752,
    (UNCASED, 768, 10): 95_306_496,
    (UNCASED, 768, 12): 109_482_240,
    (CASED, 768, 12): 108_310_272,
    (UNCASED, 1024, 24): 335_141_888,
    (CASED, 1024, 24): 333_579_264,
    (CHINESE, 768, 12): 102_267_648,
    (MULTILINGUAL_CASED, 768, 12): 177_853_440,
    (MULTILINGUAL_UNCASED, 768, 12): 167_356_416,
}


@pytest.mark.parametrize(("size", "count"), PARAMETER_COUNTS.items())
def test_published_sizes_have_their_number_of_parameters(size, count):
    vocab_size, hidden_size, num_hidden_layers = size
    config = BertConfig(
        vocab_size,
        hidden_size,
        num_hidden_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        type_vocab_size=2,
    )
    shapes = symbolic.shapes_of(lambda: Root(config))
    assert sum(map(np.prod, shapes.values())) == count


def test_the_table_agrees_with_the_sum_of_the_parts():
    for (vocab_size, width, num_layers), count in PARAMETER_COUNTS.items():
        tables = (vocab_size + 512 + 2) * width
        norm = 2 * width
        square = width * width + width
        feed_forward = 8 * width * width + 4 * width + width
        layer = 4 * square + feed_forward + 2 * norm
        assert count == tables + norm + num_layers * layer + square
