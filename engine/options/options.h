// The options of a run, in slices by concern: each function takes only the slice it reads.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/options/choices.h"

namespace bv {

// Source of an option's value; later ones win over earlier ones.
enum class Source { built_in, resolved, recipe, named_recipe, run, config, command_line };

inline constexpr int64_t max_epochs = 1000000;

// Values with their own syntax. `text`: as given by the user; `form`: the error message.

// --save-every 2 (epochs), 500steps, or a time: 30s, 10min, 2h.
struct SaveEvery {
  enum Unit { epochs, steps, seconds };
  static constexpr const char* form = "must be a number of epochs, or like 500steps or 10min";
  std::string text = "1";
  int64_t count = 1;
  Unit unit = epochs;
  static std::optional<SaveEvery> parse(const std::string&);
};

// --lr-after 600:1e-6
struct LrAfter {
  static constexpr const char* form =
      "must be a number of epochs and a learning rate, like 600:1e-6";
  std::string text = {};
  int64_t epoch = 0;
  double lr = 0;
  static std::optional<LrAfter> parse(const std::string&);
};

// --nnodes 2 or, with a number that may change, 2:4
struct NodeCount {
  static constexpr const char* form =
      "must be a number of nodes from 1 to 1024, or MIN:MAX of them, like 2:4";
  std::string text = "1";
  int least = 1, most = 1;
  static std::optional<NodeCount> parse(const std::string&);
};

// How a model's blocks are divided into parts (--partition). uniform: equal numbers of blocks, with
// one more in the last parts if needed; balanced: the largest part has as few parameters as
// possible; cost: as few flops as possible; list: the given numbers of blocks.
struct Partition {
  static constexpr const char* form =
      "must be uniform, balanced, cost or the blocks of each part, like 6,6";
  std::string text = "cost";
  enum Kind : uint8_t { uniform, balanced, cost, list } kind = cost;
  std::vector<int> blocks = {};  // for list
  static std::optional<Partition> parse(const std::string&);
};

// std::optional fields are resolved once the model, the data and the machine are known; after that
// config.json contains all of them.

struct InputOptions {
  std::string data;  // path, "synthetic", or empty: the built-in set
  BuiltIn built_in = BuiltIn::shapes;
  std::string val;
  double val_fraction = 0.1;
  uint64_t split_seed = 0;
  std::vector<std::string> classes;                // names; empty: the data's
  std::string class_names;                         // a file
  std::optional<std::array<double, 3>> mean, std;  // of pixels in 0-1
  std::optional<int> image_size;
  OnBadImage on_bad_image = OnBadImage::fail;
};

struct AugmentOptions {
  Augment augment = Augment::basic;  // preset for the following options
  Policy auto_augment = Policy::none;
  int ra_ops = 2;
  std::optional<int> ra_magnitude;
  std::array<double, 4> color_jitter{};  // brightness, contrast, saturation, hue
  double random_erase = 0;
  double mixup = 0, cutmix = 0;
  std::optional<std::array<double, 2>> cutmix_minmax;
  double mixup_prob = 1, mixup_switch_prob = 0.5;
  MixMode mixup_mode = MixMode::batch;
  int mixup_off_epoch = 0;
  std::optional<TrainCrop> train_crop;
  std::array<double, 2> scale = {0.08, 1}, ratio = {3.0 / 4, 4.0 / 3};
  int padding = 4;
  std::optional<double> hflip;
  double vflip = 0;
  CropMode crop_mode = CropMode::center;
  double crop_pct = 1;
  Interpolation interpolation = Interpolation::bilinear;
};

struct ModelOptions {
  std::string model, weights;
  std::optional<int> patch_size;
  int representation_size = 0;  // 0: no layer before the head
  double drop_rate = 0, pos_drop_rate = 0, proj_drop_rate = 0, attn_drop_rate = 0;
  double drop_path_rate = 0, label_smoothing = 0;
  bool sync_bn = false, zero_init_last = false;
};

struct StepOptions {
  std::optional<int> batch;        // images per forward pass over all processes
  std::optional<int> local_batch;  // ... per process
  std::optional<LeftOver> left_over;
  int accumulate = 1;
  double epochs = 10;
  std::optional<int64_t> steps;  // maximum number of updates, counting those before a resume
  int eval_every = 1;            // epochs
  BestBy best_by = BestBy::top1;
  uint64_t seed = 0;
  bool strict = false;
};

struct OptimizerOptions {
  OptimizerKind optimizer = OptimizerKind::adamw;
  double momentum = 0.9;
  bool nesterov = false;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.05;
  Decay decay = Decay::weights;
  double layer_decay = 1;
  double ema = 0;         // 0: none
  double clip_grad = 0;   // 0: no limit
  double loss_scale = 0;  // in fp16; 0: dynamic
  double loss_scale_init = 65536;
  int loss_scale_growth_interval = 2000;
};

struct ScheduleOptions {
  double lr = 1e-3;
  Curve schedule = Curve::cosine;
  ScheduleBy schedule_by = ScheduleBy::step;
  double min_lr = 0;
  std::optional<double> period_epochs, decay_epochs, decay_rate;
  std::vector<int> decay_milestones;  // epochs
  std::optional<LrAfter> lr_after;
  double warmup_epochs = 0;
  int64_t warmup_steps = 0;
};

struct PrecisionOptions {
  std::optional<DType> precision;
  AmpPolicy amp_policy = AmpPolicy::none;
  int amp_start = 10;  // epochs, counted from 1
  std::optional<int> amp_end, amp_hold;
  int amp_interval = 1000, amp_interval_hold = 100;
};

struct RunOptions {
  std::string recipe;  // by name
  std::string out, resume;
  SaveEvery save_every;
  int keep = 1;        // step folders besides the best
  int log_every = 10;  // steps
  bool report = false;
  Switch tensorboard = Switch::on;
  bool quiet = false;
};

struct PipelineOptions {
  int pipeline = 1;  // stages
  std::optional<int> micro_batches;
  int chunks = 1;  // per stage
  Partition partition;
  Recompute recompute = Recompute::none;
};

struct MachineOptions {
  std::optional<int> nproc;      // -n
  std::optional<int> min_nproc;  // with fewer the run neither starts nor continues
  NodeCount nnodes;              // machines
  int node_rank = 0;             // number of this machine, from 0
  std::string master_addr;
  int master_port = 29500;
  std::optional<DeviceKind> device;
  KernelChoice kernels = KernelChoice::automatic;
  ConvKernels conv = ConvKernels::own;
  int workers = 0;      // decoding threads per process; 0: one for each of its cores
  int cache_mb = 1024;  // for decoded images, over all processes
  std::optional<int64_t> bucket_bytes;
  int comm_streams = 1;
  std::optional<AllReduce> all_reduce;
  int shards = 0;  // of a batch, summed in one tree; 0: the order depends on the processes
  DType reduce_dtype = DType::fp32;  // of gradients in messages
  int zero = 0;                      // ZeRO's stage: 1: replicas share the update's state
  double timeout = 60;               // seconds without a sign of life from a peer
  int max_restarts = 0;              // by the launcher, after a failure
  std::string trace;                 // file to write; empty: none
  bool plan = false, profile = false, no_graph = false, oversubscribe = false;
};

struct Options : InputOptions,
                 AugmentOptions,
                 ModelOptions,
                 StepOptions,
                 OptimizerOptions,
                 ScheduleOptions,
                 PrecisionOptions,
                 RunOptions,
                 PipelineOptions,
                 MachineOptions {
  // The source of each option that differs from its built-in default, by its name in config.json.
  std::map<std::string, Source, std::less<>> sources;
  Source source(std::string_view name) const {
    const auto found = sources.find(name);
    return found == sources.end() ? Source::built_in : found->second;
  }
  // Whether the user asked for this value, now or when the run began. If it can't be satisfied,
  // that is an error; any other value is a default, which gives way with a note.
  bool is_explicit(std::string_view name) const { return source(name) >= Source::run; }

  // Defined in option_values.cpp: if they were inline, every file would compile code for a hundred
  // members.
  Options();
  Options(const Options&);
  Options(Options&&) noexcept;
  Options& operator=(const Options&);
  Options& operator=(Options&&) noexcept;
  ~Options();
};

}  // namespace bv
