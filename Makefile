# `make help` lists the targets. Needs Python 3.11 or newer, pip and make; everything else is
# installed into .venv.

BIN := .venv/bin

# The interpreter that .venv is built on. Give PYTHON=/path/to/python to use another; if it has
# torch, that torch is used and never replaced. Once there is a .venv, it is used as it is.
PYTHON ?= $(firstword $(wildcard $(BIN)/python) python3)

# Set, as in many containers, it makes every process that a test starts compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# Tests run in WORKERS processes of one torch thread each: by default in two, and all tests in three,
# as some wait for browsers and servers.
PYTEST = $(BIN)/python -m pytest --dist worksteal --numprocesses

.DEFAULT_GOAL := help
.PHONY: help env demo app test test-all test-lowest test-wheel lint wheel docs notebooks clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env:  ## set up .venv: torch, the package (editable) and every extra
	@$(PYTHON) .ci/environment.py

demo: env  ## train a small model, decode its codes and patch them
	@$(BIN)/python experiments/examples/quickstart.py

app: env  ## the explorer, in the web browser
	@$(BIN)/latentcode explore

test: env  ## the fast tests
	@$(PYTEST) $(or $(WORKERS),2) -m "not slow"

test-all: env  ## all tests, and which took longest
	@$(PYTEST) $(or $(WORKERS),3) --durations=40 --durations-min=5

test-lowest:  ## the fast tests in .venv-lowest, with the lowest versions (Python 3.11)
	@$(PYTHON) .ci/environment.py lowest
	@$(PYTEST:$(BIN)/%=.venv-lowest/bin/%) $(or $(WORKERS),2) -m "not slow"

test-wheel: wheel  ## the examples of the pages, from the wheel
	@$(BIN)/python .ci/check_wheel.py dist/*.whl --examples

# The tools are run as modules: where they came with the environment of PYTHON, .venv/bin has
# no command for them.
lint: env  ## ruff, mypy, and the order of the rooms
	$(BIN)/python -m ruff check . .ci
	$(BIN)/python -m mypy
	$(BIN)/python -c "from importlinter.cli import lint_imports_command as run; run()" --no-logo

wheel: env  ## dist/: an sdist and the wheel built from it, imported outside the tree
	@rm -rf build dist *.egg-info
	@$(BIN)/python -m build --outdir dist .
	@$(BIN)/python .ci/check_wheel.py dist/*.whl

docs: env  ## docs/site: guides, concepts, how-tos, findings, the API
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict -f docs/mkdocs.yml
	@echo "open docs/site/index.html"

# Offline, so that the outputs do not depend on a network.
notebooks: env  ## run experiments/notebooks in place, which refreshes their outputs
	@HF_HUB_OFFLINE=1 $(BIN)/python -m latentcode.experiments.notebooks.execute

clean:  ## remove .venv, archives and caches, never results
	rm -rf .venv .venv-lowest build dist *.egg-info .coverage .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
