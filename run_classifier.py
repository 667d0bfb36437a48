"""Fine-tunes BERT to classify texts or pairs of texts, and predicts with it.

The command line is that of the 2018 release; README.md shows it on the GLUE
tasks and on files of your own (--task_name=TSV).
"""

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import common_flags  # isort: skip  # Before TensorFlow: see there.
import numpy as np
from absl import flags, logging

import checkpoint
import classifier_features
import classifier_results
import file_io
import glue
import heads
import input_pipeline
import losses
import metrics
import modeling
import optimization
import tokenization
import training

# The released names that people import from this script.
from classifier_examples import (  # noqa: F401
    DataProcessor,
    InputExample,
    PaddingInputExample,
)
from classifier_features import (  # noqa: F401
    InputFeatures,
    convert_examples_to_features,
    convert_single_example,
)
from glue import (  # noqa: F401
    ColaProcessor,
    MnliProcessor,
    MrpcProcessor,
    XnliProcessor,
)

# What the ids of a trained classifier mean, beside its checkpoints.
LABELS_FILE = "labels.json"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this script."""
    common_flags.define_model_flags(flag_values)
    common_flags.define_training_flags(flag_values)
    common_flags.define_batch_size_flags(
        flag_values, train=32, eval=8, predict=8
    )
    common_flags.define_tpu_flags(flag_values)
    flags.DEFINE_string(
        "data_dir",
        None,
        "Directory of the task's .tsv files.",
        flag_values=flag_values,
        required=True,
    )
    flags.DEFINE_string(
        "task_name",
        None,
        f"One of {', '.join(name.upper() for name in glue.TASKS)}.",
        flag_values=flag_values,
        required=True,
    )
    flags.DEFINE_list(
        "tsv_columns",
        None,
        "For --task_name=TSV, the columns of files without a header line, such "
        "as label,text_a; _ is a column to ignore.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "max_seq_length",
        128,
        "Tokens of an example, [CLS] and [SEP] included; longer ones are cut.",
        flag_values=flag_values,
        lower_bound=3,
    )
    for name, meaning in (
        ("do_train", "Whether to train on the training set."),
        ("do_eval", "Whether to score the development set."),
        ("do_predict", "Whether to predict the test set."),
    ):
        flags.DEFINE_bool(name, False, meaning, flag_values=flag_values)
    flags.DEFINE_float(
        "learning_rate",
        5e-5,
        "Peak of Adam's learning rate.",
        flag_values=flag_values,
        lower_bound=0.0,
    )
    flags.DEFINE_float(
        "num_train_epochs",
        3.0,
        "How often to go through the training set.",
        flag_values=flag_values,
        lower_bound=0.0,
    )
    flags.DEFINE_float(
        "warmup_proportion",
        0.1,
        "Part of the training steps in which the learning rate rises.",
        flag_values=flag_values,
        lower_bound=0.0,
        upper_bound=1.0,
    )


class _Task(NamedTuple):
    """A task as the flags describe it."""

    label_list: list[str]
    is_regression: bool
    metric_names: tuple[str, ...]
    max_seq_length: int
    tokenizer: tokenization.FullTokenizer

    @property
    def spec(self) -> input_pipeline.Spec:
        return classifier_features.classifier_spec(
            self.max_seq_length, self.is_regression
        )


def main(unused_argv: Sequence[str]) -> None:
    """Trains, evaluates and predicts, as the flags say."""
    values = flags.FLAGS
    config, tokenizer = _check(values)
    labels_path = _find_labels(values)
    processor = _create_processor(values, labels_path)
    # All data is read before training, so that a bad line in the last file
    # does not cost a night.
    examples = _read_examples(values, processor)
    file_io.make_dirs(values.output_dir)
    task = _create_task(values, processor, tokenizer, labels_path)
    model = heads.BertClassifier(
        config,
        1 if task.is_regression else len(task.label_list),
        random_seed=values.random_seed,
        remove_padding=values.remove_padding,
    )
    if values.do_train:
        _train(values, task, model, examples["train"])
    if not (values.do_eval or values.do_predict):
        return
    prefix = training.find_checkpoint(values.output_dir)
    step = training.load_weights(model, prefix or values.init_checkpoint)
    for set_name, set_examples in examples.items():
        kind, _, suffix = set_name.partition("_")
        suffix = suffix and f"_{suffix}"
        if kind == "eval":
            _evaluate(values, task, model, set_examples, step, suffix)
        elif kind == "predict":
            _predict(values, task, model, set_examples, suffix)


def _check(
    values: flags.FlagValues,
) -> tuple[modeling.BertConfig, tokenization.FullTokenizer]:
    """Checks all flags before anything slow; returns what it had to read."""
    common_flags.check_devices(values)
    common_flags.check_numbers(values)
    if not (values.do_train or values.do_eval or values.do_predict):
        raise ValueError(
            "nothing to do: give at least one of --do_train, --do_eval and "
            "--do_predict."
        )
    name = glue.canonical_task_name(values.task_name)
    if values.tsv_columns and name != "tsv":
        raise ValueError(
            "--tsv_columns describes files of your own: use it with "
            f"--task_name=TSV, not {values.task_name}."
        )
    tokenization.validate_case_matches_checkpoint(
        values.do_lower_case, values.init_checkpoint
    )
    config = modeling.BertConfig.from_json_file(values.bert_config_file)
    tokenizer = tokenization.FullTokenizer(
        values.vocab_file, do_lower_case=values.do_lower_case
    )
    common_flags.check_vocabulary(tokenizer.vocab, values.vocab_file)
    common_flags.check_lengths(
        values.max_seq_length,
        config.max_position_embeddings,
        # Not their number: of a token that is there twice the last id counts.
        max(tokenizer.vocab.values()) + 1,
        config.vocab_size,
        vocab_file=values.vocab_file,
        bert_config_file=values.bert_config_file,
    )
    if not file_io.is_dir(values.data_dir):
        raise FileNotFoundError(
            f"--data_dir={values.data_dir} is not a directory: give the one "
            "that holds the task's .tsv files."
        )
    common_flags.check_output_dir(values.output_dir)
    latest = training.find_checkpoint(values.output_dir)
    if values.init_checkpoint:
        checkpoint.list_variables(values.init_checkpoint)
    elif not values.do_train and not latest:
        raise ValueError(
            f"there is no checkpoint in --output_dir={values.output_dir}: "
            "train first, or name one with --init_checkpoint."
        )
    return config, tokenizer


def _find_labels(values: flags.FlagValues) -> str | None:
    """The labels file that goes with the checkpoint in use.

    None for a new run, which finds its own labels: a checkpoint to start from
    may be of another task, and a file without a checkpoint says nothing.
    """
    if training.find_checkpoint(values.output_dir):
        place = values.output_dir
    elif values.do_train:
        return None
    else:
        place = os.path.dirname(checkpoint.resolve(values.init_checkpoint))
    return os.path.join(place, LABELS_FILE)


def _create_processor(
    values: flags.FlagValues, labels_path: str | None
) -> DataProcessor:
    """Makes the task's processor; that of the user's own files needs labels."""
    name = glue.canonical_task_name(values.task_name)
    processor = glue.TASKS[name].processor
    if name != "tsv":
        return processor()
    if labels_path is None:
        return processor(values.tsv_columns)
    if not file_io.exists(labels_path):
        raise FileNotFoundError(
            f"{labels_path} is missing: it is written by --do_train, beside "
            "the checkpoints, and says which label is which."
        )
    labels = glue.read_labels(labels_path, name)
    return processor(values.tsv_columns, labels)


def _read_examples(
    values: flags.FlagValues, processor: DataProcessor
) -> dict[str, list[InputExample]]:
    """Reads the sets that are wanted: train, eval, predict; MNLI has more."""
    readers = {}
    if values.do_train:
        readers["train"] = processor.get_train_examples
    if values.do_eval:
        readers["eval"] = processor.get_dev_examples
    if values.do_predict:
        readers["predict"] = processor.get_test_examples
    if isinstance(processor, MnliProcessor):
        for wanted, kind, set_name, reader in (
            ("do_eval", "eval", "dev", processor.get_dev_mismatched_examples),
            (
                "do_predict",
                "predict",
                "test",
                processor.get_test_mismatched_examples,
            ),
        ):
            file_name = f"{set_name}_mismatched.tsv"
            if not values[wanted].value:
                continue
            if file_io.exists(os.path.join(values.data_dir, file_name)):
                readers[f"{kind}_mismatched"] = reader
            else:
                logging.info("%s is not there: left out.", file_name)
    return {name: read(values.data_dir) for name, read in readers.items()}


def _create_task(
    values: flags.FlagValues,
    processor: DataProcessor,
    tokenizer: tokenization.FullTokenizer,
    labels_path: str | None,
) -> _Task:
    """Puts the task together; a new run's labels are stored."""
    name = glue.canonical_task_name(values.task_name)
    definition = glue.TASKS[name]
    label_list = processor.get_labels()
    path = os.path.join(values.output_dir, LABELS_FILE)
    if labels_path is None:
        if len(label_list) == 1:
            raise ValueError(
                f"all training examples have the label {label_list[0]!r}: "
                "there is nothing to tell apart."
            )
        glue.write_labels(
            path, label_list, name, is_regression=definition.is_regression
        )
    elif labels_path == path and file_io.exists(path):
        stored = glue.read_labels(path, name)
        if stored != label_list:
            raise ValueError(
                f"{path}: a run with the labels {', '.join(stored)} is in this "
                f"directory, this one has {', '.join(label_list)}. Choose "
                "another --output_dir."
            )
    return _Task(
        label_list=label_list,
        is_regression=definition.is_regression,
        metric_names=definition.metric_names,
        max_seq_length=values.max_seq_length,
        tokenizer=tokenizer,
    )


def file_based_convert_examples_to_features(
    examples: Sequence[InputExample],
    label_list: Sequence[str],
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
    output_file: str,
) -> None:
    """Writes examples as a TFRecord file, as the released function did.

    Args:
      examples: what to write.
      label_list: all labels in the order of their ids; empty for regression.
      max_seq_length: tokens of an example.
      tokenizer: see `classifier_features.convert_single_example`.
      output_file: the file.
    """
    features = classifier_features.convert_examples_to_features(
        examples, label_list, max_seq_length, tokenizer
    )
    input_pipeline.write_records(
        output_file,
        (feature.as_record() for feature in features),
        classifier_features.classifier_spec(max_seq_length, not label_list),
    )


def _train(
    values: flags.FlagValues,
    task: _Task,
    model: heads.BertClassifier,
    examples: Sequence[InputExample],
) -> None:
    """Fine-tunes the model."""
    num_train_steps = int(
        len(examples) / values.train_batch_size * values.num_train_epochs
    )
    if not num_train_steps:
        raise ValueError(
            f"{len(examples)} training examples, --train_batch_size="
            f"{values.train_batch_size} and --num_train_epochs="
            f"{values.num_train_epochs} make less than one step: use a smaller "
            "batch or more epochs."
        )
    path = os.path.join(values.output_dir, "train.tf_record")
    file_based_convert_examples_to_features(
        examples, task.label_list, task.max_seq_length, task.tokenizer, path
    )
    logging.info("***** Running training *****")
    logging.info("  Num examples = %d", len(examples))
    logging.info("  Batch size = %d", values.train_batch_size)
    logging.info("  Num steps = %d", num_train_steps)
    training.train(
        model,
        optimization.create_optimizer(
            values.learning_rate,
            num_train_steps,
            int(num_train_steps * values.warmup_proportion),
        ),
        losses.classifier_loss,
        input_pipeline.train_dataset(
            input_pipeline.Records([path]),
            task.spec,
            values.train_batch_size,
            values.random_seed,
        ),
        loss_weights_fn=losses.classifier_loss_weights,
        num_train_steps=num_train_steps,
        output_dir=values.output_dir,
        batch_size=values.train_batch_size,
        init_checkpoint=values.init_checkpoint,
        random_seed=values.random_seed,
        save_checkpoints_steps=values.save_checkpoints_steps,
        keep_checkpoint_max=values.keep_checkpoint_max,
        iterations_per_loop=values.iterations_per_loop,
        clip_sparse_rows=values.clip_sparse_rows,
    )


def _rows(task, model, examples, path, batch_size, predict_fn) -> list[dict]:
    """Predicts every example by way of a record file."""
    file_based_convert_examples_to_features(
        examples, task.label_list, task.max_seq_length, task.tokenizer, path
    )
    dataset = input_pipeline.eval_dataset(path, task.spec, batch_size)
    rows = list(
        training.predict(model, predict_fn, dataset, num_examples=len(examples))
    )
    for example, row in zip(examples, rows, strict=True):
        if not all(np.isfinite(value).all() for value in row.values()):
            raise ValueError(
                f"What the model says of {example.guid} is not a finite "
                "number: a weight in its checkpoint is damaged, or training "
                "went wrong. Use an earlier checkpoint."
            )
    return rows


def _evaluate(
    values: flags.FlagValues,
    task: _Task,
    model: heads.BertClassifier,
    examples: Sequence[InputExample],
    step: int,
    suffix: str,
) -> None:
    """Writes `eval_results.txt` and, for classes, `eval_report.txt`."""
    logging.info("***** Running evaluation *****")
    logging.info("  Num examples = %d", len(examples))

    def predict_fn(outputs, batch):
        return {
            "logits": outputs["logits"],
            "label_ids": batch["label_ids"],
            "example_loss": losses.classifier_example_loss(outputs, batch),
        }

    rows = _rows(
        task,
        model,
        examples,
        os.path.join(values.output_dir, f"eval{suffix}.tf_record"),
        values.eval_batch_size,
        predict_fn,
    )
    columns = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    scores = _scores(task, columns, values.eval_batch_size)
    path = os.path.join(values.output_dir, f"eval_results{suffix}.txt")
    classifier_results.write_eval_results(path, {**scores, "global_step": step})
    for name, score in sorted(scores.items()):
        logging.info("  %s = %s", name, score)
    logging.info("Scores: %s", path)
    training.write_summary(
        values.output_dir, step, {k + suffix: v for k, v in scores.items()}
    )
    if not task.is_regression:
        confusion = metrics.confusion_matrix(
            columns["label_ids"],
            columns["logits"].argmax(-1),
            len(task.label_list),
        )
        path = os.path.join(values.output_dir, f"eval_report{suffix}.txt")
        classifier_results.write_eval_report(
            path,
            task.label_list,
            confusion,
            metrics.per_label_scores(confusion),
        )
        logging.info("Scores of each label: %s", path)


def _scores(
    task: _Task, columns: Mapping[str, np.ndarray], batch_size: int
) -> dict[str, Any]:
    """The released scores and the official ones of the task."""
    example_loss, labels = columns["example_loss"], columns["label_ids"]
    batches = np.split(
        example_loss, range(batch_size, len(example_loss), batch_size)
    )
    scores = {
        "eval_loss": np.mean(example_loss),
        # As released: a mean over batches, of which the last may be short.
        "loss": np.mean([np.mean(batch) for batch in batches]),
    }
    if task.is_regression:
        predictions = columns["logits"][:, 0]
    else:
        predictions = columns["logits"].argmax(-1)
        scores["eval_accuracy"] = metrics.accuracy(labels, predictions)
    for name in task.metric_names:
        scores[f"eval_{name}"] = getattr(metrics, name)(labels, predictions)
    return {name: np.float32(score) for name, score in scores.items()}


def _predict(
    values: flags.FlagValues,
    task: _Task,
    model: heads.BertClassifier,
    examples: Sequence[InputExample],
    suffix: str,
) -> None:
    """Writes `test_results.tsv` and `test_predictions.tsv`."""
    logging.info("***** Running prediction *****")
    logging.info("  Num examples = %d", len(examples))

    def predict_fn(outputs, unused_batch):
        name = "logits" if task.is_regression else "probabilities"
        return {"probabilities": outputs[name]}

    rows = _rows(
        task,
        model,
        examples,
        os.path.join(values.output_dir, f"predict{suffix}.tf_record"),
        values.predict_batch_size,
        predict_fn,
    )
    probabilities = [row["probabilities"] for row in rows]
    path = functools.partial(os.path.join, values.output_dir)
    classifier_results.write_test_results(
        path(f"test_results{suffix}.tsv"), probabilities
    )
    classifier_results.write_test_predictions(
        path(f"test_predictions{suffix}.tsv"),
        [
            row[0] if task.is_regression else task.label_list[row.argmax()]
            for row in probabilities
        ],
    )
    logging.info(
        "Predictions: %s and test_predictions%s.tsv",
        path(f"test_results{suffix}.tsv"),
        suffix,
    )


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    common_flags.run(main)
