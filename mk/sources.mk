# Sources and objects: a file's folder decides whether and how it is built; a new file needs no
# edit.
in = $(sort $(foreach room,$(2),$(wildcard $(room)/*.$(1))))
rooms_of = $(patsubst %/,%,$(foreach room,$(1),$(wildcard $(room)/ $(room)/*/ $(room)/*/*/)))
# In these folders NAME.cpp is built twice, for AVX2 and AVX-512, and NAME.cu twice, for simt and
# CUDA.
kernel_rooms := $(addprefix kernels/,activation attention augment conv layers training)
kernels := $(call in,cpp,$(kernel_rooms)) kernels/cpu/cpu_kernels.cpp
# The GPU's kernels and host code, once for the stand-in and once for CUDA.
gpu_sources := $(call in,cu,$(kernel_rooms) kernels/cuda kernels/devices) $(call in,cpp,kernels/cuda kernels/cuda/hopper kernels/cuda/lazy comm/nccl)
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
simt_sources := $(filter-out kernels/cuda/lazy/%,$(gpu_sources)) $(call in,cpp,$(filter-out simt/races,$(wildcard simt/*)))
simt_objects := $(patsubst %,$(BUILD)/obj/simt/%.o,$(basename $(filter-out simt/counters/%,$(simt_sources))))
# The same with counting (make counters).
counting = $(patsubst %,$(BUILD)/obj/counters/%.o,$(basename $(1)))
counting_objects := $(call counting,$(simt_sources) $(call in,cpp,bench/counters))
# The same kernels, watched for races (make racecheck): $(1), or all of them.
watching_sources := $(call in,cpp,simt/device simt/hopper simt/races)
watched = $(patsubst %.cpp,$(BUILD)/obj/races/%.o,$(watching_sources)) $(call counting,$(1)) \
  $(filter-out $(patsubst %,$(BUILD)/obj/simt/%.o,$(basename $(watching_sources) $(1))),$(simt_objects)) \
  $(patsubst %.cpp,$(BUILD)/obj/%.o,$(call in,cpp,tests/kernels tests/numerics tests/racecheck)) \
  $(BUILD)/obj/bench/recorded_model.o $(filter %/gpu_conversions.o %/gpu_device.o %/behind_a_kernel.o,$(gpu_test_objects)) \
  $(objects) $(cuda_objects)
endif
ifneq ($(NVCC),)
cuda_objects := $(patsubst %,$(BUILD)/obj/cuda/%.o,$(basename \
  $(filter-out $(if $(NCCL),,%/nccl_communicator.cpp),$(gpu_sources))))
cuda_libraries = -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(cuda_rpath) $(if $(NCCL),-lnccl) $(if $(CUDNN),-lcudnn) $(cublaslt) -lcudart_static -ldl -lrt
endif
cuda_rpath = $(CUDA_HOME)/lib64
gpu_objects := $(simt_objects) $(cuda_objects)
# tests/gpu is built for both, tests/simt for the stand-in alone; tests/fuzz, tests/counters and
# tests/racecheck are programs of their own.
test_rooms := $(filter-out tests/gpu tests/hopper tests/simt tests/simt/hopper tests/fuzz% tests/counters tests/racecheck,$(call rooms_of,tests))
test_objects := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(filter-out %/file_faults.cpp,$(call in,cpp,$(test_rooms)))) \
  $(BUILD)/obj/bench/recorded_model.o
gpu_test_sources := $(call in,cpp,tests/gpu) $(call in,cu,tests/gpu)
gpu_test_objects := $(foreach build,$(if $(simt_objects),simt) $(if $(cuda_objects),cuda), \
  $(patsubst %,$(BUILD)/obj/$(build)/%.o,$(basename $(gpu_test_sources))))
ifeq ($(SIMT),1)
gpu_test_objects += $(patsubst %,$(BUILD)/obj/simt/%.o,$(basename $(call in,cpp,tests/simt tests/simt/hopper)))
endif
gpu_libraries = $(cuda_libraries)
# Objects that `make dist` recompiles, for every GPU and without cuDNN.
nvcc_objects := $(patsubst %.cu,$(BUILD)/obj/cuda/%.o,$(filter %.cu,$(gpu_sources) $(gpu_test_sources)))
recompiled := $(nvcc_objects) $(BUILD)/obj/cuda/kernels/cuda/conv_cudnn.o
# A package's programs name cuBLASLt as theirs, so that it is packed.
for_every_gpu = $(patsubst $(BUILD)/obj/cuda/%,$(BUILD)/dist/obj/%,$(filter $(recompiled),$(1))) \
  $(filter-out $(recompiled) $(BUILD)/obj/cuda/kernels/cuda/lazy/%,$(1))
bench_objects := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(filter-out bench/gpu_%,$(call in,cpp,bench)))
# The bench times only the GPU, not its stand-in.
gpu_bench_objects := $(gpu_objects) $(if $(NVCC),$(patsubst %.cpp,$(BUILD)/obj/cuda/%.o,$(wildcard bench/gpu_*.cpp)))
