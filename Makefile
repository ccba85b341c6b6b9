# Everything runs in .venv, which every target makes first, with what the target uses; when it is there, that takes a moment.

BIN := .venv/bin

.PHONY: install packages java setup demo demo-store test test-unit test-full lint format types bench bench-growth docs site site-release dist screenshots audit clean

install: ## .venv/bin/lakemirror and all it needs; then, in the background, the class-data archive, with which Spark starts 3 s faster
	@scripts/install.sh all

packages: # each of these three adds to the one before: a target asks for what it uses, so it runs where the rest cannot be had
	@scripts/install.sh

java:
	@scripts/install.sh java

setup:
	@scripts/install.sh java jars postgresql mariadb

demo: java ## a year of flights through a landing zone into Delta tables
	@$(BIN)/lakemirror demo

demo-store: packages ## the same in a bucket, on an S3 server that is started for it
	@scripts/demo-store.sh

test: setup ## all tests but the slow matrices, with fewer random rounds, in four processes, of which one has Spark: tests wait for a third of their time
	@$(BIN)/python -m pytest -m "not full" -n 4

test-unit: packages ## the tests of single parts, which start no JVM and no server: a minute
	@$(BIN)/python -m pytest tests/unit -m "not full" -n 2

test-full: setup ## every test; of stores those that MINIO_BINARY, AZURITE_BINARY and FAKE_GCS_BINARY name
	@$(BIN)/python -m pytest

lint: packages types ## style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: packages
	@$(BIN)/mypy

format: packages
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: setup ## lakemirror beside its peers, in ten minutes, then table features, the service, a store (MINIO_BINARY); what it leaves out: python -m benchmarks --help
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.table_features
	@$(BIN)/python -m benchmarks.service
	@$(BIN)/python -m benchmarks.stores

bench-growth: java ## how an apply grows with rows, changes, tables, commits and columns; UUID keys; idle tables; about 20 minutes
	@$(BIN)/python -m benchmarks.growth
	@$(BIN)/python -m benchmarks.watching

docs: packages ## the reference pages, from the code
	@$(BIN)/python docs/generate.py

dist: packages ## wheel and source distribution in dist/, each tried in an empty environment; more: scripts/dist.sh full, scripts/dist.sh sbom
	@scripts/dist.sh

screenshots: packages ## the pictures of the service's page; needs Chromium
	@$(BIN)/python docs/screenshots.py

site: packages ## the documentation as a site, in build/site; a broken link is an error
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/site.txt
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

site-release: site ## the site of this version beside those of earlier ones, as a commit on the branch gh-pages, which is not pushed
	@NO_MKDOCS_2_WARNING=1 PATH="$(BIN):$$PATH" $(BIN)/mike --quiet deploy --update-aliases "$$($(BIN)/python -c 'import lakemirror; print(lakemirror.__version__)')" latest
	@PATH="$(BIN):$$PATH" $(BIN)/mike --quiet set-default --allow-empty latest

audit: packages ## known holes in what is installed, by pip-audit; needs its database of them on the network
	@$(BIN)/python -m pip install --quiet pip-audit
	@$(BIN)/pip-audit

clean: ## .venv and whatever tools left; the jars stay in ~/.cache/lakemirror
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
