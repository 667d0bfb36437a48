"""Tests of what a person sees while a model is trained."""

import io
import os
import pty
import re
import termios
import types

import pytest

import progress


class Clock:
    """Time that passes when told to."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.fixture
def terminal(monkeypatch):
    """Makes stderr a pseudo-terminal; returns what was shown since."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as stream:
        # sys.stderr itself is pytest's to replace.
        fake_sys = types.SimpleNamespace(stderr=stream)
        monkeypatch.setattr(progress, "sys", fake_sys)

        def shown():
            # A mark, or reading would block where nothing was written.
            stream.write("\0")
            stream.flush()
            text = b""
            while not text.endswith(b"\0"):
                text += os.read(reader, 4096)
            return text[:-1].decode()

        yield shown
    os.close(reader)


def start(tmp_path, step=0, num_steps=100):
    return progress.Progress(step, num_steps, 8, str(tmp_path))


def test_line_says_step_loss_rate_pace_and_remaining_time(tmp_path, clock, log):
    report = start(tmp_path)
    clock.now += 10.0  # Compiles.
    report.update(20, 20, 30.0, 1.0, 5e-5)
    clock.now += 10.0
    report.update(40, 20, 10.0, 1.0, 1.25e-5)
    assert log.messages == [
        "step 20/100  loss 1.5000  learning rate 5e-05  16.0 examples/s  "
        "ETA 0:00:40",
        "step 40/100  loss 0.5000  learning rate 1.25e-05  16.0 examples/s  "
        "ETA 0:00:30",
    ]


def test_lines_are_ten_seconds_apart_and_average_their_steps(
    tmp_path, clock, log
):
    report = start(tmp_path)
    for step, loss in ((1, 4.0), (2, 2.0), (3, 3.0), (4, 9.0)):
        clock.now += 4.0
        report.update(step, 1, loss, 1.0, 1e-3)
    (line,) = log.messages
    assert line.startswith("step 3/100  loss 3.0000  ")


def test_last_step_always_has_its_line(tmp_path, clock, log):
    report = start(tmp_path, num_steps=3)
    clock.now += 0.5
    report.update(3, 3, 6.0, 1.0, 0.0)
    (line,) = log.messages
    assert line.startswith("step 3/3  loss 2.0000")
    assert line.endswith("ETA 0:00:00")


def test_time_of_compilation_is_not_in_the_pace(tmp_path, clock, log):
    report = start(tmp_path)
    clock.now += 30.0
    report.update(1, 1, 1.0, 1.0, 0.0)
    for step in range(2, 30):
        clock.now += 1.0
        report.update(step, 1, 1.0, 1.0, 0.0)
    assert log.messages[-1].startswith("step 21/100  ")
    assert log.messages[-1].endswith("  8.0 examples/s  ETA 0:01:19")


def test_resumed_run_counts_its_own_steps(tmp_path, clock, log):
    report = start(tmp_path, step=90)
    clock.now += 10.0
    report.update(95, 5, 10.0, 1.0, 0.0)
    (line,) = log.messages
    assert line.startswith("step 95/100  loss 2.0000")
    assert "4.0 examples/s  ETA 0:00:10" in line


def test_seconds_of_a_step_are_returned(tmp_path, clock):
    report = start(tmp_path)
    clock.now += 6.0
    assert report.update(3, 3, 1.0, 1.0, 0.0) == pytest.approx(2.0)
    clock.now += 1.0
    assert report.update(7, 4, 1.0, 1.0, 0.0) == pytest.approx(0.25)


def test_no_bar_where_there_is_no_terminal(tmp_path, clock, log, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=stream))
    report = start(tmp_path)
    clock.now += 1.0
    report.update(50, 50, 1.0, 1.0, 0.0)
    report.message("hello")
    report.close()
    assert stream.getvalue() == ""
    assert log.messages == ["hello"]


def test_bar_on_a_terminal_is_drawn_over_itself(tmp_path, clock, terminal):
    report = start(tmp_path)
    clock.now += 2.0
    report.update(25, 25, 50.0, 1.0, 1e-4)
    assert terminal() == (
        "\r[#####...............] step 25/100  ETA 0:00:06  loss 2.0000  100.0 "
        "examples/s\033[K"
    )
    clock.now += 2.0
    report.update(50, 25, 25.0, 1.0, 1e-4)
    assert terminal().startswith("\r[##########..........] step 50/100  ")


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (40, "step 25/100"),
        (60, "step 25/100  ETA 0:00:06"),
        (
            120,
            "step 25/100  ETA 0:00:06  loss 2.0000  100.0 examples/s  "
            "learning rate 0.0001",
        ),
    ],
)
def test_bar_is_never_wider_than_the_terminal(
    tmp_path, clock, terminal, columns, wanted
):
    # A line that wraps could not be drawn over.
    termios.tcsetwinsize(progress.sys.stderr, (24, columns))
    report = start(tmp_path)
    clock.now += 2.0
    report.update(25, 25, 50.0, 1.0, 1e-4)
    assert terminal() == f"\r[#####...............] {wanted}\033[K"


def test_message_clears_the_bar_first(tmp_path, clock, terminal, log):
    report = start(tmp_path)
    clock.now += 2.0
    report.update(25, 25, 50.0, 1.0, 1e-4)
    terminal()
    report.message("Saved it")
    assert terminal() == "\r\033[K"
    assert log.messages == ["Saved it"]


def test_nothing_of_the_bar_is_left_at_the_end(tmp_path, clock, terminal, log):
    report = start(tmp_path)
    clock.now += 2.0
    report.update(25, 25, 50.0, 1.0, 1e-4)
    terminal()
    report.close()
    assert terminal() == "\r\033[K"


def test_finished_run_leaves_its_last_line_in_the_log_of_a_terminal(
    tmp_path, clock, terminal, log
):
    report = start(tmp_path)
    clock.now += 20.0
    report.update(50, 50, 50.0, 1.0, 1e-4)
    assert log.messages == []
    clock.now += 2.0
    report.update(100, 50, 25.0, 1.0, 1e-4)
    (line,) = log.messages
    assert re.match(r"step 100/100  loss 0\.5000", line)
    assert terminal().endswith("\r\033[K")
