#!/usr/bin/env python3
"""Do our weights mean the same in timm and torchvision? Loads a weights.safetensors of this project into
their model (strict) and compares logits (make peers; then build/peers/bin/python tests/golden/check_peer.py ...).

  check_peer.py WEIGHTS IMAGES LOGITS [--tolerance 1e-5]

WEIGHTS  .safetensors with our metadata (model, image_size, mean, std; patch_size of a ViT)
IMAGES   uint8 pixels [B, image_size, image_size, 3]: .npy or raw bytes
LOGITS   float32 [B, classes], our model's output for them in evaluation: .npy or raw little-endian
Exit code 0 if every logit is within the tolerance (relative to the largest logit, if that is above 1).
"""

import argparse
import json
import sys

sys.dont_write_bytecode = True
import numpy as np
import peer_models
import torch
from safetensors import safe_open


def read_array(path, dtype):
    return np.load(path).astype(dtype, casting="safe") if path.endswith(".npy") else np.fromfile(path, dtype)


def read_weights(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}


def count_blocks(weights, prefix):
    """The number of layers prefix0., prefix1. ..., so that smaller models load, too."""
    return 1 + max(int(name[len(prefix) :].split(".")[0]) for name in weights if name.startswith(prefix))


def peer_model(weights, metadata):
    """The model that the file belongs to."""
    model = metadata["model"]
    if model in peer_models.TIMM:
        classes = weights["head.weight"].shape[0]
        sizes = {key: int(metadata[key]) for key in ("image_size", "patch_size")}
        sizes["depth"] = count_blocks(weights, "blocks.")
        if "pre_logits.fc.weight" in weights:
            sizes["representation_size"] = weights["pre_logits.fc.weight"].shape[0]
    else:
        classes = weights["fc.weight"].shape[0]
        sizes = {"layers": [count_blocks(weights, f"layer{stage}.") for stage in (1, 2, 3, 4)]}
    made = peer_models.create(model, classes, **sizes)
    made.load_state_dict(weights, strict=True)
    return made.double().eval()


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
        expected = peer_model(weights, metadata)(((pixels / 255 - mean) / std).permute(0, 3, 1, 2)).numpy()
    got = read_array(args.logits, np.float32).astype(np.float64)
    if got.size != expected.size:
        sys.exit(f"{args.logits}: {got.size} logits, expected {expected.size}")
    error = np.max(np.abs(got.reshape(expected.shape) - expected)) / max(1.0, np.max(np.abs(expected)))
    print(f"{len(weights)} tensors load strictly; {expected.shape[0]} images, logits within {error:.2e}")
    if not error <= args.tolerance:
        sys.exit(f"logits differ from PyTorch's by {error:.2e}, more than {args.tolerance:.0e}")


if __name__ == "__main__":
    main()
