# Makefile -- the short front door; CMakeLists.txt does the work.
BUILD ?= build
CC ?= cc
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
DIST_FLAGS ?=
DESTDIR ?=
PREFIX ?= /usr/local
T ?=
S ?= 60
N ?= 200000
MAKEFLAGS += --no-print-directory
# Of a new folder; make itself would spend a fifth of the time between the files.
export CMAKE_GENERATOR ?= $(if $(shell command -v ninja),Ninja,Unix Makefiles)

# What `make demo` shows: one training step, priced before it runs.
DEMO = estimate resnet50 --batch 32 --optimizer sgd,momentum=0.9 --gpu rtx4090

cmake = mkdir -p $(1) && cmake -S . -B $(1) -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(2) $(CMAKE_FLAGS) \
	>$(1)/configure.log 2>&1 || { cat $(1)/configure.log; exit 1; }
build = tools/build.sh $(1) -j$(JOBS) --target $(2)
ctest = ctest --test-dir $(1) --output-on-failure -j$(JOBS)
formatted = $(wildcard include/*.h src/*/*.[ch] src/*/*/*.[ch] src/vgpu/torch_shim/shim/* cli/*.[ch] tests/*/*.[ch] bench/*.[ch])

# What tests and fuzzers ask for must not depend on a network.
export HF_HUB_OFFLINE = 1

.PHONY: all help deps deps-check demo checks check asan tsan fuzzers fuzz torture bench golden wasm fmt fmt-check \
	lint install dist dist-check clean

all: deps ## build what `make install` installs: build/plimsoll and the library (the default)
	@$(call cmake,$(BUILD),)
	@$(call build,$(BUILD),all)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: deps ## build the program alone, then predict one training step of ResNet-50
	@$(call cmake,$(BUILD),)
	@$(call build,$(BUILD),plimsoll)
	@echo '$$ $(BUILD)/plimsoll $(DEMO)'
	@$(BUILD)/plimsoll $(DEMO)

checks: deps-check # what `make check` runs, and the benches
	@$(call cmake,$(BUILD),)
	@$(call build,$(BUILD),all checks)

check: checks ## build and run every test (the last line counts them)
	@$(call ctest,$(BUILD))

asan: deps-check ## the tests under address and undefined-behaviour sanitizers
	@$(call cmake,build-asan,-DPLIM_SANITIZE=ON -DPLIM_DEBUG=ON)
	@$(call build,build-asan,all checks)
	@$(call ctest,build-asan)

tsan: deps-check ## the tests that use threads under the thread sanitizer
	@$(call cmake,build-tsan,-DPLIM_TSAN=ON -DPLIM_DEBUG=ON)
	@$(call build,build-tsan,thread_tests)
	@$(call ctest,build-tsan) -L threads

fuzzers: # what `make fuzz` runs
	@tools/deps.sh fuzz
	@$(call cmake,build-fuzz,-DCMAKE_C_COMPILER=clang -DPLIM_FUZZ=ON -DPLIM_DEBUG=ON)
	@$(call build,build-fuzz,fuzzers)

fuzz: fuzzers ## fuzz for S seconds each: make fuzz T=tape S=60 (no T: every target)
	@tools/fuzz.sh build-fuzz $(S) $(T)

torture: checks ## the whole of tests/torture, about an hour: make torture N=200000 (mutants)
	@$(call cmake,build-torture,-DPLIM_SANITIZE=ON -DPLIM_DEBUG=ON)
	@$(call build,build-torture,torture)
	@build-torture/torture_files -j $(JOBS) -n $(N)
	@PLIMSOLL_EVERY=1 build-torture/test_nomem
	@tests/torture/lines.py build-torture/plimsoll -n 2000 -t 10
	@tests/torture/lines.py $(BUILD)/plimsoll -n 50000 -s 2
	@tests/torture/faults.py $(BUILD)/plimsoll $(BUILD)/libtorture_faults.so
	@tests/torture/bombs.py $(BUILD)/plimsoll
	@$(BUILD)/torture_soak 100000
	@tests/torture/builds.py || [ $$? = 77 ]

bench: checks ## time the library on this machine
	@for b in $(BUILD)/bench_*; do [ ! -x "$$b" ] || "$$b" || exit 1; done
	@! command -v python3 >/dev/null || { python3 bench/files.py $(BUILD) && python3 bench/python.py $(BUILD); }

golden: ## record again what the golden files hold (needs python3 with PyTorch)
	@tools/golden.sh

wasm: ## compile the library for wasm32-wasi (proves that it can be)
	@tools/wasm.sh build-wasm

fmt: ## lay the sources out as .clang-format says
	@tools/deps.sh lint
	@clang-format -i $(formatted)

fmt-check: ## say which sources clang-format would change
	@tools/deps.sh lint
	@clang-format --dry-run -Werror $(formatted)

lint: fmt-check ## clang-format, clang-tidy and mypy, nothing is changed
	@mypy --no-error-summary
	@$(call cmake,build-tidy,-DCMAKE_C_COMPILER=clang -DPLIM_TESTS=OFF)
	@ls src/*/*.c src/*/*/*.c cli/*.c | grep -v _windows | xargs -P$(JOBS) -n1 clang-tidy -p build-tidy --quiet

install: all ## install below PREFIX (and DESTDIR)
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

dist: ## build what people download into dist/: programs, .deb, wheels, checksums
	@tools/deps.sh dist
	@tools/dist.py build-dist dist $(DIST_FLAGS)

dist-check: ## examine dist/, and make it again elsewhere: the same bytes
	@tools/deps.sh dist dist-check
	@tools/dist_check.py dist build-dist/tools
	@tools/dist.py build-dist/again build-dist/again/dist --tools build-dist/tools $(DIST_FLAGS) >/dev/null
	@cmp dist/SHA256SUMS build-dist/again/dist/SHA256SUMS && echo "ok    the same bytes twice"

clean: ## remove what was built
	rm -rf build build-asan build-tsan build-fuzz build-torture build-tidy build-wasm build-dist build-werror-*

deps: ## install what building needs and this machine lacks
	@tools/deps.sh build

deps-check: ## likewise for the tests
	@tools/deps.sh build check
