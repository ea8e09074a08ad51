# make run     install what is needed (the first time) and open Amend in the browser
# make test    install what the tests need as well, and run them all
# make lint    style and types
#
# PYTHON=python3.12 chooses another Python; ARGS='--port 8000' goes to app.py; TESTS=tests/assistant runs a part.

PYTHON ?= python3
TESTS ?= tests
VENV = .venv
BIN = $(VENV)/bin
# Bytecode is made at the first import instead of for all of the 18,000 files that come along.
PIP = $(BIN)/python -m pip install --no-compile --disable-pip-version-check

.PHONY: help run test lint clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

run: $(VENV)/.stamp-run
	$(BIN)/python app.py $(ARGS)

test: $(VENV)/.stamp-dev
	@CHROMIUM="$$(.ci/chromium $(BIN)/python)" || { \
		echo "Without Chromium the page cannot be tested: install it, or name one with CHROMIUM=/path." >&2; exit 1; }; \
	export CHROMIUM; $(BIN)/python -m pytest $(TESTS)

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Amend needs Python 3.11 or newer. Name one with: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --quiet --upgrade pip
	@touch $@

$(VENV)/.stamp-run: requirements.txt $(VENV)/.stamp-venv
	$(PIP) -r requirements.txt
	@touch $@

$(VENV)/.stamp-dev: requirements-dev.txt requirements.txt $(VENV)/.stamp-venv
	$(PIP) -r requirements-dev.txt
	@touch $@ $(VENV)/.stamp-run
