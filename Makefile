# Two commands matter: `make lab` opens the first lab, `make test` runs everything that the continuous integration runs.
#
#   make lab TORCH_INDEX=https://download.pytorch.org/whl/cpu     CPU wheels of torch, for a machine without an NVIDIA GPU
#   make wheels WHEELS=folder                                     collect every wheel, on a machine with a network
#   make lab WHEELS=folder                                        install from them, without a network
#   make test-full                                                the tests and notebooks at full size
#
# A second run of any of them installs nothing. `make clean` removes the environment and leaves your work/ alone.

PYTHON ?= python3
WHEELS ?=
TORCH_INDEX ?=
JOBS ?= 2
JUPYTER_ARGS ?=
PYTEST_ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
FROM := $(if $(WHEELS),--no-index --find-links $(abspath $(WHEELS))) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
INSTALLED := .venv/.labllm-installed
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(PYTEST_ARGS)

.PHONY: lab test test-full style format install browser wheels clean

lab: $(INSTALLED)
	@$(BIN)/python -m labllm.workbook
	cd work && ../$(BIN)/python -m jupyterlab 00_start_here.ipynb $(if $(filter 0,$(shell id -u)),--allow-root) \
	    --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.news_url=None $(JUPYTER_ARGS)

test: style browser
	LABLLM_FAST=1 OMP_NUM_THREADS=1 $(PYTEST) -m "not slow"

test-full: style browser
	$(PYTEST)

style: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m labllm.notebooks --check

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python -m labllm.notebooks

install: $(INSTALLED)

# Only the environment is made here; all that it holds stands in requirements.txt.
.venv/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit("labllm needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is %d.%d: name another one, as in make lab PYTHON=python3.12" % v)'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: on Debian and Ubuntu, apt-get install python3-venv mends it"; exit 1; }
	$(PYTHON) -m venv .venv

$(INSTALLED): pyproject.toml requirements.txt | .venv/bin/python
	$(PIP) install --quiet $(FROM) -r requirements.txt
	$(PIP) install --quiet --no-deps --no-build-isolation --no-index --editable .
	@touch $@

# The browser tests drive JupyterLab in Chromium, through Playwright's own copy of Node.js.
browser: $(INSTALLED)
	@chromium() { command -v "$${LABLLM_CHROMIUM:-chromium}" || command -v google-chrome; }; \
	if chromium >/dev/null && $(BIN)/python -m playwright --version >/dev/null 2>&1; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq chromium libatomic1; \
	else echo "The browser tests need Chromium (LABLLM_CHROMIUM names another Chrome) and libatomic: on Debian, sudo apt-get install chromium libatomic1"; exit 1; fi

wheels: .venv/bin/python
	@[ -n "$(WHEELS)" ] || { echo "Say where to put the wheels: make wheels WHEELS=folder"; exit 1; }
	$(PIP) wheel --wheel-dir $(WHEELS) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r requirements.txt

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
