"""The libraries that bench/loading compares: each prints one JSON object of images per second. Also
`enlarge`, which makes larger photos."""

import itertools
import json
import pathlib
import sys
import time

from PIL import Image

NAMES = (".jpg", ".jpeg", ".png")
AREA, ASPECT = (0.08, 1), (3 / 4, 4 / 3)  # of RandomResizedCrop


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


def resize_middle(image, size):
    return image.resize((size, size), Image.Resampling.BILINEAR, centred_square(image))


def pillow(files, size, seconds):
    from torchvision.transforms import RandomResizedCrop

    some = itertools.cycle([open_rgb(path) for path in itertools.islice(files, 32)])

    def crop():
        image = open_rgb(next(files))
        top, left, height, width = RandomResizedCrop.get_params(image, AREA, ASPECT)
        image.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + width, top + height))

    return {
        "decode": rate(seconds, lambda: open_rgb(next(files))),
        "resize": rate(seconds, lambda: resize_middle(next(some), size)),
        "middle": rate(seconds, lambda: resize_middle(open_rgb(next(files)), size)),
        "crop": rate(seconds, crop),
    }


def draft(files, size, seconds):
    def middle():
        with Image.open(next(files)) as image:
            image.draft("RGB", (size, size))
            resize_middle(image.convert("RGB"), size)

    return {"middle": rate(seconds, middle)}


def torchvision_io(files, size, seconds):
    import torch
    from torchvision import io
    from torchvision.transforms import RandomResizedCrop
    from torchvision.transforms.v2 import functional

    torch.set_num_threads(1)

    def decode():
        return io.decode_image(io.read_file(str(next(files))), io.ImageReadMode.RGB)

    def resize(image, box):
        return functional.resized_crop(image, *box, [size, size], antialias=True)

    def middle(image):
        height, width = image.shape[-2:]
        side = min(height, width)
        return resize(image, ((height - side) // 2, (width - side) // 2, side, side))

    def crop():
        image = decode()
        resize(image, RandomResizedCrop.get_params(image, AREA, ASPECT))

    some = itertools.cycle([decode() for _ in range(32)])
    return {
        "decode": rate(seconds, decode),
        "resize": rate(seconds, lambda: middle(next(some))),
        "middle": rate(seconds, lambda: middle(decode())),
        "crop": rate(seconds, crop),
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
    return {"crop": rate(seconds, lambda: next(batches), 16)}


def files_in(folder):
    return sorted(path for path in pathlib.Path(folder).rglob("*") if path.suffix.lower() in NAMES)


def enlarge(folder, out, side, per_class=16):
    for path in files_in(folder):
        to = pathlib.Path(out) / path.parent.name
        to.mkdir(exist_ok=True)
        if len(list(to.iterdir())) == per_class:
            continue
        image = open_rgb(path)
        scale = side / max(image.size)
        size = (round(image.width * scale), round(image.height * scale))
        image.resize(size, Image.Resampling.BICUBIC).save(to / f"{path.stem}.jpg", quality=90)


def main():
    what, folder = sys.argv[1], sys.argv[2]
    if what == "enlarge":
        return enlarge(folder, sys.argv[3], int(sys.argv[4]))
    size, seconds, files = int(sys.argv[3]), float(sys.argv[4]), itertools.cycle(files_in(folder))
    rates = {
        "pillow": lambda: pillow(files, size, seconds),
        "draft": lambda: draft(files, size, seconds),
        "torchvision": lambda: torchvision_io(files, size, seconds),
        "pytorch": lambda: pytorch(folder, size, seconds),
    }
    print(json.dumps(rates[what]()))


main()
