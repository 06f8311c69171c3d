# Targets with a `##` are listed by `make help`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint thresholds types layers docs check bench-reader bench-diagnosis clean

help: ## list these targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/lanewise: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e '.[dev]'
	@touch $@

setup: $(BIN)/lanewise ## make the virtual environment with everything that development needs

demo: $(BIN)/lanewise ## explain a bundled H100 trace (and record a CPU program if torch is installed)
	@$(BIN)/lanewise demo

test: $(BIN)/lanewise ## run the fast tests
	$(BIN)/pytest -m "not slow and not gpu" -n auto --dist loadfile

test-all: $(BIN)/lanewise ## run all tests but those that need a GPU
	$(BIN)/pytest -m "not gpu"

lint: $(BIN)/lanewise ## style
	$(BIN)/ruff check .

thresholds: $(BIN)/lanewise ## which thresholds of rules no test pins (two minutes)
	$(BIN)/python scripts/pinned_thresholds.py

types: $(BIN)/lanewise ## strict types
	$(BIN)/pyright --pythonpath $(BIN)/python

layers: $(BIN)/lanewise ## data flows one way
	$(BIN)/lint-imports

docs: $(BIN)/lanewise ## regenerate the generated pages of docs/
	$(BIN)/python scripts/generate_docs.py

check: lint types layers test-all ## everything that CI checks

bench-reader: $(BIN)/lanewise ## speed and memory of the reader beside its peers
	$(BIN)/python benchmarks/reader/bench.py

bench-diagnosis: $(BIN)/lanewise ## how right the diagnoses are on labelled recordings
	$(BIN)/python -m benchmarks.diagnosis

clean: ## remove what was built
	rm -rf $(VENV) dist build site .pytest_cache .ruff_cache .hypothesis
