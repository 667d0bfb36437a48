"""How far training is: in the log, on a terminal and in TensorBoard's files."""

import datetime
import math
import os
import sys
import time

import tensorflow as tf
from absl import logging

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Says how far training is: a bar on a terminal, else a line at times.

    Args:
      step: steps made before this run.
      num_steps: steps of the whole run.
      batch_size: global batch, in examples.
      output_dir: where TensorBoard's files go.
    """

    def __init__(
        self, step: int, num_steps: int, batch_size: int, output_dir: str
    ):
        self.num_steps = num_steps
        self.batch_size = batch_size
        self.writer = tf.summary.create_file_writer(output_dir)
        self.is_terminal = sys.stderr.isatty()
        self.last_call = self.last_line = time.monotonic()
        self.line_step, self.line_loss = step, 0.0
        self.seconds_per_step = None
        self.num_updates = 0

    def update(
        self,
        step: int,
        num_made: int,
        loss_sum: float,
        norm: float,
        learning_rate: float,
    ) -> float:
        """Takes note of steps; returns the seconds that one of them took.

        Args:
          step: steps made so far.
          num_made: steps since the last call, at least 1.
          loss_sum: the sum of their losses.
          norm: global gradient norm of the last of them.
          learning_rate: that of the last of them.
        """
        now = time.monotonic()
        seconds = (now - self.last_call) / num_made
        self.last_call = now
        self.line_loss += loss_sum
        self.num_updates += 1
        if self.num_updates <= 2:
            # The first steps compile and say little about the pace: the next
            # ones replace them.
            self.seconds_per_step = seconds
        else:
            recent = 0.8 ** min(num_made, 8)
            self.seconds_per_step *= recent
            self.seconds_per_step += (1.0 - recent) * seconds
        if self.is_terminal:
            fields = self._fields(step, loss_sum / num_made, learning_rate)
            self._draw_bar(step, *fields)
        is_last = step >= self.num_steps
        if now - self.last_line >= SECONDS_BETWEEN_LINES or is_last:
            mean_loss = self.line_loss / (step - self.line_step)
            pace = (step - self.line_step) / (now - self.last_line)
            with self.writer.as_default(step=step):
                tf.summary.scalar("loss", mean_loss)
                tf.summary.scalar("learning_rate", learning_rate)
                tf.summary.scalar("gradient_norm", norm)
                tf.summary.scalar("examples_per_second", pace * self.batch_size)
            self.writer.flush()
            if not self.is_terminal or is_last:
                fields = self._fields(step, mean_loss, learning_rate)
                self.message("  ".join(fields))
            self.last_line = now
            self.line_step, self.line_loss = step, 0.0
        return seconds

    def _fields(self, step, loss, learning_rate):
        remaining = (self.num_steps - step) * self.seconds_per_step
        return (
            f"step {step}/{self.num_steps}",
            f"loss {loss:.4f}",
            f"learning rate {learning_rate:.3g}",
            f"{self.batch_size / self.seconds_per_step:.1f} examples/s",
            f"ETA {datetime.timedelta(seconds=math.ceil(remaining))}",
        )

    def _draw_bar(self, step, done, loss, rate, pace, eta):
        filled = 20 * step // self.num_steps
        line = f"[{'#' * filled}{'.' * (20 - filled)}] {done}"
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        for field in (eta, loss, pace, rate):
            # A line that wraps cannot be drawn over.
            if len(line) + 2 + len(field) >= columns:
                break
            line += f"  {field}"
        self._draw(f"\r{line}\033[K")

    def message(self, text: str) -> None:
        """Logs a line of its own."""
        self._clear_bar()
        logging.info("%s", text)

    def close(self) -> None:
        """Clears the bar and closes TensorBoard's file."""
        self._clear_bar()
        self.writer.close()

    def _clear_bar(self):
        if self.is_terminal:
            self._draw("\r\033[K")

    def _draw(self, text):
        sys.stderr.write(text)
        sys.stderr.flush()
