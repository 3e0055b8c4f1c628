# Everything the project can do from a fresh clone; it needs make, Python 3.11 or newer, and a network at first.
# Real clusters need root on Linux besides. Nothing is installed outside of .venv and the user's cache, except for
# the Debian packages of the test clusters (`make testbed` installs them when it runs as root).

PYTHON ?= python3
BIN := .venv/bin
SOURCES := setup.cfg pyproject.toml sandbox/setup.cfg sandbox/pyproject.toml
T ?=
N ?= 2
HOURS ?= 2
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help venv demo test unit coverage docs attack floods fills nightly setups soak conformance lint types arch format bench bench-compare fuzz mutants testbed testbed-up testbed-down dist deb image chart \
	manifests lock sbom sign release clean distclean

help:
	@echo "make demo          two clusters in one process: watch them find each other and share pods"
	@echo "make test          all checks and tests; T='tests.test_x tests.real.test_y' for some of them"
	@echo "make unit          the tests that need no root and no clusters, in a few minutes"
	@echo "make coverage      the same, and how much of liqod they run, by package; fails below the floor in setup.cfg"
	@echo "make attack        the tests of the attacks in docs/attacks.md; ARGS='--unit' without clusters"
	@echo "make floods        floods of a real daemon, and what others notice of them; make fills: one cluster fills another"
	@echo "make nightly       what takes hours, in parts; goes on where it was interrupted; ARGS='PART' for one"
	@echo "make setups        thirty broken set-ups on two real clusters, and what status says of each; goes on where it was interrupted; ARGS='--list', ARGS='7 12'"
	@echo "make soak          HOURS=2 of churn and trouble on two real clusters, and what has grown; HOURS=0.2 for a short one"
	@echo "make conformance   Kubernetes' own conformance tests on a virtual node, some hours; ARGS='sig-storage' for a part"
	@echo "make lint          style, types and import contracts"
	@echo "make types | arch  only the types, only the import contracts"
	@echo "make format        put the source into the project's format"
	@echo "make fuzz          feed the decoders what nobody would send; ARGS='payload --seconds 300' for more of it"
	@echo "make mutants       break the code in many small places, and see which tests notice; ARGS='--group trust --count 40'"
	@echo "make bench         measurements on real clusters; ARGS='...' go to them; figures: benchmarks/results/"
	@echo "make bench-compare A=FILE B=FILE, two of bench's files: what is slower or larger, beyond the noise"
	@echo "make testbed       install and build what real clusters need"
	@echo "make testbed-up    start N=2 real clusters with nodes, ARGS='--qps 500'; they stay"
	@echo "make testbed-down  end them"
	@echo "make venv          only the Python environment"
	@echo "make dist          the wheel and the source distribution, with the same bytes from the same commit"
	@echo "make docs          the site of the documentation, in build/site, with the reference pages out of the code"
	@echo "make sbom          what is installed with liqod, as CycloneDX: versions, licences, digests"
	@echo "make sign          sign the digests of what is in dist: ARGS='--key FILE'; ARGS=--check verifies them"
	@echo "make deb           the Debian package, for the release of the distribution that it is built on"
	@echo "make image         the container image for this processor; ARGS='--arch arm64' for another one"
	@echo "make chart         the Helm chart as one file, with the same bytes from the same commit"
	@echo "make manifests     the manifests for kubectl apply -k, out of the chart and of what liqodctl install makes"
	@echo "make lock          choose the versions that the packages bring, with their digests"
	@echo "make release       check what a release needs, and show its steps; publishes nothing"
	@echo "make clean         remove caches and build results; distclean: the Python environment too"

# The environment of the daemon alone.
.venv/.runtime: $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || { echo "making a Python environment in .venv"; $(PYTHON) -m venv .venv; }
	@echo "installing liqod and what it needs into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ./sandbox --editable .
	@touch $@

# The same with what the tests and checks need.
.venv/.development: .venv/.runtime
	@echo "installing what tests and checks need into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,lint,docs]'
	@touch $@

venv: .venv/.development

demo: .venv/.runtime
	@$(BIN)/liqodctl demo $(ARGS)

# Half as many cases of the scenarios as a module has that runs alone; `make nightly` has ten times as many.
test: .venv/.development
	@LIQOD_SCENARIO_FACTOR=$${LIQOD_SCENARIO_FACTOR:-0.5} $(BIN)/python -m tests.run $(if $(T),--only $(T)) $(ARGS)

unit: .venv/.development
	@LIQOD_SCENARIO_FACTOR=$${LIQOD_SCENARIO_FACTOR:-0.5} $(BIN)/python -m tests.run --unit $(ARGS)

# With ARGS=--again the numbers of the last run, without another one.
coverage: .venv/.development
	@LIQOD_SCENARIO_FACTOR=$${LIQOD_SCENARIO_FACTOR:-0.5} $(BIN)/python -m tests.covered $(ARGS)

attack: .venv/.development
	@$(BIN)/python -m tests.attack $(ARGS)

floods: .venv/.development
	@$(BIN)/python -m tests.attack.floods $(ARGS)

fills: .venv/.development
	@$(BIN)/python -m tests.attack.fills $(ARGS)

nightly: .venv/.development
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	@$(BIN)/python -m tests.nightly $(ARGS)

setups: .venv/.development
	@$(BIN)/python -m tests.real.broken_setups $(ARGS)

soak: .venv/.development
	@$(BIN)/python -m tests.real.soak --hours $(HOURS) $(ARGS)

conformance: .venv/.development
	@$(BIN)/python -m tests.e2e $(ARGS)

lint: .venv/.development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

types: .venv/.development
	$(BIN)/mypy

arch: .venv/.development
	$(BIN)/lint-imports

format: .venv/.development
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

testbed: .venv/.development
	@$(BIN)/python -m tests.testbed install
	@$(BIN)/python -m tests.testbed build

testbed-up: .venv/.development
	@$(BIN)/python -m tests.testbed up $(N) --nodes $(ARGS)

testbed-down: .venv/.development
	@$(BIN)/python -m tests.testbed down

fuzz: .venv/.development
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	@$(BIN)/python -m tests.fuzz $(ARGS)

mutants: .venv/.development
	@$(BIN)/python -m tests.mutants $(ARGS)

bench: testbed
	@$(BIN)/python -m benchmarks $(ARGS)

bench-compare: .venv/.development
	@$(BIN)/python -m benchmarks compare $(A) $(B)

docs: .venv/.development
	@$(BIN)/python packaging/tools/website.py $(ARGS)

dist: .venv/.development
	@$(BIN)/python packaging/tools/dist.py $(ARGS)

deb: .venv/.runtime
	@$(BIN)/python packaging/tools/deb.py $(ARGS)

image: .venv/.runtime
	@$(BIN)/python packaging/tools/image.py $(ARGS)

chart: .venv/.runtime
	@$(BIN)/python packaging/tools/chart.py $(ARGS)

manifests: .venv/.runtime
	@$(BIN)/python packaging/tools/manifests.py $(ARGS)

# The digests are those of all platforms; the versions are those that pip would choose now.
lock:
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check 'pip-tools>=7.5'
	@.venv-lock/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras --no-header --no-annotate \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file packaging/requirements.lock setup.cfg
	@rm -rf .venv-lock

sbom:
	@$(PYTHON) packaging/tools/sbom.py $(ARGS)

sign:
	@$(PYTHON) packaging/tools/sign.py $(ARGS)

release: .venv/.development
	@$(BIN)/python packaging/tools/release.py

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .cache/coverage _trial_temp*
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
