# Every target is one command on a machine that has Python 3.11 or newer, pip and make:
# each makes the virtual environment that it needs, below .venv, when that is missing or out of date.
#
#   make demo     a run of a real model, from start to end, with an abort and a deadline
#   make test     the test suite (ARGS="-k batch" passes arguments to pytest)
#   make check    everything a change must pass; make -k check does not stop at the first fault
#   make rules    is every rule of the contract proved by a test?
#   make docs     the documentation, into build/docs
#   make bench    the benchmarks
#   make torture  kill workers on one store for MINUTES=20, on STORE=sqlite or STORE=postgres
#   make model    fetch the demo's model file, once, without running anything
#   make clean    remove what these targets made

PYTHON ?= python3
ARGS ?=
MINUTES ?= 20
STORE ?= sqlite
# Tests are dealt out over the cores.
WORKERS = -n auto --dist loadgroup

.PHONY: help demo model test rules bench docs torture clean
.PHONY: check check-static check-format check-lint check-async check-types check-layers
.PHONY: check-tests check-rules check-docs check-wheel
.PHONY: env-demo env-test env-docs env-check env-faults env-postgres

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

# environment.py returns at once when an environment is current, so these can be asked for each time.
env-demo:
	@$(PYTHON) scripts/environment.py .venv/demo local
env-test:
	@$(PYTHON) scripts/environment.py .venv/test test http local mcp postgres yaml
env-docs:
	@$(PYTHON) scripts/environment.py .venv/docs docs http mcp postgres yaml
env-faults:
	@$(PYTHON) -m scripts.fault_servers
env-postgres:
	@$(PYTHON) -m scripts.postgres
env-check:
	@$(PYTHON) scripts/environment.py .venv/check check http local mcp postgres yaml

demo: env-demo
	@.venv/demo/bin/python -m harness demo $(ARGS)

model: env-demo
	@.venv/demo/bin/python -m harness demo --fetch-only

# Where the fault servers or a PostgreSQL cannot be had, their tests are skipped, and say so;
# `make check` insists.
test: env-test
	-@$(PYTHON) -m scripts.fault_servers
	-@$(PYTHON) -m scripts.postgres
	.venv/test/bin/python -m pytest $(WORKERS) -p scripts.local_model $(ARGS)

rules: env-test
	@.venv/test/bin/python scripts/rules.py

bench: env-test
	@if ls benchmarks/bench_*.py >/dev/null 2>&1; then .venv/test/bin/python -m benchmarks; \
	else echo "there is no benchmark yet"; fi

# A store of postgres brings a server of its own, in a temporary folder.
torture: env-test
	@if [ "$(STORE)" = postgres ]; then $(PYTHON) -m scripts.postgres; fi
	.venv/test/bin/python -m tests.torture --minutes $(MINUTES) --store $(STORE) $(ARGS)

# A fresh environment: pages that did not change since the last build would not warn again.
SPHINX = -m sphinx --builder html --fresh-env --nitpicky --fail-on-warning --keep-going --quiet docs build/docs

docs: env-docs
	.venv/docs/bin/python $(SPHINX)
	@echo "see build/docs/index.html"

check: check-static check-tests check-rules
check-static: check-format check-lint check-async check-types check-layers check-docs check-wheel

BIN = .venv/check/bin

check-format: env-check
	$(BIN)/ruff format --check

check-lint: env-check
	$(BIN)/ruff check

# What ruff does not know of these rules, above all a yield in a scope (101), an unshielded await in
# a finally (102) and a swallowed cancellation (103, 104). The 900s are off unless named. Left out:
#   910  a checkpoint on every path: a port with nothing to do has none, and between recording an
#        outcome and appending it there may be none; docstrings say where there is no checkpoint
# and outside the package, where odd things are made on purpose:
#   124  an async function without await: many a tool or a model of a test is one
#   125  a constant as a deadline: virtual time starts at zero
#   912  a scope that nothing can cancel
ASYNC = --enable=ASYNC,ASYNC900,ASYNC911,ASYNC912,ASYNC913

check-async: env-check
	$(BIN)/flake8-async $(ASYNC) --disable=ASYNC910 $$(find harness -name '*.py')
	$(BIN)/flake8-async $(ASYNC) --disable=ASYNC910,ASYNC124,ASYNC125,ASYNC912 \
		$$(find benchmarks docs scripts tests -name '*.py')

check-types: env-check
	$(BIN)/mypy

check-layers: env-check
	$(BIN)/lint-imports

# One run is the tests, their coverage, and the evidence for check-rules.
check-tests: env-check env-faults env-postgres
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(WORKERS) -p scripts.local_model --require-postgres -p scripts.rules_plugin --rules-report=build/rules.json
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check-rules: check-tests
	$(BIN)/python scripts/rules.py --report build/rules.json

check-docs: env-check
	$(BIN)/python $(SPHINX)

check-wheel: env-check
	$(BIN)/python scripts/check_wheel.py

clean:
	rm -rf .venv build dist .coverage .coverage.* .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
