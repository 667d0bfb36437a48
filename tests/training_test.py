"""Tests of the loop, with a model of three variables that is not a BERT."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator

import checkpoint
import input_pipeline
import losses
import optimization
import progress
import training

NUM_RECORDS = 20
BATCH_SIZE = 4
NUM_STEPS = 12
SPEC = {
    "input_ids": ((3,), "int32"),
    "label_ids": ((), "int32"),
    "is_real_example": ((), "int32"),
}


class Table(keras.layers.Layer):
    """The mean of rows of a table, some numbers of it dropped."""

    def build(self, input_shape=None):
        self.rows = self.add_weight(
            name="rows",
            shape=(9, 8),
            initializer=keras.initializers.RandomNormal(seed=1),
        )

    def call(self, ids, seed):
        x = tf.gather(tf.convert_to_tensor(self.rows), ids)
        x = tf.reduce_mean(x, axis=1)
        if seed is None:
            return x
        kept = tf.random.stateless_uniform(tf.shape(x), seed) < 0.7
        return tf.where(kept, x / 0.7, 0.0)


class TinyModel(keras.Model):
    def __init__(self, num_labels=3, scope="bert", initial_seed=2):
        super().__init__(name="tiny")
        self.num_labels = num_labels
        self.initial_seed = initial_seed
        self.table = Table(name=scope)
        self.build()

    def build(self, input_shape=None):
        self.table.build()
        self.output_weights = self.add_weight(
            name="output_weights",
            shape=(self.num_labels, 8),
            initializer=keras.initializers.RandomNormal(seed=self.initial_seed),
        )
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.num_labels,), initializer="zeros"
        )
        self.built = True

    def call(self, batch, seed=None):
        x = self.table(batch["input_ids"], seed=seed)
        logits = tf.matmul(x, self.output_weights, transpose_b=True)
        return {"logits": logits + self.output_bias}


class PlainDescent:
    """Subtracts the gradient and remembers what it was given."""

    def __init__(self):
        self.slots = {}
        self.calls = []

    def build(self, variables):
        pass

    def learning_rate(self, step):
        return tf.constant(1.0)

    def apply(self, variables, gradients, step, is_finite, extra):
        tf.py_function(lambda x: self.calls.append(float(x)), [extra], [])
        for name, gradient in gradients.items():
            variables[name].assign_sub(gradient)
        return tf.convert_to_tensor(is_finite), tf.constant(0.0)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("records") / "train.tf_record")
    generator = np.random.default_rng(3)
    features = [
        {
            "input_ids": generator.integers(0, 9, 3),
            "label_ids": i % 3,
            "is_real_example": 1,
        }
        for i in range(NUM_RECORDS)
    ]
    input_pipeline.write_records(path, features, SPEC)
    return input_pipeline.Records([path])


@pytest.fixture
def train(dataset, tmp_path):
    """Trains a new TinyModel in tmp_path/NAME; returns the directory."""

    def run(name="run", num_train_steps=NUM_STEPS, model=None, **options):
        output_dir = str(tmp_path / name)
        options = {
            "optimizer": optimization.create_optimizer(0.1, NUM_STEPS, 2),
            "loss_fn": losses.classifier_loss,
            "loss_weights_fn": losses.classifier_loss_weights,
            "dataset": dataset,
            "batch_size": BATCH_SIZE,
            "random_seed": 7,
            **options,
        }
        training.train(
            model or TinyModel(),
            options.pop("optimizer"),
            options.pop("loss_fn"),
            options.pop("dataset"),
            num_train_steps=num_train_steps,
            output_dir=output_dir,
            **options,
        )
        return output_dir

    return run


def disturbed(dataset, step_to_disturb, disturb):
    """The dataset; `disturb` is called when that step asks for its batch."""

    def dataset_from(step):
        def look(number):
            if number == step_to_disturb:
                disturb()
            return number

        def pass_on(number, batch):
            number = tf.py_function(look, [number], tf.int64)
            with tf.control_dependencies([number]):
                return {name: tf.identity(x) for name, x in batch.items()}

        return dataset(step).enumerate(step).map(pass_on)

    return dataset_from


def state(output_dir):
    """Everything in the latest checkpoint, as bytes."""
    values = checkpoint.read(checkpoint.latest_checkpoint(output_dir))
    return {name: value.tobytes() for name, value in values.items()}


def steps_in(output_dir):
    return sorted(
        int(name.split("-")[1].split(".")[0])
        for name in os.listdir(output_dir)
        if name.endswith(".index")
    )


@pytest.fixture
def dataset(records):
    return input_pipeline.train_dataset(records, SPEC, BATCH_SIZE, 5)


def set_label(dataset, bad_step, label):
    """The dataset with one label of one step replaced."""

    def replace(number, batch):
        column = batch["label_ids"]
        is_bad = tf.equal(number, bad_step) & (tf.range(BATCH_SIZE) == 1)
        return {**batch, "label_ids": tf.where(is_bad, label, column)}

    return lambda step: dataset(step).enumerate(step).map(replace)


def batch_of(ids, labels, is_real=None):
    return {
        "input_ids": np.array(ids, np.int32),
        "label_ids": np.array(labels, np.int32),
        "is_real_example": np.array(is_real or [1] * len(ids), np.int32),
    }


# --- Resuming ----------------------------------------------------------------


def test_resumed_run_ends_in_the_same_bits(train):
    whole = train("whole")
    train("parts", 5)
    parts = train("parts", model=TinyModel(initial_seed=99))
    assert state(parts) == state(whole)
    assert {"bert/rows/adam_m", "output_bias/adam_v", "global_step"} < set(
        state(whole)
    )


def test_how_often_the_loop_looks_up_changes_nothing(train):
    one = train("one", iterations_per_loop=1, save_checkpoints_steps=5)
    other = train("other", iterations_per_loop=7)
    assert state(one) == state(other)


def test_seed_changes_the_masks_of_dropout(train):
    assert state(train("a", 3, random_seed=1)) != state(
        train("b", 3, random_seed=2)
    )


def test_run_that_broke_off_goes_on_from_its_last_checkpoint(
    train, dataset, tmp_path
):
    def fail():
        raise OSError("no more data")

    with pytest.raises(tf.errors.OpError, match="no more data"):
        train(
            "broken",
            dataset=disturbed(dataset, 10, fail),
            save_checkpoints_steps=3,
            iterations_per_loop=3,
        )
    assert steps_in(tmp_path / "broken") == [3, 6, 9]
    assert state(train("broken")) == state(train("whole"))


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_signal_saves_says_so_and_ends(
    train, dataset, tmp_path, log, number, status
):
    handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(SystemExit) as exit_info:
        train(
            "stopped",
            dataset=disturbed(dataset, 6, lambda: os.kill(os.getpid(), number)),
            iterations_per_loop=1,
        )
    assert exit_info.value.code == status
    # Batches are fetched ahead, so the signal comes a little before step 6.
    (step,) = steps_in(tmp_path / "stopped")
    assert 1 <= step <= 7
    assert (
        f"Stopped by {number.name} at step {step} of 12. The same command "
        "goes on from here."
    ) in log.messages
    assert handlers == [
        signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)
    ]
    assert state(train("stopped")) == state(train("whole"))


def test_second_signal_does_not_wait_for_the_checkpoint(
    train, dataset, monkeypatch
):
    def interrupt(*unused_args, **unused_options):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(checkpoint, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(dataset=disturbed(dataset, 6, interrupt))


def test_signal_in_another_thread_is_not_taken(train):
    # Python lets only the main thread set handlers.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        output_dir = pool.submit(train, "thread", 2).result()
    assert steps_in(output_dir) == [2]


def test_finished_run_is_left_as_it_is(train, log):
    output_dir = train()
    before = {p: p.read_bytes() for p in pathlib.Path(output_dir).iterdir()}
    train()
    after = {p: p.read_bytes() for p in pathlib.Path(output_dir).iterdir()}
    assert after == before
    assert "Nothing to train: step 12 of 12." in log.messages


def test_rotation_goes_on_after_a_restart(train):
    options = {"save_checkpoints_steps": 2, "keep_checkpoint_max": 3}
    output_dir = train("run", 7, **options)
    assert steps_in(output_dir) == [4, 6, 7]
    train("run", 10, **options)
    assert steps_in(output_dir) == [7, 8, 10]


def test_zero_keeps_all_checkpoints(train):
    output_dir = train(save_checkpoints_steps=2, keep_checkpoint_max=0)
    assert steps_in(output_dir) == [2, 4, 6, 8, 10, 12]


# --- Where weights come from -------------------------------------------------


def test_checkpoint_of_the_run_comes_before_init_checkpoint(train, log):
    init = train("init", 3, optimizer=optimization.create_optimizer(0.5, 9, 0))
    whole = train("whole")
    output_dir = train("run", 5)
    train("run", init_checkpoint=checkpoint.latest_checkpoint(init))
    assert state(output_dir) == state(whole)
    wanted = f"Start: resuming {output_dir}/model.ckpt-5 at step 5."
    assert [m for m in log.messages if m.startswith("Start")][-1] == wanted


def test_new_run_takes_weights_but_neither_slots_nor_step(train, log):
    init = train("init")
    train("warm", 1, init_checkpoint=init, model=TinyModel(initial_seed=8))
    # A rate of 0 at step 0 leaves the weights as they were read.
    warm, before = state(train("warm", 1)), state(init)
    assert warm["bert/rows"] == before["bert/rows"]
    assert warm["output_weights"] == before["output_weights"]
    assert warm["bert/rows/adam_m"] != before["bert/rows/adam_m"]
    assert int(np.frombuffer(warm["global_step"], np.int64)[0]) == 1
    assert any(
        m.startswith("Start: 3 of 3 variables from ") for m in log.messages
    )


def test_every_variable_is_listed_with_shape_and_origin(train, log, tmp_path):
    prefix = str(tmp_path / "init.ckpt")
    checkpoint.write(
        prefix,
        {
            "bert/rows": np.ones((9, 8), np.float32),
            "cls/predictions/output_bias": np.ones(9, np.float32),
        },
    )
    train(num_train_steps=1, init_checkpoint=prefix)
    assert "Start: 1 of 3 variables from " + prefix + "." in log.messages
    assert "  bert/rows (9, 8) *INIT_FROM_CKPT*" in log.messages
    assert "  output_weights (3, 8) random" in log.messages
    assert "Not used: cls/predictions/output_bias" in log.messages


def test_start_from_scratch_is_said(train, log):
    output_dir = train(num_train_steps=1)
    assert (
        f"Start: from scratch, as there is no checkpoint in {output_dir} and "
        "no init_checkpoint was given."
    ) in log.messages
    assert (
        "Training on /device:CPU:0: 1 replica(s), batch of 4 examples, 4 in "
        "each."
    ) in log.messages


def test_start_that_matches_no_encoder_variable_is_refused(train, tmp_path):
    prefix = str(tmp_path / "init.ckpt")
    checkpoint.write(prefix, {"output_bias": np.zeros(3, np.float32)})
    with pytest.raises(ValueError, match="not one variable under bert/"):
        train(init_checkpoint=prefix)
    assert not (tmp_path / "run").exists()


def test_start_of_another_shape_names_variable_and_both_shapes(train, tmp_path):
    init = train("init", 1, model=TinyModel(num_labels=4))
    with pytest.raises(ValueError) as error:
        train(init_checkpoint=init)
    assert "output_weights is [3, 8] in the model and [4, 8] in" in str(
        error.value
    )


@pytest.mark.parametrize(
    "other",
    [{"num_labels": 4}, {"scope": "encoder"}],
    ids=["another shape", "another name"],
)
def test_directory_of_another_model_is_refused_and_unharmed(train, other):
    output_dir = pathlib.Path(train("run", 2, model=TinyModel(**other)))
    before = {p: p.read_bytes() for p in output_dir.iterdir()}
    with pytest.raises(ValueError, match="of another task or another model"):
        train("run")
    assert {p: p.read_bytes() for p in output_dir.iterdir()} == before


def with_one_more_layer(output_dir, new_dir):
    """Copies a checkpoint, adding an encoder variable that no model has."""
    values = checkpoint.read(checkpoint.latest_checkpoint(output_dir))
    values["bert/layer_1/rows"] = np.zeros((2, 2), np.float32)
    return checkpoint.save(str(new_dir), 2, values)


def test_directory_of_a_deeper_model_is_refused(train, tmp_path):
    with_one_more_layer(train("run", 2), tmp_path / "deeper")
    with pytest.raises(ValueError, match="differs in bert/layer_1/rows"):
        train("deeper")


def test_weights_of_a_deeper_model_are_refused(train, tmp_path):
    prefix = with_one_more_layer(train("run", 2), tmp_path / "deeper")
    with pytest.raises(ValueError, match="bert/layer_1/rows and 0 more"):
        training.load_weights(TinyModel(), prefix)


def test_checkpoint_without_slots_cannot_be_resumed(train, tmp_path):
    whole = train("whole", 2)
    checkpoint.slim(
        checkpoint.latest_checkpoint(whole), str(tmp_path / "s/model.ckpt-2")
    )
    with pytest.raises(ValueError, match="it differs in .*adam_m"):
        train("s")


def test_weights_are_read_with_their_step(train):
    output_dir = train(num_train_steps=3)
    model = TinyModel(initial_seed=77)
    prefix = checkpoint.latest_checkpoint(output_dir)
    assert training.load_weights(model, prefix) == 3
    values = {
        name: value.numpy().tobytes()
        for name, value in training.named_variables(model).items()
    }
    saved = state(output_dir)
    assert values == {name: saved[name] for name in values}


def test_weights_without_a_step_are_of_step_0(tmp_path):
    prefix = str(tmp_path / "bert_model.ckpt")
    model = TinyModel()
    checkpoint.write(prefix, training.named_variables(model))
    assert training.load_weights(model, prefix) == 0


def test_checkpoint_without_the_head_is_refused(tmp_path):
    prefix = str(tmp_path / "bert_model.ckpt")
    checkpoint.write(prefix, {"bert/rows": np.zeros((9, 8), np.float32)})
    with pytest.raises(ValueError, match="has no .*output_weights.* Train"):
        training.load_weights(TinyModel(), prefix)


# --- Steps -------------------------------------------------------------------


@pytest.mark.slow
def test_two_replicas_make_the_update_of_one(tmp_path):
    # A process of its own: devices are divided before TensorFlow starts.
    script = pathlib.Path(__file__).with_name("two_replicas.py")
    result = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "PYTHONPATH": str(script.parent.parent)},
    )
    # float32 sums in another order.
    assert json.loads(result.stdout)["largest_difference"] < 1e-6


def test_number_of_steps_in_a_call_never_retraces(train):
    traces = []

    def loss_fn(outputs, batch):
        traces.append(1)
        return losses.classifier_loss(outputs, batch)

    train(
        loss_fn=loss_fn,
        iterations_per_loop=4,
        save_checkpoints_steps=3,
    )
    assert len(traces) == 1


@pytest.mark.parametrize("iterations_per_loop", [1, 5])
def test_loss_that_is_not_finite_stops_before_its_update(
    train, dataset, iterations_per_loop
):
    def loss_fn(outputs, batch):
        # Not a number where the label is -1.
        sums = losses.classifier_loss(
            outputs, {**batch, "label_ids": tf.maximum(batch["label_ids"], 0)}
        )
        total, weight = sums["loss"]
        factor = tf.reduce_sum(tf.sqrt(tf.cast(batch["label_ids"], "float32")))
        return {"loss": (total + 0.0 * factor, weight)}

    options = {
        "loss_fn": loss_fn,
        "save_checkpoints_steps": 4,
        "iterations_per_loop": iterations_per_loop,
    }
    stopped = {"dataset": set_label(dataset, 6, -1)}
    with pytest.raises(ValueError) as error:
        train("stopped", **options, **stopped)
    assert "step 7 is not a finite number" in str(error.value)
    assert "the weights are those of step 6" in str(error.value)
    output_dir = train("stopped", 6, **options)
    assert steps_in(output_dir) == [4, 6]
    assert state(output_dir) == state(train("whole", 6, **options))


def test_gradient_that_is_not_finite_stops_too(train, tmp_path):
    def loss_fn(outputs, batch):
        # 0 with an infinite slope.
        total = tf.reduce_sum(tf.sqrt(0.0 * outputs["logits"]))
        return {"loss": (total, tf.constant(1.0))}

    with pytest.raises(ValueError, match="step 1 is not .* norm nan"):
        train(
            loss_fn=loss_fn,
            loss_weights_fn=lambda batch: {"loss": tf.constant(1.0)},
        )
    assert steps_in(tmp_path / "run") == []


def test_each_part_of_a_loss_is_divided_by_its_own_weight(train, log):
    def parts(outputs, batch):
        logits = outputs["logits"]
        return {
            "a": (tf.reduce_sum(logits[:, 0]), tf.constant(8.0)),
            "b": (3.0 * tf.reduce_sum(logits[:, 1]), tf.constant(2.0)),
            "none": (tf.constant(5.0), tf.constant(0.0)),
        }

    weights = {"a": 8.0, "b": 2.0, "none": 0.0}
    output_dir = train(
        num_train_steps=1,
        optimizer=PlainDescent(),
        loss_fn=parts,
        loss_weights_fn=lambda batch: {
            name: tf.constant(w) for name, w in weights.items()
        },
    )
    bias = checkpoint.read(output_dir, ["output_bias"])["output_bias"]
    # The slope of a sum over a batch of 4, by its weight.
    np.testing.assert_allclose(bias, [-4 / 8, -3 * 4 / 2, 0.0], rtol=1e-6)


@pytest.mark.parametrize("clip_sparse_rows", [False, True])
def test_rows_of_a_repeated_id_are_counted_one_by_one_if_asked(
    train, clip_sparse_rows
):
    optimizer = PlainDescent()
    batch = batch_of([[4, 4, 4], [5, 6, 7]], [0, 1])

    def loss_fn(outputs, batch):
        total = tf.reduce_sum(outputs["logits"][0])
        return {"loss": (total, tf.constant(1.0))}

    model = TinyModel()
    model.table.call = lambda ids, seed: tf.reduce_sum(
        tf.gather(tf.convert_to_tensor(model.table.rows), ids), axis=1
    )
    slope = model.output_weights.numpy().sum(0)
    train(
        num_train_steps=1,
        model=model,
        optimizer=optimizer,
        loss_fn=loss_fn,
        loss_weights_fn=lambda batch: {"loss": tf.constant(1.0)},
        dataset=lambda step: tf.data.Dataset.from_tensors(batch),
        clip_sparse_rows=clip_sparse_rows,
    )
    # Row 4 has 3 slopes: 3 |s|^2 one by one, |3 s|^2 added up.
    wanted = (3 - 9) * np.square(slope).sum() if clip_sparse_rows else 0.0
    np.testing.assert_allclose(optimizer.calls, [wanted], rtol=1e-5)


# --- TensorBoard -------------------------------------------------------------


def scalars(directory):
    reader = event_accumulator.EventAccumulator(
        str(directory), size_guidance={"tensors": 0}
    )
    reader.Reload()
    return {
        name: [
            (event.step, float(tf.make_ndarray(event.tensor_proto)))
            for event in reader.Tensors(name)
        ]
        for name in reader.Tags()["tensors"]
    }


def test_summaries_are_read_by_tensorboard(train, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    seen = []
    loss_fn = losses.classifier_loss

    def watched(outputs, batch):
        total, weight = loss_fn(outputs, batch)["loss"]
        tf.py_function(lambda x: seen.append(float(x)), [total / weight], [])
        return {"loss": (total, weight)}

    found = scalars(train(loss_fn=watched, iterations_per_loop=1))
    assert set(found) == {
        "loss",
        "learning_rate",
        "gradient_norm",
        "examples_per_second",
    }
    steps = list(range(1, 13))
    assert [step for step, _ in found["loss"]] == steps
    np.testing.assert_allclose(
        [value for _, value in found["loss"]], seen, rtol=1e-6
    )
    # The rate each step was made with: warm-up of 2 steps, then 12 to 0.
    rates = [0.0, 0.05] + [0.1 * (1 - step / 12) for step in range(2, 12)]
    np.testing.assert_allclose(
        [value for _, value in found["learning_rate"]], rates, rtol=1e-5
    )
    assert all(value > 0 for _, value in found["examples_per_second"])


def test_scores_are_read_by_tensorboard(tmp_path):
    training.write_summary(str(tmp_path), 30, {"eval_f1": 0.5, "loss": 2})
    assert scalars(tmp_path / "eval") == {
        "eval_f1": [(30, 0.5)],
        "loss": [(30, 2.0)],
    }


# --- Evaluation and prediction -----------------------------------------------


def echo(batch):
    """A model whose output is its input."""
    return {"x": tf.cast(batch["input_ids"], tf.float32)[:, 0]}


def sum_of_x(outputs, batch):
    is_real = tf.cast(batch["is_real_example"], tf.float32)
    return {
        "x": (tf.reduce_sum(outputs["x"] * is_real), tf.reduce_sum(is_real))
    }


def three_batches():
    """Values 1, 2, 3, 4 and 9; the last batch has one real row of two."""
    values = [[1, 0], [2, 0], [3, 0], [4, 0], [9, 0], [7, 0]]
    batch = batch_of(values, [0] * 6, [1, 1, 1, 1, 1, 0])
    return tf.data.Dataset.from_tensor_slices(batch).batch(2)


def test_scores_are_ratios_of_sums_over_real_examples():
    scores = training.evaluate(echo, sum_of_x, three_batches())
    assert scores == {"x": pytest.approx((1 + 2 + 3 + 4 + 9) / 5)}


def test_loss_is_the_mean_over_batches_of_the_mean_in_each():
    scores = training.evaluate(
        echo, sum_of_x, three_batches(), loss_fn=sum_of_x
    )
    assert scores["loss"] == pytest.approx((1.5 + 3.5 + 9) / 3)
    assert scores["x"] == pytest.approx(19 / 5)


@pytest.mark.parametrize(("max_steps", "wanted"), [(1, 1.5), (2, 2.5)])
def test_evaluation_stops_after_max_steps(max_steps, wanted):
    scores = training.evaluate(
        echo, sum_of_x, three_batches(), max_steps=max_steps
    )
    assert scores == {"x": wanted}


@pytest.mark.parametrize("max_steps", [None, 0])
def test_evaluation_of_nothing_is_refused(max_steps):
    dataset = three_batches()
    if max_steps is None:
        dataset = dataset.take(0)
    with pytest.raises(ValueError, match="no batch was read"):
        training.evaluate(echo, sum_of_x, dataset, max_steps=max_steps)


def test_weight_of_zero_scores_zero():
    def nothing(outputs, batch):
        return {"f": (tf.constant(0.0), tf.constant(0.0))}

    assert training.evaluate(echo, nothing, three_batches()) == {"f": 0.0}


def test_sums_of_many_batches_keep_their_digits():
    # In float32 adding 1 to 2**24 changes nothing.
    batch = batch_of([[2**24], [1], [1], [1]], [0] * 4)
    dataset = tf.data.Dataset.from_tensor_slices(batch).batch(1)
    scores = training.evaluate(echo, sum_of_x, dataset)
    assert scores["x"] == (2**24 + 3) / 4


def test_predicts_real_examples_in_their_order():
    def predict_fn(outputs, batch):
        return {"x": outputs["x"], "pair": batch["input_ids"]}

    rows = list(training.predict(echo, predict_fn, three_batches()))
    assert [float(row["x"]) for row in rows] == [1, 2, 3, 4, 9]
    assert [row["pair"].tolist() for row in rows] == [
        [1, 0],
        [2, 0],
        [3, 0],
        [4, 0],
        [9, 0],
    ]


def test_padding_between_real_rows_is_left_out():
    batch = batch_of([[1], [2], [3]], [0] * 3, [0, 1, 0])
    dataset = tf.data.Dataset.from_tensors(batch)
    rows = training.predict(echo, lambda outputs, _: outputs, dataset)
    assert [float(row["x"]) for row in rows] == [2.0]


def test_prediction_without_dropout_repeats_itself(records):
    model = TinyModel()
    dataset = input_pipeline.train_dataset(records, SPEC, BATCH_SIZE, 5)(0)
    rows = [
        np.stack(
            [
                row["logits"]
                for row in training.predict(
                    model, lambda outputs, _: outputs, dataset.take(2)
                )
            ]
        )
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize(
    ("num_examples", "wanted"), [(5, "2/5 examples"), (None, "2/? examples")]
)
def test_prediction_says_how_far_it_is(log, monkeypatch, num_examples, wanted):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    rows = training.predict(
        echo,
        lambda outputs, _: outputs,
        three_batches(),
        num_examples=num_examples,
    )
    assert len(list(rows)) == 5
    (line,) = [m for m in log.messages if wanted in m]
    assert re.search(r"examples/s  ETA (0:00:|unknown)", line)
