"""Shared by the sides of PyTorch in bench/versus, bench/pipelines and bench/recipes: timm's and torchvision's models, the
optimizers, and the rate of the measured steps."""

import os
import time

import timm
import torch
import torchvision

TIMM_NAMES = {
    "vit_tiny": "vit_tiny_patch16_224",
    "vit_small": "vit_small_patch16_224",
    "vit_base": "vit_base_patch16_224",
    "vit_large": "vit_large_patch16_224",
    "vit_tiny_distilled": "deit_tiny_distilled_patch16_224",
}


def make_model(o, classes, **more):
    """o: options by name, like those of our run. more: options of timm's models."""
    if o["model"] not in TIMM_NAMES:
        return getattr(torchvision.models, o["model"])(num_classes=classes)
    model = timm.create_model(
        TIMM_NAMES[o["model"]], img_size=o["image_size"], patch_size=o["patch_size"], num_classes=classes, **more
    )
    if hasattr(model, "set_distilled_training"):
        model.set_distilled_training()
    return model


def make_optimizer(model, o, **kind):
    decayed = [p for p in model.parameters() if p.ndim > 1 or o["decay"] == "all"]
    others = [p for p in model.parameters() if p.ndim <= 1 and o["decay"] != "all"]
    groups = [{"params": decayed, "weight_decay": o["weight_decay"]}]
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    if o["optimizer"] == "sgd":
        return torch.optim.SGD(groups, o["lr"], o["momentum"], **kind)
    adam = torch.optim.Adam if o["optimizer"] == "adam" else torch.optim.AdamW
    return adam(groups, o["lr"], o.get("betas", (0.9, 0.999)), o.get("eps", 1e-8), **kind)


def faster_optimizer(model, o, wait):
    """Fails if gradients are missing."""
    best = None
    for kind in ("fused", "foreach"):
        optimizer = make_optimizer(model, o, **{kind: True})
        seconds = []
        for _ in range(4):
            begin = time.perf_counter()
            optimizer.step()
            wait()
            seconds.append(time.perf_counter() - begin)
        if best is None or min(seconds[1:]) < best[0]:
            best = (min(seconds[1:]), kind)
    return make_optimizer(model, o, **{best[1]: True}), best[1]


def use_all_cores():
    torch.set_num_threads(len(os.sched_getaffinity(0)))


def versions(model):
    peer = timm if model in TIMM_NAMES else torchvision
    return {"torch": torch.__version__, "models": f"{peer.__name__} {peer.__version__}"}


def add_sizes(parser, **defaults):
    """Options whose values have the defaults' types."""
    for name, default in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
