#include "engine/options/option_table.h"

#include <algorithm>

#include "base/text.h"

namespace bv {

namespace {

using O = Options;
template <auto member>
constexpr Field of = field<member, Options>;

constexpr Range any, count = between(1, 1e9), not_negative = {.min = 0};
constexpr Range fraction = {.min = 0, .max = 1, .max_open = true};
constexpr Range share = {.min = 0, .max = 1, .min_open = true};
constexpr Range positive = {.min = 0, .min_open = true};
constexpr Range side_ratio = {.min = 0, .max = 100, .min_open = true};
constexpr Range probability = between(0, 1);
constexpr Range alpha = between(0, 1000);
constexpr Range some = {.min = 0, .max = max_epochs, .min_open = true};

constexpr Uses new_run = {.recipe = false};                   // fixed when a run starts
constexpr Uses any_time = {.recipe = false, .resume = true};  // may change when a run is resumed
constexpr Uses recipe_or_resume = {.resume = true};
constexpr Uses schedule_end = {.resume = true, .kept = true};
constexpr Uses named_or_new = {.recipe = false, .named = true};
constexpr Uses named_or_resume = {.recipe = false, .resume = true, .named = true};
constexpr Uses this_time = {.recipe = false, .resume = true, .stored = false};
constexpr Uses run_folder = {.recipe = false, .stored = false};
constexpr Uses command_line = {.recipe = false, .stored = false, .config = false};
constexpr Uses resumed = {.recipe = false, .resume = true, .stored = false, .config = false};
constexpr Uses by_data = {.recipe = false,
                          .kept = false};  // resuming compares the data's fingerprint
constexpr Uses data_path = {.recipe = false, .kept = false, .path = true, .absolute = true};
constexpr Uses weights_path = {
    .recipe = false, .named = true, .kept = false, .path = true, .absolute = true};

constexpr OptionRow data_rows[] = {
    {"data", "PATH", of<&O::data>,
     "the files of CIFAR-10 or CIFAR-100, binary or for Python (their folder, or the one above "
     "it), a folder with "
     "train/ and val/, a folder of class folders, records (NAME.index, or a folder of TFRecords), "
     "or 'synthetic' (random pixels, for speed tests); "
     "default: the built-in images, drawn on the fly",
     any, data_path},
    {"built_in", "", of<&O::built_in>,
     "which built-in images: shapes that hide parts of mosaics, or the mosaics alone, which are "
     "easier"},
    {"val", "DIR", of<&O::val>,
     "validation images: a folder with the same class folders, or records of the same classes", any,
     data_path},
    {"val_fraction", "X", of<&O::val_fraction>,
     "fraction of each class held out for validation if the folder has no val/; 0: no "
     "evaluation at all, unless --val names images",
     fraction, named_or_new},
    {"split_seed", "N", of<&O::split_seed>,
     "seed of the choice of validation images by --val-fraction", any, new_run},
    {"classes", "N|A,B,..", of<&O::classes>,
     "number of classes, or their names in label order; default: the data's", any, by_data},
    {"class_names", "FILE", of<&O::class_names>,
     "names for records whose labels have none: one per line, the first for the lowest label "
     "(0 or 1)",
     any, data_path},
    {"image_size", "N", of<&O::image_size>,
     "side of the model's input in pixels; default: the recipe's, else the data's, else the "
     "model's",
     between(1, 4096)},
    {"mean", "R,G,B", of<&O::mean>,
     "subtracted from pixel values in 0-1; default: the weights', else the model's", between(0, 1)},
    {"std", "R,G,B", of<&O::std>,
     "pixel values are divided by this after --mean is subtracted; default: the weights', else the "
     "model's",
     between(1e-3, 1)},
    {"augment", "", of<&O::augment>,
     "basic: random crop and flip of training images; strong: timm's for ViTs, --train-crop "
     "random-resized --auto-augment ra --ra-ops 2 --ra-magnitude 9 --random-erase 0.25 --mixup 0.8 "
     "--cutmix 1 --mixup-switch-prob 0.5; explicit options win"},
    {"train_crop", "", of<&O::train_crop>,
     "random-resized: by --scale and --ratio; padded: scaled as for evaluation, a black frame of "
     "--padding, cropped at random; pad-if-needed: not scaled, framed where smaller, cropped at "
     "random; none: as for evaluation; default: random-resized for photos, padded for CIFAR, "
     "none for drawn images"},
    {"scale", "A,B", of<&O::scale>, "area of random-resized crops, as fractions of the image's",
     share},
    {"ratio", "A,B", of<&O::ratio>, "width / height of random-resized crops", side_ratio},
    {"padding", "N", of<&O::padding>, "width in pixels of --train-crop padded's frame",
     between(0, 4096)},
    {"hflip", "P", of<&O::hflip>,
     "probability that a training image is flipped horizontally; default: 0.5, 0 for drawn images",
     probability},
    {"vflip", "P", of<&O::vflip>, "probability that a training image is flipped vertically",
     probability},
    {"crop_mode", "", of<&O::crop_mode>,
     "for evaluation, center: the short side scaled to the image size, the middle cropped; squash: "
     "both sides scaled; border: the long side scaled, the mean colour around; pad: not scaled, a "
     "black frame where it is smaller, the middle cropped"},
    {"crop_pct", "X", of<&O::crop_pct>, "fraction of the scaled image that the centre crop keeps",
     between(0.1, 1)},
    {"interpolation", "", of<&O::interpolation>,
     "how images are resampled, antialiased as in PIL; pixels around a crop are used, as in PIL's "
     "resize(box=...), unlike torchvision's RandomResizedCrop; JPEG crops of at least 2.5, 5 or 10 "
     "times the input's size (random crops: 8, 16 or 32) are decoded at 1/2, 1/4 or 1/8, which "
     "changes pixels by one level on average"},
    {"auto_augment", "", of<&O::auto_augment>,
     "random operations on training images after crop and flip: torchvision's RandAugment, "
     "TrivialAugmentWide and AutoAugment; ra-dali: RandAugment of 16 operations on half of the "
     "images, with shifts in pixels at 224; they don't interpolate, and fill with black (ra-dali: "
     "grey), while timm interpolates and fills with the mean"},
    {"ra_ops", "N", of<&O::ra_ops>, "operations of ra and ra-dali", between(1, 16)},
    {"ra_magnitude", "N", of<&O::ra_magnitude>,
     "strength of ra's (0-30) and ra-dali's (0-10) operations; default: 9 and 10", between(0, 30)},
    {"color_jitter", "B,C,S,H", of<&O::color_jitter>,
     "strength of random brightness, contrast, saturation and hue, in a random order, as in "
     "torchvision's ColorJitter (one number: of the first three, as in timm); applied after "
     "--auto-augment, which in timm switches it off",
     probability},
    {"random_erase", "P", of<&O::random_erase>,
     "probability that a rectangle of a training image is filled with the rounded mean colour, "
     "before normalisation (timm and torchvision: with 0, after it)",
     probability},
    {"mixup", "A", of<&O::mixup>,
     "mixup of adjacent images of a batch, with weights from Beta(A, A) (timm pairs the first "
     "with the last); 0: off",
     alpha},
    {"cutmix", "A", of<&O::cutmix>,
     "CutMix: paste a rectangle of another image, its area drawn from Beta(A, A); 0: off", alpha},
    {"cutmix_minmax", "A,B", of<&O::cutmix_minmax>,
     "CutMix rectangles' sides, as fractions of the image's, instead of --cutmix, which becomes 1",
     probability},
    {"mixup_prob", "X", of<&O::mixup_prob>, "probability that --mixup or --cutmix is applied",
     probability},
    {"mixup_switch_prob", "X", of<&O::mixup_switch_prob>,
     "probability of --cutmix instead of --mixup if both are on", probability},
    {"mixup_mode", "", of<&O::mixup_mode>,
     "draw the mix once for a batch of all processes, for each pair of images or for each image"},
    {"mixup_off_epoch", "N", of<&O::mixup_off_epoch>, "mix in the first N epochs only; 0: in all",
     between(0, max_epochs)},
    {"on_bad_image", "", of<&O::on_bad_image>,
     "what to do with an image that can't be decoded; a run can't be resumed once files of its "
     "data are deleted, except those that it skipped",
     any, any_time},
};

constexpr OptionRow model_rows[] = {
    {"recipe", "NAME|FILE", of<&O::recipe>,
     "train as models/recipes/NAME.json says, MODEL included; ./launcher recipes lists them; FILE: "
     "a .json of your own, like these",
     any, command_line},
    {"patch_size", "N", of<&O::patch_size>,
     "side of a ViT's patches; default: the model's; for images smaller than the model's, the "
     "recipe's for this kind of data",
     between(1, 1024)},
    {"weights", "FILE", of<&O::weights>,
     "start from this .safetensors or .pth file (FILE:KEY: from that part of it, like "
     "state_dict_ema), or from public weights by name, timm/NAME or torchvision/NAME (weights "
     "list, "
     "weights fetch); a different number of classes or image size is handled; none: from random "
     "weights, whatever --recipe says",
     any, weights_path},
    {"representation_size", "N", of<&O::representation_size>,
     "a linear layer of N features with tanh before a ViT's head, as in the first ViTs; 0: none",
     between(0, 65536)},
    {"drop_rate", "X", of<&O::drop_rate>, "dropout before the head", fraction},
    {"pos_drop_rate", "X", of<&O::pos_drop_rate>, "dropout after a ViT's position embedding",
     fraction},
    {"proj_drop_rate", "X", of<&O::proj_drop_rate>,
     "dropout after a ViT's attention projections and both layers of its MLPs", fraction},
    {"attn_drop_rate", "X", of<&O::attn_drop_rate>, "dropout on attention weights", fraction},
    {"drop_path_rate", "X", of<&O::drop_path_rate>,
     "stochastic depth rate of the last block; it grows linearly from 0 in the first", fraction},
    {"sync_bn", "", of<&O::sync_bn>,
     "compute batch norm statistics over all processes instead of each one's batch"},
    {"zero_init_last", "", of<&O::zero_init_last>,
     "start a ResNet's blocks as the identity: the last batch norm of each has weight 0"},
};

constexpr OptionRow step_rows[] = {
    {"epochs", "X", of<&O::epochs>, "passes over the data; the schedule ends with the last", some,
     schedule_end},
    {"steps", "N", of<&O::steps>,
     "stop after this many updates in total; the schedule stays as it is", between(1, 1e15),
     any_time},
    {"batch", "N", of<&O::batch>, "images per forward pass, over all processes", count},
    {"local_batch", "N", of<&O::local_batch>,
     "images per forward pass of each process, instead of --batch", count, new_run},
    {"left_over", "", of<&O::left_over>,
     "an epoch has only full batches: the images left out begin the next epoch, or have to wait to "
     "be drawn; default: next up to 500 images"},
    {"accumulate", "N", of<&O::accumulate>, "batches per update", between(1, 1e6)},
    {"eval_every", "N", of<&O::eval_every>,
     "epochs from one evaluation to the next; another one follows the last epoch; 0: none, with "
     "--report one after the last",
     between(0, 1e9), recipe_or_resume},
    {"best_by", "", of<&O::best_by>,
     "best/ has the highest validation accuracy, or the lowest loss; with --ema, of the average"},
    {"strict", "", of<&O::strict>,
     "treat the recipe check's warnings as errors (exit code 2); each says what to change", any,
     this_time},
    {"seed", "N", of<&O::seed>, "random seed; the same seed gives the same weights", any, new_run},
};

constexpr OptionRow optimizer_rows[] = {
    {"optimizer", "", of<&O::optimizer>, "the optimizer, as PyTorch defines it"},
    {"lr", "X", of<&O::lr>, "peak learning rate", not_negative},
    {"momentum", "X", of<&O::momentum>, "momentum of sgd", fraction},
    {"nesterov", "", of<&O::nesterov>, "Nesterov momentum for sgd"},
    {"betas", "A,B", of<&O::betas>, "decay rates of the moments of adam and adamw", fraction},
    {"eps", "X", of<&O::eps>, "added to the denominator of adam and adamw", not_negative},
    {"weight_decay", "X", of<&O::weight_decay>,
     "decoupled in adamw, otherwise added to the gradient", not_negative},
    {"decay", "", of<&O::decay>,
     "weights: no decay of biases, norms, position embedding and class tokens"},
    {"schedule", "", of<&O::schedule>,
     "learning rate after the warm-up; cosine and poly begin when it ends"},
    {"schedule_by", "", of<&O::schedule_by>, "how often the learning rate changes"},
    {"min_lr", "X", of<&O::min_lr>, "final learning rate of cosine and poly", not_negative},
    {"period_epochs", "X", of<&O::period_epochs>,
     "half-period of cosine in epochs: it falls to --min-lr, then rises again (PyTorch's T_max); "
     "default: it falls until the last epoch",
     some},
    {"decay_epochs", "X", of<&O::decay_epochs>, "epochs from one decay of step to the next", some},
    {"decay_milestones", "A,B,..", of<&O::decay_milestones>,
     "the epochs, counted from 1, at whose start multistep decays", between(1, max_epochs)},
    {"decay_rate", "X", of<&O::decay_rate>,
     "factor of each decay of step and multistep, or the power of poly; default: 0.1, as in "
     "timm",
     positive},
    {"lr_after", "EPOCH:LR", of<&O::lr_after>,
     "after EPOCH epochs the rate is LR, for any schedule: 600:1e-6"},
    {"warmup_epochs", "X", of<&O::warmup_epochs>,
     "epochs over which the learning rate rises from 0", between(0, 1e6)},
    {"warmup_steps", "N", of<&O::warmup_steps>,
     "length of the warm-up in updates, instead of --warmup-epochs", between(0, 1e15)},
    {"layer_decay", "X", of<&O::layer_decay>,
     "for fine-tuning: each block's learning rate is that of the block above it times this; the "
     "head's is --lr",
     share},
    {"ema", "X", of<&O::ema>,
     "keep a moving average of the weights with this decay (less in the first updates: t/(t+9)): "
     "evaluated as ema_loss and ema_top1, it chooses best/ and is saved as ema.safetensors; 0: "
     "none",
     fraction},
    {"clip_grad", "X", of<&O::clip_grad>,
     "maximum gradient norm (L2, over all parameters); 0: no limit", not_negative},
    {"loss_scale", "X", of<&O::loss_scale>, "fixed loss scale in fp16; 0: dynamic", not_negative},
    {"loss_scale_init", "X", of<&O::loss_scale_init>,
     "initial dynamic loss scale; it halves when a gradient overflows", between(1, 0x1p24)},
    {"loss_scale_growth_interval", "N", of<&O::loss_scale_growth_interval>,
     "updates without an overflow before the loss scale doubles", count},
    {"label_smoothing", "X", of<&O::label_smoothing>,
     "fraction of the target spread over all classes", fraction},
};

constexpr OptionRow output_rows[] = {
    {"out", "DIR", of<&O::out>, "run folder, new or empty; default: runs/MODEL-DATE-TIME", any,
     run_folder},
    {"resume", "DIR|auto", of<&O::resume>,
     "resume the run in this folder with its own options; with MODEL or --recipe, start it there "
     "if "
     "the folder has none, so that the same command can be repeated; auto: in --out's folder",
     any, resumed},
    {"save_every", "N|Nsteps|Nmin", of<&O::save_every>,
     "epochs, updates (500steps) or time (30s, 10min, 2h) from one checkpoint to the next", any,
     any_time},
    {"keep", "N", of<&O::keep>, "newest checkpoints to keep, besides the best", count, any_time},
    {"log_every", "N", of<&O::log_every>,
     "updates from one line of metrics.jsonl to the next; if it isn't given, fewer in runs of "
     "fewer "
     "than 500 updates, which write 50 lines or more",
     count, any_time},
    {"report", "", of<&O::report>,
     "print precision, recall and F1 of each class after each evaluation, as scikit-learn's "
     "classification_report does",
     any, any_time},
    {"tensorboard", "", of<&O::tensorboard>,
     "write events.out.tfevents.*, which TensorBoard shows, to the run folder: the same figures, "
     "the options, training images and mistakes as pictures; needs a build with protobuf",
     any, any_time},
    {"quiet", "", of<&O::quiet>, "print only warnings, errors and the last line", any, this_time},
};

constexpr OptionRow machine_rows[] = {
    {"nproc", "N", of<&O::nproc>,
     "number of processes on this machine; default: one per visible GPU, else 1", between(1, 1024),
     named_or_resume, 'n'},
    {"min_nproc", "N", of<&O::min_nproc>,
     "on one machine: the run may have fewer processes than -n, at least N, if there are fewer "
     "GPUs "
     "or, with --max-restarts, if one fails twice in a row before its first step; --batch is kept; "
     "default: as many as -n",
     between(1, 1024), this_time},
    {"nnodes", "N|MIN:MAX", of<&O::nnodes>,
     "number of machines (nodes): start the launcher on each, with its --node-rank and the same "
     "-n; MIN:MAX, like 2:4: the run starts once MAX have connected, or MIN and no others for "
     "half "
     "of --timeout; --max-restarts restarts it with those that are left or return; the batch "
     "is kept, each process's share of it changes",
     any, this_time},
    {"node_rank", "K", of<&O::node_rank>, "number of this machine, from 0", between(0, 1023),
     this_time},
    {"master_addr", "HOST", of<&O::master_addr>,
     "the machine of --node-rank 0, to which all others connect", any, this_time},
    {"master_port", "PORT", of<&O::master_port>, "a free TCP port of the machine of --node-rank 0",
     between(1, 65534), this_time},
    {"device", "", of<&O::device>, "auto: cuda if there is a GPU, else cpu", any, any_time},
    {"precision", "", of<&O::precision>,
     "type of the computation; weights stay fp32; auto: on cuda bf16 (fp16 before sm_80), else "
     "fp32; bf16 on the cpu needs AVX512_BF16",
     any, recipe_or_resume},
    {"amp_policy", "", of<&O::amp_policy>,
     "adaptive mixed precision: some epochs, counted from 1, compute in --precision (16 bits), the "
     "others in fp32; none: all in --precision; 0: 16 bits from --amp-start to --amp-end; 1: as 0, "
     "but decided anew every --amp-hold epochs: fp32 if the learning rate rose, or the loss by "
     "more "
     "than 10%; 2: decided in windows (--amp-interval): 16 bits if the loss fell by 0.1% to 50%, "
     "else fp32; 16 bits before the first window"},
    {"amp_start", "N", of<&O::amp_start>, "first epoch in 16 bits of policies 0 and 1",
     between(0, max_epochs)},
    {"amp_end", "N", of<&O::amp_end>, "last epoch in 16 bits; may be beyond the run's last",
     between(0, max_epochs)},
    {"amp_hold", "N", of<&O::amp_hold>, "epochs for which a decision of policy 1 holds; default: 1",
     between(1, max_epochs)},
    {"amp_interval", "N", of<&O::amp_interval>,
     "a window of policy 2 begins with each multiple of N, counted in epochs",
     between(1, max_epochs)},
    {"amp_interval_hold", "N", of<&O::amp_interval_hold>, "length of policy 2's windows in epochs",
     between(1, max_epochs)},
    {"kernels", "", of<&O::kernels>,
     "a GPU's kernels; plain: one thread per output, first in each NAME.cu, to read and to compare "
     "with; slow; hopper: those made for sm_90 (H100, H200) where there are any, which no GPU has "
     "run yet",
     any, any_time},
    {"conv", "", of<&O::conv>, "implementation of convolutions on a GPU; cudnn is for comparison",
     any, any_time},
    {"recompute", "", of<&O::recompute>,
     "blocks: keep only the input of each block and recompute the rest in backward; less memory, "
     "a third more work, identical results",
     any, recipe_or_resume},
    {"pipeline", "P", of<&O::pipeline>,
     "cut the model into P stages, one process each: -n N trains N / P copies "
     "of the model",
     between(1, 1024), named_or_resume},
    {"micro_batches", "M", of<&O::micro_batches>,
     "images of a batch pass through the model in M parts, whose gradients are added: less memory "
     "without --pipeline, less waiting with it; default: 4 per stage with --pipeline, else 1",
     count, recipe_or_resume},
    {"chunks", "V", of<&O::chunks>,
     "parts of the model in each stage (interleaved schedule): less waiting, more messages",
     between(1, 1024), named_or_resume},
    {"partition", "uniform|balanced|cost|A,B,..", of<&O::partition>,
     "how the model's blocks are divided; uniform: by number; balanced: by parameters; cost: by "
     "flops; or the blocks of each part, in the model's order",
     any, any_time},
    {"workers", "N", of<&O::workers>,
     "image-decoding threads per process; 0: one for each of its cores", between(0, 1024),
     any_time},
    {"cache_mb", "N", of<&O::cache_mb>,
     "keep decoded images in memory if all of them fit in this many MiB; 0: off", between(0, 1e9),
     any_time},
    {"bucket_bytes", "N", of<&O::bucket_bytes>,
     "gradients are exchanged in buckets of at most this size; default: 25 MiB on cuda, "
     "else 4 MiB",
     between(4096, 1e12), any_time},
    {"comm_streams", "N", of<&O::comm_streams>,
     "streams that exchange buckets concurrently; results stay the same", between(1, 8), any_time},
    {"all_reduce", "", of<&O::all_reduce>,
     "how gradients are added: flat: over all processes (on GPUs as NCCL chooses); 2d: inside each "
     "node, between the nodes, inside again; auto: 2d on several nodes on cpu, else "
     "flat; they add in different orders, so their last bits differ, the same on all processes",
     any, any_time},
    {"shards", "S", of<&O::shards>,
     "divide each batch into S equal parts, a power of two, and add gradients in a fixed order: "
     "the weights are the same, byte for byte, on any number of processes that divides S; each "
     "keeps S / N gradients; 0: off",
     between(0, 1024), named_or_new},
    {"reduce_dtype", "", of<&O::reduce_dtype>,
     "the type of gradients in messages between processes; 16 bits: half the bytes, each gradient "
     "rounded once on its way in, added in fp32, and the sum rounded once",
     any, any_time},
    {"zero", "STAGE", of<&O::zero>,
     "1: each of N replicas, of the model or of a pipeline's stage, keeps 1/N of moments, moving "
     "average and, in 16 bits, master weights (ZeRO's stage 1), gets the sum of that part's "
     "gradients, "
     "updates it, and sends the new weights to the others; 0: each keeps all; checkpoints are the "
     "same",
     between(0, 1), any_time},
    {"timeout", "X", of<&O::timeout>,
     "seconds without a sign of life after which a process counts as dead", between(1, 1e6),
     any_time},
    {"max_restarts", "N", of<&O::max_restarts>,
     "start the processes again, up to N times, if one dies or hangs (--timeout): they resume from "
     "the newest checkpoint; not after an error in the command or the data, nor after a second "
     "death in the same step; on several machines, give all the same N and --out DIR on a shared "
     "disk",
     between(0, 1e6), this_time},
    {"oversubscribe", "", of<&O::oversubscribe>,
     "let processes share GPUs; their gradients are staged through the host", any, any_time},
    {"no_graph", "", of<&O::no_graph>, "launch kernels one by one instead of replaying CUDA graphs",
     any, any_time},
    {"profile", "", of<&O::profile>, "print the time per kind of operation at the end", any,
     this_time},
    {"trace", "FILE", of<&O::trace>,
     "write a timeline of the first 100 updates of each process, with its waits: a Chrome trace, "
     "for ui.perfetto.dev",
     any, this_time},
    {"plan", "", of<&O::plan>, "print the memory plan and exit", any, this_time},
};

// MODEL has no flag; the help shows it in its first lines.
constexpr OptionRow first_rows[] = {{"model", "MODEL", of<&O::model>, "", any, by_data, 0, true}};

constexpr OptionGroup groups[] = {
    {"", first_rows},         {"Data", data_rows},           {"Model", model_rows},
    {"Steps", step_rows},     {"Optimizer", optimizer_rows}, {"Run folder", output_rows},
    {"Machine", machine_rows}};

}  // namespace

std::span<const OptionGroup> option_groups() { return groups; }

const OptionRow* find_option(std::string_view name) {
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows)
      if (row.name == name) return &row;
  return nullptr;
}

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows) names.emplace_back(row.name);
  return names;
}

std::string OptionRow::values() const {
  return field.type->texts ? join(field.type->texts(), "|") : std::string(metavar);
}

std::string OptionRow::flag() const {
  if (positional) return std::string(metavar);
  std::string text = "--" + std::string(name);
  std::ranges::replace(text, '_', '-');
  return text;
}

}  // namespace bv
