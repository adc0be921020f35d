// The options of a run.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bv {

// Where an option's value comes from; later sources win over earlier ones.
enum class Source { built_in, resolved, recipe, named_recipe, run, config, command_line };

inline constexpr int64_t max_epochs = 1000000;

// std::optional fields are resolved once the model, the data and the machine are known; from then
// on config.json contains them all.
struct Options {
  // what runs where
  std::string model;
  std::optional<int> nproc;        // -n
  std::string device = "auto";     // auto cpu simt cuda
  std::string precision = "auto";  // auto fp32 fp16 bf16
  std::string amp_policy = "none";  // none 0 1 2
  int amp_start = 10;              // epochs, counted from 1
  std::optional<int> amp_end, amp_hold;
  int amp_interval = 1000, amp_interval_hold = 100;
  // data
  std::string data;  // path, "synthetic", or empty: the built-in set
  std::string val;
  double val_fraction = 0.1;
  uint64_t split_seed = 0;
  std::vector<std::string> classes;                // names; empty: the data's
  std::optional<std::array<double, 3>> mean, std;  // of pixels in 0-1
  std::optional<int> image_size, patch_size;
  std::string augment = "basic";      // none basic strong: other values of the following
  std::string auto_augment = "none";  // none ra ra-dali ta_wide cifar10 imagenet
  int ra_ops = 2;
  std::optional<int> ra_magnitude;
  std::array<double, 4> color_jitter{};  // brightness, contrast, saturation, hue
  double random_erase = 0;
  double mixup = 0, cutmix = 0;
  std::optional<std::array<double, 2>> cutmix_minmax;
  double mixup_prob = 1, mixup_switch_prob = 0.5;
  std::string mixup_mode = "batch";  // batch pair elem
  int mixup_off_epoch = 0;
  std::string train_crop;  // random-resized padded pad-if-needed none; empty: by the data
  std::array<double, 2> scale = {0.08, 1}, ratio = {3.0 / 4, 4.0 / 3};
  int padding = 4;
  std::optional<double> hflip;
  double vflip = 0;
  std::string crop_mode = "center";  // center squash border pad
  double crop_pct = 1;
  std::string interpolation = "bilinear";  // bilinear bicubic
  std::string on_bad_image = "fail";       // fail skip
  int workers = 0;      // decoding threads per process; 0: one for each of its cores
  int cache_mb = 1024;  // decoded images, over all processes
  // steps
  std::optional<int> batch;        // images per forward pass over all processes
  std::optional<int> local_batch;  // ... per process
  int accumulate = 1;
  double epochs = 10;
  std::optional<int64_t> steps;  // cap on the updates, resumed ones included
  int eval_every = 1;            // epochs
  std::string best_by = "top1";  // top1 loss
  // optimizer and schedule
  std::string optimizer = "adamw";  // sgd adam adamw
  double lr = 1e-3;
  double momentum = 0.9;
  bool nesterov = false;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.05;
  std::string decay = "weights";     // weights all
  std::string schedule = "cosine";   // constant cosine step multistep poly
  std::string schedule_by = "step";  // step epoch
  double min_lr = 0;
  std::optional<double> period_epochs, decay_epochs, decay_rate;
  std::vector<int> decay_milestones;  // epochs
  std::string lr_after;               // "600:1e-6", or empty
  double warmup_epochs = 0;
  int64_t warmup_steps = 0;
  double layer_decay = 1;
  double ema = 0;         // 0: none
  double clip_grad = 0;   // 0: no limit
  double loss_scale = 0;  // in fp16; 0: dynamic
  double loss_scale_init = 65536;
  int loss_scale_growth_interval = 2000;
  double label_smoothing = 0;
  int representation_size = 0;  // 0: no layer before the head
  double drop_rate = 0, pos_drop_rate = 0, proj_drop_rate = 0, attn_drop_rate = 0;
  double drop_path_rate = 0;
  bool sync_bn = false, zero_init_last = false;
  uint64_t seed = 0;
  // files
  std::string recipe;  // by name
  std::string out, resume, weights;
  std::string save_every = "1";  // epochs, or "500steps"
  int keep = 1;                  // step folders besides the best
  int log_every = 10;            // steps
  bool report = false;
  std::string tensorboard = "on";  // on off
  bool quiet = false;
  // machine
  int nnodes = 1, node_rank = 0;  // machines, and which of them this is
  std::string master_addr;
  int master_port = 29500;
  std::optional<int64_t> bucket_bytes;
  int comm_streams = 1;
  std::string all_reduce = "auto";  // auto flat 2d
  std::string conv = "own";         // own cudnn
  std::string recompute = "none";   // none blocks
  int pipeline = 1;                 // stages
  std::optional<int> micro_batches;
  int chunks = 1;                  // of each stage
  std::string partition = "cost";  // uniform balanced cost, or blocks: 6,6
  std::string trace;               // a file to write, or empty
  double timeout = 60;             // seconds without a sign of life from a peer
  bool strict = false;
  bool plan = false, profile = false, no_graph = false, oversubscribe = false;
  // of other commands than train, in CommandLine::own
  int count = 16;                  // preview
  int64_t epoch = 1;               // preview; counted from 1
  std::string finished;            // eval, predict: a run's folder or a weights file
  std::string class_list;          // eval, predict: a number, or a file of names
  std::string split = "val";       // eval: train val all
  std::string confusion;           // eval: a file to write
  std::vector<std::string> files;  // predict
  int topk = 5;                    // predict
  bool json = false;               // eval, predict, data stats, data check
  bool link = false;               // data split
  int min_side = 32;               // data check
  std::string url, sha256;         // data fetch
  // of data list, pack and index
  std::string coco, images, labels, set_name, label_base = "auto";
  std::optional<int> class_count, per_class, shards, resize;
  int shard_mb = 256, quality = 95;

  // The source of each option that isn't a built-in default, by its name in config.json.
  std::map<std::string, Source, std::less<>> sources;
  Source source(std::string_view name) const {
    const auto found = sources.find(name);
    return found == sources.end() ? Source::built_in : found->second;
  }
  // The user asked for this value, now or when the run began: if it can't be had, that is an error.
  // Any other value is a default, which gives way with a note.
  bool is_explicit(std::string_view name) const { return source(name) >= Source::run; }

  // In option_values.cpp: of a hundred members, in every file that has one they were much code.
  Options();
  Options(const Options&);
  Options(Options&&) noexcept;
  Options& operator=(const Options&);
  Options& operator=(Options&&) noexcept;
  ~Options();
};

}  // namespace bv
