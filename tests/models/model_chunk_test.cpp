// Graph, memory plan and stages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/model/parameters.h"
#include "engine/options/model_config.h"
#include "engine/training/trainer.h"
#include "models/graph/node_shapes.h"
#include "tests/models/counting_backend.h"
#include "tests/models/small_resnet.h"
#include "tests/models/small_vit.h"

namespace bv::test {
namespace {

int node_count(const Graph& graph) { return static_cast<int>(graph.nodes().size()); }

Graph model_graph(const char* name, int batch, int classes) {
  const ModelConfig m = load_model_config(name);
  return build_vit(std::any_cast<const VitConfig&>(m.sizes), {.classes = classes},
                   {.B = batch,
                    .height = m.image_size,
                    .width = m.image_size,
                    .size = m.image_size,
                    .patch = m.patch_size,
                    .mean = {},
                    .std = {1, 1, 1}},
                   DType::fp32);
}

TrainerOptions adamw(int batch, int size) {
  return {.optimizer = numbers_of(OptimizerKind::adamw, .05f),
          .local_batch = batch,
          .height = size,
          .width = size,
          .accumulate = 1,
          .sync = {.bucket_bytes = 1 << 20}};
}

// The number of a layer determines its dropout masks.
TEST(LayerNumber, CountsTheLayersOfFusedNodes) {
  Graph g(DType::fp32);
  g.add({.name = "linear with GELU", .type = "linear", .layers = 2});
  EXPECT_EQ(layer_number(g), 2u);
  g.add({.name = "linear", .type = "linear"});
  EXPECT_EQ(layer_number(g), 3u);
}

TEST(Models, HaveTimmsParameterCounts) {
  EXPECT_EQ(model_graph("vit_tiny", 1, 1000).parameter_count(), 5717416u);
  EXPECT_EQ(model_graph("vit_small", 1, 1000).parameter_count(), 22050664u);
  EXPECT_EQ(model_graph("vit_base", 1, 1000).parameter_count(), 86567656u);
  EXPECT_EQ(model_graph("vit_large", 1, 1000).parameter_count(), 304326632u);
  EXPECT_EQ(model_graph("vit_tiny_distilled", 1, 1000).parameter_count(), 5910800u);
  EXPECT_EQ(model_graph("vit_large_distilled", 1, 1000).parameter_count(), 305353680u);
}

void expect_apart(Passes passes) {
  SCOPED_TRACE(passes == Passes::both        ? "both passes"
               : passes == Passes::recompute ? "recompute"
                                             : "forward alone");
  const auto backend = make_cpu_backend(1, false);
  const Graph vit = small_vit(4, {.drop_rate = .1f, .attn_drop_rate = .1f, .drop_path_rate = .2f});
  const Layout layout = plan_stage(vit, backend->kernels(), 0, node_count(vit), passes);
  const auto& places = layout.places;
  size_t in_all = 0, pairs = 0;
  for (size_t a = 0; a < places.size(); ++a) {
    if (places[a].kind == Layout::Place::scratch) in_all += places[a].bytes;
    EXPECT_EQ(places[a].offset % 256, 0u);
    for (size_t b = 0; b < a; ++b) {
      if (places[a].kind != places[b].kind || places[a].kind == Layout::Place::absent) continue;
      const bool together = places[a].kind == Layout::Place::saved ||
                            overlap(places[a].live_ranges, places[b].live_ranges);
      if (!together) continue;
      ++pairs;
      EXPECT_TRUE(places[a].offset + places[a].bytes <= places[b].offset ||
                  places[b].offset + places[b].bytes <= places[a].offset)
          << vit.tensors()[a].name << " and " << vit.tensors()[b].name;
    }
  }
  EXPECT_GT(pairs, 100u);
  EXPECT_LT(layout.scratch_bytes, in_all / 2) << "scratch memory is shared";
}

TEST(Plan, StoragesThatLiveTogetherDoNotOverlap) {
  for (const Passes passes : {Passes::both, Passes::recompute, Passes::forward})
    expect_apart(passes);
}

TEST(Plan, RecomputedBlocksKeepWhatEntersThem) {
  const auto backend = make_cpu_backend(1, false);
  const Graph graph = model_graph("vit_large", 2, 10);
  const auto plan = [&](Passes passes) {
    return plan_stage(graph, backend->kernels(), 0, node_count(graph), passes);
  };
  const Layout kept = plan(Passes::both), recomputed = plan(Passes::recompute);
  EXPECT_TRUE(kept.recomputes.empty());
  ASSERT_EQ(recomputed.recomputes.size(), 23u);
  for (const Layout::Recompute& r : recomputed.recomputes) {
    EXPECT_EQ(graph.nodes()[static_cast<size_t>(r.end)].name.substr(0, 7), "blocks.");
    EXPECT_LT(r.end, r.before) << "the last product is for the next block alone";
  }
  // A block has about 16 tensors of its input's size; two are kept.
  EXPECT_LT(recomputed.saved_bytes, kept.saved_bytes / 4);
  EXPECT_LT(recomputed.saved_bytes + recomputed.scratch_bytes,
            (kept.saved_bytes + kept.scratch_bytes) / 3);
}

// A convolution's backward computes the sums of the batch norm before it, unless the batch norm is
// in another process.
TEST(Plan, FusesBackwardsWithinASlice) {
  const Graph graph = small_resnet(square_input(2, 32, 1), DType::fp32, small_classes);
  const int cut = graph.cuts()[1], count = node_count(graph);
  const Node &norm = graph.nodes()[static_cast<size_t>(cut) - 1],
             &reader = graph.nodes()[static_cast<size_t>(cut)];
  ASSERT_TRUE(reader.fused_backward);
  EXPECT_EQ(&graph.backward(cut, {0, count}), &reader.fused_backward);
  EXPECT_EQ(&graph.backward(cut - 1, {0, count}), &reader.fused_previous);
  EXPECT_EQ(&graph.backward(cut, {cut, count}), &reader.backward);
  EXPECT_EQ(&graph.backward(cut - 1, {cut, count}), &norm.backward);
  EXPECT_EQ(&graph.backward(cut - 1, {0, cut}), &norm.backward);
  EXPECT_EQ(&graph.backward(cut, {0, cut}), &reader.backward);
}

const Node& node_of(const Graph& graph, const std::string& name) {
  return *std::ranges::find(graph.nodes(), name, &Node::name);
}

// The second layer's backward also computes the GELU's backward, with its dropout.
TEST(Plan, AnMlpsSecondLayerFusesTheGelusBackward) {
  for (const float drop : {0.0f, .1f}) {
    const Graph graph = small_vit(1, {.proj_drop_rate = drop});
    const Node &first = node_of(graph, "blocks.0.mlp.fc1"),
               &second = node_of(graph, "blocks.0.mlp.fc2");
    const int count = node_count(graph);
    ASSERT_EQ(&second, &first + 1);
    const auto at = static_cast<int>(&first - graph.nodes().data());
    EXPECT_TRUE(graph.fused(at + 1));
    EXPECT_EQ(&graph.backward(at, {at, count}), &second.fused_previous);
    // If the slice includes the layer norm before the MLP, more is fused.
    EXPECT_EQ(&graph.backward(at, {0, count}), &second.fused_middle);
    EXPECT_EQ(&graph.backward(at - 1, {0, count}), &first.fused_previous);
    EXPECT_EQ(&graph.backward(at - 1, {0, at}), &node_of(graph, "blocks.0.norm2").backward);
  }
}

TEST(Plan, LinearsComputeTheBackwardOfTheLayerNormsThatTheyRead) {
  const auto linears = [](const GraphOptions& options) {
    const Graph graph = small_vit(1, options);
    std::string names;
    for (int i = 0; i < node_count(graph); ++i)
      if (graph.fused(i) &&
          graph.nodes()[static_cast<size_t>(i - 1)].type == std::string("layernorm"))
        names += graph.nodes()[static_cast<size_t>(i)].name + " ";
    return names;
  };
  const std::string block = "blocks.0.attn.qkv blocks.0.mlp.fc1 ";
  EXPECT_EQ(linears({}), block + "head ");
  EXPECT_EQ(linears({.drop_rate = .1f}), block);
}

// If blocks are recomputed, a block's first layer norm is an exception: the linear layer is in the
// previous block.
TEST(Plan, LayerNormsComputeTheForwardOfTheLinearsThatTheyAdd) {
  const Graph graph = small_vit(2);
  const int count = node_count(graph);
  const auto at = [&](const std::string& name) {
    return static_cast<int>(&node_of(graph, name) - graph.nodes().data());
  };
  const std::pair<std::string, std::string> pairs[] = {{"blocks.0.attn.proj", "blocks.0.norm2"},
                                                       {"blocks.0.mlp.fc2", "blocks.1.norm1"},
                                                       {"blocks.1.mlp.fc2", "norm"}};
  for (const auto& [linear, norm] : pairs)
    for (const bool repeats : {false, true}) {
      const bool fused = !repeats || norm != "blocks.1.norm1";
      const auto pass = [&](const std::string& name, Slice slice) {
        return &graph.forward(at(name), slice, repeats);
      };
      const Node &first = node_of(graph, linear), &second = node_of(graph, norm);
      EXPECT_EQ(pass(linear, {0, count}) == &first.forward, !fused) << linear;
      EXPECT_EQ(pass(norm, {0, count}), fused ? &second.fused_forward : &second.forward) << norm;
      EXPECT_EQ(pass(linear, {0, at(norm)}), &first.forward) << linear;
      EXPECT_EQ(pass(norm, {at(norm), count}), &second.forward) << norm;
    }
  const Graph dropped = small_vit(1, {.proj_drop_rate = .1f});
  EXPECT_TRUE(node_of(dropped, "blocks.0.norm2").fused_forward) << "dropout is the norm's";
  EXPECT_TRUE(std::ranges::none_of(
      dropped.nodes(), [](const Node& n) { return n.type == std::string_view("dropout"); }));
}

TEST(Plan, ALinearsGeluStoresItsInputForABackwardAlone) {
  const auto backend = make_cpu_backend(1, false);
  const Graph graph = small_vit(2);
  const auto kind = [&](Passes passes, const char* name) {
    const Layout layout = plan_stage(graph, backend->kernels(), 0, node_count(graph), passes);
    const auto t = std::ranges::find(graph.tensors(), name, &TensorInfo::name);
    return layout.places[static_cast<size_t>(t - graph.tensors().begin())].kind;
  };
  EXPECT_EQ(kind(Passes::both, "blocks.0.mlp.fc1"), Layout::Place::saved);
  EXPECT_EQ(kind(Passes::forward, "blocks.0.mlp.fc1"), Layout::Place::absent);
  EXPECT_EQ(kind(Passes::forward, "blocks.0.mlp.fc1 gelu"), Layout::Place::scratch);
}

// The fused backward of a block's first node needs the input of the previous block's last batch
// norm, so the previous block must be recomputed before that backward.
TEST(Plan, RecomputedBlocksThatEndInABatchNormRunBeforeItsReader) {
  const auto backend = make_cpu_backend(1, false);
  const Graph graph = small_resnet(square_input(2, 32, 1), DType::fp32, small_classes);
  const Layout layout =
      plan_stage(graph, backend->kernels(), 0, node_count(graph), Passes::recompute);
  ASSERT_EQ(layout.recomputes.size(), 1u);
  const Layout::Recompute& r = layout.recomputes[0];
  EXPECT_EQ(r.cut, graph.cuts()[1]);
  EXPECT_EQ(r.before, r.cut + 1);
  const auto place = [&](const std::string& name) {
    const auto t = std::ranges::find(graph.tensors(), name, &TensorInfo::name);
    return layout.places[static_cast<size_t>(t - graph.tensors().begin())];
  };
  const Layout::Place read = place("plain.2.conv"), out = place("plain.2.bn");
  ASSERT_EQ(read.live_ranges.size(), 2u);
  EXPECT_LT(read.live_ranges[0].last, r.cut);
  EXPECT_GE(read.live_ranges[1].first, node_count(graph));
  EXPECT_EQ(out.kind, Layout::Place::saved) << "the next block's input";
}

TEST(Plan, PeakIsWhatIsAllocated) {
  CountingBackend backend;
  const Graph vit = small_vit(2);
  size_t peaks[2];
  for (const bool more : {false, true}) {
    TrainerOptions o = adamw(small_batch, small_size);
    if (more) o.optimizer.ema_rate = .01f, o.layer_decay = .7;
    Trainer trainer(backend, nullptr, vit, o);
    EXPECT_EQ(backend.allocated, 0u);
    trainer.allocate();
    EXPECT_EQ(backend.allocated, trainer.plan().peak());
    EXPECT_EQ(trainer.plan().ema, more ? trainer.plan().weights : 0u);
    peaks[more] = std::exchange(backend.allocated, 0);
  }
  EXPECT_EQ(peaks[1] - peaks[0],
            vit.arena_count() * sizeof(float) + align(layer_scales(vit, 1).size() * sizeof(float)));
}

TEST(Plan, OfALargeModelTakesNoMemory) {
  CountingBackend backend;
  const Graph graph = model_graph("vit_large", 8, 1000);
  const Trainer trainer(backend, nullptr, graph, adamw(8, 224));
  EXPECT_EQ(backend.allocated, 0u);
  EXPECT_GT(trainer.plan().peak(), size_t{4} * 4 * 304326632);
}

// Runs the graph cut at `cut` (0: whole) over four micro-batches; returns loss and gradients.
struct Outcome {
  std::vector<float> losses, gradients;
};
Outcome run_cut(int cut, const GraphOptions& options, bool distilled) {
  constexpr int micro_batches = 4;
  const auto backend = make_cpu_backend(2, false);
  const Graph vit = small_vit(3, options, distilled);
  Parameters parameters(*backend, vit, 0);
  parameters.allocate();
  parameters.initialise(5);
  std::vector<ModelChunk> stages;
  const int nodes = node_count(vit);
  if (cut > 0) stages.emplace_back(*backend, vit, 0, cut, micro_batches);
  stages.emplace_back(*backend, vit, cut, nodes, micro_batches);
  for (ModelChunk& stage : stages) stage.allocate();

  StepParams params{.grad_scale = 1, .divisor = 1, .count = small_batch};
  UpdateState state{.loss_scale = 1};
  std::vector<SmallBatch> batches;
  for (uint32_t i = 0; i < micro_batches; ++i) batches.emplace_back(i);
  const auto run = [&](int micro) {
    const SmallBatch& batch = batches[static_cast<size_t>(micro)];
    Context r;
    r.weights = parameters.weights();
    r.compute_weights = parameters.compute_weights();
    r.grads = parameters.grads();
    r.params = &params;
    r.state = &state;
    r.images = batch.images.data();
    r.crops = batch.crops.data();
    r.labels = batch.labels.data();
    r.accumulate = micro > 0;
    return r;
  };
  const auto move = [&](ModelChunk& from, ModelChunk& to, const std::vector<int>& storages,
                        int slot) {
    EXPECT_FALSE(storages.empty());
    for (const int s : storages)
      std::memcpy(to.place(slot, s), from.place(slot, s),
                  vit.tensors()[static_cast<size_t>(s)].bytes());
  };

  Outcome outcome;
  for (int i = 0; i < micro_batches; ++i) {  // all in flight before the first backward
    stages[0].forward(run(i), i);
    if (cut > 0) move(stages[0], stages[1], stages[1].layout().inputs, i);
    if (cut > 0) stages[1].forward(run(i), i);
    const auto* losses = reinterpret_cast<const float*>(stages.back().place(i, vit.loss()));
    outcome.losses.insert(outcome.losses.end(), losses, losses + small_batch);
  }
  for (int i = 0; i < micro_batches; ++i) {
    stages.back().backward(run(i), i);
    if (cut > 0) move(stages[1], stages[0], stages[0].layout().output_grads, i);
    if (cut > 0) stages[0].backward(run(i), i);
  }
  outcome.gradients.assign(parameters.grads(), parameters.grads() + vit.arena_count());
  return outcome;
}

TEST(Stages, EveryCutGivesTheWholeGraphsLossAndGradients) {
  for (const auto& [options, distilled] : {std::pair{GraphOptions{}, false},
                                           {GraphOptions{}, true},
                                           {GraphOptions{.representation_size = 7}, false}}) {
    const Outcome whole = run_cut(0, options, distilled);
    double norm = 0;
    for (const float g : whole.gradients) norm += double(g) * g;
    EXPECT_GT(norm, 1e-6);
    const Graph vit = small_vit(3, options, distilled);
    ASSERT_EQ(vit.cuts().size(), 3u);
    for (const int cut : vit.cuts()) {
      SCOPED_TRACE("cut before node " + std::to_string(cut));
      const Outcome halves = run_cut(cut, options, distilled);
      EXPECT_EQ(halves.losses, whole.losses);
      EXPECT_EQ(halves.gradients, whole.gradients);
    }
  }
}

TEST(Stages, BordersAgree) {
  const auto backend = make_cpu_backend(1, false);
  for (const Graph& graph :
       {small_vit(3), small_resnet(square_input(2, 32, 1), DType::fp32, small_classes)})
    for (const int cut : graph.cuts()) {
      const Layout a = plan_stage(graph, backend->kernels(), 0, cut);
      const Layout b = plan_stage(graph, backend->kernels(), cut, node_count(graph));
      EXPECT_EQ(a.outputs, b.inputs);
      EXPECT_EQ(a.output_grads, b.input_grads);
      EXPECT_EQ(a.output_grads.size(), 1u) << "no sums of a batch norm";
    }
}

}  // namespace
}  // namespace bv::test
