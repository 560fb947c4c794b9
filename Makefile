# The one entry. On a fresh machine `make quickstart` and `make test` need nothing done before them.
PYTHON ?= python3
export PYTHON
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# One process a core; tests that share a Spark session stay in one of them.
PARALLEL := -n auto --dist loadgroup

# The one definition of what CI runs, for `make check`, .ci/run and .github/workflows.
CI_STEPS := test crash faults sim shake judge asan threads tsan fuzz lint test-interpreters
comma := ,
space := $(subst ,, )

.PHONY: help quickstart test test-quick test-fixtures test-interpreters test-spark-long judge asan threads tsan fuzz \
	crash faults faults-mutants sim shake scenarios mutants lint format check check-steps bench bench-quick bench-spark bench-growth build environment \
	environment-run annotate dist clean

help: ## what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20

quickstart: environment-run ## the main job: three replicas, a failover, a million records, Spark
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@$(BIN)/replog quickstart $(if $(INPUT),--input $(INPUT))

test: build ## every test (under 12 minutes on two cores)
	$(PYTEST) tests --ignore tests/test_tidy.py -m "not java" --durations=15 $(PARALLEL)
	$(if $(wildcard bench/bench_*.py),REPLOG_BENCH_TINY=1 $(PYTEST) bench -q --benchmark-disable)

test-quick: build ## the tests that take less than a few seconds each
	$(PYTEST) tests -q --ignore tests/test_tidy.py -m "not slow and not spark and not java" $(PARALLEL)

test-spark-long: build ## streams over twenty kills of the driver, jobs killed at every step (Java, several minutes)
	REPLOG_SPARK_KILLS=20 $(PYTEST) tests/spark -k killed -q -s

test-fixtures: build ## directories that Kafka wrote: REPLOG_FIXTURES=DIR, by default tests/golden
	$(PYTEST) tests/fixtures -q

test-interpreters: ## the wheel on each CPython 3.11 to 3.14 that is present
	scripts/interpreters

judge: build ## Kafka's own tools and a broker read what replog wrote (Java 17, Maven)
	$(PYTEST) tests/judge -q -m java

asan: build ## native tests under the address and undefined-behaviour sanitizers
	scripts/asan $(TESTS)

threads: build ## threads in everything that is public: MINUTES=1, or SEED=n [SEEDS=k] [KIND=log]
	@PYTHONPATH=. $(BIN)/python tests/threads/runs.py $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(KIND),--kind $(KIND)) --minutes $(or $(MINUTES),1)

tsan: build ## the same under ThreadSanitizer
	@scripts/tsan $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(KIND),--kind $(KIND)) --minutes $(or $(MINUTES),1)

fuzz: build ## a short run of each fuzz target: SECONDS_EACH=30
	scripts/fuzz $(or $(SECONDS_EACH),30)

sim: build ## simulated clusters: SEED=n [SEEDS=k], or 8 CPU-minutes of fresh seeds (CPU_MINUTES=, FRESH=tree)
	@PYTHONPATH=. $(BIN)/python tests/sim/runs.py $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(SCHEDULE),--schedule $(SCHEDULE)) $(if $(FRESH),--fresh $(FRESH)) --cpu-minutes $(or $(CPU_MINUTES),8)

shake: build ## whole clusters, killed and opened again: MINUTES=2, or SEED=n [SEEDS=k]; KNOWN=all
	@PYTHONPATH=. $(BIN)/python tests/shake/runs.py $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(KNOWN),--known $(KNOWN)) --minutes $(or $(MINUTES),2)

scenarios: build ## the simulator's transcripts happen as written: REWRITE=1 renews them
	@PYTHONPATH=. $(BIN)/python tests/sim/transcripts.py $(if $(REWRITE),--rewrite)

mutants: build ## the simulator catches every planted bug
	@PYTHONPATH=. $(BIN)/python tests/sim/mutants.py $(MUTANT)

faults: build ## logs with failing system calls: SEED=n [SEEDS=k], or CPU_MINUTES=8 of fresh seeds (FRESH=tree)
	@PYTHONPATH=. $(BIN)/python tests/faults/runs.py $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(SCRIPT),--script $(SCRIPT)) $(if $(FRESH),--fresh $(FRESH)) --cpu-minutes $(or $(CPU_MINUTES),8)

faults-mutants: build ## runs with faults catch every planted bug of the engine: BUG=name
	@PYTHONPATH=. $(BIN)/python tests/faults/mutants.py $(BUG)

crash: build ## every crash state that the enumerator finds, not only CI's share
	REPLOG_CRASH_STATES=all $(PYTEST) tests/crash -q

lint: build ## ruff, mypy --strict, stubtest, cython-lint, import-linter, codespell, actionlint, the tidy test
	scripts/lint

format: environment ## let ruff put the layout right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: ## what CI runs, each step to its end: STEPS="test lint" for some of them
	@scripts/check $(or $(STEPS),$(CI_STEPS))

check-steps: # as JSON, for a hosted CI that runs them side by side
	@echo '["$(subst $(space),"$(comma)",$(CI_STEPS))"]'

bench: build ## every benchmark at full size but Spark's and those of growth
	@mkdir -p bench/results
	$(PYTEST) bench -q --ignore bench/bench_spark.py --ignore-glob 'bench/bench_growth*' --benchmark-json=bench/results/run.json
	$(BIN)/python -m bench.merge_results bench/results/run.json bench/results/latest.json

bench-quick: build ## every bar at a smaller size, under 10 minutes
	@mkdir -p bench/results
	REPLOG_BENCH_QUICK=1 $(PYTEST) bench -q --ignore bench/bench_spark.py --ignore-glob 'bench/bench_growth*' \
		--benchmark-json=bench/results/run.json
	$(BIN)/python -m bench.merge_results bench/results/run.json bench/results/latest.json

bench-spark: build ## Spark over segments against Spark over Parquet (Java; about 15 minutes)
	@mkdir -p bench/results
	$(PYTEST) bench/bench_spark.py -q --benchmark-json=bench/results/run.json
	$(BIN)/python -m bench.merge_results bench/results/run.json bench/results/latest.json

bench-growth: build ## how costs grow with size: exponents, and what must open (under 15 minutes)
	@mkdir -p bench/results
	$(PYTEST) bench/bench_growth*.py -q --benchmark-json=bench/results/run.json
	$(BIN)/python -m bench.merge_results bench/results/run.json bench/results/latest.json

environment: ## .venv with everything for development
	@scripts/environment dev

environment-run:
	@scripts/environment run

build: environment ## the native modules, in place
	@$(BIN)/python setup.py --quiet build_ext --inplace

annotate: environment ## build/annotate/*.html: which lines of a .pyx are C
	@mkdir -p build/annotate && cp replog/_native/*.pyx build/annotate/
	$(BIN)/cython --annotate --3str -I . build/annotate/*.pyx

dist: environment ## sdist and a manylinux wheel for each CPython that is present, tried, in dist/
	rm -rf dist
	$(BIN)/python -m build --sdist --no-isolation
	scripts/interpreters dist

clean: ## everything that was built; .venv stays
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find replog -name '*.so' -delete
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
