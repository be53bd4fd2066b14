# Every target works alone on a fresh machine: it installs what it needs into .venv first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The hardware decides which vLLM is installed: `make night HARDWARE=gpu` on a machine with an NVIDIA GPU.
HARDWARE ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
DEPLOYMENT ?= embedded
EC1_HOME ?= .ec1
# uv does not read pip's setting for a folder of wheels; hand it over.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# Nor does it trust the authorities that the machine trusts, a company's own among them, until it is told.
AUTHORITIES := /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem
export UV_SYSTEM_CERTS ?= $(if $(wildcard $(AUTHORITIES)),true,false)
# Where there is no home to write to, as for an account that only a container knows, uv keeps its downloads here.
ifneq ($(shell test -w "$${XDG_CACHE_HOME:-$$HOME}" && echo writable),writable)
export UV_CACHE_DIR ?= $(VENV)/uv-cache
endif
export EC1_HOME
# Images set it; each of a night's dozens of processes, and each run of the tests, would compile our files again.
unexport PYTHONDONTWRITEBYTECODE
# Modules of clusters and of robots' systems name folders with packages of another Python, which would hide ours.
unexport PYTHONPATH PYTHONHOME
export EC1_DEPLOYMENT := $(DEPLOYMENT)

# uv refuses a file whose hash is not in the list of its version.
PINS := --constraint constraints.txt --constraint hashes.txt

# vLLM's build for CPUs loads it, and images of Debian leave it out. Who may not install it is told by the first night, too.
LIBNUMA := { echo "Installing libnuma1, which vLLM's build for CPUs loads"; \
  test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq --no-install-recommends libnuma1 >/dev/null || \
  echo "not installed: as root, apt-get install libnuma1 (Debian, Ubuntu) or dnf install numactl-libs (Fedora, Red Hat)" >&2; }

STAMP := $(VENV)/.installed-$(HARDWARE)

.PHONY: help install night learn ui studio test system soak coverage format lint docs hooks bench bench-growth extractor instructions mutants lock hashes sbom audit clean
help: ## what each target does
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

install: $(STAMP) ## install everything into .venv

$(STAMP): pyproject.toml constraints.txt hashes.txt
	@echo "Installing into $(VENV) ($(HARDWARE) build)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"EC1 needs Python 3.11, 3.12 or 3.13, this is {v[0]}.{v[1]}: make PYTHON=python3.12 ...")'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@# A night starts dozens of processes; compiled once here, their imports take half the time.
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --compile-bytecode $(PINS) --editable '.[$(HARDWARE),dev]'
	@$(BIN)/python -m compileall -q -j 0 ec1 ec1_assets jobs resources schedules studio
	@$(if $(filter cpu,$(HARDWARE)),$(BIN)/python -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || $(LIBNUMA))
	@touch $@

night: install ## run a whole night on the bundled sample (NIGHT=YYYY-MM-DD for another one)
	@$(BIN)/ec1 night $(if $(NIGHT),--date $(NIGHT))

learn: export EC1_HOME := .ec1-learn
learn: install ## learn from execution: a warm start on answers, then GRPO, in a home of its own (docs/learning.md)
	@$(BIN)/python -m examples.expressions.learn

ui: install ## open the Dagster UI on a persistent instance, http://127.0.0.1:3000
	@$(BIN)/ec1 ui

studio: install ## open Studio, the page of data and versions, http://127.0.0.1:3100
	@$(BIN)/ec1 studio

test: install ## run the tests but for whole nights (TESTS="-m 'not slow'" for the quick ones)
	@$(BIN)/python -m pytest -n 2 --no-loadscope-reorder $(TESTS)

system: install ## run the tests of whole nights and real engines, as a user starts them
	@$(BIN)/python -m pytest -n 2 --no-loadscope-reorder -m system $(TESTS)

soak: install ## run the tests that take long: matrices of crashes, many nights
	@$(BIN)/python -m pytest -n 2 --no-loadscope-reorder -m soak $(TESTS)

coverage: install ## run the tests and show the lines that none of them ran (TESTS as for `make test`)
	@$(BIN)/python -m pytest -n 2 --no-loadscope-reorder $(patsubst %,--cov=%,ec1 ec1_assets resources jobs schedules studio) $(TESTS)

format: install ## format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

lint: install ## ruff, mypy, and that imports point one way
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-logo

docs: install ## write docs/settings.md anew, and all pages as a site into build/site
	@$(BIN)/python docs/generate_settings.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

hooks: install ## check each commit before it is made (.pre-commit-config.yaml)
	@$(BIN)/pre-commit install

bench: install ## measure the ratios in benchmarks/ (forty minutes; each can be run alone)
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet $(PINS) --editable '.[$(HARDWARE),dev,bench]'
	@$(BIN)/python -m benchmarks

bench-growth: install ## how a night's work grows as documents, mentions, tuples, versions, nights and recipes gather
	@$(BIN)/python -m benchmarks.growth

extractor: install ## train the shipped extractor again (about ten minutes on two idle cores)
	@$(BIN)/python -m examples.extractor.make

instructions: install ## fit the classifier of instructions in documents again (two minutes)
	@$(BIN)/python -m examples.instructions.make

mutants: install ## what mistakes the tests of the critical modules miss, against the floor (half an hour; MODULE=gate: one module)
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --constraint constraints.txt --editable '.[$(HARDWARE),dev,mutants]'
	@$(BIN)/python -m benchmarks.mutants $(MODULE)

lock: install ## renew constraints.txt from pyproject.toml, and hashes.txt with it
	@# For the oldest Python that is promised: what is for a later one only is not for it.
	@$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --no-annotate --no-header --extra cpu --extra dev --extra mutants --extra bench pyproject.toml --output-file lock.new
	@sed -E 's/\+cpu$$//' lock.new | grep -vE '^(triton|cuda-.*|nvidia-(cu|nc|nv).*)==' > constraints.txt; rm lock.new
	@$(MAKE) --no-print-directory hashes

hashes: install ## renew hashes.txt: the SHA-256 of every file of what constraints.txt pins
	@# torch has a build for each kind of machine, from other places: whoever names the place vouches for it.
	@grep -v '^torch==' constraints.txt > lock.in
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-deps --generate-hashes --no-annotate --no-header lock.in --output-file lock.new
	@mv lock.new hashes.txt; rm lock.in

sbom: install ## what is installed, as CycloneDX JSON in sbom.json
	@$(BIN)/uv tool run --quiet --from 'cyclonedx-bom~=7.1' cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible --output-format JSON --output-file sbom.json
	@echo "wrote sbom.json"

audit: install ## known vulnerabilities of what is pinned; says so where the data cannot be reached
	@$(BIN)/python deploy/audit.py $(BIN)/uv tool run --quiet --from 'pip-audit~=2.9' pip-audit

clean: ## remove the sample's home and caches (keeps .venv)
	@rm -rf $(EC1_HOME) .ec1-learn .pytest_cache .mypy_cache .ruff_cache
