"""Writes pixel_statistics.json: mean and deviation of the pixels of class folders, as printed by data stats.

    python make_pixel_statistics.py ../../../shared/data/seedlings ../../../shared/data/flowers > pixel_statistics.json

of_each_image: the averages of each image's mean and deviation, the latter over n - 1 pixels, torch.std's
default; of_all_pixels: over all pixels together. Values in 0-1; whole images, alpha over white.
"""
import json
import pathlib
import sys

import numpy as np
from PIL import Image, ImageOps


def pixels_of(path):
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB")).reshape(-1, 3).astype(np.float64) / 255


def statistics(folder):
    means, deviations, every = [], [], []
    for path in sorted(folder.glob("*/*")):
        pixels = pixels_of(path)
        means.append(pixels.mean(axis=0))
        deviations.append(pixels.std(axis=0, ddof=1))
        every.append(pixels.astype(np.float32))  # n / 255 in 24 bits: an error of 3e-8 at most
    every = np.concatenate(every)
    mean = every.mean(axis=0, dtype=np.float64)
    # Column by column: all of it in float64 takes gigabytes.
    deviation = [np.sqrt(np.mean((every[:, c] - mean[c]) ** 2, dtype=np.float64)) for c in range(3)]
    return {
        "images": len(means),
        "pixels": len(every),
        "of_each_image": {"mean": np.mean(means, axis=0).tolist(), "std": np.mean(deviations, axis=0).tolist()},
        "of_all_pixels": {"mean": mean.tolist(), "std": [float(d) for d in deviation]},
    }


print(json.dumps({pathlib.Path(name).name: statistics(pathlib.Path(name)) for name in sys.argv[1:]}, indent=1))
