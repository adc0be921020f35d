"""Weights, pictures and projection vectors from a formula, so that golden files need not contain them.

formula.h does the same in C++, with the same bits. Everything is derived from the output words of
Philox4x32-10, with the FNV-1a hash of a name as the key:

  word(name, i)       word i % 4 of philox(fnv1a64(name), counter i / 4)
  signed(name, i)     ((word >> 8) - 2^23) / 2^23, exact in fp32: uniform in [-1, 1)
  parameter(name, i)  centre + scale * signed(name, i); scale is a power of two, so that the
                      product is exact and the sum is rounded once, with or without FMA:
      class and other token, position embedding  0 + 1/2 signed
      .bn2.weight, .bn3.weight                1/4 + 1/16 signed (of a residual network's blocks: one
                                              ends the branch, whose share of the sum is small then,
                                              so that rounding does not grow from block to block)
      one dimension, .weight or running_var   1 + 1/4 signed    (norms)
      other tensors of one dimension          0 + 1/8 signed    (biases)
      all others                              0 + 2^-e signed   (e: the largest with 3 * 4^e <= fan_in,
                                              fan_in = elements / shape[0]; variance about 1 / fan_in)
  pixel(i)            word("images", i) >> 24, of uint8 images [B, H, W, 3]
  label(b)            7 b mod classes
  projection k of a tensor   sum of signed(name + "/projection" + k, i) * element i
  sample j of a tensor       element word(name + "/sample", j) mod elements
"""

import numpy as np

PROJECTIONS = 4
SAMPLES = 16


def key_of(name):
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 % 2**64
    return key


def philox(key, counter, c2=0, c3=0):
    """[n, 4] words for n counters of 64 bits (uint64 [n]) with a common upper half."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    c0, c1 = counter & low, counter >> half
    c2, c3 = np.full_like(counter, c2), np.full_like(counter, c3)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1 = (p1 >> half) ^ c1 ^ np.uint64(k0), p1 & low
        c2, c3 = (p0 >> half) ^ c3 ^ np.uint64(k1), p0 & low
        k0 = (k0 + 0x9E3779B9) % 2**32
        k1 = (k1 + 0xBB67AE85) % 2**32
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def kept(case, layer, batch, count, drop):
    """Mask of dropout (kernels.h), times 1 / (1 - drop): [batch, count], float64."""
    drop = float(np.float32(drop))
    decisions = np.arange(-(-count // 4), dtype=np.uint64)
    rows = []
    for image in range(case["position"], case["position"] + batch):
        drawn = philox(case["seed"], decisions + (np.uint64(image) << np.uint64(32)), case["epoch"], layer)
        rows.append((drawn.reshape(-1)[:count] >> 8) * 2.0**-24 >= drop)
    return np.array(rows) / (1 - drop)


def words(name, count):
    key = key_of(name)
    chunk = 1 << 20  # counters at a time: bounds the memory
    blocks = -(-count // 4)
    parts = [
        philox(key, np.arange(at, min(at + chunk, blocks), dtype=np.uint64)).reshape(-1)
        for at in range(0, blocks, chunk)
    ]
    return np.concatenate(parts)[:count]


def signed(name, count):
    return ((words(name, count) >> 8).astype(np.int32) - 2**23).astype(np.float32) / np.float32(2**23)


def centre_and_scale(name, shape):
    if name in ("cls_token", "dist_token", "pos_embed"):
        return 0.0, 0.5
    if name.endswith((".bn2.weight", ".bn3.weight")):
        return 0.25, 0.0625
    if len(shape) == 1:
        return (1.0, 0.25) if name.endswith(("weight", "running_var")) else (0.0, 0.125)
    fan_in = int(np.prod(shape[1:]))
    e = 0
    while 3 * 4 ** (e + 1) <= fan_in:
        e += 1
    return 0.0, 2.0**-e


def parameter(name, shape):
    centre, scale = centre_and_scale(name, shape)
    values = signed(name, int(np.prod(shape)))
    return (np.float32(centre) + np.float32(scale) * values).astype(np.float32).reshape(shape)


def images(batch, size):
    return (words("images", batch * size * size * 3) >> 24).astype(np.uint8).reshape(batch, size, size, 3)


def labels(batch, classes):
    return np.arange(batch) * 7 % classes


def sample_indices(name, count):
    return words(name + "/sample", SAMPLES).astype(np.int64) % count


def summary(name, values):
    """Summary of a tensor (float64) in a golden file."""
    flat = values.reshape(-1)
    return {
        "norm": float(np.sqrt(np.sum(flat * flat))),
        "max": float(np.max(np.abs(flat))),
        "projections": [
            float(np.sum(signed(f"{name}/projection{k}", flat.size).astype(np.float64) * flat))
            for k in range(PROJECTIONS)
        ],
        "samples": [float(flat[i]) for i in sample_indices(name, flat.size)],
    }
