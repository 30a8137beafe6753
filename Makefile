# Every target installs what it needs by itself (Debian 12, root or sudo, Python 3.11 or newer).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-nic test-systemd check bench soak journeys docs clean

BIN := .venv/bin
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install Open vSwitch from Debian and xenoovs into .venv (quick when nothing is missing)
	@scripts/setup

demo: setup ## Bring up the lab, apply templates/quickstart.yaml, send real packets, show who got them, clean up
	@scripts/demo

test: check ## Run everything: checks, all tests on a real Open vSwitch, on the emulated NIC and under systemd
	@scripts/setup-browser
	$(AS_ROOT) $(BIN)/python -m pytest -n 2 --dist loadfile -m "not nic and not systemd"
	@$(MAKE) --no-print-directory test-nic test-systemd

test-nic: setup ## Boot a virtual machine with an emulated NIC and compare every verdict with what the NIC holds
	$(AS_ROOT) $(BIN)/python -m pytest tests/nic

test-systemd: setup ## Boot a virtual machine with systemd and go through the life of the agent's unit (3 minutes)
	$(AS_ROOT) $(BIN)/python -m pytest tests/systemd

check: setup ## Lint, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## Measure speed as ratios in one run, on a real Open vSwitch
	$(AS_ROOT) $(BIN)/python scripts/bench

soak: setup ## Ten minutes of an agent with a change every second: memory stays, megaflows are as predicted
	$(AS_ROOT) $(BIN)/python scripts/soak.py

journeys: setup ## Count the files of xenoovs/ that run in an apply, for one dump line, and when a backend dies
	$(AS_ROOT) $(BIN)/python scripts/journeys.py

docs: setup ## Write the generated pages of docs/reference anew
	$(BIN)/python scripts/reference.py

clean: ## Remove .venv and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
