# make run and make test each work first on a fresh clone: make run installs what running needs, make test adds what
# tests need. pip alone, also if uv is there: it follows pip's configuration to an index or folder of wheels, uv does not.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# pip compiles in one process, this in four. It fails at files that are templates or for another Python, as pip does.
COMPILE = $(BIN)/python -m compileall -qq -j 4 $(VENV)/lib || true

# A process more than there are cores, as tests wait a fifth of the time, each with whole files of tests. What fails
# runs once more, and the last lines count and name it: tests kill processes, fill cgroups and wait for daemons, on
# machines that do other work too.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --reruns 1 -rfER

.PHONY: run test marked install install-test lint check docs soak benchmarks gpu gpu-bundle clean

run: install
	$(BIN)/python experiments.py model=32d

test: install-test
	$(PYTEST)

marked: install-test
	$(PYTEST) -m "slow or privileged"

install: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Highwater needs Python 3.11 or later; $(PYTHON) is older. Try make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: $(PYTHON) lacks venv. On Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -r requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@$(COMPILE)
	touch $@

# Adds what tests and lint need: all extras and dependency groups.
install-test: $(VENV)/.installed-test

$(VENV)/.installed-test: requirements-test.lock $(VENV)/.installed
	$(PIP_INSTALL) -r requirements-test.lock
	@$(COMPILE)
	touch $@

lint: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.rules lines

check: test lint marked

# The site in site/. --strict: a page or link that leads nowhere is an error.
DOCS_BIN = $(VENV)/docs/bin
docs: $(VENV)/docs/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS_BIN)/mkdocs build --strict --site-dir site
	@echo "To read it, with search: python3 -m http.server -d site 8000, then http://localhost:8000"

$(VENV)/docs/.installed: requirements-docs.lock
	$(PYTHON) -m venv $(VENV)/docs
	$(DOCS_BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.lock
	touch $@

soak: install-test
	$(BIN)/python -m pytest -m soak --timeout 3600
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -m hypothesis --timeout 3600

benchmarks: install
	for script in $$(grep -l "^@benchmark" benchmarks/*.py); do $(BIN)/python $$script || exit 1; done
	$(BIN)/python benchmarks/figures.py

# All checks of the CUDA side in nine minutes; without a GPU in tiny sizes, which are not saved.
gpu: install
	OUT=$(CURDIR)/gpu_report KIT_PYTHON=$(CURDIR)/$(BIN)/python bash benchmarks/gpu/run.sh
	cp gpu_report/gpu_*.json benchmarks/results/ 2>/dev/null || true

# For a GPU machine without network that has torch and numpy: .gpu/ gets the wheels that it lacks.
gpu-bundle:
	KIT_PYTHON=$(PYTHON) bash benchmarks/gpu/bundle.sh

clean:
	rm -rf $(VENV) site benchmarks/.analysis-peers-venv benchmarks/.peers-venv benchmarks/.loading-peers-venv benchmarks/.loading benchmarks/.training-peers-venv benchmarks/.training .pytest_cache .mypy_cache .ruff_cache .hypothesis .gpu gpu_report
