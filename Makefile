# Every target runs on a fresh machine with Python 3.11+ and git: it makes .venv and installs by itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
STACK ?= prod
VENV := .venv
BIN := $(VENV)/bin
# uv is several times faster; pip does the same work where it is missing
UV := $(shell command -v uv 2>/dev/null)
ifdef UV
  CREATE := uv venv --quiet --seed --allow-existing --python $(PYTHON) $(VENV)
  INSTALL := uv pip install --quiet --python $(BIN)/python --compile-bytecode
else
  CREATE := $(PYTHON) -m venv $(VENV)
  INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

.PHONY: help
help:  ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.runtime: pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name it with PYTHON=python3.12"; exit 1; }
	@echo "installing into $(VENV) ..."
	@$(CREATE)
	@$(INSTALL) -r requirements.txt
	@$(BIN)/python -m compileall -q components
	@touch $@

$(VENV)/.extras: $(VENV)/.runtime requirements/extras.txt
	@echo "installing clients of clusters and of AWS, and the policy pack's host ..."
	@$(INSTALL) -r requirements/extras.txt
	@touch $@

.PHONY: extras
extras: $(VENV)/.extras  ## Install what disagg verify, bench, --look-up and the policy pack need

$(VENV)/.dev: $(VENV)/.extras requirements/dev.txt
	@echo "installing test tools ..."
	@$(INSTALL) -r requirements/dev.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.runtime requirements/docs.txt
	@echo "installing the generator of the documentation site ..."
	@$(INSTALL) -r requirements/docs.txt
	@touch $@

.PHONY: docs
docs: $(VENV)/.docs  ## Build the documentation site in build/docs; every warning is an error
	@$(BIN)/python scripts/generate.py --check
	@rm -rf build/docs
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -j auto -d build/doctrees -c docs . build/docs
	@echo "build/docs/index.html"

.PHONY: preview
preview: $(VENV)/.runtime  ## Show the whole environment of a stack, offline (STACK=prod)
	@$(BIN)/disagg plan $(STACK)

.PHONY: test
test: lint types $(VENV)/.docs  ## Run everything that needs only Python
	@$(BIN)/python scripts/generate.py --check
	@$(BIN)/pytest -n auto

.PHONY: quick
quick: $(VENV)/.docs $(VENV)/.dev  ## Run the unit tests, without those that draw examples: a minute
	@$(BIN)/pytest -n auto tests/unit -m "not hypothesis"

.PHONY: fuzz
fuzz: $(VENV)/.dev  ## Run the tests that draw examples, with twenty times as many and others each time
	@$(BIN)/pytest -n auto tests/unit -m hypothesis --hypothesis-profile fuzz

.PHONY: lint
lint: $(VENV)/.dev  ## Check style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

.PHONY: types
types: $(VENV)/.dev  ## Check types
	@$(BIN)/mypy

.PHONY: format
format: $(VENV)/.dev  ## Rewrite the sources in the project's style
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: generate
generate: $(VENV)/.dev  ## Rewrite generated files: component args, schemas, reference pages, pictures
	@$(BIN)/python scripts/generate.py

.PHONY: golden
golden: $(VENV)/.dev  ## Rewrite the golden files of tests/golden
	@$(BIN)/pytest -q tests/golden --rewrite-golden

$(VENV)/.release: $(VENV)/.dev requirements/release.txt
	@echo "installing what builds and lists a release ..."
	@$(INSTALL) -r requirements/release.txt
	@touch $@

.PHONY: wheel
wheel: $(VENV)/.release  ## Build the wheel into dist/, to install the library elsewhere
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --wheel --outdir dist . >/dev/null
	@ls dist/*.whl

.PHONY: package
package: $(VENV)/.release  ## Build the wheel and test it outside the source tree, on each Python that is here
	@$(BIN)/python scripts/check_package.py

.PHONY: keep
keep: $(VENV)/.dev  ## Keep what a release makes of the shipped stacks, before it gets its tag (VERSION=0.2.0)
	@test -n "$(VERSION)" || { echo "which version? make keep VERSION=0.2.0"; exit 1; }
	@$(BIN)/python scripts/release.py keep $(VERSION)
	@$(BIN)/python scripts/generate.py

.PHONY: outdated
outdated: $(VENV)/.dev  ## Show which pins have newer versions; changes nothing
	@$(BIN)/python scripts/outdated.py

.PHONY: benchmark
benchmark: $(VENV)/.dev  ## Measure plan and check against the imports they need, and against the real engine if it is built
	@$(BIN)/python scripts/benchmark.py
	@$(BIN)/python -m bench.benchmark

.PHONY: accuracy
accuracy: $(VENV)/.dev  ## Compare the forecasts of memory, traffic and step times with published measurements
	@$(BIN)/python scripts/accuracy.py

.PHONY: steps
steps: $(VENV)/.dev  ## Make the step times of the catalogue anew from NVIDIA's measured kernels, in an environment of their own under build/
	@$(BIN)/python scripts/steps.py

.PHONY: lock
lock:  ## Pin all packages anew (needs uv)
	@./scripts/lock.sh

$(VENV)/.live: $(VENV)/.dev requirements/live.txt
	@if $(INSTALL) -r requirements/live.txt; then touch $@; else echo "Envoy cannot be installed here: the tests of the request path are skipped"; fi

$(VENV)/.browser: $(VENV)/.dev requirements/browser.txt
	@if $(INSTALL) -r requirements/browser.txt; then touch $@; else echo "Playwright cannot be installed here: the tests of the HTML page are skipped"; fi

.PHONY: browser
browser: $(VENV)/.browser $(VENV)/.docs  ## Open the HTML plan and the documentation in a real Chromium
	@command -v chromium chromium-browser google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get install -y -qq chromium >/dev/null; } || echo "no Chromium here, and none could be installed: the tests are skipped"
	@$(BIN)/pytest tests/browser -rs

.PHONY: pictures
pictures: $(VENV)/.browser  ## Photograph the HTML plan of prod anew for docs/reports.md, in a real Chromium
	@$(BIN)/pytest -q tests/browser/test_report.py -k test_pictures --rewrite-golden -rs

# most tests wait for controllers, so there are more of them than cores
LIVE := $(BIN)/pytest tests/live -n 3 --dist loadfile -rs --durations=10
WITH_GO := if ! command -v go >/dev/null; then echo "skipped: Go is not installed, so the real parts cannot be built (Go 1.26 or newer)"; else

.PHONY: live
live: $(VENV)/.live browser  ## Build the real engine and control plane from Go modules, and run the live suite
	@$(WITH_GO) $(BIN)/python -m bench.build && $(LIVE); fi

.PHONY: core
core: $(VENV)/.live  ## The same with the tests that matter most, and the programs that they need
	@$(WITH_GO) $(BIN)/python -m bench.build --core && $(LIVE) -m core; fi

.PHONY: engine
engine: $(VENV)/.dev  ## Ask the real vLLM: parser, configuration, rules, and two servers on a CPU (about 3 GB of packages once)
	@$(BIN)/python -m engine.build && $(BIN)/pytest tests/engine -rs --durations=10

.PHONY: agreement
agreement: $(VENV)/.dev  ## Write anew what the real vLLM says: its flags, and the report of where our rules and it agree
	@$(BIN)/python -m engine.build && $(BIN)/python -m engine.flags && $(BIN)/python -m engine.agreement

.PHONY: bench-up
bench-up: $(VENV)/.dev  ## Start a control plane without a cloud and leave it running
	@$(BIN)/python -m bench up

.PHONY: bench-down
bench-down: $(VENV)/.dev  ## End it
	@$(BIN)/python -m bench down
