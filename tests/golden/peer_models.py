"""The models of this project as timm and torchvision have them, by our names."""

import timm
import torchvision.models.resnet as torchvision_resnet
from torchvision.models.resnet import BasicBlock, Bottleneck

TIMM = {"vit_tiny": "vit_tiny_patch16_224", "vit_large": "vit_large_patch16_224"}
TORCHVISION = {
    "resnet34": dict(block=BasicBlock, layers=[3, 4, 6, 3]),
    "resnet50": dict(block=Bottleneck, layers=[3, 4, 6, 3]),
    "resnext50_32x4d": dict(block=Bottleneck, layers=[3, 4, 6, 3], groups=32, width_per_group=4),
}
NAMES = [*TIMM, *TORCHVISION]


def create(model, classes, image_size=224, patch_size=16, depth=None, layers=None):
    """depth, layers: other numbers of blocks than the model's own, of a ViT and of a residual network."""
    if model in TIMM:
        cut = {"depth": depth} if depth else {}
        return timm.create_model(
            TIMM[model], img_size=image_size, patch_size=patch_size, num_classes=classes, **cut
        )
    if not layers:
        return getattr(torchvision_resnet, model)(num_classes=classes)
    return torchvision_resnet.ResNet(**{**TORCHVISION[model], "layers": layers}, num_classes=classes)
