// KernelTable/simt_hopper: the cases of `make test` reach the kernels made for sm_90, in all their
// tiles. If other kernels ran the cases, passing them would prove nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>

#include "kernels/cuda/check.h"
#include "kernels/cuda/endless_wait.h"
#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/kernel_table.h"
#include "simt/device/control.h"
#include "tests/files.h"
#include "tests/kernels/kernel_cases.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

// Doesn't run an operation, but records whether a kernel made for sm_90 would.
class Asking final : public KernelRows<Asking> {
 public:
  std::set<std::string> taken;
  bool in_parts = false;  // a weight gradient would be summed in several parts
  template <class Op>
  void dispatch(Op op, Stream) {
    if (!hopper_->by_hopper(op)) return;
    taken.insert(Fields(op).operation);
    if (std::is_same_v<Op, LinearBackwardWeight> && hopper_->workspace_bytes(op)) in_parts = true;
  }
  template <class Op>
  size_t workspace(const Op&) {
    return 0;
  }
  template <class Op>
  bool takes(const Op& op) const {
    return hopper_->by_hopper(op);
  }

 private:
  std::unique_ptr<Kernels> hopper_ = simt_gpu::make_hopper_kernels(nullptr);
};

TEST(SimtHopperTable, SmallCasesReachEachOperationsKernel) {
  const StandInChip chip("sm_90");
  const auto devices = devices_to_test();
  const auto device = std::ranges::find(devices, "simt_hopper", &Device::name);
  if (device == devices.end()) GTEST_SKIP() << "the stand-in is not under test";
  Asking asking;
  for (const KernelCase& c : registered_cases()) {
    if (!is_case_of(*device->operations, c.name)) continue;
    if (work_of(c.name) > 1 << 17 && !c.always) continue;
    const Problem problem = c.make(DType::bf16);
    DeviceArguments memory(*device, problem.arguments, 0xFF);
    problem.run(asking, memory);
  }
  for (const std::string& operation : *device->operations)
    EXPECT_TRUE(asking.taken.contains(operation)) << operation;
  EXPECT_TRUE(asking.in_parts);
}

// The products' tiles that ran ("128, 192, in_turn"), by epilogue and second operand.
std::map<std::string, std::set<std::string>> tiles_run() {
  std::map<std::string, std::set<std::string>> tiles;
  const std::regex parts(
      R"(sm90_product<Product<.*bfloat16, \w+, (\w+), (\w+)(<.*>)?, (\d+, \d+, ).*::(\w+)> >)");
  for (const std::string& kernel : simt::kernels_run())
    if (std::smatch found; std::regex_match(kernel, found, parts)) {
      const bool phases = found[3].str().find("PhaseRows") != std::string::npos;
      tiles[found[2].str() + (phases ? " in phases " : " ") + found[1].str()].insert(
          found[4].str() + found[5].str());
    }
  return tiles;
}

// Attention's variants that ran ("64, 208, false": channels, keys of a tile, dropout).
std::set<std::string> attention_run() {
  std::set<std::string> variants;
  const std::regex parts(R"(attention_forward_sm90<.*bfloat16, (.*)>)");
  for (const std::string& kernel : simt::kernels_run())
    if (std::smatch found; std::regex_match(kernel, found, parts)) variants.insert(found[1].str());
  return variants;
}

// During its lifetime, kernels are named, but don't run.
struct OnlyNames {
  OnlyNames() { simt::run_all(), simt::only_names = true; }
  ~OnlyNames() { simt::only_names = false; }
};

TEST(SimtHopperTable, AWaitThatNeverEndsIsNamedByTheErrorThatEndsIt) {
  simt_gpu::EndlessWait* const told = simt_gpu::hear_endless_waits();
  ASSERT_TRUE(told);
  const auto said = [] {
    try {
      simt_gpu::fail(cudaErrorLaunchFailure, "cudaStreamSynchronize");
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_FALSE(has(said(), "mbarrier"));
  *told = {.is_told = 1,
           .line = 228,
           .parity = 1,
           .block = {5, 0, 0},
           .thread = {0, 1, 0},
           .mbarrier = 214016,
           .file = "sm90_product.cuh"};
  EXPECT_TRUE(has(said(),
                  "; sm90_product.cuh:228: thread (0,1,0) of block (5,0,0) waited 4 s "
                  "for the end of a phase of parity 1 of the mbarrier at shared address 214016"));
  *told = {};
}

// Some tiles are the best only for a few shapes, which the tables of cases have for this test. The
// table's rows prove their results.
TEST(SimtHopperTable, CasesReachEachTile) {
  const auto devices = devices_to_test();
  const auto device = std::ranges::find(devices, "simt_hopper", &Device::name);
  if (device == devices.end()) GTEST_SKIP() << "the stand-in is not under test";
  const StandInChip chip(device->chip);
  const auto kernels = device->make_kernels();
  const OnlyNames only_names;
  for (const KernelCase& c : registered_cases())
    // Attention backward has one kernel, and its oracle takes long.
    if (is_case_of(*device->operations, c.name) && !c.cpu_only &&
        !c.name.starts_with("attention_backward") && (c.always || work_of(c.name) <= 1 << 20)) {
      const Problem problem = c.make(DType::bf16);
      DeviceArguments memory(*device, problem.arguments, 0xFF);
      problem.run(*kernels, memory);
      simt::run_all();
    }
  using Tiles = std::set<std::string>;
  const Tiles in_turn{"128, 64, in_turn", "128, 128, in_turn", "128, 192, in_turn"};
  const Tiles narrow{"128, 64, in_turn", "128, 128, in_turn"};
  const auto with = [](Tiles tiles, const Tiles& more) {
    tiles.insert(more.begin(), more.end());
    return tiles;
  };
  const Tiles shared{"128, 128, together", "128, 192, together"};
  const Tiles of_weight =
      with(shared, {"64, 64, in_turn", "128, 128, in_turn", "128, 192, in_turn"});
  const std::map<std::string, Tiles> want{
      {"AddBias AlongK", with(in_turn, shared)},
      {"AddBias AlongRows", with(in_turn, shared)},
      {"AddBiasGelu AlongK", with(in_turn, shared)},
      {"TimesGeluSlope AlongRows", with(narrow, {"128, 128, together"})},
      {"NormForward AlongK", {"64, 192, together"}},
      {"NormBackward AlongRows", {"64, 192, together"}},
      {"ToFp32 AlongRows", of_weight},
      {"StoreWithMoments Filter", with(narrow, {"128, 128, together"})},
      {"StoreInputGradient FilterAlongRows", with(narrow, {"128, 128, together"})},
      {"StoreInputGradient in phases FilterAlongRows", narrow},
      {"ToFp32 ImageAlongRows", with(of_weight, {"64, 192, in_turn"})}};
  EXPECT_EQ(tiles_run(), want);
  std::set<std::string> want_attention;
  for (const std::string dropout : {", false", ", true"})
    for (const std::string tile : {"32, 64", "32, 80", "32, 208", "64, 64", "64, 80", "64, 208",
                                   "128, 64", "128, 80", "128, 128"})
      want_attention.insert(tile + dropout);
  EXPECT_EQ(attention_run(), want_attention);
}

// The other kernels compute the other shapes, or refuse them with a message.
TEST(SimtHopperTable, TakesAttentionOfHeadsThatFillTiles) {
  const StandInChip chip("sm_90");
  const auto kernels = simt_gpu::make_hopper_kernels(nullptr);
  const auto taken = [&](const AttentionShape& shape, DType dtype = DType::bf16) {
    return kernels->by_hopper(AttentionForward{.shape = shape, .dtype = dtype});
  };
  for (const int D : {32, 64, 128}) EXPECT_TRUE(taken({2, 197, 3, D})) << D;
  for (const int D : {8, 20, 48, 96, 256}) EXPECT_FALSE(taken({2, 197, 3, D})) << D;
  EXPECT_FALSE(taken({2, 197, 3, 64}, DType::fp32));
  EXPECT_TRUE(taken({1, 1, 1, 64}));
  EXPECT_TRUE(taken({1, 1 << 20, 1, 64}));
  EXPECT_TRUE(taken({1 << 15, 197, 1 << 14, 64}));
  EXPECT_FALSE(taken({1 << 15, 513, 1 << 14, 64})) << "5 * 2^29 items";
}

// A block computes a head, in parts of 256 keys: there must be enough long heads to occupy the SMs.
TEST(SimtHopperTable, TakesAttentionBackwardOfManyLongHeads) {
  const StandInChip chip("sm_90");
  const auto kernels = simt_gpu::make_hopper_kernels(nullptr, 132);
  const auto op = [](const AttentionShape& shape, DType dtype = DType::bf16) {
    return AttentionBackward{.shape = shape, .dtype = dtype};
  };
  for (const int D : {32, 64, 128}) EXPECT_EQ(kernels->by_hopper(op({2, 197, 3, D})), D == 64) << D;
  EXPECT_FALSE(kernels->by_hopper(op({64, 577, 16, 64}, DType::fp32)));
  EXPECT_TRUE(kernels->by_hopper(op({1, 256, 1, 64})));
  EXPECT_FALSE(kernels->by_hopper(op({5, 257, 13, 64})));
  EXPECT_TRUE(kernels->by_hopper(op({6, 257, 11, 64})));
  EXPECT_EQ(kernels->workspace_bytes(op({512, 197, 3, 64})), 0);
  EXPECT_EQ(kernels->workspace_bytes(op({64, 577, 16, 64})), 132 * 640 * 64 * sizeof(float));
  EXPECT_EQ(kernels->workspace_bytes(op({6, 577, 16, 64, 1})), 96 * 64 * 64 * sizeof(float));
  const auto beside = simt_gpu::make_hopper_kernels(nullptr, 132, /*collectives=*/true);
  EXPECT_EQ(beside->workspace_bytes(op({64, 577, 16, 64})), 116 * 640 * 64 * sizeof(float));
  EXPECT_TRUE(beside->by_hopper(op({6, 257, 11, 64})));
}

// Other shapes run as two operations, whose workspaces differ from that of the fused one.
TEST(SimtHopperTable, FusesLayerNormWithProductsOfViTTiny) {
  const StandInChip chip("sm_90");
  const auto kernels = simt_gpu::make_hopper_kernels(nullptr, 132);
  const auto fused = [&](const LinearShape& shape, DType dtype = DType::bf16) {
    const NormLinearBackwardInput op{.shape = shape, .dtype = dtype};
    EXPECT_EQ(kernels->by_hopper(op), kernels->by_hopper(op.product()));
    return kernels->workspace_bytes(op) !=
           std::max(kernels->workspace_bytes(op.product()), kernels->workspace_bytes(op.norm()));
  };
  for (const int N : {576, 768, 1000}) {
    EXPECT_TRUE(fused({.M = 256, .N = N, .K = 192})) << N;
    EXPECT_TRUE(fused({.M = 256, .N = N, .K = 192}, DType::fp16)) << N;
    EXPECT_FALSE(fused({.M = 256, .N = N, .K = 192}, DType::fp32)) << N;
    for (const int K : {64, 184, 200, 384, 1024})
      EXPECT_FALSE(fused({.M = 256, .N = N, .K = K})) << K;
  }
  EXPECT_FALSE(fused({.M = 256, .N = 30, .K = 192})) << "rows of 60 bytes";
}

// Operations of a ViT-Tiny; the tests below except some of them.
struct TinyOperations {
  explicit TinyOperations(int M, int N) {
    const LinearShape shape{.M = M, .N = N, .K = 192};
    forward = {.shape = shape, .dtype = DType::bf16};
    weight = {.shape = shape, .dtype = DType::bf16};
    input = {.shape = shape, .dtype = DType::bf16};
    norm = {.shape = shape, .dtype = DType::bf16};
  }
  LinearForward forward;
  LinearBackwardWeight weight;
  LinearBackwardInput input;
  NormLinearBackwardInput norm;
};

class SimtHopperExcept : public testing::Test {
 protected:
  void TearDown() override { unsetenv("BAREVISION_HOPPER_EXCEPT"); }
  std::unique_ptr<Kernels> kernels_without(const std::string& lines) const {
    write_text(file_, lines);
    setenv("BAREVISION_HOPPER_EXCEPT", file_.c_str(), 1);
    return simt_gpu::make_hopper_kernels(nullptr, 132);
  }
  StandInChip chip_{"sm_90"};
  std::unique_ptr<Kernels> all_ = simt_gpu::make_hopper_kernels(nullptr, 132);
  TemporaryFolder folder_;
  std::string file_ = folder_ / "except.txt";
};

// An exception holds for any number of rows. If one of the two gradients is excepted, the operation
// that computes both is excepted, too, but not the other gradient by itself.
TEST_F(SimtHopperExcept, LeavesShapesToTheOthers) {
  const auto rest = kernels_without(
      "LinearForward N576 K192\r\n\nLinearBackwardWeight N576 K192 \nConvForward N584 K192\n");
  for (const int M : {64, 50432})
    for (const int N : {576, 584}) {
      const TinyOperations o(M, N);
      const BothGradients<LinearBackwardWeight, LinearBackwardInput> both{o.weight, o.input};
      EXPECT_TRUE(all_->by_hopper(o.forward) && all_->by_hopper(o.weight) &&
                  all_->by_hopper(o.input));
      EXPECT_EQ(all_->by_hopper(both), M == 50432);
      EXPECT_EQ(rest->by_hopper(o.forward), N != 576) << M;
      EXPECT_EQ(rest->by_hopper(o.weight), N != 576) << M;
      EXPECT_TRUE(rest->by_hopper(o.input));
      EXPECT_EQ(rest->by_hopper(both), M == 50432 && N != 576);
    }
}

// If a product fused with a layer norm is excepted, the kernel made for sm_90 doesn't compute its
// product alone either.
TEST_F(SimtHopperExcept, LeavesAProductWithItsNormWhole) {
  const auto rest = kernels_without("NormLinearBackwardInput N576 K192\n");
  const auto fast = simt_gpu::make_cuda_kernels();
  const TinyOperations o(50432, 576), other(50432, 584);
  EXPECT_TRUE(all_->by_hopper(o.norm) && rest->by_hopper(other.norm) && rest->by_hopper(o.input));
  EXPECT_FALSE(rest->by_hopper(o.norm));
  EXPECT_EQ(rest->workspace_bytes(o.norm), fast->workspace_bytes(o.norm));
  EXPECT_NE(all_->workspace_bytes(o.norm), fast->workspace_bytes(o.norm));
  const BothGradients<LinearBackwardWeight, NormLinearBackwardInput> both{o.weight, o.norm};
  EXPECT_TRUE(all_->by_hopper(both));
  EXPECT_FALSE(rest->by_hopper(both));
}

TEST_F(SimtHopperExcept, RefusesWhatIsNoSuchFile) {
  EXPECT_EQ(error_of([&] { kernels_without("LinearForward N576\nlinear N576\n"); }),
            "BAREVISION_HOPPER_EXCEPT: " + file_ +
                ":2: 'linear' is not an operation with a kernel made for sm_90");
  setenv("BAREVISION_HOPPER_EXCEPT", "none", 1);
  EXPECT_EQ(error_of([] { simt_gpu::make_hopper_kernels(nullptr); }),
            "BAREVISION_HOPPER_EXCEPT: none: no such file");
}

// The other kernels compute the other shapes, or refuse them with a message.
TEST(SimtHopperTable, TakesConvolutionsThatTmaCanCopy) {
  const StandInChip chip("sm_90");
  const auto kernels = simt_gpu::make_hopper_kernels(nullptr);
  const auto taken = [&](const ConvShape& shape) {
    const ConvForward forward{.shape = shape, .dtype = DType::bf16};
    const ConvBackwardInput input{.shape = shape, .dtype = DType::bf16};
    const ConvBackwardWeight weight{.shape = shape, .dtype = DType::bf16};
    return std::array{kernels->by_hopper(forward), kernels->by_hopper(input),
                      kernels->by_hopper(weight)};
  };
  const ConvShape usual{.N = 2,
                        .H = 14,
                        .W = 14,
                        .C = 64,
                        .K = 64,
                        .R = 3,
                        .S = 3,
                        .stride = 1,
                        .padding = 1,
                        .groups = 1};
  const auto with = [&](auto change) {
    ConvShape s = usual;
    change(s);
    return s;
  };
  constexpr std::array all{true, true, true}, none{false, false, false};
  EXPECT_EQ(taken(usual), all);
  EXPECT_EQ(taken(with([](ConvShape& s) { s.C = 68; })), none) << "rows of 136 bytes";
  EXPECT_EQ(taken(with([](ConvShape& s) { s.K = 68; })), none);
  EXPECT_EQ(taken(with([](ConvShape& s) { s.H = s.W = 1; })), all) << "one pixel";
  EXPECT_EQ(taken(with([](ConvShape& s) { s.R = s.S = 7, s.H = s.W = 3, s.padding = 3; })), all)
      << "taps larger than the image";
  EXPECT_EQ(taken(with([](ConvShape& s) { s.groups = 2; })), none);
  EXPECT_EQ(taken(with([](ConvShape& s) { s.stride = 9, s.padding = 0; })), none);
  // 2^31 elements: indices of pixels have 31 bits, those of elements 64.
  const ConvShape large = with([](ConvShape& s) { s.N = 1 << 15, s.H = s.W = 32; });
  EXPECT_EQ(large.inp_count(), 0x1p31);
  EXPECT_EQ(taken(large), all);
  char byte = 0;
  ConvForward beyond{.out = &byte, .inp = &byte, .weight = &byte, .shape = large};
  EXPECT_NO_THROW(validate(beyond));
  beyond.shape.N <<= 6;
  try {
    validate(beyond);
    ADD_FAILURE() << "2^31 pixels";
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "ConvForward: N, H, W: more positions than an index holds");
  }
}

}  // namespace
}  // namespace bv::test
