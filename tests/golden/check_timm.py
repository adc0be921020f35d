#!/usr/bin/env python3
"""Do our weights mean the same in timm? Loads a weights.safetensors of this project into timm's model
(strict) and compares logits (make peers; then build/peers/bin/python tests/golden/check_timm.py ...).

  check_timm.py WEIGHTS IMAGES LOGITS [--tolerance 1e-5]

WEIGHTS  .safetensors with our metadata (model, image_size, patch_size, mean, std)
IMAGES   uint8 pixels [B, image_size, image_size, 3]: .npy or raw bytes
LOGITS   float32 [B, classes], what our model made of them: .npy or raw little-endian
Exit code 0 where every logit is within the tolerance (relative to the largest, if that is above 1).
"""

import argparse
import json
import sys

import numpy as np
import timm
import torch
from safetensors import safe_open

TIMM_NAMES = {"vit_tiny": "vit_tiny_patch16_224", "vit_large": "vit_large_patch16_224"}


def read_array(path, dtype):
    return np.load(path).astype(dtype, casting="safe") if path.endswith(".npy") else np.fromfile(path, dtype)


def read_weights(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}


def timm_model(weights, metadata):
    """The model that the file is of; its depth from the names, so that cut-down models load too."""
    depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    model = timm.create_model(
        TIMM_NAMES[metadata["model"]],
        img_size=int(metadata["image_size"]),
        patch_size=int(metadata["patch_size"]),
        num_classes=weights["head.weight"].shape[0],
        depth=depth,
    )
    model.load_state_dict(weights, strict=True)
    return model.double().eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("images")
    parser.add_argument("logits")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    args = parser.parse_args()

    weights, metadata = read_weights(args.weights)
    if metadata.get("format") != "pt":
        sys.exit(f"{args.weights}: metadata has format {metadata.get('format')!r}, not 'pt'")
    size = int(metadata["image_size"])
    mean, std = (torch.tensor(json.loads(metadata[key]), dtype=torch.float64) for key in ("mean", "std"))
    pixels = torch.from_numpy(read_array(args.images, np.uint8).reshape(-1, size, size, 3)).double()
    with torch.no_grad():
        expected = timm_model(weights, metadata)(((pixels / 255 - mean) / std).permute(0, 3, 1, 2)).numpy()
    got = read_array(args.logits, np.float32).astype(np.float64)
    if got.size != expected.size:
        sys.exit(f"{args.logits}: {got.size} logits, expected {expected.size}")
    error = np.max(np.abs(got.reshape(expected.shape) - expected)) / max(1.0, np.max(np.abs(expected)))
    print(f"{len(weights)} tensors load strictly; {expected.shape[0]} images, logits within {error:.2e}")
    if not error <= args.tolerance:
        sys.exit(f"logits differ from timm's by {error:.2e}, more than {args.tolerance:.0e}")


if __name__ == "__main__":
    main()
