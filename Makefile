# `make demo` and `make test` need nothing but Python >= 3.11; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test quick range mutants browser lint types install release release-check notebooks docs pictures clean

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

# every test, with the stacks of all threads for one that waits forever; then how many statements and branches of each
# room they run
test: lint types browser
	$(BIN)/python -m pytest -n 2 --durations=20 --timeout=600 --timeout-method=thread --cov --cov-report=json:build/coverage.json
	$(BIN)/python -m tests.support.coverage_by_room build/coverage.json

# the part of the tests that takes under two minutes
quick: install
	$(BIN)/python -m pytest -n 2 -m "not slow and not browser and not ray and not gpu"

# the same tests with the lowest or the newest versions that pyproject.toml allows: make range VERSIONS=lowest
VERSIONS := newest
RANGE = build/range-$(VERSIONS)
range:
	$(PYTHON) -m venv $(RANGE)
	$(RANGE)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(RANGE)/bin/uv pip compile --quiet --extra all --resolution $(if $(filter lowest,$(VERSIONS)),lowest-direct,highest) \
	-o $(RANGE)/versions.txt pyproject.toml
	$(RANGE)/bin/uv pip install --quiet --python $(RANGE)/bin/python -c $(RANGE)/versions.txt -e '.[dev]'
	$(RANGE)/bin/python -m pytest -n 2 -W ignore -m "not slow and not browser and not ray and not gpu"

# small changes to the numerical core, the masking and the metrics, which the tests should notice; continues where it was
mutants: install
	$(BIN)/python -m benchmarks.mutants --sample 20

# what the tests of interactive pages look through; without one they are skipped, and say so
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing chromium" && \
	{ apt-get install -y -qq --no-install-recommends chromium || { apt-get update -qq && \
	apt-get install -y -qq --no-install-recommends chromium; }; } >/dev/null 2>&1; } || \
	echo "no browser found: the tests of interactive pages will be skipped (install chromium to run them)"

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
	$(PIP) -e .
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.demo

# sdist and wheel, checked; the wheel installed with each extra alone, and used. It needs the network for pip
release-check: install
	$(BIN)/python -m release.check

# what to do to publish a version, step by step, and what is still missing
release: install
	$(BIN)/python -m release.steps

# the documentation site, in build/site; a warning is an error
docs: install
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs build/site
	@echo "open build/site/index.html"

# the pictures of the README and of the documentation again; it needs Chromium
pictures: install browser
	$(BIN)/python docs/pictures.py

# run the notebooks in examples/notebooks again
notebooks: install
	$(BIN)/python examples/notebooks/make.py

clean:
	rm -rf $(VENV) dist build
