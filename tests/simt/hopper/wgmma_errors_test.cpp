// Mistakes with wgmma, planted one by one. A mistake that is undefined behaviour on a GPU ends the
// kernel here with a message that names it, or leaves NaN.
#include "tests/simt/hopper/wgmma_test.h"

namespace bv::simt_gpu {
namespace {

enum class Bug {
  none,
  no_fence,
  written_after_fence,
  a_written_after_fence,
  no_commit,
  no_wait,
  used_before_wait,
  changed_in_flight,
  not_named_in_wait,
  too_many_pending,
  named_too_early,
  other_shape,
  a_changed_in_flight,
  missing_warp,
  diverged_lanes,
  other_place,
  other_descriptor,
  other_lane_descriptor,
  other_group,
  misaligned,
  past_shared_memory,
  unknown_bits,
  no_proxy_fence,
  no_barrier,
  refilled,
  out_over_a,
};

constexpr TileLayout tile{Major::k, Swizzle::b128, 64};

// out[64, 64] = a[64, depth] * b[64, depth]; from_registers: A from registers, depth only 16.
template <Bug bug, bool from_registers = false>
void multiply(float* out, const __half* a, const __half* b) {
  auto* const memory = static_cast<unsigned char*>(simt::shared_memory(0));
  unsigned char* const b_at = memory + tile.bytes();
  const unsigned t = threadIdx.x, warp = t / 32;
  if (bug == Bug::no_proxy_fence) fence_proxy_async();  // stores have known writers from here on
  store_tile(memory, tile, a);
  store_tile(b_at, tile, b);
  if (bug != Bug::no_proxy_fence || t == 0) fence_proxy_async();
  if (bug != Bug::no_barrier) __syncthreads();

  uint64_t a_first = tile.descriptor(memory, 0), b_first = tile.descriptor(b_at, 0);
  if (bug == Bug::misaligned) a_first = wgmma_descriptor(memory + 2, tile.swizzle, 1024);
  if (bug == Bug::past_shared_memory) b_first = wgmma_advance(b_first, 1024);
  if (bug == Bug::unknown_bits) b_first |= uint64_t{1} << 60;
  if (bug == Bug::other_descriptor && warp == 2) a_first = wgmma_advance(a_first, 32);
  if (bug == Bug::other_lane_descriptor && t == 70) a_first = wgmma_advance(a_first, 32);

  uint32_t fragment[4]{};
  for (int i = 0; i < 4; ++i)
    std::memcpy(&fragment[i],
                a + (warp * 16 + t % 32 / 4 + i % 2 * 8) * depth + t % 4 * 2 + i / 2 * 8, 4);
  float d[32];
  if (bug != Bug::no_fence) wgmma_fence(d, fragment);
  if (bug == Bug::written_after_fence) d[5] = 1;
  if (bug == Bug::a_written_after_fence) fragment[1] ^= 1;
  if (bug == Bug::missing_warp && warp == 3) return;
  if (bug == Bug::diverged_lanes && t % 32 == 7)
    wgmma_commit_group();
  else if (bug == Bug::other_place && warp == 1)
    wgmma_mma_async<__half>(d, a_first, b_first, false);
  else if (from_registers)
    wgmma_mma_async<__half>(d, fragment, b_first, false);
  else
    wgmma_mma_async<__half>(d, a_first, b_first, false);
  if (bug == Bug::other_group && warp == 2) wgmma_commit_group();
  if (bug == Bug::other_shape)
    wgmma_mma_async<__half>(reinterpret_cast<float(&)[16]>(d), a_first, b_first, true);
  for (int k = 16; k < depth && !from_registers; k += 16)
    wgmma_mma_async<__half>(d, tile.descriptor(memory, k), tile.descriptor(b_at, k), true);
  if (bug != Bug::no_commit) wgmma_commit_group();
  if (bug == Bug::changed_in_flight) d[3] *= 2;
  if (bug == Bug::a_changed_in_flight) fragment[2] ^= 1;
  if (bug == Bug::refilled && warp == 0) std::memset(b_at + t * 16, 0, 16);
  if (bug == Bug::used_before_wait || bug == Bug::no_wait) store_sums(out, d);
  if (bug == Bug::no_wait) return;
  if (bug == Bug::not_named_in_wait)
    wgmma_wait_group<0>();
  else if (bug == Bug::too_many_pending)
    wgmma_wait_group<1>();
  else if (bug == Bug::named_too_early)
    wgmma_wait_group<1>(d);
  else
    wgmma_wait_group<0>(d);
  if (bug != Bug::used_before_wait) store_sums(out, d);
  if (bug == Bug::out_over_a) std::memset(memory + t * 16, 0, 16);
  if (bug == Bug::too_many_pending) wgmma_wait_group<0>(d);
}

class SimtWgmma : public SimtHopper {
 protected:
  std::vector<__half> a = integers<__half>(64 * depth, 1), b = integers<__half>(64 * depth, 2);
  std::vector<float> d = std::vector<float>(64 * 64);

  template <Bug bug, bool from_registers = false>
  std::string error(dim3 threads = 128) {
    return error_of<multiply<bug, from_registers>>(1, threads, 16384, d.data(), a.data(), b.data());
  }
  template <Bug bug, bool from_registers = false>
  void expect(std::initializer_list<std::string> parts, dim3 threads = 128) {
    in_each_order_and_delivery([&] {
      const std::string text = error<bug, from_registers>(threads);
      EXPECT_TRUE(says(text, {"multiply<", ": block (0,0,0): thread (", "wgmma_errors_test.cpp:"}));
      EXPECT_TRUE(says(text, parts));
    });
  }
  bool is_exact() const { return d == plain_product(a, b, 64, depth); }
  // With late delivery D is NaN when it is used; with early delivery it has the sums.
  template <Bug bug>
  void expect_sums_only_if_early() {
    for (const Delivery delivery : {Delivery::late, Delivery::early}) {
      simt::delivery = delivery;
      EXPECT_EQ(error<bug>(), "no error");
      EXPECT_EQ(is_exact(), delivery == Delivery::early);
      EXPECT_EQ(std::isnan(d[77]), delivery == Delivery::late);
    }
  }
};

TEST_F(SimtWgmma, IsSilentWithoutAMistake) {
  in_each_order_and_delivery([&] {
    EXPECT_EQ(error<Bug::none>(), "no error");
    EXPECT_TRUE(is_exact());
    EXPECT_EQ((error<Bug::none, true>()), "no error");
  });
}

TEST_F(SimtWgmma, NamesMissingFences) {
  expect<Bug::no_fence>(
      {"executes wgmma without a wgmma.fence before that names its accumulators"});
  expect<Bug::written_after_fence>({"accumulators that have changed since the last wgmma.fence"});
  expect<Bug::a_written_after_fence, true>(
      {"registers of A that have changed since the last wgmma.fence"});
  expect<Bug::no_proxy_fence>({"by wgmma's", "has written without fence.proxy.async since"});
}

TEST_F(SimtWgmma, NamesMissingWaits) {
  expect<Bug::no_commit>({"waits before the wgmma of thread (", "is committed"});
  expect<Bug::no_wait>({"returns with the wgmma of thread (", "in flight"});
  expect<Bug::changed_in_flight>({"waits for accumulators that have changed in flight"});
  expect<Bug::named_too_early>({"names in wgmma.wait_group accumulators", "still has in flight"});
  expect<Bug::other_shape>({"n32k16", "of another shape, has in flight"});
  expect<Bug::a_changed_in_flight, true>({"whose registers of A have changed in flight"});
  expect<Bug::refilled>({"writes byte", "which the wgmma's B of thread (", "may still read"});
  // A warp that has waited writes over what the other warps' parts may still read.
  expect<Bug::out_over_a>({"writes byte", "which the wgmma's A of thread (", "may still read"});
}

TEST_F(SimtWgmma, LeavesNaNUntilTheWait) {
  expect_sums_only_if_early<Bug::used_before_wait>();
  expect_sums_only_if_early<Bug::not_named_in_wait>();
  expect_sums_only_if_early<Bug::too_many_pending>();
}

TEST_F(SimtWgmma, NamesWarpsThatDiffer) {
  expect<Bug::missing_warp>({"thread (96,0,0)", "returned"});
  simt::delivery = Delivery::late;  // until all warps have issued a wgmma
  EXPECT_TRUE(says(error<Bug::missing_warp>(),
                   {"waits at", "for wgmmas of its warpgroup, but thread (96,0,0)",
                    "committed 0 groups and returned"}));
  simt::delivery = Delivery::early;  // each warp's part by itself
  EXPECT_TRUE(says(error<Bug::missing_warp>(), {"thread (96,0,0) returned without the wgmma of"}));
  expect<Bug::none>({"in a warpgroup of 2 warps, not 4"}, 64);
  expect<Bug::diverged_lanes>({"waits at"});
  expect<Bug::other_place>({"of the same warpgroup is another"});
  expect<Bug::other_descriptor>({"of the same warpgroup has other descriptors"});
  expect<Bug::other_lane_descriptor>({"descriptors or scale-d differ between lanes"});
  expect<Bug::other_group>({"commits a group after", "another warp of its warpgroup after"});
}

TEST_F(SimtWgmma, NamesWrongDescriptors) {
  expect<Bug::misaligned>({"calls wgmma_descriptor 2 bytes past a multiple of 16"});
  expect<Bug::past_shared_memory>({"descriptor of wgmma's B ends 1024 bytes past shared memory"});
  expect<Bug::unknown_bits>({"descriptor of wgmma's B that sets bits without a meaning"});
}

// A warp that runs ahead reads, and holds, bytes that other warps have yet to write; in random
// order, whether it does depends on the seed.
TEST_F(SimtWgmma, NamesAMissingBarrier) {
  for (const Order o : {Order::forward, Order::reverse}) {
    simt::order = o;
    for (const Delivery delivery : {Delivery::late, Delivery::early}) {
      simt::delivery = delivery;
      EXPECT_TRUE(says(error<Bug::no_barrier>(), {"multiply<", "wgmma's"}));
    }
  }
}

// ---- A wrong descriptor reads something else, as on a GPU -------------------------------------

enum class Wrong { nothing, swizzle, stride, step, major };

template <Wrong wrong>
void misread(float* out, const __half* a, const __half* b) {
  auto* const memory = static_cast<unsigned char*>(simt::shared_memory(0));
  unsigned char* const b_at = memory + tile.bytes();
  store_tile(memory, tile, a);
  store_tile(b_at, tile, b);
  fence_proxy_async();
  __syncthreads();
  const Swizzle swizzle = wrong == Wrong::swizzle ? Swizzle::b64 : Swizzle::b128;
  const uint32_t stride = wrong == Wrong::stride ? 512 : 1024,
                 step = wrong == Wrong::step ? 64 : 32;
  const uint64_t a_first = wgmma_descriptor(memory, swizzle, stride, 1024);
  float d[32];
  wgmma_fence(d);
  for (uint32_t k = 0; k < 2; ++k)
    wgmma_mma_async<__half, wrong == Wrong::major ? Major::mn : Major::k>(
        d, wgmma_advance(a_first, k * step), tile.descriptor(b_at, int(16 * k)), k > 0);
  wgmma_commit_group();
  wgmma_wait_group<0>(d);
  store_sums(out, d);
}

TEST_F(SimtWgmma, ReadsWhatADescriptorSays) {
  const auto product = [&]<Wrong wrong>() {
    run<misread<wrong>>(1, 128, 16384, d.data(), a.data(), b.data());
    return d;
  };
  const auto right = product.operator()<Wrong::nothing>();
  EXPECT_NE(product.operator()<Wrong::swizzle>(), right);
  EXPECT_NE(product.operator()<Wrong::stride>(), right);
  EXPECT_NE(product.operator()<Wrong::step>(), right);
  EXPECT_NE(product.operator()<Wrong::major>(), right);
}

}  // namespace
}  // namespace bv::simt_gpu
