# Everything runs in .venv, which every target makes first; when it is there, that takes a moment.

BIN := .venv/bin

.PHONY: install demo demo-store test test-unit test-full lint format types bench docs site screenshots audit clean

install: ## .venv/bin/lakemirror and all it needs
	@scripts/install.sh

demo: install ## a year of flights through a landing zone into Delta tables
	@$(BIN)/lakemirror demo

demo-store: install ## the same in a bucket, on an S3 server that is started for it
	@scripts/demo-store.sh

test: install ## all tests but the slow matrices, with fewer random rounds, in two processes, of which one has Spark
	@$(BIN)/python -m pytest -m "not full" -n 2

test-unit: install ## the tests that start no JVM: seconds
	@$(BIN)/python -m pytest tests/unit

test-full: install ## every test
	@$(BIN)/python -m pytest

lint: install types ## style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: install
	@$(BIN)/mypy

format: install
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: install ## lakemirror beside its peers, in ten minutes, then table features, the service, a store (MINIO_BINARY); what it leaves out: python -m benchmarks --help
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.table_features
	@$(BIN)/python -m benchmarks.service --databases 20 --tables 20
	@$(BIN)/python -m benchmarks.stores

docs: install ## the reference pages, from the code
	@$(BIN)/python docs/generate.py

screenshots: install ## the pictures of the service's page; needs Chromium
	@$(BIN)/python docs/screenshots.py

site: install ## the documentation as a site, in build/site; a broken link is an error
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/site.txt
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

audit: install ## known holes in what is installed, by pip-audit; needs its database of them on the network
	@$(BIN)/python -m pip install --quiet pip-audit
	@$(BIN)/pip-audit

clean: ## .venv and whatever tools left; the jars stay in ~/.cache/lakemirror
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
