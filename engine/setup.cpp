#include "engine/setup.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <set>

#include "engine/base/error.h"
#include "engine/options/config.h"
#include "models/resnet.h"
#include "models/vit.h"

namespace bv {
namespace {

// Settles --batch, images of one forward pass over all processes, and each one's share.
void settle_batch(Options& o, int ranks, int64_t images) {
  const auto fits = [](int64_t batch) { return "; " + std::to_string(batch) + " would fit"; };
  const bool stated = o.is_explicit("batch") || o.is_explicit("local_batch");
  int64_t batch = o.local_batch ? int64_t{*o.local_batch} * ranks : o.batch.value_or(64);
  const int64_t largest = images / ranks * ranks;
  if (largest == 0)
    throw UserError("the training data has " + std::to_string(images) + " images, fewer than the " +
                    std::to_string(ranks) + " processes (-n)");
  if (!stated) {
    batch = std::min(std::max<int64_t>(1, batch / ranks) * ranks, largest);
  } else if (batch % ranks && !o.resume.empty()) {
    int fewer = ranks;
    while (batch % fewer) --fewer;
    throw UserError("the batch of " + std::to_string(batch) + " images of the run in " + o.resume +
                    " is not divisible by " + std::to_string(ranks) + " processes; -n " +
                    std::to_string(fewer) + " would fit");
  } else if (batch % ranks) {
    throw UserError("--batch " + std::to_string(batch) + " is not divisible by " +
                    std::to_string(ranks) + " processes" +
                    fits(std::max<int64_t>(batch / ranks, 1) * ranks));
  } else if (batch > images) {
    throw UserError("--batch " + std::to_string(batch) + " is larger than the training data (" +
                    std::to_string(images) + " images)" + fits(largest));
  }
  o.batch = static_cast<int>(batch);
  o.local_batch = static_cast<int>(batch / ranks);
}

DataOptions data_options(const Options& o) {
  return {.path = o.data,
          .val_fraction = o.val_fraction,
          .seed = o.seed,
          .image_size = o.image_size.value_or(0),
          .patch_size = o.patch_size.value_or(0),
          .classes = o.classes};
}

OptimizerOptions optimizer_options(const Options& o) {
  return {.kind = o.optimizer == "sgd"    ? OptimizerKind::sgd
                  : o.optimizer == "adam" ? OptimizerKind::adam
                                          : OptimizerKind::adamw,
          .momentum = static_cast<float>(o.momentum),
          .beta1 = o.betas[0],
          .beta2 = o.betas[1],
          .eps = static_cast<float>(o.eps),
          .weight_decay = static_cast<float>(o.weight_decay),
          .clip = static_cast<float>(o.clip_grad),
          .nesterov = o.nesterov,
          .decay_all = o.decay == "all"};
}

// A fixed scale, as of fp32 and bf16, is one that never grows.
LossScaling loss_scaling(const Options& o, DType dtype) {
  const bool dynamic = dtype == DType::fp16 && o.loss_scale == 0;
  return {.growth_interval = dynamic ? o.loss_scale_growth_interval : 0};
}

std::vector<ParameterShape> shapes_of(const Graph& graph) {
  std::vector<ParameterShape> shapes;
  for (const auto* infos : {&graph.parameters(), &graph.buffers()})
    for (const ParameterInfo& p : *infos) shapes.push_back({p.name, p.shape});
  return shapes;
}

}  // namespace

Graph build_graph(const Options& o, const ModelConfig& m, DType dtype, int local_batch,
                  size_t classes, int ranks) try {
  InputShape input{.B = local_batch,
                   .height = *o.image_size,
                   .width = *o.image_size,
                   .size = *o.image_size,
                   .patch = o.patch_size.value_or(1),
                   .mean = {},
                   .std = {}};
  for (size_t c = 0; c < 3; ++c) {
    input.mean[c] = static_cast<float>((*o.mean)[c]);
    input.std[c] = static_cast<float>((*o.std)[c]);
  }
  if (m.is_resnet()) {
    const ResnetConfig resnet{.bottleneck = m.bottleneck,
                              .layers = m.layers,
                              .groups = m.groups,
                              .width_per_group = m.width_per_group,
                              .classes = static_cast<int>(classes),
                              .zero_init_last = o.zero_init_last,
                              .parts = o.sync_bn ? ranks : 1,
                              .drop_rate = static_cast<float>(o.drop_rate),
                              .label_smoothing = static_cast<float>(o.label_smoothing)};
    return build_resnet(resnet, input, dtype).graph;
  }
  const VitConfig vit{.embed_dim = m.embed_dim,
                      .depth = m.depth,
                      .heads = m.heads,
                      .mlp_ratio = static_cast<float>(m.mlp_ratio),
                      .layer_norm_eps = static_cast<float>(m.layer_norm_eps),
                      .classes = static_cast<int>(classes),
                      .drop_rate = static_cast<float>(o.drop_rate),
                      .attn_drop_rate = static_cast<float>(o.attn_drop_rate),
                      .drop_path_rate = static_cast<float>(o.drop_path_rate),
                      .label_smoothing = static_cast<float>(o.label_smoothing)};
  return build_vit(vit, input, dtype).graph;
} catch (const std::invalid_argument& e) {  // a batch norm's, so far
  throw UserError(std::string(e.what()) +
                  "; train on 2 images or more per process (--local-batch 2), or on larger ones "
                  "(--image-size)");
}

namespace {

// Labels mean what they meant where the weights come from, unless --classes orders them.
void keep_meaning_of_head(Options& o, DataSets& data, const WeightsInfo& from,
                          std::vector<std::string>& notes) {
  if (from.classes == data.classes || from.classes.size() != data.classes.size()) return;
  const std::set<std::string> theirs(from.classes.begin(), from.classes.end()),
      ours(data.classes.begin(), data.classes.end());
  const bool ordered = o.classes.size() > 1;
  if (theirs == ours && !ordered) {
    o.classes = from.classes;
    data = open_dataset(data_options(o));
  } else {
    notes.push_back("classes: those of " + o.weights + " have other names or another order; its " +
                    "head is where this run's head starts");
  }
}

Setup settle(Options o, ModelConfig model, DataSets data, int ranks, const Device& device) {
  std::vector<std::string> notes = device.notes;
  o.device = name_of(device.kind);
  const DType dtype = settle_precision(o, device.backend, device.kind, notes);
  settle_batch(o, ranks, data.train->size());
  o.nproc = ranks;

  TensorFile file;
  WeightsInfo from;
  if (!o.weights.empty() && o.resume.empty()) {
    file = read_safetensors(o.weights);
    from = weights_info(file, o.weights);
    if (from.model && *from.model != model.name)
      throw UserError(o.weights + ": weights of " + *from.model + ", not of " + model.name);
    if (from.patch_size && o.patch_size && *from.patch_size != *o.patch_size)
      throw UserError(o.weights + ": weights for patches of " + std::to_string(*from.patch_size) +
                      " pixels, this run has " + std::to_string(*o.patch_size) +
                      "; give --patch-size " + std::to_string(*from.patch_size));
    keep_meaning_of_head(o, data, from, notes);
  }
  // Pixels are normalised as the weights were trained with, unless told otherwise.
  if (!o.is_explicit("mean")) o.mean = from.mean.value_or(o.mean.value_or(model.mean));
  if (!o.is_explicit("std")) o.std = from.std.value_or(o.std.value_or(model.std));
  o.classes = data.classes;

  Graph graph = build_graph(o, model, dtype, *o.local_batch, data.classes.size(), ranks);
  std::map<std::string, HostTensor> weights;
  if (!file.tensors.empty()) {
    const std::string head = model.is_resnet() ? "fc" : "head";
    FitResult fit = fit_weights(std::move(file), o.weights, shapes_of(graph),
                                {head + ".weight", head + ".bias"});
    weights = std::move(fit.tensors);
    notes.insert(notes.end(), fit.notes.begin(), fit.notes.end());
  }
  const TrainerOptions trainer{.optimizer = optimizer_options(o),
                               .local_batch = *o.local_batch,
                               .height = *o.image_size,
                               .width = *o.image_size,
                               .accumulate = o.accumulate,
                               .bucket_bytes = static_cast<size_t>(o.bucket_bytes),
                               .scaling = loss_scaling(o, dtype),
                               .recompute = o.recompute == "blocks",
                               .sync_batchnorm = o.sync_bn,
                               .seed = o.seed};
  WeightsInfo info{.model = model.name,
                   .image_size = o.image_size,
                   .patch_size = o.patch_size,
                   .classes = data.classes,
                   .mean = o.mean,
                   .std = o.std};
  return {.options = std::move(o),
          .model = std::move(model),
          .data = std::move(data),
          .info = std::move(info),
          .graph = std::move(graph),
          .trainer = trainer,
          .weights = std::move(weights),
          .checkpoint = {},
          .notes = std::move(notes),
          .ranks = ranks};
}

void load_resumed(Setup& s) {
  s.checkpoint = load_checkpoint(s.options.out);
  Checkpoint& c = *s.checkpoint;
  if (c.model != s.model.name)
    throw UserError(s.options.out + "/last: a checkpoint of " + c.model + ", not of " +
                    s.model.name);
  if (c.data_fingerprint != s.data.fingerprint)
    throw UserError((s.options.data.empty() ? "the built-in data" : s.options.data) +
                    ": its files or classes have changed since the run in " + s.options.out +
                    " began; start a new run from --weights " + s.options.out +
                    "/last/weights.safetensors");
  s.weights =
      fit_weights(std::move(c.weights), s.options.out + "/last", shapes_of(s.graph), {}).tensors;
}

void claim_folder(Options& o) {
  if (o.out.empty()) {
    const std::time_t now = std::time(nullptr);
    char text[40];
    std::strftime(text, sizeof text, "-%Y%m%d-%H%M%S", std::localtime(&now));
    o.out = "runs/" + o.model + text;
  }
  std::error_code error;
  if (!std::filesystem::exists(o.out, error)) return;
  if (!std::filesystem::is_directory(o.out, error))
    throw UserError("--out " + o.out + " is a file where the run's folder should be; name another");
  if (!std::filesystem::is_empty(o.out, error))
    throw UserError("--out " + o.out + " exists and is not empty; --resume " + o.out +
                    " goes on with a run, another --out starts a new one");
}

}  // namespace

Setup prepare(const CommandLine& line, int ranks, const Device& device) {
  const Options early = initial_options(line);
  ModelConfig model = load_model_config(early.model);
  if (!early.resume.empty()) {
    if (!early.image_size || (!early.patch_size && !model.is_resnet()))
      throw UserError(early.out + "/config.json: 'image_size' or 'patch_size' is missing");
    DataSets data = open_dataset(data_options(early));
    Setup setup = settle(early, std::move(model), std::move(data), ranks, device);
    load_resumed(setup);
    return setup;
  }
  // A recipe depends on the kind of data; what is drawn to size is opened after that is known.
  const bool drawn = early.data.empty() || early.data == "synthetic";
  DataSets data;
  if (!drawn) data = open_dataset(data_options(early));
  const DataKind kind = early.data.empty() ? DataKind::builtin
                        : drawn            ? DataKind::synthetic
                                           : data.kind;
  Options options = resolve_options(line, model, kind);
  if (drawn) data = open_dataset(data_options(options));
  if (!options.plan) claim_folder(options);
  const bool own_patch =
      kind == DataKind::builtin && options.source("patch_size") == Source::recipe;
  Setup setup = settle(std::move(options), std::move(model), std::move(data), ranks, device);
  if (own_patch)
    setup.notes.push_back("built-in pictures of " + std::to_string(*setup.options.image_size) +
                          " pixels: patches of " + std::to_string(*setup.options.patch_size) +
                          " (--patch-size)");
  return setup;
}

int largest_batch(const Setup& setup, Backend& backend, size_t limit) {
  const auto fits = [&](int batch) {
    const Graph graph = build_graph(setup.options, setup.model, setup.graph.dtype(), batch,
                                    setup.data.classes.size(), setup.ranks);
    TrainerOptions options = setup.trainer;
    options.local_batch = batch;
    return Trainer(backend, nullptr, graph, options).plan().peak() <= limit;
  };
  int good = 0, bad = *setup.options.local_batch;
  while (bad - good > 1) {
    const int middle = (good + bad) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace bv
