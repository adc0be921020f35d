# compile_commands.json for editors: how each file is compiled, .cu files as for the stand-in.
on_simt := $(gpu_sources) $(gpu_test_sources) $(call in,cpp,simt $(wildcard simt/*) $(simt_test_rooms) bench/counters)
compiled = $(on_simt) $(kernels) $(wildcard learn/*/*.cu learn/*/*.cpp bench/comm/*.cpp bench/data/*.cpp bench/dist/*.cpp) \
  $(patsubst $(BUILD)/obj/%.o,%.cpp,$(filter-out $(BUILD)/obj/avx% $(BUILD)/obj/simt/% $(BUILD)/obj/cuda/%, \
    $(filter-out $(messages:%=%.o),$(objects)) $(program) $(test_objects) $(bench_objects)))
flags_for = $(if $(filter $(on_simt),$(1)),$(simt_flags),$(if $(filter $(kernels),$(1)),$(kernel_flags) $(avx2) \
  -DBAREVISION_ISA=avx2,$(if $(filter %.cu,$(1)),$(simt_flags) -include simt/try.h,$(avx2))))
compile_command = {"directory": "$(CURDIR)", "file": "$(1)", "command": "$(subst ",\",$(CXX) $(filter-out -M%,$(CPPFLAGS)) \
  $(choices) $(CXXFLAGS) $(flags_for) $(if $(filter %.cu,$(1)),-x c++) -c $(1))"}
define newline


endef
compile_commands.json: $(BUILD)/compiled
	$(file >$@,[$(subst }$(newline)$(space){,}$(comma)$(newline){,$(foreach file,$(sort $(compiled)),$(call compile_command,$(file))$(newline)))])
$(BUILD)/compiled: always
	$(call remember,$(subst ',,$(choices)) $(CXXFLAGS) $(simt_flags) $(sort $(compiled)))
