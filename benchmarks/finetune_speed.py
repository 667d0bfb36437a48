"""Times fine-tuning and inference against transformers on PyTorch.

Both sides stay alive in processes of their own and take turns, round after
round, on the same batches of MRPC (see mrpc.py), so that a slow minute of the
machine meets both. The peer runs twice a round: padded to the longest example
of the batch, and to max_seq_length.

    python benchmarks/finetune_speed.py --data_dir=glue/MRPC \
        --peer_python=peers/bin/python --hf_dir=minilm \
        --init_checkpoint=minilm_tf/bert_model.ckpt \
        --bert_config_file=minilm_tf/bert_config.json \
        --vocab_file=minilm_tf/vocab.txt

Without --hf_dir and --init_checkpoint both sides start from random weights of
--bert_config_file, which costs the same time.

The last lines compare the work with what the machine can do. Useful work, in
floating-point operations, of examples with n real tokens each, for L layers of
hidden size H and intermediate size I:

    inference:  sum over examples of  2 n L (4 H H + 2 H I) + 4 n n L H
    training:   three times that (forward, and two products for each backward)

The first term is the kernels: a multiplication and an addition per token and
weight. The second is attention: scores and weighted values, n x n products of
size H each. Padding, embeddings, the pooler and everything element-wise count
as no work, so they lower the share. All positions of the last layer count,
though our side computes most of it for [CLS] alone, which raises the share: of
6 layers by 16%, of 12 by 7%. The machine's rate is that of TensorFlow's
float32 `tf.matmul`, at the shapes of this model's feed-forward layer and of
large squares, measured in every round by our process.
"""

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import mrpc
import numpy as np

HERE = Path(__file__).resolve().parent

SQUARE = 2048
# Number of the first batch that is timed; those before it are for warming up.
FIRST_TIMED = 100
# More training steps than any run of this file takes.
FOR_EVER = 1_000_000
# Side, padding -> what the table calls it.
SIDES = {
    ("ours", "removed"): "ours, padding removed",
    ("peer", "longest"): "transformers, to the longest",
    ("peer", "max_length"): "transformers, to max_seq_length",
}


# --- Our side, in a process of its own ---------------------------------------


class OurSide:
    """Our model, its data and its training run."""

    def __init__(self, args: argparse.Namespace, output_dir: str):
        """Reads the data and builds the model; the clock has not started."""
        sys.path.insert(0, str(HERE.parent))
        os.environ["KERAS_BACKEND"] = "tensorflow"
        import tensorflow as tf

        import heads
        import modeling

        tf.config.threading.set_intra_op_parallelism_threads(args.threads)
        tf.config.threading.set_inter_op_parallelism_threads(args.threads)
        self.tf = tf
        self.args = args
        self.arrays = read_arrays(args)
        self.model = heads.BertClassifier(
            modeling.BertConfig.from_json_file(args.bert_config_file),
            num_labels=2,
            random_seed=args.seed,
        )
        # Rows for the next training step, and the end of the one before it.
        self.rows_to_train = queue.SimpleQueue()
        self.is_waiting = queue.SimpleQueue()
        threading.Thread(
            target=self._train, args=[output_dir], daemon=True
        ).start()
        self.is_waiting.get()

        @tf.function(autograph=False, reduce_retracing=True)
        def probabilities(batch):
            return tf.nn.softmax(self.model(batch)["logits"])

        self.probabilities = probabilities

    def _train(self, output_dir: str) -> None:
        """Trains with the library's own loop, which waits for its batches.

        With one step a call the loop asks for a batch when the step before is
        finished, and so tells when that was.
        """
        import losses
        import optimization
        import training

        num_train_steps = int(
            len(self.arrays["input_ids"]) / self.args.batch_size * 3
        )
        try:
            training.train(
                self.model,
                optimization.create_optimizer(
                    self.args.learning_rate,
                    num_train_steps,
                    num_train_steps // 10,
                ),
                losses.classifier_loss,
                lambda step: self._fed_dataset(),
                loss_weights_fn=losses.classifier_loss_weights,
                num_train_steps=FOR_EVER,
                output_dir=output_dir,
                batch_size=self.args.batch_size,
                init_checkpoint=self.args.init_checkpoint,
                random_seed=self.args.seed,
                save_checkpoints_steps=FOR_EVER,
                iterations_per_loop=1,
            )
        except BaseException:
            traceback.print_exc()
            # The main thread waits for a step that will not be made.
            os._exit(1)

    def _fed_dataset(self):
        """Returns a dataset of the batches that `run` asks to train on."""

        def feed():
            while True:
                self.is_waiting.put(True)
                rows = self.rows_to_train.get()
                yield {name: array[rows] for name, array in self.arrays.items()}

        signature = {
            name: self.tf.TensorSpec(
                (self.args.batch_size, *array.shape[1:]), self.tf.int32
            )
            for name, array in self.arrays.items()
        }
        dataset = self.tf.data.Dataset.from_generator(
            feed, output_signature=signature
        )
        options = self.tf.data.Options()
        # Waiting must not take one of the threads that compute.
        options.threading.private_threadpool_size = 1
        # Nor may a batch be asked for before its step begins.
        options.experimental_optimization.inject_prefetch = False
        return dataset.with_options(options)

    def train_step(self, rows) -> None:
        """Takes one optimizer step."""
        self.rows_to_train.put(rows)
        self.is_waiting.get()

    def inference_step(self, rows) -> None:
        """Computes the probabilities of one batch."""
        batch = {
            name: self.tf.constant(array[rows])
            for name, array in self.arrays.items()
        }
        self.probabilities(batch).numpy()

    def run(self, verb: str, start: int, count: int) -> dict:
        """Times "train" or "inference" on `count` batches from `start`."""
        step = self.train_step if verb == "train" else self.inference_step
        lengths = self.arrays["input_mask"].sum(axis=1)
        batches = mrpc.batches(
            len(lengths), self.args.batch_size, self.args.seed, start, count
        )
        return mrpc.timed(step, batches, lengths)

    def matmul_rates(self, num_tokens: int) -> dict[str, float]:
        """Measures float32 matmul, in 1e9 operations a second.

        Args:
          num_tokens: rows of the feed-forward layer's input.
        """
        tf = self.tf
        config = read_json(self.args.bert_config_file)
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        shapes = {
            "feed_forward": [
                (num_tokens, hidden, inner),
                (num_tokens, inner, hidden),
            ],
            "square": [(SQUARE, SQUARE, SQUARE)],
        }
        rates = {}
        for name, products in shapes.items():
            operands = [
                (tf.random.normal([m, k]), tf.random.normal([k, n]))
                for m, k, n in products
            ]
            for a, b in operands:
                tf.matmul(a, b).numpy()
            repeats, start = 0, time.perf_counter()
            while time.perf_counter() - start < 1.0:
                for a, b in operands:
                    # One element to the host: the product is finished.
                    tf.matmul(a, b)[0, 0].numpy()
                repeats += 1
            seconds = time.perf_counter() - start
            work = repeats * sum(2 * m * k * n for m, k, n in products)
            rates[name] = work / seconds / 1e9
        return rates


def read_arrays(args: argparse.Namespace) -> dict:
    """Returns train.tsv as int32 arrays [num_rows, ...], by record name."""
    import classifier_features
    import glue
    import tokenization

    processor = glue.MrpcProcessor()
    records = [
        features.as_record()
        for features in classifier_features.convert_examples_to_features(
            processor.get_train_examples(args.data_dir),
            processor.get_labels(),
            args.max_seq_length,
            tokenization.FullTokenizer(args.vocab_file),
        )
    ]
    return {
        name: np.array([record[name] for record in records], np.int32)
        for name in records[0]
    }


def serve(args: argparse.Namespace) -> None:
    """Answers one JSON line to each line "VERB PADDING START N" it reads."""
    out, sys.stdout = sys.stdout, sys.stderr
    with tempfile.TemporaryDirectory() as output_dir:
        side = OurSide(args, output_dir)
        answer = {"ready": True, "library": f"TensorFlow {side.tf.__version__}"}
        print(json.dumps(answer), file=out, flush=True)
        for line in sys.stdin:
            verb, _, start, count = line.split()
            if verb == "matmul":
                answer = side.matmul_rates(int(count))
            else:
                answer = side.run(verb, int(start), int(count))
            print(json.dumps(answer), file=out, flush=True)
    # The training thread still waits for a batch: nothing is to be tidied up.
    os._exit(0)


# --- The driver --------------------------------------------------------------


class Process:
    """One side, alive between rounds."""

    def __init__(self, command: list[str], log_path: Path):
        """Starts it and waits until its model is built."""
        self.name = f"{Path(command[1]).name} (log: {log_path})"
        with log_path.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.about = self._read()

    def ask(self, verb: str, padding: str, start: int, count: int) -> dict:
        """Returns the answer to one line."""
        self.process.stdin.write(f"{verb} {padding} {start} {count}\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended before it answered")
        return json.loads(line)

    def close(self) -> None:
        """Ends its input, and so the process."""
        self.process.stdin.close()
        self.process.wait()


def useful_work(config: dict, verb: str, answer: dict) -> float:
    """Returns the operations counted in the first lines of this file."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kernels = 2 * (4 * hidden * hidden + 2 * hidden * inner)
    per_layer = (
        answer["real_tokens"] * kernels + answer["squared_lengths"] * 4 * hidden
    )
    passes = 3 if verb == "train" else 1
    return passes * config["num_hidden_layers"] * per_layer


def run_rounds(args: argparse.Namespace, processes: dict) -> tuple[dict, list]:
    """Returns the answers by (verb, side, padding), and the matmul rates."""
    for side, padding in SIDES:
        count = args.our_warmup_steps if side == "ours" else args.warmup_steps
        for verb in args.verbs:
            processes[side].ask(verb, padding, 0, count)
    answers, rates = {}, []
    for number in range(args.rounds):
        for verb in args.verbs:
            # Who goes first changes from round to round.
            order = list(SIDES)[:: 1 if number % 2 else -1]
            for side, padding in order:
                answer = processes[side].ask(
                    verb, padding, FIRST_TIMED + number * args.steps, args.steps
                )
                answers.setdefault((verb, side, padding), []).append(answer)
                print(
                    f"round {number + 1} {verb}: {SIDES[side, padding]} "
                    f"{answer['examples_per_second']:.2f} examples/s",
                    file=sys.stderr,
                )
            tokens = {
                answers[verb, side, padding][-1]["real_tokens"]
                for side, padding in SIDES
            }
            if len(tokens) > 1:
                raise SystemExit(
                    f"The sides did not see the same text: {tokens} tokens"
                )
        tokens = answer["real_tokens"] // args.steps
        rates.append(processes["ours"].ask("matmul", "-", 0, tokens))
    return answers, rates


def spread(values: list[float], digits: int) -> str:
    """Returns "median (lowest-highest)"."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def report(args: argparse.Namespace, answers: dict, rates: list) -> None:
    """Prints the table."""
    config = read_json(args.bert_config_file)
    row = "{:34}{:>26}{:>26}"
    for verb in args.verbs:
        print()
        print(row.format(verb, "examples/s", "ours is faster by"))
        ours = answers[verb, "ours", "removed"]
        for side, padding in SIDES:
            theirs = answers[verb, side, padding]
            speeds = [answer["examples_per_second"] for answer in theirs]
            # Round by round: both sides computed the same number of batches
            # within the same minute.
            ratios = [
                b["seconds"] / a["seconds"]
                for a, b in zip(ours, theirs, strict=True)
            ]
            ratio = "" if side == "ours" else spread(ratios, 2)
            print(row.format(SIDES[side, padding], spread(speeds, 2), ratio))
    print()
    others = [
        answer["cores_of_others"]
        for side_answers in answers.values()
        for answer in side_answers
    ]
    print(
        f"other processes kept {spread(others, 2)} cores busy meanwhile"
        + "; that distorts, repeat" * (max(others) > 0.1)
    )
    medians = {}
    for name, title in (
        ("feed_forward", "float32 matmul, feed-forward"),
        ("square", f"float32 matmul, {SQUARE} squared"),
    ):
        values = [rate[name] for rate in rates]
        medians[name] = statistics.median(values)
        print(f"{title:34}{spread(values, 0) + ' GF/s':>26}")
    for verb in args.verbs:
        work = [
            useful_work(config, verb, answer) / answer["seconds"] / 1e9
            for answer in answers[verb, "ours", "removed"]
        ]
        shares = " and ".join(
            f"{statistics.median(work) / medians[name]:.0%}" for name in medians
        )
        title = f"ours, {verb}, useful work"
        print(f"{title:34}{spread(work, 0) + ' GF/s':>26}   {shares} of these")


def commands(args: argparse.Namespace, argv: list[str]) -> dict:
    """Returns the command line of each side."""
    shared = [
        f"--{name}={getattr(args, name)}"
        for name in (
            "data_dir",
            "max_seq_length",
            "batch_size",
            "learning_rate",
            "threads",
            "seed",
        )
    ]
    weights = (
        [f"--hf_dir={args.hf_dir}"]
        if args.hf_dir
        else [
            f"--bert_config_file={args.bert_config_file}",
            f"--vocab_file={args.vocab_file}",
        ]
    )
    peer = str(HERE / "peer_transformers.py")
    return {
        "ours": [sys.executable, __file__, *argv, "--serve"],
        "peer": [args.peer_python, peer, "--mode=serve", *shared, *weights],
    }


def read_json(path: str) -> dict:
    """Returns the JSON object in a file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def parse_args(argv: list[str]) -> argparse.Namespace:
    """Returns the command line's flags, checked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--data_dir", required=True, help="folder of MRPC")
    add("--peer_python", required=True, help="Python with transformers, torch")
    add("--bert_config_file", required=True)
    add("--vocab_file", required=True)
    add("--init_checkpoint", help="our weights; without: random")
    add("--hf_dir", help="the peer's weights; without: random")
    add("--verbs", nargs="+", default=["train", "inference"])
    add("--rounds", type=int, default=5)
    add("--steps", type=int, default=4, help="timed steps of each side a round")
    add("--warmup_steps", type=int, default=2, help="of the peer, not timed")
    add(
        "--our_warmup_steps",
        type=int,
        default=40,
        help="not timed; enough for every shape of batch to be compiled",
    )
    add("--max_seq_length", type=int, default=128)
    add("--batch_size", type=int, default=32)
    add("--learning_rate", type=float, default=5e-5)
    add("--threads", type=int, default=2)
    add("--seed", type=int, default=0)
    add("--log_dir", default=".", help="where both sides' messages go")
    add("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if bool(args.hf_dir) != bool(args.init_checkpoint):
        parser.error("give both --hf_dir and --init_checkpoint, or neither")
    return args


def main() -> None:
    """Runs the rounds and prints the table, or is our side of them."""
    argv = sys.argv[1:]
    args = parse_args(argv)
    if args.serve:
        serve(args)
        return
    processes = {
        side: Process(command, Path(args.log_dir, f"finetune_speed_{side}.log"))
        for side, command in commands(args, argv).items()
    }
    for side, process in processes.items():
        print(f"{side}: {process.about['library']}")
    print(
        f"batch {args.batch_size}, max_seq_length {args.max_seq_length}, "
        f"{args.rounds} rounds of {args.steps} steps, {args.threads} threads, "
        f"seed {args.seed}"
    )
    report(args, *run_rounds(args, processes))
    for process in processes.values():
        process.close()


if __name__ == "__main__":
    main()
