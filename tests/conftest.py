"""Settings of every test, made before one of them imports TensorFlow."""

import os

# Whatever backend the developer's own Keras configuration names.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
