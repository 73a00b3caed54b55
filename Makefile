# Everything starts here: `make` lists what there is.
STACK ?= local
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
CHECKOV := .local/checkov/bin/checkov

.DEFAULT_GOAL := help
.PHONY: help setup up down preview test test-all lint bench bench-trainer bench-policy bench-faults docs constraints clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make the virtual environment and get the Pulumi CLI (TORCH=no leaves PyTorch to you).
	@$(BIN)/python -m tools.pulumi_cli

$(READY): constraints.txt pyproject.toml tools/setup.sh
	@TORCH=$(TORCH) tools/setup.sh $(VENV)
	@touch $@

up: setup ## Bring the cluster up and follow its run to the end (STACK=local or local-alicloud needs no account).
	@$(BIN)/trainwright up --stack "$(STACK)"

down: ## Destroy the cluster; for a local one, end the embedded cloud too.
	@if [ -x $(BIN)/trainwright ]; then $(BIN)/trainwright down --stack "$(STACK)"; else echo "nothing is set up here"; fi

preview: setup ## Show what `up` would change (needs no account: without credentials it plans offline).
	@$(BIN)/trainwright preview --stack "$(STACK)"

test: setup ## Run the tests: unit, components, embedded cloud, and the real engine end to end.
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: setup ## Run the slow variants too.
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

lint: setup ## ruff, mypy --strict, and the layers' import contracts.
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache

bench: setup ## Measure what users wait for, as ratios in one run.
	@$(BIN)/python -m benchmarks

bench-trainer: setup $(PEERS) ## Measure the trainer beside plain DDP, Accelerate and Fabric; needs a quiet machine.
	@$(BIN)/python -m benchmarks.trainer

bench-faults: setup ## Measure what each fault costs, beside plain torchrun; writes docs/faults.md, needs a quiet machine.
	@$(BIN)/python -m benchmarks.faults --write

bench-policy: setup ## Measure the controls, and Checkov on the same resources, as ratios.
	@[ -x $(CHECKOV) ] || { $(BIN)/python -m venv .local/checkov && timeout 600 .local/checkov/bin/pip install --quiet \
	  --disable-pip-version-check -r benchmarks/checkov.txt || { rm -rf .local/checkov; \
	  echo "Checkov can't be installed here, and is left out"; }; }
	@$(BIN)/python -m benchmarks.policy $$([ -x $(CHECKOV) ] && echo --checkov $(CHECKOV))

$(PEERS): benchmarks/constraints.txt
	@TORCH=$(TORCH) tools/setup.sh $(VENV) benchmarks/constraints.txt
	@touch $@

docs: setup ## Write the generated pages of docs/.
	@$(BIN)/python -m tools.docs

RESOLVE := .local/resolver/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
  --python-version 3.11 --no-annotate --custom-compile-command "make constraints"

constraints: ## Resolve constraints.txt anew: names, versions and hashes.
	@python3 -m venv .local/resolver && .local/resolver/bin/pip install -q "uv>=0.9"
	@$(RESOLVE) --all-extras --output-file constraints.txt pyproject.toml
	@$(RESOLVE) --group bench --constraints constraints.txt --output-file benchmarks/constraints.txt

clean: ## Remove the virtual environment and what the tools left. `make down` comes first.
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info
