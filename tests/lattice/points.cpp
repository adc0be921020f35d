#include "tests/lattice/points.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace bv::test {
namespace {

using enum Changes;

constexpr Choice all_choices[] = {
    {"plain", "kernels", "--kernels plain", rounding},
    {"hopper", "kernels", "--kernels hopper", rounding},
    {"cudnn", "conv", "--conv cudnn", rounding},
    {"zero", "zero", "--zero 1", nothing},
    {"shards2", "shards", "--shards 2", rounding},
    {"shards4", "shards", "--shards 4", rounding},
    {"chunks2", "chunks", "--chunks 2", nothing},
    {"streams3", "streams", "--comm-streams 3 --bucket-bytes 131072", nothing},
    {"recompute", "recompute", "--recompute blocks", nothing},
    {"nograph", "graphs", "--no-graph", nothing},
    // Epochs in fp32, in 16 bits and in fp32.
    {"amp", "amp", "--amp-policy 0 --amp-start 2 --amp-end 2", result},
    {"ampall", "amp", "--amp-policy 0 --amp-start 0 --amp-end 9", nothing},
    {"ampnone", "amp", "--amp-policy 0 --amp-start 8 --amp-end 9", nothing},
    // Interrupted in the middle of an epoch, and resumed; moves: by turns in the point's form and
    // in its base's.
    {"resume", "resume", "", nothing},
    {"moves", "resume", "", nothing},
    {"oversubscribe", "oversubscribe", "--oversubscribe", rounding},
    {"reducebf16", "reduce", "--reduce-dtype bf16", rounding},
    {"reducefp16", "reduce", "--reduce-dtype fp16", rounding},
    {"syncbn", "sync_bn", "--sync-bn", result},
    {"sgd", "optimizer", "--optimizer sgd --lr .02", result},
    {"layerdecay", "layer_decay", "--layer-decay .8", result},
    {"scale256", "loss_scale", "--loss-scale 256", result},
};

constexpr std::string_view devices[] = {"cpu", "simt", "cuda"};
constexpr std::string_view precisions[] = {"fp32", "fp16", "bf16"};

std::vector<std::string> split(const std::string& name) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('_', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The N of "pipelineN"; 0 if the part is another choice.
int number_in(const std::string& part, std::string_view word) {
  if (!part.starts_with(word) || part.size() != word.size() + 1) return 0;
  const char digit = part.back();
  return digit >= '1' && digit <= '9' ? digit - '0' : 0;
}

}  // namespace

std::span<const Choice> choices() { return all_choices; }

bool Point::has(std::string_view choice) const {
  return std::ranges::any_of(chosen, [&](const Choice* c) { return c->name == choice; });
}

Point point_of(const std::string& name) {
  const auto fail = [&](const std::string& why) { throw std::invalid_argument(name + ": " + why); };
  const std::vector<std::string> parts = split(name);
  Point p{.name = name, .device = parts[0]};
  size_t i = 1;  // a model's name has underscores, too: it ends before the precision
  for (; i < parts.size() && !std::ranges::count(precisions, parts[i]); ++i)
    p.model += (p.model.empty() ? "" : "_") + parts[i];
  if (!std::ranges::count(devices, p.device) || p.model.empty() || i == parts.size())
    fail("must begin with DEVICE_MODEL_PRECISION");
  p.precision = parts[i];
  while (++i < parts.size()) {
    if (const int n = number_in(parts[i], "n")) {
      p.processes = n;
    } else if (const int stages = number_in(parts[i], "pipeline")) {
      p.stages = stages;
    } else {
      const Choice* const c = std::ranges::find(all_choices, parts[i], &Choice::name);
      if (c == std::end(all_choices)) fail("unknown choice " + parts[i]);
      p.chosen.push_back(c);
    }
  }
  if (p.processes % p.stages != 0) fail("its stages don't divide its processes");
  const bool convolves = p.device == "simt" && !p.model.starts_with("vit");
  if (p.has("hopper") || p.has("plain") || convolves) p.accumulate = 1;  // a batch takes seconds
  if (p.has("hopper") || convolves) p.epochs = 1;
  if (p.has("amp")) ++p.epochs;
  // With shards, there are as many micro-batches. Else of two images each, the batch of 8 of all.
  const bool sharded = p.has("shards2") || p.has("shards4");
  if (p.stages > 1 && !sharded) p.micro_batches = 4 * p.stages / p.processes;
  return p;
}

Point base_of(const Point& p) {
  Point base = p;
  std::erase_if(base.chosen, [](const Choice* c) { return c->changes == nothing; });
  base.processes = p.has("shards2") || p.has("shards4") ? 1 : p.processes / p.stages;
  base.stages = 1;
  if (p.has("ampnone")) base.precision = "fp32";
  return base;
}

Point reference_of(const Point& p) {
  Point base = base_of(p);
  std::erase_if(base.chosen, [](const Choice* c) { return c->changes == rounding; });
  base.device = "cpu";
  base.precision = "fp32";
  base.processes = 1;
  return base;
}

// Two batches of 8 images for the first update, if two are accumulated, and one for the second.
int training_images(const Point& p) { return 8 * (p.accumulate + 1) + 2; }

std::string words_of(const Point& p) {
  std::string words = "-n " + std::to_string(p.processes) + " " + p.model + " --device " +
                      p.device + " --precision " + p.precision +
                      " --data cifar --image-size 32 --batch 8 --accumulate " +
                      std::to_string(p.accumulate) + " --epochs " + std::to_string(p.epochs) +
                      " --warmup-epochs 0 --ema .9 --clip-grad 1 --augment strong"
                      " --color-jitter .4,.3,.2,.1 --vflip .3 --loss-scale-init 1024"
                      " --loss-scale-growth-interval 2 --log-every 1 --save-every 100 --workers 1"
                      " --tensorboard off --timeout 120";
  if (p.model.starts_with("vit"))
    words +=
        " --patch-size 16 --drop-rate .1 --pos-drop-rate .1 --proj-drop-rate .1"
        " --attn-drop-rate .1 --drop-path-rate .1";
  else if (!p.has("sgd"))
    words += " --lr 1e-3";
  if (p.stages > 1) words += " --pipeline " + std::to_string(p.stages);
  if (p.micro_batches) words += " --micro-batches " + std::to_string(p.micro_batches);
  for (const Choice* c : p.chosen) words += " " + std::string(c->words);
  return words;
}

std::string form_of(const Point& p) {
  return "-n " + std::to_string(p.processes) + " --pipeline " + std::to_string(p.stages) +
         " --zero " + (p.has("zero") ? "1" : "0") + " --chunks " + (p.has("chunks2") ? "2" : "1");
}

}  // namespace bv::test
