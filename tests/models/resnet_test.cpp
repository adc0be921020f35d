// Tests specific to residual networks: names and counts, running statistics, batch norm over
// several processes, refusals.
#include "models/resnet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "engine/options/augmentation.h"
#include "engine/setup/setup.h"
#include "engine/training/trainer.h"
#include "kernels/devices/devices.h"
#include "kernels/philox.h"
#include "tests/comm/processes.h"
#include "tests/comm/workers.h"
#include "tests/models/small_resnet.h"
#include "tests/square_input.h"

namespace bv::test {
namespace {

constexpr int size = 12, classes = 5;

struct Settings {
  DeviceKind device = DeviceKind::cpu;
  int batch = 6;  // over all processes
  bool sync = false, recompute = false;
};

// One of the processes that train together on the images of one global batch.
class Rig {
 public:
  Rig(const Settings& s, Communicator* communicator, Backend& backend)
      : rank_(communicator ? communicator->rank() : 0),
        local_(s.batch / (communicator ? communicator->size() : 1)),
        batch_(s.batch),
        graph(small_resnet(square_input(local_, size), DType::fp32, classes,
                           s.sync && communicator ? communicator->size() : 1)),
        trainer(backend, communicator, graph,
                {.optimizer = {.momentum = .9f, .weight_decay = 5e-4f, .kind = OptimizerKind::sgd},
                 .decay_all = true,
                 .local_batch = local_,
                 .height = size,
                 .width = size,
                 .accumulate = 1,
                 .sync = {.bucket_bytes = 1 << 12, .sync_batchnorm = s.sync},
                 .recompute = s.recompute,
                 .seed = 0}) {
    trainer.allocate();
    trainer.parameters().initialise(3);
  }

  UpdateResult update(uint32_t number, double lr) {
    std::vector<uint8_t> images;
    std::vector<int32_t> labels;
    const uint32_t pixels = size * size * 3;
    for (int b = rank_ * local_; b < (rank_ + 1) * local_; ++b) {
      for (uint32_t i = 0; i < pixels; ++i)
        images.push_back(static_cast<uint8_t>(
            philox(7, static_cast<uint32_t>(b) * pixels + i, number, 0, random_data).at[0]));
      labels.push_back((3 * static_cast<int>(number) + 2 * b) % classes);
    }
    const std::vector<Crop> crops(static_cast<size_t>(local_));
    trainer.step().micro_step({.images = images.data(),
                               .crops = crops.data(),
                               .labels = labels.data(),
                               .height = size,
                               .width = size,
                               .count = local_,
                               .position = 0,
                               .wait_seconds = 0},
                              {.epoch = 0, .first = true, .last = true, .stop = false});
    trainer.wait_for_upload();
    trainer.step().start_update(lr, batch_);
    return trainer.step().finish_update();
  }
  std::map<std::string, HostTensor> weights() { return trainer.parameters().get_weights(); }

 private:
  int rank_, local_, batch_;
  Graph graph;

 public:
  Trainer trainer;
};

using Weights = std::map<std::string, HostTensor>;
constexpr int steps = 3;
constexpr double lr = 0.05;

Weights trained_alone(const Settings& s) {
  const auto backend = make_backend(s.device, {.index = 0, .threads = 1});
  Rig rig(s, nullptr, *backend);
  for (uint32_t i = 0; i < steps; ++i) rig.update(i, lr);
  return rig.weights();
}

// The largest distance of an element from `want`, relative to its tensor's largest element.
double distance(const Weights& got, const Weights& want) {
  double worst = 0;
  for (const auto& [name, tensor] : want) {
    double largest = 1e-3, error = 0;
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      largest = std::max<double>(largest, std::fabs(tensor.data[i]));
      const double e = std::fabs(tensor.data[i] - got.at(name).data[i]);
      error = e <= error ? error : e;  // keeps NaN
    }
    if (!(error / largest <= worst)) worst = error / largest;
  }
  return worst;
}

void expect_of_ranks(int ranks, const std::string& worker) {
  const Ending ending = Child([=] { return launch_workers(ranks, worker); }).wait();
  EXPECT_EQ(ending.code, 0) << ending.errors;
}

TEST(Resnet, SyncedBatchNormOnSeveralProcessesIsThatOfOne) {
  for (const std::string ranks : {"2", "3"})
    for (const std::string device : {"cpu", "simt"})
      if (device == "cpu" || is_built(DeviceKind::simt))
        expect_of_ranks(std::stoi(ranks), "synced-batchnorm " + device);
}

// Without --sync-bn, each process uses its own batch's statistics, and running statistics are
// averaged: for the first layer's means, this is the mean over all images.
TEST(Resnet, RunningStatisticsAreTheMeanOverTheProcesses) {
  expect_of_ranks(2, "mean-statistics cpu");
  if (is_built(DeviceKind::simt)) expect_of_ranks(2, "mean-statistics simt");
}

TEST(Resnet, RecomputedBlocksGiveTheSameBitsAndStatistics) {
  const Weights kept = trained_alone({}), again = trained_alone({.recompute = true});
  for (const auto& [name, tensor] : kept) EXPECT_EQ(tensor.data, again.at(name).data) << name;
}

TEST(Resnet, OverfitsOneBatchAndThenKnowsIt) {
  const auto backend = make_backend(DeviceKind::cpu, {.index = 0, .threads = 1});
  Rig rig({}, nullptr, *backend);
  const UpdateResult first = rig.update(0, lr);
  UpdateResult last;
  for (int i = 0; i < 60; ++i) last = rig.update(0, lr);
  EXPECT_GT(first.loss_sum / first.count, 1);
  EXPECT_LT(last.loss_sum / last.count, .05);
}

// ---- the real models ----------------------------------------------------------------------------

Graph graph_of(const std::string& name, int batch, int image, int parts = 1) {
  const ModelConfig m = load_model_config(name);
  Options o;
  o.image_size = image;
  o.mean = m.mean, o.std = m.std;
  o.sync_bn = parts > 1;
  resolve_augmentation(o, DataKind::synthetic);
  return build_graph(o, m, DataKind::synthetic, DType::fp32, batch, 1000, parts);
}

TEST(Resnet, HasTorchvisionsParameters) {
  for (const auto& [name, count, buffers] : {std::tuple{"resnet18", 11689512u, 9600u},
                                             {"resnet34", 21797672u, 17024u},
                                             {"resnet50", 25557032u, 53120u},
                                             {"resnet101", 44549160u, 105344u},
                                             {"resnet152", 60192808u, 151424u},
                                             {"resnext50_32x4d", 25028904u, 68224u}}) {
    const Graph g = graph_of(name, 2, 64);
    EXPECT_EQ(g.parameter_count(), count);
    size_t running = 0;
    for (const ParameterInfo& s : g.buffers()) running += s.count();
    EXPECT_EQ(running, buffers) << name;
  }
  std::set<std::string> names;
  const Graph g = graph_of("resnet50", 2, 64);
  for (const auto* infos : {&g.parameters(), &g.buffers()})
    for (const ParameterInfo& p : *infos) names.insert(p.name);
  for (const char* name : {"conv1.weight", "bn1.bias", "bn1.running_var",
                           "layer1.0.downsample.0.weight", "layer1.0.downsample.1.running_mean",
                           "layer3.5.conv3.weight", "layer4.2.bn3.weight", "fc.bias"})
    EXPECT_TRUE(names.contains(name)) << name;
}

std::string refusal(const std::string& model, int batch, int image, int parts) {
  try {
    graph_of(model, batch, image, parts);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Resnet, OneValueHasNoVariance) {
  EXPECT_EQ(
      refusal("resnet34", 1, 32, 1),
      "layer4.0.bn1 has a single value per channel (1x1 positions, one image), so its variance "
      "is undefined; train on 2 images or more per process (--local-batch 2), or on larger "
      "ones (--image-size)");
  EXPECT_EQ(refusal("resnet34", 1, 33, 1), "accepted");
  EXPECT_EQ(refusal("resnet34", 1, 32, 2), "accepted");  // --sync-bn
  EXPECT_EQ(refusal("resnet34", 2, 32, 1), "accepted");
}

// Batch norm over all processes must give the weights and statistics of one process with all
// images.
int synced_batchnorm(Communicator& peers, Backend& backend, DeviceKind device) {
  const Settings s{.device = device, .sync = true};
  Rig rig(s, &peers, backend);
  for (uint32_t i = 0; i < steps; ++i) rig.update(i, lr);
  const double d = distance(rig.weights(), trained_alone(s));
  std::fprintf(stderr, "distance %g\n", d);
  return d <= 1e-5 ? 0 : 1;
}

// Without batch norm over all processes, running statistics are the mean over the processes.
int mean_statistics(Communicator& peers, Backend& backend, DeviceKind device) {
  const Settings s{.device = device};
  Rig own(s, &peers, backend);
  own.update(0, lr);
  const Weights got = own.weights();
  for (const auto& [name, tensor] : got)
    for (const float x : tensor.data)
      if (peers.all_reduce_scalar(x) != 2.0 * x) return 1;  // all ranks have the same
  const auto another = make_backend(device, {.index = 0, .threads = 1});
  Rig alone(s, nullptr, *another);
  alone.update(0, lr);
  const std::string mean = "stem.bn.running_mean", deep = "down.3.bn.running_mean";
  const Weights want = alone.weights();
  if (!(distance({{mean, got.at(mean)}}, {{mean, want.at(mean)}}) < 1e-5)) return 2;
  return distance({{deep, got.at(deep)}}, {{deep, want.at(deep)}}) > 1e-3 ? 0 : 3;
}
[[maybe_unused]] const bool added = add_worker("synced-batchnorm", on_device<synced_batchnorm>) &&
                                    add_worker("mean-statistics", on_device<mean_statistics>);

}  // namespace
}  // namespace bv::test
