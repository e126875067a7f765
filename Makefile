# The environment is made from this checkout's files alone: pyproject.toml says what, constraints.txt which versions.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RESULTS ?= results
# Of pyproject.toml, such as `cluster` on the machines of a cluster; what tests needs adds `dev`.
EXTRAS ?=
# Where torch comes from; without a GPU, https://download.pytorch.org/whl/cpu has it without CUDA.
TORCH_INDEX ?=
# Installs faster than pip; `make UV=` uses pip all the same.
UV := $(shell command -v uv)
INSTALL := $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check) -c constraints.txt
# Test processes at once: more take more memory (each may start a Ray), and are no faster on two cores.
PROCESSES ?= 2
# Tests start hundreds of processes; each would compile the program again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart test lint types test-quick bare-test test-slow test-slow-ray test-slow-rest bench chaos cluster-test hosts slurm-test env dev constraints requirements clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

quickstart: env  ## install, run the quickstart study, print its table (minutes on two cores, no download)
	$(BIN)/lr-sweep run quickstart --results $(RESULTS)

test: lint types test-quick  ## everything that must pass before a commit: some 10 minutes on two cores

lint: dev  ## style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: dev  ## type checks
	mkdir -p $(VENV)/types && ln -sfn "$(CURDIR)" $(VENV)/types/lr_sweep
	MYPYPATH=$(VENV)/types $(BIN)/mypy

test-quick: dev  ## the quick tests
	$(BIN)/python -m pytest -m "not slow and not gpu and not chaos and not hosts and not slurm" -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

bare-test:  ## install without extras into a new environment; quickstart and a study of one's own must run there (5 minutes)
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder" build' EXIT && rm -rf build && $(PYTHON) -m venv "$$folder/env" && \
	  "$$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt . && \
	  mkdir "$$folder/empty" && cd "$$folder/empty" && PATH="$$folder/env/bin:$$PATH" && \
	  lr-sweep run quickstart && lr-sweep init && lr-sweep run mine.yaml && \
	  ls results/studies/quickstart/report/index.html results/studies/mine/report/index.html

SLOW_WITH_RAY = tests/sweep/tune tests/sweep/search tests/sweep/store
# Files of slow tests, as of .ci/slow_tests.py; empty: all. No test starts after BUDGET_S seconds.
TESTS ?=
BUDGET_S ?= inf

test-slow: test-slow-ray test-slow-rest  ## tests that take minutes, and those that need a GPU where there is one; -j2: in two processes

test-slow-ray: dev
	$(BIN)/python -m pytest -m "slow or gpu" --time-budget-s $(BUDGET_S) $(or $(filter $(SLOW_WITH_RAY:%=%/%),$(TESTS)),$(SLOW_WITH_RAY))

test-slow-rest: dev
	$(BIN)/python -m pytest -m "slow or gpu" --time-budget-s $(BUDGET_S) $(or $(filter-out $(SLOW_WITH_RAY:%=%/%),$(TESTS)),tests $(SLOW_WITH_RAY:%=--ignore=%))

bench: dev  ## how fast the engines are here, and what memory they take; start it on an idle machine (an hour)
	$(BIN)/python -m benchmarks.engine_speed
	$(BIN)/python -m benchmarks.engine_memory
	$(BIN)/python -m benchmarks.peer_speed
	$(BIN)/python -m benchmarks.first_minute
	$(BIN)/python -m benchmarks.report_scale
	$(BIN)/python -m benchmarks.preempted --jobs 2

chaos: dev  ## nine studies, killed with SIGKILL at 40 moments, must end as if nothing had happened; CHAOS_KILLS=7: the short form
	$(BIN)/python -m pytest -m chaos -s tests/sweep/tune/test_chaos.py

cluster-test: dev  ## `ray up` over ssh hosts made from namespaces, which are lost in the middle; needs root (20 minutes)
	unshare --fork --kill-child --pid --mount-proc --mount --net \
	  sh -c '$(BIN)/python -m pytest -m hosts -s $(TESTS); exit $$?'

hosts: dev  ## a shell beside ssh hosts made from namespaces, in which to try docs/cluster.md; needs root
	@unshare --fork --kill-child --pid --mount-proc --mount --net \
	  sh -c '$(BIN)/python -m lr_sweep.tests.support.servers.hosts_shell; exit $$?'

slurm-test: dev  ## a sweep in a real Slurm, time limit and all; needs root and Debian's slurm-wlm and munge (10 minutes)
	$(BIN)/python -m pytest -m slurm -s

env: $(VENV)/.installed  ## make or update the environment, to use the program

dev: $(VENV)/.tests  ## the same with all that the tests need

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is $$($(PYTHON) --version 2>&1), want Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(INSTALL) --no-deps --index-url $(TORCH_INDEX) torch torchvision)
	$(INSTALL) -e '.$(EXTRAS:%=[%])'
	touch $@

$(VENV)/.tests: $(VENV)/.installed
	$(INSTALL) -e '.[dev]'
	touch $@

constraints: dev  ## pin what is installed now
	$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

LOCKED = import json, sys; \
  found = [(each["metadata"], each["download_info"].get("archive_info")) for each in json.load(sys.stdin)["install"]]; \
  print("\# Wheels for Python 3.11 on x86-64 Linux that the machines of a cluster need; `make requirements` writes it."); \
  print("\n".join(sorted(f"{data['name']}=={data['version']} --hash=sha256:{archive['hashes']['sha256']}" \
    for data, archive in found if archive)))

requirements: env  ## docs/cluster/requirements.txt, of the image, from constraints.txt; on x86-64 Linux with Python 3.11
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report - -c constraints.txt '.[cluster]' | \
	  $(BIN)/python -c "$$LOCKED" > docs/cluster/requirements.txt
export LOCKED

clean:  ## remove the environment and caches; results stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
