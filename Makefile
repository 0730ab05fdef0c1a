# make demo        from nothing to a trained model: environment (2.7 GB), images, shards, training
# make test        what every change must pass, in minutes
# make check       formatter, linter, types, import layers
# make processes   real kills, processes of Beam and Flink, several hosts, PyTorch, archives in a clean folder
# make nightly     every test, exhaustive tables, and campaigns that kill, damage and draw at random
# make engines     Flink, whose workers are killed; needs Java and Maven
# make packages    every extra on Python 3.10 to 3.13, each in a clean environment; downloads some GB
# make docs        the documentation as a site, in site/
# make constraints resolves the versions of all packages anew
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# PyTorch, JAX and others: 5 GB more, which only make processes and make nightly need
FRAMEWORKS = $(VENV)/frameworks/bin
WORKERS ?= 2
PYTEST_ARGS ?=
PYTEST = -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)
# The tests start hundreds of programs, which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: environments demo test check processes nightly engines packages docs constraints sbom format bench clean

demo: export TF_CPP_MIN_LOG_LEVEL = 3
demo: $(VENV)/.examples
	rm -rf demo
	$(BIN)/python examples/digits_folder.py demo/digits
	$(BIN)/tfshards build images demo/digits demo/data/digits --shards 8 --shards test=2 \
	  --splits train=0.8 --splits test=0.2 --stratify
	$(BIN)/tfshards verify demo/data/digits --deep
	$(BIN)/python examples/mirrored_fit.py demo/data/digits

test: $(VENV)/.dev
	$(BIN)/python $(PYTEST)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python .ci/verify_types.py
	$(BIN)/lint-imports

PROCESSES = "(flink or processes and not engines) and not nightly"

# Processes are killed here, and compete: a test that fails has a second try, alone, which is shown.
processes: $(VENV)/.frameworks
	$(FRAMEWORKS)/python $(PYTEST) -m $(PROCESSES) --cache-clear || { \
	  echo "make processes: each test that failed runs once more, alone"; \
	  $(FRAMEWORKS)/python -m pytest -m $(PROCESSES) --last-failed --last-failed-no-failures=none -rA; }

# SCALE=10 draws ten times as many cases; SEED=WORD repeats a run, whose first lines show it.
nightly: export SCALE := $(or $(SCALE),1)
nightly: export SEED := $(or $(SEED),$(shell date +%s))
nightly: $(VENV)/.frameworks
	$(FRAMEWORKS)/python $(PYTEST) -m campaign -rP --timeout 7200
	$(FRAMEWORKS)/python $(PYTEST) -m "not engines and not campaign" --timeout 3600 --cov --cov-report=term
	$(FRAMEWORKS)/python tests/seeded_faults.py
	$(BIN)/uv pip compile $(RESOLVE) | diff constraints.txt - && echo "constraints.txt is up to date"

# The engines are fetched once, into ~/.cache/tfshards-engines or the folder in TFSHARDS_ENGINES (160 MB).
engines: $(VENV)/.dev
	$(BIN)/python tests/engines/setup_engines.py
	$(BIN)/python -m pytest -m engines --timeout 1800 $(PYTEST_ARGS)

packages: export TFSHARDS_PACKAGES := all
packages: $(VENV)/.dev
	$(BIN)/python -m pytest -m nightly tests/packaging --timeout 3600 $(PYTEST_ARGS)

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file website/mkdocs.yml

RESOLVE = --quiet --universal --python-version 3.10 --no-header --no-annotate --all-extras pyproject.toml

constraints: $(VENV)/.dev
	$(BIN)/uv pip compile $(RESOLVE) --upgrade --output-file constraints.txt

# sbom.cdx.json: what an installation with all extras consists of, from a clean environment (CycloneDX)
sbom: $(VENV)/.dev
	$(BIN)/python .ci/sbom.py sbom.cdx.json

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Give a folder of class folders: make bench PHOTOS=/data/photos; and OLD=/other/src to compare with another checkout
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/prep.py photos --photos $(PHOTOS)
	$(BIN)/python benchmarks/prep.py images --photos $(PHOTOS)
	$(BIN)/python benchmarks/prep.py arrays
	$(BIN)/python benchmarks/verify.py --photos $(PHOTOS)
	$(if $(OLD),$(BIN)/python benchmarks/compare.py $(OLD) src --photos $(PHOTOS))
	$(BIN)/python benchmarks/read.py --photos $(PHOTOS)
	$(BIN)/python benchmarks/remote.py
	$(BIN)/python benchmarks/shuffle.py
	$(BIN)/python benchmarks/scale.py --counts 100000 1000000

clean:
	rm -rf demo site .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Environments. Each adds packages to the one before it; uv downloads them at once and shares files between both.
INSTALL = pip install --quiet --constraints constraints.txt --build-constraints constraints.txt

$(VENV)/.examples: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	@echo "installing TensorFlow, Apache Beam and others: 2.7 GB in $(VENV)"
	$(BIN)/uv $(INSTALL) --python $(BIN)/python --editable '.[examples]'
	touch $@

$(VENV)/.dev: $(VENV)/.examples
	$(BIN)/uv $(INSTALL) --python $(BIN)/python --editable '.[dev]'
	touch $@

environments: $(VENV)/.frameworks

$(VENV)/.frameworks: $(VENV)/.dev
	$(PYTHON) -m venv $(VENV)/frameworks
	@echo "installing PyTorch, JAX and others: 5 GB in $(VENV)/frameworks"
	$(BIN)/uv $(INSTALL) --python $(FRAMEWORKS)/python --editable '.[frameworks]'
	touch $@
