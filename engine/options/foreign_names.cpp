#include "engine/options/foreign_names.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <utility>

#include "engine/options/model_config.h"

namespace bv {
namespace {

// `names` is a space-separated list; `ours` is what to type, or a sentence that begins with "not".
struct Foreign {
  std::string_view names, ours;
};

constexpr std::string_view none = "not in barevision";

constexpr Foreign foreign[] = {
    {" --batch-size -b --validation-batch-size ",
     "--batch, of all processes together (--local-batch: of each)"},
    {" --data-dir --data-path --dataset --train-dir --img-dir --img-prefix ", "--data PATH"},
    {" --dataset-type ", "not needed here: --data tells folders, records and CIFAR apart"},
    {" --val-split --val-dir --val-path ", "--val DIR"},
    {" --train-split ", "--data DIR, whose train/ is used"},
    {" --model -m --arch -a ", "MODEL, the first word: ./launcher vit_tiny"},
    {" --num-classes --nb-classes ", "--classes"},
    {" --img-size --input-size --train-crop-size --val-crop-size ", "--image-size"},
    {" --opt ", "--optimizer"},
    {" --opt-eps ", "--eps"},
    {" --opt-betas ", "--betas"},
    {" --wd ", "--weight-decay"},
    {" --learning-rate --base-lr ", "--lr"},
    {" --lr-base --lr-base-size --lr-base-scale --auto-scale-lr ",
     "--lr, of the whole batch: nothing scales it"},
    {" --num-epochs --max-epochs --num-train-epochs ", "--epochs"},
    {" --sched --lr-scheduler ", "--schedule constant|cosine|step|multistep|poly"},
    {" --sched-on-updates ", "--schedule-by step"},
    {" --warmup-iters ", "--warmup-steps"},
    {" --lr-warmup-epochs ", "--warmup-epochs"},
    {" --drop ", "--drop-rate"},
    {" --drop-path ", "--drop-path-rate"},
    {" --attn-drop ", "--attn-drop-rate"},
    {" --smoothing ", "--label-smoothing"},
    {" --clip-grad-norm --max-grad-norm --grad-clip ", "--clip-grad"},
    {" --grad-accum-steps --gradient-accumulation-steps --accumulation-steps --accum-iter ",
     "--accumulate"},
    {" --pipeline-model-parallel-size --pipeline-parallel-size --pp-size ", "--pipeline"},
    {" --num-micro-batches --num-microbatches --n-microbatches ", "--micro-batches"},
    {" --num-chunks --num-model-chunks --virtual-pipeline-model-parallel-size ", "--chunks"},
    {" --initial-checkpoint --finetune --pretrained-path --init-weights ",
     "--weights FILE.safetensors"},
    {" --pretrained ",
     "--weights NAME; ./launcher weights list has the names of timm's and torchvision's"},
    {" --output --output-dir --save-dir --log-dir ", "--out"},
    {" --experiment --name ", "--out runs/NAME"},
    {" --checkpoint-hist ", "--keep"},
    {" --log-interval --print-freq ", "--log-every"},
    {" --eval-interval --val-interval ", "--eval-every"},
    {" --recovery-interval --save-interval --save-freq ", "--save-every 500steps"},
    {" --num-workers -j --train-num-workers ", "--workers"},
    {" --amp --use-amp ", "--precision bf16, the default on a GPU"},
    {" --amp-dtype --dtype --model-dtype --fp16 --bf16 --half --mixed-precision ",
     "--precision fp16|bf16"},
    {" --grad-checkpointing --activation-checkpointing ", "--recompute blocks"},
    {" --sync-batchnorm --sync-bn-stats ", "--sync-bn"},
    {" --zero-init-residual --zero-init-last-gamma ", "--zero-init-last"},
    {" --nproc-per-node -np --num-gpus --gpus --devices --world-size ", "-n"},
    {" --accelerator --cpu --no-cuda --use-cuda ", "--device auto|cpu|cuda"},
    {" --norm-weight-decay --no-weight-decay-filter ", "--decay weights|all"},
    {" --no-aug ", "--augment none"},
    {" --lr-min --eta-min ", "--min-lr"},
    {" --lr-step-size ", "--decay-epochs"},
    {" --lr-gamma ", "--decay-rate"},
    {" --milestones --lr-milestones --lr-steps ", "--decay-milestones"},
    {" --patience-epochs --cooldown-epochs --warmup-lr --clip-mode --dist-bn --split-bn ", none},
    {" --mixup-alpha --use-mixup ", "--mixup 0.8, the alpha"},
    {" --cutmix-alpha ", "--cutmix 1, the alpha"},
    {" --train-crop-mode ", "--train-crop random-resized|padded|pad-if-needed|none"},
    {" --aa ", "--auto-augment none|ra|ra-dali|ta_wide|cifar10|imagenet"},
    {" --reprob ", "--random-erase"},
    {" --train-interpolation ", "--interpolation bilinear|bicubic"},
    {" --ra-sampler --aug-repeats --remode --recount ", none},
    {" --model-ema --model-ema-decay ", "--ema 0.9998, the average's decay"},
    {" --use-ema ", "FILE:state_dict_ema in place of FILE (--weights FILE:state_dict_ema)"},
    {" --freeze --bce-loss --jsd-loss ", none},
    {" --torchcompile --compile --torchscript --channels-last --pin-mem --fast-norm --fuser ",
     "not needed here: these optimizations are always on"},
    {" --dist-url --dist-backend --local-rank --rank ",
     "not needed here: the launcher or torchrun sets it"},
    {" --rdzv-endpoint ", "--master-addr HOST --master-port N"},
    {" --rdzv-backend --rdzv-id --rdzv-conf --standalone ",
     "not needed here: -n starts the processes of a machine, --nnodes those of several"},
    {" --hostfile --machinefile --hosts ",
     "not in barevision: start ./launcher on each machine with --nnodes, --node-rank and "
     "--master-addr, or start the ranks with mpirun or srun"},
    {" --fusion-threshold --fusion-threshold-mb ", "--bucket-bytes"},
    {" --cycle-time --cycle-time-ms ",
     "not needed here: a bucket of gradients (--bucket-bytes) is reduced as soon as it is full"},
    {" --teacher --teacher-model --distillation-type --distillation-alpha --distillation-tau ",
     "not in barevision: vit_tiny_distilled and vit_large_distilled train both heads on the "
     "labels"},
    {" --num-nodes ", "--nnodes"},
    {" --machine-rank ", "--node-rank"},
    {" --main-process-ip ", "--master-addr"},
    {" --main-process-port ", "--master-port"},
    {" --test-only --evaluate -e --validate ", "the command ./launcher eval RUN"},
    {" --log-wandb --wandb-project ", none},
};

constexpr Foreign policies[] = {
    {"rand", "ra, with --ra-ops and --ra-magnitude"},
    {"trivial", "ta_wide"},
    {"original", "imagenet"},
    {"auto", "imagenet or cifar10"},
    {"v0", "imagenet"},
};

// Models of timm and torchvision that are missing here: how their names begin (the longest match
// counts) and their millions of parameters. Some names begin like our models' names: resnet18d.
struct ForeignModel {
  std::string_view beginning;
  double millions;
};
constexpr ForeignModel foreign_models[] = {
    {"vit_small", 22.1},        {"vit_base", 86.6},        {"vit_medium", 38.9},
    {"vit_huge", 632},          {"vit_giant", 1012},       {"deit3_small", 22.1},
    {"deit3_base", 86.6},       {"deit3_large", 304},      {"beit_base", 86.5},
    {"beit_large", 304},        {"resnet18", 11.7},        {"resnet26", 16},
    {"resnet101", 44.5},        {"resnet152", 60.2},       {"resnet200", 64.7},
    {"resnext50", 25},          {"resnext101", 88.8},      {"wide_resnet50", 68.9},
    {"wide_resnet101", 126.9},  {"seresnet50", 28.1},      {"resnetv2_50", 25.5},
    {"resnetv2_101", 44.5},     {"convnext_tiny", 28.6},   {"convnext_small", 50.2},
    {"convnext_base", 88.6},    {"convnext_large", 197.8}, {"swin_t", 28.3},
    {"swin_s", 49.6},           {"swin_b", 87.8},          {"swin_l", 196.5},
    {"efficientnet_b0", 5.3},   {"efficientnet_b1", 7.8},  {"efficientnet_b2", 9.1},
    {"efficientnet_b3", 12.2},  {"efficientnet_b4", 19.3}, {"efficientnet_b5", 30.4},
    {"mobilenet_v2", 3.5},      {"mobilenetv2_100", 3.5},  {"mobilenet_v3_large", 5.5},
    {"mobilenetv3", 5.5},       {"densenet121", 8},        {"densenet201", 20},
    {"vgg11", 132.9},           {"vgg16", 138.4},          {"vgg19", 143.7},
    {"alexnet", 61.1},          {"inception_v3", 27.2},    {"regnety_016", 11.2},
    {"regnet_y_16gf", 83.6},    {"mixer_b16", 59.9},       {"maxvit_t", 30.9},
    {"mobilenet_v3_small", 2.5}};

// "304 M" from a description with "304 M parameters"; else empty.
std::string parameters_of(const ModelConfig& model) {
  static const std::regex form(R"(([0-9.]+ M) parameters)");
  std::smatch part;
  return std::regex_search(model.description, part, form) ? part[1].str() : "";
}

// "resnet" of "resnet50"
std::string_view kin_of(std::string_view name) {
  return name.substr(0, name.find_first_of("_0123456789"));
}

// Two of our models of the same kind, nearest in size; those with the same family name first.
std::string nearest_in_size(const ForeignModel& theirs) {
  const bool transformer = theirs.beginning.find("it_") != theirs.beginning.npos ||
                           theirs.beginning.starts_with("deit3") ||
                           theirs.beginning.starts_with("swin") ||
                           theirs.beginning.starts_with("mixer");
  struct Ours {
    bool other_name;
    double distance;
    std::string text;
  };
  std::vector<Ours> ours;
  for (const std::string& name : known_models()) {
    const ModelConfig model = load_model_config(name);
    const std::string size = parameters_of(model);
    if (size.empty() || name.ends_with("_distilled") || (model.patch_size > 0) != transformer)
      continue;
    ours.push_back({kin_of(name) != kin_of(theirs.beginning),
                    std::abs(std::log(std::stod(size) / theirs.millions)),
                    name + " (" + size + ")"});
  }
  std::ranges::sort(ours, {}, [](const Ours& o) { return std::pair(o.other_name, o.distance); });
  ours.resize(std::min<size_t>(ours.size(), 2));
  std::string text;
  for (const Ours& o : ours) text += (text.empty() ? "; nearest: " : ", ") + o.text;
  return text;
}

std::string advice_for_missing_model(const std::string& name) {
  const ForeignModel* theirs = nullptr;
  for (const ForeignModel& model : foreign_models)
    if (name.starts_with(model.beginning) &&
        (!theirs || theirs->beginning.size() < model.beginning.size()))
      theirs = &model;
  return theirs ? ": " + std::string(none) + nearest_in_size(*theirs) : "";
}

}  // namespace

std::string advice_for_foreign_policy(std::string_view policy) {
  for (const auto& [beginning, ours] : policies)
    if (policy.starts_with(beginning)) return " (use " + std::string(ours) + ")";
  return "";
}

std::string advice_for_foreign(std::string_view flag) {
  std::string word = " " + std::string(flag) + " ";
  std::ranges::replace(word, '_', '-');
  for (const auto& [names, ours] : foreign)
    if (names.find(word) != names.npos)
      return (ours.starts_with("not") ? ": " : ": use ") + std::string(ours);
  return "";
}

std::string advice_for_foreign_model(const std::string& name) {
  static const std::regex form(
      R"((?:hf[-_]hub:)?(?:timm/)?((\w+?)(?:_patch(\d{1,4})_(\d{1,4}))?(\.\w+)?))");
  std::smatch part;
  const std::vector<std::string> ours = known_models();
  if (name.size() > 100 || !std::regex_match(name, part, form)) return "";
  std::string same = part[2];
  if (same.starts_with("deit_")) same.replace(0, 4, "vit");  // the same model
  if (std::ranges::find(ours, same) == ours.end()) return advice_for_missing_model(same);
  const ModelConfig model = load_model_config(same);
  std::string text = ": use " + model.name;
  if (part[3].matched) {
    const std::string flags = "--patch-size " + part[3].str() + " --image-size " + part[4].str();
    const bool defaults =
        part[3] == std::to_string(model.patch_size) && part[4] == std::to_string(model.image_size);
    text += defaults ? " (" + flags + " are its defaults)" : " " + flags;
  }
  if (part[5].matched)
    text += "; its weights: --weights timm/" + part[1].str() +
            " if ./launcher weights list has it, " +
            "or FILE, the model.safetensors of huggingface.co/timm/" + part[1].str();
  return text;
}

}  // namespace bv
