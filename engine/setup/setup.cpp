#include "engine/setup/setup.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/class_names.h"
#include "engine/model/plan.h"
#include "engine/options/augmentation.h"
#include "engine/setup/image_lists.h"
#include "engine/setup/starting_weights.h"
#include "engine/training/schedule.h"
#include "engine/weights/model_tensors.h"
#include "models/family.h"

namespace bv {
namespace {

constexpr int64_t few_images = 500, least_for_batch_norm = 8;

// The batch for few images, if a model's default is larger; 8 images to each batch norm.
int64_t batch_for(const Options& o, int64_t images, int batch_norms) {
  return std::max(batch_for_eight_updates(images, o.accumulate),
                  least_for_batch_norm * batch_norms);
}

// A learning rate that was for another batch, in two digits: it follows linearly for SGD (Goyal et
// al. 2017), with the square root for Adam (Malladi et al. 2022).
double scaled_rate(const Options& o, double batches) {
  const double lr = o.lr * (o.optimizer == OptimizerKind::sgd ? batches : std::sqrt(batches));
  return std::stod(format_number(lr, 2));
}

// Epochs for few images: the recipe's, or up to twice as many to get 900 updates.
double epochs_for(const Options& o, int64_t batches) {
  const int64_t updates = std::max<int64_t>((batches + o.accumulate - 1) / o.accumulate, 1);
  return std::clamp(std::ceil(900 / double(updates)), o.epochs, 2 * o.epochs);
}

// Values fitted to few images, for a note: "batch 8, lr 0.00018", "64, 5e-04".
struct Fitted {
  std::string now, recipes;
  void change(const char* name, double& value, double to) {
    if (value == to) return;
    recipes += ", " + format_number(value);
    now += std::string(", ") + name + format_number(to);
    value = to;
  }
};

// Resolves --batch, the images of all replicas, and each replica's share, which is even if images
// are mixed in pairs. A recipe's batch is adjusted to data and replicas; the user's must fit them.
void resolve_batch(Options& o, int replicas, int64_t images, bool batch_norm,
                   std::vector<std::string>& notes) {
  const int parts = std::max(replicas, o.shards);
  const std::string processes = std::to_string(parts) + (o.shards         ? " shards"
                                                         : o.pipeline > 1 ? " replicas"
                                                                          : " processes");
  const bool mixing = mixing_of(o).any();
  const int64_t unit = int64_t{mixing ? 2 : 1} * parts, largest = images / unit * unit;
  if (largest == 0)
    throw UserError("the training data has " + std::to_string(images) + " images, fewer than the " +
                    processes + (o.shards ? " (--shards)" : " (-n)") +
                    (mixing ? " need to mix pairs" : ""));
  int64_t batch = o.local_batch ? int64_t{*o.local_batch} * replicas : o.batch.value_or(64);
  if (o.local_batch && o.batch && *o.batch != batch)  // only a resumed run has both
    throw UserError("--local-batch " + std::to_string(*o.local_batch) + " is a batch of " +
                    std::to_string(batch) + " with this number of processes, the run in " +
                    o.resume + " has " + std::to_string(*o.batch) +
                    "; leave it out, or start as many as the run had");
  const auto fitting = [&](int64_t by) {
    return std::min(std::max<int64_t>(batch / by, 1) * by, images / by * by);
  };
  const auto refuse = [&](const std::string& why, const std::string& other) {
    const std::string asked = o.resume.empty() ? "--batch " + std::to_string(batch)
                                               : "the batch of " + std::to_string(batch) +
                                                     " images of the run in " + o.resume;
    throw UserError(asked + " is " + why + "; " + other + " would fit");
  };
  if (!o.is_explicit("batch") && !o.is_explicit("local_batch")) {
    const int64_t wanted = batch;
    if (o.source("batch") < Source::named_recipe)
      batch = std::min(batch, batch_for(o, images, !batch_norm ? 0 : o.sync_bn ? 1 : parts));
    const bool few = batch < wanted || largest < wanted;
    const int64_t in_micro_batches = fitting(o.shards ? unit : unit * o.micro_batches.value_or(1));
    batch = in_micro_batches ? in_micro_batches : fitting(unit);
    Fitted fitted{.now = "batch " + std::to_string(batch), .recipes = std::to_string(wanted)};
    if (few && std::max(o.source("lr"), o.source("batch")) < Source::named_recipe)
      fitted.change("lr ", o.lr, scaled_rate(o, double(batch) / double(wanted)));
    if (few && std::max(o.source("epochs"), o.source("batch")) < Source::named_recipe)
      fitted.change("epochs ", o.epochs, epochs_for(o, images / batch));
    if (batch != wanted)
      notes.push_back(fitted.now + ", not the recipe's " + fitted.recipes + ": " +
                      (few ? "there are " + std::to_string(images) + " images to train on"
                           : std::string(mixing ? "an even number" : "the same number") +
                                 " for each of " + processes));
  } else if (batch % unit) {
    int fewer = replicas;
    while (fewer > 1 && batch % (unit / parts * fewer)) --fewer;
    const std::string each = o.shards ? " in each shard" : replicas > 1 ? " in each process" : "";
    refuse(batch % parts ? "not divisible by " + processes
                         : "odd" + each + ", and images are mixed in pairs",
           o.resume.empty() ? std::to_string(fitting(unit)) : "-n " + std::to_string(fewer));
  } else if (batch > images) {
    refuse("larger than the training data (" + std::to_string(images) + " images)",
           std::to_string(largest));
  }
  o.batch = static_cast<int>(batch);
  o.local_batch = static_cast<int>(batch / replicas);
}

void resolve_left_over(Options& o, const DataSets& data) {
  const bool few = data.kind != DataKind::synthetic && data.train->size() <= few_images;
  if (!o.left_over) o.left_over = few ? LeftOver::next : LeftOver::drop;
}

// A model with random weights needs thousands of photos.
void name_weights(Setup& s) {
  const Options& o = s.options;
  const int64_t photos = s.data.train->size();
  if (s.data.kind != DataKind::photos || photos > 2 * few_images || !o.weights.empty() ||
      !o.resume.empty())
    return;
  s.notes.push_back(
      "few photos: a pretrained model learns more from them: --weights NAME (./launcher "
      "weights list " +
      s.model.name + ")");
}

// --shards: each process computes its shards as micro-batches.
void resolve_shards(Options& o, int replicas) {
  if (!o.shards) return;
  const std::string shards = "--shards " + std::to_string(o.shards);
  if (o.shards & (o.shards - 1)) {
    const int less = static_cast<int>(std::bit_floor(static_cast<unsigned>(o.shards)));
    throw UserError(shards + ": not a power of two, and shards are added in pairs; try " +
                    std::to_string(less) + " or " + std::to_string(2 * less));
  }
  if (o.shards % replicas)
    throw UserError(shards + " can't be divided among " + std::to_string(replicas) +
                    (o.pipeline > 1 ? " replicas" : " processes") +
                    "; their number must divide it");
  const int each = o.shards / replicas;
  if (o.source("micro_batches") == Source::command_line && o.micro_batches != each)
    throw UserError("--micro-batches " + std::to_string(*o.micro_batches) + ": with " + shards +
                    " there are " + std::to_string(each) + "; leave it out");
  if (o.all_reduce == AllReduce::two_level)
    throw UserError("--all-reduce 2d adds in another order than --shards; leave one out");
  if (o.reduce_dtype != DType::fp32)
    throw UserError("--reduce-dtype " + word_of(o.reduce_dtype) +
                    " rounds each process's sum, so with --shards the weights would depend on how "
                    "many processes there are; leave one out");
  if (o.sync_bn && o.pipeline > 1)
    throw UserError(
        "--shards with --sync-bn computes all shards together, which a stage of "
        "--pipeline can't; leave one out");
  o.micro_batches = each;
}

// Resolves --micro-batches, and checks the other options of --pipeline.
void resolve_micro_batches(Options& o, const ModelConfig& model) {
  if (o.chunks > 1 && o.pipeline == 1)
    throw UserError("--chunks " + std::to_string(o.chunks) +
                    " needs --pipeline; try --pipeline 2 or --chunks 1");
  if (o.pipeline == 1 && o.source("partition") == Source::command_line)
    throw UserError("--partition " + o.partition.text +
                    " needs --pipeline; try --pipeline 2, or leave it out");
  const Micro micro = micro_of(o, model);
  if (!o.micro_batches) o.micro_batches = default_micro_batches(micro);
  if (!o.shards) return check_micro_batches(*o.micro_batches, micro);
  if (const std::string why = unfit(*o.micro_batches, micro); !why.empty())
    throw UserError("--shards " + std::to_string(o.shards) + " makes " +
                    counted(*o.micro_batches, "micro-batch") + " in each process, which " + why);
}

void require_effect(const Options& o, bool has_effect, std::string_view option, const char* what) {
  if (!has_effect && o.source(option) == Source::command_line)
    throw UserError(find_option(option)->flag() + " has no effect without " + what);
}

// Refuses options that were given but have no effect; check_schedule and resolve_augmentation
// refuse others. --loss-scale without fp16 is only a warning of the recipe check, as the precision
// may be the device's choice.
void refuse_unused(const Options& o) {
  const auto needs = [&](bool has_effect, std::string_view option, const char* what) {
    require_effect(o, has_effect, option, what);
  };
  const bool sgd = o.optimizer == OptimizerKind::sgd;
  for (const char* option : {"momentum", "nesterov"}) needs(sgd, option, "--optimizer sgd");
  needs(!o.nesterov || o.momentum > 0, "nesterov", "--momentum");
  for (const char* option : {"betas", "eps"}) needs(!sgd, option, "--optimizer adam or adamw");
}

// Logs about 50 lines in a short run, so that its curves show the warm-up, too.
void resolve_log_every(Options& o, DataKind kind, int64_t images) {
  constexpr int64_t lines = 50;
  if (o.source("log_every") != Source::built_in) return;
  const int64_t batches = training_batches(kind, images, *o.batch);
  const int64_t updates = updates_of(o.epochs, (batches + o.accumulate - 1) / o.accumulate);
  const int64_t every = std::min(updates, o.steps.value_or(updates)) / lines;
  o.log_every = static_cast<int>(std::clamp<int64_t>(every, 1, o.log_every));
}

TrainerOptions trainer_options(const Options& o, DataKind kind, DType dtype) {
  const int stored =
      std::max(*o.image_size, stored_size(kind, cropping_of(o), *o.image_size, true));
  // The loss scale never grows if it is fixed or if the dtype is fp32 or bf16.
  const bool dynamic_scale = dtype == DType::fp16 && o.loss_scale == 0;
  return {.optimizer = {.momentum = static_cast<float>(o.momentum),
                        .beta1 = o.betas[0],
                        .beta2 = o.betas[1],
                        .eps = static_cast<float>(o.eps),
                        .weight_decay = static_cast<float>(o.weight_decay),
                        .clip = static_cast<float>(o.clip_grad),
                        .ema_rate = o.ema > 0 ? static_cast<float>(1 - o.ema) : 0,
                        .kind = o.optimizer,
                        .nesterov = o.nesterov},
          .scaling = {.growth_interval = dynamic_scale ? o.loss_scale_growth_interval : 0},
          .decay_all = o.decay == Decay::all,
          .layer_decay = o.layer_decay,
          .local_batch = *o.local_batch,
          .height = stored,
          .width = stored,
          .augment_layers = augmentation_of(o).layers(),
          .mixing = mixing_of(o).any(),
          .accumulate = o.accumulate,
          .sync = {.bucket_bytes = static_cast<size_t>(*o.bucket_bytes),
                   .channels = o.comm_streams,
                   .sync_batchnorm = o.sync_bn,
                   .shards = o.shards ? *o.micro_batches : 0,
                   .dtype = o.reduce_dtype,
                   .zero = o.zero == 1},
          .recompute = o.recompute == Recompute::blocks,
          .seed = o.seed};
}

Options all_options(const Request& request) {
  const Options& given = request.options;
  const ModelConfig& model = request.model;
  if (given.resume.empty()) {
    Options o = resolve_options(request, model, data_kind(given.data));
    o.out = given.out;
    return o;
  }
  if (!given.image_size || (!given.patch_size && model.family->patches))
    throw UserError(given.out + "/config.json: 'image_size' or 'patch_size' is missing");
  Options o = given;
  resolve_augmentation(o, data_kind(given.data));  // the run may predate some of these options
  return o;
}

// Only a user who asked for the files is told that this build can't write them.
void check_tensorboard(const Options& o) {
  if (BAREVISION_TENSORBOARD || o.tensorboard == Switch::off) return;
  if (o.source("tensorboard") == Source::command_line)
    throw UserError(
        "--tensorboard on needs protobuf, which this program was built without; make deps && "
        "make adds it");
}

// Classes are in the order of the weights' head unless --classes gives an order.
DataSets open_data(const Options& o, const WeightsInfo& from, std::vector<std::string>& notes) try {
  DataOptions options = data_options(o);
  options.classes = o.classes;
  options.class_order = from.classes;
  if (!o.resume.empty() && o.on_bad_image == OnBadImage::skip)
    options.skipped = skipped_images(o.out, o.data);
  DataSets data = open_dataset(options);
  if (o.val_fraction == 0 && o.val.empty() && data.val) {
    notes.push_back("--val-fraction 0: " + counted(data.val->size(), "image") + " for validation " +
                    (data.val->size() == 1 ? "isn't" : "aren't") + " used");
    data.val.reset();
  }
  require_effect(o, data.val != nullptr, "report", "images for validation");
  require_effect(o, data.val && (o.eval_every > 0 || o.report), "best_by", "an evaluation");
  if (from.classes.size() == data.classes.size() && !same_classes(from.classes, data.classes))
    notes.push_back("classes: " + o.weights +
                    " has other names or another order; its head is kept as the initial head");
  return data;
} catch (const DataError& e) {
  const std::string_view option = "--classes", line = e.what();
  if (o.source("classes") != Source::run || !line.starts_with(option)) throw;
  const std::string rest(line.substr(option.size()));
  throw DataError(o.data + ": its classes are not those of the run in " + o.out +
                  (rest.starts_with(':') ? rest : ": the run" + rest));
}

std::vector<std::string> head_parameters(const ModelConfig& model) {
  std::vector<std::string> names;
  for (const std::string& head : model.family->heads(model.sizes))
    names.insert(names.end(), {head + ".weight", head + ".bias"});
  return names;
}

void fit_starting_weights(Setup& s, TensorFile file) {
  if (file.tensors.empty()) return;
  FitResult fit = fit_weights(std::move(file), s.options.weights, parameter_shapes(s.graph),
                              head_parameters(s.model));
  s.weights = std::move(fit.tensors);
  s.notes.push_back(fit.note);
}

[[noreturn]] void refuse_other_data(const Setup& s) {
  const Options& o = s.options;
  std::string way;
  if (!o.data.empty()) way = "put them back, or ";
  if (s.data.kind == DataKind::photos)
    way = "put them back (--on-bad-image skip skips bad ones), or ";
  throw UserError((o.data.empty() ? "the built-in data" : o.data) +
                  ": its files or classes have changed since the run in " + o.out + " began" +
                  first_change(o.out, o.data, s.data) + "; " + way +
                  "start a new run from --weights " + o.out + "/last/weights.safetensors");
}

void load_resumed(Setup& s) {
  const Options& o = s.options;
  if (!has_checkpoint(o.out)) {
    s.notes.push_back("nothing to resume: " + o.out +
                      " has no checkpoint yet: starting from the beginning");
    return;
  }
  s.checkpoint = load_checkpoint(o.out);
  Checkpoint& c = *s.checkpoint;
  if (c.model != s.model.name)
    throw UserError(o.out + "/last: a checkpoint of " + c.model + ", not of " + s.model.name);
  refuse_edits(o, c.options);
  if (c.data_fingerprint != s.data.fingerprint) refuse_other_data(s);
  require_reachable(c,
                    {.batches = training_batches(s.data.kind, s.data.train->size(), *o.batch),
                     .accumulate = o.accumulate,
                     .epochs = max_epochs},
                    o.out + "/last/state.json");
  s.weights =
      fit_weights(std::move(c.weights), o.out + "/last", parameter_shapes(s.graph), {}).tensors;
}

}  // namespace

Setup::Setup() = default;
Setup::Setup(Setup&&) noexcept = default;
Setup& Setup::operator=(Setup&&) noexcept = default;
Setup::~Setup() = default;

Graph build_graph(const Options& o, const ModelConfig& m, DataKind kind, DType dtype,
                  int local_batch, size_t classes, int replicas) try {
  const int stored = stored_size(kind, cropping_of(o), *o.image_size, true);
  InputShape input{.B = local_batch,
                   .height = stored,
                   .width = stored,
                   .size = *o.image_size,
                   .patch = o.patch_size.value_or(1)};
  for (size_t c = 0; c < 3; ++c) {
    input.mean[c] = static_cast<float>((*o.mean)[c]);
    input.std[c] = static_cast<float>((*o.std)[c]);
  }
  GraphOptions options = graph_options(o);
  options.classes = static_cast<int>(classes);
  options.parts = o.sync_bn ? std::max(replicas, o.shards) : 1;
  options.augment_layers = augmentation_of(o).layers();
  return m.family->build(m.sizes, options, input, dtype);
} catch (const std::invalid_argument& e) {  // a batch norm of one value per channel
  throw UserError(std::string(e.what()) +
                  "; train on 2 images or more per process (--local-batch 2), or on larger ones "
                  "(--image-size)");
}

Graph graph_in(const Setup& s, DType dtype, int micro_batch) {
  return build_graph(s.options, s.model, s.data.kind, dtype, micro_batch, s.data.classes.size(),
                     s.replicas);
}

Micro micro_of(const Options& o, const ModelConfig& model) {
  return {.images = *o.local_batch,
          .stages = o.pipeline,
          .chunks = o.chunks,
          .mixing = mixing_of(o).any(),
          .batch_norm = model.family->batch_norm};
}

Setup prepare(const Request& request, int world, const DeviceChoice& device, Backend& backend) {
  Setup s;
  s.world = s.local_size = world;
  s.notes = device.notes;
  s.model = request.model;
  Options& o = s.options = all_options(request);
  s.requested = o;
  check_schedule(o);
  check_tensorboard(o);
  s.replicas = grid_of(0, world, o.pipeline).replicas;
  o.device = device.kind;
  o.nproc = world;
  // PyTorch DDP's size on GPUs; on the cpu the size that was fastest in measurements.
  if (!o.bucket_bytes) o.bucket_bytes = (device.kind == DeviceKind::cuda ? 25 : 4) << 20;
  const DType dtype = resolve_precision(o, backend, device.kind);
  if (o.reduce_dtype != DType::fp32 && o.all_reduce == AllReduce::two_level)
    throw UserError("--all-reduce 2d adds only in fp32; leave it out, or --reduce-dtype " +
                    word_of(o.reduce_dtype));
  if (o.zero && o.all_reduce == AllReduce::two_level)
    throw UserError(
        "--zero 1 gives each process the sum of its own part of the gradients, --all-reduce 2d "
        "gives all processes the whole sum; leave out one of the two");
  if (o.zero && s.replicas == 1)
    s.notes.push_back(o.pipeline > 1 ? "--zero 1 has no effect: each stage is one process"
                                     : "--zero 1 has no effect: there is one process");
  if (!backend.converts(o.reduce_dtype))
    throw UserError("--reduce-dtype " + word_of(o.reduce_dtype) + ": " + backend.describe() +
                    " has no kernels for it; try fp16 or fp32");
  refuse_unused(o);
  s.precision_policy = precision_policy(o, s.notes);

  auto [file, from] = read_starting_weights(o, s.model);
  s.data = open_data(o, from, s.notes);
  require_effect(o, s.data.kind == DataKind::builtin, "built_in", "the built-in images");
  s.notes.insert(s.notes.end(), s.data.notes.begin(), s.data.notes.end());
  o.classes = s.data.classes;
  resolve_shards(o, s.replicas);
  resolve_batch(o, s.replicas, s.data.train->size(), s.model.family->batch_norm, s.notes);
  resolve_left_over(o, s.data);
  name_weights(s);
  resolve_micro_batches(o, s.model);
  resolve_log_every(o, s.data.kind, s.data.train->size());
  // Pixels are normalised as when the weights were trained, unless options say otherwise.
  if (!o.is_explicit("mean")) o.mean = from.mean.value_or(o.mean.value_or(s.model.mean));
  if (!o.is_explicit("std")) o.std = from.std.value_or(o.std.value_or(s.model.std));
  if (o.mean == from.mean) s.requested.mean.reset();  // a run's config file has the weights' values
  if (o.std == from.std) s.requested.std.reset();
  s.info = {.model = s.model.name,
            .image_size = o.image_size,
            .patch_size = o.patch_size,
            .classes = o.classes,
            .mean = o.mean,
            .std = o.std,
            .crop_mode = o.crop_mode,
            .interpolation = o.interpolation,
            .crop_pct = o.crop_pct};

  const int batch = *o.local_batch / *o.micro_batches;
  s.graph = graph_in(s, dtype, batch);
  if (s.precision_policy) s.fp32_graph = graph_in(s, DType::fp32, batch);
  s.pipeline = cut_model(o, s.replicas, s.graph, backend.kernels());
  s.trainer = trainer_options(o, s.data.kind, dtype);
  fit_starting_weights(s, std::move(file));
  if (!o.resume.empty()) load_resumed(s);
  return s;
}

Setup for_rank(Setup s, int rank) {
  s.trainer.pipeline = {.shape = s.pipeline.shape,
                        .grid = grid_of(rank, s.world, s.pipeline.shape.stages),
                        .parts = s.pipeline.slices()};
  s.graph.finish(s.trainer.pipeline.own());
  if (s.fp32_graph) s.fp32_graph->finish(s.trainer.pipeline.own());
  return s;
}

int64_t batch_for_eight_updates(int64_t images, int accumulate) {
  const auto most = static_cast<uint64_t>(images / (int64_t{8} * accumulate));
  return std::max<int64_t>(static_cast<int64_t>(std::bit_floor(most)), 1);
}

LoaderOptions loader_options(const Setup& s, int replica, int cores) {
  const Options& o = s.options;
  // The cache is divided among the processes that load images, and between the two data sets.
  const size_t share = static_cast<size_t>(o.cache_mb) * 1024 * 1024 /
                       static_cast<size_t>(s.replicas) / (s.data.val ? 2 : 1);
  LoaderOptions options = loader_options(o, s.data.kind, *o.local_batch, cores);
  options.rank = replica;
  options.ranks = s.replicas;
  options.mixing = mixing_of(o);
  options.cache_bytes = share;
  return options;
}

}  // namespace bv
