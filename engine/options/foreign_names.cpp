#include "engine/options/foreign_names.h"

namespace bv {
namespace {

// Each `names` is a list between spaces; `ours` is what to type, or why there is nothing.
struct Foreign {
  std::string_view names, ours;
};

constexpr Foreign foreign[] = {
    {" --batch-size -b --validation-batch-size ",
     "--batch, of all processes together (--local-batch: of each)"},
    {" --data-dir --data-path --dataset --data_dir --data_path ", "--data PATH"},
    {" --model -m --arch -a ", "MODEL, the first word: ./launcher vit_tiny"},
    {" --num-classes --nb-classes ", "--classes"},
    {" --img-size --input-size --train-crop-size --val-crop-size ", "--image-size"},
    {" --opt ", "--optimizer"},
    {" --opt-eps ", "--eps"},
    {" --opt-betas ", "--betas"},
    {" --wd ", "--weight-decay"},
    {" --learning-rate --base-lr ", "--lr"},
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
    {" --initial-checkpoint --finetune --pretrained-path --init-weights ",
     "--weights FILE.safetensors"},
    {" --pretrained ", "--weights FILE.safetensors, which timm's and torchvision's pages offer"},
    {" --output --output-dir --save-dir --log-dir ", "--out"},
    {" --experiment --name ", "--out runs/NAME"},
    {" --checkpoint-hist ", "--keep"},
    {" --log-interval --print-freq ", "--log-every"},
    {" --eval-interval --val-interval ", "--eval-every"},
    {" --recovery-interval --save-interval --save-freq ", "--save-every 500steps"},
    {" --num-workers -j --train-num-workers ", "--workers"},
    {" --amp --use-amp ", "--precision bf16, the default on a GPU"},
    {" --amp-dtype --dtype --model-dtype ", "--precision"},
    {" --grad-checkpointing --activation-checkpointing ", "--recompute blocks"},
    {" --sync-batchnorm --sync-bn-stats ", "--sync-bn"},
    {" --zero-init-residual --zero-init-last-gamma ", "--zero-init-last"},
    {" --nproc-per-node --nproc_per_node --num-gpus --gpus --world-size ", "-n"},
    {" --norm-weight-decay --no-weight-decay-filter ", "--decay weights|all"},
    {" --no-aug ", "--augment none"},
    {" --lr-min --eta-min ", "--min-lr"},
    {" --lr-step-size ", "--decay-epochs"},
    {" --lr-gamma ", "--decay-rate"},
    {" --milestones --lr-milestones --lr-steps ", "--decay-milestones"},
    {" --patience-epochs --cooldown-epochs ", ""},
    {" --mixup-alpha --use-mixup ", "--mixup 0.8, the alpha"},
    {" --cutmix-alpha ", "--cutmix 1, the alpha"},
    {" --aa ", "--auto-augment none|ra|ra-dali|ta_wide|cifar10|imagenet"},
    {" --reprob ", "--random-erase"},
    {" --train-interpolation ", "--interpolation bilinear|bicubic"},
    {" --ra-sampler --aug-repeats --remode --recount ", ""},
    {" --model-ema --model-ema-decay --use-ema ", "--ema 0.9998, the average's decay"},
    {" --freeze --bce-loss --jsd-loss ", ""},
    {" --torchcompile --compile --torchscript --channels-last --pin-mem --fast-norm --fuser ",
     "nothing: it is always as fast as it can be"},
    {" --dist-url --dist-backend --local-rank --local_rank --rank ",
     "nothing: the launcher, or torchrun's environment, says it"},
    {" --num-nodes --num_nodes ", "--nnodes"},
    {" --node_rank --machine-rank ", "--node-rank"},
    {" --master_addr --main-process-ip ", "--master-addr"},
    {" --master_port --main-process-port ", "--master-port"},
    {" --test-only --evaluate -e --validate ", ""},
    {" --log-wandb --wandb-project --tensorboard ", ""},
};

}  // namespace

std::string advice_for_foreign(std::string_view flag) {
  const std::string word = " " + std::string(flag) + " ";
  for (const auto& [names, ours] : foreign)
    if (names.find(word) != names.npos)
      return ours.empty() ? ": not there in barevision" : ": here it is " + std::string(ours);
  return "";
}

}  // namespace bv
