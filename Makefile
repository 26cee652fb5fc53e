# `make help` lists the targets. Targets: demo, check, test, lint, generate, verify. Each works from a fresh clone with Python >= 3.11.
PYTHON ?= python3
BIN := .venv/bin
CACHE := $(or $(PENSTOCK_CACHE_DIR),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/penstock)
TRACES ?= traces
# Of every clone: mypy goes by the contents of files, and 45 s of a processor are 2 with it.
export MYPY_CACHE_DIR ?= $(CACHE)/mypy
# torch makes it wherever a model of transformers is imported, by default among the temporary files.
export TORCHINDUCTOR_CACHE_DIR ?= $(CACHE)/inductor
# Folders of tests, also of those that start pytest themselves: the last three runs' are kept.
export PYTEST_DEBUG_TEMPROOT ?= $(CACHE)/tests
# Where it is set, each of some hundred processes would compile what it imports: 2 s for torch alone.
unexport PYTHONDONTWRITEBYTECODE

# Folders of tests that start no cluster and no engine: what `make check` runs, less the markers below.
CHECKED := tests/api tests/architecture tests/calibration tests/chart tests/clients tests/controller tests/core \
  tests/engine_core tests/gateway tests/images tests/sim_baselines
NOT_CHECKED := cluster or slow
# Files that are marked as a whole are not even imported: torch and transformers alone take a worker three seconds.
NOT_IMPORTED = $(shell grep -rlE --include='*.py' '^pytestmark = .*mark\.(cluster|slow)' tests)

# Variables of `make images`. BUILD_FLAGS: for both builds. ENGINE_BUILD_FLAGS: for that of the engine's image only.
# TAG_SUFFIX: after the version in the tags, such as -arm64.
# SOURCE: address of the source code, for a label of the images.
REGISTRY ?= localhost
CONTAINER_TOOL ?= $(notdir $(shell command -v podman || command -v docker || command -v buildah))
BUILD_FLAGS ?=
ENGINE_BUILD_FLAGS ?=
TAG_SUFFIX ?=
SOURCE ?=
# The commit and its time, not that of the build: two builds of a commit have the same labels.
REVISION = $(shell git describe --match=- --always --abbrev=40 --dirty 2>/dev/null)
CREATED = $(shell git log -1 --format=%cI 2>/dev/null)
LABELS = $(if $(REVISION),--label org.opencontainers.image.revision=$(REVISION)) \
  $(if $(CREATED),--label org.opencontainers.image.created=$(CREATED)) \
  $(if $(SOURCE),--label org.opencontainers.image.source=$(SOURCE))
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# Of `make test` on two cores: two more workers compute while tests of the others wait.
WORKERS := 4

.PHONY: help demo check quick test unit lint generate verify figures images real-node dist notes install requirements clean
.DEFAULT_GOAL := test

help:                   ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: install           ## cluster up, service applied, scaled, killed, removed; told in the terminal
	$(BIN)/penstock demo

check: install          ## the inner loop, minutes on two cores: lint, types, generated files, CHECKED tests
	@$(MAKE) --no-print-directory --jobs 3 lint verify quick

quick: install
	@mkdir -p $(PYTEST_DEBUG_TEMPROOT)
	$(BIN)/pytest --quiet --numprocesses 2 --dist worksteal -m "not ($(NOT_CHECKED))" $(NOT_IMPORTED:%=--ignore=%) \
	  --hypothesis-profile check $(CHECKED)

test: install           ## everything CI runs without a GPU; what waits leaves room for what computes
	@$(MAKE) --no-print-directory --jobs 3 lint verify unit

# tests/full_run: what it adds to such a run.
unit: install
	@mkdir -p $(PYTEST_DEBUG_TEMPROOT)
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder --durations 15

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/architecture/retired_words.py

generate: install       ## rewrite every generated file from the code
	$(BIN)/penstock crds
	$(BIN)/penstock dashboards
	$(BIN)/penstock docs
	$(BIN)/penstock chart

verify: install         ## fail when a generated file differs from what the code says
	$(BIN)/penstock crds --check
	$(BIN)/penstock dashboards --check
	$(BIN)/penstock docs --check
	$(BIN)/penstock chart --check

figures: install        ## draw docs/assets again, some 40 minutes; TRACES: the folder with the traces (docs/concepts/simulator.md)
	$(BIN)/python -m benchmarks.simulator.frontier azure-110 --traces $(TRACES) --seeds 3 --admission deadline \
	  --rules static dynamo-throughput llmd-token-aware keda-queue-guard llmd-slo-aware-measured dynamo hpa-kv \
	  penstock oracle --plot docs/assets/frontier.png
	$(BIN)/python -m benchmarks.cluster.dashboards

images:                 ## build REGISTRY/penstock and REGISTRY/penstock-engine, with podman, docker or buildah
	@test -n "$(CONTAINER_TOOL)" || { echo "make images needs podman, docker or buildah on PATH" >&2; exit 1; }
	$(CONTAINER_TOOL) build $(LABELS) $(BUILD_FLAGS) --file operator/Containerfile --build-arg VERSION=$(VERSION) \
	  --tag $(REGISTRY)/penstock:$(VERSION)$(TAG_SUFFIX) .
	$(CONTAINER_TOOL) build $(LABELS) $(BUILD_FLAGS) $(ENGINE_BUILD_FLAGS) --file engine/Containerfile \
	  --build-arg VERSION=$(VERSION) --tag $(REGISTRY)/penstock-engine:$(VERSION)$(TAG_SUFFIX) .

# The chart is renamed, not to be mistaken for the source archive.
dist: install           ## wheel, source archive, packed chart (with helm) and CRDs in dist/
	rm -rf dist
	$(BIN)/python -m hatchling build
	helm package charts/penstock --destination dist
	mv dist/penstock-$(VERSION).tgz dist/penstock-chart-$(VERSION).tgz
	cp crds/*.yaml dist/

# The shell reads TAG from the environment: a name of a tag may have characters that make or a shell would expand.
notes:                  ## print the changelog's section of the version; TAG: a tag in the environment that must name it
	@test "$${TAG:-v$(VERSION)}" = "v$(VERSION)" || { echo "the tag has to be v$(VERSION), as pyproject.toml says" >&2; exit 1; }
	@awk '/^## / {inside = ($$2 == "$(VERSION)"); next} inside {print; found = 1} END {exit !found}' CHANGELOG.md \
	  || { echo "CHANGELOG.md has no section $(VERSION)" >&2; exit 1; }

real-node: install      ## as root: images built, chart on two nodes with kubelets, all scenarios there, removed; 40 minutes
	$(BIN)/python -m benchmarks.real_node --out out/real-node

install: .venv/.installed

.venv/.installed: requirements/bootstrap.txt requirements/all.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Penstock needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	$(BIN)/uv pip sync --quiet --require-hashes requirements/all.txt
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

requirements:           ## re-resolve the pinned, hashed requirement files after editing pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command "make requirements" --quiet -o requirements/all.txt
	$(BIN)/uv pip compile pyproject.toml --extra operator --extra gateway --extra batch --constraint requirements/all.txt --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --custom-compile-command "make requirements" --quiet -o requirements/control-plane.txt
	$(BIN)/uv pip compile pyproject.toml --extra engine --constraint requirements/all.txt --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --custom-compile-command "make requirements" --quiet -o requirements/engine.txt
	$(BIN)/uv pip compile requirements/litellm.in --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command "make requirements" --quiet -o requirements/litellm.txt
	$(BIN)/uv pip compile requirements/langchain.in --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command "make requirements" --quiet -o requirements/langchain.txt
	$(BIN)/uv pip compile requirements/kubernetes-schemas.in --universal --python-version 3.11 --generate-hashes \
	  --no-deps --no-emit-index-url --no-annotate --custom-compile-command "make requirements" --quiet \
	  -o requirements/kubernetes-schemas.txt

clean:
	rm -rf .venv dist out .ruff_cache .pytest_cache .hypothesis .import_linter_cache
