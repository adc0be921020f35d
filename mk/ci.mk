# Gates: .ci/run runs make ci, those that fit its time; make ci-all runs every gate in full. make
# ci-rest runs the gates that the changes since BASE can break, or REST=NAME; clang and nvcc then
# check only what these changes reach.
.PHONY: ci ci-all ci-rest ci-clang ci-libraries ci-cuda0 ci-asan ci-tsan ci-nvcc ci-package
rest := clang libraries asan tsan package $(if $(NVCC),cuda0 nvcc)
ci:
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL tests/ci
ci-all:
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL tests/ci all
ci-rest: BASE ?= origin/main
ci-rest:
	@tests/reach $(BASE) --write $(reach_folder)
	@$(if $(filter-out $(rest),$(REST)),echo "ci-rest: REST is one of: $(rest)" >&2; exit 2)
	@for gate in $(or $(REST),$$(cat $(reach_folder)/gates)); do case " $(rest) " in *" $$gate "*) \
	  echo "rest      $$gate" && $(MAKE) ci-$$gate BASE=$(BASE) || exit 1 ;; esac; done

# Checks the sources for Clang's errors and warnings. Clang before 16 can't parse all of this C++20.
# Clang reads g++'s omp.h, since its own is in another package; -D__malloc__(x)= removes an attribute there that only g++ accepts.
# With BASE, what its changes reach of $(1); else all of it.
reached_of = $(if $(some),$(filter $(1),$(file <$(reach_folder)/units)),$(1))
clangxx = $(or $(shell command -v clang++-19),$(shell command -v clang++-18),$(shell clang++ --version 2>/dev/null \
  | grep -qE 'version (1[6-9]|[2-9][0-9])' && command -v clang++))
clang_flags = -fsyntax-only -std=c++20 $(WARN) -Wno-unknown-warning-option -Wno-unknown-pragmas -Wno-shadow \
  -Wno-undefined-var-template -Wno-deprecated-declarations -Werror -pthread -I. \
  $(choices) $(avx2) -DBAREVISION_ISA=avx2 '-D__malloc__(x)=' -idirafter $(dir $(shell $(CXX) -print-file-name=include/omp.h))
ci-clang: $(messages:%=%.cc)
	@$(if $(clangxx),,echo "ci-clang: clang 16 or newer is not installed: make deps-dev" >&2; exit 2)
	@printf '%s\n' $(call reached_of,$(plain) $(kernels)) | xargs -P $(shell nproc) -n 4 $(clangxx) $(clang_flags)

# A build with other choices starts from a copy of this build's objects, so only sources that use a
# choice are recompiled. $(1): the choices
other_choices = @rm -rf $(BUILD)/$@ && mkdir -p $(BUILD)/$@ && tar -C $(BUILD) --exclude=obj/tests --exclude=obj/counters \
  -c obj pch gen flags choices $(if $(NVCC),cuda_arch) | tar -C $(BUILD)/$@ -x && \
  $(MAKE) BUILD=$(BUILD)/$@ $(1) all && BAREVISION_MODELS=models $(BUILD)/$@/launcher vit_tiny --data synthetic --device cpu \
  --image-size 32 --patch-size 8 --batch 8 --steps 1 --out $(BUILD)/$@/run >$(BUILD)/$@/log 2>&1 || \
  { cat $(BUILD)/$@/log; exit 1; }; rm -r $(BUILD)/$@
no_libraries := TURBOJPEG=0 WEBP=0 TIFF=0 SODIUM=0 TENSORBOARD=0 RECORDS=0
ci-libraries: $(BUILD)/launcher
	$(call other_choices,$(no_libraries))
ci-cuda0: $(BUILD)/launcher
	$(call other_choices,CUDA=0)

# Tests a part of the code under a sanitizer: the objects $(2), built in folder $(1), replace those of
# this build. Bounds of vectors aren't checked, since vectors pass between instrumented and other code.
mixed = $(2) $(filter-out $(2:$(BUILD)/$(1)/%=$(BUILD)/obj/%),$(tests_objects))
suites_in = $(shell sed -nE 's/^TEST(_F|_P)?.([A-Za-z0-9]+),.*/\2.*:*\/\2.*/p' $(1) | sort -u | paste -sd:)
asan_tests := $(filter-out %_commands_test.cpp %_start_test.cpp,$(call in,cpp,tests/base tests/data tests/data/records) tests/engine/options/options_test.cpp)
asan_objects := $(asan_tests:%.cpp=$(BUILD)/asan/%.o) $(filter-out $(BUILD)/asan/tests/%,$(sort $(fuzz_objects) $(pictures_objects) \
  $(filter $(BUILD)/asan/%,$(records_objects))))
$(BUILD)/asan_tests: $(call mixed,asan,$(asan_objects))
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) $(sanitizers) -o $@ $^ -lgtest $(gpu_libraries) $(LDLIBS)
ci-asan: $(BUILD)/asan_tests
	@ASAN_OPTIONS=detect_container_overflow=0 BAREVISION_MODELS=$(CURDIR)/models BAREVISION_DATA=$(CURDIR)/../shared/data \
	  $< --gtest_brief=1 --gtest_filter='$(call suites_in,$(asan_tests))'

# Like make tsan, but only for collectives and loaders.
tsan_tests := $(call in,cpp,tests/comm) tests/data/loader_test.cpp
tsan_objects := $(patsubst %.cpp,$(BUILD)/threads/%.o,$(tsan_tests) $(filter $(plain),$(call in,cpp,base base/files base/python base/unicode $(call rooms_of,comm) data)))
$(BUILD)/threads/%.o: %.cpp | check-packages
	$(call compile, (threads)) -O1 $(avx2) -fsanitize=thread -c -o $@ $<
$(BUILD)/threads_tests: $(call mixed,threads,$(tsan_objects))
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -fsanitize=thread -o $@ $^ -lgtest $(gpu_libraries) $(LDLIBS)
ci-tsan: $(BUILD)/threads_tests
	@$(tsan_environment) $< --gtest_brief=1 --gtest_filter='Collectives*:TcpCommunicator*:Rendezvous*:Loader*:Exchange*-Collectives.NoticeAPeerThatDied'

# Compiles the CUDA sources for all generations of GPUs, and every shape of wgmma.
ci-nvcc: check-cuda $(BUILD)/dist/wgmma_shapes.o $(patsubst %.cu,$(BUILD)/dist/obj/%.o,$(call reached_of,$(patsubst $(BUILD)/obj/cuda/%.o,%.cu,$(nvcc_objects))))

# Checks by a dry run that the last commit has all sources of a build; installs, runs and removes the
# program of this build.
ci-package: $(BUILD)/launcher
	@rm -rf $(BUILD)/$@ && mkdir -p $(BUILD)/$@
	@git archive HEAD | tar -C $(BUILD)/$@ -x
	@cd $(BUILD)/$@ && $(MAKE) -n BUILD=none all >/dev/null && BAREVISION_BUILD=$(abspath $(BUILD)) tests/checks/install_test.py
	@rm -r $(BUILD)/$@
