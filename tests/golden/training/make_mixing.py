#!/usr/bin/env python3
"""Writes mixing.json: timm's Mixup of normalised images, its targets, and SoftTargetCrossEntropy of some logits
(make peers; then build/peers/bin/python tests/golden/training/make_mixing.py).

timm mixes row i with row B - 1 - i, we mix row b with row b ^ 1: timm's row i is our row 2 i, its row B - 1 - i our
row 2 i + 1. Images and logits are formulas of small integers, so both sides have the same.
"""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import make_golden
import numpy as np
import timm.data.mixup
import torch
from timm.loss import SoftTargetCrossEntropy

B, SIZE, CLASSES = 6, 12, 5
LABELS = [0, 3, 4, 4, 2, 1]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def images():
    b, c, y, x = np.meshgrid(*map(np.arange, (B, 3, SIZE, SIZE)), indexing="ij")
    return (b * 89 + c * 53 + y * 31 + x * 17 + x * y * (b + 3)) % 256


def logits():
    b, k = np.meshgrid(np.arange(B), np.arange(CLASSES), indexing="ij")
    return ((b * 37 + k * 29) % 64) / 8 - 4


class Recorded(timm.data.mixup.Mixup):
    """Also returns the draws: one for all rows, one for each row, or one for each of the first half."""

    def _params_per_batch(self):
        self.drawn = super()._params_per_batch()
        return self.drawn

    def _params_per_elem(self, batch_size):
        lam, cut = super()._params_per_elem(batch_size)
        self.drawn = lam.copy(), cut
        return lam, cut


def mix(seed, smoothing, **options):
    boxes = []
    original = timm.data.mixup.cutmix_bbox_and_lam

    def recorded(*args, **kwargs):
        boxes.append(original(*args, **kwargs))
        return boxes[-1]

    np.random.seed(seed)
    timm.data.mixup.cutmix_bbox_and_lam = recorded
    mixup = Recorded(num_classes=CLASSES, label_smoothing=smoothing, **options)
    ours = [2 * min(i, B - 1 - i) + (i >= B // 2) for i in range(B)]  # our row that corresponds to timm's row i
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))
    x = (torch.from_numpy(images()[ours]).float() / 255 - mean) / std
    x, target = mixup(x, torch.tensor(LABELS)[ours])
    timm.data.mixup.cutmix_bbox_and_lam = original

    lam, cut = (np.atleast_1d(v) for v in mixup.drawn)
    rest = iter(boxes)
    drawn = [next(rest) if cut[i] and lam[i] != 1 else ((0, 0, 0, 0), lam[i]) for i in range(len(lam))]
    which = {"batch": lambda i: 0, "pair": lambda i: min(i, B - 1 - i), "elem": lambda i: i}[options["mode"]]
    case = {"smoothing": smoothing, "options": repr(options), "mixes": [None] * B, "loss": [None] * B, "levels": [None] * B}
    levels = ((x * std + mean) * 255).round().to(torch.uint8)
    for i, b in enumerate(ours):
        (top, bottom, left, right), share = drawn[which(i)]
        case["mixes"][b] = [float(share), int(top), int(left), int(bottom), int(right)]
        row = torch.from_numpy(logits()[b : b + 1])
        case["loss"][b] = SoftTargetCrossEntropy()(row, target[i : i + 1].double()).item()
        case["levels"][b] = levels[i].permute(1, 2, 0).numpy().tobytes().hex()
    return case


if __name__ == "__main__":
    both = dict(mixup_alpha=0.8, cutmix_alpha=1.0)
    cases = [mix(3, 0.1, mode="batch", mixup_alpha=0.8), mix(2, 0.0, mode="batch", cutmix_alpha=1.0, mixup_alpha=0),
             mix(7, 0.1, mode="pair", **both), mix(6, 0.1, mode="elem", **both),
             mix(7, 0.0, mode="elem", prob=0.7, cutmix_minmax=(0.25, 0.75), **both)]
    make_golden.write("training/mixing", {"size": SIZE, "classes": CLASSES, "labels": LABELS, "cases": cases})
