#!/usr/bin/env python3
"""Writes tests/golden/records/{train,validation}-*, TFRecords as imagenet-tools' build_image_data makes
them (labels from 1, no names, no .idx), by TensorFlow itself: pictures of 8x8 pixels whose pixel (y, x)
of picture i is [i * 20, y * 30, x * 30].

  python3 tests/golden/records/make_records.py    needs tensorflow"""

import pathlib

import numpy
import tensorflow as tf

HERE = pathlib.Path(__file__).parent


def example(number, label):
    pixels = numpy.zeros((8, 8, 3), numpy.uint8)
    pixels[..., 0] = number * 20
    pixels[..., 1] = numpy.arange(8)[:, None] * 30
    pixels[..., 2] = numpy.arange(8)[None, :] * 30
    features = {
        "image/encoded": tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[tf.io.encode_png(pixels).numpy()])
        ),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write(name, numbers):
    with tf.io.TFRecordWriter(str(HERE / name)) as out:
        for number in numbers:
            out.write(example(number, 1 + number % 3))


write("train-00000-of-00002", range(0, 4))
write("train-00001-of-00002", range(4, 8))
write("validation-00000-of-00001", range(8, 11))
