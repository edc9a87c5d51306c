# Two commands do all the set-up: `make demo` and `make test`. Both need Python >= 3.10 and a package index, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# what needs no extra
CORE := $(addprefix tests/,recipe model encoder core) \
	--ignore tests/encoder/test_libraries.py -k "not openvino and not onnx and not graph and not export"

.PHONY: help demo test test-all test-machines test-oldest check format lint types imports check-slim check-data check-browser check-site check-clients check-faults docs pictures bench release clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(INSTALLED)  ## which recipe is better, and what the model notices, on the packaged model and data; draws a picture
	$(BIN)/essent demo

test: $(INSTALLED)  ## run the tests, two files at a time: minutes
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-all: $(INSTALLED)  ## run the slow tests too: every combination, every family, whole models
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not data and not browser and not faults and not clients"

test-machines: $(INSTALLED)  ## run the tests as on a machine ten times faster with 16 cores, then ten times slower with one
	ESSENT_TEST_SPEED=10 ESSENT_TEST_CORES=16 $(MAKE) test
	ESSENT_TEST_SPEED=0.1 ESSENT_TEST_CORES=1 $(MAKE) test

check: format lint types imports test  ## format, lint, types, imports, tests; CI runs the same with test-all

format: $(INSTALLED)
	$(BIN)/ruff format --check src tests benchmarks docs/conf.py docs/site

lint: $(INSTALLED)
	$(BIN)/ruff check src tests benchmarks docs/conf.py docs/site

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)  ## packages import downwards only
	$(BIN)/lint-imports

test-oldest:  ## run the core tests with the oldest versions that pyproject.toml allows (Python 3.10, in .venv-oldest)
	python3.10 -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt --editable ".[test]"
	.venv-oldest/bin/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(CORE)

check-slim:  ## install the wheel without extras, so without torch, in .venv-slim and try what must work there
	rm -rf .venv-slim
	$(PYTHON) -m venv .venv-slim
	.venv-slim/bin/python -m pip wheel --quiet --no-deps --wheel-dir .venv-slim/wheel .
	.venv-slim/bin/python -m pip install --quiet .venv-slim/wheel/*.whl
	.venv-slim/bin/python tests/check_slim.py

check-data: $(INSTALLED)  ## check published figures on real data: make check-data DATA=DIR [RAW_MODEL=DIR] [PAPERS=DIR]
	@test -n "$(DATA)" || { echo "give the folder with sts/*.jsonl: make check-data DATA=DIR"; exit 2; }
	ESSENT_DATA="$(abspath $(DATA))" ESSENT_RAW_MODEL="$(if $(RAW_MODEL),$(abspath $(RAW_MODEL)))" \
		ESSENT_PAPERS="$(if $(PAPERS),$(abspath $(PAPERS)))" $(BIN)/python -m pytest -m data tests/data

check-browser: $(INSTALLED)  ## look at the report and at the page of the server in a real Chromium, which must be installed
	$(BIN)/python -m pytest -m browser tests/report tests/serving

check-site: docs  ## open every page of the site in a real Chromium, with axe
	$(BIN)/python -m pytest -m browser tests/test_site_in_browser.py

check-clients:  ## embed by a server with the clients of langchain, llama-index and chromadb, in .venv-clients
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --editable ".[clients]"
	.venv-clients/bin/python -m pytest -m clients tests/serving/test_clients.py

check-faults: $(INSTALLED)  ## hostile and damaged folders; kills at every write, of bulk runs and of engines (Linux, a C compiler; minutes)
	$(BIN)/python tests/faults/kill_harness.py -m faults --numprocesses 2 --dist worksteal tests/faults tests/core/folders tests/bulk tests/serving

docs: $(INSTALLED)  ## build the site with its notebooks, in docs/_build/html: minutes; after that seconds for a page
	$(BIN)/python -m sphinx -W --keep-going --quiet docs docs/_build/html
	@echo "Open docs/_build/html/index.html, or: $(BIN)/python -m http.server --directory docs/_build/html"

pictures: $(INSTALLED)  ## draw the gallery's pictures again, in docs/images
	$(BIN)/python docs/site/pictures.py docs/images

bench: $(INSTALLED)  ## time against the named peers; fails if slower than benchmarks/ratios.json: make bench [ROUNDS=5] [DATA=DIR]
	$(BIN)/python benchmarks/run_all.py $(if $(ROUNDS),--rounds $(ROUNDS))
	$(if $(DATA),$(BIN)/python benchmarks/heads.py --data "$(DATA)/classification/cr.jsonl")
	$(if $(DATA),$(BIN)/python benchmarks/suite.py --data "$(DATA)")

release:  ## build what a release publishes, check it, and try the README with the wheel in an empty environment
	rm -rf dist .venv-release
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet build twine
	.venv-release/bin/python -m build --outdir dist .
	.venv-release/bin/python -m twine check --strict dist/*
	.venv-release/bin/python tests/check_readme.py dist/*.whl .venv-release/readme

clean:
	rm -rf $(VENV) .venv-slim .venv-clients .venv-release dist demo-output docs/_build docs/_generated
