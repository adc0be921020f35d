# The package for machines with a GPU, the kernels' resources, and the checks that need a GPU.
.PHONY: dist resources gpu-check
dist := $(BUILD)/dist/barevision
ptxas_logs := $(patsubst %.cu,$(BUILD)/dist/obj/%.ptxas,$(filter %.cu,$(gpu_sources)))
$(ptxas_logs): %.ptxas: %.o
# Programs link this compiler's C++ library statically and hide it from the packed libraries, which
# use the machine's. bench/dist/ defines the functions that this C++ library needs from a newer C library.
dist_link = @echo "link      $@" && mkdir -p $(@D) && $(CXX) $(CXXFLAGS) -s -static-libstdc++ -static-libgcc \
  -Wl,--exclude-libs,ALL,--version-script=bench/dist/symbols.map -o $@ $^ $(1) $(gpu_libraries) $(LDLIBS)
dist_objects = $(call for_every_gpu,$(1)) $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard bench/dist/*.cpp))
$(dist)/build/tests: $(call dist_objects,$(tests_objects))
	$(call dist_link,-lgtest)
$(dist)/build/bench: $(call dist_objects,$(bench_objects) $(objects) $(gpu_bench_objects))
	$(call dist_link)
$(dist)/build/launcher: $(call dist_objects,$(program) $(objects) $(gpu_objects))
	$(call dist_link)
# private: objects shared with other builds keep the values of those builds.
$(dist)/build/% $(BUILD)/dist/obj/%: private CUDNN =
$(dist)/build/%: cublaslt = -lcublasLt
# The package contains its libraries. RPATH, unlike RUNPATH, also applies to the libraries that these need.
$(dist)/build/%: cuda_rpath = \$$ORIGIN/../lib,--disable-new-dtags
dist: check-cuda $(dist)/build/tests $(dist)/build/bench $(dist)/build/launcher $(ptxas_logs)
	@! grep -h -A 3 -i warning $(ptxas_logs) || { echo "dist: ptxas or nvcc warns"; exit 2; }
	@NVCC=$(NVCC) tests/kernels/resources check $(ptxas_logs)
	@bench/pack $(dist) $(BUILD)/dist.tar.$(if $(filter 0,$(CUBLAS)),xz,gz) $(CUBLAS)
	@LD_LIBRARY_PATH=$(CUDA_HOME)/lib64 $(dist)/launcher vit_tiny --device cpu --image-size 32 --data synthetic --batch 2 --steps 1 --out $(BUILD)/dist/run \
	  >$(BUILD)/dist/run.log 2>&1 || { cat $(BUILD)/dist/run.log; exit 1; }
	@rm -r $(BUILD)/dist/run
# The stand-in reports the block sizes that kernels use at the models' sizes. Convolutions also choose
# kernels by the number of tiles, so the kernel table's convolutions, with the models' channels, run as well.
resources: check-cuda $(ptxas_logs) $(BUILD)/tests
	@echo "running   the models' operations on simt"
	@for arch in sm_80 sm_90; do \
	  SIMT_ARCH=$$arch BAREVISION_LAUNCHES=$(BUILD)/launches.$$arch $(BUILD)/tests >$(BUILD)/launches.log \
	    --gtest_filter="*ModelOperations*simt*:KernelTable/simt.conv_*:KernelTable/simt_hopper.conv_*$$([ $$arch = sm_90 ] || echo '-*simt_hopper*')" || { cat $(BUILD)/launches.log; exit 1; }; done
	@NVCC=$(NVCC) tests/kernels/resources $(if $(UPDATE),update,table) $(BUILD)/launches $(ptxas_logs)
	@$(if $(UPDATE),cat tests/kernels/resources.txt,NVCC=$(NVCC) tests/kernels/resources check $(ptxas_logs))
gpu-check:
ifeq ($(gpu),)
	@echo "gpu-check: no GPU here (nvidia-smi finds none)" >&2; exit 2
else
	@$(MAKE) check-cuda all $(BUILD)/tests $(BUILD)/bench
	@bench/gpu_check $(BUILD) $(ARGS)
endif
