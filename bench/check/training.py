"""Steps of a check that train and check the outcome: they return text for the row, or raise
Failed."""

import filecmp
import json
import math
import shutil

from measure import step_rates

SYNTHETIC = ("--data", "synthetic", "--image-size", "224")
PLAIN_SGD = ("--precision", "fp32", "--optimizer", "sgd")
PLAIN_VIT = ("vit_tiny", *PLAIN_SGD, "--lr", "0.05", "--steps", "20")
# Training a residual network from random weights multiplies rounding errors by about ten per step:
# with other CPU instructions (AVX2 instead of AVX-512), the losses of ResNet-34 on the built-in set
# differed by up to 1e-6, 3e-5 and 3e-4 in the first three steps of five seeds, and by 2e-2 after
# ten steps of one of them. So only the first steps of curves are compared; with fewer values per
# channel (32 pixels, batch 8) even three are too many. At this loss scale fp16 skips no update; a
# skip would shift its curve.
RESNET_START = ("--optimizer", "sgd", "--lr", "0.002", "--weight-decay", "5e-4")
RESNET_START += ("--loss-scale-init", "256")
PLAIN_RESNET = ("resnet34", "--precision", "fp32", *RESNET_START, "--steps", "3")
# The launches of --kernels hopper otherwise depend on the one ahead (programmatic dependent launch).
ORDINARY_LAUNCHES = {"BAREVISION_DEPENDENT_LAUNCHES": "0"}


class Failed(Exception):
    """One line for an error, with the values."""


def sized(step, options):
    """The options of a run. A rehearsal uses small numbers and data without an evaluation, which
    takes minutes on the stand-in. Steps without a batch in their options compare losses: at batch 8,
    bf16 alone moves ResNet-50's first loss by .1 (64 pixels; at batch 32 by .03)."""
    words = list(options)
    if not step.machine.rehearsal:
        return words
    for i, option in enumerate(words[:-1]):
        if option == "--image-size":
            words[i + 1] = "32"
        elif option == "--batch":
            words[i + 1] = "8"
        elif option == "--steps":
            steps = int(words[i + 1])
            words[i + 1] = str(2 if steps > 10 else (steps + 4) // 5)
    if "--batch" not in words:
        words += ["--batch", "32"]
    if "--data" not in words:
        words += ["--data", "synthetic", "--image-size", "64"]
    return words


def launch(step, *words, environment=None):
    if "hopper" in words:
        environment = {**step.machine.as_sm_90, **(environment or {})}
    out = step.run(step.machine.program("launcher"), *words, environment=environment)
    if out.code:
        raise Failed(f"exit code {out.code}: {out.last_line()}")


def train(step, name, *options, environment=None):
    """Trains a run with that name, replacing an older one."""
    folder = step.scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    told = ("--device", step.machine.on, "--log-every", "1", "--out", folder)
    launch(step, *sized(step, options), *told, environment=environment)


def metrics(step, name):
    """The metrics.jsonl lines of a run's steps."""
    text = (step.scratch / name / "metrics.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == "step"]


def losses(step, name):
    return [line["loss"] for line in metrics(step, name)]


def differences(step, a, b):
    """|a - b| of each step's losses, and the losses."""
    first, second = losses(step, a), losses(step, b)
    if not first or len(first) != len(second) or None in first + second:
        raise Failed(f"{a} has {len(first)} losses, {b} {len(second)}, or one that is not a number")
    return [(abs(x - y), x, y) for x, y in zip(first, second)]


def near(step, a, b, tolerance):
    """Compares the losses of two runs. NaN never counts as near."""
    apart = differences(step, a, b)
    for number, (difference, x, y) in enumerate(apart, 1):
        if not difference <= tolerance:
            worst = max((d for d, _, _ in apart), key=lambda d: math.inf if math.isnan(d) else d)
            raise Failed(
                f"largest difference of losses {worst:.6g}, over {tolerance:g}; "
                f"the first at step {number}: {x} and {y}"
            )
    return f"largest difference of losses {max(d for d, _, _ in apart):.4g}"


def same_weights(step, a, b):
    files = [step.scratch / name / "last/weights.safetensors" for name in (a, b)]
    if not filecmp.cmp(*files, shallow=False):
        by_step = {line["step"]: line["loss"] for line in metrics(step, a)}
        others = {line["step"]: line["loss"] for line in metrics(step, b)}
        unequal = [n for n in sorted(by_step.keys() & others.keys()) if by_step[n] != others[n]]
        where = "equal losses"
        if unequal:
            n = unequal[0]
            where = f"losses {by_step[n]} and {others[n]} at step {n}, the first that differ"
        raise Failed(f"{a} and {b} end with different weights; {where}")


def graphs_change_nothing(model, precision, *options):
    def judge(step):
        words = (model, "--precision", precision, "--steps", "50", "--epochs", "50")
        train(step, "with", *words, *options)
        train(step, "without", *words, "--no-graph", *options)
        same_weights(step, "with", "without")
        curve = losses(step, "with")
        return f"{len(curve)} steps, loss {curve[0]} to {curve[-1]}"

    return judge


def curve_stays_near(model, precision, tolerance, *options):
    def judge(step):
        train(step, "near-fp32", model, "--precision", "fp32", *options)
        train(step, "near-16", model, "--precision", precision, *options)
        return near(step, "near-fp32", "near-16", tolerance)

    return judge


def resume_changes_nothing(step):
    train(step, "whole", "vit_tiny", "--steps", "10")
    train(step, "cut", "vit_tiny", "--steps", "5")
    launch(step, "--resume", step.scratch / "cut", *sized(step, ["--steps", "10"])[:2])
    same_weights(step, "whole", "cut")
    return "ok"


def ranks_agree(n, *options):
    def judge(step):
        train(step, "one", *PLAIN_VIT)
        train(step, "several", "-n", str(n), *options, *PLAIN_VIT)
        return near(step, "one", "several", 1e-3)

    return judge


def synced_ranks_agree(n, *options):
    def judge(step):
        train(step, "one", *PLAIN_RESNET)
        train(step, "several", "-n", str(n), "--sync-bn", *options, *PLAIN_RESNET)
        return near(step, "one", "several", 1e-3)

    return judge


def convolutions_agree_with_cudnn(step):
    train(step, "own", *PLAIN_RESNET)
    train(step, "library", *PLAIN_RESNET, "--conv", "cudnn")
    return near(step, "own", "library", 1e-3)


def kernels_agree(model, *options):
    """Checks that other kernels train to nearly the same losses, in 16 bits."""

    def judge(step):
        told = (model, "--precision", step.machine.bits16, "--steps", "20")
        train(step, "auto", *told)
        train(step, "others", *told, *options)
        return near(step, "auto", "others", 0.02)

    return judge


def dependent_launches_change_nothing(model, *options):
    def judge(step):
        words = (model, "--kernels", "hopper", "--precision", step.machine.bits16)
        words += ("--steps", "50", "--epochs", "50", *options)
        train(step, "dependent", *words)
        train(step, "ordinary", *words, environment=ORDINARY_LAUNCHES)
        same_weights(step, "dependent", "ordinary")
        return "ok"

    return judge


def equal_runs(step):
    """Checks that on all GPUs collectives add in the same order in every run."""
    n = step.machine.gpus
    for name in ("first", "second"):
        train(
            step,
            name,
            "-n",
            str(n),
            "resnet50",
            *SYNTHETIC,
            "--batch",
            str(32 * n),
            "--precision",
            step.machine.bits16,
            "--steps",
            "10",
        )
    same_weights(step, "first", "second")
    return "ok"


def only_runs(*words):
    def judge(step):
        train(step, "run", *words)
        return "ok"

    return judge


def speed(model, batch, *options, environment=None):
    def judge(step):
        bits = step.machine.bits16
        sizes = (*SYNTHETIC, "--batch", str(batch), "--precision", bits, "--steps", "60")
        train(step, "speed", model, *sizes, *options, environment=environment)
        lines = metrics(step, "speed")
        rates = sorted(step_rates(lines, len(lines))[-20:])
        median = rates[(len(rates) - 1) // 2]
        return f"{median} images/s, {bits}, batch {8 if step.machine.rehearsal else batch}"

    return judge
