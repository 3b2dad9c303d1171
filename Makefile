# moeref: builds with GNU make, a C11 compiler, OpenBLAS, MPFR/GMP, jansson; tests need Check.

ifeq ($(origin CC),default)
CC := gcc
endif
OPT ?= -O3
BUILD ?= build
MOREFLAGS ?=
WARN := -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes
# In CI a warning is an error; on a user's newer compiler it must not be.
ifeq ($(CI),true)
WARN += -Werror
endif
# No contraction: a*b+c is two roundings unless the source says fma. -frounding-math: MPFR twins and
# tests change the rounding mode.
FLAGS = -std=c11 -D_GNU_SOURCE $(WARN) $(OPT) -g -ffp-contract=off -frounding-math -fno-math-errno \
	-fopenmp -fPIC -MMD -MP $(MOREFLAGS) $(CFLAGS)
LIBS := -lopenblas -lmpfr -lgmp -ljansson -lm
PREFIX ?= /usr/local
ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)
VERSION := $(shell sed -n 's/^.define MR_VERSION "\(.*\)"/\1/p' ref/moeref.h)

# Hot loops (ref/*/*_simd.c) are compiled once for each instruction set and chosen at run time.
ifeq ($(ARCH),x86_64)
ISAS := base v3 v4
else
ISAS := base
endif
ISA_FLAGS_base :=
ISA_FLAGS_v3 := -march=x86-64-v3
ISA_FLAGS_v4 := -march=x86-64-v4 -mprefer-vector-width=512

REF := $(wildcard ref/*.c ref/*/*.c)
SIMD := $(filter %_simd.c,$(REF))
PLAIN := $(filter-out %_simd.c,$(REF))
LIBOBJ := $(PLAIN:%.c=$(BUILD)/%.o) $(foreach isa,$(ISAS),$(SIMD:%.c=$(BUILD)/%.$(isa).o))
TOOLOBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/*.c))
TESTSRC := $(wildcard tests/test_*.c)
TESTOBJ := $(TESTSRC:%.c=$(BUILD)/%.o) $(BUILD)/tests/run.o \
	$(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))
BENCHOBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/bench/*.c))
BUGOBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/mutants/*.c) \
	$(filter-out tests/bugs/check_bugs.c,$(wildcard tests/bugs/*.c)))
# What moeref reveal --plugin is tested with.
PLUGINS := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/plugins/*.c))
# Router kernels as host code, their threads run by gpu/kernels/simt.h, so that tests can hold them
# against the reference without a GPU. Free of the C++ library, so that CC links them.
SIMTOBJ := $(patsubst %.cu,$(BUILD)/%.simt.o,$(wildcard gpu/kernels/*.cu))
SIMT_FLAGS = -x c++ -std=c++17 -DMR_SIMT $(filter-out -W%prototypes,$(WARN)) -Wno-unknown-pragmas $(OPT) -g \
	-ffp-contract=off -frounding-math -fno-exceptions -fno-rtti -fPIC -MMD -MP $(MOREFLAGS)
LIB := $(BUILD)/libmoeref.a

# The GPU harness: all of it but *_cuda.c and .cu builds without nvcc, and serves plugins on the CPU.
NVCC ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
GPU_ARCH ?= -gencode=arch=compute_90a,code=sm_90a
# nvcc's default contraction, in which engines are compiled, too, and ref/arith/cuda.h has its scalar
# functions: 1 + expf(-x) ends in an FMA. Kernels say __fadd_rn (plus) where nothing may be fused.
HARNESS_NVCCFLAGS ?= $(GPU_ARCH) -O3 -std=c++20 -lineinfo -Xcompiler -fPIC,-Wall,-Wextra,-ffp-contract=off
GPUOBJ := $(patsubst %.c,$(BUILD)/%.o,tools/common.c $(filter-out gpu/main.c gpu/cpu_only.c \
	%_cuda.c,$(wildcard gpu/*.c)))
GPU_PLUGINS := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/gpu/*.c))
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)

.PHONY: gpu-check gpu-so help all deps demo shared test check-long check-bugs check-oracles \
	check-python bench asan ubsan tsan fuzz gpu install showconfig clean format probe
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

## help: lists every target with one line
help:
	@sed -n 's/^## \([a-z-]*\): \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		awk -F'|' '{printf "%-16s%s\n", $$1, $$2}'

## all: builds build/moeref (the default)
all: probe $(BUILD)/moeref

DEBS := gcc g++ libc6-dev pkg-config libopenblas-dev libmpfr-dev libgmp-dev libjansson-dev check

## deps: installs the Debian packages that are missing (sudo only if not root)
deps:
	@missing=$$(for p in $(DEBS); do \
	  dpkg-query -W -f='$${Status}\n' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -z "$$missing" ]; then echo "deps: all found"; else \
	  echo "deps: missing:" $$missing "-> apt-get install"; \
	  if [ "$$(id -u)" = 0 ]; then s=; else s=sudo; fi; \
	  $$s apt-get update -qq && $$s env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

probe:
	@for l in openblas:cblas.h:libopenblas-dev mpfr:mpfr.h:libmpfr-dev gmp:gmp.h:libgmp-dev \
	    jansson:jansson.h:libjansson-dev; do \
	  IFS=:; set -- $$l; unset IFS; \
	  if printf '#include <stdio.h>\n#include <%s>\n' $$2 | $(CC) -E -x c - >/dev/null 2>&1; \
	  then [ -z "$(V)" ] || echo "$$1: found"; \
	  else echo "$$1: missing -> nothing can be built: apt-get install $$3, or make deps"; \
	    exit 1; fi; done

$(BUILD)/%.base.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(ISA_FLAGS_base) -DMR_ISA=base -c $< -o $@
$(BUILD)/%.v3.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(ISA_FLAGS_v3) -DMR_ISA=v3 -c $< -o $@
$(BUILD)/%.v4.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(ISA_FLAGS_v4) -DMR_ISA=v4 -c $< -o $@
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -c $< -o $@
$(BUILD)/%.simt.o: %.cu
	@mkdir -p $(@D)
	$(CXX) $(SIMT_FLAGS) -c $< -o $@

$(LIB): $(LIBOBJ)
	@rm -f $@
	ar rcs $@ $^
# Exports what ref/moeref.map lists, and the name says which versions can stand for each other.
SONAME := libmoeref.so.$(firstword $(subst ., ,$(VERSION)))
$(BUILD)/libmoeref.so: $(LIBOBJ) ref/moeref.map
	$(CC) $(FLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=ref/moeref.map -o $@ $(LIBOBJ) $(LIBS)
	@ln -sf libmoeref.so $(BUILD)/$(SONAME)
$(BUILD)/moeref: $(TOOLOBJ) $(LIB)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/bugs/check-bugs: $(BUILD)/tests/bugs/check_bugs.o $(BUGOBJ) $(LIB)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/plugins/%.so: tests/plugins/%.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -shared -o $@ $< -lopenblas -lm
$(BUILD)/tests/run: $(TESTOBJ) $(BUGOBJ) $(SIMTOBJ) $(GPUOBJ) $(BUILD)/gpu/cpu_only.o $(LIB) | $(PLUGINS) \
		$(BUILD)/libmoeref.so
	$(CC) $(FLAGS) -o $@ $^ $(shell pkg-config --libs check 2>/dev/null || echo -lcheck) $(LIBS)
# The suites are the files: tests/test_NAME.c defines Suite *suite_NAME(void).
$(BUILD)/tests/suites.inc: $(TESTSRC)
	@mkdir -p $(@D)
	@for f in $(TESTSRC); do n=$${f#tests/test_}; echo "SUITE($${n%.c})"; done > $@
$(BUILD)/tests/run.o: $(BUILD)/tests/suites.inc
$(BUILD)/tests/%.o: FLAGS += -I$(BUILD)/tests
$(BUILD)/tests/bench/bench: $(BENCHOBJ) $(LIB)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)

# Made anew when the commit is another.
$(BUILD)/gpu/commit.o: $(BUILD)/gpu/commit-$(COMMIT)
$(BUILD)/gpu/commit.o: FLAGS += -DMR_COMMIT='"$(COMMIT)"'
$(BUILD)/gpu/commit-$(COMMIT):
	@mkdir -p $(@D)
	@rm -f $(BUILD)/gpu/commit-*
	@touch $@
# What the tests run: never with CUDA, so that they say the same on every machine.
$(BUILD)/tests/moeref-gpu: $(GPUOBJ) $(BUILD)/gpu/main.o $(BUILD)/gpu/cpu_only.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS) -ldl
# With a device that is none, for all that is not CUDA itself.
$(BUILD)/tests/moeref-gpu-fake: $(GPUOBJ) $(BUILD)/gpu/main.o $(BUILD)/tests/gpu/fake/fake_device.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS) -ldl
$(BUILD)/tests/gpu/%.so: tests/gpu/%.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -MF $(@:.so=.d) -MT $@ -shared -o $@ $< -lm
# The router kernels as shared libraries. -Bsymbolic: what one defines is its own, whatever the
# program that loads it has under the same name (CUDA's runtime among it).
$(BUILD)/gpu/kernels/plugin.o: $(BUILD)/gpu/commit-$(COMMIT)
$(BUILD)/gpu/kernels/plugin.o: FLAGS += -DMR_COMMIT='"$(COMMIT)"'
$(BUILD)/gpu/kernels/plugin.simt.o: gpu/kernels/plugin.c $(BUILD)/gpu/commit-$(COMMIT)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -DMR_SIMT -DMR_COMMIT='"$(COMMIT)"' -c $< -o $@
$(BUILD)/libmoeref-kernels-cpu.so: $(SIMTOBJ) $(BUILD)/gpu/kernels/plugin.simt.o $(LIB)
	$(CC) $(FLAGS) -shared -Wl,-Bsymbolic -o $@ $^ $(LIBS)
# Made anew, too, when nvcc has come or gone.
GPU_MODE := $(BUILD)/gpu/mode-$(if $(NVCC),cuda,cpu)
$(GPU_MODE):
	@mkdir -p $(@D)
	@rm -f $(BUILD)/gpu/mode-*
	@touch $@
ifneq ($(NVCC),)
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(realpath $(NVCC))))
CUDAOBJ := $(patsubst %,$(BUILD)/%.o,$(wildcard gpu/*.cu gpu/kernels/*.cu)) \
	$(patsubst %.c,$(BUILD)/%.o,$(wildcard gpu/*_cuda.c))
$(BUILD)/gpu/%_cuda.o: FLAGS += -isystem $(CUDA_HOME)/include -DGPU_BUILT_FOR='"$(lastword $(subst =, ,$(GPU_ARCH)))"'
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) $(HARNESS_NVCCFLAGS) -MMD -MF $(@:.o=.d) -c $< -o $@
# cuBLAS is linked if a kernel calls it. GPU_STATIC=1 needs none of Debian's libraries to run.
GPU_LIBS = -L$(CUDA_HOME)/lib64 -lcudart_static -Wl,--as-needed -Wl,-rpath,$(CUDA_HOME)/lib64 \
	-lcublasLt -lcublas -lstdc++ -ldl -lrt -lpthread
ifeq ($(GPU_STATIC),1)
GPU_LINK = $(filter-out -fopenmp,$(FLAGS)) -static-libgcc -Wl,-Bstatic -lopenblas -lgfortran -lquadmath \
	-lmpfr -lgmp -ljansson -lgomp -Wl,-Bdynamic -lm
else
GPU_LINK = $(FLAGS) $(LIBS)
endif
$(BUILD)/moeref-gpu: $(GPUOBJ) $(BUILD)/gpu/main.o $(CUDAOBJ) $(LIB) $(GPU_MODE)
	$(CC) -o $@ $(filter-out $(GPU_MODE),$^) $(GPU_LINK) $(GPU_LIBS)
GPU_SO := $(BUILD)/libmoeref-kernels.so
$(GPU_SO): $(patsubst %,$(BUILD)/%.o,$(wildcard gpu/kernels/*.cu)) $(BUILD)/gpu/kernels/plugin.o
	$(CC) -shared -Wl,-Bsymbolic,--exclude-libs,ALL -o $@ $^ -L$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ \
		-ldl -lrt -lpthread -lm
else
$(BUILD)/moeref-gpu: $(BUILD)/tests/moeref-gpu $(GPU_MODE)
	cp $< $@
endif

## gpu-so: gpu/kernels as shared libraries for tools/engines: for the CPU, and with nvcc for the GPU
gpu-so: $(GPU_SO) $(BUILD)/libmoeref-kernels-cpu.so
	@if [ -z "$(NVCC)" ]; then echo "nvcc: MISSING -> NOT compiled: $(BUILD)/libmoeref-kernels.so"; fi

## gpu-check: on a machine with a GPU: builds, runs, judges, times and sanitizes every kernel; under 10 minutes
gpu-check: all gpu
	sh gpu/kernels/check.sh $(BUILD)/gpu-check $(BUILD)/moeref-gpu

## shared: build/libmoeref.so, the library for other languages (ref/api/api.h)
shared: probe $(BUILD)/libmoeref.so

## demo: routes the four shipped cases and prints their tables; replays an H200's router GEMMs
demo: all
	@for c in toy glm4moe-tiny qwen3moe-tiny glm-5.3-flash; do \
	  echo "\$$ build/moeref route cases/$$c.json"; \
	  $(BUILD)/moeref route cases/$$c.json || exit 1; echo; done
	@echo "\$$ build/moeref replay cases/cublas-h200.json"
	@$(BUILD)/moeref replay cases/cublas-h200.json

## test: builds and runs all tests; closes with Check's line
test: all $(BUILD)/tests/run $(BUILD)/tests/moeref-gpu $(BUILD)/tests/moeref-gpu-fake \
		$(GPU_PLUGINS)
	$(BUILD)/tests/run

## check-long: the tests that take minutes, after the short ones
check-long: test
	MOEREF_LONG=1 $(BUILD)/tests/run

## check-bugs: public bug reports as mutants, judged by moeref verify; and their repaired twins
check-bugs: all $(BUILD)/tests/bugs/check-bugs
	$(BUILD)/tests/bugs/check-bugs $(BUILD)/moeref cases/bugs

## bench: times certified routing against a bare dgemm; writes build/bench.json
bench: all $(BUILD)/tests/bench/bench
	$(BUILD)/tests/bench/bench $(BUILD)/bench.json

PYTHON ?= python3
## check-oracles: independent oracles in Python (numpy, mpmath); check-python; engines and captures if torch is there
check-oracles: all check-python
	$(PYTHON) tests/oracle/check.py $(BUILD)/moeref $(CAPTURES)
	@if $(PYTHON) -c 'import torch' 2>/dev/null; then \
	  echo $(PYTHON) tests/engines/check_run.py $(BUILD)/moeref; \
	  $(PYTHON) tests/engines/check_run.py $(BUILD)/moeref; \
	else echo "torch: MISSING -> tests/engines/check_run.py is SKIPPED: the runner of engines is NOT checked"; fi
	$(PYTHON) tests/capture/check_capture.py $(BUILD)/moeref
	$(PYTHON) tests/engines/check_table.py $(BUILD)/moeref
	$(PYTHON) tests/engines/check_pack.py
	$(PYTHON) tests/engines/check_spans.py

## check-python: tests of tools/python with PYTHON (python3), which needs numpy; torch's if it is there
check-python: all shared
	@if $(PYTHON) -c 'import numpy' 2>/dev/null; then \
	  PYTHONDONTWRITEBYTECODE=1 $(PYTHON) tests/python/run.py $(BUILD); else \
	  echo "numpy: MISSING for $(PYTHON) -> tools/python is NOT TESTED"; fi

SAN = $(MAKE) BUILD=build/$@ OPT=-O1
## asan: the tests under AddressSanitizer and LeakSanitizer
asan:
	$(SAN) MOREFLAGS="-fsanitize=address -fno-omit-frame-pointer" test
## ubsan: the tests under UndefinedBehaviorSanitizer
ubsan:
	$(SAN) MOREFLAGS="-fsanitize=undefined -fno-sanitize-recover=all" test
## tsan: the tests under ThreadSanitizer (clang, libomp, archer: gcc's libgomp gives false races)
tsan:
	@if ! command -v clang >/dev/null || ! ls /usr/lib/llvm-*/lib/libarcher.so >/dev/null 2>&1; then \
	  echo "clang or libomp: missing -> tsan cannot run: apt-get install clang libomp-dev"; exit 1; fi
	TSAN_OPTIONS="ignore_noninstrumented_modules=1 $(TSAN_OPTIONS)" \
	OMP_TOOL_LIBRARIES=$$(ls /usr/lib/llvm-*/lib/libarcher.so | head -1) \
	$(SAN) CC=clang MOREFLAGS="-fsanitize=thread" test

FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
FUZZ_SECONDS ?= 600
## fuzz: every libFuzzer target for FUZZ_SECONDS (600) each; needs clang
fuzz:
	@command -v clang >/dev/null || { echo "clang: missing -> no fuzzing: apt-get install clang libclang-rt-14-dev"; exit 1; }
	@mkdir -p build/fuzz
	@set -e; for f in $(FUZZERS); do \
	  clang -std=c11 -D_GNU_SOURCE -O1 -g -fopenmp -fsanitize=fuzzer,address,undefined \
	    -fno-sanitize-recover=all -DMR_ISA=base tests/fuzz/$$f.c $(REF) $(LIBS) -o build/fuzz/$$f; \
	  mkdir -p build/fuzz/corpus-$$f; \
	  build/fuzz/$$f -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 \
	    -artifact_prefix=build/fuzz/ build/fuzz/corpus-$$f $(wildcard tests/fuzz/seeds); done

# Other GPU programs are the folders: gpu/NAME/*.cu make build/gpu/NAME, linked with libmoeref and the
# objects of GPU_OBJ_NAME. A folder of another kind has a build.mk, which adds to GPU_BIN and gives
# the rules.
NVCCFLAGS ?= $(GPU_ARCH) -O2 -std=c++17 -Xcompiler -Wall,-Wextra,-fopenmp
GPU_OBJ_evidence := $(patsubst %,$(BUILD)/tests/support/mma_%.o,classes words)
GPU_MK := $(wildcard gpu/*/build.mk)
GPU_NAMES := $(filter-out kernels $(GPU_MK:gpu/%/build.mk=%),\
	$(patsubst gpu/%/,%,$(sort $(dir $(wildcard gpu/*/*.cu)))))
GPU_BIN := $(GPU_NAMES:%=$(BUILD)/gpu/%)
-include $(GPU_MK)
$(BUILD)/gpu-obj/%.o: gpu/%.cu $(wildcard gpu/*/*.h tests/support/mma_classes.h ref/*/*.h)
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -c $< -o $@
define GPU_PROGRAM
$(BUILD)/gpu/$(1): $(patsubst gpu/%.cu,$(BUILD)/gpu-obj/%.o,$(wildcard gpu/$(1)/*.cu)) $(GPU_OBJ_$(1)) $(LIB)
	@mkdir -p $$(@D)
	$(NVCC) $(NVCCFLAGS) $$^ -Xlinker --as-needed $(LIBS) -o $$@
endef
$(foreach name,$(GPU_NAMES),$(eval $(call GPU_PROGRAM,$(name))))
.PHONY: gpu-programs
gpu-programs: $(GPU_BIN)

## gpu: build/moeref-gpu, with CUDA where nvcc is found, and the programs of gpu/NAME; says what is missing
gpu: $(BUILD)/moeref-gpu
	@if [ -z "$(NVCC)" ]; then \
	  echo "nvcc: MISSING -> NO CUDA code in $<, which runs plugins on the CPU and no kernel on a GPU"; \
	  echo "nvcc: MISSING -> NOT compiled: $(GPU_BIN)"; $< list; exit 0; fi; \
	$(MAKE) --no-print-directory gpu-programs && echo "gpu: compiled $< $(GPU_BIN)" && $< list

## install: moeref, libmoeref.a and .so, moeref.pc and headers (moeref/moeref.h) under PREFIX (/usr/local)
install: all shared
	install -D -m755 $(BUILD)/moeref $(DESTDIR)$(PREFIX)/bin/moeref
	install -D -m644 $(LIB) $(DESTDIR)$(PREFIX)/lib/libmoeref.a
	install -m644 $(BUILD)/libmoeref.so $(DESTDIR)$(PREFIX)/lib/libmoeref.so.$(VERSION)
	ln -sf libmoeref.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(PREFIX)/lib/libmoeref.so
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	@printf '%s\n' 'Name: moeref' 'Description: certified Mixture-of-Experts routing' \
	  'Version: $(VERSION)' 'Cflags: -I$(PREFIX)/include' 'Libs: -L$(PREFIX)/lib -lmoeref' \
	  'Libs.private: -fopenmp $(LIBS)' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/moeref.pc
	for h in $(patsubst ref/%,%,$(wildcard ref/*.h ref/*/*.h)); do \
	  install -D -m644 ref/$$h $(DESTDIR)$(PREFIX)/include/moeref/$$h || exit 1; done

## showconfig: compiler, flags and libraries found
showconfig:
	@$(MAKE) --no-print-directory probe V=1
	@echo "version:  $(VERSION)"; echo "compiler: $$($(CC) --version | head -1)"
	@echo "flags:    $(FLAGS)"; echo "isas:     $(ISAS)"
	@for p in openblas mpfr gmp jansson check; do \
	  v=$$(pkg-config --modversion $$p 2>/dev/null) && echo "$$p: found $$v" || \
	  echo "$$p: missing (or without pkg-config)"; done
	@command -v nvcc >/dev/null && echo "nvcc: found $$(nvcc --version | sed -n 's/.*release //p')" || \
	  echo "nvcc: missing -> CUDA code is not compiled"
	@command -v clang >/dev/null && echo "clang: found" || echo "clang: missing -> no tsan, no fuzz"
	@echo "OPENBLAS_CORETYPE: $${OPENBLAS_CORETYPE:-not set}"

## format: clang-format over all C sources
format:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu')

## clean: removes build/
clean:
	rm -rf build

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
