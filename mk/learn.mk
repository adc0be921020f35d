# Targets for learners: make try, make learn, make view.

# ---- Try ----------------------------------------------------------------------------------------
# make try, see simt/README.md: builds and runs a .cu file with a main() on the stand-in. This needs
# only g++ and Perl.
.PHONY: try
# run: with sanitizers, so that errors name their line; debug: for gdb. g++ can't instrument a file for
# both the thread sanitizer and AddressSanitizer. So the file has the thread sanitizer's calls, which
# simt/races handles: it finds races and checks each address with AddressSanitizer's library.
try_wrapped := memcpy memmove memset
try_run_object := -O1 -g1 -fsanitize=address -DSIMT_RACES
try_run_file := -O1 -g -fsanitize=thread,undefined -fno-sanitize-recover=all $(access_calls) \
  --param tsan-distinguish-volatile=1 $(try_wrapped:%=-fno-builtin-%)
try_run_program := -fsanitize=address,undefined
# g++ inserts no calls of the thread sanitizer around these functions of libc: simt/races has its own.
try_run_rename := objcopy $(foreach f,$(try_wrapped),--redefine-sym $(f)=simt_$(f))
try_debug_rename := test -f
try_debug_object := -O0 -g
try_debug_file := -O0 -g
try_compile = $(cached) $(CXX) $(no_folder) -I. -Isimt/include -DBAREVISION_GPU=simt_gpu -std=c++20 $(avx2) -Wall -Wno-sign-compare -Wno-unknown-pragmas -pthread
try_objects = $(patsubst %,$(BUILD)/try/$(1)/%.o,device hopper host try check $(if $(filter run,$(1)),races))
# Compiles simt/device as one file and simt/host as another, in a third of the time.
define try_rules
$(BUILD)/try/$(1)/%.cpp: simt/%
	@mkdir -p $$(@D) && printf '$(hash)include "%s"\n' $$</*.cpp >$$@
$(BUILD)/try/$(1)/%.o: $(BUILD)/try/$(1)/%.cpp
	@echo "compile   simt/$$* (try)" && $$(try_compile) -MMD -MP $$(try_$(1)_object) -Wno-subobject-linkage -c -o $$@ $$<
$(BUILD)/try/$(1)/try.o: simt/try.cpp
$(BUILD)/try/$(1)/check.o: kernels/cuda/check.cpp
$(BUILD)/try/$(1)/try.o $(BUILD)/try/$(1)/check.o:
	@mkdir -p $$(@D) && echo "compile   $$< (try)" && $$(try_compile) -MMD -MP $$(try_$(1)_object) -c -o $$@ $$<
endef
$(foreach kind,run debug,$(eval $(call try_rules,$(kind))))
# A program checked for races spends most of its time in the handlers of simt/races.
$(BUILD)/try/run/races.o: private try_run_object := -O2 -g1 -DSIMT_RACES -DSIMT_POISON -DSIMT_UNWRITTEN
.SECONDARY: $(foreach kind,run debug,$(patsubst %,$(BUILD)/try/$(kind)/%.cpp,device hopper host races))
# $(1): run or debug, $(2): the .cu file, $(3): what to define, $(4): the program
try_link = mkdir -p $(dir $(4)) && simt/cuda_to_cpp "$(2)" >"$(4).cpp" && \
  simt/find_host_calls "$(2)" && { \
  { LC_ALL=C $(try_compile) $(try_$(1)_file) -include simt/try.h -iquote "$$(dirname "$(2)")" $(3:%=-D%) \
    -c -o "$(4).o" "$(4).cpp" && $(try_$(1)_rename) "$(4).o" && $(CXX) $(try_$(1)_program) -pthread -o "$(4)" "$(4).o" $(call try_objects,$(1)); } \
    2>"$(4).errors" || { simt/name_missing "$(2)" "$(4).errors"; exit 2; }; } && cat "$(4).errors" >&2

# A DEFINE that nothing reads is a typo: the program would run without its planted bug.
refuse_unread = folder=$$(dirname "$(FILE)"); grep -qsw -e $(1) "$(FILE)" "$$folder"/*.h "$$folder"/*.cuh || { \
  there=$$(sed -nE 's/^ *\$(hash) *if(n?def) +([A-Za-z_0-9]+).*/ \2/p' "$(FILE)" | sort -u | tr -d '\n'); \
  echo "try: nothing in $(FILE) reads $(1); it has $${there:- no $(hash)ifdef}" | tr -s ' ' >&2; exit 2; }
try_kind := $(if $(DEBUG),debug,run)
try_program = $(BUILD)/try/programs/$(try_kind)/$(notdir $(basename $(FILE)))$(DEFINE:%=.%)
try: $(call try_objects,$(try_kind))
ifeq ($(FILE),)
	@echo "try: which file? for example: make try FILE=learn/examples/vector_add.cu" >&2; exit 2
else
	@[ -f "$(FILE)" ] || { echo "try: $(FILE): no such file" >&2; exit 2; }
	@$(foreach word,$(DEFINE),$(call refuse_unread,$(firstword $(subst =, ,$(word))));)
	@$(call try_link,$(try_kind),$(FILE),$(DEFINE),$(try_program))
	@SIMT_TIMEOUT=$${SIMT_TIMEOUT:-10} $(if $(DEBUG),gdb -q -x simt/gdb.py --args) "$(try_program)" $(ARGS)
endif

# The examples, each also with its planted bugs: tests/simt/simt_try_test.cpp runs them.
examples := $(foreach file,$(wildcard learn/examples/*.cu),$(notdir $(file:.cu=)) \
  $(foreach bug,$(shell sed -nE 's/^#if(n?def) ([A-Z_]+)$$/\2/p' $(file)),$(notdir $(file:.cu=)).$(bug)))
examples := $(sort $(examples:%=$(BUILD)/try/examples/%))
$(BUILD)/try/examples/%: learn/examples simt/cuda_to_cpp simt/try.h $(call try_objects,run)
	@echo "compile   learn/examples/$(basename $*).cu $(patsubst .%,(%),$(suffix $*))"
	@$(call try_link,run,learn/examples/$(basename $*).cu,$(patsubst .%,%,$(suffix $*)),$@)
# The programs of tests/simt/simt_races_test.cpp.
races := $(patsubst tests/simt/races/%.cu,$(BUILD)/try/races/%,$(wildcard tests/simt/races/*.cu))
$(BUILD)/try/races/%: tests/simt/races/%.cu simt/cuda_to_cpp simt/try.h $(call try_objects,run)
	@echo "compile   $<"
	@$(call try_link,run,$<,,$@)
# The gdb cases of simt_try_test.cpp need the debug objects as well.
ifeq ($(SIMT),1)
try_for_tests := $(call try_objects,run) $(if $(shell command -v gdb),$(call try_objects,debug))
endif
$(foreach program,$(examples),$(eval $(program): learn/examples/$(basename $(notdir $(program))).cu))

# ---- Learn --------------------------------------------------------------------------------------
# The ladders of learn/: each rung is built as a program for the counting stand-in and, if there is a
# GPU, by nvcc. The last rungs include the shipped kernels; --gc-sections drops the launch functions
# that they don't call, and so the references to code that is not linked.
.PHONY: learn
learn_topics := $(sort $(patsubst learn/%/,%,$(dir $(wildcard learn/*/v[0-9]*.c*))))
learn_chosen := $(or $(TOPIC),$(learn_topics))
rungs_of = $(patsubst learn/%.cu,$(2)/%,$(call in,cu,$(1:%=learn/%)))
learn_rungs := $(call rungs_of,$(learn_topics),$(BUILD)/learn)
host_rungs_of = $(patsubst learn/%.cpp,$(BUILD)/learn/%,$(wildcard $(1:%=learn/%/v*.cpp)))
learn_flags := $(no_folder) -I. $(simt_flags) $(counters_flags) -std=c++20 -g1 $(WARN) -Wno-shadow -pthread -ffunction-sections -MMD -MP
$(BUILD)/learn/try.o: simt/try.cpp
$(BUILD)/learn/counts.o: learn/counts.cpp
$(BUILD)/learn/try.o $(BUILD)/learn/counts.o:
	@mkdir -p $(@D) && echo "compile   $< (learn)" && $(cached) $(CXX) $(learn_flags) -c -o $@ $<
learn_objects := $(BUILD)/learn/try.o $(BUILD)/learn/counts.o \
  $(call counting,$(filter simt/%,$(simt_sources)) kernels/cuda/check.cpp)
$(learn_rungs): $(BUILD)/learn/%: learn/%.cu simt/cuda_to_cpp simt/try.h $(learn_objects)
	@mkdir -p $(@D) && echo "compile   $< (learn)" && simt/cuda_to_cpp $< >$@.cpp && \
	  $(cached) $(CXX) $(learn_flags) $(access_calls) $(block_calls) -include simt/try.h -MF $@.d -MT $@ -c -o $@.o $@.cpp && \
	  $(CXX) -Wl,--gc-sections -pthread -o $@ $@.o $(learn_objects)
# Rungs without a kernel. The part of comm/ that they use is compiled as one file; it needs no package.
learn_comm := comm/two_level_communicator comm/net/ring_communicator comm/net/mesh \
  comm/single_communicator comm/local/rank_barrier kernels/cpu/stream base/wait
host_rung := $(CXX) $(no_folder) -I. -std=c++20 -O1 -g1 $(avx2) $(WARN) -Wno-unknown-pragmas -pthread -ffunction-sections -MMD -MP
$(BUILD)/learn/comm.o: $(learn_comm:%=%.cpp) mk/learn.mk
	@mkdir -p $(@D) && echo "compile   comm/ (learn)" && printf '$(hash)include "%s"\n' $(learn_comm:%=%.cpp) >$(@:.o=.cpp) && \
	  $(cached) $(host_rung) -c -o $@ $(@:.o=.cpp)
$(call host_rungs_of,$(learn_topics)): $(BUILD)/learn/%: learn/%.cpp $(BUILD)/learn/comm.o
	@mkdir -p $(@D) && echo "compile   $< (learn)" && $(host_rung) -Wl,--gc-sections -MF $@.d -MT $@ -o $@ $< $(BUILD)/learn/comm.o
# Links all CUDA objects except that of the source that the rung includes, whose launch functions
# refer to the others.
$(BUILD)/learn/gpu/%: learn/%.cu $(cuda_objects)
	@mkdir -p $(@D) && echo "compile   $< (cuda)" && $(NVCC) -ccbin $(CXX) -std=c++20 -O3 -I. -DBAREVISION_GPU=cuda_gpu \
	  -Xcompiler=-march=x86-64-v3 -Wno-deprecated-gpu-targets $(cuda_arch) -c -o $@.o $< && \
	  $(CXX) $(CXXFLAGS) -o $@ $@.o \
	  $(filter-out $(patsubst %.cu,$(BUILD)/obj/cuda/%.o,$(shell sed -nE 's/^#include "(kernels.*\.cu)"/\1/p' $<)),$(cuda_objects)) \
	  $(objects) $(gpu_libraries) $(LDLIBS)
# ---- Exercises ----------------------------------------------------------------------------------
# Built as by make try. A solution file holds the lines for an exercise's gap; awk inserts them.
exercises := $(sort $(wildcard learn/exercises/*.cu))
exercise := $(filter learn/exercises/$(EXERCISE)_% learn/exercises/0$(EXERCISE)_%,$(exercises))
exercise_programs := $(exercises:learn/exercises/%.cu=$(BUILD)/learn/exercises/%)
solved_programs := $(exercises:learn/exercises/%.cu=$(BUILD)/learn/solved/%)
exercise_needs := learn/rung.h learn/exercises/exercise.h simt/cuda_to_cpp simt/try.h $(call try_objects,run)
$(exercise_programs): $(BUILD)/learn/exercises/%: learn/exercises/%.cu $(exercise_needs)
	@echo "compile   $<" && $(call try_link,run,$<,,$@)
$(BUILD)/learn/solved/%.cu: learn/exercises/%.cu learn/exercises/solutions/%.txt
	@mkdir -p $(@D) && awk '/--- end of your code/ { inside = 0 } !inside; \
	  /--- your code/ { inside = 1; while ((getline line <"$(lastword $^)") > 0) print line }' $< >$@
$(solved_programs): %: %.cu $(exercise_needs)
	@echo "compile   $<" && $(call try_link,run,$<,,$@)
.SECONDARY: $(solved_programs:%=%.cu)

ifneq ($(EXERCISE),)
learn: $(if $(HINT),,$(exercise:learn/exercises/%.cu=$(BUILD)/learn/$(if $(SOLUTION),solved,exercises)/%))
	@$(if $(exercise),$(if $(HINT),cat $(exercise:learn/exercises/%.cu=learn/exercises/hints/%.txt),learn/exercise $< $(exercise)),echo "learn: EXERCISE=$(EXERCISE): there are $(foreach file,$(exercises),$(subst \
	  _, ,$(file:learn/exercises/%.cu=%))$(comma))" | sed 's/,$$//' >&2; exit 2)
else
learn: $(call rungs_of,$(learn_chosen),$(BUILD)/learn) $(call host_rungs_of,$(learn_chosen)) $(if $(NVCC),$(if $(gpu),$(call rungs_of,$(learn_chosen),$(BUILD)/learn/gpu)))
	@learn/ladder $(BUILD) $(TOPIC)
	$(if $(call rungs_of,$(learn_chosen)),@learn/view/view --build $(BUILD) --rungs "$(learn_chosen)")
endif
ifeq ($(SIMT)$(SANITIZE),1)
learn_for_tests := $(learn_rungs) $(call host_rungs_of,$(learn_topics)) $(exercise_programs) $(solved_programs)
endif

# ---- View ---------------------------------------------------------------------------------------
# Writes a kernel's page, see learn/view/README.md. FILE= names a program; KERNEL= a kernel of this project, which build/counters runs.
.PHONY: view
view_compile = $(CXX) $(filter-out -MMD -MP,$(learn_flags)) $(access_calls) $(block_calls)
# A name that no source has is refused before anything is compiled; build/counters refuses one that no model runs.
kernel_file = $(shell grep -rlwE '$(KERNEL)' --include=*.cu --include=*.cuh kernels)
unknown_kernel = $(if $(KERNEL),$(if $(kernel_file),,yes))
view: $(if $(unknown_kernel),,$(if $(KERNEL),$(BUILD)/counters,$(learn_objects)))
	@$(if $(unknown_kernel),echo "view: KERNEL=$(KERNEL): no file of kernels/ has such a kernel; for example KERNEL=layernorm_forward" >&2; exit 2)
	@learn/view/view --build $(BUILD) --kernel "$(KERNEL)" --case "$(CASE)" --file "$(FILE)" --define "$(DEFINE)" --args "$(ARGS)" \
	  --compile '$(view_compile)' --link '$(CXX) -Wl,--gc-sections -pthread' --objects "$(learn_objects)"
