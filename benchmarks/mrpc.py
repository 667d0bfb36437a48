"""The rows and the batches that both sides of a comparison train on.

The peers import this from environments of their own: only NumPy is needed.
"""

import os
import time
from collections.abc import Callable
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


def busy_seconds() -> float:
    """Returns the CPU seconds the whole machine has computed, 0 off Linux."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq = map(
        int, stat.read_text().split("\n")[0].split()[1:8]
    )
    ticks = user + nice + system + irq + softirq
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(
    step: Callable[[np.ndarray], None],
    batch_rows: list[np.ndarray],
    lengths: np.ndarray,
) -> dict[str, float | int]:
    """Calls `step` on each batch and returns what one timed run reports.

    Args:
      step: computes on the rows of one batch, and returns when it is finished.
      batch_rows: from `batches`.
      lengths: int64 [num_rows], real tokens of each row.

    Returns:
      Wall time in `seconds`, what was computed on in it, and
      `cores_of_others`: how many cores other processes kept busy meanwhile. A
      timing is worth little unless that is near 0.
    """
    busy, own = busy_seconds(), time.process_time()
    begin = time.perf_counter()
    for rows in batch_rows:
        step(rows)
    seconds = time.perf_counter() - begin
    others = busy_seconds() - busy - (time.process_time() - own)
    seen = lengths[np.concatenate(batch_rows)].astype(np.int64)
    return {
        "steps": len(batch_rows),
        "examples": len(seen),
        "real_tokens": int(seen.sum()),
        "squared_lengths": int((seen**2).sum()),
        "seconds": seconds,
        "examples_per_second": len(seen) / seconds,
        "cores_of_others": max(0.0, others / seconds),
    }
