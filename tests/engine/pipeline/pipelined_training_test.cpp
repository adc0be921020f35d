// Processes that hold parts of a model train to the same bits as one that holds all of it, and save
// the same files.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>

#include "engine/training/trainer.h"
#include "tests/comm/processes.h"
#include "tests/comm/workers.h"
#include "tests/models/small_resnet.h"
#include "tests/models/small_vit.h"
#ifdef BAREVISION_SIMT
#include "simt/device/control.h"
#endif

namespace bv::test {
namespace {

constexpr int micro_images = 2, micro_steps = 2;

struct Config {
  const char* model;  // "vit" or "resnet"
  int stages, chunks, micro_batches;
  int replicas = 1;
  bool recompute = false, sync_batchnorm = false, overflow = false;
  DType dtype = DType::fp32;
  int head_dim = 8, depth = 8;
};

Graph model(const Config& c) {
  const InputShape input = square_input(micro_images, small_size, small_patch);
  if (c.model[0] == 'r')
    return small_resnet(square_input(micro_images, 32, 1), c.dtype, small_classes,
                        c.sync_batchnorm ? c.replicas : 1);
  return build_vit({.embed_dim = c.head_dim * 2, .depth = c.depth, .heads = 2},
                   {.classes = small_classes,
                    .drop_rate = .1f,
                    .pos_drop_rate = .1f,
                    .proj_drop_rate = .1f,
                    .attn_drop_rate = .1f,
                    .drop_path_rate = .2f,
                    .label_smoothing = .1f},
                   input, c.dtype);
}

// Equal numbers of blocks in each part, with one more in the last parts if needed.
std::vector<Slice> parts_of(const Graph& graph, int count) {
  const int blocks = static_cast<int>(graph.cuts().size()),
            nodes = static_cast<int>(graph.nodes().size());
  const auto begin = [&](int part) {
    if (part == 0) return 0;
    return part == count ? nodes : graph.cuts()[static_cast<size_t>(part * blocks / count)];
  };
  std::vector<Slice> parts;
  for (int i = 0; i < count; ++i) parts.push_back({begin(i), begin(i + 1)});
  return parts;
}

// Images [first, first + count) of batch `number`.
struct Images {
  std::vector<uint8_t> pixels;
  std::vector<Crop> crops;
  std::vector<int32_t> labels;
  std::vector<Mix> mixes;
  int side;

  Images(uint32_t number, int first, int count, int image_side)
      : crops(static_cast<size_t>(count)), side(image_side) {
    const auto pixels_each = static_cast<uint32_t>(side * side * 3);
    for (uint32_t b = uint32_t(first); b < uint32_t(first + count); ++b) {
      for (uint32_t i = 0; i < pixels_each; ++i)
        pixels.push_back(static_cast<uint8_t>(philox(7, i, number, b, random_data).at[0]));
      labels.push_back(static_cast<int32_t>((3 * number + 2 * b) % small_classes));
      mixes.push_back({.lambda = b / 2 % 2 ? 1 : .25f * float(1 + b % 2 * 2)});
    }
  }
  Batch batch(uint32_t position) const {
    return {.images = pixels.data(),
            .crops = crops.data(),
            .ops = nullptr,
            .mixes = mixes.data(),
            .labels = labels.data(),
            .height = side,
            .width = side,
            .count = static_cast<int>(crops.size()),
            .position = position,
            .wait_seconds = 0};
  }
};

struct Outcome {
  Trainer::Saved saved;
  std::vector<double> numbers;  // losses, norms, scales, an evaluation
  std::vector<Prediction> predictions;
  size_t graphs = 0;  // launched by the stand-in in the last update
};

size_t graphs_launched() {
#ifdef BAREVISION_SIMT
  return simt::graph_launches();
#else
  return 0;
#endif
}

// grid: null for a single process with the whole model.
Outcome trained(Backend& backend, Communicator* peers, const Config& c, const Grid* grid) {
  const int replicas = grid ? grid->replicas : c.replicas;
  Graph graph = model(c);
  PipelinePlan plan{.shape = {.micro_batches = c.micro_batches}};
  if (grid) {
    plan.shape = {grid->stages, grid->stages > 1 ? c.chunks : 1, c.micro_batches};
    plan.grid = *grid;
    plan.parts = parts_of(graph, plan.shape.parts());
    graph.finish(plan.own());
  }
  const int share = micro_images * c.micro_batches, side = c.model[0] == 'r' ? 32 : small_size;
  OptimizerUpdate optimizer = numbers_of(OptimizerKind::adamw, .05f);
  optimizer.clip = 1;
  optimizer.ema_rate = .1f;
  const TrainerOptions options{
      .optimizer = optimizer,
      .scaling = {.growth_interval = c.dtype == DType::fp16 ? 2 : 0},
      .local_batch = share,
      .height = side,
      .width = side,
      .mixing = true,
      .accumulate = micro_steps,
      .sync = {.bucket_bytes = 4096, .channels = 2, .sync_batchnorm = c.sync_batchnorm},
      .recompute = c.recompute,
      .seed = 7,
      .pipeline = plan};
  Trainer trainer(backend, peers, graph, options);
  trainer.allocate();
  trainer.parameters().initialise(3);
  trainer.set_state({.loss_scale = c.overflow ? 0x1p24f : c.dtype == DType::fp16 ? 1024.f : 1});
  Outcome outcome;
  const int replica = grid ? grid->replica : 0;
  uint32_t number = 0;
  const auto feed = [&](const auto& use, bool all) {
    const Images images(number, all ? 0 : replica * share, share, side);
    const auto position = number++ * uint32_t(share * replicas) + uint32_t(replica * share);
    Batch batch = images.batch(position);
    if (grid && !grid->first()) batch = {.count = share, .position = position};
    use(batch);
    trainer.wait_for_upload();
  };
  for (int step = 0; step < 3; ++step) {
    const size_t before = graphs_launched();
    for (const bool first : {true, false})
      feed(
          [&](const Batch& b) {
            trainer.step().micro_step(
                b, {.epoch = 0, .first = first, .last = !first, .stop = step == 2 && !first});
          },
          false);
    trainer.step().start_update(1e-3, micro_steps * share * replicas);
    const UpdateResult r = trainer.step().finish_update();
    outcome.graphs = graphs_launched() - before;
    for (const double x : {r.loss_sum, r.count, r.top1, double(r.grad_norm), double(r.skipped),
                           double(r.loss_scale), double(r.stop)})
      outcome.numbers.push_back(x);
    if (step == 1) trainer.saved();  // must not affect training
  }
  for (const bool averaged : {false, true}) {
    trainer.begin_evaluation(averaged, true);
    feed(
        [&](Batch b) {
          b.count = share - 1;
          b.mixes = nullptr;
          trainer.evaluate(b);
        },
        true);
    const EvaluationSums sums = trainer.end_evaluation();
    for (const double x : {sums.loss, sums.count, sums.top1}) outcome.numbers.push_back(x);
  }
  outcome.predictions = trainer.predictions();
  outcome.saved = trainer.saved();
  return outcome;
}

bool same(const Tensors& a, const Tensors& b, const char* what) {
  for (const auto& [name, tensor] : b) {
    const auto found = a.find(name);
    if (found == a.end() || found->second.data.size() != tensor.data.size() ||
        std::memcmp(found->second.data.data(), tensor.data.data(),
                    tensor.data.size() * sizeof(float)) != 0) {
      std::fprintf(stderr, "%s of %s differ\n", what, name.c_str());
      return false;
    }
  }
  if (a.size() != b.size()) std::fprintf(stderr, "%zu %s, not %zu\n", a.size(), what, b.size());
  return a.size() == b.size();
}

bool same(const std::vector<Prediction>& a, const std::vector<Prediction>& b) {
  return std::ranges::equal(a, b, [](const Prediction& x, const Prediction& y) {
    return x.index == y.index && x.label == y.label && x.top == y.top && x.loss == y.loss;
  });
}

bool same(const Outcome& a, const Outcome& b) {
  for (size_t i = 0; i < b.numbers.size(); ++i)
    if (a.numbers[i] != b.numbers[i] && !(std::isnan(a.numbers[i]) && std::isnan(b.numbers[i]))) {
      std::fprintf(stderr, "number %zu is %.9g, not %.9g\n", i, a.numbers[i], b.numbers[i]);
      return false;
    }
  return true;
}

// Trains the whole model in one process or, with replicas, in one process per replica, so that
// gradients are added in the same order.
Outcome trained_whole(Communicator& peers, Backend& backend, const Config& c) {
  if (c.replicas == 1) return trained(backend, nullptr, c, nullptr);
  std::vector<int> ranks;
  const int first = peers.rank() / c.replicas * c.replicas;
  for (int i = 0; i < c.replicas; ++i) ranks.push_back(first + i);
  const auto group = peers.group(ranks);
  const Grid grid = grid_of(group->rank(), c.replicas, 1);
  return trained(backend, group.get(), c, &grid);
}

// A micro-step is one graph; the last one includes the update.
bool all_in_graphs(const Outcome& outcome, DeviceKind device) {
  const size_t wanted = device == DeviceKind::simt ? micro_steps : 0;
  if (outcome.graphs != wanted)
    std::fprintf(stderr, "%zu graphs, not %zu\n", outcome.graphs, wanted);
  return outcome.graphs == wanted;
}

// Chooses an order of the streams and of the threads, different on each rank; 0: the stand-in's
// default order of the streams.
void put_in_order([[maybe_unused]] unsigned number, [[maybe_unused]] int rank) {
#ifdef BAREVISION_SIMT
  simt::stream_seed = number == 0 ? 0 : number + 20 * unsigned(rank);
  simt::order = std::array{simt::Order::forward, simt::Order::reverse,
                           simt::Order::random}[(number + unsigned(rank)) % 3];
#endif
}

// Compares the whole model in one order with the parts in each of these orders.
bool equal_to_the_whole(Communicator& peers, Backend& backend, DeviceKind device, const Config& c,
                        std::span<const unsigned> orders) {
  const Grid grid = grid_of(peers.rank(), peers.size(), c.stages);
  put_in_order(0, 0);
  const Outcome whole = trained_whole(peers, backend, c);
  bool good = all_in_graphs(whole, device);
  for (const unsigned order : orders) {
    put_in_order(order, peers.rank());
    const Outcome parts = trained(backend, &peers, c, &grid);
    bool equal = same(parts, whole) && all_in_graphs(parts, device);
    if (peers.rank() == 0)
      equal = equal && same(parts.saved.weights, whole.saved.weights, "weights") &&
              same(parts.saved.ema, whole.saved.ema, "averages") &&
              same(parts.saved.moments, whole.saved.moments, "moments") &&
              same(parts.predictions, whole.predictions);
    if (!equal)
      std::fprintf(stderr,
                   "rank %d: %s, %d stages x %d replicas, %d chunks, %d micro-batches%s%s, order "
                   "%u\n",
                   peers.rank(), c.model, c.stages, c.replicas, c.chunks, c.micro_batches,
                   c.recompute ? ", recomputed" : "", c.overflow ? ", overflow" : "", order);
    good = good && equal;
  }
  return good;
}

// The configurations of `make test` or, if that is what runs, of `make test-all`.
std::vector<Config> configs(int processes, DeviceKind device) {
  const int P = processes;
  if (std::getenv("BAREVISION_TEST_ALL")) {
    std::vector<Config> all;
    for (const int replicas : {1, 2})
      for (const int chunks : {1, 2})
        for (const bool recompute : {false, true})
          for (const int groups : {1, 3})
            if (P % replicas == 0 && P > replicas)
              all.push_back(
                  {"vit", P / replicas, chunks, groups * (P / replicas), replicas, recompute});
    for (const bool synced : {false, true})
      if (P == 2 || (P == 4 && synced)) all.push_back({"resnet", 2, 1, 4, P / 2, true, synced});
    return all;
  }
  if (P == 4) return {{"vit", 2, 1, 3, 2}, {"resnet", 2, 1, 4, 2, false, true}};
  if (P == 3) return {{"vit", 3, 1, 4, 1, true}, {"vit", 3, 2, 6}};
  std::vector<Config> some{{"vit", 2, 1, 4}, {"resnet", 2, 1, 4, 1, true}, {"vit", 2, 2, 2}};
  if (device == DeviceKind::cpu) return some;
  for (const bool overflow : {false, true})
    some.push_back({.model = "vit",
                    .stages = 2,
                    .chunks = 1,
                    .micro_batches = 2,
                    .overflow = overflow,
                    .dtype = DType::fp16});
  return some;
}

// Stages train to the same bits as one process with the whole model.
int stages_train_as_the_whole(Communicator& peers, Backend& backend, DeviceKind device) {
  bool good = true;
  unsigned number = 0;
  for (Config c : configs(peers.size(), device)) {
    if (device != DeviceKind::cpu) c.head_dim = 32, c.depth = 2 * peers.size();
    ++number;
    good = equal_to_the_whole(peers, backend, device, c, {&number, 1}) && good;
  }
  return good ? 0 : 1;
}

// The same for different orders in which the device may run queued work.
int no_order_changes_a_bit(Communicator& peers, Backend& backend, DeviceKind device) {
  bool good = true;
  for (const int chunks : {1, 2}) {
    const Config c{.model = "vit",
                   .stages = peers.size(),
                   .chunks = chunks,
                   .micro_batches = 2 * peers.size(),
                   .head_dim = 32,
                   .depth = 2 * peers.size()};
    std::vector<unsigned> orders(chunks == 1 ? 60 : 20);
    std::iota(orders.begin(), orders.end(), 1u);
    good = equal_to_the_whole(peers, backend, device, c, orders) && good;
  }
  return good ? 0 : 1;
}

// pipelined DEVICE [staged]
int run_pipelined(const Words& words) {
  return on_device(words, stages_train_as_the_whole, words.size() > 2);
}
[[maybe_unused]] const bool added =
    add_worker("pipelined", run_pipelined) &&
    add_worker("pipelined-orders", on_device<no_order_changes_a_bit>);

class Pipelined : public testing::TestWithParam<DeviceKind> {};

TEST_P(Pipelined, TrainsAsTheWhole) {
  if (!is_built(GetParam())) GTEST_SKIP() << "not built";
  const bool cpu = GetParam() == DeviceKind::cpu;
  for (const int processes : {2, 3, 4}) {
    if (processes > 2 && !cpu && !std::getenv("BAREVISION_TEST_ALL")) continue;
    SCOPED_TRACE(std::to_string(processes) + " processes");
    Child launcher(
        [&] { return launch_workers(processes, cpu ? "pipelined cpu" : "pipelined simt"); });
    const Ending ending = launcher.wait();
    EXPECT_EQ(ending.code, 0) << ending.errors;
  }
}

// 60 orders of the streams with one chunk, 20 with two; the three orders of the threads alternate.
TEST(PipelinedOnSimt, NoOrderChangesABit) {
  if (!is_built(DeviceKind::simt) || !std::getenv("BAREVISION_TEST_ALL"))
    GTEST_SKIP() << "in make test-all, of a build with simt";
  for (const int processes : {2, 3}) {
    SCOPED_TRACE(std::to_string(processes) + " processes");
    Child launcher([&] { return launch_workers(processes, "pipelined-orders simt"); });
    const Ending ending = launcher.wait(1800);
    EXPECT_EQ(ending.code, 0) << ending.errors;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Pipelined, testing::Values(DeviceKind::cpu, DeviceKind::simt),
                         [](const auto& test) {
                           return test.param == DeviceKind::cpu ? "cpu" : "simt";
                         });

}  // namespace
}  // namespace bv::test
