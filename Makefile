# Builds barevision with GNU Make alone; mk/ has the rules by concern.
#: make              build/launcher, which ./launcher starts
#: make deps         install what is missing (Debian, Ubuntu)
#: make install      barevision into PREFIX=/usr/local; DESTDIR=DIR: below DIR
#: make uninstall    remove what make install has installed there
#: make clean        remove build/
#:
#: Train
#: make peers        PyTorch and timm into build/peers, for bench/versus
#: make dist         a package for every GPU, build/dist.tar.gz; CUBLAS=0: .xz
#: make gpu-check    tests, sanitizers, bench on a GPU; ARGS="--only small,bench"
#:
#: Kernels
#: make test FILTER=layernorm    an operation's tests, on every device
#: make bench        time of each kernel; ARGS="--model resnet50 --filter conv"
#: make counters     sectors, bank conflicts, launches, counted without a GPU;
#:                   FILTER=layernorm_forward shows one, UPDATE=1 writes the table
#: make racecheck    the kernels' small tests, each access watched for races;
#:                   FILTER=layernorm: an operation's
#: make resources    registers, shared memory, occupancy; UPDATE=1 as above
#: make debug        build/debug/tests, unoptimised, for gdb: docs/kernels.md
#:
#: Learn
#: make try          run a .cu file without GPU or CUDA: FILE=my.cu; DEFINE=NAME;
#:                   DEBUG=1: in gdb
#: make learn        kernels from the obvious to the shipped, rung by rung, and
#:                   what each earned; TOPIC=matmul: one of learn/
#:                   EXERCISE=1: that exercise, HINT=1: its hint; the path is in
#:                   learn/README.md
#: make view         a kernel's page, line by line: FILE=my.cu, FILE=a.cu,b.cu,
#:                   or KERNEL=layernorm_forward CASE=rows4
#:
#: Tests and gates
#: make test         build and run the tests; FILTER=Suite.Name: only that one;
#:                   BASE=origin/main: those that the changes since then can break
#: make slowest      the slowest twenty tests of the last make test
#: make test-all     the same tests with many more shapes
#: make asan         make test under the address and undefined-behavior sanitizers
#: make tsan         the host code under the thread sanitizer
#: make chaos        runs killed, stopped and resumed; SECONDS=1200 SEED=1;
#:                   TRIALS=200 ONLY=StoppedAtAnyMoment
#: make deps-dev     the tools of make lint and make tidy, too
#: make lint         words, includes, format, scripts: checks without compiling
#: make tidy         clang-tidy since TIDY_BASE=origin/main; ALL=1: all sources
#: make format       clang-format over all sources
#: make docs         docs/options.md, as the program prints its options
#: make ci           the gates of a commit: lint, build, test, some of the rest
#: make ci-rest      those of the rest that the changes since BASE=origin/main can
#:                   break; REST=clang: that one
#: make ci-all       every gate in full
#:
#: Settings
#: CUDA=0            build without CUDA; CUDA_HOME=DIR: with the toolkit in DIR
#: SIMT=0            tests without the stand-in for CUDA
#: CCACHE=           compile without ccache, which is used where it is installed
#: PCH=0             no precompiled headers: shows an #include that is missing
#: TURBOJPEG=0       decode JPEG with stb_image
#: WEBP=0            leave out WebP; so TIFF=0, SODIUM=0, TENSORBOARD=0, RECORDS=0
VERSION := 0.2.0
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

include mk/packages.mk

# ---- Flags --------------------------------------------------------------------------------------
# All code is compiled for x86-64-v3 (AVX2, FMA, F16C); the CPU kernels also for AVX-512, chosen at run time.
WARN := -Wall -Wextra -Wshadow -Wno-missing-field-initializers
OPT ?= -O2
CPPFLAGS := -I. -MMD -MP
choices := -DBAREVISION_VERSION='"$(VERSION)"' \
  -DBAREVISION_TURBOJPEG=$(TURBOJPEG) -DBAREVISION_WEBP=$(WEBP) -DBAREVISION_TIFF=$(TIFF) -DBAREVISION_SODIUM=$(SODIUM) -DBAREVISION_TENSORBOARD=$(TENSORBOARD) \
  -DBAREVISION_RECORDS=$(RECORDS) \
  $(if $(filter 1,$(SIMT)),-DBAREVISION_SIMT) $(if $(NVCC),-DBAREVISION_CUDA) \
  $(if $(NCCL),-DBAREVISION_NCCL)
CXXFLAGS := -std=c++20 -g1 $(OPT) $(WARN) -fopenmp -pthread $(SANITIZE)
avx2 := -march=x86-64-v3
avx512 := -march=x86-64-v4 -mprefer-vector-width=512
kernel_flags := -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast
image_libraries := $(if $(filter 1,$(TURBOJPEG)),-ljpeg) $(if $(filter 1,$(WEBP)),-lwebpdemux -lwebp) $(if $(filter 1,$(TIFF)),-ltiff)
# Newer versions of protobuf need further libraries, which pkg-config lists.
protobuf := $(if $(filter 1,$(TENSORBOARD) $(RECORDS)),$(or $(shell pkg-config --libs protobuf-lite 2>/dev/null),-lprotobuf-lite))
LDLIBS := -ldnnl $(image_libraries) $(if $(filter 1,$(SODIUM)),-lsodium) $(protobuf) -lgomp -pthread

include mk/sources.mk

.PHONY: all found check-packages docs clean help
all: found $(BUILD)/launcher $(if $(filter build,$(BUILD)),compile_commands.json)

have_library = $(1) $(if $(wildcard $(CUDA_HOME)/include/$(2) /usr/include/$(2) /usr/include/*/$(2)),yes,no)
found: check-packages
	@echo "compiler  $(CXX) $(shell $(CXX) -dumpfullversion)$(if $(cached),$(comma) with ccache); $(if $(call have,gtest/gtest.h),tests by GoogleTest,no tests: GoogleTest not found)"
ifneq ($(NVCC),)
	@echo "cuda      $(CUDA_HOME), $(if $(gpu),a GPU of compute capability $(gpu),no GPU here); $(call have_library,cuBLAS,cublasLt.h) $(call have_library,cuDNN,cudnn.h) $(call have_library,NCCL,nccl.h)"
else
	@echo "cuda      $(if $(filter 0,$(CUDA)),left out (CUDA=0),not found)"
endif
	@echo "devices   cpu$(comma) by oneDNN and AVX2 or AVX-512; kernels of cuda: $(if $(NVCC),yes,no); of simt: $(if $(filter 1,$(SIMT)),yes,no)"
	@echo "images    PNG$(comma) BMP$(comma) GIF by stb_image; JPEG by $(if $(filter 1,$(TURBOJPEG)),libjpeg-turbo,stb_image$(comma) slower than libjpeg-turbo (libjpeg-dev)); $(if \
	  $(filter 1,$(WEBP)),WebP by libwebp,no WebP (libwebp-dev)); $(if $(filter 1,$(TIFF)),TIFF by libtiff,no TIFF (libtiff-dev))"
	@echo "logs      metrics.jsonl; $(if $(filter 1,$(TENSORBOARD)),TensorBoard's by protobuf,no TensorBoard (libprotobuf-dev protobuf-compiler))"
	@echo "version   $(VERSION), into $(BUILD)/"

check-packages:
ifneq ($(packages),)
	@echo "missing packages; run:  make deps    (or: apt-get install $(packages) $(optional_packages))" >&2; exit 2
endif

$(BUILD)/launcher: $(program) $(objects) $(gpu_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)

include mk/compile.mk
include mk/cuda.mk
include mk/editors.mk
include mk/learn.mk
include mk/bench.mk
include mk/tests.mk
include mk/dist.mk
include mk/install.mk
include mk/style.mk
include mk/ci.mk

docs: $(BUILD)/launcher
	@mkdir -p docs && $(BUILD)/launcher --help-markdown >docs/options.md.new && mv docs/options.md.new docs/options.md
clean:
	rm -rf $(BUILD)
help:
	@sed -nE 's/^#: ?//p' Makefile

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
