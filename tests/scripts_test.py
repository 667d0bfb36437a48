"""Runs the scripts as people do: as processes, which may be killed."""

import functools
import json
import os
import pathlib
import pty
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest

import checkpoint

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLE_DATA = ROOT / "sample_data"
CONFIG = {
    "vocab_size": 572,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
}
NUM_STEPS = 100
SAVE_STEPS = 5
FAILSAFE_SECONDS = 300


def command_line(tmp_path, output_dir, **flags):
    """A short run on the sample data, dropout on."""
    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(CONFIG))
    values = {
        "task_name": "TSV",
        "data_dir": SAMPLE_DATA,
        "vocab_file": SAMPLE_DATA / "vocab.txt",
        "bert_config_file": config,
        "output_dir": output_dir,
        "max_seq_length": 8,
        "train_batch_size": 4,
        "learning_rate": 1e-3,
        "num_train_epochs": NUM_STEPS * 4 / 400,
        "save_checkpoints_steps": SAVE_STEPS,
        **flags,
    }
    arguments = [f"--{name}={value}" for name, value in values.items()]
    return [sys.executable, str(ROOT / "run_classifier.py"), *arguments]


def start(tmp_path, output_dir, stderr=subprocess.PIPE, **flags):
    return subprocess.Popen(
        command_line(tmp_path, output_dir, **flags),
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        cwd=tmp_path,
    )


def finish(process):
    """Waits for the end; returns exit status and what was logged."""
    try:
        _, stderr = process.communicate(timeout=FAILSAFE_SECONDS)
    finally:
        process.kill()
    return process.returncode, stderr.decode()


def steps_in(output_dir):
    names = (path.name for path in pathlib.Path(output_dir).glob("*.index"))
    found = (re.fullmatch(r"model\.ckpt-(\d+)\.index", name) for name in names)
    return sorted(int(match[1]) for match in found if match)


def wait_for_checkpoint(process, output_dir, after=-1):
    """Returns once there is a checkpoint of a later step than `after`."""
    end = time.monotonic() + FAILSAFE_SECONDS
    is_over = False
    while not is_over:
        # Asked first: its last act may be the checkpoint.
        is_over = process.poll() is not None or time.monotonic() > end
        if max(steps_in(output_dir), default=-1) > after:
            return
        time.sleep(0.005)
    process.kill()
    process.communicate()
    raise AssertionError("the script ended, or hangs, without a checkpoint")


def state(output_dir):
    """Weights, slots and step of the last checkpoint, as bytes."""
    assert max(steps_in(output_dir)) == NUM_STEPS
    values = checkpoint.read(checkpoint.latest_checkpoint(str(output_dir)))
    assert "bert/embeddings/word_embeddings/adam_v" in values
    return {name: value.tobytes() for name, value in values.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed: its directory and its log."""
    tmp_path = tmp_path_factory.mktemp("whole")
    output_dir = tmp_path / "a name with spaces"
    process = start(
        tmp_path, output_dir, do_train=True, do_eval=True, do_predict=True
    )
    status, log = finish(process)
    assert status == 0, log
    return output_dir, log


def test_run_trains_scores_and_predicts(whole):
    output_dir, log = whole
    results = (output_dir / "eval_results.txt").read_text()
    assert re.fullmatch(
        r"eval_accuracy = 0\.\d+\neval_loss = \d\.\d+\nglobal_step = 100\n"
        r"loss = \d\.\d+\n",
        results,
    )
    rows = (output_dir / "test_results.tsv").read_text().splitlines()
    assert len(rows) == 20
    assert all(re.fullmatch(r"(\d\.\d+\t){3}\d\.\d+", row) for row in rows)
    header, *predictions = (
        (output_dir / "test_predictions.tsv").read_text().splitlines()
    )
    assert header == "index\tprediction"
    assert [line.split("\t")[0] for line in predictions] == [
        str(i) for i in range(20)
    ]
    labels = {"complaint", "question", "request", "thanks"}
    assert {line.split("\t")[1] for line in predictions} <= labels
    assert steps_in(output_dir) == [80, 85, 90, 95, 100]
    assert "Traceback" not in log
    assert "step 100/100  loss " in log
    assert "Start: from scratch" in log
    for name in ("eval_results.txt", "eval_report.txt", "test_results.tsv"):
        assert str(output_dir / name) in log


def test_prediction_in_a_new_process_needs_no_training_data(whole, tmp_path):
    output_dir, _ = whole
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "test.tsv").write_bytes((SAMPLE_DATA / "test.tsv").read_bytes())
    names = ("test_results.tsv", "test_predictions.tsv")
    before = {name: (output_dir / name).read_bytes() for name in names}
    for name in names:
        (output_dir / name).unlink()
    process = start(tmp_path, output_dir, data_dir=data_dir, do_predict=True)
    status, log = finish(process)
    assert status == 0, log
    assert {name: (output_dir / name).read_bytes() for name in names} == before


def test_run_killed_at_random_moments_ends_in_the_same_bits(whole, tmp_path):
    output_dir = tmp_path / "out"
    generator = random.Random(time.time_ns())
    # The first before there is a checkpoint, the others after one more each.
    moments = [generator.uniform(1.0, 4.0)]
    moments += [generator.uniform(0.0, 0.15) for _ in range(3)]
    for i, moment in enumerate(moments):
        before = max(steps_in(output_dir), default=-1)
        process = start(tmp_path, output_dir, do_train=True)
        if i:
            wait_for_checkpoint(process, output_dir, after=before)
        time.sleep(moment)
        process.kill()
        finish(process)
        if NUM_STEPS in steps_in(output_dir):
            break
    process = start(tmp_path, output_dir, do_train=True)
    status, log = finish(process)
    assert status == 0, log
    assert "Start: resuming" in log
    assert state(output_dir) == state(whole[0]), f"killed after {moments}"
    assert not [p for p in output_dir.iterdir() if ".tmp" in p.name]
    assert (output_dir / "train.tf_record").read_bytes() == (
        whole[0] / "train.tf_record"
    ).read_bytes()


def test_sigterm_saves_and_the_same_command_goes_on(whole, tmp_path):
    flags = {"do_train": True, "save_checkpoints_steps": 1}
    for attempt in range(3):
        output_dir = tmp_path / f"out{attempt}"
        process = start(tmp_path, output_dir, iterations_per_loop=1, **flags)
        wait_for_checkpoint(process, output_dir)
        process.terminate()
        status, log = finish(process)
        if status:
            break  # Else this process was too slow for that one.
    assert status == 143
    match = re.search(
        r"Stopped by SIGTERM at step (\d+) of 100\. The same", log
    )
    assert int(match[1]) == max(steps_in(output_dir)) < NUM_STEPS
    assert "Traceback" not in log
    status, log = finish(start(tmp_path, output_dir, **flags))
    assert status == 0, log
    assert f"model.ckpt-{match[1]} at step {match[1]}." in log
    assert state(output_dir) == state(whole[0])


def test_ctrl_c_on_a_terminal_saves_and_leaves_no_bar(tmp_path):
    output_dir = tmp_path / "out"
    reader, writer = pty.openpty()
    shown = bytearray()

    def collect():
        # The end of a pseudo-terminal is an error.
        try:
            while data := os.read(reader, 4096):
                shown.extend(data)
        except OSError:
            pass

    process = start(
        tmp_path,
        output_dir,
        stderr=writer,
        do_train=True,
        num_train_epochs=100,
        save_checkpoints_steps=1,
        iterations_per_loop=1,
    )
    os.close(writer)
    thread = threading.Thread(target=collect)
    thread.start()
    try:
        wait_for_checkpoint(process, output_dir)
        process.send_signal(signal.SIGINT)
        assert process.wait(FAILSAFE_SECONDS) == 130
    finally:
        process.kill()
        process.wait()
        thread.join()
        os.close(reader)
    text = shown.decode()
    assert re.search(r"\r\[[#.]{20}\] step \d+/10000  ETA ", text)
    bar, last = text.rsplit("\033[K", 1)
    assert "Stopped by SIGINT at step" in bar
    assert last.strip() == ""


def mistake(tmp_path, output_dir="out", arguments=(), prepare=None, **flags):
    """Runs to a mistake; returns its line, the last one."""
    environment = dict(os.environ)
    # TensorFlow's warnings must not come after it.
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    process = subprocess.run(
        [*command_line(tmp_path, output_dir, **flags), *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        preexec_fn=prepare,
        timeout=FAILSAFE_SECONDS,
        check=False,
    )
    assert process.returncode == 1
    assert "Traceback" not in process.stdout + process.stderr
    return process.stderr.rstrip("\n").splitlines()[-1]


def test_mistake_is_the_last_line_and_the_status_is_1(tmp_path):
    line = mistake(tmp_path, vocab_file="nowhere.txt", do_train=True)
    assert line.startswith("run_classifier.py: no such file: 'nowhere.txt'; ")
    assert not (tmp_path / "out").exists()


def test_flag_written_with_a_space_is_refused(tmp_path):
    line = mistake(tmp_path, arguments=["--do_train", "true"])
    assert line.startswith("run_classifier.py: unexpected argument 'true': ")


def test_full_disk_is_one_line(tmp_path):
    # As a full disk, but it can be had by anybody.
    limit = functools.partial(
        resource.setrlimit, resource.RLIMIT_FSIZE, (20_000, 20_000)
    )
    line = mistake(tmp_path, prepare=limit, do_train=True)
    assert line.startswith("run_classifier.py: out/train.tf_record.partial")
    assert "File too large" in line


def test_weight_that_is_not_a_number_ends_training(whole, tmp_path):
    values = checkpoint.read(checkpoint.latest_checkpoint(str(whole[0])))
    values["bert/pooler/dense/bias"][0] = float("nan")
    checkpoint.write(str(tmp_path / "init.ckpt"), values)
    line = mistake(tmp_path, init_checkpoint="init.ckpt", do_train=True)
    assert line.startswith(
        "run_classifier.py: The loss or a gradient of step 1 is not a finite "
    )
    assert steps_in(tmp_path / "out") == []
