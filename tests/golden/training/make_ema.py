#!/usr/bin/env python3
"""Writes ema.json: timm's ModelEmaV3 over 50 updates of the tensors of make_golden.py's optimizers, in float64
(make peers; then build/peers/bin/python tests/golden/training/make_ema.py).

Update s subtracts 0.1 * signed(NAME/gradientS) from each tensor. timm's warm-up with gamma 9 and power 1 is a decay
of t / (t + 9); its update number is one higher than ours, since its first update copies the weights. Buffers are
copied (exclude_buffers).
"""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import formula
import make_golden
import torch
from timm.utils import ModelEmaV3

RATE = 0.1
UPDATES = 50
KEPT = (1, 2, 10, 30, 50)


class Tensors(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, shape in make_golden.TENSORS:
            values = torch.from_numpy(formula.parameter(name, tuple(shape))).double()
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(values))


def make(decay):
    model = Tensors()
    ema = ModelEmaV3(model, decay=decay, use_warmup=True, warmup_gamma=9, warmup_power=1, exclude_buffers=True)
    after = []
    for s in range(UPDATES):
        for name, _ in make_golden.TENSORS:
            p = getattr(model, name.replace(".", "_"))
            p.data -= RATE * torch.from_numpy(formula.signed(f"{name}/gradient{s}", p.numel())).double().view_as(p)
        ema.update(model, step=s + 2)
        if s + 1 in KEPT:
            averages = {name: getattr(ema.module, name.replace(".", "_")) for name, _ in make_golden.TENSORS}
            after.append({"updates": s + 1, **{n: p.detach().reshape(-1).tolist() for n, p in averages.items()}})
    return {"decay": decay, "after": after}


if __name__ == "__main__":
    tensors = [{"name": n, "shape": s} for n, s in make_golden.TENSORS]
    # With decay 0.8 the warm-up ends at update 36, with 0.9998 never.
    make_golden.write("training/ema", {"lr": RATE, "tensors": tensors, "cases": [make(0.8), make(0.9998)]})
