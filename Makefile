# Everything runs in environments below this directory, made from uv.lock; Python 3.11+ and make are enough to begin.
# A target installs what it needs once (the stamp files); `make clean` removes all of it.

PYTHON ?= python3
ARGS   ?=
ROUNDS ?= 300

UV_VERSION := 0.13.8
VENV       := .venv
BENCH_VENV := .venv-bench
BIN        := $(VENV)/bin
LOCK       := uv.lock pyproject.toml
# All that the tests and the type checker meet.
EXTRAS     := aws hdfs fsspec demo torch vision lightning tensorflow paddle

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
# As pip does: the certificate authority of a company is in the store of the system.
export UV_SYSTEM_CERTS ?= 1
unexport VIRTUAL_ENV

# --inexact: the environment is shared by the targets below, each of which adds what it needs.
sync = UV_PROJECT_ENVIRONMENT=$(1) $(BIN)/uv sync --quiet --frozen --inexact --python $(BIN)/python $(2)

.DEFAULT_GOAL := help
.PHONY: help demo test cover soak check format bench docs lock tools clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  ARGS='...' is passed on: make test ARGS='tests/unit -k plan'"

demo: $(VENV)/.demo ## direct epoch, first epoch, second epoch, reload: one table, one chart, under two minutes
	$(BIN)/hotset demo $(ARGS)

test: $(VENV)/.dev tools ## all tests, against real servers on loopback
	$(BIN)/python -m pytest $(ARGS)

cover: $(VENV)/.dev tools ## all tests with the branch coverage of src/hotset
	$(BIN)/python -m pytest --cov --cov-report=term $(ARGS)

soak: $(VENV)/.dev tools ## crash and race tests, ROUNDS=300 times each
	$(BIN)/python -m pytest -m soak --rounds $(ROUNDS) --timeout 0 -o faulthandler_timeout=0 $(ARGS)

check: $(VENV)/.dev ## lint, format, types, layers, lock file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/uv lock --check --quiet --python $(BIN)/python

format: $(VENV)/.dev ## let ruff write what it can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(BENCH_VENV)/.bench ## hotset beside its peers: table, JSON, PNG (an environment of its own, several GB)
	$(BENCH_VENV)/bin/python -m bench $(ARGS)

docs: $(VENV)/.docs ## the documentation, strictly, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)
	@echo "site/index.html"

lock: $(VENV)/.uv ## bring uv.lock up to date with pyproject.toml
	$(BIN)/uv lock --python $(BIN)/python $(ARGS)

tools: $(VENV)/.dev ## servers and proxies of the tests, built from their Go modules into the user's cache
	$(BIN)/python -m tests.support.tools

clean: ## remove environments, caches and results
	rm -rf $(VENV) $(BENCH_VENV) site dist build bench/out demo-out .coverage .coverage.* .hypothesis
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.uv: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "hotset needs Python 3.11 or newer, and '$(PYTHON)' is not: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot create environments: install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; \
	  echo "or name another one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==$(UV_VERSION)
	@touch $@

$(VENV)/.demo: $(VENV)/.uv $(LOCK)
	$(call sync,$(VENV),--no-default-groups --extra demo)
	@touch $@

$(VENV)/.dev: $(VENV)/.uv $(LOCK)
	$(call sync,$(VENV),--group dev $(addprefix --extra ,$(EXTRAS)))
	@touch $@

$(VENV)/.docs: $(VENV)/.uv $(LOCK)
	$(call sync,$(VENV),--no-default-groups --group docs)
	@touch $@

$(BENCH_VENV)/.bench: $(VENV)/.uv $(LOCK)
	$(call sync,$(BENCH_VENV),--no-default-groups --extra bench)
	@touch $@
