# Every target installs what it needs by itself (Debian 12 or newer, root or sudo, Python 3.10 or newer).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-nic demo-fleet test collect test-long machines test-nic test-systemd test-dist test-versions check bench soak journeys faults docs dist clean

BIN := .venv/bin
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install Open vSwitch from Debian and xenoovs into .venv (quick when nothing is missing)
	@scripts/setup $(if $(filter setup,$(MAKECMDGOALS)),--next)

demo: setup ## Build a lab, apply templates/quickstart.yaml, send packets, show which backends got them, clean up
	@scripts/demo

demo-nic: setup ## The same in a virtual machine with an emulated NIC, to which the flows are offloaded (some minutes)
	@scripts/demo nic

demo-fleet: setup ## Three DPUs with the same clients: a roll-out, then a server, the store's leader and a DPU die (3 minutes)
	@$(AS_ROOT) $(BIN)/python scripts/demo_fleet

test: setup ## Run everything: checks, all tests on a real Open vSwitch, on the emulated NIC, under systemd, and of the packages
	@$(MAKE) --no-print-directory -j 2 -O check collect
	@scripts/setup-browser
	@scripts/setup-dist
	@scripts/setup-frr
	@scripts/setup-measure
	@scripts/setup-ovn
	@$(AS_ROOT) scripts/ovs-release bullseye true
	@$(AS_ROOT) scripts/ovs-release trixie true
	@$(AS_ROOT) $(BIN)/python -m tests.machines
	$(AS_ROOT) $(BIN)/python -m pytest -n 6 -p tests.whole_run

test-long: test ## The same, and what takes long: whole matrices, thousands of examples, kills, soak, slow processors (a night)
	@status=0; \
	$(AS_ROOT) $(BIN)/python -m pytest -n 2 --dist loadfile -m long || status=$$?; \
	$(AS_ROOT) $(BIN)/python -m pytest -n 2 --dist loadfile --hypothesis-profile long --timeout 7200 tests/property || status=$$?; \
	$(AS_ROOT) $(BIN)/python scripts/fleet_kills.py || status=$$?; \
	$(AS_ROOT) $(BIN)/python scripts/soak.py || status=$$?; \
	$(AS_ROOT) scripts/quarter-speed || status=$$?; \
	$(AS_ROOT) $(BIN)/python scripts/test_versions.py --again || status=$$?; \
	exit $$status

machines: setup ## Install what the virtual machines of the tests need, and build the emulated NIC's kernel module
	@scripts/setup-ovn
	@$(AS_ROOT) $(BIN)/python -m tests.machines

test-nic: machines ## Boot virtual machines with an emulated NIC and compare verdicts with its table (10 minutes)
	$(AS_ROOT) $(BIN)/python -m pytest tests/nic

test-systemd: machines ## Start systemd in namespaces of its own and test the units (2 minutes)
	$(AS_ROOT) $(BIN)/python -m pytest tests/systemd

test-dist: setup ## Build the packages, install and purge them in an empty Debian 12 (3 minutes)
	@scripts/setup-dist
	$(AS_ROOT) $(BIN)/python -m pytest tests/packaging

check: setup ## Check lint, format, types, import contracts and the lines of each room
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/budgets.py

# Six workers then read the compiled tests instead of compiling each of them themselves.
collect: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only -qq >/dev/null

bench: setup ## Measure speed as ratios in one run, on a real Open vSwitch
	$(AS_ROOT) $(BIN)/python scripts/bench

test-versions: setup ## Run what has not run of the tests on each Open vSwitch and Python that Debian has (hours)
	$(AS_ROOT) $(BIN)/python scripts/test_versions.py

soak: setup ## Run an agent for ten minutes with a change every second; check its memory and the megaflows
	$(AS_ROOT) $(BIN)/python scripts/soak.py

journeys: setup ## Count the modules that run in an apply, for one dump line, and when a backend dies
	$(AS_ROOT) $(BIN)/python scripts/journeys.py

faults: setup ## Put small faults into the code, one at a time, and show which of them the tests find (half an hour)
	$(AS_ROOT) $(BIN)/python scripts/seeded_faults.py

docs: setup ## Generate docs/reference from the code
	$(BIN)/python scripts/reference.py

dist: setup ## Build wheel, sdist, and for x86_64 and aarch64 an archive without a network and a .deb (2 minutes)
	@scripts/setup-dist
	@$(BIN)/python scripts/dist.py

clean: ## Remove .venv and caches
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
