#!/usr/bin/env python3
"""Writes schedule.json: the learning rates of PyTorch's and timm's schedulers over 1,000 epochs, stepped epoch
by epoch as their training loops do (make peers; then build/peers/bin/python tests/golden/training/make_schedule.py).

A case has `options` by our names, `scheduler`, the scheduler used, and `lr` as [epoch, rate] for sampled epochs: the
first, the last, some between, and those around each jump. For a scheduler that counts updates it has `updates`
instead, [update, rate], with `updates_per_epoch`. Warm-ups are left out: ours reaches the peak with its last update.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True
import torch
from timm import scheduler as timm_scheduler
from torch.optim import lr_scheduler as torch_scheduler

EPOCHS = 1000


def optimizer_of(lr):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def rates_of_torch(kind, lr, **arguments):
    optimizer = optimizer_of(lr)
    scheduler = getattr(torch_scheduler, kind)(optimizer, **arguments)
    rates = []
    for _ in range(EPOCHS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def rates_of_timm(kind, lr, count=EPOCHS, **arguments):
    optimizer = optimizer_of(lr)
    scheduler = getattr(timm_scheduler, kind)(optimizer, **arguments)
    rates = []
    for t in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step(t + 1) if arguments.get("t_in_epochs", True) else scheduler.step_update(t + 1)
    return rates


def two_stages():
    """The cosine of a published recipe, abandoned after 600 epochs for a constant rate."""
    rates = rates_of_torch("CosineAnnealingLR", 1e-4, T_max=20, eta_min=1e-6)
    return rates[:600] + [1e-6] * 400


def samples(rates, begin=0):
    jumps = {t + d for t in range(1, len(rates)) if abs(rates[t] - rates[t - 1]) > 0.3 * rates[t - 1] for d in (-1, 0)}
    jumps = set(sorted(jumps)[:40])
    chosen = sorted({*range(begin, begin + 12), *range(begin, len(rates), 61), len(rates) - 1, *jumps})
    return [[t, rates[t]] for t in chosen if t >= begin]


def cases():
    def case(scheduler, rates, begin=0, updates_per_epoch=0, **options):
        options = {"epochs": EPOCHS, "schedule_by": "epoch", **options}
        if updates_per_epoch:
            options["schedule_by"] = "step"
            return dict(scheduler=scheduler, options=options, updates_per_epoch=updates_per_epoch, updates=samples(rates, begin))
        return dict(scheduler=scheduler, options=options, lr=samples(rates, begin))

    cosine = dict(schedule="cosine")
    yield case("torch CosineAnnealingLR", rates_of_torch("CosineAnnealingLR", 0.1, T_max=EPOCHS), lr=0.1, **cosine)
    yield case("torch CosineAnnealingLR", rates_of_torch("CosineAnnealingLR", 1e-4, T_max=20, eta_min=1e-6),
               lr=1e-4, min_lr=1e-6, period_epochs=20, **cosine)
    yield case("torch CosineAnnealingLR until 600", two_stages(),
               lr=1e-4, min_lr=1e-6, period_epochs=20, lr_after="600:1e-06", **cosine)
    yield case("timm CosineLRScheduler", rates_of_timm("CosineLRScheduler", 0.5, t_initial=EPOCHS, lr_min=1e-5),
               lr=0.5, min_lr=1e-5, **cosine)
    yield case("timm CosineLRScheduler",
               rates_of_timm("CosineLRScheduler", 0.5, t_initial=990, lr_min=1e-5, warmup_t=10, warmup_prefix=True),
               begin=10, lr=0.5, min_lr=1e-5, warmup_epochs=10, **cosine)
    yield case("timm StepLRScheduler", rates_of_timm("StepLRScheduler", 0.1, decay_t=90, decay_rate=0.5, warmup_prefix=False),
               schedule="step", lr=0.1, decay_epochs=90, decay_rate=0.5)
    yield case("timm StepLRScheduler",
               rates_of_timm("StepLRScheduler", 0.016, decay_t=2.4, decay_rate=0.97, warmup_t=5, warmup_prefix=False),
               begin=5, schedule="step", lr=0.016, decay_epochs=2.4, decay_rate=0.97, warmup_epochs=5)
    yield case("torch StepLR", rates_of_torch("StepLR", 0.1, step_size=300), schedule="step", lr=0.1, decay_epochs=300)
    yield case("timm MultiStepLRScheduler",
               rates_of_timm("MultiStepLRScheduler", 0.1, decay_t=[90, 180, 270, 900], decay_rate=0.1, warmup_prefix=False),
               schedule="multistep", lr=0.1, decay_milestones=[90, 180, 270, 900])
    yield case("timm PolyLRScheduler", rates_of_timm("PolyLRScheduler", 0.1, t_initial=EPOCHS, power=0.9, lr_min=1e-5),
               schedule="poly", lr=0.1, min_lr=1e-5, decay_rate=0.9)
    yield case("timm PolyLRScheduler", rates_of_timm("PolyLRScheduler", 0.1, t_initial=980, power=2, warmup_t=20, warmup_prefix=True),
               begin=20, schedule="poly", lr=0.1, decay_rate=2, warmup_epochs=20)
    yield case("torch PolynomialLR", rates_of_torch("PolynomialLR", 0.1, total_iters=EPOCHS, power=0.9),
               schedule="poly", lr=0.1, decay_rate=0.9)
    # A scheduler that counts updates, 3 per epoch.
    by_updates = dict(count=3 * EPOCHS, t_in_epochs=False)
    yield case("timm CosineLRScheduler", rates_of_timm("CosineLRScheduler", 0.5, t_initial=3 * EPOCHS, lr_min=1e-5, **by_updates),
               updates_per_epoch=3, lr=0.5, min_lr=1e-5, **cosine)
    yield case("timm StepLRScheduler",
               rates_of_timm("StepLRScheduler", 0.1, decay_t=270, decay_rate=0.5, warmup_prefix=False, **by_updates),
               updates_per_epoch=3, schedule="step", lr=0.1, decay_epochs=90, decay_rate=0.5)


if __name__ == "__main__":
    path = pathlib.Path(__file__).parent / "schedule.json"
    path.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases()) + "\n]\n")
    print(f"{path.name}  {path.stat().st_size / 1024:.1f} KiB")
