# Prints the cases of tests/engine/files/weights_test.cpp (needs PyTorch and timm): position
# embeddings from a formula, resized by timm; for each, the sum of squares and some rows.
import torch
from timm.layers import resample_abs_pos_embed

for size, to in [(14, 8), (8, 14), (7, 16), (5, 3), (3, 1), (1, 2), (24, 14)]:
    embedding = torch.tensor(
        [[[((i * 37 + c * 101) % 64 - 32) / 32 for c in range(2)] for i in range(1 + size * size)]]
    )
    out = resample_abs_pos_embed(embedding, [to, to], num_prefix_tokens=1)[0]
    assert (out[0] == embedding[0, 0]).all()
    grid, n = out[1:], to * to
    rows = sorted({0, 1 % n, to - 1, n // 2 % n, n * 2 // 3 % n, n - to, n - 1})
    squares = float(grid.double().pow(2).sum())
    print("{%d, %d, %.10g, {%s}}," % (size, to, squares, ", ".join(
        "%d, %.8f, %.8f" % (i, grid[i, 0], grid[i, 1]) for i in rows)))
