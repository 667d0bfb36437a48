"""Tests of the schedule and of Adam with weight decay."""

import functools
import json
import os

import numpy as np
import pytest
import tensorflow as tf

import checkpoint
import heads
import input_pipeline
import losses
import optimization
import training
from bert_config import BertConfig

# Recorded from the release, see testdata/README.md.
TESTDATA = os.path.join(os.path.dirname(__file__), "testdata")


def load(name):
    with np.load(os.path.join(TESTDATA, "optimizer", f"{name}.npz")) as data:
        return dict(data)


# The learning rate.

# Peak 8, 10 steps in all, 4 of warm-up. As released the first step has rate 0,
# and decay counts from step 0: 8 * (1 - 4 / 10) after warm-up, not 8.
RATES = [0.0, 2.0, 4.0, 6.0, 4.8, 4.0, 3.2, 2.4, 1.6, 0.8, 0.0, 0.0, 0.0]
RATES_WITHOUT_WARMUP = [8.0, 7.2, 6.4, 5.6, *RATES[4:]]


@pytest.mark.parametrize(
    ("num_warmup_steps", "wanted"), [(4, RATES), (0, RATES_WITHOUT_WARMUP)]
)
def test_rate_warms_up_and_falls_to_zero(num_warmup_steps, wanted):
    got = [
        optimization.learning_rate_at(
            tf.constant(step, tf.int64),
            init_lr=8.0,
            num_train_steps=10,
            num_warmup_steps=num_warmup_steps,
        )
        for step in range(13)
    ]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["main", "name_rules"])
def test_rate_is_that_of_the_release(name):
    recorded = load(name)
    arguments = json.loads(str(recorded["arguments"]))
    optimizer = optimization.create_optimizer(**arguments)
    got = [optimizer.learning_rate(tf.constant(step)) for step in range(28)]
    np.testing.assert_allclose(
        got, recorded["learning_rate"], rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize(
    "arguments", [(1e-3, 0, 0), (1e-3, 10, -1), (-1e-3, 10, 0), (np.nan, 10, 0)]
)
def test_numbers_no_run_can_have_are_refused(arguments):
    with pytest.raises(ValueError, match="Training needs at least 1 step"):
        optimization.create_optimizer(*arguments)


# The update.


def make(initial, **options):
    """Optimizer with rate 0.1 and variables, ready to run."""
    options.setdefault("clip_norm", 1e9)
    optimizer = optimization.AdamWeightDecayOptimizer(
        lambda step: tf.constant(0.1), **options
    )
    variables = {
        name: tf.Variable(np.float32(value)) for name, value in initial.items()
    }
    optimizer.build(variables)
    return optimizer, variables


def state_of(optimizer, variables):
    return {
        name: variable.numpy()
        for name, variable in [*variables.items(), *optimizer.slots.items()]
    }


STEP = tf.constant(0, tf.int64)
KERNEL = "bert/pooler/dense/kernel"
BIAS = "bert/pooler/dense/bias"
INITIAL = {KERNEL: [[1.0, -2.0], [0.5, 0.0]], BIAS: [3.0, -4.0]}


def some_gradients(seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: tf.constant(rng.normal(size=np.shape(value)).astype(np.float32))
        for name, value in INITIAL.items()
    }


@pytest.mark.parametrize("name", ["main", "name_rules"])
def test_every_step_is_that_of_the_release(name):
    # Clipped and unclipped steps, gradients 10,000 times too large in step 12,
    # steps past the end; in name_rules, names that look like excluded ones.
    recorded = load(name)
    optimizer = optimization.create_optimizer(
        **json.loads(str(recorded["arguments"]))
    )
    keys = {
        key.removeprefix("init__").replace("__", "/"): key.removeprefix("init")
        for key in recorded
        if key.startswith("init__")
    }
    variables = {
        name: tf.Variable(recorded[f"init{key}"]) for name, key in keys.items()
    }
    optimizer.build(variables)
    apply = tf.function(functools.partial(optimizer.apply, variables))
    for step in range(28):
        gradients = {
            n: recorded[f"grads{key}"][step] for n, key in keys.items()
        }
        _, norm = apply(gradients, tf.constant(step, tf.int64))
        np.testing.assert_allclose(norm, recorded["grad_norm"][step], rtol=1e-6)
        state = state_of(optimizer, variables)
        for name, key in keys.items():
            for kind, suffix in (
                ("values", ""),
                ("m", "/adam_m"),
                ("v", "/adam_v"),
            ):
                # Float32 rounding of 28 updates of numbers near 1.
                np.testing.assert_allclose(
                    state[name + suffix],
                    recorded[f"{kind}{key}"][step],
                    rtol=1e-5,
                    atol=2e-6,
                    err_msg=f"{name} {kind} {step}",
                )


def test_minimises_what_the_test_of_the_release_minimised():
    optimizer = optimization.AdamWeightDecayOptimizer(
        lambda step: tf.constant(0.2), weight_decay_rate=0.0
    )
    variables = {"w": tf.Variable([0.1, -0.2, -0.1])}
    optimizer.build(variables)

    @tf.function
    def minimise():
        distance = variables["w"] - tf.constant([0.4, 0.2, -0.5])
        optimizer.apply(variables, {"w": distance * (2.0 / 3.0)}, STEP)
        return tf.identity(variables["w"])

    got = [minimise().numpy() for _ in range(100)]
    # Rounding grows near the minimum, where a ratio of small numbers decides.
    np.testing.assert_allclose(got, load("optimization_test")["w"], atol=1e-4)


def numpy_steps(num_steps, *, clip_norm):
    """The released update in float64, as its docstring says it."""
    state = {name: np.array(value) for name, value in INITIAL.items()}
    moments = {name: [0.0, 0.0] for name in INITIAL}
    for seed in range(num_steps):
        gradients = {n: np.float64(g) for n, g in some_gradients(seed).items()}
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        for name, gradient in gradients.items():
            gradient = gradient * min(1.0, clip_norm / norm)
            m, v = moments[name]
            m = 0.9 * m + 0.1 * gradient
            v = 0.999 * v + 0.001 * gradient**2
            moments[name] = [m, v]
            ratio = m / (np.sqrt(v) + 1e-6)
            if name == KERNEL:
                ratio = ratio + 0.01 * state[name]
            state[name] = state[name] - 0.1 * ratio
    return state, moments


@pytest.mark.parametrize("clip_norm", [0.5, 1e9])
def test_update_is_the_formula(clip_norm):
    optimizer, variables = make(INITIAL, clip_norm=clip_norm)
    apply = tf.function(functools.partial(optimizer.apply, variables))
    for seed in range(5):
        apply(some_gradients(seed), STEP)
    values, moments = numpy_steps(5, clip_norm=clip_norm)
    state = state_of(optimizer, variables)
    for name in INITIAL:
        wanted = [values[name], *moments[name]]
        slots = [name, f"{name}/adam_m", f"{name}/adam_v"]
        for slot, value in zip(slots, wanted, strict=True):
            np.testing.assert_allclose(state[slot], value, rtol=1e-4, atol=1e-6)


def test_clipping_leaves_gradients_below_the_norm_alone():
    # To the bit: the scale is 1, not 0.99999994.
    states = []
    for clip_norm in (10.0, 1e9):
        optimizer, variables = make(INITIAL, clip_norm=clip_norm)
        optimizer.apply(variables, some_gradients(), STEP)
        states.append(state_of(optimizer, variables))
    tf.nest.map_structure(np.testing.assert_array_equal, *states)


def test_returned_norm_is_that_before_clipping():
    optimizer, variables = make(INITIAL, clip_norm=0.5)
    gradients = {KERNEL: tf.fill([2, 2], 2.0), BIAS: tf.constant([0.0, 3.0])}
    is_finite, norm = optimizer.apply(variables, gradients, STEP)
    assert (bool(is_finite), float(norm)) == (True, 5.0)


def test_extra_squares_count_in_the_norm_alone():
    optimizer, variables = make({BIAS: [0.0, 0.0]}, clip_norm=1.0)
    gradients = {BIAS: tf.constant([0.0, 3.0])}
    _, norm = optimizer.apply(
        variables, gradients, STEP, extra_squared_norm=tf.constant(16.0)
    )
    assert float(norm) == 5.0
    # 0.1 of a gradient of 3 / 5.
    np.testing.assert_allclose(
        optimizer.slots[f"{BIAS}/adam_m"], [0.0, 0.06], rtol=1e-6
    )


def test_elements_without_gradient_move_by_momentum_and_decay():
    optimizer, variables = make({KERNEL: [1.0, 1.0]})
    optimizer.apply(variables, {KERNEL: tf.constant([1.0, 0.0])}, STEP)
    before = variables[KERNEL].numpy()
    optimizer.apply(variables, {KERNEL: tf.constant([0.0, 0.0])}, STEP)
    moved = before - variables[KERNEL].numpy()
    # The second has decay alone: 0.1 * 0.01 of 0.999.
    assert moved[0] > 0.1
    np.testing.assert_allclose(moved[1], 0.001 * before[1], rtol=1e-3)


@pytest.mark.parametrize("given", [{}, {BIAS: None}])
def test_a_variable_without_gradient_is_left_alone(given):
    optimizer, variables = make(INITIAL)
    before = state_of(optimizer, variables)
    gradients = {KERNEL: some_gradients()[KERNEL], **given}
    optimizer.apply(variables, gradients, STEP)
    after = state_of(optimizer, variables)
    changed = {n for n in before if (after[n] != before[n]).any()}
    assert changed == {KERNEL, f"{KERNEL}/adam_m", f"{KERNEL}/adam_v"}


@pytest.mark.parametrize(
    ("bad", "is_finite"),
    [(np.nan, True), (np.inf, True), (-np.inf, True), (1e30, True), (1, False)],
    ids=["nan", "inf", "-inf", "square overflows", "loss"],
)
def test_what_is_not_finite_changes_no_bit(bad, is_finite):
    optimizer, variables = make(INITIAL, clip_norm=1.0)
    optimizer.apply(variables, some_gradients(), STEP)
    before = state_of(optimizer, variables)
    gradients = {
        **some_gradients(1),
        BIAS: tf.constant([1.0, bad], tf.float32),
    }
    was_made, _ = optimizer.apply(
        variables, gradients, STEP, tf.constant(is_finite)
    )
    assert not was_made
    after = state_of(optimizer, variables)
    for name, value in before.items():
        assert after[name].tobytes() == value.tobytes(), name


def test_the_rate_is_that_of_the_step_before_the_update():
    optimizer = optimization.create_optimizer(1.0, 10, 5)
    variables = {KERNEL: tf.Variable([1.0, 2.0])}
    optimizer.build(variables)
    gradients = {KERNEL: tf.constant([0.1, 0.1])}
    optimizer.apply(variables, gradients, tf.constant(0, tf.int64))
    assert variables[KERNEL].numpy().tolist() == [1.0, 2.0]


# Names.


def test_slots_have_the_released_names_and_start_at_zero():
    optimizer, variables = make(INITIAL)
    assert sorted(optimizer.slots) == sorted(
        f"{name}/{slot}" for name in INITIAL for slot in ("adam_m", "adam_v")
    )
    for name, slot in optimizer.slots.items():
        assert slot.shape == variables[name.rpartition("/")[0]].shape
        assert not slot.numpy().any()


@pytest.mark.parametrize(
    ("name", "decays"),
    [
        ("bert/encoder/layer_0/output/dense/kernel", True),
        ("bert/encoder/layer_0/output/dense/bias", False),
        ("bert/encoder/layer_0/output/LayerNorm/gamma", False),
        ("bert/embeddings/LayerNorm/beta", False),
        ("bert/embeddings/position_embeddings", True),
        ("bert/embeddings/token_type_embeddings", True),
        ("output_weights", True),
        ("output_bias", False),
        ("cls/predictions/output_bias", False),
        ("my_layer_norm/scale", False),
        # As released: the case of letters counts.
        ("dense/Bias", True),
        ("encoder/layernorm/gamma", True),
    ],
)
def test_decay_follows_the_released_names(name, decays):
    assert optimization.create_optimizer(1.0, 1, 0).decays(name) == decays


# Thirty steps of fine-tuning, as recorded from the release: testdata/train.


def recorded(name):
    path = os.path.join(TESTDATA, "train", "recorded.json")
    with open(path, encoding="utf-8") as reader:
        return json.load(reader)[name]


def recorded_batches(step):
    """Batches of eight records, in the order of the file."""
    path = os.path.join(TESTDATA, "train", "classifier.tfrecord")
    spec = {
        **{
            name: ((32,), "int32")
            for name in ("input_ids", "input_mask", "segment_ids")
        },
        "label_ids": ((), "int32"),
        "is_real_example": ((), "int32"),
    }
    return input_pipeline.eval_dataset(path, spec, 8).skip(step)


@pytest.mark.parametrize(
    ("variant", "clip_sparse_rows"),
    # With the gradients of a TPU, and with those of a CPU or GPU.
    [("classifier_onehot", False), ("classifier_gather", True)],
)
def test_fine_tunes_as_the_release(
    variant, clip_sparse_rows, tmp_path, monkeypatch
):
    wanted = recorded(variant)
    directory = os.path.join(TESTDATA, "train")
    config = BertConfig.from_json_file(
        os.path.join(directory, "bert_config.json")
    )
    # What a step reports is what the command line shows.
    reported = []
    monkeypatch.setattr(
        training.progress.Progress,
        "update",
        lambda self, *values: reported.append(values) or 1.0,
    )
    training.train(
        heads.BertClassifier(config, 3, dropout_prob=0.0, fuse=False),
        optimization.create_optimizer(1e-3, 30, 3),
        losses.classifier_loss,
        recorded_batches,
        loss_weights_fn=losses.classifier_loss_weights,
        num_train_steps=30,
        output_dir=str(tmp_path),
        batch_size=8,
        init_checkpoint=os.path.join(directory, "bert_model.ckpt"),
        iterations_per_loop=1,
        clip_sparse_rows=clip_sparse_rows,
    )
    _, _, loss, norm, learning_rate = np.transpose(reported)
    # The release itself, with another number of threads, differs by 1e-5.
    np.testing.assert_allclose(loss, wanted["total_loss"], rtol=1e-4)
    np.testing.assert_allclose(norm, wanted["grad_norm"], rtol=1e-3)
    np.testing.assert_allclose(
        learning_rate, wanted["learning_rate"], rtol=1e-6, atol=1e-9
    )
    final = checkpoint.read(str(tmp_path / "model.ckpt-30"))
    assert set(final) == set(wanted["final_l2"])
    for name, l2 in wanted["final_l2"].items():
        if "key/bias/adam" in name:
            continue  # Its gradient is 0, the recorded one rounding.
        assert np.linalg.norm(final[name]) == pytest.approx(l2, rel=1e-4), name
