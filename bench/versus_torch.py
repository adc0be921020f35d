"""PyTorch's side of bench/versus: training steps of timm's or torchvision's model on random images; prints
one JSON line.

The comparison favours PyTorch: images are in the device's memory already normalised, the faster of the fused and
the foreach optimizer is used, cuDNN tries its algorithms, and on a GPU the host waits for the device only once, at
the end. fp32 is IEEE's on both sides, without TF32.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
from measure import of_steps
from peers import add_sizes, faster_optimizer, make_model, use_all_cores, versions

POOL = 4  # batches in memory


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    add_sizes(parser, batch=16, image_size=224, patch_size=16, classes=10, steps=12, warmup=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="adamw")
    add_sizes(parser, lr=1e-4, momentum=0.9, weight_decay=0.05)
    parser.add_argument("--decay", choices=["weights", "all"], default="weights")
    args = parser.parse_args()

    torch.manual_seed(0)
    use_all_cores()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    model = make_model(vars(args), args.classes).to(args.device, memory_format=torch.channels_last).train()
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
    optimizer, kind = faster_optimizer(model, vars(args), wait)

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
    print(json.dumps({**of_steps(seconds, args.batch, args.warmup), "optimizer": kind, **versions(args.model)}))


if __name__ == "__main__":
    main()
