# make demo   from nothing to a trained model: environment, images, shards, training
# make test   what a change must pass, in minutes; make check adds formatter, linter, types and coverage
# make nightly   exhaustive tables, more examples of properties, and short runs of fuzz and torture
# make docs   the documentation as a site, in site/
# make engines   builds on Prism, Flink and Spark, whose processes are killed; needs Java, Maven and Go
# make packages   every extra on Python 3.10 to 3.13, each in a clean environment; downloads some GB
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
WORKERS ?= 2
PYTEST_ARGS ?=
# The tests start hundreds of programs, which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check nightly docs engines packages sbom mutants fuzz torture format bench clean environment train-on-digits

demo: export TF_CPP_MIN_LOG_LEVEL = 3
demo: $(VENV)/.installed
	flock Makefile $(MAKE) --no-print-directory train-on-digits

train-on-digits:
	rm -rf demo
	$(BIN)/python examples/digits_folder.py demo/digits
	$(BIN)/tfshards build images demo/digits demo/data/digits --shards 8 --shards test=2 \
	  --split train=0.8 --split test=0.2 --stratify
	$(BIN)/tfshards verify demo/data/digits --deep
	$(BIN)/python examples/mirrored_fit.py demo/data/digits

# make nightly has its files on the disk
test: $(VENV)/.installed
	.ci/in_memory $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python .ci/link_rooms.py
	$(BIN)/mypy
	$(BIN)/python .ci/verify_types.py
	$(MAKE) test PYTEST_ARGS="--cov --cov-report=term $(PYTEST_ARGS)"

nightly: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m nightly $(PYTEST_ARGS)
	HYPOTHESIS_EXAMPLES=400 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
	  -m 'hypothesis and not nightly and not engines' $(PYTEST_ARGS)
	$(MAKE) torture TORTURE_KILLS=100 TORTURE_FLIPS=400 TORTURE_FAULTS=30 TORTURE_STORE_KILLS=100 TORTURE_STORE_PAIRS=60 \
	  TORTURE_LOADER_FAULTS=30 CRASH_STATES=100 OWNERSHIP_FOLDERS=1000 FUSE_FAULTS=30 LOOP_CUTS=8 \
	  FRAMEWORK_CASES=60 FRAMEWORK_RUNS=4
	$(MAKE) fuzz FUZZ_MINUTES=3 FUZZ_SEED=1

docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file website/mkdocs.yml

# The engines are fetched once, into ~/.cache/tfshards-engines or the folder in TFSHARDS_ENGINES (0.7 GB).
engines: $(VENV)/.installed
	$(BIN)/python tests/engines/setup_engines.py
	$(BIN)/python -m pytest -m engines $(PYTEST_ARGS)

packages: export TFSHARDS_PACKAGES := all
packages: $(VENV)/.installed
	$(BIN)/python -m pytest -m nightly tests/packaging $(PYTEST_ARGS)

# sbom.cdx.json: what an installation with all extras consists of, from a clean environment (CycloneDX)
sbom: $(VENV)/.installed
	$(BIN)/python .ci/sbom.py sbom.cdx.json

# Changes operators and numbers in the modules of tests/mutation/table.py, and lists what no test finds: an hour
# for all of them. MUTANTS="--sample 10" or "schemas/index.py" tries fewer.
MUTANTS ?=
mutants: $(VENV)/.installed
	PYTHONPATH=.namespace $(BIN)/uv run -q --no-project --python $(BIN)/python --with cosmic-ray==8.7.0 \
	  python tests/mutation/run.py $(MUTANTS)

# Damages images for FUZZ_MINUTES, others each time; FUZZ_SEED=NUMBER repeats a run, as make nightly does
FUZZ_MINUTES ?= 20

fuzz: export FUZZ_MINUTES := $(FUZZ_MINUTES)
fuzz: $(VENV)/.installed
	$(BIN)/python -m pytest -s tests/prep/test_fuzz_images.py $(PYTEST_ARGS)

# Kills builds and edits TORTURE_KILLS times, and damages small datasets: TORTURE_FLIPS times before they are verified,
# each shard TORTURE_FAULTS times while the loader reads it. Builds into a bucket are killed TORTURE_STORE_KILLS
# times, and TORTURE_STORE_PAIRS times two start together; TORTURE_LOADER_FAULTS times the loader reads from one that
# fails, with a cache and without. All states that a power cut may leave are tried (CRASH_STATES=N tries so many of
# each command), FUSE_FAULTS faults of each command on a file system that then forgets what was not synced, LOOP_CUTS
# cuts of ext4, XFS and Btrfs, and all verbs on OWNERSHIP_FOLDERS folders with files of the user. FRAMEWORK_CASES random
# runs have the same digests in every framework, and FRAMEWORK_RUNS are killed and go on in another one: an hour for
# each 2,000 cases. TORTURE_SEED=WORD kills at other moments.
TORTURE_KILLS ?= 500
TORTURE_FLIPS ?= 400
TORTURE_FAULTS ?= 200
TORTURE_STORE_KILLS ?= 500
TORTURE_STORE_PAIRS ?= 200
TORTURE_LOADER_FAULTS ?= 200
TORTURE_SEED ?= 4
CRASH_STATES ?= all
OWNERSHIP_FOLDERS ?= 10000
FUSE_FAULTS ?= 1000
LOOP_CUTS ?= 60
FRAMEWORK_CASES ?= 1000
FRAMEWORK_RUNS ?= 100

torture: export TORTURE_KILLS := $(TORTURE_KILLS)
torture: export TORTURE_FLIPS := $(TORTURE_FLIPS)
torture: export TORTURE_FAULTS := $(TORTURE_FAULTS)
torture: export TORTURE_STORE_KILLS := $(TORTURE_STORE_KILLS)
torture: export TORTURE_STORE_PAIRS := $(TORTURE_STORE_PAIRS)
torture: export TORTURE_LOADER_FAULTS := $(TORTURE_LOADER_FAULTS)
torture: export TORTURE_SEED := $(TORTURE_SEED)
torture: export CRASH_STATES := $(CRASH_STATES)
torture: export OWNERSHIP_FOLDERS := $(OWNERSHIP_FOLDERS)
torture: export FUSE_FAULTS := $(FUSE_FAULTS)
torture: export LOOP_CUTS := $(LOOP_CUTS)
torture: export FRAMEWORK_CASES := $(FRAMEWORK_CASES)
torture: export FRAMEWORK_RUNS := $(FRAMEWORK_RUNS)
torture: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(WORKERS) -rP tests/durability/test_kills.py tests/durability/test_faults.py \
	  tests/loader/test_faults.py tests/loader/test_remote_faults.py tests/storage/test_remote_output.py $(PYTEST_ARGS)
	$(BIN)/python -m pytest -n $(WORKERS) -rP -m "nightly or not nightly" tests/durability/test_crash_states.py \
	  tests/durability/test_fuse.py tests/durability/test_loop_disks.py tests/durability/test_ownership.py \
	  tests/loader/test_same_everywhere.py $(PYTEST_ARGS)

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Give a folder of class folders: make bench PHOTOS=/data/photos
bench: $(VENV)/.installed
	$(BIN)/python benchmarks/prep.py --photos $(PHOTOS)
	$(BIN)/python benchmarks/images.py --photos $(PHOTOS)
	$(BIN)/python benchmarks/arrays.py
	$(BIN)/python benchmarks/verify.py --photos $(PHOTOS)
	$(BIN)/python benchmarks/read.py --photos $(PHOTOS)
	$(BIN)/python benchmarks/decode.py --photos $(PHOTOS)
	$(BIN)/python benchmarks/distribute.py --photos $(PHOTOS)
	$(BIN)/python benchmarks/remote.py
	$(BIN)/python benchmarks/remote_read.py
	$(BIN)/python benchmarks/shuffle.py
	$(BIN)/python benchmarks/plan.py
	$(BIN)/python benchmarks/foresight.py --photos $(PHOTOS)
	$(BIN)/python benchmarks/scale.py --counts 100000 1000000

clean:
	rm -rf .types demo site .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Two that install into one environment, or write one folder demo/, would break each other: the second one waits.
$(VENV)/.installed: pyproject.toml
	flock Makefile $(MAKE) --no-print-directory environment

environment:
	[ $(VENV)/.installed -nt pyproject.toml ] || { $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --upgrade pip && \
	  $(BIN)/python -m pip install --quiet --editable '.[dev]' && \
	  $(BIN)/python .ci/link_rooms.py && \
	  touch $(VENV)/.installed; }
