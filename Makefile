# Every target makes the environment itself; the first call takes a few minutes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A Python that already has torch (a GPU machine's) lends it; else the CPU build is installed.
HAS_TORCH := $(shell $(PYTHON) -c "import importlib.util as u; print(u.find_spec('torch') is not None)" 2>/dev/null)
ifeq ($(HAS_TORCH),True)
  VENV_FLAGS := --system-site-packages
  TORCH :=
else
  TORCH := torch==2.13.0
endif

.PHONY: demo test test-gpu fuzz check docs format bench picture clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV_FLAGS) $(VENV)
	$(if $(TORCH),$(BIN)/python -m pip install --quiet $(TORCH))
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

# `make test ROOM=analysis` runs one room's tests: a folder of tests/, or tests/test_ROOM.py.
ROOM ?=
TESTS = $(if $(ROOM),$(or $(wildcard tests/$(ROOM) tests/test_$(ROOM).py),$(error There are no tests of $(ROOM))),tests)
# Two workers on two cores, and one thread in each library: programs that tests start are timed.
# Bytecode is kept, or each of hundreds of processes would compile its modules again.
test: $(READY)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup $(TESTS)

# Damaged inputs of every kind for an hour; each new failure leaves a minimal reproduction in build/fuzz.
MINUTES ?= 60
SEED ?= 0
fuzz: $(READY)
	PYTHONPATH=.:src OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=1 $(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED)

test-gpu: $(READY)
	$(BIN)/python -m pytest tests/gpu

check: $(READY)
	$(BIN)/ruff format --check src tests examples benchmarks faults tools
	$(BIN)/ruff check src tests examples benchmarks faults tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/words.py
	DOCS_WITHOUT_OUTPUT=1 $(MKDOCS) build --quiet --site-dir build/links

# The documentation in site/, with the output of its commands as they print it today.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
docs: $(READY)
	$(MKDOCS) build --quiet
	@echo "Open site/index.html, or run '$(BIN)/python -m http.server -d site' to search it too."

format: $(READY)
	$(BIN)/ruff format src tests examples benchmarks faults tools
	$(BIN)/ruff check --fix src tests examples benchmarks faults tools

bench: $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks

# The picture in the README, of a kept sounding unless told otherwise.
SOUNDING ?= examples/soundings/train_gpt-counters-h200.fathom.zip
picture: $(READY)
	$(BIN)/fathom report $(SOUNDING) --svg docs/images/report.svg

clean:
	rm -rf $(VENV) build dist site
