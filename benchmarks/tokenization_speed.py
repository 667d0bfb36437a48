"""Times FullTokenizer.encode against the Rust `tokenizers` package.

Each round starts a fresh process for ours and one for the peer, alternately,
each bound to one core. A process reads the file, then passes over all lines
twice, line by line: the first pass is cold (a new tokenizer, nothing
remembered), the second warm. Reading the file and loading the vocabulary are
not in the times. Example:

    python benchmarks/tokenization_speed.py --vocab_file=vocab.txt \\
        --input_file=english.txt --peer_python=/path/to/env/bin/python

Only the standard library is imported here, so the peer's interpreter needs no
more than `tokenizers`.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def our_encode(vocab_file: str, do_lower_case: bool) -> Callable:
    """Returns text -> list of ids by this project, with empty caches."""
    sys.path.insert(0, ROOT)
    import tokenization

    return tokenization.FullTokenizer(vocab_file, do_lower_case).encode


def peer_encode(vocab_file: str, do_lower_case: bool) -> Callable:
    """Returns text -> list of ids by `tokenizers`, without its wrapper."""
    import tokenizers

    model = tokenizers.models.WordPiece.from_file(
        vocab_file, unk_token="[UNK]", max_input_chars_per_word=200
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=do_lower_case
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def measure(args: argparse.Namespace) -> dict:
    """Returns seconds of both passes, megabytes and a digest of the ids."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with open(args.input_file, encoding="utf-8", newline="\n") as reader:
        text = reader.read()
    lines = text.split("\n")
    make = our_encode if args.role == "ours" else peer_encode
    encode = make(args.vocab_file, args.do_lower_case)
    seconds = []
    for _ in ("cold", "warm"):
        start = time.perf_counter()
        for line in lines:
            encode(line)
        seconds.append(time.perf_counter() - start)
    digest = hashlib.sha256()
    num_tokens = 0
    for line in lines:
        ids = encode(line)
        num_tokens += len(ids)
        digest.update(json.dumps(ids).encode())
    return {
        "cold": seconds[0],
        "warm": seconds[1],
        "megabytes": len(text.encode()) / 1e6,
        "num_tokens": num_tokens,
        "ids": digest.hexdigest(),
    }


def run(role: str, python: str, args: argparse.Namespace) -> dict:
    """Measures one side in a process of its own."""
    command = [
        python,
        os.path.abspath(__file__),
        f"--role={role}",
        f"--vocab_file={args.vocab_file}",
        f"--input_file={args.input_file}",
        "--do_lower_case" if args.do_lower_case else "--no-do_lower_case",
    ]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(result.stdout)


def compare(args: argparse.Namespace) -> None:
    """Runs both sides alternately and prints megabytes per second."""
    sides = {"ours": sys.executable}
    if args.peer_python:
        sides["peer"] = args.peer_python
    results: dict[str, list[dict]] = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, python in sides.items():
            results[side].append(run(side, python, args))
    rates: dict[tuple[str, str], list[float]] = {}
    for side, rounds in results.items():
        for phase in ("cold", "warm"):
            speeds = [r["megabytes"] / r[phase] for r in rounds]
            rates[side, phase] = speeds
            print(
                f"{side} {phase}: {statistics.median(speeds):.2f} MB/s, "
                "median of " + " ".join(f"{speed:.2f}" for speed in speeds)
            )
    if args.peer_python:
        for phase in ("cold", "warm"):
            # Within a round, so that a busy machine slows down both sides.
            pairs = zip(rates["ours", phase], rates["peer", phase], strict=True)
            ratio = statistics.median(ours / peer for ours, peer in pairs)
            print(f"ours / peer, {phase}: {ratio:.2f}x, median of the rounds")
        same = len({r["ids"] for rs in results.values() for r in rs}) == 1
        print(f"same ids on every line: {'yes' if same else 'no'}")
    print(f"tokens: {results['ours'][0]['num_tokens']}")


def main() -> None:
    """Measures one side (a child process) or compares both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--input_file", required=True, help="UTF-8 text")
    parser.add_argument(
        "--peer_python",
        help="interpreter that has `tokenizers`; without it, ours only",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--do_lower_case", action=argparse.BooleanOptionalAction, default=True
    )
    parser.add_argument(
        "--role", choices=("ours", "peer"), help=argparse.SUPPRESS
    )
    args = parser.parse_args()
    if args.role:
        print(json.dumps(measure(args)))
    else:
        compare(args)


if __name__ == "__main__":
    main()
