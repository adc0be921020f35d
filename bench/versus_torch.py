"""PyTorch's side of bench/versus: training steps of timm's model on random images; prints one JSON line.

To PyTorch's advantage: images lie normalised in the device's memory, of the fused and the foreach AdamW
the one that is faster here is taken, and on a GPU the host waits for the device once, at the end.
"""

import argparse
import json
import os
import time

import timm
import torch
import torch.nn.functional as F

TIMM_NAMES = {"vit_tiny": "vit_tiny_patch16_224", "vit_large": "vit_large_patch16_224"}
POOL = 4  # batches in memory


def make_optimizer(model, **kind):
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, **kind)


def faster_optimizer(model, wait):
    """Gradients must be there."""
    best = None
    for kind in ("fused", "foreach"):
        optimizer = make_optimizer(model, **{kind: True})
        seconds = []
        for _ in range(4):
            begin = time.perf_counter()
            optimizer.step()
            wait()
            seconds.append(time.perf_counter() - begin)
        if best is None or min(seconds[1:]) < best[0]:
            best = (min(seconds[1:]), kind)
    return make_optimizer(model, **{best[1]: True}), best[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    for name, default in dict(batch=16, image_size=224, patch_size=16, classes=10, steps=12, warmup=3).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = timm.create_model(
        TIMM_NAMES[args.model], img_size=args.image_size, patch_size=args.patch_size, num_classes=args.classes
    )
    model = model.to(args.device, memory_format=torch.channels_last).train()
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
            return F.cross_entropy(model(images), labels)

    forward = torch.compile(loss_of) if args.mode == "compile" else loss_of
    forward(*pool[0]).backward()  # compiles
    optimizer, kind = faster_optimizer(model, wait)

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
    seconds[-1] += time.perf_counter() - begin  # what the host was ahead
    measured = seconds[args.warmup :]
    result = {
        "images_per_second": args.batch * len(measured) / sum(measured),
        "step_seconds": measured,
        "optimizer": kind,
        "torch": torch.__version__,
        "timm": timm.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
