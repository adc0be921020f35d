#include "engine/options/option_table.h"

namespace bv {

namespace {

using O = Options;

constexpr Range count = {.min = 1, .max = 1e9};
constexpr Range count_or_none = {.min = 0, .max = 1e9};
constexpr Range positive = {.min = 0, .min_open = true};
constexpr Range not_negative = {.min = 0};
constexpr Range fraction = {.min = 0, .max = 1, .max_open = true};

std::vector<OptionRow> data_rows() {
  return {
      {.name = "data",
       .metavar = "PATH",
       .member = &O::data,
       .help = "a CIFAR-10 binary folder, a folder with train/ and val/, a folder of class "
               "folders, or 'synthetic' (random pixels, for speed tests); without it: the built-in "
               "set, drawn on the fly",
       .recipe = false},
      {.name = "val_fraction",
       .metavar = "X",
       .member = &O::val_fraction,
       .help = "share of each class kept for validation where the folder has no val/",
       .range = {.min = 0, .max = 1, .min_open = true, .max_open = true},
       .recipe = false},
      {.name = "classes",
       .metavar = "N|A,B,..",
       .member = &O::classes,
       .help = "number of classes, or their names in label order; default: the data's",
       .recipe = false},
      {.name = "image_size",
       .metavar = "N",
       .member = &O::image_size,
       .help = "side of the model's input; default: the recipe's, else the data's, else the "
               "model's",
       .range = {.min = 1, .max = 4096}},
      {.name = "mean",
       .metavar = "R,G,B",
       .member = &O::mean,
       .help = "subtracted from pixels in 0-1; default: the weights', else the model's",
       .range = {.min = 0, .max = 1}},
      {.name = "std",
       .metavar = "R,G,B",
       .member = &O::std,
       .help = "pixels less the mean are divided by it; default: the weights', else the model's",
       .range = {.min = 1e-3, .max = 1e3}},
      {.name = "augment",
       .metavar = "none|basic",
       .member = &O::augment,
       .help = "basic: random crop and flip of training images"},
      {.name = "on_bad_image",
       .metavar = "fail|skip",
       .member = &O::on_bad_image,
       .help = "what to do about a file that can't be decoded",
       .recipe = false},
  };
}

std::vector<OptionRow> model_rows() {
  return {
      {.name = "patch_size",
       .metavar = "N",
       .member = &O::patch_size,
       .help = "side of a ViT's patch; default: the recipe's, else the model's",
       .range = {.min = 1, .max = 1024}},
      {.name = "weights",
       .metavar = "FILE",
       .member = &O::weights,
       .help = "start from this .safetensors file; another number of classes or another image size "
               "is taken care of",
       .recipe = false},
      {.name = "drop_rate",
       .metavar = "X",
       .member = &O::drop_rate,
       .help = "dropout before the head",
       .range = fraction},
      {.name = "attn_drop_rate",
       .metavar = "X",
       .member = &O::attn_drop_rate,
       .help = "dropout of attention weights",
       .range = fraction},
      {.name = "drop_path_rate",
       .metavar = "X",
       .member = &O::drop_path_rate,
       .help = "stochastic depth, of the last block; earlier blocks less",
       .range = fraction},
      {.name = "sync_bn",
       .member = &O::sync_bn,
       .help = "batch norm over the batches of all processes, not of each alone"},
      {.name = "zero_init_last",
       .member = &O::zero_init_last,
       .help = "a ResNet's blocks start as nothing: the last batch norm of each has weight 0"},
  };
}

std::vector<OptionRow> step_rows() {
  return {
      {.name = "epochs",
       .metavar = "X",
       .member = &O::epochs,
       .help = "passes over the data; the schedule ends there",
       .range = {.min = 0, .max = 1e6, .min_open = true},
       .resume = true},
      {.name = "steps",
       .metavar = "N",
       .member = &O::steps,
       .help = "end after so many updates in all; the schedule stays as it is",
       .range = {.min = 1, .max = 1e15},
       .recipe = false,
       .resume = true},
      {.name = "batch",
       .metavar = "N",
       .member = &O::batch,
       .help = "images in one forward pass, over all processes",
       .range = count},
      {.name = "local_batch",
       .metavar = "N",
       .member = &O::local_batch,
       .help = "the same for one process, instead of --batch",
       .range = count,
       .recipe = false},
      {.name = "accumulate",
       .metavar = "N",
       .member = &O::accumulate,
       .help = "batches in one update",
       .range = {.min = 1, .max = 1e6}},
      {.name = "eval_every",
       .metavar = "N",
       .member = &O::eval_every,
       .help = "epochs from one evaluation to the next",
       .range = count},
      {.name = "seed",
       .metavar = "N",
       .member = &O::seed,
       .help = "of everything random; the same seed gives the same weights",
       .recipe = false},
  };
}

std::vector<OptionRow> optimizer_rows() {
  return {
      {.name = "optimizer",
       .metavar = "sgd|adam|adamw",
       .member = &O::optimizer,
       .help = "the update, as PyTorch defines it"},
      {.name = "lr",
       .metavar = "X",
       .member = &O::lr,
       .help = "learning rate at its highest",
       .range = not_negative},
      {.name = "momentum",
       .metavar = "X",
       .member = &O::momentum,
       .help = "of sgd",
       .range = fraction},
      {.name = "nesterov", .member = &O::nesterov, .help = "Nesterov's momentum, with sgd"},
      {.name = "betas",
       .metavar = "A,B",
       .member = &O::betas,
       .help = "decay of the moments of adam and adamw",
       .range = fraction},
      {.name = "eps",
       .metavar = "X",
       .member = &O::eps,
       .help = "added to adam's denominator",
       .range = not_negative},
      {.name = "weight_decay",
       .metavar = "X",
       .member = &O::weight_decay,
       .help = "decoupled in adamw, else added to the gradient",
       .range = not_negative},
      {.name = "decay",
       .metavar = "weights|all",
       .member = &O::decay,
       .help = "weights: none on biases, norms, position and class tokens"},
      {.name = "schedule",
       .metavar = "constant|cosine",
       .member = &O::schedule,
       .help = "of the learning rate after the warm-up"},
      {.name = "schedule_by",
       .metavar = "step|epoch",
       .member = &O::schedule_by,
       .help = "how often the learning rate changes"},
      {.name = "warmup_epochs",
       .metavar = "X",
       .member = &O::warmup_epochs,
       .help = "epochs over which the learning rate rises from 0",
       .range = {.min = 0, .max = 1e6}},
      {.name = "warmup_steps",
       .metavar = "N",
       .member = &O::warmup_steps,
       .help = "the same in updates, instead of --warmup-epochs",
       .range = {.min = 0, .max = 1e15}},
      {.name = "clip_grad",
       .metavar = "X",
       .member = &O::clip_grad,
       .help = "longest gradient (L2 norm over all parameters); 0: no limit",
       .range = not_negative},
      {.name = "loss_scale",
       .metavar = "X",
       .member = &O::loss_scale,
       .help = "fixed scale of the loss in fp16; 0: dynamic",
       .range = not_negative},
      {.name = "loss_scale_init",
       .metavar = "X",
       .member = &O::loss_scale_init,
       .help = "where a dynamic scale starts; it halves when a gradient overflows",
       .range = {.min = 1, .max = 0x1p24}},
      {.name = "loss_scale_growth_interval",
       .metavar = "N",
       .member = &O::loss_scale_growth_interval,
       .help = "updates without an overflow after which it doubles",
       .range = count},
      {.name = "label_smoothing",
       .metavar = "X",
       .member = &O::label_smoothing,
       .help = "share of the target spread over all classes",
       .range = fraction},
  };
}

std::vector<OptionRow> output_rows() {
  return {
      {.name = "out",
       .metavar = "DIR",
       .member = &O::out,
       .help = "run folder, new or empty; default: runs/MODEL-DATE-TIME",
       .recipe = false,
       .stored = false},
      {.name = "resume",
       .metavar = "DIR",
       .member = &O::resume,
       .help = "go on with the run in this folder, with its own options; MODEL is not needed",
       .recipe = false,
       .resume = true,
       .stored = false},
      {.name = "save_every",
       .metavar = "N|Nsteps",
       .member = &O::save_every,
       .help = "epochs, or updates (500steps), from one checkpoint to the next",
       .recipe = false,
       .resume = true},
      {.name = "keep",
       .metavar = "N",
       .member = &O::keep,
       .help = "newest checkpoints to keep, the best one aside",
       .range = count,
       .recipe = false,
       .resume = true},
      {.name = "log_every",
       .metavar = "N",
       .member = &O::log_every,
       .help = "updates from one line of metrics.jsonl to the next",
       .range = count,
       .recipe = false,
       .resume = true},
  };
}

std::vector<OptionRow> machine_rows() {
  return {
      {.name = "nproc",
       .letter = 'n',
       .metavar = "N",
       .member = &O::nproc,
       .help = "processes; default: one for each visible GPU, else 1",
       .range = {.min = 1, .max = 1024},
       .recipe = false,
       .resume = true},
      {.name = "device",
       .metavar = "auto|cpu|simt|cuda",
       .member = &O::device,
       .help = "auto: cuda where there is a GPU, else cpu",
       .recipe = false,
       .resume = true},
      {.name = "precision",
       .metavar = "auto|fp32|fp16|bf16",
       .member = &O::precision,
       .help =
           "of the computation; weights stay fp32; auto: bf16 or, before sm_80, fp16 on cuda, else "
           "fp32",
       .resume = true},
      {.name = "conv",
       .metavar = "own|cudnn",
       .member = &O::conv,
       .help = "whose convolutions compute on a GPU: cuDNN's are there to compare with",
       .recipe = false,
       .resume = true},
      {.name = "recompute",
       .metavar = "none|blocks",
       .member = &O::recompute,
       .help = "blocks: keep only what enters a block and compute the rest again in backward; less "
               "memory, a third more work, the same bits",
       .resume = true},
      {.name = "workers",
       .metavar = "N",
       .member = &O::workers,
       .help = "decoding threads of a process; 0: as many as its cores",
       .range = {.min = 0, .max = 1024},
       .recipe = false,
       .resume = true},
      {.name = "cache_mb",
       .metavar = "N",
       .member = &O::cache_mb,
       .help = "keep decoded images in memory where all fit in so many MiB; 0: don't",
       .range = count_or_none,
       .recipe = false,
       .resume = true},
      {.name = "bucket_bytes",
       .metavar = "N",
       .member = &O::bucket_bytes,
       .help = "gradients travel between processes in pieces of at most this size",
       .range = {.min = 4096, .max = 1e12},
       .recipe = false,
       .resume = true},
      {.name = "timeout",
       .metavar = "X",
       .member = &O::timeout,
       .help = "seconds without a sign of life after which a process counts as dead",
       .range = {.min = 1, .max = 1e6},
       .recipe = false,
       .resume = true},
      {.name = "oversubscribe",
       .member = &O::oversubscribe,
       .help = "let processes share GPUs, their gradients staged through the host",
       .recipe = false,
       .resume = true},
      {.name = "no_graph",
       .member = &O::no_graph,
       .help = "launch every kernel by itself instead of a step's CUDA graph",
       .recipe = false,
       .resume = true},
      {.name = "profile",
       .member = &O::profile,
       .help = "print the time by kind of operation at the end",
       .recipe = false,
       .resume = true,
       .stored = false},
      {.name = "plan",
       .member = &O::plan,
       .help = "print the memory plan and exit",
       .recipe = false,
       .resume = true,
       .stored = false},
  };
}

// MODEL stands without a flag; the help shows it in its first lines.
std::vector<OptionRow> first_rows() {
  return {{.name = "model", .metavar = "MODEL", .member = &O::model, .help = "", .recipe = false}};
}

}  // namespace

std::span<const OptionGroup> option_groups() {
  static const std::vector<OptionGroup> groups = {
      {"", first_rows()},          {"Data", data_rows()},           {"Model", model_rows()},
      {"Steps", step_rows()},      {"Optimizer", optimizer_rows()}, {"Run folder", output_rows()},
      {"Machine", machine_rows()},
  };
  return groups;
}

const OptionRow* find_option(std::string_view name) {
  for (const OptionGroup& group : option_groups()) {
    for (const OptionRow& row : group.rows) {
      if (row.name == name) return &row;
    }
  }
  return nullptr;
}

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const OptionGroup& group : option_groups()) {
    for (const OptionRow& row : group.rows) names.emplace_back(row.name);
  }
  return names;
}

std::string OptionRow::flag() const {
  if (name == "model") return "MODEL";
  std::string text = "--" + std::string(name);
  for (char& c : text) {
    if (c == '_') c = '-';
  }
  return text;
}

}  // namespace bv
