// Two processes train on several channels to the same bits as on one channel, for any order of the
// streams, even if each keeps only a part of the state (--zero 1).
#include "engine/training/gradient_sync.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "engine/training/trainer.h"
#include "kernels/devices/devices.h"
#include "tests/comm/processes.h"
#include "tests/comm/workers.h"
#include "tests/models/small_vit.h"
#ifdef BAREVISION_SIMT
#include "simt/device/control.h"
#endif

namespace bv::test {
namespace {

TrainerOptions options_with(const SyncOptions& sync) {
  return {.optimizer = numbers_of(OptimizerKind::adamw),
          .local_batch = small_batch,
          .height = small_size,
          .width = small_size,
          .accumulate = 1,
          .sync = sync,
          .seed = 7};
}

using Weights = std::map<std::string, std::vector<float>>;

Weights trained(Backend& backend, Communicator& peers, const Graph& graph,
                const SyncOptions& sync) {
  Trainer trainer(backend, &peers, graph, options_with(sync));
  trainer.allocate();
  trainer.parameters().initialise(3);
  trainer.set_state({.loss_scale = 1});
  for (uint32_t step = 0; step < 3; ++step) {
    const SmallBatch data(2 * step + uint32_t(peers.rank()));
    trainer.step().micro_step({.images = data.images.data(),
                               .crops = data.crops.data(),
                               .labels = data.labels.data(),
                               .count = small_batch,
                               .position = step,
                               .wait_seconds = 0},
                              {.epoch = 0, .first = true, .last = true, .stop = false});
    trainer.wait_for_upload();
    trainer.step().start_update(1e-3, small_batch * peers.size());
    trainer.step().finish_update();
  }
  std::vector<char> host(trainer.parameters().copy_bytes());
  const ParameterCopy copy = trainer.parameters().copy_in(host.data());
  trainer.copy_to(copy);
  backend.synchronize(nullptr);
  Weights weights;
  for (const TensorView& t : trainer.parameters().tensors_of(copy).weights)
    weights[t.name].assign(t.data.begin(), t.data.end());
  return weights;
}

// Whether each process names the parameter whose gradient is not finite in the last process.
bool all_name_it(Backend& backend, Communicator& peers, const Graph& graph,
                 const SyncOptions& sync) {
  Trainer trainer(backend, &peers, graph, options_with(sync));
  trainer.allocate();
  const ParameterInfo& wrong = graph.parameters()[3];
  const float value = std::numeric_limits<float>::quiet_NaN();
  if (peers.rank() == peers.size() - 1)
    backend.to_device(trainer.parameters().grads() + wrong.offset, &value, sizeof value, nullptr);
  backend.synchronize(nullptr);
  return trainer.first_not_finite() == wrong.name;
}

bool same_bits(const Weights& a, const Weights& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.size() == y.second.size() &&
           std::memcmp(x.second.data(), y.second.data(), x.second.size() * sizeof(float)) == 0;
  });
}

// Trains on one to four channels in 20 orders of the streams (in make test, 5); all must give equal
// bits.
// A 16-bit model matters only with --zero 1: otherwise only gradients are sent, which are fp32.
int channels_change_no_bit(Communicator& peers, Backend& backend, DType dtype) {
  const Graph graph =
      build_vit({.embed_dim = 64, .depth = 2, .heads = 2}, {.classes = small_classes},
                square_input(small_batch, small_size, small_patch), dtype);
  const SyncOptions kinds[] = {{.bucket_bytes = 4096},
                               {.bucket_bytes = 4096, .shards = 1},
                               {.bucket_bytes = 4096, .dtype = DType::bf16},
                               {.bucket_bytes = 4096, .zero = true}};
  const auto in_order = trained(backend, peers, graph, kinds[1]);
  for (SyncOptions sync : kinds) {
    if (!backend.converts(sync.dtype) || (dtype != DType::fp32 && !sync.zero)) continue;
    const auto wanted = trained(backend, peers, graph, sync);
    if (sync.zero && !same_bits(wanted, in_order)) return 2;
    if (sync.zero && !all_name_it(backend, peers, graph, sync)) return 3;
    for (unsigned seed = 0; seed < (std::getenv("BAREVISION_TEST_ALL") ? 20 : 5); ++seed) {
#ifdef BAREVISION_SIMT
      simt::stream_seed = seed + 3 * unsigned(peers.rank());
#endif
      sync.channels = 1 + int(seed % 4);
      if (!same_bits(trained(backend, peers, graph, sync), wanted)) return 1;
    }
  }
  return 0;
}

int channels_change_no_bit(Communicator& peers, Backend& backend, DeviceKind) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    if (backend.supports(dtype))
      if (const int code = channels_change_no_bit(peers, backend, dtype)) return code;
  return 0;
}
[[maybe_unused]] const bool added = add_worker("channels", on_device<channels_change_no_bit>);

// Each element of the arena is kept by one replica, in whole norm blocks.
TEST(KeptSegments, DivideTheArena) {
  const Graph graph =
      build_vit({.embed_dim = 64, .depth = 3, .heads = 2}, {.classes = small_classes},
                square_input(small_batch, small_size, small_patch), DType::fp32);
  constexpr size_t block = GradientSquares::norm_block;
  for (const int replicas : {1, 2, 3, 5, 40})
    for (const size_t bytes : {4096, 300000, 25 << 20}) {
      const SyncOptions sync{.bucket_bytes = bytes, .zero = true};
      std::vector<Segment> all;
      for (int replica = 0; replica < replicas; ++replica)
        for (const Segment& s : kept_segments(graph, sync, replica, replicas)) all.push_back(s);
      std::ranges::sort(all, {}, &Segment::begin);
      size_t end = 0;
      for (const Segment& s : all) {
        EXPECT_EQ(s.begin, end);
        EXPECT_GT(s.end, s.begin);
        EXPECT_EQ(s.norm_block * block, s.begin);
        EXPECT_TRUE(s.end % block == 0 || s.end == graph.arena_count()) << s.end;
        end = s.end;
      }
      EXPECT_EQ(end, graph.arena_count());
    }
}

// In a pipeline of two stages with two chunks each, every norm block belongs to one process.
TEST(KeptSegments, DivideAPipelinesNormBlocks) {
  Graph graph = build_vit({.embed_dim = 64, .depth = 4, .heads = 2}, {.classes = small_classes},
                          square_input(small_batch, small_size, small_patch), DType::fp32);
  const int first = graph.cuts()[1], middle = graph.cuts()[2], last = graph.cuts()[3],
            end = static_cast<int>(graph.nodes().size());
  const Slice stages[2][2] = {{{0, first}, {middle, last}}, {{first, middle}, {last, end}}};
  for (const size_t bytes : {4096, 300000, 25 << 20}) {
    std::vector<int> owners(graph.norm_blocks());
    for (const auto& chunks : stages) {
      graph.finish(chunks);
      for (const int replica : {0, 1, 2})
        for (const Segment& s :
             kept_segments(graph, {.bucket_bytes = bytes, .zero = true}, replica, 3))
          for (size_t at = s.begin, number = s.norm_block; at < s.end;
               at += GradientSquares::norm_block)
            ++owners.at(number++);
    }
    EXPECT_EQ(owners, std::vector<int>(owners.size(), 1)) << bytes;
  }
}

std::string without_number(const std::string& name) {
  std::string kind;
  for (const char c : name)
    if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
  return kind;
}

// Offsets and counts equal those of a plain count; a ViT's ranges are its norms, tokens, positions.
TEST(Fp32Ranges, HaveWhatKernelsReadInFp32) {
  Graph vit = build_vit({.embed_dim = 72, .depth = 3, .heads = 2, .distilled = true},
                        {.classes = small_classes},
                        square_input(small_batch, small_size, small_patch), DType::bf16);
  std::set<std::string> kinds;
  for (const ParameterInfo& p : vit.parameters())
    if (p.fp32) kinds.insert(without_number(p.name));
  EXPECT_EQ(kinds, (std::set<std::string>{"blocks..norm.bias", "blocks..norm.weight", "cls_token",
                                          "dist_token", "norm.bias", "norm.weight", "pos_embed"}));
  const Slice stages[] = {{0, vit.cuts()[1]}, {vit.cuts()[2], int(vit.nodes().size())}};
  for (const std::span<const Slice> owned : {std::span<const Slice>(), {stages}}) {
    vit.finish(owned);
    constexpr size_t chunk = OptimizerUpdate::decay_chunk;
    std::vector<bool> marked(vit.arena_count());
    for (const ParameterInfo& p : vit.parameters())
      if (p.fp32 && p.owned())
        std::fill_n(marked.begin() + ptrdiff_t(p.offset), (p.count() + chunk - 1) / chunk * chunk,
                    true);
    std::vector<size_t> before = {0};
    for (const bool mark : marked) before.push_back(before.back() + mark);
    for (size_t end = 0; end < before.size(); ++end) ASSERT_EQ(vit.fp32_count(end), before[end]);
    EXPECT_EQ(vit.fp32_count(), before.back());
    for (const ParameterInfo& p : vit.parameters())
      EXPECT_EQ(p.fp32_offset, p.fp32 && p.owned() ? before[p.offset] : ParameterInfo::elsewhere)
          << p.name;
  }
}

class Channels : public testing::TestWithParam<DeviceKind> {};

TEST_P(Channels, ChangeNoBit) {
  if (!is_built(GetParam())) GTEST_SKIP() << "not built";
  const std::string device = GetParam() == DeviceKind::cpu ? "cpu" : "simt";
  Child launcher([&] { return launch_workers(2, "channels " + device); });
  const Ending ending = launcher.wait();
  EXPECT_EQ(ending.code, 0) << ending.errors;
}

INSTANTIATE_TEST_SUITE_P(Devices, Channels, testing::Values(DeviceKind::cpu, DeviceKind::simt),
                         [](const auto& test) {
                           return test.param == DeviceKind::cpu ? "cpu" : "simt";
                         });

}  // namespace
}  // namespace bv::test
