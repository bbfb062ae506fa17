# Each target sets up what it needs in .venv; nothing but Python 3.11 or newer is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo label test test-browser lint bench bench-peers profile paper paper-full docs clean

# With the command line and the plots, which the README turns to next.
demo: $(VENV)/.cli,plot,report
	$(BIN)/python -m closefar.demo

# Leaves to judge in the browser.
label: $(VENV)/.label
	$(BIN)/closefar demo --label

test: lint
	$(BIN)/python -m pytest -n 2

# Installs Debian's chromium where no browser is found; `make test` skips these tests there.
test-browser: $(VENV)/.test
	@PYTHONPATH=tests $(BIN)/python -c 'import browser, sys; sys.exit(browser.find_browser() is None)' || { \
	  command -v apt-get > /dev/null || { echo "No apt-get here: install chromium, then run this again." >&2; exit 1; }; \
	  if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi; \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq chromium; }
	CLOSEFAR_NEEDS_BROWSER=1 $(BIN)/python -m pytest tests/test_browser.py tests/test_label_browser.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

# The guards come first: they fail where a solver needs more passes than before, or where an answer has changed.
bench: $(VENV)/.test
	$(BIN)/python benchmarks/pass_counts.py
	$(BIN)/python benchmarks/golden.py
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/ecosystem.py

# Side by side with other packages, each in an environment of its own; `make bench-peers ARGS="--quick"` is a small part.
bench-peers: $(VENV)/.test
	$(BIN)/python benchmarks/peers --jobs 2 --docs $(ARGS)

profile: $(VENV)/.test
	$(BIN)/python benchmarks/fit_profile.py

# The paper's experiments, in minutes; the second takes the paper's trials and sizes, and continues where it was stopped.
# `make paper ARGS="--data FOLDER"` names the data that can't be distributed.
paper: $(VENV)/.paper
	$(BIN)/python paper $(ARGS)

paper-full: $(VENV)/.paper
	$(BIN)/python paper --full $(ARGS)

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) docs/_build docs/auto_gallery paper/out report.html

# $(VENV)/.EXTRAS stands for the package installed with those extras.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
