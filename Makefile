# gpufleet.sglang: what can be done in a checkout. Each target installs what it needs; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help bench-converge bench-planner bench-soak bench-startup demo demo-gpu test test-long lint unit sanity molecule build readme venv clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'

demo: venv ## the main job on a test host of this machine: plan, deploy, prove, refuse, go back
	@bash tools/demo.sh

demo-gpu: venv ## the incident that this answers, on eight played boards: a server dies, a promise is refused, then proven
	@bash tools/demo_gpu.sh

test: venv ## all tests, with minutes per part
	@.venv/bin/python tools/run_parts.py

test-long: venv ## the same with the demo and the parts that take long
	@.venv/bin/python tools/run_parts.py --long

lint: venv ## ruff, ansible-lint (production), rules of the house
	@bash tools/lint.sh

unit: venv ## unit tests on each ansible-core found: seconds, no root, no network
	@bash tools/unit.sh

sanity: venv ## ansible-test sanity on each ansible-core found, without ignores
	@.venv/bin/python tools/run_parts.py --only $$(bash tools/venv.sh --cores | sed 's/^/sanity-/')

molecule: venv ## the scenarios on test hosts (S=name for one)
	@bash tools/molecule.sh $(S)

bench-converge: venv ## does the loop reach the promise, on 200 hosts drawn from public start-ups (ARGS=--rows, or ARGS=--tight)
	@.venv/bin/python tools/bench_converge.py $(ARGS)

bench-planner: venv ## how near the planner comes to real start-ups of public reports (ARGS=--rows for each)
	@.venv/bin/python tools/bench_planner.py $(ARGS)

bench-startup: venv ## what reading the journal costs, and how soon a start-up is told (ARGS=reading or waiting for a part)
	@. tools/env.sh && python tools/bench_startup.py $(ARGS)

bench-soak: venv ## which configurations that die within an hour the soak finds, and which good ones it refuses (ARGS=--rows)
	@.venv/bin/python tools/bench_soak.py $(ARGS)

build: venv ## the release archive in .build/
	@bash tools/build.sh

readme: venv ## the READMEs of the roles, the tables of the top README, of docs/troubleshooting.md and docs/conflicts.md
	@.venv/bin/python tools/readme.py
	@. tools/env.sh && python tools/troubleshooting.py && python tools/conflicts.py

venv:
	@bash tools/venv.sh

clean: ## removes test hosts, images and caches that these targets made
	@if [ -f molecule/shared/hosts/hosts.sh ]; then bash molecule/shared/hosts/hosts.sh clean; fi
	rm -rf .build .venv .venv-core* .ansible .hypothesis .pytest_cache .ruff_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
