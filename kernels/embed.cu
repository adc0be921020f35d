#include "kernels/cuda/cuda_kernels.h"
#include "kernels/pack.cuh"
#include "kernels/ptx.cuh"
#include "kernels/reduce.cuh"
