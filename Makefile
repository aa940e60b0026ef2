# Two commands do everything on a machine that has only Python 3.11 and a package index:
#   make demo    make test
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# Small networks on few cores are many times faster with one thread for each process.
export OMP_NUM_THREADS ?= 1
WORKERS ?= 2

.PHONY: help setup demo test test-all check lint types format bench docs wheel clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup:  ## make .venv ready (skipped when up to date)
	@$(if $(PYTHON),$(PYTHON) tools/setup.py,echo "DisMix needs Python 3.11 or newer"; exit 2)

demo: setup  ## the whole story on drawn pictures, minutes on a CPU; writes demo/index.html
	@$(BIN)/dismix demo -o demo

test: setup lint types  ## lint, types and the fast tests
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-all: setup lint types  ## lint, types and all tests
	@$(BIN)/python -m pytest -n $(WORKERS)

check: test

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

format: setup  ## reformat the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: setup  ## the data-loading benchmark
	@$(BIN)/python benchmarks/data_loading.py

docs: setup  ## the documentation site; writes site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict && echo "site/index.html (search needs a server: $(BIN)/mkdocs serve)"

wheel: setup  ## build dist/*.whl
	@$(BIN)/python -m build --wheel --no-isolation

clean:  ## remove what make made
	rm -rf .venv demo dist build .pytest_cache .mypy_cache .ruff_cache
