#!/usr/bin/env python3
"""Reads the output of `data pack` with TensorFlow and DALI, and compares every picture and label with the
list it was packed from.

  python3 tests/golden/records/check_records.py LIST OUT NAME    needs tensorflow; DALI if it is there"""

import pathlib
import subprocess
import sys
import tempfile

import tensorflow as tf


def read_list(path):
    folder, classes, rows = pathlib.Path(path).parent, [], []
    for line in open(path):
        line = line.rstrip("\n")
        if line.startswith("# folder "):
            folder = pathlib.Path(line[9:])
        elif line.startswith("# class "):
            classes.append(line.split(" ", 3)[3])
        elif not line.startswith("#"):
            name, label = line.rsplit(" ", 1)
            box = name.rsplit(" ", 1)[-1].split(",")
            objects = len(box) == 4 and all(part.isdigit() for part in box)
            rows.append((name.rsplit(" ", 1)[0] if objects else name, int(label), box if objects else None))
    return folder, classes, rows


def by_tensorflow(files, folder, classes, rows):
    """Every picture's bytes and labels, in the list's order; returns (bytes, label) of each record."""
    objects = rows[0][2] is not None
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/format": tf.io.FixedLenFeature([], tf.string),
        "image/height": tf.io.FixedLenFeature([], tf.int64),
        "image/width": tf.io.FixedLenFeature([], tf.int64),
    }
    if objects:
        for side in ("xmin", "ymin", "xmax", "ymax"):
            features[f"image/object/bbox/{side}"] = tf.io.VarLenFeature(tf.float32)
        features["image/object/class/label"] = tf.io.VarLenFeature(tf.int64)
    else:
        features["image/class/label"] = tf.io.FixedLenFeature([], tf.int64)
        features["image/class/text"] = tf.io.FixedLenFeature([], tf.string)
    records, row = [], 0
    for raw in tf.data.TFRecordDataset(files):
        e = tf.io.parse_single_example(raw, features)
        name, label, _ = rows[row]
        encoded = e["image/encoded"].numpy()
        assert encoded == (folder / name).read_bytes(), name
        height, width = int(e["image/height"]), int(e["image/width"])
        if e["image/format"].numpy() in (b"jpeg", b"png", b"bmp", b"gif"):
            shape = tf.io.decode_image(encoded, expand_animations=False).shape
            assert (height, width) == tuple(shape[:2]), (name, shape, height, width)
        if objects:
            labels = tf.sparse.to_dense(e["image/object/class/label"]).numpy().tolist()
            sides = [tf.sparse.to_dense(e[f"image/object/bbox/{s}"]).numpy() for s in ("xmin", "ymin", "xmax", "ymax")]
            for k, of_object in enumerate(labels):
                x, y, w, h = map(int, rows[row + k][2])
                assert rows[row + k][:2] == (name, of_object - 1)
                want = (x / width, y / height, (x + w) / width, (y + h) / height)
                assert all(abs(side[k] - value) < 1e-6 for side, value in zip(sides, want)), name
            row += len(labels)
            records.append((encoded, labels[0]))
        else:
            assert int(e["image/class/label"]) == label + 1, name
            assert e["image/class/text"].numpy().decode() == classes[label], name
            row += 1
            records.append((encoded, label + 1))
    assert row == len(rows), (row, len(rows))
    return records


def by_tfrecord2idx(files):
    script = pathlib.Path(sys.executable).parent / "tfrecord2idx"
    if not script.exists():
        return "no tfrecord2idx here"
    for file in files:
        with tempfile.NamedTemporaryFile("r") as idx:
            subprocess.run([sys.executable, str(script), file, idx.name], check=True, stdout=subprocess.DEVNULL)
            assert pathlib.Path(idx.name).read_bytes() == pathlib.Path(file).with_suffix(".idx").read_bytes(), file
    return "the same .idx"


def by_dali(files, records):
    try:
        from nvidia.dali import fn, pipeline_def, tfrecord
    except ImportError:
        return "no DALI here"

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        found = fn.readers.tfrecord(
            path=files,
            index_path=[str(pathlib.Path(f).with_suffix(".idx")) for f in files],
            features={
                "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
                "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            },
        )
        return found["image/encoded"], fn.decoders.image(found["image/encoded"]), found["image/class/label"]

    pipe = pipeline()
    pipe.build()
    for encoded, label in records:
        raw, pixels, of_record = pipe.run()
        assert bytes(raw.as_array()[0]) == encoded and int(of_record.as_array()[0][0]) == label
        assert pixels.as_array()[0].ndim == 3
    return f"{len(records)} pictures decoded"


def main():
    listed, out, name = sys.argv[1:]
    folder, classes, rows = read_list(listed)
    files = sorted(str(f) for f in pathlib.Path(out).glob(f"{name}-*.tfrecord"))
    records = by_tensorflow(files, folder, classes, rows)
    print(f"TensorFlow {tf.__version__}: {len(records)} records in {len(files)} files, bytes and labels equal")
    print("tfrecord2idx:", by_tfrecord2idx(files))
    if rows[0][2] is None:
        print("DALI's reader on the CPU:", by_dali(files, records))


main()
