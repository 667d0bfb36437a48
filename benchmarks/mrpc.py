"""The rows and the batches that both sides of a comparison train on.

The peers import this from environments of their own: only NumPy is needed.
"""

from pathlib import Path

import numpy as np


def read_pairs(path: Path) -> tuple[list[tuple[str, str]], list[int]]:
    """Returns the sentence pairs and the labels of one MRPC file."""
    rows = path.read_text(encoding="utf-8").split("\n")[1:]
    cells = [row.rstrip("\r").split("\t") for row in rows if row]
    return [(row[3], row[4]) for row in cells], [int(row[0]) for row in cells]


def batches(
    num_rows: int, batch_size: int, seed: int, start: int, count: int
) -> list[np.ndarray]:
    """Returns batches number `start` to `start + count` of one long order.

    The rule: epoch e takes the rows in the order
    `numpy.random.default_rng([seed, e]).permutation(num_rows)`, cut into full
    batches; what is left of an epoch and fills no batch is left out.

    Returns:
      `count` arrays of row numbers, int64 [batch_size].
    """
    per_epoch = num_rows // batch_size
    result = []
    for number in range(start, start + count):
        epoch, i = divmod(number, per_epoch)
        order = np.random.default_rng([seed, epoch]).permutation(num_rows)
        result.append(order[i * batch_size : (i + 1) * batch_size])
    return result


def measured(
    lengths: list[int], num_steps: int, seconds: float
) -> dict[str, float | int]:
    """Returns what one timed run reports.

    Args:
      lengths: number of real tokens of each example that was computed on.
      num_steps: steps that were timed.
      seconds: wall time of all of them.
    """
    return {
        "steps": num_steps,
        "examples": len(lengths),
        "real_tokens": sum(lengths),
        "squared_lengths": sum(length**2 for length in lengths),
        "seconds": seconds,
        "examples_per_second": len(lengths) / seconds,
    }
