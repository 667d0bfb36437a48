"""The only loop: train, evaluate and predict with any model and any batch.

Nothing here is about BERT. A step is: gradients of the weighted sums of the
losses, one sum over replicas, a check that all is finite, one update.
"""

import contextlib
import datetime
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

import checkpoint
import file_io
import progress

GLOBAL_STEP = "global_step"
# One call of the compiled loop lasts about this long, so that progress shows
# and a signal is answered at a human pace whatever the speed of a step.
SECONDS_PER_LOOP = 1.0

Batch = Mapping[str, tf.Tensor]
WeightedSums = Mapping[str, tuple[tf.Tensor, tf.Tensor]]


def named_variables(model: keras.Model) -> dict[str, tf.Variable]:
    """Returns a model's variables by their names in a checkpoint.

    The name is the variable's path without the name of the model itself.
    """
    return _by_name(model.variables)


def _by_name(variables: Sequence[keras.Variable]) -> dict[str, tf.Variable]:
    return {v.path.partition("/")[2]: v.value for v in variables}


def create_strategy() -> tf.distribute.Strategy:
    """Returns the strategy of a single device: the GPU if there is one."""
    return tf.distribute.get_strategy()


# ---------------------------------------------------------------------------
# Starting: where weights come from.


def find_checkpoint(output_dir: str) -> str | None:
    """Returns the latest checkpoint of a run, None if there is none yet.

    Raises:
      ValueError: there are checkpoints, but all of them are damaged. A run
        that began anew would overwrite what can perhaps be saved.
    """
    latest = checkpoint.latest_checkpoint(output_dir)
    if latest is None and file_io.is_dir(output_dir):
        damaged = [
            name
            for name in file_io.list_dir(output_dir)
            if re.fullmatch(r"model\.ckpt-\d+\.index", name)
        ]
        if damaged:
            raise ValueError(
                f"{output_dir}: {', '.join(damaged)}: not one checkpoint of "
                "this run can be read, see the warnings above. Copy them here "
                "again, or choose an empty output_dir to start anew."
            )
    return latest


def load_weights(model: keras.Model, prefix: str) -> int:
    """Reads all of a model's variables, for evaluation and prediction.

    Args:
      model: a built model.
      prefix: a checkpoint.

    Returns:
      The step the checkpoint was written at, 0 where it does not say.

    Raises:
      ValueError: the checkpoint lacks a variable or has it in another shape,
        or its encoder has variables that the model lacks.
    """
    variables = named_variables(model)
    match = checkpoint.match(_shapes(variables), prefix)
    if match.missing:
        raise ValueError(
            f"{prefix} has no {', '.join(match.missing[:3])}"
            f"{' and others' if len(match.missing) > 3 else ''}: this model "
            "cannot be evaluated before it is trained. Train first, or give "
            "the checkpoint of a training run."
        )
    # Heads of other tasks may be left over, layers of the encoder may not.
    left_over = [name for name in match.unused if name.startswith("bert/")]
    if left_over:
        raise ValueError(
            f"{prefix} has {left_over[0]} and {len(left_over) - 1} more "
            "variables that this model lacks: use the bert_config.json that "
            "the checkpoint was made with."
        )
    _assign(variables, checkpoint.read(prefix, list(variables)))
    step = _checkpoint_step(prefix)
    logging.info("Weights of step %d from %s", step, prefix)
    return step


def _start(
    variables: Mapping[str, tf.Variable],
    slots: Mapping[str, tf.Variable],
    global_step: tf.Variable,
    output_dir: str,
    init_checkpoint: str | None,
) -> None:
    """Resumes, or else warm-starts, or else leaves the initial values."""
    latest = find_checkpoint(output_dir)
    if latest:
        _resume({**variables, **slots, GLOBAL_STEP: global_step}, latest)
        logging.info(
            "Start: resuming %s at step %d.", latest, global_step.numpy()
        )
    elif init_checkpoint:
        match = checkpoint.match(_shapes(variables), init_checkpoint)
        found = set(match.from_checkpoint)
        _assign(variables, checkpoint.read(init_checkpoint, sorted(found)))
        logging.info(
            "Start: %d of %d variables from %s.",
            len(found),
            len(variables),
            init_checkpoint,
        )
        for name, variable in variables.items():
            origin = "*INIT_FROM_CKPT*" if name in found else "random"
            logging.info("  %s %s %s", name, tuple(variable.shape), origin)
        if match.unused:
            logging.info("Not used: %s", ", ".join(match.unused))
    else:
        logging.info(
            "Start: from scratch, as there is no checkpoint in %s and no "
            "init_checkpoint was given.",
            output_dir,
        )


def _resume(state: Mapping[str, tf.Variable], prefix: str) -> None:
    """Reads everything a run consists of."""
    present = checkpoint.list_variables(prefix)
    other = [n for n in state if n not in present]
    other += [n for n in present if n not in state and checkpoint.is_weight(n)]
    other += [
        f"{n} {shape}"
        for n, (shape, _) in present.items()
        if n in state and tuple(shape) != tuple(state[n].shape)
    ]
    if other:
        raise ValueError(
            f"{prefix} is of another task or another model (it differs in "
            f"{', '.join(other[:3])}): training cannot go on from it. Choose "
            "an empty output_dir."
        )
    _assign(state, checkpoint.read(prefix, list(state)))


def _assign(variables: Mapping[str, tf.Variable], values: dict) -> None:
    """Sets variables, letting go of each value as it is used."""
    for name in list(values):
        variables[name].assign(values.pop(name))


def _shapes(variables: Mapping[str, tf.Variable]) -> dict[str, tuple]:
    return {name: tuple(v.shape) for name, v in variables.items()}


def _checkpoint_step(prefix: str) -> int:
    if GLOBAL_STEP not in checkpoint.list_variables(prefix):
        return 0
    return int(checkpoint.read(prefix, [GLOBAL_STEP])[GLOBAL_STEP])


# ---------------------------------------------------------------------------
# Training.


def train(
    model: keras.Model,
    optimizer: Any,
    loss_fn: Callable[[Mapping, Batch], WeightedSums],
    dataset: Callable[[int], tf.data.Dataset],
    *,
    loss_weights_fn: Callable[[Batch], Mapping[str, tf.Tensor]],
    num_train_steps: int,
    output_dir: str,
    batch_size: int,
    init_checkpoint: str | None = None,
    random_seed: int = 0,
    save_checkpoints_steps: int = 1000,
    keep_checkpoint_max: int = 5,
    iterations_per_loop: int = 1000,
    clip_sparse_rows: bool = False,
    strategy: tf.distribute.Strategy | None = None,
) -> int:
    """Trains until step `num_train_steps`, from wherever `output_dir` stands.

    The order of start: resume the latest checkpoint of `output_dir`; else
    weights from `init_checkpoint`; else from scratch. A resumed run ends with
    the same weights, bit for bit, as one that was never stopped.

    SIGTERM and Ctrl-C save a checkpoint and end the process with the status a
    shell gives that signal (143, 130), so that a scheduler starts it again.

    Args:
      model: built; called with (batch, seed=int32 [2]) it returns outputs.
      optimizer: with `build`, `apply`, `slots` and `learning_rate` as in
        optimization.AdamWeightDecayOptimizer.
      loss_fn: maps outputs and batch to {name: (sum, weight)}, see losses.py.
      dataset: maps the number of steps made to the batches that follow.
      loss_weights_fn: maps a batch to {name: weight}.
      num_train_steps: steps of the whole run, those before a restart included.
      output_dir: for checkpoints and TensorBoard summaries.
      batch_size: global batch, in examples.
      init_checkpoint: where a new run takes weights from.
      random_seed: with the step it determines every dropout mask.
      save_checkpoints_steps: steps between checkpoints.
      keep_checkpoint_max: checkpoints kept; 0 keeps all.
      iterations_per_loop: most steps between two looks at the clock.
      clip_sparse_rows: in the norm that gradients are clipped by, count the
        rows of a sparse gradient one by one, before those of the same token
        are added up: what the release did on CPU and GPU, but not on a TPU.
      strategy: of the devices; by default the single one. The model must be
        built inside its scope.

    Returns:
      The step reached, `num_train_steps` or more.

    Raises:
      ValueError: `output_dir` or `init_checkpoint` does not fit the model, or
        the loss or a gradient is not finite; the state before that step is
        saved.
    """
    strategy = strategy or create_strategy()
    variables = named_variables(model)
    trainable = _by_name(model.trainable_variables)
    with strategy.scope():
        optimizer.build(trainable)
        global_step = tf.Variable(0, dtype=tf.int64, trainable=False)
    _start(variables, optimizer.slots, global_step, output_dir, init_checkpoint)
    step = int(global_step.numpy())
    if step >= num_train_steps:
        logging.info("Nothing to train: step %d of %d.", step, num_train_steps)
        return step
    logging.info(
        "Training on %s: %d replica(s), batch of %d examples, %d in each.",
        _device_names(),
        strategy.num_replicas_in_sync,
        batch_size,
        batch_size // strategy.num_replicas_in_sync,
    )
    state = {**variables, **optimizer.slots, GLOBAL_STEP: global_step}
    run_steps = _create_loop(
        model,
        optimizer,
        loss_fn,
        loss_weights_fn,
        trainable,
        global_step,
        random_seed,
        clip_sparse_rows,
        strategy,
    )
    iterator = iter(strategy.experimental_distribute_dataset(dataset(step)))
    report = progress.Progress(step, num_train_steps, batch_size, output_dir)

    def save(step):
        prefix = checkpoint.save(
            output_dir, step, state, keep_checkpoint_max=keep_checkpoint_max
        )
        report.message(f"Saved {prefix}")

    with contextlib.closing(report):
        return _make_steps(
            lambda num_steps: run_steps(iterator, tf.constant(num_steps)),
            step,
            num_train_steps,
            save,
            report,
            optimizer.learning_rate,
            save_checkpoints_steps=save_checkpoints_steps,
            iterations_per_loop=iterations_per_loop,
        )


def _make_steps(
    run_steps: Callable[[int], tuple],
    step: int,
    num_train_steps: int,
    save: Callable[[int], None],
    report: progress.Progress,
    learning_rate: Callable[[tf.Tensor], tf.Tensor],
    *,
    save_checkpoints_steps: int,
    iterations_per_loop: int,
) -> int:
    """Makes the steps from `step` on, saving when it is time or we must go."""
    num_steps, saved = 1, step
    with _signals() as received:
        while step < num_train_steps:
            next_save = step - step % save_checkpoints_steps
            next_save += save_checkpoints_steps
            num_steps = min(
                num_steps,
                iterations_per_loop,
                min(next_save, num_train_steps) - step,
            )
            num_made, loss_sum, norm, is_finite = run_steps(num_steps)
            num_made = int(num_made)
            step += num_made
            if not is_finite:
                if step > saved:
                    save(step)
                raise ValueError(
                    f"The loss or a gradient of step {step + 1} is not a "
                    f"finite number (gradient norm {float(norm):g}); the "
                    f"weights are those of step {step}. Lower the learning "
                    "rate or warm up for longer, and look at the data of that "
                    "step."
                )
            seconds = report.update(
                step,
                num_made,
                float(loss_sum),
                float(norm),
                float(learning_rate(tf.constant(step - 1))),
            )
            num_steps = max(1, int(SECONDS_PER_LOOP / seconds))
            must_stop = bool(received)
            if must_stop or step in (next_save, num_train_steps):
                save(step)
                saved = step
            if must_stop:
                report.message(
                    f"Stopped by {signal.Signals(received[0]).name} at step "
                    f"{step} of {num_train_steps}. The same command goes on "
                    "from here."
                )
                raise SystemExit(128 + received[0])
    return step


def _create_loop(
    model,
    optimizer,
    loss_fn,
    loss_weights_fn,
    trainable,
    global_step,
    random_seed,
    clip_sparse_rows,
    strategy,
):
    """Returns the compiled function that makes a number of steps."""

    def gradients_of(batch, weights, seed):
        with tf.GradientTape() as tape:
            sums = loss_fn(model(batch, seed=seed), batch)
            loss = tf.add_n(
                [
                    tf.math.divide_no_nan(total, weights[name])
                    for name, (total, _) in sums.items()
                ]
            )
        gradients = tape.gradient(loss, list(trainable.values()))
        gradients = {
            name: gradient
            for name, gradient in zip(trainable, gradients, strict=True)
            if gradient is not None
        }
        extra = tf.constant(0.0)
        for name, gradient in gradients.items():
            if isinstance(gradient, tf.IndexedSlices):
                gradients[name] = tf.convert_to_tensor(gradient)
                if clip_sparse_rows:
                    extra += tf.reduce_sum(tf.square(gradient.values))
                    extra -= tf.reduce_sum(tf.square(gradients[name]))
        return loss, gradients, extra

    def replica_step(batch):
        weights = _sum_over_replicas(strategy, dict(loss_weights_fn(batch)))
        # int32 alone can seed a TPU's generator.
        seed = tf.stack([random_seed, tf.cast(global_step, tf.int32)])
        if strategy.num_replicas_in_sync > 1:
            context = tf.distribute.get_replica_context()
            seed = tf.random.experimental.stateless_fold_in(
                seed, context.replica_id_in_sync_group, alg="philox"
            )
        loss, gradients, extra_squared_norm = _sum_over_replicas(
            strategy, gradients_of(batch, weights, seed)
        )
        is_finite, norm = optimizer.apply(
            trainable,
            gradients,
            global_step,
            tf.math.is_finite(loss),
            extra_squared_norm,
        )
        global_step.assign_add(tf.cast(is_finite, tf.int64))
        return loss, norm, is_finite

    @tf.function(autograph=False, reduce_retracing=True)
    def run_steps(iterator, num_steps):
        def goes_on(num_made, unused_loss_sum, unused_norm, is_finite):
            return tf.logical_and(num_made < num_steps, is_finite)

        def make_step(num_made, loss_sum, unused_norm, unused_is_finite):
            results = strategy.run(replica_step, args=(next(iterator),))
            # The same on every replica.
            loss, norm, is_finite = (
                strategy.experimental_local_results(x)[0] for x in results
            )
            num_made += tf.cast(is_finite, tf.int32)
            return num_made, loss_sum + loss, norm, is_finite

        start = (tf.constant(0), tf.constant(0.0), tf.constant(0.0), True)
        return tf.while_loop(goes_on, make_step, start)

    return run_steps


def _sum_over_replicas(strategy: tf.distribute.Strategy, values: Any) -> Any:
    """Adds up tensors of all replicas; every replica gets the sum."""
    if strategy.num_replicas_in_sync == 1:
        return values
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects SIGTERM and SIGINT instead of dying; a second one kills."""
    received: list[int] = []
    previous = {}

    def remember(number, unused_frame):
        received.append(number)
        signal.signal(number, previous[number])

    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            previous[number] = signal.signal(number, remember)
    except ValueError:  # Not the main thread: signals are not ours to take.
        pass
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _device_names() -> str:
    kinds = ("TPU", "GPU", "CPU")
    devices = next(d for d in map(tf.config.list_logical_devices, kinds) if d)
    return ", ".join(device.name for device in devices)


# ---------------------------------------------------------------------------
# Evaluation and prediction.


def evaluate(
    model: keras.Model,
    metric_fn: Callable[[Mapping, Batch], WeightedSums],
    dataset: tf.data.Dataset,
    *,
    loss_fn: Callable[[Mapping, Batch], WeightedSums] | None = None,
    max_steps: int | None = None,
) -> dict[str, float]:
    """Returns scores that are ratios of sums over all examples.

    Args:
      model: called with a batch it returns outputs.
      metric_fn: maps outputs and batch to {name: (sum, weight)}.
      dataset: batches.
      loss_fn: when given, `loss` is what the release reports under that name:
        the mean over batches of the batch's loss, a short batch counting fully.
      max_steps: batches to use; None for all.

    Returns:
      {name: score}, float; 0 where the weight is 0.

    Raises:
      ValueError: there is no batch.
    """

    def sums_of(outputs, batch):
        sums = dict(metric_fn(outputs, batch))
        if loss_fn:
            parts = loss_fn(outputs, batch).values()
            loss = tf.add_n([tf.math.divide_no_nan(*part) for part in parts])
            sums["loss"] = (loss, 1.0)
        return sums

    totals: dict[str, np.ndarray] = {}
    dataset = dataset.take(-1 if max_steps is None else max_steps)
    for sums in _map_batches(model, sums_of, dataset):
        for name, pair in sums.items():
            # float64, or a long evaluation stops adding up.
            pair = np.array([np.float64(x) for x in pair])
            totals[name] = totals.get(name, 0.0) + pair
    if not totals:
        raise ValueError("There is nothing to evaluate: no batch was read.")
    return {
        name: float(total / weight) if weight else 0.0
        for name, (total, weight) in totals.items()
    }


def predict(
    model: keras.Model,
    predict_fn: Callable[[Mapping, Batch], Mapping[str, tf.Tensor]],
    dataset: tf.data.Dataset,
    *,
    num_examples: int | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Yields one dict for each real example, in the order of the dataset.

    Args:
      model: called with a batch it returns outputs.
      predict_fn: maps outputs and batch to {name: tensor [B, ...]}.
      dataset: batches that hold `is_real_example`, int32 [B].
      num_examples: how many there will be, for the progress in the log.
    """

    def rows_of(outputs, batch):
        return dict(predict_fn(outputs, batch)), batch["is_real_example"]

    num_done, start = 0, time.monotonic()
    last_line = start
    for rows, is_real in _map_batches(model, rows_of, dataset):
        for i in np.flatnonzero(is_real):
            yield {name: column[i] for name, column in rows.items()}
        num_done += int(np.count_nonzero(is_real))
        now = time.monotonic()
        if now - last_line >= progress.SECONDS_BETWEEN_LINES:
            last_line, pace = now, num_done / (now - start)
            eta = "unknown"
            if num_examples:
                seconds = math.ceil((num_examples - num_done) / pace)
                eta = str(datetime.timedelta(seconds=seconds))
            logging.info(
                "%d/%s examples  %.1f examples/s  ETA %s",
                num_done,
                num_examples or "?",
                pace,
                eta,
            )


def _map_batches(model, function, dataset) -> Iterator[Any]:
    """Yields `function(outputs, batch)` of each batch as NumPy arrays."""

    @tf.function(autograph=False, reduce_retracing=True)
    def run(batch):
        return function(model(batch), batch)

    for batch in dataset:
        yield tf.nest.map_structure(lambda x: x.numpy(), run(batch))


def write_summary(
    output_dir: str, step: int, scores: Mapping[str, float]
) -> None:
    """Adds evaluation scores at a step to TensorBoard's files."""
    writer = tf.summary.create_file_writer(os.path.join(output_dir, "eval"))
    with writer.as_default(step=step):
        for name, score in scores.items():
            tf.summary.scalar(name, score)
    writer.close()
