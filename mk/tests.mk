# Tests: make test, asan, tsan, chaos, debug; the fuzz programs.
.PHONY: test tests slowest test-all asan tsan chaos debug
# The fuzz programs and the readers that they test run under the sanitizers in `make test`.
sanitizers := -fsanitize=address,undefined -fno-sanitize-recover=all
fuzzed := $(filter-out engine/options/command_line.cpp engine/options/help.cpp engine/options/version.cpp, \
  $(call in,cpp,base base/files base/python base/unicode models models/graph engine/options engine/files engine/files/names engine/files/torch engine/weights)) $(call in,cpp,tests/fuzz data/augment data/image) \
  $(patsubst %,data/%.cpp,loader loader_options prepare decode/stranger) kernels/table/operations.cpp
fuzz_objects := $(fuzzed:%.cpp=$(BUILD)/asan/%.o)
pictures_fuzzed := $(call in,cpp,data/decode tests/fuzz/pictures) $(patsubst %,base/%.cpp,files/checksum files/file error text wait) tests/data/encode.cpp tests/data/encode_jpeg.cpp tests/fuzz/mutate.cpp tests/fuzz/watch.cpp
pictures_objects := $(pictures_fuzzed:%.cpp=$(BUILD)/asan/%.o)
records_fuzzed := $(call in,cpp,$(call rooms_of,data) base base/files base/python base/unicode tests/fuzz/records) \
  $(patsubst %,app/datasets/%.cpp,image_list coco) $(patsubst %,tests/fuzz/%.cpp,mutate watch)
records_objects := $(records_fuzzed:%.cpp=$(BUILD)/asan/%.o) $(filter %/example.pb.o,$(messages:%=%.o))

$(BUILD)/asan/%.o: %.cpp $(call pch,sanitized) | check-packages
	$(call compile, (sanitized)) $(call read_pch,sanitized) $(fuzz_opt) $(avx2) $(sanitizers) -c -o $@ $<
fuzz_opt = -O0
$(BUILD)/asan/data/decode/%.o: private fuzz_opt = -O1
$(BUILD)/asan/data/decode/%.o: private read_pch =
# On truncated data, stb_image before 2.28 shifts a zero by more than 31 bits; the result is still zero.
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
# All tests as one program, for packages and for gdb.
$(BUILD)/tests: $(tests_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ -lgtest $(gpu_libraries) $(LDLIBS)

# ---- Test programs ------------------------------------------------------------------------------
# The NAME_test.cpp of a room of tests/ are a program, build/test_ROOM. It takes what it needs from
# archives, which name objects without copying them. Where there is no GPU, objects of nvcc only
# satisfy the linker: those that make has built serve, also if they are old.
test_files := $(filter %_test.cpp,$(test_sources))
test_names := $(sort $(foreach file,$(test_files),$(word 2,$(subst /, ,$(file)))))
tests_in = $(call object_of_test,$(filter tests/$(1)/%,$(2)))
support_objects := $(filter-out $(call object_of_test,$(test_files)),$(test_objects) \
  $(if $(gpu),$(gpu_test_objects),$(filter-out $(nvcc_objects),$(gpu_test_objects))))
current = $(if $(gpu),$(1),$(filter-out $(wildcard $(cuda_objects)),$(1)))
archive = @rm -f $@ && ar rcsT $@ $(1)
$(BUILD)/program.a: $(objects)
	$(call archive,$(objects))
$(BUILD)/gpu.a: $(call current,$(gpu_objects))
	$(call archive,$(gpu_objects))
$(BUILD)/support.a: $(support_objects)
	$(call archive,$(support_objects))
archives := $(BUILD)/support.a $(BUILD)/program.a $(BUILD)/gpu.a
# main(), and what notes the kernels that the stand-in has run.
in_each_program := $(filter %/simt_kernels_run.o,$(support_objects)) $(BUILD)/obj/tests/comm/main.o
link_tests = $(CXX) $(CXXFLAGS) $(fast_link) -o $@ $(1) $(in_each_program) -Wl,--start-group $(archives) -Wl,--end-group \
  -lgtest $(gpu_libraries) $(LDLIBS)
fast_link := $(if $(shell command -v ld.gold),-fuse-ld=gold)
$(foreach name,$(test_names),$(eval $(BUILD)/test_$(name): $(call tests_in,$(name),$(test_files))))
$(test_names:%=$(BUILD)/test_%): $(in_each_program) $(archives)
	@echo "link      $@"
	@$(call link_tests,$(filter-out $(in_each_program) $(archives),$^))

# For LD_PRELOAD: file calls that fail (tests/program/chaos_test.cpp, read_faults_test.cpp).
$(BUILD)/file_faults.so: tests/program/file_faults.cpp
	$(call compile,) -fPIC -shared -o $@ $<

# FILTER chooses tests by a word in their names, BASE those that the changes since a commit can break
# (tests/reach): then each program links only the files that may have such tests, as test_ROOM.some.
reach_folder := $(BUILD)/reach
ifneq ($(FILTER),)
some_files := $(shell tests/reach --filter '$(FILTER)')
some := $(if $(filter-out $(words $(test_files)),$(words $(some_files))),some)
else ifneq ($(BASE),)
$(if $(shell tests/reach $(BASE) --write $(reach_folder) || echo failed),$(error tests/reach failed))
all_of_it := $(strip $(file <$(reach_folder)/all))
some := $(if $(all_of_it),,some)
some_files := $(strip $(file <$(reach_folder)/sources))
reached_checks := $(strip $(file <$(reach_folder)/checks))
endif
run_files := $(if $(some),$(filter $(test_files),$(some_files)),$(test_files))
# tests/kernels/simt runs the rows of all operations.
linked_files := $(run_files) $(if $(filter tests/kernels/simt/%,$(run_files)),$(filter-out $(run_files),$(filter tests/kernels/%,$(test_files))))
run_names := $(sort $(foreach file,$(run_files),$(word 2,$(subst /, ,$(file)))))
run_programs := $(run_names:%=$(BUILD)/test_%$(if $(some),.some))
ifneq ($(some),)
$(foreach name,$(run_names),$(eval $(BUILD)/test_$(name).some: $(call tests_in,$(name),$(linked_files)) $(BUILD)/some/$(name)))
$(run_names:%=$(BUILD)/test_%.some): $(in_each_program) $(archives)
	@echo "link      $@"
	@$(call link_tests,$(filter-out $(in_each_program) $(archives) $(BUILD)/some/%,$^))
$(run_names:%=$(BUILD)/some/%): $(checked_each_time)
	$(call remember,$(filter tests/$(@F)/%,$(linked_files)))
endif
# Programs that some test files and checks start.
fuzzers := $(BUILD)/fuzz $(BUILD)/fuzz_pictures $(if $(filter 1,$(RECORDS)),$(BUILD)/fuzz_records)
needed_by = $(if $(filter $(1),$(run_files)),$(2))
checks_run := $(if $(FILTER),$(FILTER),$(if $(some),$(reached_checks),$(if $(SANITIZE),fuzz,fuzz counters racecheck)))
needed_for = $(if $(filter $(1),$(checks_run)),$(2))
helpers = $(call needed_by,%/chaos_test.cpp %/read_faults_test.cpp,$(BUILD)/file_faults.so) $(call needed_for,fuzz fuzz_%,$(fuzzers)) \
  $(if $(filter 1,$(SIMT)),$(call needed_for,counters,$(BUILD)/counters_tests) $(call needed_for,racecheck,$(BUILD)/racecheck_tests) \
    $(call needed_by,tests/simt/simt_try_test.cpp tests/simt/try/%,$(examples) $(try_for_tests)) $(call needed_by,%/simt_races_test.cpp,$(races) $(try_for_tests)) \
    $(if $(SANITIZE),,$(call needed_by,tests/simt/learn_%,$(learn_for_tests)) $(call needed_by,tests/learn/%,$(BUILD)/counters_few $(learn_objects))))
.PHONY: test-programs
test-programs: $(run_programs) $(helpers)
# These rooms' tests start no launcher.
alone := comm kernels models numerics simt
needs_launcher := $(if $(some),$(filter-out $(alone),$(run_names))$(filter docs install_test start_test,$(reached_checks)),all)
# Seconds of this make until now: wall, and CPU of its commands.
build_seconds = --build-seconds $$(awk 'NR == FNR { now = $$1; next } { print now - $$22 / 100, ($$16 + $$17) / 100 }' /proc/uptime /proc/$$PPID/stat)
test: $(if $(needs_launcher),all) test-programs
	@$(if $(BASE),$(if $(all_of_it),echo "everything runs: $(all_of_it)",tests/reach $(BASE)))
	@NVCC=$(NVCC) tests/run $(BUILD) $(build_seconds) --programs "$(run_programs)" $(if $(FILTER),--filter '$(FILTER)',$(if $(some),--tests $(reach_folder)/tests --checks "$(or $(reached_checks),none)"))
tests: test
slowest:
	@[ -f $(BUILD)/test_times ] || { echo "slowest: run make test first" >&2; exit 2; }
	@head -n 20 $(BUILD)/test_times | awk '{ printf "%8.1f s  %s\n", $$1 / 1000, $$2 }'
test-all:
	@BAREVISION_TEST_ALL=1 $(MAKE) test FILTER="$(FILTER)"
# Runs the tests under the address and undefined-behaviour sanitizers: without CUDA, whose code also
# runs on the stand-in, and without the counters, which use the thread sanitizer's calls.
asan:
	@$(MAKE) BUILD=$(BUILD)/sanitized CUDA=0 OPT=-O1 SANITIZE="$(sanitizers)" test FILTER="$(FILTER)"

# Runs tests of the host's threads under the thread sanitizer. It doesn't understand the stand-in's
# fibers, so the stand-in is left out, nor GNU OpenMP's barriers, so there is one OpenMP thread.
# setarch -R turns off ASLR, which may occupy addresses that the sanitizer needs. Tests with limits
# on time or memory are left out.
tsan_suites := Collectives* TcpCommunicator* Rendezvous* Loader* Records* Photos* FirstLook* CpuStream* Trainer* Stages* Log* Checkpoint* Resnet* Exchange* Communicator* Machines*
tsan_environment = TSAN_OPTIONS="suppressions=tests/tsan.txt exitcode=66" BAREVISION_MODELS=$(CURDIR)/models OMP_THREAD_LIMIT=1 setarch -R
tsan_filter := $(subst $(space),:,$(tsan_suites))-Collectives.NoticeAPeerThatDied:RecordsStart.*
tsan:
	@$(MAKE) BUILD=$(BUILD)/tsan CUDA=0 SIMT=0 OPT=-O1 SANITIZE=-fsanitize=thread $(BUILD)/tsan/tests
	@$(tsan_environment) $(BUILD)/tsan/tests --gtest_brief=1 --gtest_filter='$(tsan_filter)'

# Kills, stops and resumes runs and makes their file calls fail, for SECONDS; prints a table at the end.
SECONDS ?= $(if $(TRIALS),0,600)
chaos: all $(BUILD)/tests $(BUILD)/file_faults.so
	@BAREVISION_CHAOS_SECONDS=$(SECONDS) BAREVISION_CHAOS_SEED=$(SEED) BAREVISION_CHAOS_TRIALS=$(TRIALS) BAREVISION_MODELS=$(CURDIR)/models \
	  $(BUILD)/tests --gtest_filter='Chaos.$(or $(ONLY),*)'

# For gdb: the kernels are built without optimisation, which would remove variables.
debug:
	@$(MAKE) BUILD=$(BUILD)/debug CUDA=0 OPT='-O1 -g' SIMT_OPT=-O0 $(BUILD)/debug/tests
