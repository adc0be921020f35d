"""PyTorch's side of bench/versus: training steps of timm's or torchvision's model on random images; prints
one JSON line.

The comparison favours PyTorch: images are in the device's memory already normalised, the faster of the fused and
the foreach optimizer is used, cuDNN tries its algorithms, and on a GPU the host waits for the device only once, at
the end. fp32 is IEEE's on both sides, without TF32.
"""

import argparse
import json
import os
import time

import timm
import torch
import torch.nn.functional as F
import torchvision

TIMM_NAMES = {
    "vit_tiny": "vit_tiny_patch16_224",
    "vit_small": "vit_small_patch16_224",
    "vit_base": "vit_base_patch16_224",
    "vit_large": "vit_large_patch16_224",
    "vit_tiny_distilled": "deit_tiny_distilled_patch16_224",
}
POOL = 4  # batches in memory


def make_model(args):
    if args.model not in TIMM_NAMES:
        return getattr(torchvision.models, args.model)(num_classes=args.classes)
    model = timm.create_model(
        TIMM_NAMES[args.model], img_size=args.image_size, patch_size=args.patch_size, num_classes=args.classes
    )
    if hasattr(model, "set_distilled_training"):
        model.set_distilled_training()
    return model


def make_optimizer(model, args, **kind):
    decayed = [p for p in model.parameters() if p.ndim > 1 or args.decay == "all"]
    others = [p for p in model.parameters() if p.ndim <= 1 and args.decay != "all"]
    groups = [{"params": decayed, "weight_decay": args.weight_decay}]
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    if args.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=args.lr, momentum=args.momentum, **kind)
    return torch.optim.AdamW(groups, lr=args.lr, **kind)


def faster_optimizer(model, args, wait):
    """Fails if gradients are missing."""
    best = None
    for kind in ("fused", "foreach"):
        optimizer = make_optimizer(model, args, **{kind: True})
        seconds = []
        for _ in range(4):
            begin = time.perf_counter()
            optimizer.step()
            wait()
            seconds.append(time.perf_counter() - begin)
        if best is None or min(seconds[1:]) < best[0]:
            best = (min(seconds[1:]), kind)
    return make_optimizer(model, args, **{best[1]: True}), best[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    for name, default in dict(batch=16, image_size=224, patch_size=16, classes=10, steps=12, warmup=3).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="adamw")
    for name, default in dict(lr=1e-4, momentum=0.9, weight_decay=0.05).items():
        parser.add_argument("--" + name.replace("_", "-"), type=float, default=default)
    parser.add_argument("--decay", choices=["weights", "all"], default="weights")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    model = make_model(args).to(args.device, memory_format=torch.channels_last).train()
    shape = (args.batch, 3, args.image_size, args.image_size)
    pool = [
        (
            torch.randn(shape).to(args.device, memory_format=torch.channels_last),
            torch.randint(args.classes, (args.batch,)).to(args.device),
        )
        for _ in range(POOL)
    ]
    dtype = torch.float16 if args.precision == "fp16" else torch.bfloat16
    scaler = torch.amp.GradScaler(args.device, enabled=args.precision == "fp16")
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None

    def loss_of(images, labels):
        with torch.autocast(args.device, dtype, enabled=args.precision != "fp32"):
            out = model(images)
            heads = out if isinstance(out, tuple) else (out,)
            return sum(F.cross_entropy(logits, labels) for logits in heads) / len(heads)

    forward = torch.compile(loss_of) if args.mode == "compile" else loss_of
    forward(*pool[0]).backward()  # compiles
    optimizer, kind = faster_optimizer(model, args, wait)

    seconds = []
    for step in range(args.warmup + args.steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = forward(*pool[step % POOL])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if args.device == "cpu":
            loss.item()
        elif step + 1 == args.warmup:
            wait()
        seconds.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    wait()
    seconds[-1] += time.perf_counter() - begin  # the host was ahead by this time
    measured = seconds[args.warmup :]
    result = {
        "images_per_second": args.batch * len(measured) / sum(measured),
        "step_seconds": measured,
        "optimizer": kind,
        "torch": torch.__version__,
        "models": f"timm {timm.__version__}" if args.model in TIMM_NAMES else f"torchvision {torchvision.__version__}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
