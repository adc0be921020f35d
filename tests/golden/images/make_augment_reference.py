#!/usr/bin/env python3
"""Writes augment_reference.json and augment_reference.png: the results of torchvision, timm and Pillow for
two pictures, and the draws of torchvision's policies (make peers; then
build/peers/bin/python tests/golden/images/make_augment_reference.py).

The sheet holds the small picture (SIZE x SIZE) and its operations as tiles of SIZE x SIZE, COLUMNS in a row,
then the large picture, by itself in the rows below, and the tiles made of it below that.
"""
import json
import math
import pathlib

import numpy as np
import torchvision
import torchvision.transforms as T
import torchvision.transforms.functional as F
from PIL import Image
from timm.data.auto_augment import solarize_add
from timm.data.transforms_factory import transforms_imagenet_eval
from torchvision.transforms import AutoAugmentPolicy, InterpolationMode
from torchvision.transforms.autoaugment import _apply_op

HERE = pathlib.Path(__file__).parent
SIZE, COLUMNS = 32, 16
LARGE = (96, 64)  # width, height: evaluation's crops of it begin at whole pixels
MEAN = (0.485, 0.456, 0.406)


def picture(width, height):
    """Slopes, a disc and some stripes, from 12 to 238: sharp edges, all hues, every kind of histogram."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    u, v = x / width, y / height
    out = np.stack([40 + 150 * u + 30 * np.sin(9 * v), 200 - 160 * v + 20 * np.sin(23 * u),
                    60 + 120 * abs(u - v)], -1)
    disc = (u - 0.6) ** 2 + (v - 0.4) ** 2 < 0.07
    out[disc] = out[disc][:, [1, 2, 0]] * 0.6 + 90
    out[(x + 2 * y) % 11 < 2] -= 45
    return Image.fromarray(np.clip(out, 12, 238).astype(np.uint8))


def spaces(size):
    aa, ra, wide = T.AutoAugment(), T.RandAugment(), T.TrivialAugmentWide()
    found = {"ra": ra._augmentation_space(31, (size, size)), "ta_wide": wide._augmentation_space(31),
             "autoaugment": aa._augmentation_space(10, (size, size))}
    return {space: {name: dict(magnitudes=np.atleast_1d(m.double().numpy()).tolist(), signed=signed)
                    for name, (m, signed) in ops.items()} for space, ops in found.items()}


def operations(image):
    """(name, magnitude, result)"""
    bins = [("ra", 9), ("ra", 30), ("ta_wide", 20), ("ta_wide", 30), ("autoaugment", 3)]
    known = spaces(SIZE)
    seen = set()
    for space, index in bins:
        for name, op in known[space].items():
            m = op["magnitudes"]
            value = m[index] if len(m) > 1 else 0.0
            for magnitude in ([value, -value] if op["signed"] else [value]):
                if (name, magnitude) in seen or name == "Identity":
                    continue
                seen.add((name, magnitude))
                yield name, magnitude, _apply_op(image, name, magnitude, InterpolationMode.NEAREST, None)
    yield "Invert", 0, F.invert(image)
    yield "SolarizeAdd", 110, solarize_add(image, 110)
    for hue in (0.1, -0.1, 0.37, 0.5):
        yield "Hue", hue, F.adjust_hue(image, hue)


def resized(image):
    """Pairs (name, result): boxes as left, top, width, height."""
    filters = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
    for name, how in filters.items():
        for left, top, width, height in [(0, 0, 96, 64), (3, 7, 61, 50), (40, 20, 21, 17), (0, 50, 90, 9)]:
            box = (left, top, left + width, top + height)
            yield (dict(box=[left, top, width, height], interpolation=name),
                   image.resize((SIZE, SIZE), how, box=box))
    for mode in ("center", "squash", "border"):
        for pct in (1.0, 0.8):
            transform = transforms_imagenet_eval(SIZE, pct, mode, interpolation="bilinear", mean=MEAN,
                                                 use_prefetcher=True)
            result = Image.fromarray(np.asarray(transform(image)).transpose(1, 2, 0))
            yield dict(crop_mode=mode, crop_pct=pct), result


def policies():
    table = {}
    for name, policy in (("cifar10", AutoAugmentPolicy.CIFAR10), ("imagenet", AutoAugmentPolicy.IMAGENET)):
        table[name] = [[[op, p, -1 if bin is None else bin] for op, p, bin in pair]
                       for pair in T.AutoAugment(policy).policies]
    return table


def main():
    small, large = picture(SIZE, SIZE), picture(*LARGE)
    ops, crops = list(operations(small)), list(resized(large))
    tiles = [small] + [image for _, _, image in ops]
    rows = math.ceil(len(tiles) / COLUMNS)
    below = rows * SIZE + LARGE[1]
    sheet = Image.new("RGB", (COLUMNS * SIZE, below + math.ceil(len(crops) / COLUMNS) * SIZE))
    for i, tile in enumerate(tiles):
        sheet.paste(tile, (i % COLUMNS * SIZE, i // COLUMNS * SIZE))
    sheet.paste(large, (0, rows * SIZE))
    for i, (_, tile) in enumerate(crops):
        sheet.paste(tile, (i % COLUMNS * SIZE, below + i // COLUMNS * SIZE))
    sheet.save(HERE / "augment_reference.png", optimize=True)

    lines = [f'"torchvision": "{torchvision.__version__}"',
             f'"size": {SIZE}', f'"columns": {COLUMNS}', f'"large": [{LARGE[0]}, {LARGE[1]}]',
             f'"mean": {json.dumps(MEAN)}',
             '"operations": [\n  ' + ",\n  ".join(
                 json.dumps(dict(name=name, magnitude=magnitude)) for name, magnitude, _ in ops) + "]",
             '"resized": [\n  ' + ",\n  ".join(json.dumps(what) for what, _ in crops) + "]",
             '"spaces": {\n  ' + ",\n  ".join(
                 f'"{space}": {{\n    ' + ",\n    ".join(
                     f'"{name}": {json.dumps(op)}' for name, op in table.items()) + "}"
                 for space, table in spaces(SIZE).items()) + "}",
             '"policies": {\n  ' + ",\n  ".join(
                 f'"{name}": [\n    ' + ",\n    ".join(json.dumps(pair) for pair in table) + "]"
                 for name, table in policies().items()) + "}"]
    (HERE / "augment_reference.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
