// Kernels that call every wrapper of Hopper's memory instructions, so that ptxas compiles each for
// every architecture. The kernels are never launched.
#include "kernels/cuda/hopper/ptx_tma.cuh"
#include "kernels/cuda/launch.cuh"

namespace bv::BAREVISION_GPU {
namespace {

struct Shared {
  alignas(1024) float box[2][8][32];
  alignas(16) uint16_t matrices[4][8][8];
  uint64_t full, empty;
};

}  // namespace

__global__ void hopper_loads(const __grid_constant__ CUtensorMap map1,
                             const __grid_constant__ CUtensorMap map2,
                             const __grid_constant__ CUtensorMap map3,
                             const __grid_constant__ CUtensorMap map4,
                             const __grid_constant__ CUtensorMap map5, const float* bytes,
                             float* out) {
  auto& s = shared<Shared>();
  if (threadIdx.x == 0) {
    mbarrier_init(&s.full, 1);
    mbarrier_init(&s.empty, 2);
    fence_mbarrier_init();
  }
  __syncthreads();
  griddepcontrol_wait();
  if (threadIdx.x < 32 && elect_sync()) {
    mbarrier_expect_tx(&s.full, 1024);
    mbarrier_arrive_expect_tx(&s.full, 8 * 1024);
    cp_async_bulk_tensor(s.box[0], map1, &s.full, {0});
    cp_async_bulk_tensor(s.box[0], map2, &s.full, {0, 1});
    cp_async_bulk_tensor(s.box[0], map3, &s.full, {0, 1, 2});
    cp_async_bulk_tensor(s.box[0], map4, &s.full, {0, 1, 2, 3});
    cp_async_bulk_tensor(s.box[0], map5, &s.full, {0, 1, 2, 3, 4});
    cp_async_bulk_tensor_im2col(s.box[0], map3, &s.full, {0, 1, 2}, {1});
    cp_async_bulk_tensor_im2col(s.box[0], map4, &s.full, {0, 1, 2, 3}, {1, 2});
    cp_async_bulk_tensor_im2col(s.box[0], map5, &s.full, {0, 1, 2, 3, 4}, {1, 2, 0});
    cp_async_bulk(s.box[1], bytes, 1024, &s.full);
  }
  griddepcontrol_launch_dependents();
  while (!mbarrier_try_wait_parity(&s.full, 0)) {
  }
  out[threadIdx.x] = s.box[1][0][threadIdx.x % 32];
  mbarrier_arrive(&s.empty);
  mbarrier_wait_parity(&s.empty, 0);
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_inval(&s.full);
    mbarrier_inval(&s.empty);
  }
}

__global__ void hopper_stores(const __grid_constant__ CUtensorMap map1,
                              const __grid_constant__ CUtensorMap map2,
                              const __grid_constant__ CUtensorMap map3,
                              const __grid_constant__ CUtensorMap map4,
                              const __grid_constant__ CUtensorMap map5, float* out) {
  auto& s = shared<Shared>();
  const unsigned lane = threadIdx.x % 32;
  stmatrix_x1(s.matrices[0][lane % 8], {lane});
  stmatrix_x2(s.matrices[lane / 8 % 2][lane % 8], {lane, 1});
  stmatrix_x4(s.matrices[lane / 8][lane % 8], {lane, 1, 2, 3});
  stmatrix_x4_trans(s.matrices[lane / 8][lane % 8], {lane, 1, 2, 3});
  fence_proxy_async();
  bar_sync(1, 128);
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(map1, s.box, {0});
    cp_async_bulk_tensor_store(map2, s.box, {0, 1});
    cp_async_bulk_tensor_store(map3, s.box, {0, 1, 2});
    cp_async_bulk_tensor_store(map4, s.box, {0, 1, 2, 3});
    cp_async_bulk_tensor_store(map5, s.box, {0, 1, 2, 3, 4});
    cp_reduce_async_bulk_tensor_add(map1, s.box, {0});
    cp_reduce_async_bulk_tensor_add(map2, s.box, {0, 1});
    cp_reduce_async_bulk_tensor_add(map3, s.box, {0, 1, 2});
    cp_reduce_async_bulk_tensor_add(map4, s.box, {0, 1, 2, 3});
    cp_reduce_async_bulk_tensor_add(map5, s.box, {0, 1, 2, 3, 4});
    cp_async_bulk_store(out, s.box, 1024);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<1>();
    cp_async_bulk_wait_group<0>();
  }
}

// Compiled for 168 registers per thread, the most that a block of three warpgroups can have.
__global__ void __launch_bounds__(384, 1) hopper_registers(float* out) {
  if (threadIdx.x < 128) {
    setmaxnreg_dec<40>();
  } else {
    setmaxnreg_inc<232>();
    out[threadIdx.x] = 1;
  }
}

}  // namespace bv::BAREVISION_GPU
