# Tests: make test, asan, tsan, chaos, debug; the fuzz programs.
.PHONY: test tests slowest test-all asan tsan chaos debug
# The fuzz programs and the readers that they test run under the sanitizers in their turn of `make test`.
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
$(BUILD)/tests: $(tests_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ -lgtest -lgtest_main $(gpu_libraries) $(LDLIBS)

# For LD_PRELOAD: file calls that fail (tests/program/chaos_test.cpp, read_faults_test.cpp).
$(BUILD)/file_faults.so: tests/program/file_faults.cpp
	$(call compile,) -fPIC -shared -o $@ $<

# Programs that the tests of some suites start; with FILTER, built only if it matches such a suite.
fuzzers := $(BUILD)/fuzz $(BUILD)/fuzz_pictures $(if $(filter 1,$(RECORDS)),$(BUILD)/fuzz_records)
suites = $(shell $(BUILD)/tests --gtest_list_tests --gtest_filter='*$(FILTER)*' 2>/dev/null | grep '^[^ ]')
needed_for = $(if $(findstring $(1),$(suites)),$(2))
needed = $(if $(filter fuzz,$(FILTER)),$(fuzzers)) $(if $(filter counters,$(FILTER)),$(BUILD)/counters_tests) $(call needed_for,Chaos,$(BUILD)/file_faults.so) $(call needed_for,ReadFaults,$(BUILD)/file_faults.so) \
  $(call needed_for,SimtExamples,$(examples)) $(call needed_for,SimtRaces,$(races)) $(call needed_for,SimtTry,$(try_for_tests)) $(call needed_for,Learn,$(learn_for_tests)) $(call needed_for,View,$(BUILD)/counters_few $(learn_objects)) \
  $(if $(filter racecheck,$(FILTER)),$(BUILD)/racecheck_tests)
# Large tests and programs take turns, which the commit's hash chooses (tests/large_tests).
commit_hash = $(shell git rev-parse --short=7 HEAD 2>/dev/null || echo 0)
turn := $(or $(if $(FILTER)$(BAREVISION_TEST_ALL),all),$(BAREVISION_TEST_TURN),$(shell echo $$((0x$(commit_hash) % 4))))
in_turn = $(if $(filter $(1) all,$(turn)),$(2))
large_programs = $(call in_turn,0,$(BUILD)/fuzz) $(call in_turn,3,$(filter-out $(BUILD)/fuzz,$(fuzzers))) \
  $(if $(filter 1,$(SIMT)),$(if $(SANITIZE),,$(call in_turn,1,$(BUILD)/counters_tests $(BUILD)/counters_few) $(call in_turn,2,$(BUILD)/racecheck_tests)))
test: all $(BUILD)/tests $(if $(FILTER),,$(BUILD)/file_faults.so $(large_programs))
	@$(if $(FILTER),$(if $(strip $(needed)),$(MAKE) -s $(needed)))
	@$(if $(filter all,$(turn)),,BAREVISION_TEST_TURN=$(turn)) NVCC=$(NVCC) tests/run $(BUILD) $(FILTER)
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
