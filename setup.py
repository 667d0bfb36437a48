"""Packages BERT for TensorFlow: flat modules, run from the checkout."""

from setuptools import setup

# Every module and script at the root of the checkout; tests/layout_test.py
# holds this list equal to what is there.
PY_MODULES = [
    "bert_config",
    "checkpoint",
    "classifier_examples",
    "classifier_features",
    "classifier_results",
    "common_flags",
    "convert_checkpoint",
    "features",
    "file_io",
    "glue",
    "heads",
    "hugging_face",
    "input_pipeline",
    "kernels",
    "losses",
    "metrics",
    "modeling",
    "optimization",
    "progress",
    "run_classifier",
    "token_layout",
    "tokenization",
    "training",
]

HF = ["safetensors>=0.4"]
TEST = ["pytest>=8", *HF]

setup(
    name="bert-for-tensorflow",
    version="0.1.0",
    description="BERT for TensorFlow 2 and Keras 3: the released scripts, "
    "flags and checkpoints as they would be written today",
    license="Apache-2.0",
    python_requires=">=3.11",
    py_modules=PY_MODULES,
    install_requires=[
        "absl-py>=2",
        "keras>=3.10",
        "numpy>=1.26",
        # tf.summary of TensorFlow 2.21 fails without TensorBoard, and
        # TensorFlow itself no longer requires it.
        "tensorboard>=2.20",
        "tensorflow>=2.20,<2.22",
    ],
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.20,<2.22"],
        # 2.20 is the newest tensorflow-tpu there is. Both packages install
        # the same files and pip writes tensorflow's last, so it takes a
        # second command to have the TPU's:
        #   pip install --force-reinstall --no-deps "tensorflow-tpu==2.20.*"
        "tpu": ["tensorflow==2.20.*", "tensorflow-tpu==2.20.*"],
        "hf": HF,
        "test": TEST,
        # Pinned: the formatter's output may change between releases.
        "dev": [*TEST, "ruff==0.17.5"],
    },
)
