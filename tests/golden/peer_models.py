"""timm's and torchvision's versions of this project's models, by our names."""

from collections import OrderedDict

import timm
import torch.nn as nn
import torchvision.models.resnet as torchvision_resnet
from torchvision.models.resnet import BasicBlock, Bottleneck

TIMM = {
    "vit_tiny": "vit_tiny_patch16_224",
    "vit_small": "vit_small_patch16_224",
    "vit_base": "vit_base_patch16_224",
    "vit_large": "vit_large_patch16_224",
    "vit_tiny_distilled": "deit_tiny_distilled_patch16_224",
    "vit_large_distilled": "deit_base_distilled_patch16_224",
}
# Sizes that timm doesn't have.
SIZES = {"vit_large_distilled": dict(embed_dim=1024, depth=24, num_heads=16)}
TORCHVISION = {
    "resnet18": dict(block=BasicBlock, layers=[2, 2, 2, 2]),
    "resnet34": dict(block=BasicBlock, layers=[3, 4, 6, 3]),
    "resnet50": dict(block=Bottleneck, layers=[3, 4, 6, 3]),
    "resnet101": dict(block=Bottleneck, layers=[3, 4, 23, 3]),
    "resnet152": dict(block=Bottleneck, layers=[3, 8, 36, 3]),
    "resnext50_32x4d": dict(block=Bottleneck, layers=[3, 4, 6, 3], groups=32, width_per_group=4),
}
NAMES = [*TIMM, *TORCHVISION]


def add_pre_logits(model, features):
    """The layer before the head in timm's ViTs until 0.6, with its names there."""
    layer = OrderedDict(fc=nn.Linear(model.embed_dim, features), act=nn.Tanh())
    model.pre_logits = nn.Sequential(layer)
    model.head = nn.Linear(features, model.num_classes)
    model.head.register_forward_pre_hook(lambda head, inputs: model.pre_logits(inputs[0]))


def create(model, classes, image_size=224, patch_size=16, depth=None, layers=None, representation_size=0):
    """depth, layers: numbers of blocks that differ from the model's, for a ViT and a residual network."""
    if model in TIMM:
        sizes = {**SIZES.get(model, {}), **({"depth": depth} if depth else {})}
        made = timm.create_model(
            TIMM[model], img_size=image_size, patch_size=patch_size, num_classes=classes, **sizes
        )
        if representation_size:
            add_pre_logits(made, representation_size)
        return made
    if not layers:
        return getattr(torchvision_resnet, model)(num_classes=classes)
    return torchvision_resnet.ResNet(**{**TORCHVISION[model], "layers": layers}, num_classes=classes)
