# Needs python3 >= 3.11; everything else is put into .venv, or installed by scripts/tools.sh where that is allowed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

export PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONPATH

DIR ?=
APPLY ?=
T ?= $(addprefix tests/unit/,storage checkpoint recovery engine daemon server wire) tests/crash
CODE := storage checkpoint recovery wire engine daemon server audit cli
BUILT_FROM := pyproject.toml $(wildcard storage/*/*.c storage/*/*.h)
PYTEST := python -m pytest -n 2 --dist worksteal --timeout 900

N ?= 60
STATES ?= 300
SECONDS ?= 900

.PHONY: help run tools test test-all test-quick check bench crash faults attack fuzz power-cut soak wheel audit-zip clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 17

.venv/bin/python:
	scripts/tools.sh venv
	$(PYTHON) -m venv --clear .venv

.venv/installed: .venv/bin/python $(BUILT_FROM)
	python -m pip install --quiet --editable .
	touch $@

.venv/installed-tools: .venv/bin/python $(BUILT_FROM)
	python -m pip install --quiet --editable '.[test,check]'
	touch .venv/installed $@

tools: .venv/bin/python ## install what the tests need, where that is allowed; the tests below do it too
	scripts/tools.sh test
	@$(MAKE) --no-print-directory .venv/installed-tools

run: .venv/installed ## plan for the log directory DIR=..., APPLY=1 carries it out; without DIR recover a damaged sample in ./sample
ifeq ($(DIR),)
	@scripts/show-sample.sh sample
else
	@logmend plan "$(DIR)" || test $$? -eq 1
ifeq ($(APPLY),1)
	logmend recover "$(DIR)"
else
	@printf 'nothing was changed; with the broker stopped, this carries it out: make run DIR=%q APPLY=1\n' "$(DIR)"
endif
endif

test: tools ## run the tests that find most: a quarter of an hour on two cores
	$(PYTEST) --ignore tests/tidy -m "not deep"

test-all: tools ## run the tests that `make test` leaves out: long sweeps, clusters, power cuts, machines that boot
	$(PYTEST) --ignore tests/tidy -m deep

test-quick: .venv/installed-tools ## run the unit and crash tests of what most changes touch, without the slow ones; T=PATHS: those of others
	$(PYTEST) -m "not deep and not slow" $(T)

check: .venv/installed-tools ## format, lint, types, layers, tidiness
	ruff format --check .
	ruff check .
	scripts/check-types.sh $(CODE)
	MYPYPATH=tests scripts/check-types.sh tests/interop tests/golden tests/soak
	lint-imports --no-cache
	python -m pytest -q tests/tidy

bench: .venv/installed-tools ## say how fast it is here beside Kafka: tables, bench/results.json, bench/results.svg
	python bench/run.py --out bench

crash: .venv/installed-tools ## only the tests that crash and kill at every effect; STATES=all: every state there is, for hours
	LOGMEND_CRASH_STATES=$(STATES) python -m pytest -n 2 --timeout 21600 -rP tests/crash tests/faults/test_kills.py

faults: tools ## only the tests of real faults; LOGMEND_FAULTS=all: every one of them, for hours
	$(PYTEST) tests/faults tests/power

attack: .venv/installed-tools ## attack the listener, N=60 times as long as the tests do, beside an honest client
	LOGMEND_ATTACK_ROUNDS=$(N) LOGMEND_ATTACK_REQUESTS=$$((400 * $(N))) python -m pytest -q tests/attacks

fuzz: .venv/installed-tools ## hostile bytes for each Python parser for N=60 seconds, led by coverage
	python -m pip install --quiet --editable '.[fuzz]' || echo "without atheris: at random" >&2
	python tests/fuzz/fuzz_parsers.py --seconds $(N)

power-cut: tools ## cut the power of ext4 and xfs under recover, restore (N=60 times each) and the engine (10 N; as root)
	python tests/power/powercut.py --count $(N)

soak: .venv/installed-tools ## kill the owner of a log directory every few seconds for SECONDS=900, and judge
	python tests/soak/runner.py --seconds $(SECONDS)

wheel: .venv/installed-tools ## build dist/logmend-*.whl, with the C kernel if there is a compiler
	python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls -l dist

audit-zip: .venv/installed ## pack dist/logmend-audit.zip, the code that spark-submit --py-files takes
	PYTHON=python scripts/audit-zip.sh

clean: ## remove what make made
	rm -rf .venv build dist sample *.egg-info storage/*/*.so
