# make demo and make test work from a fresh clone with only Python 3.11+, pip and make: they build .venv themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
READY_DOCS := $(VENV)/.ready-docs
READY_RELEASE := $(VENV)/.ready-release
# Without bytecode, which takes a minute for all that is installed: Python writes it for what is imported.
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: help setup demo test slurm lint bench docs build clean

help:
	@echo "make setup   create .venv with the library in it"
	@echo "make demo    learn a map and draw it (a few minutes)"
	@echo "make test    run the tests"
	@echo "make slurm   run cells on a real Slurm of one node (needs slurm-wlm, munge and root)"
	@echo "make lint    ruff and mypy"
	@echo "make bench   throughput of every layer, as a ratio to rope"
	@echo "make docs    build the site into site/"
	@echo "make build   build the sdist and the wheel into dist/"

setup: $(READY)

demo: $(READY)
	$(BIN)/mapformers demo $(ARGS)

test: $(READY_DEV)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

slurm: $(READY_DEV)
	$(BIN)/python -m pytest tests/recipes/test_cluster.py --slurm $(ARGS)

lint: $(READY_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/mapformers bench $(ARGS)

docs: $(READY_DOCS)
	$(BIN)/zensical build --clean --strict

build: $(READY_RELEASE)
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
		{ echo "make: Python 3.11 to 3.13 is needed; name yours, as in: make setup PYTHON=python3.12"; exit 2; }
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing into $(VENV) (once)"
	$(PIP_INSTALL) --editable .
	touch $@

$(READY_DEV): $(READY)
	$(PIP_INSTALL) --editable '.[dev]'
	touch $@

$(READY_DOCS): $(READY)
	$(PIP_INSTALL) --editable '.[docs]'
	touch $@

$(READY_RELEASE): $(READY)
	$(PIP_INSTALL) --editable '.[release]'
	touch $@

clean:
	rm -rf $(VENV) site dist build .cache
