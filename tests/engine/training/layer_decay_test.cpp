// The learning rate of each layer: timm's scales by name, and their effect on an update.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/options/augmentation.h"
#include "engine/setup/setup.h"
#include "models/family.h"
#include "tests/files.h"
#include "tests/models/small_vit.h"

namespace bv::test {
namespace {

TEST(LayerDecay, ScalesAreTimmsByName) {
  const auto file = nlohmann::json::parse(contents("tests/golden/training/layer_decay.json"));
  for (const char* model : {"vit_tiny", "vit_tiny_distilled", "resnet34", "resnet50"}) {
    const ModelConfig config = load_model_config(model);
    Options o;
    o.image_size = 64;
    o.patch_size = config.family->patches ? std::optional(16) : std::nullopt;
    o.mean = config.mean, o.std = config.std;
    resolve_augmentation(o, DataKind::photos);
    const Graph graph = build_graph(o, config, DataKind::photos, DType::fp32, 2, 10, 1);
    const auto scales = layer_scales(graph, file.at("decay"));
    std::map<std::string, double> want;
    for (const auto& [scale, names] : file.at(model).items())
      for (const std::string name : names) want[name] = std::stod(scale);
    ASSERT_EQ(graph.parameters().size(), want.size());
    for (const ParameterInfo& p : graph.parameters()) {
      const size_t first = p.offset / OptimizerUpdate::decay_chunk;
      const size_t last = (p.offset + p.count() - 1) / OptimizerUpdate::decay_chunk;
      for (size_t chunk = first; chunk <= last; ++chunk)
        ASSERT_NEAR(scales[chunk], want.at(p.name), 1e-6 * want.at(p.name))
            << model << " " << p.name;
    }
  }
}

// With SGD, a step is the layer's scale times the step without decay.
TEST(LayerDecay, EachLayerTakesItsShareOfTheStep) {
  std::map<std::string, HostTensor> start, after[2];
  const Graph vit = small_vit(2);
  for (const bool decayed : {false, true}) {
    const auto backend = make_cpu_backend(2, false);
    TrainerOptions o{.optimizer = numbers_of(OptimizerKind::sgd),
                     .layer_decay = decayed ? .5 : 1,
                     .local_batch = small_batch,
                     .height = small_size,
                     .width = small_size,
                     .accumulate = 1,
                     .sync = {.bucket_bytes = 1 << 20}};
    Trainer trainer(*backend, nullptr, vit, o);
    trainer.allocate();
    trainer.parameters().initialise(3);
    start = trainer.parameters().get_weights();
    const SmallBatch b(1);
    trainer.step().micro_step({.images = b.images.data(),
                               .crops = b.crops.data(),
                               .labels = b.labels.data(),
                               .count = small_batch,
                               .position = 0,
                               .wait_seconds = 0},
                              {.epoch = 0, .first = true, .last = true, .stop = false});
    trainer.step().start_update(.5, small_batch);
    trainer.step().finish_update();
    after[decayed] = trainer.parameters().get_weights();
  }
  const std::map<std::string, float> scales = {
      {"patch_embed.proj.weight", .125f}, {"pos_embed", .125f}, {"blocks.0.mlp.fc1.weight", .25f},
      {"blocks.1.attn.qkv.weight", .5f},  {"norm.weight", .5f}, {"head.weight", 1}};
  for (const auto& [name, scale] : scales)
    for (size_t i = 0; i < start.at(name).data.size(); ++i) {
      const float from = start.at(name).data[i];
      ASSERT_NEAR(after[1].at(name).data[i] - from, scale * (after[0].at(name).data[i] - from),
                  1e-6)
          << name;
    }
}

}  // namespace
}  // namespace bv::test
