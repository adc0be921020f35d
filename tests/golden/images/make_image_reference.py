"""Writes image_reference.txt: Pillow's pixels of the images in image_edge_cases that are `ok`.

    python make_image_reference.py ../../../shared/data/image_edge_cases > image_reference.txt

A line: file, width and height after the Exif transpose, the mean of each channel over an 8x8 grid of cells
(192 numbers, row by row), then 100 sampled pixels (300 numbers): sample i is pixel number
(2654435761 * (i + 1) mod 2^32) mod (width * height), row by row.
"""
import csv
import pathlib
import sys

import numpy as np
import PIL
from PIL import Image, ImageOps

GRID, SAMPLES = 8, 100


def reference(path):
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode.startswith("I"):  # 16-bit grey: Pillow would clip it
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB")).astype(np.float64)


def edges(size):
    return [(i * size // GRID, max((i + 1) * size // GRID, i * size // GRID + 1)) for i in range(GRID)]


def main():
    folder = pathlib.Path(sys.argv[1])
    print(f"# Pillow {PIL.__version__}")
    for row in csv.DictReader(open(folder / "manifest.csv")):
        if row["expect"] != "ok":
            continue
        pixels = reference(folder / row["file"])
        height, width, _ = pixels.shape
        means = [f"{v:.0f}" for a, b in edges(height) for c, d in edges(width)
                 for v in pixels[a:b, c:d].mean((0, 1))]
        flat = pixels.reshape(-1, 3).astype(int)
        samples = [str(v) for i in range(SAMPLES)
                   for v in flat[(2654435761 * (i + 1) % 2**32) % len(flat)]]
        print(row["file"], width, height, *means, *samples)


if __name__ == "__main__":
    main()
