# All set-up happens here: the first target that runs makes .venv with pip.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-deepinv lint format docs bill audit

.venv/ready: pyproject.toml weights/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable ./weights
	touch $@

demo: .venv/ready
	$(BIN)/pnpladmm demo --out demo

test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2

# With deepinv installed, which the other tests do without.
test-deepinv: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[deepinv]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_deepinv.py tests/test_bench_rivals.py src/pnpladmm/deepinv.py -k deepinv

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env docs docs/_build/html

format: .venv/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The software bill of materials of what is installed, in CycloneDX.
bill: .venv/ready
	$(BIN)/python -m pip install --quiet 'cyclonedx-bom>=5'
	$(BIN)/cyclonedx-py environment --output-file sbom.json $(BIN)/python

# Known faults of what is installed. It asks a service on the network, so it is not a part of lint.
audit: .venv/ready
	$(BIN)/python -m pip install --quiet 'pip-audit>=2.7'
	$(BIN)/pip-audit --skip-editable
