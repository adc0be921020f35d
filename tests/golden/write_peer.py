#!/usr/bin/env python3
"""Writes weights as other programs do: timm's or torchvision's model in a .safetensors file without metadata and,
on request, its logits for the golden pictures in evaluation. A model with running statistics has been trained on
one batch.

  write_peer.py MODEL OUT.safetensors [--image-size 224 --patch-size 16 --classes 1000 --batch 2]
                [--depth 2] [--layers 1 1 1 1] [--representation-size 0] [--images OUT.raw --logits OUT.raw]
"""

import argparse
import sys

sys.dont_write_bytecode = True
import formula
import numpy as np
import peer_models
import torch
from safetensors.torch import save_file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=peer_models.NAMES)
    parser.add_argument("out")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--patch-size", type=int, default=16)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--depth", type=int, help="blocks of a ViT")
    parser.add_argument("--layers", type=int, nargs=4, help="blocks of each stage of a residual network")
    parser.add_argument("--representation-size", type=int, default=0, help="features of a layer before a ViT's head")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", help="write uint8 pixels [B, size, size, 3]")
    parser.add_argument("--logits", help="write float32 [B, classes], with mean and std 0.5")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = peer_models.create(
        args.model, args.classes, args.image_size, args.patch_size, args.depth, args.layers, args.representation_size
    )
    pixels = formula.images(args.batch, args.image_size)
    images = ((torch.from_numpy(pixels).float() / 255 - 0.5) / 0.5).permute(0, 3, 1, 2)
    with torch.no_grad():
        if args.model in peer_models.TORCHVISION:
            model.train()(images)
        save_file(model.eval().state_dict(), args.out)
        if args.images:
            pixels.tofile(args.images)
        if args.logits:
            model.double()(images.double()).numpy().astype(np.float32).tofile(args.logits)


if __name__ == "__main__":
    main()
