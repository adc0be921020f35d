# Builds barevision with GNU Make alone. `make help` lists the targets.
VERSION := 0.1.0
BUILD ?= build
ifeq ($(origin CXX),default)
CXX := g++
endif
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
comma := ,
empty :=
space := $(empty) $(empty)

# ---- What is there: one run of the preprocessor asks for every header ---------------------------
asked := stb/stb_image.h nlohmann/json.hpp CLI/CLI.hpp gtest/gtest.h oneapi/dnnl/dnnl.hpp jpeglib.h
define question
#if __has_include(<$(1)>)
$(1)
#endif

endef
export QUESTIONS := $(foreach h,$(asked),$(call question,$(h)))
found := $(shell printf '%s' "$$QUESTIONS" | $(CXX) -x c++ -std=c++20 -E -P - 2>/dev/null)
have = $(if $(filter $(1),$(found)),1)

CUDA ?= auto
ifneq ($(CUDA),0)
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)),$(wildcard /usr/local/cuda))
NVCC := $(wildcard $(CUDA_HOME)/bin/nvcc)
endif
ONEDNN := $(call have,oneapi/dnnl/dnnl.hpp)
TURBOJPEG ?= $(or $(call have,jpeglib.h),0)

packages := $(if $(shell command -v $(CXX)),,g++) \
  $(if $(call have,stb/stb_image.h),,libstb-dev) \
  $(if $(call have,nlohmann/json.hpp),,nlohmann-json3-dev) \
  $(if $(call have,CLI/CLI.hpp),,libcli11-dev) \
  $(if $(ONEDNN),,libdnnl-dev)
optional_packages := $(if $(call have,jpeglib.h),,libjpeg-dev) $(if $(call have,gtest/gtest.h),,libgtest-dev)
packages := $(strip $(packages))
optional_packages := $(strip $(optional_packages))

# ---- Flags --------------------------------------------------------------------------------------
# x86-64-v3 (AVX2, FMA, F16C) everywhere; the CPU kernels a second time for AVX-512, chosen at run time.
WARN := -Wall -Wextra -Wshadow -Wno-missing-field-initializers
OPT ?= -O2
CPPFLAGS := -I. -MMD -MP -DBAREVISION_VERSION='"$(VERSION)"' \
  -DBAREVISION_TURBOJPEG=$(TURBOJPEG)
CXXFLAGS := -std=c++20 -g1 $(OPT) $(WARN) -fopenmp -pthread $(SANITIZE)
avx2 := -march=x86-64-v3
avx512 := -march=x86-64-v4 -mprefer-vector-width=512
kernel_flags := -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast
LDLIBS := -ldnnl $(if $(filter 1,$(TURBOJPEG)),-ljpeg) -lgomp -pthread

# ---- Sources ------------------------------------------------------------------------------------
plain := $(filter-out engine/main.cpp engine/cpu_check.cpp,$(wildcard engine/*.cpp models/*.cpp data/*.cpp kernels/cpu/*.cpp))
kernels := $(wildcard kernels/*.cpp)
objects := $(plain:%.cpp=$(BUILD)/obj/%.o) $(kernels:%.cpp=$(BUILD)/obj/avx2/%.o) \
  $(kernels:%.cpp=$(BUILD)/obj/avx512/%.o)
program := $(BUILD)/obj/engine/main.o $(BUILD)/obj/engine/cpu_check.o
test_objects := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard tests/*.cpp))
bench_objects := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard bench/*.cpp))

.PHONY: all deps test asan bench peers format help clean found check-packages
all: found $(BUILD)/launcher

found: check-packages
	@echo "compiler  $(CXX) $(shell $(CXX) -dumpfullversion)"
	@echo "cuda      $(if $(NVCC),$(CUDA_HOME) (device cuda: not in this version),not found: device cuda is off)"
	@echo "onednn    $(if $(ONEDNN),found: device cpu,not found)"
	@echo "jpeg      $(if $(filter 1,$(TURBOJPEG)),libjpeg-turbo,stb_image only$(comma) slower)"
	@echo "tests     $(if $(call have,gtest/gtest.h),GoogleTest,off: GoogleTest not found)"

check-packages:
ifneq ($(packages),)
	@echo "missing packages; run:  make deps    (or: apt-get install $(packages) $(optional_packages))" >&2; exit 2
endif

$(BUILD)/launcher: $(program) $(objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(LDLIBS)

compile = @mkdir -p $(@D) && echo "compile   $<$(1)" && $(CXX) $(CPPFLAGS) $(CXXFLAGS)
$(BUILD)/obj/avx2/%.o: %.cpp | check-packages
	$(call compile, (avx2)) $(kernel_flags) $(avx2) -DBAREVISION_ISA=avx2 -c -o $@ $<
$(BUILD)/obj/avx512/%.o: %.cpp | check-packages
	$(call compile, (avx512)) $(kernel_flags) $(avx512) -DBAREVISION_ISA=avx512 -c -o $@ $<
# Runs before anything else, so on any CPU.
$(BUILD)/obj/engine/cpu_check.o: engine/cpu_check.cpp | check-packages
	$(call compile,) -march=x86-64 -c -o $@ $<
$(BUILD)/obj/%.o: %.cpp | check-packages
	$(call compile,) $(avx2) -c -o $@ $<

# ---- Dependencies -------------------------------------------------------------------------------
deps:
ifeq ($(packages)$(optional_packages),)
	@echo "nothing to install"
else ifeq ($(shell command -v apt-get),)
	@echo "no apt-get here; install these yourself: $(packages) $(optional_packages)"; exit 2
else
	$(if $(filter 0,$(shell id -u)),,sudo )apt-get update -qq
	$(if $(filter 0,$(shell id -u)),,sudo )env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(packages) $(optional_packages)
endif

# ---- Tests --------------------------------------------------------------------------------------
# FILTER=layernorm runs the tests whose name holds the word.
$(BUILD)/tests: $(test_objects) $(objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ -lgtest $(LDLIBS)
test: all $(BUILD)/tests
	@tests/run $(BUILD) $(FILTER)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

help:
	@sed -n 's/^#: //p' Makefile
clean:
	rm -rf $(BUILD)
format:
	clang-format -i $$(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
