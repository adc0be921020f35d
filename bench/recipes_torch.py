"""PyTorch's side of bench/recipes: trains with the options of a finished run of ours, on the same images in
the same split; prints one JSON line of losses and accuracies by epoch. With --weights and --seen it computes
only the first updates, from these weights, on the images of a folder written by preview; prints their losses.

Pictures are processed with PIL, as in the published set-ups; timm's Mixup mixes the first image of a batch
with the last, and so on.
"""

import argparse
import json
import math
import os
import pathlib
import random

import numpy
import safetensors.torch
import timm.data
import torch
import torch.nn.functional as F
import torchvision
from peers import TIMM_NAMES, make_model, make_optimizer, use_all_cores, versions
from PIL import Image, ImageEnhance, ImageOps

DROP_RATES = ("drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate")
GREY = (128, 128, 128)


# ---- data -------------------------------------------------------------------------------------------
def cifar(folder):
    def part(names):
        records = numpy.concatenate([numpy.fromfile(folder / n, numpy.uint8).reshape(-1, 3073) for n in names])
        pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return [(Image.fromarray(p), int(label)) for p, label in zip(pixels, records[:, 0])]

    return part(sorted(p.name for p in folder.glob("data_batch_*.bin"))), part(["test_batch.bin"])


def photos(folder, run):
    """Train and val as our run split them: its val.txt lists the images held out."""
    held_out = {os.path.abspath(line) for line in (run / "val.txt").read_text().splitlines()}
    classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
    train, val = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).rglob("*")):
            with Image.open(path) as image:
                (val if os.path.abspath(path) in held_out else train).append((image.convert("RGB"), label))
    if len(val) != len(held_out):
        raise SystemExit(f"val.txt names {len(held_out)} images, {len(val)} are there")
    return train, val, len(classes)


# ---- the input of the model ------------------------------------------------------------------------------
def resized(image, size, o):
    """Resized as for evaluation."""
    grown = math.floor(size / o["crop_pct"])
    if o["crop_mode"] == "squash":
        image = image.resize((grown, grown), Image.BILINEAR)
    else:
        scale = grown / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.BILINEAR)
    return torchvision.transforms.functional.center_crop(image, size)


def dali_operations(size):
    """RandAugment's 16 operations at magnitude 10; shifts in pixels at 224."""
    sign = lambda: random.choice((-1, 1))
    affine = lambda *a: (lambda image: image.transform(image.size, Image.AFFINE, a, Image.NEAREST, fillcolor=GREY))
    enhance = lambda kind: (lambda image: kind(image).enhance(1 + 0.9 * sign()))
    shift, half = 40 * size / 224, round(40 * size / 224)

    def cutout(image):
        x, y = random.randrange(image.width), random.randrange(image.height)
        image = image.copy()
        image.paste(GREY, (max(0, x - half), max(0, y - half), min(size, x + half), min(size, y + half)))
        return image

    return [
        ImageOps.autocontrast,
        ImageOps.equalize,
        ImageOps.invert,
        lambda image: image.rotate(30 * sign(), Image.NEAREST, fillcolor=GREY),
        lambda image: ImageOps.posterize(image, 4),
        lambda image: ImageOps.solarize(image, 200),
        lambda image: image.point([min(255, x + 110) if x < 128 else x for x in range(256)] * 3),
        enhance(ImageEnhance.Color),
        enhance(ImageEnhance.Contrast),
        enhance(ImageEnhance.Brightness),
        enhance(ImageEnhance.Sharpness),
        lambda image: affine(1, 0.3 * sign(), 0, 0, 1, 0)(image),
        lambda image: affine(1, 0, 0, 0.3 * sign(), 1, 0)(image),
        lambda image: affine(1, 0, shift * sign(), 0, 1, 0)(image),
        lambda image: affine(1, 0, 0, 0, 1, shift * sign())(image),
        cutout,
    ]


def training_view(o):
    size = o["image_size"]
    crop = torchvision.transforms.RandomResizedCrop(size, o["scale"], o["ratio"])
    padded = torchvision.transforms.RandomCrop(size, padding=o["padding"])
    operations = dali_operations(size)
    if o["auto_augment"] not in ("none", "ra-dali") or o["train_crop"] == "pad-if-needed":
        raise SystemExit(f"not there on PyTorch's side: {o['auto_augment']}, {o['train_crop']}")

    def view(image):
        if o["train_crop"] == "random-resized":
            image = crop(image)
        else:
            image = resized(image, size, o) if image.size != (size, size) else image
            image = padded(image) if o["train_crop"] == "padded" else image
        if random.random() < o["hflip"]:
            image = ImageOps.mirror(image)
        if o["auto_augment"] == "ra-dali" and random.random() < 0.5:
            for operation in random.sample(operations, o["ra_ops"]):
                image = operation(image)
        return image

    return view


def tensor_of(images, o):
    pixels = torch.from_numpy(numpy.stack([numpy.asarray(image) for image in images])).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(o[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    return ((pixels - mean) / std).contiguous(memory_format=torch.channels_last)


# ---- training -----------------------------------------------------------------------------------------
def model_of(o, classes):
    return make_model(o, classes, **({key: o[key] for key in DROP_RATES} if o["model"] in TIMM_NAMES else {}))


def rate(o, epoch):
    if o["schedule"] == "constant":
        return o["lr"]
    if o["schedule"] != "cosine" or o["schedule_by"] != "epoch" or o["warmup_epochs"]:
        raise SystemExit("PyTorch's side has a constant rate and the cosine by epoch alone")
    fallen = 0.5 * (1 + math.cos(math.pi * epoch / (o["period_epochs"] or o["epochs"])))
    return o["min_lr"] + (o["lr"] - o["min_lr"]) * fallen


def evaluate(model, val, batch):
    model.eval()
    loss = right = count = 0
    with torch.no_grad():
        for begin in range(0, len(val[1]), batch):
            images, labels = (part[begin : begin + batch] for part in val)
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(1) == labels).sum().item()
            count += len(labels)
    return loss / count, right / count


def update(model, optimizer, o, loss):
    """Returns the loss as a number."""
    optimizer.zero_grad()
    loss.backward()
    if o["clip_grad"] > 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip_grad"])
    optimizer.step()
    return loss.item()


def train_epochs(o, run):
    folder = pathlib.Path(o["data"])
    if (folder / "test_batch.bin").exists():
        train, val, classes = *cifar(folder), 10
    else:
        train, val, classes = photos(folder, run)
    size, batch = o["image_size"], o["batch"]
    seen = [image if image.size == (size, size) else resized(image, size, o) for image, _ in val]
    val = tensor_of(seen, o), torch.tensor([label for _, label in val])
    view = training_view(o)
    model = model_of(o, classes).to(memory_format=torch.channels_last)
    optimizer = make_optimizer(model, o)
    mix = None
    if o["mixup"] or o["cutmix"]:
        mix = timm.data.Mixup(
            o["mixup"], o["cutmix"], prob=o["mixup_prob"], switch_prob=o["mixup_switch_prob"], mode=o["mixup_mode"],
            label_smoothing=o["label_smoothing"], num_classes=classes,
        )
    result = {"train_loss": [], "val_loss": [], "val_top1": []}
    for epoch in range(int(o["epochs"])):
        for group in optimizer.param_groups:
            group["lr"] = rate(o, epoch)
        model.train()
        order, losses = random.sample(range(len(train)), len(train)), []
        for begin in range(0, len(train) // batch * batch, batch):
            rows = [train[i] for i in order[begin : begin + batch]]
            images, target = tensor_of([view(image) for image, _ in rows], o), torch.tensor([label for _, label in rows])
            if mix:
                images, target = mix(images, target)
            loss = F.cross_entropy(model(images), target, label_smoothing=0 if mix else o["label_smoothing"])
            losses.append(update(model, optimizer, o, loss))
        val_loss, top1 = evaluate(model, val, batch)
        result["train_loss"].append(sum(losses) / len(losses))
        result["val_loss"].append(val_loss)
        result["val_top1"].append(top1)
    return result


def take_steps(o, weights, seen):
    """seen: preview's folder; its targets are probabilities, after mixing and smoothing."""
    for key in DROP_RATES:
        if o[key]:
            raise SystemExit(f"dropout draws other numbers here; after -- give --{key.replace('_', '-')} 0")
    lines = [json.loads(line) for line in (seen / "batch.jsonl").read_text().splitlines()]
    model = model_of(o, len(lines[0]["target"]))
    model.load_state_dict(safetensors.torch.load_file(weights))
    model = model.to(memory_format=torch.channels_last).train()
    optimizer = make_optimizer(model, o)
    for group in optimizer.param_groups:
        group["lr"] = rate(o, 0)
    losses = []
    for begin in range(0, len(lines), o["batch"]):
        rows = range(begin, begin + o["batch"])
        images = tensor_of([Image.open(seen / "mixed" / f"{row:05}.png") for row in rows], o)
        target = torch.tensor([lines[row]["target"] for row in rows], dtype=torch.float32)
        losses.append(update(model, optimizer, o, F.cross_entropy(model(images), target)))
    return {"loss": losses}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", help="of PyTorch's model, .safetensors")
    parser.add_argument("--seen", type=pathlib.Path)
    args = parser.parse_args()
    o = json.loads((args.run / "config.json").read_text())
    if o["accumulate"] != 1:
        raise SystemExit("not there on PyTorch's side: --accumulate")
    use_all_cores()
    torch.manual_seed(args.seed), random.seed(args.seed), numpy.random.seed(args.seed)
    result = take_steps(o, args.weights, args.seen) if args.seen else train_epochs(o, args.run)
    print(json.dumps(result | versions(o["model"])))


if __name__ == "__main__":
    main()
