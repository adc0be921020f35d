"""What bench/loading times of Pillow and PyTorch: each prints one JSON object of images per second."""

import itertools
import json
import pathlib
import sys
import time

from PIL import Image

NAMES = (".jpg", ".jpeg", ".png")


def rate(seconds, work, images_per_call=1):
    begin, calls = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        work()
        calls += images_per_call
    return calls / elapsed


def open_rgb(path):
    with Image.open(path) as image:
        return image.convert("RGB")


def centred_square(image):
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return left, top, left + side, top + side


def pillow(files, size, seconds):
    from torchvision.transforms import RandomResizedCrop

    endless = itertools.cycle(files)
    some = itertools.cycle([open_rgb(path) for path in files[:32]])

    def resize():
        image = next(some)
        image.resize((size, size), Image.Resampling.BILINEAR, centred_square(image))

    def load():
        image = open_rgb(next(endless))
        top, left, height, width = RandomResizedCrop.get_params(image, (0.08, 1), (3 / 4, 4 / 3))
        image.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + width, top + height))

    return {
        "decode": rate(seconds, lambda: open_rgb(next(endless))),
        "resize": rate(seconds, resize),
        "load": rate(seconds, load),
    }


def pytorch(folder, size, seconds):
    import torch
    from torchvision import datasets, transforms

    torch.set_num_threads(1)
    work = transforms.Compose(
        [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    )
    loader = torch.utils.data.DataLoader(
        datasets.ImageFolder(folder, work), batch_size=16, shuffle=True, num_workers=1, drop_last=True
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    next(batches)
    return {"load": rate(seconds, lambda: next(batches), 16)}


def main():
    peer, folder, size, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    files = sorted(path for path in pathlib.Path(folder).rglob("*") if path.suffix.lower() in NAMES)
    print(json.dumps(pillow(files, size, seconds) if peer == "pillow" else pytorch(folder, size, seconds)))


main()
