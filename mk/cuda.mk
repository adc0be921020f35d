# Compilation of .cu files by nvcc, and of the host code for CUDA.
# Compiles for this machine's GPU, else for sm_80.
gpu := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
gpu_arch := $(or $(subst .,,$(gpu)),80)
gencode = -gencode arch=compute_$(1),code=sm_$(1)
cuda_arch ?= $(call gencode,$(gpu_arch:90=90a)) $(if $(gpu),,-gencode arch=compute_80,code=compute_80)
# make dist: machine code for three generations of GPUs, and PTX for later ones.
dist_archs := 75 80 90a
dist_arch := $(foreach arch,$(dist_archs),$(call gencode,$(arch))) -gencode arch=compute_80,code=compute_80
# nvcc's objects have no debug information, so ccache needn't tell folders apart (CCACHE_NOHASHDIR).
# ptxas's report on each kernel is written next to the object, for make resources. ptxas only notes that
# it serialises wgmmas (C7510 and others); here that is an error.
nvcc_compile = $(call announce, (cuda$(1))) $(cached:%=CCACHE_NOHASHDIR=1 %) $(NVCC) -ccbin $(CXX) -std=c++20 -O3 $(2) -I. \
  -DBAREVISION_GPU=cuda_gpu -Xcompiler=-Wall,-march=x86-64-v3 -Xptxas=-v,-warn-spills -Wno-deprecated-gpu-targets \
  -MMD -MP -MF $(@:.o=.d) -c -o $@ $< >$(@:.o=.ptxas) 2>&1; \
  code=$$?; grep -vE '^ptxas info|bytes stack frame' $(@:.o=.ptxas) >&2; \
  ! grep 'wgmma.mma_async instructions are serialized' $(@:.o=.ptxas) >&2 || { rm -f $@; exit 1; }; exit $$code
$(BUILD)/obj/cuda/%.o: %.cu $(BUILD)/cuda_arch | check-packages
	$(call nvcc_compile,,$(cuda_arch))
$(BUILD)/dist/obj/%.o: %.cu | check-packages
	$(call nvcc_compile, for every GPU,$(dist_arch))
# Only code for sm_90a has Hopper's instructions: sm_90 lacks them.
cuda_build_arch = $(1)$(if $(findstring sm_90a,$(1)), -DBAREVISION_SM_90A)
$(BUILD)/obj/cuda/kernels/devices/cuda_build.o: private override cuda_arch := $(call cuda_build_arch,$(cuda_arch))
$(BUILD)/dist/obj/kernels/devices/cuda_build.o: private override dist_arch := $(call cuda_build_arch,$(dist_arch))
# Every shape of wgmma for sm_90a.
$(BUILD)/dist/wgmma_shapes.o: tests/gpu/hopper_wgmma.cu | check-packages
	$(call nvcc_compile, for sm_90a,$(call gencode,90a) -DBAREVISION_EVERY_SHAPE)
cuda_host_flags = $(avx2) -isystem $(CUDA_HOME)/include -DBAREVISION_GPU=cuda_gpu -DBAREVISION_CUDNN=$(if $(CUDNN),1,0)
$(BUILD)/obj/cuda/%.o: %.cpp $(call pch,plain) | check-packages
	$(call compile, (cuda)) $(call read_pch,plain) $(cuda_host_flags) -c -o $@ $<
$(BUILD)/dist/obj/%.o: %.cpp $(call pch,plain) | check-packages
	$(call compile, (cuda)) $(call read_pch,plain) $(cuda_host_flags) -c -o $@ $<
$(BUILD)/cuda_arch: $(checked_each_time)
	$(call remember,$(cuda_arch))

.PHONY: check-cuda
check-cuda:
ifeq ($(NVCC),)
	@echo "needs nvcc, which was not found: nvcc in PATH, or CUDA_HOME=DIR" >&2; exit 2
endif
