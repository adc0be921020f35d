# Benches, the stand-in's counters and its race checker.
.PHONY: bench peers counters racecheck
$(BUILD)/bench: $(bench_objects) $(objects) $(gpu_bench_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)
# All-reduces between processes: bench/collectives.
$(BUILD)/collectives: $(BUILD)/obj/bench/comm/collectives.o $(objects) $(gpu_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)
# Decoding and resizing, and loading from a folder and from records: bench/loading, bench/records.
$(BUILD)/loading: $(BUILD)/obj/bench/data/loading.o $(objects) $(gpu_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)
$(BUILD)/slow_open.so: bench/data/slow_open.cpp
	$(call compile,) -fPIC -shared -o $@ $<
bench: all $(BUILD)/bench $(BUILD)/collectives $(BUILD)/loading $(BUILD)/slow_open.so
	@$(BUILD)/bench --model vit_tiny $(ARGS)
peers:
	@bench/make_peers

# ---- Counters -----------------------------------------------------------------------------------
# Counts the work of each GPU kernel and compares it with the tables in tests/counters/. UPDATE=1
# writes these tables and those that bench/roofline derives from them; FILTER=layernorm_forward
# prints one kernel's counts; ARCH=sm_90 counts on another chip, KERNELS=hopper counts the kernels
# made for it, each with tables of its own.
counters: $(BUILD)/counters
	@BAREVISION_MODELS=$(CURDIR)/models $(BUILD)/counters $(if $(UPDATE),--update) $(FILTER:%=--filter %) \
	  $(ARCH:%=--arch %) $(KERNELS:%=--kernels %) $(ARGS)
	@$(if $(UPDATE),$(if $(ARCH),,bench/roofline --update))
# Tests the counters on kernels with known counts; run by tests/run.
$(BUILD)/counters_tests: $(call counting,$(filter simt/%,$(simt_sources)) kernels/cuda/check.cpp tests/counters/counters_test.cu)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ -lgtest -lgtest_main $(LDLIBS)
$(BUILD)/counters: $(counting_objects) $(BUILD)/obj/bench/recorded_model.o $(objects) $(cuda_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)
# For the tests of make view in `make test`: only these files' kernels are
# instrumented, since building all kernels a second time takes minutes.
watched_in_tests := $(patsubst %,kernels/%.cu,layers/layernorm layers/batchnorm cuda/column_sums cuda/moments training/loss)
$(BUILD)/counters_few: $(call counting,$(watched_in_tests) $(call in,cpp,bench/counters $(filter-out simt/races,$(wildcard simt/*)))) \
  $(filter-out $(patsubst %,$(BUILD)/obj/simt/%.o,$(basename $(watched_in_tests) $(call in,cpp,simt/*))),$(simt_objects)) \
  $(BUILD)/obj/bench/recorded_model.o $(objects) $(cuda_objects)
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ $(gpu_libraries) $(LDLIBS)

# ---- Races --------------------------------------------------------------------------------------
# Runs small cases of the kernel table and checks every memory access for races; FILTER=layernorm:
# only the operations with this word in their name.
racecheck: $(BUILD)/racecheck
	@BAREVISION_MODELS=$(CURDIR)/models BAREVISION_TEST_SMALL=1 SIMT_TIMEOUT=300 SIMT_RACES=1000000 $(BUILD)/racecheck $(FILTER)
$(BUILD)/racecheck: $(call watched,$(filter kernels/%.cu,$(gpu_sources)))
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ -lgtest $(gpu_libraries) $(LDLIBS)
# `make test` runs this: only the kernels of watched_in_tests are instrumented. Tests of
# other kernels would mislead, since the checker sees only their asynchronous copies and ldmatrix.
$(BUILD)/racecheck_tests: $(call watched,$(watched_in_tests))
	@echo "link      $@"
	@$(CXX) $(CXXFLAGS) -o $@ $^ -lgtest $(gpu_libraries) $(LDLIBS)
