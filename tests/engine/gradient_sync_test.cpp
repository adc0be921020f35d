// Two processes that train on several channels: as on one, bit for bit, whatever the streams' order.
#include "engine/training/gradient_sync.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>

#include "engine/training/trainer.h"
#include "kernels/comm/shared_region.h"
#include "kernels/devices/devices.h"
#include "tests/models/small_vit.h"
#include "tests/processes/processes.h"
#ifdef BAREVISION_SIMT
#include "kernels/simt/device/control.h"
#endif

namespace bv::test {
namespace {

constexpr int batch = 2, size = 8;

std::map<std::string, HostTensor> trained(Backend& backend, Communicator& peers, const Graph& graph,
                                          int channels) {
  TrainerOptions options{.local_batch = batch,
                         .height = size,
                         .width = size,
                         .accumulate = 1,
                         .sync = {.bucket_bytes = 4096, .channels = channels},
                         .seed = 7};
  options.optimizer.kind = OptimizerKind::adamw;
  Trainer trainer(backend, &peers, graph, options);
  trainer.allocate();
  trainer.parameters().initialise(3);
  trainer.set_state({.loss_scale = 1});
  std::vector<uint8_t> images(batch * size * size * 3);
  for (size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<uint8_t>(i * 7 + size_t(peers.rank()) * 31);
  const std::vector<Crop> crops(batch);
  const std::vector<int32_t> labels{0, 1 + peers.rank()};
  for (uint32_t step = 0; step < 3; ++step) {
    trainer.wait_for_upload();
    trainer.micro_step({.images = images.data(),
                        .crops = crops.data(),
                        .labels = labels.data(),
                        .count = batch,
                        .position = step,
                        .wait_seconds = 0},
                       {.epoch = 0, .first = true, .last = true, .stop = false});
    trainer.start_update(1e-3, batch * peers.size());
    trainer.finish_update();
  }
  return trainer.parameters().get_weights();
}

bool same_bits(const std::map<std::string, HostTensor>& a,
               const std::map<std::string, HostTensor>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.data.size() == y.second.data.size() &&
           std::memcmp(x.second.data.data(), y.second.data.data(),
                       x.second.data.size() * sizeof(float)) == 0;
  });
}

class Channels : public testing::TestWithParam<DeviceKind> {};

TEST_P(Channels, ChangeNoBit) {
  if (!is_built(GetParam())) GTEST_SKIP() << "not built";
  const SharedRegion region = SharedRegion::create(2);
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.push_back(std::make_unique<Child>([&, rank] {
      const auto backend = make_backend(GetParam(), {.index = rank, .threads = 1, .overlap = true});
      const auto peers = make_communicator(
          GetParam(), *backend,
          {.place = {.rank = rank, .size = 2, .timeout = 20, .supervised = false},
           .fd = region.fd(),
           .host_comm = make_shared_memory_communicator(
               {.rank = rank, .size = 2, .fd = region.fd(), .bucket_bytes = 4096})},
          false);
      const Graph graph = small_vit(batch).graph;
      const auto wanted = trained(*backend, *peers, graph, 1);
      for (unsigned seed = 0; seed < 20; ++seed) {
#ifdef BAREVISION_SIMT
        simt::stream_seed = seed + 3 * unsigned(rank);
#endif
        if (!same_bits(trained(*backend, *peers, graph, 1 + int(seed % 4)), wanted)) return 1;
      }
      return 0;
    }));
  expect_all_end_well(ranks);
}

INSTANTIATE_TEST_SUITE_P(Devices, Channels, testing::Values(DeviceKind::cpu, DeviceKind::simt),
                         [](const auto& test) {
                           return test.param == DeviceKind::cpu ? "cpu" : "simt";
                         });

}  // namespace
}  // namespace bv::test
