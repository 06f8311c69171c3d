# Targets with a `##` are listed by `make help`.
PYTHON ?= python3
# What the tests see of torch: `none`, or what pip is to install, such as TORCH=torch==2.14.0. By default any that is
# there, or a CPU build of this one. Each world has an environment of its own.
TORCH ?= torch==2.13.0
ifeq ($(TORCH),none)
VENV ?= .venv-no-torch
else
VENV ?= .venv
endif
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check $(shell test -t 2 || echo --quiet)
# What has been put into the environment, each as a file.
HAS := $(VENV)/has

# Tests start hundreds of programs; where this is set, each would compile all of lanewise anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup torch triton demo tour test test-all lint thresholds types layers docs docs-check docs-site page page-built page-pictures readers check \
  nightly hooks bench-reader bench-diagnosis clean

help: ## list these targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(HAS)-python:
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) scripts/make_environment.py $(VENV) $(if $(filter none,$(TORCH)),--without-torch)
	@touch $@

# What reads a trace and explains it; the page, which takes a minute, comes with `make setup`.
$(HAS)-lanewise: pyproject.toml | $(HAS)-python
	@echo "Installing lanewise and the five packages that it needs ..."
	@LANEWISE_PAGE=skip $(PIP) install -e .
	@touch $@

torch: $(HAS)-python
ifneq ($(TORCH),none)
	@test "$$(cat $(HAS)-torch 2>/dev/null)" = "$(TORCH)" || \
	  scripts/bring_torch.sh $(VENV) "$(TORCH)" $(if $(filter file,$(origin TORCH)),or-none)
	@echo "$(TORCH)" >$(HAS)-torch
endif

# Kernels are tested on the CPU in Triton's interpreter, and compiled for cards that are not there. CPU builds of torch come
# without it, and no other test may meet it: what it decides when it is loaded holds for the process. Linux only. NVRTC, which
# compiles CUDA C++, is no newer than the disassembler that Triton brings.
TRITON := $(VENV)/triton
# Of what is interpreted and of what is compiled each has a process of its own.
COMPILED := tests/machine_code/test_compiled.py tests/machine_code/test_planted_cuda.py tests/capture/sampling/test_library_code.py
triton: torch
ifneq ($(TORCH),none)
	@test -f $(HAS)-triton || $(BIN)/python -c 'import triton' 2>/dev/null || \
	  { echo "Getting Triton ..."; $(PIP) install --no-deps --target $(TRITON) 'triton>=3.8' 'nvidia-cuda-nvrtc>=13,<13.2'; } || \
	  echo "There is no Triton for this machine: tests of kernels are left out."
	@touch $(HAS)-triton
endif

$(HAS)-tour: pyproject.toml | $(HAS)-python
	@echo "Installing lanewise with what edits programs ..."
	@LANEWISE_PAGE=skip $(PIP) install -e '.[fix]'
	@touch $@ $(HAS)-lanewise

$(HAS)-dev: pyproject.toml | $(HAS)-python
	@echo "Installing what development needs, and building the page ..."
	@$(PIP) install -e '.[dev]'
	@touch $@ $(HAS)-lanewise

setup: torch triton $(HAS)-dev ## make the virtual environment with everything that development needs, torch for the CPU too

demo: $(HAS)-lanewise ## explain a bundled H100 trace (and record a CPU program if torch is installed)
	@$(BIN)/lanewise demo
	@echo "lanewise is in $(BIN)"

tour: torch $(HAS)-tour ## install what the guided tour needs, and say how to begin
	@echo "Next:  . $(BIN)/activate    and then    lanewise tour --start"

test: setup ## run the fast tests; with TORCH=none those that do without torch; WITHOUT="tests/web" leaves a folder out, MORE="-k x" is for pytest
	@test ! -d $(TRITON)/triton || for tests in tests/kernels "$(COMPILED)"; do \
	  PYTHONPATH=$(TRITON) $(BIN)/pytest $$tests -m "not slow and not gpu" -n auto || [ $$? = 5 ] || exit 1; done
	@$(BIN)/pytest -m "not slow and not gpu" -n auto --dist loadfile $(addprefix --ignore=,$(WITHOUT)) $(MORE)

test-all: setup ## run all tests but those that need a GPU
	@test ! -d $(TRITON)/triton || for tests in tests/kernels "$(COMPILED)"; do \
	  PYTHONPATH=$(TRITON) $(BIN)/pytest $$tests -m "not gpu" -n auto || [ $$? = 5 ] || exit 1; done
	$(BIN)/pytest -m "not gpu"

lint: $(HAS)-dev ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

thresholds: $(HAS)-dev ## which thresholds of rules no test pins (two minutes)
	$(BIN)/python scripts/pinned_thresholds.py

types: torch $(HAS)-dev ## strict types; FILES="src/..." for some files only, in seconds
	$(BIN)/pyright --pythonpath $(BIN)/python $(FILES)

layers: $(HAS)-dev ## data flows one way
	$(BIN)/lint-imports

docs: $(HAS)-dev ## regenerate the generated pages of docs/
	$(BIN)/python scripts/generate_docs.py

docs-check: $(HAS)-dev ## whether the generated pages are up to date
	$(BIN)/python scripts/generate_docs.py --check

# The site has an environment of its own: nothing else needs what it needs.
.venv-docs/has: pyproject.toml
	@$(PYTHON) -m venv .venv-docs
	@LANEWISE_PAGE=skip .venv-docs/bin/pip --disable-pip-version-check --quiet install -e '.[docs]'
	@touch $@

docs-site: .venv-docs/has ## build the site of docs/ into site/, links checked
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

web/node_modules: web/package-lock.json
	cd web && npm ci --ignore-scripts --silent
	@touch $@

page: web/node_modules ## types, style and unit tests of the page (needs Node.js)
	cd web && npm run --silent check

page-built: $(HAS)-dev web/node_modules ## build the page into the package, as `lanewise view` shows it
	@LANEWISE_PAGE=require $(PIP) install --no-deps -e .

page-pictures: $(HAS)-dev ## draw the pictures of docs/images anew (needs Chromium)
	$(BIN)/python scripts/page_pictures.py

# Exports of the call tree are read back by the readers of the tools that they are for.
readers:
	cd tests/tree/readers && npm ci --ignore-scripts --silent

check: ## everything that CI checks, the tests without torch and with it
	@$(if $(filter file,$(origin TORCH)),,TORCH='$(TORCH)') .ci/run

nightly: setup docs-site ## what takes too long for every change: slow tests, how much of the code all tests reach, the site
	$(BIN)/pytest -m "not gpu" -n auto --dist loadfile --cov --cov-report=term:skip-covered

hooks: $(HAS)-dev ## have style and docs checked at each commit
	$(BIN)/pre-commit install

bench-reader: $(HAS)-dev ## speed and memory of the reader beside its peers
	$(BIN)/python benchmarks/reader/bench.py

bench-diagnosis: $(HAS)-dev ## how right the diagnoses are on labelled recordings
	$(BIN)/python -m benchmarks.diagnosis

clean: ## remove what was built
	rm -rf $(VENV) $(VENV)-no-torch .venv-docs dist build site .pytest_cache .ruff_cache .hypothesis
