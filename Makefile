# `make demo` and `make test` need nothing but Python >= 3.11; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint types install release-check clean

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

test: lint types
	$(BIN)/python -m pytest -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/pyright

install: $(VENV)/.installed

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gaflow needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# torch first and by itself, so that the pin decides which build comes
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch
	$(PIP) -e '.[cli]'
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.demo

# the wheel in an environment of its own, away from the repository
release-check: install
	rm -rf build/release && mkdir -p build/release
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/release .
	$(PYTHON) -m venv build/release/venv
	build/release/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	build/release/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls build/release/*.whl)[cli]"
	cd build/release && venv/bin/gaflow explain "although this dog is not cute, it is very smart."

clean:
	rm -rf $(VENV) dist build
