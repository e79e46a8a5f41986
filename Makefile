# Two targets matter: `make demo` and `make test`. Both install what they need into .venv, at the releases that were
# tested: those of requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip install --quiet --disable-pip-version-check
EVERYTHING := -e '.[spark,connect,ray,server,objects,workloads,plots,test]' -e lab

# Some machines forbid Python to write bytecode; every process that a test starts would compile all sources, for 0.6 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-latest test-oldest test-all test-slow test-kill test-kill-server test-spark fuzz
.PHONY: install-demo install-test lock clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml lab/pyproject.toml requirements.lock | $(VENV)/bin/python
	$(BIN)/python $(PIP) -c requirements.lock -e '.[spark,server,workloads]' -e lab
	touch $@

$(VENV)/.test: pyproject.toml lab/pyproject.toml requirements.lock | $(VENV)/bin/python
	$(BIN)/python $(PIP) -c requirements.lock $(EVERYTHING)
	touch $@

# Writes requirements.lock anew, from the newest releases that pyproject.toml allows. Run `make test` before you commit.
lock: $(VENV)/.test
	$(BIN)/uv pip compile --quiet --upgrade --universal --all-extras --no-annotate --no-emit-index-url \
		--custom-compile-command "make lock" --output-file requirements.lock pyproject.toml

# A year of flights through Spark, every view checked. Goes on after an interruption; DEMO=--fresh starts anew.
demo: $(VENV)/.demo
	$(BIN)/cumulus demo $(DEMO)

install-demo: $(VENV)/.demo
install-test: $(VENV)/.test

# The fast tier: linters, types, contracts, goldens, a share of the laws, one Spark run per feature, the pages: about
# 8,900 tests.
test: $(VENV)/.test
	$(call fast_tier,$(BIN))

define fast_tier
$(1)/ruff check .
$(1)/ruff format --check .
$(1)/mypy
$(1)/lint-imports
$(call fast_tests,$(1))
endef

define fast_tests
$(1)/pytest -n 2 --dist loadgroup -m "not kill and not slow and not spark_hosts"
endef

# The tests of the fast tier with the newest and with the oldest releases that pyproject.toml allows, each in a new
# virtual environment of its own: a release that changes a result is seen on the day it comes. Types are checked with
# the locked releases alone: old ones of numpy declare others.
test-latest: $(VENV)/.test
	rm -rf .venv-latest && $(PYTHON) -m venv .venv-latest
	.venv-latest/bin/python $(PIP) $(EVERYTHING)
	$(call fast_tests,.venv-latest/bin)

test-oldest: $(VENV)/.test
	rm -rf .venv-oldest && $(PYTHON) -m venv .venv-oldest
	$(BIN)/uv pip install --quiet --python .venv-oldest/bin/python --resolution lowest-direct $(EVERYTHING)
	$(call fast_tests,.venv-oldest/bin)

# Everything that `make test` leaves out, in one go: 35 to 40 minutes on two cores.
test-all: test-slow test-kill

# Long comparisons with DuckDB and with published answers, all cases of what is sampled, all examples of the laws: about
# 2,000 tests in half an hour.
test-slow: $(VENV)/.test
	CUMULUS_TESTS=all $(BIN)/pytest -n 2 --dist loadgroup -m "(slow or law or hypothesis) and not kill and not spark_hosts"

# 10,000 random views of every construct beside DuckDB; a difference is printed as a small case with its seed. One
# to three hours. FUZZ_SEED, FUZZ_VIEWS and FUZZ_JOBS change the run; FUZZ="--seed 1000007 --one" replays one script.
fuzz: $(VENV)/.test
	PYTHONPATH=tests $(BIN)/python -m fuzz $(FUZZ)

# 50,000 random files and tables of extreme values, beside the check of single values, through runs and warehouses: ten
# minutes of two idle cores. FUZZ_SEED, FUZZ_CASES and FUZZ_JOBS change the run; INPUTS="--seed 7 --one" replays a table.
fuzz-inputs: $(VENV)/.test
	PYTHONPATH=tests $(BIN)/python -m fuzz.inputs $(INPUTS)

# Kills the driver, the JVM and workers of the Spark host, and a process that saves, at named points and at random: six
# tests in 16 minutes.
test-kill: $(VENV)/.test
	$(BIN)/pytest -m kill

# Spark with workers that share no folders, and a server of objects on this machine.
test-spark: $(VENV)/.test
	$(BIN)/pytest -n 0 -m spark_hosts

# Kills a server 300 times under clients that write and send again: about half an hour on two idle cores.
test-kill-server: $(VENV)/.test
	$(BIN)/pytest -n 0 -m kill tests/server/test_kills.py

clean:
	rm -rf $(VENV) .venv-latest .venv-oldest out demo-out
