# Each target sets up .venv by itself: uv where it is installed, otherwise python3 -m venv and pip.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
# For tests, which compile much and compute little: compiled programs are shared between processes and with the next
# run, and the compiler optimises less (half its time). Agents and replay that are compared with the authors' are
# compiled in full (tests/golden_data.py).
COMPILED := JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(VENV)/jax-cache JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.3 \
  XLA_FLAGS="--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"

.PHONY: help setup demo test test-slow test-all soak lint bench results docs docs-serve docs-settings lock clean
help:            ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(READY)  ## the virtual environment, exactly as requirements-dev.txt has it, hashes checked

# The lock is complete, so nothing is resolved (--no-deps); `pip check` says if it were not.
LOCKED := --quiet --no-deps --require-hashes -r requirements-dev.txt
OWN := --quiet --no-deps --no-build-isolation -e .

$(READY): pyproject.toml requirements-dev.txt
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --python $(BIN)/python $(LOCKED) && uv pip install --python $(BIN)/python $(OWN); \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --disable-pip-version-check $(LOCKED) && \
	  $(BIN)/python -m pip install --disable-pip-version-check $(OWN); \
	fi
	@touch $@

demo: $(READY)   ## train on a small task: a score, a curve and a video, in 2 to 5 minutes
	rm -rf runs/demo
	$(BIN)/dr-q train dmc/cartpole-balance_sparse --preset quick --steps 15000 --eval-every 1500 --out runs/demo
	$(BIN)/dr-q plot runs/demo --out runs/demo/curve.png
	$(BIN)/dr-q video runs/demo --out runs/demo/video.mp4
	$(BIN)/dr-q eval runs/demo

# Files in the order of tests/conftest.py, the longest first. A test that ends its process fails the whole: xdist would
# otherwise wait for ever for the rest of its file.
PYTEST := $(COMPILED) $(BIN)/python -m pytest -n 2 -q --dist loadfile --no-loadscope-reorder \
  --max-worker-restart=0

WHICH := -m "not slow"

test: $(READY)   ## the tests, but for those that take long
	$(PYTEST) $(WHICH) $(ARGS)

test-slow: $(READY)  ## the tests that take half a minute or longer each
	$(PYTEST) -m slow $(ARGS)

test-all:        ## all tests, in less time than one after the other
	$(MAKE) test WHICH=

soak: $(READY)   ## random faults against runs that are resumed, half an hour; ARGS="--faults 1000 --seed 1"
	$(COMPILED) $(BIN)/python -m tests.faults.soak --out benchmarks/results/soak.json $(ARGS)

lint: $(READY)   ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(READY)  ## speed on this machine; ARGS="--authors PATH" also times the authors' agent
	$(BIN)/python benchmarks/updates.py $(ARGS)

results: $(READY)  ## tables and figures of docs/results.md from results/
	$(BIN)/python results/make.py $(ARGS)

docs: $(READY)   ## the documentation site, in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-serve: $(READY)  ## the documentation site on this machine, rebuilt when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

docs-settings: $(READY)  ## the tables of docs/settings.md and docs/sweeps.md from the declared settings; lines in docs/paper-map.md and docs/how-it-works.md
	$(BIN)/python -m dr_q.cli.settings_table docs/settings.md
	$(BIN)/python -m dr_q.cli.settings_table docs/sweeps.md
	$(BIN)/python -m dr_q.cli.paper_map docs/paper-map.md
	$(BIN)/python -m dr_q.cli.paper_map docs/how-it-works.md

lock: $(READY)   ## write requirements-dev.txt, with hashes, from constraints.txt
	$(BIN)/python .ci/lock.py

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
