# Two commands: `make demo` runs one real private analysis, `make test` passes the tests.
# Each makes the environment that it needs, once; the second time it starts at once.

PYTHON ?= python3
PYTORCH ?= torch
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow networks check docs tables bench clean

demo: $(VENV)/.demo
	@$(BIN)/adaptive-dp demo

test: $(VENV)/.test
	@$(BIN)/python -m pytest -n auto --dist loadfile

slow: $(VENV)/.test
	@$(BIN)/python -m pytest -n auto --dist loadfile -m "slow or hypothesis" --hypothesis-profile=nightly

# of networks: PyTorch, JAX, and the libraries whose trainings are certified and audited
networks: $(VENV)/.networks
	@$(BIN)/python -m pytest -n auto --dist loadfile adaptive_dp/torch adaptive_dp/jax tests/test_torch*.py tests/test_jax*.py tests/test_trainings_of_others.py tests/test_audit_networks.py
	@$(BIN)/python -m pytest tests/test_pages.py -k "torch or jax"

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

$(VENV)/.networks: $(VENV)/.test
	@echo "installing PyTorch, JAX, Opacus and JAX Privacy (once) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check '$(PYTORCH)'
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,report,test,torch,jax,sklearn]' opacus jax-privacy
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
