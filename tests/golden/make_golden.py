#!/usr/bin/env python3
"""Writes the golden files beside it, with PyTorch and timm in float64 (make peers; then
build/peers/bin/python tests/golden/make_golden.py). float32_error in a file is how far PyTorch's own
float32 is from it, as the tests measure it: logits absolute, gradients by the tensor's largest element."""

import json
import pathlib
import sys

sys.dont_write_bytecode = True  # no litter in the source tree
import formula
import numpy as np
import timm
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent

MODELS = {
    "vit_tiny_224": dict(
        model="vit_tiny", timm="vit_tiny_patch16_224", image_size=224, patch_size=16, classes=1000, batch=2
    ),
    "vit_tiny_32": dict(model="vit_tiny", timm="vit_tiny_patch16_224", image_size=32, patch_size=4, classes=10, batch=3),
    "vit_large_2_blocks": dict(
        model="vit_large", timm="vit_large_patch16_224", image_size=64, patch_size=16, classes=10, batch=2, depth=2
    ),
}


def write(name, content):
    """JSON with one line for each tensor or case; 9 digits keep fp32 values exactly."""

    def text(value):
        if isinstance(value, float):
            return np.format_float_positional(value, 9, fractional=False, trim="-") if value == int(value) else f"{value:.9g}"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(k)}: {text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(text(v) for v in value) + "]"
        return json.dumps(value)

    def rows(value):
        if isinstance(value, dict) and any(isinstance(v, dict) for v in value.values()):
            return "{\n" + ",\n".join(f"{json.dumps(k)}: {text(v)}" for k, v in value.items()) + "\n}"
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[\n" + ",\n".join(text(v) for v in value) + "\n]"
        return text(value)

    body = ",\n".join(f"{json.dumps(k)}: {rows(v)}" for k, v in content.items())
    (HERE / f"{name}.json").write_text("{\n" + body + "\n}\n")
    print(f"{name}.json  {(HERE / f'{name}.json').stat().st_size / 1024:.1f} KiB")


def run_model(case, dtype):
    """(logits, loss, gradients by name) as float64 arrays, the model computing in dtype."""
    depth = {"depth": case["depth"]} if "depth" in case else {}
    model = timm.create_model(
        case["timm"], img_size=case["image_size"], patch_size=case["patch_size"], num_classes=case["classes"], **depth
    )
    model = model.to(dtype).train()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(formula.parameter(name, tuple(p.shape))))
    pixels = torch.from_numpy(formula.images(case["batch"], case["image_size"])).to(dtype)
    logits = model(((pixels / 255 - 0.5) / 0.5).permute(0, 3, 1, 2).contiguous())
    loss = F.cross_entropy(logits, torch.from_numpy(formula.labels(case["batch"], case["classes"])))
    loss.backward()
    gradients = {n: p.grad.double().numpy() for n, p in model.named_parameters()}
    return logits.detach().double().numpy(), loss.item(), gradients


def make_model(name, case):
    logits, loss, gradients = run_model(case, torch.float64)
    logits32, loss32, gradients32 = run_model(case, torch.float32)
    error = {n: float(np.max(np.abs(g - gradients32[n])) / np.max(np.abs(g))) for n, g in gradients.items()}
    worst = max(error, key=error.get)
    content = {k: v for k, v in case.items()}
    content["parameters"] = sum(g.size for g in gradients.values())
    content["float32_error"] = {
        "logits": float(np.max(np.abs(logits - logits32))),
        "loss": abs(loss - loss32),
        "gradient": error[worst],
    }
    content["loss"] = loss
    content["logits"] = logits.reshape(-1).tolist()
    content["gradients"] = {n: {"shape": list(g.shape), **formula.summary(n, g)} for n, g in gradients.items()}
    write(name, content)
    print(
        f"  loss {loss:.6f}, logits up to {np.max(np.abs(logits)):.3f}; float32: logits off by"
        f" {content['float32_error']['logits']:.1e}, loss {abs(loss - loss32):.1e},"
        f" gradients {error[worst]:.1e} ({worst})"
    )


# ---- optimizers ----------------------------------------------------------------------------------
TENSORS = [("first.weight", [3, 5]), ("first.bias", [7]), ("second.weight", [2, 10])]
GRADIENT_SCALES = [1 / 4, 1 / 64, 1 / 2]  # the clip bites in the first and third step only
LEARNING_RATES = [0.1, 0.05, 0.02]
BASE = dict(momentum=0.0, nesterov=False, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0, clip=0.0)
OPTIMIZERS = [
    dict(name="sgd", kind="sgd"),
    dict(name="sgd_momentum", kind="sgd", momentum=0.9, weight_decay=0.05),
    dict(name="sgd_nesterov", kind="sgd", momentum=0.9, nesterov=True, weight_decay=0.05),
    dict(name="adam", kind="adam", weight_decay=0.05),
    dict(name="adamw", kind="adamw", weight_decay=0.05),
    dict(name="adamw_betas_eps", kind="adamw", weight_decay=0.3, betas=[0.8, 0.95], eps=1e-2),
]


def make_optimizer(case):
    """Three steps in float64; tensors of one dimension have no weight decay."""
    parameters = {n: torch.from_numpy(formula.parameter(n, s)).double().requires_grad_() for n, s in TENSORS}
    groups = [
        {"params": [p for p in parameters.values() if p.ndim > 1], "weight_decay": case["weight_decay"]},
        {"params": [p for p in parameters.values() if p.ndim == 1], "weight_decay": 0.0},
    ]
    if case["kind"] == "sgd":
        optimizer = torch.optim.SGD(groups, lr=1, momentum=case["momentum"], nesterov=case["nesterov"])
    else:
        kind = torch.optim.Adam if case["kind"] == "adam" else torch.optim.AdamW
        optimizer = kind(groups, lr=1, betas=tuple(case["betas"]), eps=case["eps"])
    norms, after = [], []
    for step, (lr, scale) in enumerate(zip(LEARNING_RATES, GRADIENT_SCALES)):
        for n, p in parameters.items():
            p.grad = torch.from_numpy(formula.signed(f"{n}/gradient{step}", p.numel()) * scale).double().view_as(p)
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), case["clip"] or float("inf")).item())
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        state = {}
        for n, p in parameters.items():
            s = optimizer.state[p]
            state[n] = {"weight": p.detach().reshape(-1).tolist()}
            for ours, theirs in (("m", "momentum_buffer"), ("m", "exp_avg"), ("v", "exp_avg_sq")):
                if s.get(theirs) is not None:
                    state[n][ours] = s[theirs].reshape(-1).tolist()
        after.append(state)
    return {**case, "grad_norms": norms, "after": after}


def make_optimizers():
    cases = []
    for case in OPTIMIZERS:
        for suffix, clip in (("", 0.0), ("_clip", 0.5)):
            named = {**BASE, **case, "name": case["name"] + suffix, "clip": clip}
            cases.append(make_optimizer(named))
    tensors = [{"name": n, "shape": s} for n, s in TENSORS]
    write(
        "optimizer", {"lr": LEARNING_RATES, "gradient_scales": GRADIENT_SCALES, "tensors": tensors, "cases": cases}
    )


def make_formula_check():
    """A few values, so that the C++ twin of the formula is checked by itself."""
    checks = []
    for name, shape in [
        ("cls_token", [1, 1, 192]),
        ("pos_embed", [1, 197, 192]),
        ("patch_embed.proj.weight", [192, 3, 16, 16]),
        ("blocks.0.attn.qkv.weight", [576, 192]),
        ("blocks.0.mlp.fc2.weight", [1024, 4096]),
        ("blocks.0.norm1.weight", [192]),
        ("blocks.11.attn.qkv.bias", [576]),
    ]:
        values = formula.parameter(name, tuple(shape)).reshape(-1)
        indices = [0, 1, 2, 3, 4, values.size - 1]
        checks.append(
            {
                "name": name,
                "shape": shape,
                "indices": indices,
                "values": [float(values[i]) for i in indices],
                "samples": formula.sample_indices(name, values.size).tolist(),
                **{k: v for k, v in formula.summary(name, values.astype(np.float64)).items() if k == "projections"},
            }
        )
    pixels = formula.images(1, 8).reshape(-1).tolist()
    write("formula", {"pixels": pixels, "parameters": checks})


if __name__ == "__main__":
    torch.manual_seed(0)
    chosen = sys.argv[1:] or ["formula", "optimizer", *MODELS]
    for name in chosen:
        if name == "formula":
            make_formula_check()
        elif name == "optimizer":
            make_optimizers()
        else:
            make_model(name, MODELS[name])
