#!/usr/bin/env python3
"""Writes the golden files next to it, with PyTorch, timm and torchvision in float64 (make peers; then
build/peers/bin/python tests/golden/make_golden.py [NAME...]). float32_error in a file is the error of PyTorch's
own float32, measured like the tests: logits absolute, tensors relative to their largest element.

The image sizes of residual networks are chosen with care: if an activation is close to 0, or two are close to
each other, rounding decides what ReLU or max pool passes on, and gradients jump. `margin` in a file is the
distance from that, in largest float32 errors of the layer.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True  # no .pyc files in the source tree
import formula
import numpy as np
import peer_models
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent

MODELS = {
    "vit_tiny_224": dict(model="vit_tiny", image_size=224, patch_size=16, classes=1000, batch=2),
    "vit_tiny_32": dict(model="vit_tiny", image_size=32, patch_size=4, classes=10, batch=3),
    "vit_small_3_blocks": dict(model="vit_small", image_size=56, patch_size=8, classes=10, batch=3, depth=3),
    "vit_base_2_blocks": dict(model="vit_base", image_size=224, patch_size=16, classes=10, batch=2, depth=2),
    "vit_base_384_2_blocks": dict(model="vit_base", image_size=384, patch_size=16, classes=10, batch=1, depth=2),
    "vit_large_2_blocks": dict(model="vit_large", image_size=64, patch_size=16, classes=10, batch=2, depth=2),
    "vit_tiny_dropout": dict(
        model="vit_tiny", image_size=32, patch_size=8, classes=10, batch=3, depth=3, drop_rate=0.3, pos_drop_rate=0.1,
        proj_drop_rate=0.2, attn_drop_rate=0.15, drop_path_rate=0.25, seed=11, epoch=2, position=5,
    ),
    "vit_tiny_distilled": dict(model="vit_tiny_distilled", image_size=40, patch_size=8, classes=10, batch=3),
    "vit_tiny_distilled_dropout": dict(
        model="vit_tiny_distilled", image_size=24, patch_size=8, classes=7, batch=3, depth=2, drop_rate=0.3,
        pos_drop_rate=0.1, proj_drop_rate=0.2, attn_drop_rate=0.15, drop_path_rate=0.25, seed=12, epoch=1, position=3,
    ),
    "vit_tiny_pre_logits": dict(
        model="vit_tiny", image_size=24, patch_size=8, classes=7, batch=3, depth=2, representation_size=56,
    ),
    "resnet18": dict(model="resnet18", image_size=36, classes=10, batch=3),
    "resnet34": dict(model="resnet34", image_size=68, classes=10, batch=4),
    "resnet34_4_blocks": dict(model="resnet34", image_size=45, classes=10, batch=4, layers=[1, 1, 1, 1]),
    "resnet50_5_blocks": dict(model="resnet50", image_size=33, classes=10, batch=3, layers=[2, 1, 1, 1]),
    "resnet101_6_blocks": dict(model="resnet101", image_size=33, classes=10, batch=3, layers=[1, 1, 3, 1]),
    "resnet152_7_blocks": dict(model="resnet152", image_size=36, classes=10, batch=3, layers=[1, 2, 3, 1]),
    "resnext50_5_blocks": dict(model="resnext50_32x4d", image_size=35, classes=10, batch=3, layers=[2, 1, 1, 1]),
}
LEAST_MARGIN = 0.9


def write(name, content):
    """JSON with one line per tensor or case; 9 digits represent fp32 values exactly."""

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


def watch_kinks(model, seen):
    """Appends (module, input) of each ReLU and max pool that runs."""
    for module in model.modules():
        if isinstance(module, (nn.ReLU, nn.MaxPool2d)):
            module.register_forward_pre_hook(lambda m, inputs: seen.append((m, inputs[0].detach().double().clone())))


def margin(seen64, seen32):
    """Distance of the nearest decision of a ReLU or max pool from the opposite one, in largest errors."""
    least = float("inf")
    for (module, x), (_, x32) in zip(seen64, seen32):
        error = (x - x32).abs().max()
        if isinstance(module, nn.ReLU):
            distance = x.abs().min()
        else:
            pad = module.padding
            windows = F.unfold(F.pad(x, (pad,) * 4, value=-1).flatten(0, 1)[:, None], module.kernel_size, stride=module.stride)
            first, second = windows.topk(2, 1).values.unbind(1)
            distance = (first - second)[first > 0].min() / 2
        least = min(least, (distance / error).item())
    return least


class Mask(nn.Module):
    """Replaces a dropout by our mask, for the first tokens of each image or for all."""

    def __init__(self, case, layer, drop, of_images=False, tokens=None):
        super().__init__()
        self.case, self.layer, self.drop = case, layer, drop
        self.of_images, self.tokens = of_images, tokens

    def forward(self, x):
        if not (self.drop and self.training):
            return x
        drawn = x[:, : self.tokens]
        count = 1 if self.of_images else drawn[0].numel()
        mask = torch.from_numpy(formula.kept(self.case, self.layer, len(x), count, self.drop)).to(x.dtype)
        if self.of_images:
            return x * mask.reshape(-1, *[1] * (x.ndim - 1))
        mask = mask.reshape(drawn.shape)
        return torch.cat([drawn * mask, x[:, drawn.shape[1] :]], 1)


def give_masks(model, case):
    """Replaces every dropout of a timm ViT. A layer's number counts the layers before it in models/vit.cpp."""
    layer = 3  # after patches, their projection, the embedding

    def mask(rate, **kind):
        nonlocal layer
        made = Mask(case, layer, rate, **kind)
        layer += rate > 0
        return made

    model.pos_drop = mask(case["pos_drop_rate"])
    last = len(model.blocks) - 1
    for i, block in enumerate(model.blocks):
        # The heads read only some tokens of the last block.
        path, proj = case["drop_path_rate"] * i / last, dict(tokens=model.num_prefix_tokens if i == last else None)
        layer += 2  # norm1, qkv
        block.attn.fused_attn = False
        block.attn.attn_drop = mask(case["attn_drop_rate"])
        layer += 1  # proj
        block.attn.proj_drop = mask(case["proj_drop_rate"], **proj)
        block.drop_path1 = mask(path, of_images=True)
        layer += 3  # norm2, fc1, GELU
        block.mlp.drop1 = mask(case["proj_drop_rate"], **proj)
        layer += 1  # fc2
        block.mlp.drop2 = mask(case["proj_drop_rate"], **proj)
        block.drop_path2 = mask(path, of_images=True)
    layer += 1  # norm
    # A distilled model calls head_drop for each of its tokens.
    model.head_drop = nn.Identity()
    model.norm.dropout = mask(case["drop_rate"], tokens=model.num_prefix_tokens)
    model.norm.register_forward_hook(lambda norm, inputs, out: norm.dropout(out))


DROPOUT = ("drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate", "seed", "epoch", "position")


def run_model(case, dtype):
    """Runs the case in dtype. Returns float64 arrays, and the inputs of its ReLUs and max pools."""
    sizes = {k: v for k, v in case.items() if k not in ("model", "classes", "batch", *DROPOUT)}
    model = peer_models.create(case["model"], case["classes"], **sizes).to(dtype).train()
    if "seed" in case:
        give_masks(model, case)
    statistics = {n: b for n, b in model.named_buffers() if b.ndim > 0}
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *statistics.items()]:
            p.copy_(torch.from_numpy(formula.parameter(name, tuple(p.shape))))
    seen = []
    watch_kinks(model, seen)
    pixels = torch.from_numpy(formula.images(case["batch"], case["image_size"])).to(dtype)
    images = ((pixels / 255 - 0.5) / 0.5).permute(0, 3, 1, 2).contiguous()
    if hasattr(model, "set_distilled_training"):
        model.set_distilled_training()
        heads = model(images)
    else:
        heads = (model(images),)
    labels = torch.from_numpy(formula.labels(case["batch"], case["classes"]))
    loss = sum(F.cross_entropy(logits, labels) for logits in heads) / len(heads)
    loss.backward()
    result = {"loss": loss.item(), "logits": (sum(heads) / len(heads)).detach().double().numpy()}
    if len(heads) > 1:
        result["heads"] = torch.stack(heads).detach().double().numpy()
    kinks = list(seen)
    if statistics or len(heads) > 1:
        with torch.no_grad():
            result["evaluation_logits"] = model.eval()(images).double().numpy()
    if statistics:
        result["statistics"] = {n: b.double().numpy() for n, b in statistics.items()}
    result["gradients"] = {n: p.grad.double().numpy() for n, p in model.named_parameters()}
    return result, kinks


def make_model(name, case):
    result, kinks = run_model(case, torch.float64)
    result32, kinks32 = run_model(case, torch.float32)

    def error(key, tensor=None):
        if tensor is None:
            return float(np.max(np.abs(result[key] - result32[key])))
        want = result[key][tensor]
        return float(np.max(np.abs(want - result32[key][tensor])) / np.max(np.abs(want)))

    def tensors(key):
        return {
            n: {"shape": list(t.shape), **formula.summary(n, t), "float32_error": error(key, n)}
            for n, t in result[key].items()
        }

    worst = max(result["gradients"], key=lambda n: error("gradients", n))
    errors = {"logits": error("logits"), "loss": error("loss"), "gradient": error("gradients", worst)}
    content = {**case, "parameters": sum(g.size for g in result["gradients"].values()), "float32_error": errors}
    if "evaluation_logits" in result:
        errors["evaluation_logits"] = error("evaluation_logits")
    if kinks:
        errors["statistics"] = max(error("statistics", n) for n in result["statistics"])
        content["margin"] = margin(kinks, kinks32)
    content["loss"] = result["loss"]
    for key in ("logits", "heads", "evaluation_logits"):
        if key in result:
            content[key] = result[key].reshape(-1).tolist()
    for key in ("gradients", "statistics"):
        if key in result:
            content[key] = tensors(key)
    if not content.get("margin", 1) >= LEAST_MARGIN:
        sys.exit(f"{name}: margin {content['margin']:.2f}: rounding decides; take another image_size or batch")
    write(name, content)
    off = ", ".join(f"{k} {v:.1e}" for k, v in errors.items())
    print(f"  loss {result['loss']:.6f}, logits up to {np.max(np.abs(result['logits'])):.3f}; float32 is off by: {off} ({worst})")
    if kinks:
        print(f"  margin {content['margin']:.2f}")


# ---- optimizers ----------------------------------------------------------------------------------
TENSORS = [("first.weight", [3, 5]), ("first.bias", [7]), ("second.weight", [2, 10])]
GRADIENT_SCALES = [1 / 4, 1 / 64, 1 / 2]  # clipping is active in the first and third step only
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
    """A few values to check the C++ version of the formula on its own."""
    checks = []
    for name, shape in [
        ("cls_token", [1, 1, 192]),
        ("pos_embed", [1, 197, 192]),
        ("patch_embed.proj.weight", [192, 3, 16, 16]),
        ("blocks.0.attn.qkv.weight", [576, 192]),
        ("blocks.0.mlp.fc2.weight", [1024, 4096]),
        ("blocks.0.norm1.weight", [192]),
        ("blocks.11.attn.qkv.bias", [576]),
        ("conv1.weight", [64, 3, 7, 7]),
        ("layer2.0.downsample.1.running_var", [512]),
        ("layer4.1.bn2.weight", [512]),
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
