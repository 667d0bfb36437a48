# BERT for TensorFlow. `make demo` and `make test` need nothing but a Python
# that TensorFlow supports (3.11 to 3.13) and, the first time, a network.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
DEMO_DIR := demo_output

# The first of these that is new enough; `make test PYTHON=...` overrides it.
PYTHONS := python3 python3.13 python3.12 python3.11
IS_SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in $(PYTHONS); do \
	$$python -c '$(IS_SUPPORTED)' 2> /dev/null && echo $$python && exit; \
	done; echo python3)

# An environment of the caller must not leak into ours.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help demo test lint clean

help:
	@echo "make demo    train a small classifier on sample_data/, print predictions"
	@echo "make test    check the format, lint, run every test"
	@echo "make lint    check the format and lint only"
	@echo "make clean   remove the environment, the caches and what the demo wrote"
	@echo
	@echo "The first of them makes an environment in $(VENV); it is made again only"
	@echo "when setup.py changes. Choose its Python (3.11 to 3.13) with PYTHON=..."

$(STAMP): setup.py
	@$(PYTHON) -c '$(IS_SUPPORTED)' 2> /dev/null || { \
	  echo "Python 3.11, 3.12 or 3.13 is needed; '$(PYTHON) --version' says" \
	    "'$$($(PYTHON) --version 2>&1 | head -n 1)'. Name another:" \
	    "make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing TensorFlow and the rest into $(VENV) (about 2 GB) ..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check -qq -e '.[dev]'
	@touch $@

demo: $(STAMP)
	@rm -rf $(DEMO_DIR)
	@echo "Training on sample_data/train.tsv, from random weights ..."
	$(BIN)/python run_classifier.py \
	  --task_name=TSV \
	  --data_dir=sample_data \
	  --vocab_file=sample_data/vocab.txt \
	  --bert_config_file=sample_data/bert_config.json \
	  --output_dir=$(DEMO_DIR) \
	  --do_train --do_eval --do_predict \
	  --max_seq_length=32 \
	  --train_batch_size=16 \
	  --learning_rate=3e-4 \
	  --num_train_epochs=15
	@echo
	@cat $(DEMO_DIR)/eval_results.txt
	@echo
	@echo "Kind, probability and text of each message in sample_data/test.tsv:"
	@echo
	@paste $(DEMO_DIR)/test_predictions.tsv sample_data/test.tsv | tail -n +2 \
	  | paste - $(DEMO_DIR)/test_results.tsv \
	  | awk -F '\t' '{ best = 0; \
	      for (i = 4; i <= NF; i++) if ($$i > best) best = $$i; \
	      printf "%-10s %.2f  %s\n", $$2, best, $$3 }'

test: lint
	@$(BIN)/python -m pytest

lint: $(STAMP)
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m ruff check .

clean:
	rm -rf $(VENV) $(DEMO_DIR) build dist *.egg-info
	rm -rf .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
