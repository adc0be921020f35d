#!/usr/bin/env python3
"""Compares our convolutions with PyTorch's (cuDNN's on a GPU, oneDNN's on a CPU): each shape, with its
rates and the share of our time that memory or a matrix product alone would take (%bound), and the
geometric means.

  build/bench --device cuda --dtype fp16 --model resnet50 --filter conv --json OURS.json
  build/peers/bin/python bench/conv_torch.py OURS.json --device cuda --dtype fp16 [--json OUT.json]

The comparison favours the library: cuDNN tries its algorithms and takes the fastest; it computes only the
convolution, while ours also computes the batch norm's statistics (forward) and its backward sums
(ConvBackwardInputSums), adds the shortcut's gradient (+add) and writes a weight's gradient in fp32. fp32
is IEEE's on both sides, without TF32.
"""

import argparse
import json
import os
import re
import statistics
import sys
import time

import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
KINDS = {
    "ConvForward": "fwd",
    "ConvBackwardInput": "dinp",
    "ConvBackwardInputSums": "dinp",
    "ConvBackwardWeight": "dweight",
}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", help="what build/bench --json wrote")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--dtype", choices=DTYPES, default="fp16")
    parser.add_argument("--seconds", type=float, default=0.15, help="of measurement for each shape")
    parser.add_argument("--json", help="write the table to this file as well")
    return parser.parse_args()


def sizes_of(operation):
    """(kind, N, H, W, C, K, R, S, stride, groups) of a line of ours, or None if it is not a convolution."""
    kind = KINDS.get(operation["operation"].split()[0])
    sizes = dict(re.findall(r"([a-zA-Z]+)(\d+)", operation["shape"]))  # sizes of 1 are left out
    names = ("N", "H", "W", "C", "K", "R", "S", "stride", "groups")
    return kind and (kind, *(int(sizes.get(name, 1)) for name in names))


def library_operation(sizes, device, dtype):
    """A function that runs the library's operation on its own tensors, and their size in bytes."""
    kind, n, h, w, c, k, r, s, stride, groups = sizes

    def tensor(*shape):
        return torch.rand(shape, device=device).sub_(0.5).to(dtype).contiguous(memory_format=torch.channels_last)

    padding = [r // 2, s // 2]
    out = ((h + 2 * padding[0] - r) // stride + 1, (w + 2 * padding[1] - s) // stride + 1)
    inp, weight, dout = tensor(n, c, h, w), tensor(k, c // groups, r, s), tensor(n, k, *out)
    if kind == "fwd":

        def run():
            torch.conv2d(inp, weight, None, stride, padding, 1, groups)

    else:
        wanted = [kind == "dinp", kind == "dweight", False]

        def run():
            torch.ops.aten.convolution_backward(
                dout, inp, weight, None, [stride] * 2, padding, [1, 1], False, [0, 0], groups, wanted
            )

    return run, sum(t.numel() * t.element_size() for t in (inp, weight, dout))


def seconds_of(runs, device, enough):
    """Median time of a run, cycling through the sets of tensors; on a GPU, from events around ten runs."""
    for run in runs:
        run()  # chooses its algorithm
    times, at, spent = [], 0, 0.0
    while spent < enough or len(times) < 3:
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for i in range(10):
                runs[(at + i) % len(runs)]()
            end.record()
            end.synchronize()
            at, took = at + 10, begin.elapsed_time(end) / 1e3
            times.append(took / 10)
        else:
            start = time.perf_counter()
            runs[at % len(runs)]()
            at, took = at + 1, time.perf_counter() - start
            times.append(took)
        spent += took
    return statistics.median(times)


def measure(sizes, device, dtype, enough):
    # Uses enough tensors that none is found in the cache, like build/bench.
    cache = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 0
    runs, total = [], 0
    while not runs or (total < 3 * cache and len(runs) < 64):
        run, size = library_operation(sizes, device, dtype)
        runs.append(run)
        total += size
    return seconds_of(runs, device, enough)


def library_name(device):
    if device == "cpu":
        return f"PyTorch {torch.__version__} on the CPU"
    return f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}"


def main():
    options = parse_options()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("conv_torch: this PyTorch finds no GPU", file=sys.stderr)
        sys.exit(2)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    with open(options.ours) as file:
        ours = [(sizes_of(o), o) for o in json.load(file)["operations"]]
    rows, measured = [], {}
    print(f"{library_name(options.device)}, {options.dtype}")
    print(
        f"{'operation':<32} {'shape':<45} {'us':>9} {'TFLOP/s':>8} {'GB/s':>8} {'%bound':>6} {'library':>9}"
        f" {'x library':>9} {'calls':>5}"
    )
    for sizes, o in ours:
        if sizes is None:
            continue
        if sizes not in measured:  # the same with and without +add and sums
            measured[sizes] = 1e6 * measure(sizes, options.device, DTYPES[options.dtype], options.seconds)
        library = measured[sizes]
        kept = ("operation", "shape", "per_step", "us", "flops", "bytes", "bound")
        rows.append({k: o[k] for k in kept} | {"library_us": library})
        print(
            f"{o['operation']:<32} {o['shape']:<45} {o['us']:9.1f} {o['flops'] / o['us'] / 1e6:8.1f}"
            f" {o['bytes'] / o['us'] / 1e3:8.1f} {100 * min(o['bound'], 1):6.1f} {library:9.1f}"
            f" {library / o['us']:9.2f} {o['per_step']:5d}",
            flush=True,
        )
    if not rows:
        print(f"conv_torch: no convolution in {options.ours}", file=sys.stderr)
        sys.exit(1)
    means = {}
    for kind in (*dict.fromkeys(KINDS.values()), "all"):
        chosen = [r["library_us"] / r["us"] for r in rows if kind in ("all", KINDS[r["operation"].split()[0]])]
        if chosen:
            means[kind] = statistics.geometric_mean(chosen)
    step = [sum(r["per_step"] * r[key] for r in rows) for key in ("library_us", "us")]
    means["step"] = step[0] / step[1]
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"library": library_name(options.device), "dtype": options.dtype, "x_library": means, "shapes": rows}, file)
            file.write("\n")
    print(
        "x library, geometric mean: "
        + ", ".join(f"{name} {value:.2f}" for name, value in means.items() if name != "step")
        + f"; all of a step's convolutions {means['step']:.2f}"
    )


if __name__ == "__main__":
    main()
