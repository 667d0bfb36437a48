"""Fine-tunes and runs BERT with Hugging Face transformers, for comparison.

Runs in an environment of its own, which needs torch, transformers and numpy
(`pip install torch transformers`) and nothing of this project. The peer is
`BertForSequenceClassification` in float32 with its own dropout, AdamW without
decay on biases and LayerNorms, clipping at norm 1.0, linear warmup and decay:
what its documentation recommends, in the fastest form measured (see
--attention and `create_optimizer`).

Both sides of a comparison see the batches of `mrpc.batches`. Text is
tokenized before the clock starts; making tensors and padding is timed.

    python benchmarks/peer_transformers.py --data_dir=glue/MRPC \
        --hf_dir=minilm --padding=longest --mode=train --steps=20
    python benchmarks/peer_transformers.py --data_dir=glue/MRPC \
        --hf_dir=minilm --padding=longest --mode=finetune --epochs=3

Prints one JSON line. --mode=serve prints {"ready": ...} and then one line for
each line it reads, "VERB PADDING START N" (train or inference on N batches, the
first of them number START), until its input ends; finetune_speed.py drives it
that way.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

# Nothing is to be fetched: the weights are a directory on this machine.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import mrpc
import numpy as np
import torch
import transformers

NO_DECAY = ("bias", "LayerNorm.weight")


def tokenize(
    tokenizer: transformers.PreTrainedTokenizerBase,
    pairs: list[tuple[str, str]],
    max_seq_length: int,
) -> list[tuple[list[int], list[int]]]:
    """Returns (input ids, segment ids) of each pair, not padded."""
    encoded = tokenizer(
        [a for a, _ in pairs],
        [b for _, b in pairs],
        truncation="longest_first",
        max_length=max_seq_length,
    )
    return list(
        zip(encoded["input_ids"], encoded["token_type_ids"], strict=True)
    )


def make_batch(
    features: list[tuple[list[int], list[int]]],
    labels: list[int],
    rows: np.ndarray,
    length: int | None,
) -> dict[str, torch.Tensor]:
    """Returns the model's arguments for `rows`, padded to `length` or longest.

    input_ids, attention_mask and token_type_ids are int64 [batch, length],
    labels int64 [batch].
    """
    length = length or max(len(features[row][0]) for row in rows)
    arrays = np.zeros((3, len(rows), length), np.int64)
    for i, row in enumerate(rows):
        ids, segments = features[row]
        arrays[0, i, : len(ids)] = ids
        arrays[1, i, : len(ids)] = 1
        arrays[2, i, : len(ids)] = segments
    input_ids, attention_mask, token_type_ids = torch.from_numpy(arrays)
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "token_type_ids": token_type_ids,
        "labels": torch.tensor([labels[row] for row in rows]),
    }


def create_optimizer(
    model: torch.nn.Module, learning_rate: float, num_train_steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Returns AdamW (one fused pass over the weights) and its schedule."""
    groups: list[list[torch.nn.Parameter]] = [[], []]
    for name, parameter in model.named_parameters():
        groups[name.endswith(NO_DECAY)].append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {"params": groups[0], "weight_decay": 0.01},
            {"params": groups[1], "weight_decay": 0.0},
        ],
        lr=learning_rate,
        fused=True,
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, num_train_steps // 10, num_train_steps
    )
    return optimizer, schedule


class Peer:
    """The model, its data and where in the order of batches it is."""

    def __init__(self, args: argparse.Namespace):
        """Reads the data and builds the model; the clock has not started."""
        torch.manual_seed(args.seed)
        torch.set_num_threads(args.threads)
        self.args = args
        self.model, tokenizer = load_model(args)
        self.pairs, self.labels = mrpc.read_pairs(
            Path(args.data_dir, "train.tsv")
        )
        self.features = tokenize(tokenizer, self.pairs, args.max_seq_length)
        self.tokenizer = tokenizer
        num_train_steps = int(len(self.pairs) / args.batch_size * args.epochs)
        self.num_train_steps = num_train_steps
        self.optimizer, self.schedule = create_optimizer(
            self.model, args.learning_rate, num_train_steps
        )

    def batches(self, start: int, count: int) -> list[np.ndarray]:
        """Returns the row numbers of `count` batches."""
        return mrpc.batches(
            len(self.pairs), self.args.batch_size, self.args.seed, start, count
        )

    def batch(self, rows: np.ndarray, padding: str) -> dict[str, torch.Tensor]:
        """Returns the model's arguments for `rows` of train.tsv."""
        is_full = padding == "max_length"
        length = self.args.max_seq_length if is_full else None
        return make_batch(self.features, self.labels, rows, length)

    def train_step(self, rows: np.ndarray, padding: str) -> float:
        """Takes one optimizer step on `rows`; returns the loss."""
        batch = self.batch(rows, padding)
        loss = self.model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def inference_step(self, rows: np.ndarray, padding: str) -> None:
        """Computes the logits of `rows`."""
        with torch.inference_mode():
            self.model(**self.batch(rows, padding))

    def run(
        self, verb: str, padding: str, start: int, count: int
    ) -> dict[str, float | int]:
        """Times "train" or "inference" on `count` batches from `start`."""
        step = self.train_step if verb == "train" else self.inference_step
        self.model.train(verb == "train")
        lengths = np.array([len(ids) for ids, _ in self.features])
        return mrpc.timed(
            lambda rows: step(rows, padding),
            self.batches(start, count),
            lengths,
        )

    def finetune(self) -> dict[str, float | int]:
        """Trains for all epochs; returns the scores on dev.tsv."""
        self.model.train()
        start = time.perf_counter()
        batches = self.batches(0, self.num_train_steps)
        for step, rows in enumerate(batches, 1):
            loss = self.train_step(rows, self.args.padding)
            if step % 20 == 0:
                print(
                    f"step {step}/{self.num_train_steps} loss {loss:.4f} "
                    f"{time.perf_counter() - start:.0f} s",
                    file=sys.stderr,
                )
        seconds = time.perf_counter() - start
        return {
            "steps": self.num_train_steps,
            "train_seconds": seconds,
            **self.evaluate(),
        }

    def evaluate(self) -> dict[str, float]:
        """Returns accuracy and F1 on dev.tsv."""
        pairs, labels = mrpc.read_pairs(Path(self.args.data_dir, "dev.tsv"))
        features = tokenize(self.tokenizer, pairs, self.args.max_seq_length)
        self.model.eval()
        predictions = []
        for start in range(0, len(pairs), self.args.batch_size):
            rows = np.arange(
                start, min(start + self.args.batch_size, len(pairs))
            )
            batch = make_batch(features, labels, rows, None)
            with torch.inference_mode():
                predictions += self.model(**batch).logits.argmax(-1).tolist()
        wanted, got = np.array(labels), np.array(predictions)
        both = np.sum((wanted == 1) & (got == 1))
        return {
            "eval_accuracy": float(np.mean(wanted == got)),
            "f1": float(2 * both / max(1, wanted.sum() + got.sum())),
        }


def load_model(
    args: argparse.Namespace,
) -> tuple[torch.nn.Module, transformers.PreTrainedTokenizerBase]:
    """Returns the model with released or random weights, and its tokenizer."""
    if args.hf_dir:
        model = transformers.BertForSequenceClassification.from_pretrained(
            args.hf_dir,
            num_labels=2,
            dtype=torch.float32,
            attn_implementation=args.attention,
        )
        vocab_file = Path(args.hf_dir, "vocab.txt")
    else:
        config = transformers.BertConfig.from_json_file(args.bert_config_file)
        config._attn_implementation = args.attention
        model = transformers.BertForSequenceClassification(config)
        vocab_file = args.vocab_file
    vocab = Path(vocab_file).read_text(encoding="utf-8").split("\n")
    tokenizer = transformers.BertTokenizerFast(
        vocab={token: i for i, token in enumerate(vocab) if token},
        do_lower_case=True,
    )
    return model, tokenizer


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Returns the command line's flags, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument(
        "--mode",
        choices=("train", "inference", "finetune", "serve"),
        default="train",
    )
    parser.add_argument("--data_dir", required=True, help="folder of MRPC")
    parser.add_argument(
        "--hf_dir", help="folder with config.json, model.safetensors, vocab.txt"
    )
    parser.add_argument(
        "--bert_config_file", help="for random weights, instead of --hf_dir"
    )
    parser.add_argument("--vocab_file", help="for random weights")
    parser.add_argument(
        "--padding", choices=("max_length", "longest"), default="longest"
    )
    parser.add_argument(
        "--attention", choices=("eager", "sdpa"), default="eager"
    )
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument(
        "--steps", type=int, default=10, help="timed steps of train, inference"
    )
    parser.add_argument(
        "--warmup_steps", type=int, default=2, help="steps before the clock"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if not args.hf_dir and not (args.bert_config_file and args.vocab_file):
        parser.error(
            "give --hf_dir, or --bert_config_file and --vocab_file for random "
            "weights"
        )
    return args


def main() -> None:
    """Runs the mode asked for and prints its JSON."""
    args = parse_args()
    # Standard output is for our JSON alone; libraries may print what they like.
    out, sys.stdout = sys.stdout, sys.stderr
    peer = Peer(args)

    def answer(values):
        print(json.dumps(values), file=out, flush=True)

    about = {
        "library": f"transformers {transformers.__version__}, "
        f"torch {torch.__version__}",
        "attention": args.attention,
        "threads": torch.get_num_threads(),
        "seed": args.seed,
    }
    if args.mode == "serve":
        answer({"ready": True, **about})
        for line in sys.stdin:
            verb, padding, start, count = line.split()
            answer(peer.run(verb, padding, int(start), int(count)))
        return
    about |= {"mode": args.mode, "padding": args.padding}
    if args.mode == "finetune":
        answer({**about, **peer.finetune()})
    else:
        peer.run(args.mode, args.padding, 0, args.warmup_steps)
        timed = peer.run(args.mode, args.padding, args.warmup_steps, args.steps)
        answer({**about, **timed})


if __name__ == "__main__":
    main()
