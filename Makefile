# Two commands: `make demo` runs one real private analysis, `make test` passes the tests.
# Each makes the environment that it needs, once; the second time it starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow networks check docs tables bench clean

demo: $(VENV)/.demo
	@$(BIN)/adaptive-dp demo

test: $(VENV)/.test
	@$(BIN)/python -m pytest -n auto --dist loadfile

slow: $(VENV)/.test
	@$(BIN)/python -m pytest -n auto --dist loadfile -m "slow or hypothesis" --hypothesis-profile=nightly

# of networks, where PyTorch is installed: it is large, and nothing here installs it
networks: $(VENV)/.test
	@$(BIN)/python -c 'import torch' || { echo "this needs PyTorch: $(BIN)/python -m pip install torch"; exit 1; }
	@$(BIN)/python -m pytest adaptive_dp/torch tests/test_torch*.py tests/test_pages.py -k torch

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs
	@$(BIN)/python -m sphinx -W --keep-going -q -j auto -b html docs docs/_build
	@echo "docs/_build/index.html"

tables: $(VENV)/.demo
	@$(BIN)/python benchmarks/tables.py --check

bench: $(VENV)/.demo
	@$(BIN)/python benchmarks/certify.py

$(VENV)/.demo: pyproject.toml
	@echo "making the environment in $(VENV) (once) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "adaptive-dp needs Python 3.11 or newer; run make PYTHON=python3.11")'
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,report]'
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	@echo "installing what the tests need (once) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,report,test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,report,dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.demo
	@echo "installing what the documentation needs (once) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,report,docs]'
	@touch $@

clean:
	rm -rf $(VENV) docs/_build docs/api demo-report.html demo-certificate.json
