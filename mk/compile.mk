# Compilation by the host compiler.
.PHONY: always
# "compile   [12/217] FILE": a dry run counts the files when the first one is compiled.
ifeq ($(COUNTING),)
number = $(eval started += x)[$(words $(started))/$(eval total := $(or $(total),$(shell \
  COUNTING=1 $(MAKE) -n $(MAKEOVERRIDES) $(MAKECMDGOALS) 2>/dev/null | grep -c ^counted)))$(total)]
announce = @mkdir -p $(@D) && echo "compile   $(number) $<$(1)" &&
else
announce = counted
endif
compile = $(announce) $(cached) $(CXX) $(CPPFLAGS) $(choices) $(CXXFLAGS)

# ccache, where it is installed, keeps objects across clones, so no path of a clone may reach them.
# Precompiled headers need the two kinds of sloppiness: macros of their own and __TIME__ are
# taken as unused. CCACHE=: without it.
CCACHE ?= $(shell command -v ccache 2>/dev/null)
cached := $(if $(findstring ccache,$(CXX) $(realpath $(shell command -v $(CXX)))),,$(CCACHE))
ifneq ($(cached),)
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
export CCACHE_STATSLOG ?= $(abspath $(BUILD))/ccache.log
no_folder := -ffile-prefix-map=$(CURDIR)=.
CPPFLAGS += $(no_folder)
endif

# Precompiled standard headers, included before each file; parsing them takes half of most files'
# compile time. There is one for each set of flags, since GCC compiles a file with the optimisation
# of its precompiled header. GCC also forgets which warnings a header disables, so three false ones
# (of <string>) are disabled here. $(choices) is not used, so that changing a choice recompiles only
# the files that need it. With the header loaded, GCC's heap is large enough to trigger garbage
# collection, which takes a tenth of the compile time; the parameter delays it.
PCH ?= $(if $(filter clang,$(found)),0,1)
ifeq ($(PCH),1)
pch = $(BUILD)/pch/$(1)/precompiled.h.gch
read_pch = -Winvalid-pch -include $(BUILD)/pch/$(1)/precompiled.h \
  -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread \
  --param ggc-min-heapsize=400000
endif
$(foreach set,plain cold simt tests cold_tests simt_tests sanitized,$(BUILD)/pch/$(set)/precompiled.h.gch): \
$(BUILD)/pch/%/precompiled.h.gch: kernels/precompiled.h $(BUILD)/flags | check-packages
	$(call announce, ($*)) echo '$(hash)include "$(if $(findstring tests,$*),tests,kernels)/precompiled.h"' >$(@:.gch=) && \
	  $(cached) $(CXX) $(CPPFLAGS) $(CXXFLAGS) $(flags_of_$*) -x c++-header -o $@ $(@:.gch=)
flags_of_plain = $(avx2)
flags_of_cold = $(cold)
# Without debug information, except in make debug and under the sanitizers.
flags_of_cold_tests = $(cold) $(if $(filter -O2,$(OPT)),-g0)
flags_of_tests = $(avx2)
flags_of_simt = $(SIMT_OPT) $(avx2)
flags_of_simt_tests = $(SIMT_OPT) $(avx2)
flags_of_sanitized = $(fuzz_opt) $(avx2) $(sanitizers)

$(BUILD)/obj/avx2/%.o: %.cpp | check-packages
	$(call compile, (avx2)) $(kernel_flags) $(avx2) -DBAREVISION_ISA=avx2 -c -o $@ $<
$(BUILD)/obj/avx512/%.o: %.cpp | check-packages
	$(call compile, (avx512)) $(kernel_flags) $(avx512) -DBAREVISION_ISA=avx512 -c -o $@ $<
# The stand-in computes matrix products with vectors, hence -O2 and AVX2 under the sanitizers too.
SIMT_OPT ?= -O2
simt_flags := $(SIMT_OPT) $(avx2) -Wno-unknown-pragmas -Wno-psabi -Isimt/include -DBAREVISION_GPU=simt_gpu -DBAREVISION_CUDNN=1
$(BUILD)/obj/simt/%.o: %.cu $(call pch,simt) | check-packages
	@mk/check_rows $<
	$(call compile, (simt)) $(call read_pch,simt) $(simt_flags) -x c++ -c -o $@ $<
$(BUILD)/obj/simt/%.o: %.cpp $(call pch,simt) | check-packages
	$(call compile, (simt)) $(call read_pch,simt) $(simt_flags) -c -o $@ $<
$(BUILD)/obj/simt/tests/%.o: tests/%.cpp $(call pch,simt_tests) | check-packages
	$(call compile, (simt)) $(call read_pch,simt_tests) $(simt_flags) -c -o $@ $<
# Instrumented kernels call functions in hooks.cpp of simt/counters or simt/races at each memory access.
counters_flags := -DSIMT_COUNTERS
access_calls := -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -fno-tree-sra -Wno-tsan
# Such kernels also call simt/counters at each basic block, which counts how often warps execute a line; -g
# distinguishes statements from code that g++ has moved. binutils 2.40 confuses DWARF 5's files.
block_calls := -fsanitize-coverage=trace-pc -g -gdwarf-4
$(BUILD)/obj/counters/%.o: %.cu | check-packages
	$(call compile, (counters)) $(simt_flags) $(counters_flags) $(access_calls) $(block_calls) -x c++ -c -o $@ $<
$(BUILD)/obj/counters/%.o: %.cpp $(call pch,simt) | check-packages
	$(call compile, (counters)) $(call read_pch,simt) $(simt_flags) $(counters_flags) -c -o $@ $<
# The stand-in that checks the reported accesses for races (simt/races).
$(BUILD)/obj/races/%.o: %.cpp $(call pch,simt) | check-packages
	$(call compile, (races)) $(call read_pch,simt) $(simt_flags) -DSIMT_RACES -c -o $@ $<
# Each of these files records a choice of the last build; dependents are rebuilt when it changes. A
# dry run (make -n) looks at them as well, by the +.
remember = +@mkdir -p $(@D) && echo '$(1)' | cmp -s - $@ || echo '$(1)' >$@
$(BUILD)/flags: always
	$(call remember,$(CXX) $(shell $(CXX) -dumpfullversion) $(CXXFLAGS))
$(BUILD)/choices: always
	$(call remember,$(VERSION) simt $(SIMT) cuda $(NVCC) nccl $(NCCL) cudnn $(CUDNN) jpeg $(TURBOJPEG) webp $(WEBP) tiff $(TIFF) sodium $(SODIUM) tensorboard $(TENSORBOARD) records $(RECORDS))
# The commit that --version names; "unknown" in a tree without git.
commit = $(or $(shell [ -e .git ] && git describe --always --exclude='*' --dirty=+dirty 2>/dev/null),unknown)
$(BUILD)/commit: always
	$(call remember,$(commit))
$(BUILD)/obj/engine/options/version.o: $(BUILD)/commit
$(BUILD)/obj/engine/options/version.o: private read_pch = -DBAREVISION_COMMIT='"$(shell cat $(BUILD)/commit)"'
choosing := $(shell grep -rlE 'BAREVISION_(VERSION|SIMT|CUDA|NCCL|CUDNN|TURBOJPEG|WEBP|TIFF|SODIUM|TENSORBOARD|RECORDS)' --include='*.cpp' .)
$(foreach room,obj obj/simt obj/cuda asan,$(patsubst %.cpp,$(BUILD)/$(room)/%.o,$(choosing:./%=%) \
  data/folder.cpp $(call in,cpp,data/decode tests/data tests/fuzz/pictures))): $(BUILD)/choices
always:
$(BUILD)/gen/%.pb.cc: %.proto
	@mkdir -p $(BUILD)/gen && echo "messages  $<" && $(PROTOC) --cpp_out=$(BUILD)/gen $<
.SECONDARY: $(messages:%=%.cc)
$(messages:%=%.o): %.o: %.cc $(call pch,plain) | check-packages
	$(call compile,) $(call read_pch,plain) $(avx2) -c -o $@ $<
$(foreach room,obj asan,$(patsubst %,$(BUILD)/$(room)/%.o,app/tensorboard/event_file tests/app/tensorboard/tensorboard_test data/records/example)): \
  | $(messages:%=%.cc)
$(BUILD)/obj/app/html_report/page_template.o: app/html_report/page.html
$(foreach room,obj asan,$(BUILD)/$(room)/engine/options/foreign_names.o): engine/options/foreign_names.json
$(foreach room,obj asan,$(BUILD)/$(room)/engine/options/foreign_models.o): engine/options/foreign_models.json
# The CPU check runs first, so it must run on any CPU.
$(BUILD)/obj/engine/setup/cpu_check.o: engine/setup/cpu_check.cpp | check-packages
	$(call compile,) -march=x86-64 -c -o $@ $<
# Code without heavy computation, and most tests: with -O1 they compile in two thirds of the time.
cold := $(OPT:-O2=-O1) $(avx2)
cold_rooms := $(filter-out engine/files data data/augment data/decode data/image,$(call rooms_of,models data engine app))
cold_objects := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(filter $(plain),$(call in,cpp,$(cold_rooms))))
cold_tests := $(filter-out $(foreach room,golden kernels numerics,$(BUILD)/obj/tests/$(room)/%.o),$(test_objects))
$(cold_objects): $(BUILD)/obj/%.o: %.cpp $(call pch,cold) | check-packages
	$(call compile,) $(call read_pch,cold) $(cold) -c -o $@ $<
$(cold_tests): $(BUILD)/obj/%.o: %.cpp $(call pch,cold_tests) | check-packages
	$(call compile,) $(call read_pch,cold_tests) $(flags_of_cold_tests) -c -o $@ $<
$(BUILD)/obj/tests/%.o: tests/%.cpp $(call pch,tests) | check-packages
	$(call compile,) $(call read_pch,tests) $(avx2) -c -o $@ $<
$(BUILD)/obj/%.o: %.cpp $(call pch,plain) | check-packages
	$(call compile,) $(call read_pch,plain) $(avx2) -c -o $@ $<
