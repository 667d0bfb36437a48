"""Settings of every test, made before one of them imports TensorFlow."""

import logging
import os

import pytest

# Whatever backend the developer's own Keras configuration names.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture
def log(caplog, monkeypatch):
    """What absl logs from INFO on; `log.messages` is the list so far."""
    monkeypatch.setattr(logging.getLogger("absl"), "propagate", True)
    caplog.set_level(logging.INFO, logger="absl")
    return caplog
