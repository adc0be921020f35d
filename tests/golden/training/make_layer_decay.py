#!/usr/bin/env python3
"""Writes layer_decay.json: the scale of the learning rate that timm's param_groups_layer_decay gives each
parameter, as names by scale (make peers; then build/peers/bin/python tests/golden/training/make_layer_decay.py).
"""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import make_golden
import timm
from timm.optim import param_groups_layer_decay

DECAY = 0.75
MODELS = {
    "vit_tiny": "vit_tiny_patch16_224",
    "vit_tiny_distilled": "deit_tiny_distilled_patch16_224",
    "resnet34": "resnet34",
    "resnet50": "resnet50",
}


def scales_of(name):
    model = timm.create_model(name)
    names = {id(p): n for n, p in model.named_parameters()}
    groups = param_groups_layer_decay(model, layer_decay=DECAY)
    return {names[id(p)]: group["lr_scale"] for group in groups for p in group["params"]}


if __name__ == "__main__":
    content = {"decay": DECAY}
    for ours, theirs in MODELS.items():
        scales = scales_of(theirs)
        content[ours] = {
            f"{scale:.9g}": sorted(n for n, s in scales.items() if s == scale) for scale in sorted(set(scales.values()))
        }
    make_golden.write("training/layer_decay", content)
