# Builds barevision with GNU Make alone.
#: make             build/launcher, which ./launcher starts
#: make deps        install what is missing (Debian, Ubuntu)
#: make deps-dev    the tools of make lint and make tidy, too
#: make test        build and run all tests; FILTER=layernorm: those with the word in their name
#: make test-all    the same with many more shapes
#: make asan        the same under the address and undefined-behaviour sanitizers
#: make tsan        the host code under the thread sanitizer
#: make chaos       runs killed, stopped, denied their files, and resumed; SECONDS=1200 SEED=1;
#:                  TRIALS=200 ONLY=StoppedAtAnyMoment
#: make debug       build/debug/tests, unoptimised, for gdb: see docs/kernels.md
#: make try         compile and run a .cu file without GPU or CUDA: FILE=my.cu; DEFINE=NAME; DEBUG=1: in gdb
#: make bench       time of each kernel at ViT-Tiny's shapes; ARGS="--model resnet50 --filter conv"
#: make counters    sectors, bank conflicts, launches of each CUDA kernel, counted without a GPU; UPDATE=1 writes
#:                  tests/counters/; FILTER=layernorm_forward shows one
#: make resources   registers, shared memory, occupancy of each CUDA kernel; UPDATE=1 writes tests/kernels/resources.txt
#: make gpu-check   on a machine with a GPU: tests, sanitizers, bench; one table in bench/results/;
#:                  ARGS="--only small,bench --seconds 540"; bench/gpu_check --device simt rehearses it without a GPU
#: make dist        what gpu-check needs, for every GPU, as build/dist.tar.gz; CUBLAS=0 without cuBLAS
#: make peers       PyTorch and timm into build/peers, for bench/versus and golden files
#: make docs        docs/options.md, as the program prints its options
#: make format      clang-format over all sources
#: make lint        words, includes, format, scripts: checks without compiling
#: make tidy        clang-tidy over the sources changed since TIDY_BASE=origin/main; ALL=1: over all
#: make clean       remove build/
#: CUDA=0           build without CUDA;  CUDA_HOME=DIR: with the toolkit in DIR
#: SIMT=0           tests without the stand-in for CUDA
#: PCH=0            no precompiled headers: shows an #include that is missing
#: TURBOJPEG=0      decode JPEG with stb_image;  WEBP=0, TIFF=0, TENSORBOARD=0, RECORDS=0: leave these out
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

# ---- Installed packages: one run of the preprocessor looks for every header -----------------------
headers := stb/stb_image.h nlohmann/json.hpp gtest/gtest.h oneapi/dnnl/dnnl.hpp jpeglib.h \
  webp/demux.h tiffio.h sodium.h google/protobuf/message_lite.h
hash := \#
found := $(shell printf '%s\n' $(foreach h,$(headers),'$(hash)if __has_include(<$(h)>)' '$(h)' '$(hash)endif') \
  '$(hash)ifdef __clang__' clang '$(hash)endif' \
  | $(CXX) -x c++ -std=c++20 -E -P - 2>/dev/null)
have = $(if $(filter $(1),$(found)),1)

CUDA ?= auto
ifneq ($(CUDA),0)
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)),$(wildcard /usr/local/cuda))
NVCC := $(wildcard $(CUDA_HOME)/bin/nvcc)
NCCL := $(if $(NVCC),$(firstword $(wildcard $(CUDA_HOME)/include/nccl.h /usr/include/nccl.h /usr/local/include/nccl.h)))
CUDNN := $(if $(NVCC),$(firstword $(wildcard $(CUDA_HOME)/include/cudnn.h /usr/include/cudnn.h /usr/include/*/cudnn.h)))
endif
ONEDNN := $(call have,oneapi/dnnl/dnnl.hpp)
SIMT ?= 1
TURBOJPEG ?= $(or $(call have,jpeglib.h),0)
WEBP ?= $(or $(call have,webp/demux.h),0)
TIFF ?= $(or $(call have,tiffio.h),0)
SODIUM ?= $(or $(call have,sodium.h),0)
PROTOC := $(shell command -v protoc 2>/dev/null)
PROTOBUF := $(if $(PROTOC),$(or $(call have,google/protobuf/message_lite.h),0),0)
TENSORBOARD ?= $(PROTOBUF)
RECORDS ?= $(PROTOBUF)

packages := $(if $(shell command -v $(CXX)),,g++) \
  $(if $(call have,stb/stb_image.h),,libstb-dev) \
  $(if $(call have,nlohmann/json.hpp),,nlohmann-json3-dev) \
  $(if $(ONEDNN),,libdnnl-dev)
optional_packages := $(if $(call have,jpeglib.h),,libjpeg-dev) $(if $(call have,webp/demux.h),,libwebp-dev) \
  $(if $(call have,tiffio.h),,libtiff-dev) $(if $(call have,sodium.h),,libsodium-dev) \
  $(if $(call have,google/protobuf/message_lite.h),,libprotobuf-dev) $(if $(PROTOC),,protobuf-compiler) $(if $(call have,gtest/gtest.h),,libgtest-dev) \
  $(if $(shell command -v curl),,curl ca-certificates)
packages := $(strip $(packages))
optional_packages := $(strip $(optional_packages))

# ---- Flags --------------------------------------------------------------------------------------
# x86-64-v3 (AVX2, FMA, F16C) everywhere; the CPU kernels a second time for AVX-512, chosen at run time.
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
# Newer versions want libraries of their own, which pkg-config knows.
protobuf := $(if $(filter 1,$(TENSORBOARD) $(RECORDS)),$(or $(shell pkg-config --libs protobuf-lite 2>/dev/null),-lprotobuf-lite))
LDLIBS := -ldnnl $(image_libraries) $(if $(filter 1,$(SODIUM)),-lsodium) $(protobuf) -lgomp -pthread

# ---- Sources ------------------------------------------------------------------------------------
# A new file needs no edit here: what is built, and how, follows from its room.
in = $(sort $(foreach room,$(2),$(wildcard $(room)/*.$(1))))
rooms_of = $(patsubst %/,%,$(foreach room,$(1),$(wildcard $(room)/ $(room)/*/ $(room)/*/*/)))
# NAME.cpp of these is built twice, for AVX2 and AVX-512; NAME.cu twice, for simt and CUDA.
kernel_rooms := $(addprefix kernels/,activation attention augment conv layers training)
kernels := $(call in,cpp,$(kernel_rooms)) kernels/cpu/cpu_kernels.cpp
# The GPU's kernels and host code, once for the stand-in and once for CUDA.
gpu_sources := $(call in,cu,$(kernel_rooms) kernels/cuda kernels/devices) $(call in,cpp,kernels/cuda comm/nccl)
plain := $(filter-out app/main.cpp engine/setup/cpu_check.cpp $(kernels) $(gpu_sources), \
  $(call in,cpp,$(call rooms_of,base kernels comm models data engine app)))
objects := $(plain:%.cpp=$(BUILD)/obj/%.o) $(kernels:%.cpp=$(BUILD)/obj/avx2/%.o) \
  $(kernels:%.cpp=$(BUILD)/obj/avx512/%.o)
# TensorBoard's messages and those in records, as protoc writes them.
messages := $(if $(filter 1,$(TENSORBOARD)),$(BUILD)/gen/app/tensorboard/event.pb) \
  $(if $(filter 1,$(RECORDS)),$(BUILD)/gen/data/records/example.pb)
messages := $(strip $(messages))
objects += $(messages:%=%.o)
choices += $(if $(messages),-isystem $(BUILD)/gen)
program := $(BUILD)/obj/app/main.o $(BUILD)/obj/engine/setup/cpu_check.o
ifeq ($(SIMT),1)
simt_sources := $(gpu_sources) $(call in,cpp,$(wildcard simt/*))
simt_objects := $(patsubst %,$(BUILD)/obj/simt/%.o,$(basename $(filter-out simt/counters/%,$(simt_sources))))
# The same, counting (make counters).
counting = $(patsubst %,$(BUILD)/obj/counters/%.o,$(basename $(1)))
counting_objects := $(call counting,$(simt_sources) $(call in,cpp,bench/counters))
endif
ifneq ($(NVCC),)
cuda_objects := $(patsubst %,$(BUILD)/obj/cuda/%.o,$(basename \
  $(filter-out $(if $(NCCL),,%/nccl_communicator.cpp),$(gpu_sources))))
cuda_libraries = -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(cuda_rpath) $(if $(NCCL),-lnccl) $(if $(CUDNN),-lcudnn) -lcublasLt -lcudart_static -ldl -lrt
endif
cuda_rpath = $(CUDA_HOME)/lib64
gpu_objects := $(simt_objects) $(cuda_objects)
# tests/gpu is built for both, tests/simt for the stand-in alone; tests/fuzz and tests/counters are
# programs of their own.
test_rooms := $(filter-out tests/gpu tests/simt tests/fuzz% tests/counters,$(call rooms_of,tests))
test_objects := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(filter-out %/file_faults.cpp,$(call in,cpp,$(test_rooms)))) \
  $(BUILD)/obj/bench/recorded_model.o
gpu_test_sources := $(call in,cpp,tests/gpu) $(call in,cu,tests/gpu)
gpu_test_objects := $(foreach build,$(if $(simt_objects),simt) $(if $(cuda_objects),cuda), \
  $(patsubst %,$(BUILD)/obj/$(build)/%.o,$(basename $(gpu_test_sources))))
ifeq ($(SIMT),1)
gpu_test_objects += $(patsubst %,$(BUILD)/obj/simt/%.o,$(basename $(call in,cpp,tests/simt)))
endif
gpu_libraries = $(cuda_libraries)
# The objects that `make dist` compiles again, for every GPU and without cuDNN.
nvcc_objects := $(patsubst %.cu,$(BUILD)/obj/cuda/%.o,$(filter %.cu,$(gpu_sources) $(gpu_test_sources)))
recompiled := $(nvcc_objects) $(BUILD)/obj/cuda/kernels/cuda/conv_cudnn.o
for_every_gpu = $(patsubst $(BUILD)/obj/cuda/%,$(BUILD)/dist/obj/%,$(filter $(recompiled),$(1))) $(filter-out $(recompiled),$(1))
bench_objects := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(filter-out bench/gpu_%,$(call in,cpp,bench)))
# The bench times the GPU alone, not its stand-in.
gpu_bench_objects := $(gpu_objects) $(if $(NVCC),$(patsubst %.cpp,$(BUILD)/obj/cuda/%.o,$(wildcard bench/gpu_*.cpp)))

# For this machine's GPU, else for sm_80.
gpu := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
gpu_arch := $(or $(subst .,,$(gpu)),80)
gencode = -gencode arch=compute_$(1),code=sm_$(1)
cuda_arch ?= $(call gencode,$(gpu_arch:90=90a)) $(if $(gpu),,-gencode arch=compute_80,code=compute_80)
# For all GPUs: machine code for three generations, and PTX for later ones.
dist_archs := 75 80 90a
dist_arch := $(foreach arch,$(dist_archs),$(call gencode,$(arch))) -gencode arch=compute_80,code=compute_80

.PHONY: all deps deps-dev lint tidy test test-all asan tsan chaos debug try bench counters dist resources gpu-check peers docs format help clean found check-packages \
  check-cuda always
all: found $(BUILD)/launcher $(if $(filter build,$(BUILD)),compile_commands.json)

have_library = $(1) $(if $(wildcard $(CUDA_HOME)/include/$(2) /usr/include/$(2) /usr/include/*/$(2)),yes,no)
found: check-packages
	@echo "compiler  $(CXX) $(shell $(CXX) -dumpfullversion); $(if $(call have,gtest/gtest.h),tests by GoogleTest,no tests: GoogleTest not found)"
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

# "compile   [12/217] FILE": of how many, a dry run counts when the first file is compiled.
ifeq ($(COUNTING),)
number = $(eval started += x)[$(words $(started))/$(eval total := $(or $(total),$(shell \
  COUNTING=1 $(MAKE) -n $(MAKEOVERRIDES) $(MAKECMDGOALS) 2>/dev/null | grep -c ^counted)))$(total)]
announce = @mkdir -p $(@D) && echo "compile   $(number) $<$(1)" &&
else
announce = counted
endif
compile = $(announce) $(CXX) $(CPPFLAGS) $(choices) $(CXXFLAGS)

# The standard headers as GCC has parsed them, read before each file; to parse them is half the time of
# most. One for each set of flags: GCC compiles a file with the optimisation of what it reads here, and
# forgets which false warnings a header switches off, hence the three (<string>'s). Without the choices,
# so that a change of one compiles only the files that ask for it.
PCH ?= $(if $(filter clang,$(found)),0,1)
ifeq ($(PCH),1)
pch = $(BUILD)/pch/$(1)/precompiled.h.gch
read_pch = -Winvalid-pch -include $(BUILD)/pch/$(1)/precompiled.h \
  -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
endif
$(foreach set,plain cold simt tests cold_tests simt_tests sanitized,$(BUILD)/pch/$(set)/precompiled.h.gch): \
$(BUILD)/pch/%/precompiled.h.gch: kernels/precompiled.h $(BUILD)/flags | check-packages
	$(call announce, ($*)) echo '$(hash)include "$(if $(findstring tests,$*),tests,kernels)/precompiled.h"' >$(@:.gch=) && \
	  $(CXX) $(CPPFLAGS) $(CXXFLAGS) $(flags_of_$*) -x c++-header -o $@ $(@:.gch=)
flags_of_plain = $(avx2)
flags_of_cold = $(cold)
flags_of_cold_tests = $(cold)
flags_of_tests = $(avx2)
flags_of_simt = $(SIMT_OPT) $(avx2)
flags_of_simt_tests = $(SIMT_OPT) $(avx2)
flags_of_sanitized = $(fuzz_opt) $(avx2) $(sanitizers)

$(BUILD)/obj/avx2/%.o: %.cpp | check-packages
	$(call compile, (avx2)) $(kernel_flags) $(avx2) -DBAREVISION_ISA=avx2 -c -o $@ $<
$(BUILD)/obj/avx512/%.o: %.cpp | check-packages
	$(call compile, (avx512)) $(kernel_flags) $(avx512) -DBAREVISION_ISA=avx512 -c -o $@ $<
# The stand-in computes warps with vectors, hence -O2 and AVX2 under the sanitizers too.
SIMT_OPT ?= -O2
simt_flags := $(SIMT_OPT) $(avx2) -Wno-unknown-pragmas -Isimt/include -DBAREVISION_GPU=simt_gpu -DBAREVISION_CUDNN=1
$(BUILD)/obj/simt/%.o: %.cu $(call pch,simt) | check-packages
	$(call compile, (simt)) $(call read_pch,simt) $(simt_flags) -x c++ -c -o $@ $<
$(BUILD)/obj/simt/%.o: %.cpp $(call pch,simt) | check-packages
	$(call compile, (simt)) $(call read_pch,simt) $(simt_flags) -c -o $@ $<
$(BUILD)/obj/simt/tests/%.o: tests/%.cpp $(call pch,simt_tests) | check-packages
	$(call compile, (simt)) $(call read_pch,simt_tests) $(simt_flags) -c -o $@ $<
# Kernels call simt/counters/hooks.cpp at each access to memory.
counters_flags := -DSIMT_COUNTERS
access_calls := -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -fno-tree-sra -Wno-tsan
$(BUILD)/obj/counters/%.o: %.cu | check-packages
	$(call compile, (counters)) $(simt_flags) $(counters_flags) $(access_calls) -x c++ -c -o $@ $<
$(BUILD)/obj/counters/%.o: %.cpp $(call pch,simt) | check-packages
	$(call compile, (counters)) $(call read_pch,simt) $(simt_flags) $(counters_flags) -c -o $@ $<
# ptxas' report on each kernel goes into a file next to the object (make resources).
nvcc_compile = $(call announce, (cuda$(1))) $(NVCC) -ccbin $(CXX) -std=c++20 -O3 $(2) -I. \
  -DBAREVISION_GPU=cuda_gpu -Xcompiler=-Wall,-march=x86-64-v3 -Xptxas=-v,-warn-spills -Wno-deprecated-gpu-targets \
  -MMD -MP -MF $(@:.o=.d) -c -o $@ $< >$(@:.o=.ptxas) 2>&1; \
  code=$$?; grep -vE '^ptxas info|bytes stack frame' $(@:.o=.ptxas) >&2; exit $$code
$(BUILD)/obj/cuda/%.o: %.cu $(BUILD)/cuda_arch | check-packages
	$(call nvcc_compile,,$(cuda_arch))
$(BUILD)/dist/obj/%.o: %.cu | check-packages
	$(call nvcc_compile, for every GPU,$(dist_arch))
cuda_host_flags = $(avx2) -isystem $(CUDA_HOME)/include -DBAREVISION_GPU=cuda_gpu -DBAREVISION_CUDNN=$(if $(CUDNN),1,0)
$(BUILD)/obj/cuda/%.o: %.cpp $(call pch,plain) | check-packages
	$(call compile, (cuda)) $(call read_pch,plain) $(cuda_host_flags) -c -o $@ $<
$(BUILD)/dist/obj/%.o: %.cpp $(call pch,plain) | check-packages
	$(call compile, (cuda)) $(call read_pch,plain) $(cuda_host_flags) -c -o $@ $<
# The choice of the last build; dependents are rebuilt when it changes. A dry run would take it as
# changed.
checked_each_time := $(if $(COUNTING),,always)
remember = @mkdir -p $(@D) && echo '$(1)' | cmp -s - $@ || echo '$(1)' >$@
$(BUILD)/cuda_arch: $(checked_each_time)
	$(call remember,$(cuda_arch))
$(BUILD)/flags: $(checked_each_time)
	$(call remember,$(CXX) $(shell $(CXX) -dumpfullversion) $(CXXFLAGS))
$(BUILD)/choices: $(checked_each_time)
	$(call remember,$(VERSION) simt $(SIMT) cuda $(NVCC) nccl $(NCCL) cudnn $(CUDNN) jpeg $(TURBOJPEG) webp $(WEBP) tiff $(TIFF) sodium $(SODIUM) tensorboard $(TENSORBOARD) records $(RECORDS))
# The commit that --version names; "unknown" in a tree without git.
commit = $(or $(shell [ -e .git ] && git describe --always --exclude='*' --dirty=+dirty 2>/dev/null),unknown)
$(BUILD)/commit: $(checked_each_time)
	$(call remember,$(commit))
$(BUILD)/obj/engine/options/version.o: $(BUILD)/commit
$(BUILD)/obj/engine/options/version.o: private read_pch = -DBAREVISION_COMMIT='"$(shell cat $(BUILD)/commit)"'
choosing := $(shell grep -rlE 'BAREVISION_(VERSION|SIMT|CUDA|NCCL|CUDNN|TURBOJPEG|WEBP|TIFF|SODIUM|TENSORBOARD|RECORDS)' --include='*.cpp' .)
$(foreach room,obj obj/simt obj/cuda asan,$(patsubst %.cpp,$(BUILD)/$(room)/%.o,$(choosing:./%=%) \
  data/folder.cpp data/folder_scan.cpp $(call in,cpp,data/decode tests/data tests/fuzz/pictures))): $(BUILD)/choices
always:
$(BUILD)/gen/%.pb.cc: %.proto
	@mkdir -p $(BUILD)/gen && echo "messages  $<" && $(PROTOC) --cpp_out=$(BUILD)/gen $<
.SECONDARY: $(messages:%=%.cc)
$(messages:%=%.o): %.o: %.cc $(call pch,plain) | check-packages
	$(call compile,) $(call read_pch,plain) $(avx2) -c -o $@ $<
$(foreach room,obj asan,$(patsubst %,$(BUILD)/$(room)/%.o,app/tensorboard/event_file tests/app/tensorboard/tensorboard_test data/records/example)): \
  | $(messages:%=%.cc)
$(BUILD)/obj/app/html_report/page_template.o: app/html_report/page.html
# Runs first, so it must run on any CPU.
$(BUILD)/obj/engine/setup/cpu_check.o: engine/setup/cpu_check.cpp | check-packages
	$(call compile,) -march=x86-64 -c -o $@ $<
# Code that computes nothing itself, and tests but for those that do: -O1 takes two thirds of -O2's
# time to compile.
cold := $(OPT:-O2=-O1) $(avx2)
cold_rooms := $(filter-out engine/files data data/augment data/decode data/image,$(call rooms_of,models data engine app))
cold_objects := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(filter $(plain),$(call in,cpp,$(cold_rooms))))
cold_tests := $(filter-out $(foreach room,golden kernels numerics,$(BUILD)/obj/tests/$(room)/%.o),$(test_objects))
$(cold_objects): $(BUILD)/obj/%.o: %.cpp $(call pch,cold) | check-packages
	$(call compile,) $(call read_pch,cold) $(cold) -c -o $@ $<
$(cold_tests): $(BUILD)/obj/%.o: %.cpp $(call pch,cold_tests) | check-packages
	$(call compile,) $(call read_pch,cold_tests) $(cold) -c -o $@ $<
$(BUILD)/obj/tests/%.o: tests/%.cpp $(call pch,tests) | check-packages
	$(call compile,) $(call read_pch,tests) $(avx2) -c -o $@ $<
$(BUILD)/obj/%.o: %.cpp $(call pch,plain) | check-packages
	$(call compile,) $(call read_pch,plain) $(avx2) -c -o $@ $<

# ---- For editors: how each file is compiled, a .cu as the stand-in takes it ----------------------
on_simt := $(gpu_sources) $(gpu_test_sources) $(call in,cpp,simt $(wildcard simt/*) tests/simt bench/counters)
compiled = $(on_simt) $(kernels) $(wildcard simt/examples/*.cu bench/comm/*.cpp bench/data/*.cpp bench/dist/*.cpp) \
  $(patsubst $(BUILD)/obj/%.o,%.cpp,$(filter-out $(BUILD)/obj/avx% $(BUILD)/obj/simt/% $(BUILD)/obj/cuda/%, \
    $(filter-out $(messages:%=%.o),$(objects)) $(program) $(test_objects) $(bench_objects)))
flags_for = $(if $(filter $(on_simt),$(1)),$(simt_flags),$(if $(filter $(kernels),$(1)),$(kernel_flags) $(avx2) \
  -DBAREVISION_ISA=avx2,$(if $(filter %.cu,$(1)),$(simt_flags) -include simt/try.h,$(avx2))))
compile_command = {"directory": "$(CURDIR)", "file": "$(1)", "command": "$(subst ",\",$(CXX) $(filter-out -M%,$(CPPFLAGS)) \
  $(CXXFLAGS) $(flags_for) $(if $(filter %.cu,$(1)),-x c++) -c $(1))"}
define newline


endef
compile_commands.json: $(BUILD)/compiled
	$(file >$@,[$(subst }$(newline)$(space){,}$(comma)$(newline){,$(foreach file,$(sort $(compiled)),$(call compile_command,$(file))$(newline)))])
$(BUILD)/compiled: always
	$(call remember,$(CXXFLAGS) $(simt_flags) $(sort $(compiled)))

# ---- Dependencies -------------------------------------------------------------------------------
deps:
ifeq ($(packages)$(optional_packages),)
	@echo "nothing to install"
else ifeq ($(shell command -v apt-get),)
	@echo "no apt-get here; install these yourself: $(packages) $(optional_packages)"; exit 2
else
	$(call apt_install,$(packages) $(optional_packages))
endif
define apt_install
$(if $(filter 0,$(shell id -u)),,sudo )apt-get update -qq
	$(if $(filter 0,$(shell id -u)),,sudo )env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1)
endef

# ruff is in no Debian; it comes from PyPI, pinned, into build/dev. Without it make lint skips it.
dev_packages = $(strip $(foreach tool,clang-format shellcheck chromium groff zsh fish,$(if $(shell command -v $(tool)),,$(tool))) \
  $(if $(clang_tidy),,$(or $(shell apt-cache show clang-tidy-19 >/dev/null 2>&1 && echo clang-tidy-19),clang-tidy)) \
  $(if $(shell python3 -c 'import ensurepip, venv' 2>&1),python3-venv))
ruff := ruff==0.17.6
deps-dev: | deps
	$(if $(dev_packages),$(if $(shell command -v apt-get),$(call apt_install,$(dev_packages)),@echo "no apt-get here; install these yourself: $(dev_packages)"))
	@mkdir -p build && { python3 -m venv build/dev && build/dev/bin/pip install --quiet --disable-pip-version-check $(ruff); } || \
	  echo "deps-dev: no $(ruff) from PyPI; make lint will skip it" >&2

# ---- Tests --------------------------------------------------------------------------------------
# The fuzz program and the readers that it feeds run under the sanitizers in every `make test`.
sanitizers := -fsanitize=address,undefined -fno-sanitize-recover=all
fuzzed := $(filter-out engine/options/command_line.cpp engine/options/help.cpp engine/options/version.cpp, \
  $(call in,cpp,base models models/graph engine/options engine/files)) $(call in,cpp,tests/fuzz data/augment data/image) \
  $(patsubst %,data/%.cpp,loader prepare) kernels/table/operations.cpp
fuzz_objects := $(fuzzed:%.cpp=$(BUILD)/asan/%.o)
pictures_fuzzed := $(call in,cpp,data/decode tests/fuzz/pictures) base/file.cpp tests/data/encode.cpp tests/data/encode_jpeg.cpp tests/fuzz/mutate.cpp tests/fuzz/watch.cpp
pictures_objects := $(pictures_fuzzed:%.cpp=$(BUILD)/asan/%.o)
records_fuzzed := $(call in,cpp,$(call rooms_of,data) base tests/fuzz/records) \
  $(patsubst %,app/datasets/%.cpp,image_list coco) $(patsubst %,tests/fuzz/%.cpp,mutate watch)
records_objects := $(records_fuzzed:%.cpp=$(BUILD)/asan/%.o) $(filter %/example.pb.o,$(messages:%=%.o))

$(BUILD)/asan/%.o: %.cpp $(call pch,sanitized) | check-packages
	$(call compile, (sanitized)) $(call read_pch,sanitized) $(fuzz_opt) $(avx2) $(sanitizers) -c -o $@ $<
fuzz_opt = -O0
$(BUILD)/asan/data/decode/%.o: private fuzz_opt = -O1
$(BUILD)/asan/data/decode/%.o: private read_pch =
# On truncated data, stb_image before 2.28 shifts a zero by more than 31 bits: still a zero.
no_shifts := -fno-sanitize=shift-exponent
$(BUILD)/asan/data/decode/stb.o: private sanitizers += $(no_shifts)
$(BUILD)/obj/data/decode/stb.o: private CXXFLAGS += $(if $(SANITIZE),$(no_shifts))
$(BUILD)/fuzz: $(fuzz_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) $(sanitizers) -o $@ $^
$(BUILD)/fuzz_pictures: $(pictures_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) $(sanitizers) -o $@ $^ $(image_libraries)
$(BUILD)/fuzz_records: $(records_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) $(sanitizers) -o $@ $^ $(image_libraries) $(protobuf)
tests_objects := $(test_objects) $(objects) $(gpu_test_objects) $(gpu_objects)
$(BUILD)/tests: $(tests_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ -lgtest -lgtest_main $(gpu_libraries) $(LDLIBS)

# For LD_PRELOAD: file calls that fail (tests/program/chaos_test.cpp).
$(BUILD)/file_faults.so: tests/program/file_faults.cpp
	$(call compile,) -fPIC -shared -o $@ $<

# Programs that tests of some suites start; with FILTER, only if it names one of those suites.
fuzzers := $(BUILD)/fuzz $(BUILD)/fuzz_pictures $(if $(filter 1,$(RECORDS)),$(BUILD)/fuzz_records)
suites = $(shell $(BUILD)/tests --gtest_list_tests --gtest_filter='*$(FILTER)*' 2>/dev/null | grep '^[^ ]')
needed_for = $(if $(findstring $(1),$(suites)),$(2))
needed = $(if $(filter fuzz,$(FILTER)),$(fuzzers)) $(if $(filter counters,$(FILTER)),$(BUILD)/counters_tests) $(call needed_for,Chaos,$(BUILD)/file_faults.so) \
  $(call needed_for,SimtExamples,$(examples)) $(call needed_for,SimtTry,$(try_for_tests))
test: all $(BUILD)/tests $(if $(FILTER),,$(fuzzers) $(BUILD)/file_faults.so $(if $(filter 1,$(SIMT)),$(if $(SANITIZE),,$(BUILD)/counters_tests)))
	@$(if $(FILTER),$(if $(strip $(needed)),$(MAKE) $(needed)))
	@NVCC=$(NVCC) tests/run $(BUILD) $(FILTER)
test-all:
	@BAREVISION_TEST_ALL=1 $(MAKE) test FILTER="$(FILTER)"
# Everything under the address and undefined-behaviour sanitizers; without CUDA, whose code the
# stand-in runs too, and the counters, which take the compiler's calls of the thread sanitizer.
asan:
	@$(MAKE) BUILD=$(BUILD)/sanitized CUDA=0 OPT=-O1 SANITIZE="$(sanitizers)" test FILTER="$(FILTER)"

# The host's threads under the thread sanitizer, which knows neither the stand-in's fibers nor GNU
# OpenMP's barriers, hence one OpenMP thread. setarch -R: it wants memory where address randomisation
# may put something. Left out: what must end within seconds, or in little memory.
tsan_suites := Collectives* TcpCommunicator* Rendezvous* Loader* Records* Photos* FirstLook* CpuStream* Trainer* Stages* Log* Checkpoint* Resnet* Exchange* Communicator* Machines*
tsan:
	@$(MAKE) BUILD=$(BUILD)/tsan CUDA=0 SIMT=0 OPT=-O1 SANITIZE=-fsanitize=thread $(BUILD)/tsan/tests
	@TSAN_OPTIONS="suppressions=tests/tsan.txt exitcode=66" BAREVISION_MODELS=$(CURDIR)/models OMP_THREAD_LIMIT=1 \
	  setarch -R $(BUILD)/tsan/tests --gtest_brief=1 \
	  --gtest_filter='$(subst $(space),:,$(tsan_suites))-Collectives.NoticeAPeerThatDied:RecordsStart.*'

# Runs that are killed, stopped, denied their files, and resumed, for SECONDS; ends with a table.
SECONDS ?= $(if $(TRIALS),0,600)
chaos: all $(BUILD)/tests $(BUILD)/file_faults.so
	@BAREVISION_CHAOS_SECONDS=$(SECONDS) BAREVISION_CHAOS_SEED=$(SEED) BAREVISION_CHAOS_TRIALS=$(TRIALS) BAREVISION_MODELS=$(CURDIR)/models \
	  $(BUILD)/tests --gtest_filter='Chaos.$(or $(ONLY),*)'

# For gdb: variables stay where the source has them.
debug:
	@$(MAKE) BUILD=$(BUILD)/debug CUDA=0 OPT='-O1 -g' SIMT_OPT=-O0 $(BUILD)/debug/tests

# ---- Learning: simt/README.md -------------------------------------------------------------------
# A .cu file with a main() becomes a program on the stand-in, which takes g++ and perl alone.
# run: under the sanitizers, so that errors name their line; debug: for gdb.
try_run_object := -O1 -g1 -fsanitize=address
try_run_program := -O1 -g $(sanitizers)
try_debug_object := -O0 -g
try_debug_program := -O0 -g
try_compile = $(CXX) -I. -Isimt/include -std=c++20 $(avx2) -Wall -Wno-unknown-pragmas -pthread
try_objects = $(patsubst %,$(BUILD)/try/$(1)/%.o,device host try)
# All of simt/device as one file, all of host as another: a third of the time.
define try_rules
$(BUILD)/try/$(1)/%.cpp: simt/%
	@mkdir -p $$(@D) && printf '$(hash)include "%s"\n' $$</*.cpp >$$@
$(BUILD)/try/$(1)/%.o: $(BUILD)/try/$(1)/%.cpp
	@echo "compile   simt/$$* (try)" && $$(try_compile) -MMD -MP $$(try_$(1)_object) -Wno-subobject-linkage -c -o $$@ $$<
$(BUILD)/try/$(1)/try.o: simt/try.cpp
	@mkdir -p $$(@D) && echo "compile   $$< (try)" && $$(try_compile) -MMD -MP $$(try_$(1)_object) -c -o $$@ $$<
endef
$(foreach kind,run debug,$(eval $(call try_rules,$(kind))))
.SECONDARY: $(foreach kind,run debug,$(patsubst %,$(BUILD)/try/$(kind)/%.cpp,device host))
# $(1): run or debug, $(2): the .cu file, $(3): what to define, $(4): the program
try_link = mkdir -p $(dir $(4)) && simt/cuda_to_cpp "$(2)" >"$(4).cpp" && \
  $(try_compile) $(try_$(1)_program) -include simt/try.h -iquote "$$(dirname "$(2)")" $(3:%=-D%) \
    -o "$(4)" "$(4).cpp" $(call try_objects,$(1))

# A DEFINE that nothing reads is a slip; without it the program would run as if nothing were planted.
refuse_unread = folder=$$(dirname "$(FILE)"); grep -qsw -e $(1) "$(FILE)" "$$folder"/*.h "$$folder"/*.cuh || { \
  there=$$(sed -nE 's/^ *\$(hash) *if(n?def) +([A-Za-z_0-9]+).*/ \2/p' "$(FILE)" | sort -u | tr -d '\n'); \
  echo "try: nothing in $(FILE) reads $(1); it has $${there:- no $(hash)ifdef}" | tr -s ' ' >&2; exit 2; }
try_kind := $(if $(DEBUG),debug,run)
try_program = $(BUILD)/try/programs/$(try_kind)/$(notdir $(basename $(FILE)))$(DEFINE:%=.%)
try: $(call try_objects,$(try_kind))
ifeq ($(FILE),)
	@echo "try: which file? for example: make try FILE=simt/examples/vector_add.cu" >&2; exit 2
else
	@[ -f "$(FILE)" ] || { echo "try: $(FILE): no such file" >&2; exit 2; }
	@$(foreach word,$(DEFINE),$(call refuse_unread,$(firstword $(subst =, ,$(word))));)
	@$(call try_link,$(try_kind),$(FILE),$(DEFINE),$(try_program))
	@SIMT_TIMEOUT=$${SIMT_TIMEOUT:-10} $(if $(DEBUG),gdb -q -x simt/gdb.py --args) "$(try_program)" $(ARGS)
endif

# The examples, and each with its bugs planted: tests/simt/simt_try_test.cpp runs them.
examples := $(foreach file,$(wildcard simt/examples/*.cu),$(notdir $(file:.cu=)) \
  $(foreach bug,$(shell sed -nE 's/^#if(n?def) ([A-Z_]+)$$/\2/p' $(file)),$(notdir $(file:.cu=)).$(bug)))
examples := $(sort $(examples:%=$(BUILD)/try/examples/%))
$(BUILD)/try/examples/%: simt/examples simt/cuda_to_cpp simt/try.h $(call try_objects,run)
	@echo "compile   simt/examples/$(basename $*).cu $(patsubst .%,(%),$(suffix $*))"
	@$(call try_link,run,simt/examples/$(basename $*).cu,$(patsubst .%,%,$(suffix $*)),$@)
# The debugger's half of that test wants its objects ready, too.
ifeq ($(SIMT),1)
try_for_tests := $(call try_objects,run) $(if $(shell command -v gdb),$(call try_objects,debug))
test: $(if $(FILTER),,$(examples) $(try_for_tests))
endif
$(foreach program,$(examples),$(eval $(program): simt/examples/$(basename $(notdir $(program))).cu))

# ---- Bench --------------------------------------------------------------------------------------
$(BUILD)/bench: $(bench_objects) $(objects) $(gpu_bench_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)
# All-reduces between processes: bench/collectives.
$(BUILD)/collectives: $(BUILD)/obj/bench/comm/collectives.o $(objects) $(gpu_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)
# Decoding and resizing: bench/loading.
$(BUILD)/loading: $(BUILD)/obj/bench/data/loading.o $(objects) $(gpu_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)
# A folder and its records: bench/records.
$(BUILD)/records: $(BUILD)/obj/bench/data/records.o $(objects) $(gpu_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)
$(BUILD)/slow_open.so: bench/data/slow_open.cpp
	$(call compile,) -fPIC -shared -o $@ $<
bench: all $(BUILD)/bench $(BUILD)/collectives $(BUILD)/loading $(BUILD)/records $(BUILD)/slow_open.so
	@$(BUILD)/bench --model vit_tiny $(ARGS)
peers:
	@bench/make_peers

# ---- Counters -----------------------------------------------------------------------------------
# Work of each GPU kernel, compared with tests/counters/; UPDATE=1 writes that;
# FILTER=layernorm_forward prints one kernel's.
counters: $(BUILD)/counters
	@BAREVISION_MODELS=$(CURDIR)/models $(BUILD)/counters $(if $(UPDATE),--update) $(FILTER:%=--filter %) $(ARGS)
# The stand-in's counts of kernels whose counts are known: tests/run starts it.
$(BUILD)/counters_tests: $(call counting,$(filter simt/%,$(simt_sources)) kernels/cuda/check.cpp tests/counters/counters_test.cu)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ -lgtest -lgtest_main $(LDLIBS)
$(BUILD)/counters: $(counting_objects) $(BUILD)/obj/bench/recorded_model.o $(objects) $(cuda_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)

# ---- For machines with a GPU --------------------------------------------------------------------
dist := $(BUILD)/dist/barevision
ptxas_logs := $(patsubst %.cu,$(BUILD)/dist/obj/%.ptxas,$(filter %.cu,$(gpu_sources)))
$(ptxas_logs): %.ptxas: %.o
# With this compiler's C++ library in them, of which the libraries that are packed see nothing: they
# have the machine's. bench/dist/ has what it would take from a newer C library.
dist_link = @echo "link      $@" && mkdir -p $(@D) && $(CXX) $(CXXFLAGS) -s -static-libstdc++ -static-libgcc \
  -Wl,--exclude-libs,ALL,--version-script=bench/dist/symbols.map -o $@ $^ $(1) $(gpu_libraries) $(LDLIBS)
dist_objects = $(call for_every_gpu,$(1)) $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard bench/dist/*.cpp))
$(dist)/build/tests: $(call dist_objects,$(tests_objects))
	$(call dist_link,-lgtest -lgtest_main)
$(dist)/build/bench: $(call dist_objects,$(bench_objects) $(objects) $(gpu_bench_objects))
	$(call dist_link)
$(dist)/build/launcher: $(call dist_objects,$(program) $(objects) $(gpu_objects))
	$(call dist_link)
# private: the objects that they share with other builds stay as those have them.
$(dist)/build/% $(BUILD)/dist/obj/%: private CUDNN =
# Its libraries are packed with it: RPATH, which also holds for the libraries' own libraries.
$(dist)/build/%: cuda_rpath = \$$ORIGIN/../lib,--disable-new-dtags
dist: check-cuda $(dist)/build/tests $(dist)/build/bench $(dist)/build/launcher $(ptxas_logs)
	@! grep -h -A 3 -i warning $(ptxas_logs) || { echo "dist: ptxas or nvcc warns"; exit 2; }
	@NVCC=$(NVCC) tests/kernels/resources check $(ptxas_logs)
	@bench/pack $(dist) $(BUILD)/dist.tar.gz $(CUBLAS)
	@LD_LIBRARY_PATH=$(CUDA_HOME)/lib64 $(dist)/launcher vit_tiny --device cpu --image-size 32 --data synthetic --batch 2 --steps 1 --out $(BUILD)/dist/run \
	  >$(BUILD)/dist/run.log 2>&1 || { cat $(BUILD)/dist/run.log; exit 1; }
	@rm -r $(BUILD)/dist/run
# The stand-in knows how large blocks are at the models' sizes; convolutions also choose by the number
# of tiles, so their rows of the table of tests, which have the models' channels, run as well.
resources: check-cuda $(ptxas_logs) $(BUILD)/tests
	@echo "running   the models' operations on simt"
	@for arch in sm_80 sm_90; do \
	  SIMT_ARCH=$$arch BAREVISION_LAUNCHES=$(BUILD)/launches.$$arch $(BUILD)/tests >$(BUILD)/launches.log \
	    --gtest_filter='*ModelOperations*simt*:KernelTable/simt.conv_*' || { cat $(BUILD)/launches.log; exit 1; }; done
	@NVCC=$(NVCC) tests/kernels/resources $(if $(UPDATE),update,table) $(BUILD)/launches $(ptxas_logs)
	@$(if $(UPDATE),cat tests/kernels/resources.txt,NVCC=$(NVCC) tests/kernels/resources check $(ptxas_logs))
check-cuda:
ifeq ($(NVCC),)
	@echo "needs CUDA's compiler, and there is none: nvcc in PATH, or CUDA_HOME=DIR" >&2; exit 2
endif
gpu-check:
ifeq ($(gpu),)
	@echo "gpu-check: no GPU here (nvidia-smi finds none)" >&2; exit 2
else
	@$(MAKE) check-cuda all $(BUILD)/tests $(BUILD)/bench
	@bench/gpu_check $(BUILD) $(ARGS)
endif

docs: $(BUILD)/launcher
	@mkdir -p docs && $(BUILD)/launcher --help-markdown >docs/options.md.new && mv docs/options.md.new docs/options.md
format:
	clang-format -i $(shell git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
lint:
	@tests/lint
# clang-tidy before 16 can't parse all of this C++20. GCC's sanitizer headers serve as well as Clang's.
clang_tidy = $(or $(shell command -v clang-tidy-19),$(shell command -v clang-tidy-18),$(shell clang-tidy --version 2>/dev/null \
  | grep -qE 'version (1[6-9]|[2-9][0-9])' && command -v clang-tidy))
tidy_flags = $(choices) -idirafter$(shell $(CXX) -print-file-name=include) '-D__builtin_clear_padding=static_cast<void>'
TIDY_BASE ?= origin/main
tidied = $(filter $(if $(ALL),%,$(shell git diff --name-only --diff-filter=d $(TIDY_BASE) -- '*.cpp' '*.cu')),$(sort $(compiled)))
tidy: | compile_commands.json $(messages:%=%.cc)
	@$(if $(clang_tidy),,echo "tidy: clang-tidy 16 or newer is not installed: make deps-dev" >&2; exit 2;) \
	  $(if $(tidied),printf '%s\n' $(tidied) | xargs -P $(shell nproc) -n 4 $(clang_tidy) --quiet -p . $(tidy_flags:%=--extra-arg=%),echo "tidy: no source has changed since $(TIDY_BASE)")
clean:
	rm -rf $(BUILD)
help:
	@sed -n 's/^#: //p' Makefile

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
