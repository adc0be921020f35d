"""All steps of a check in order: (name, function of a Step that returns its Result)."""

import json

from check import findings, training
from check.report import Result
from check.training import RESNET_START, SYNTHETIC

# Sizes of the benches in a rehearsal.
SMALL_SIZES = ("--batch", "2", "--image-size", "32", "--seconds", "0.001")
REHEARSED = "SimtGraph*:*Golden*simt*"
RESNETS = ("resnet50", "resnet34", "resnext50_32x4d")


def not_run(why, later=False):
    return Result(said=f"not run: {why}", later=later)


def begins(name, table):
    """The value of the first word of the table with which the name begins."""
    return next(value for word, value in table.items() if name.startswith(word))


# Seconds that a command of a step may take: a hang in one must not cost the others their time.
MOST_SECONDS = {
    "hopper-racecheck": 240,
    "hopper-memcheck": 120,
    "hopper-": 60,
    "racecheck": 400,
    "initcheck": 400,
    "synccheck": 400,
    "tests": 300,
    "": 180,
}
# A step doesn't begin with less time left. As measured on an H100 (h100-gpu-check.txt), rounded up.
USUAL_SECONDS = {
    "hopper-racecheck": 60,
    "racecheck": 240,
    "initcheck": 60,
    "synccheck": 60,
    "memcheck": 30,
    "tests": 90,
    "large-": 40,
    "bench": 20,
    "peer-": 60,
    "": 4,
}


def most_seconds(name):
    return begins(name, MOST_SECONDS)


def usual_seconds(name):
    return begins(name, USUAL_SECONDS)


def tests(pattern, small=False, tool=(), **environment):
    """A GoogleTest program, possibly under compute-sanitizer."""
    if small:
        environment["BAREVISION_TEST_SMALL"] = "1"

    def do(step):
        out = step.run(
            *tool,
            step.machine.program("tests"),
            "--gtest_color=no",
            f"--gtest_filter={pattern}",
            environment=environment,
        )
        if tool and "Device not supported" in out.text:
            return not_run("compute-sanitizer doesn't support this machine")
        cut = step.commands.cut
        ended = cut or f"the program ended in it, with exit code {out.code}"
        failures = findings.failed_tests(out.text, ended)
        in_summary = findings.counts(out.text)
        passed, failed, skipped = in_summary or findings.counts_so_far(out.text)
        if cut:
            failures = failures[:failed]  # the last one was only interrupted
            return Result(passed, failed, skipped, red=failed > 0, failures=failures)
        if not out.code and passed:
            return Result(passed, failed, skipped)
        said = f"FAILED, exit code {out.code}"
        finding = []
        if tool:
            finding = findings.sanitizer_finding(out.text)
            said = ", ".join(filter(None, (said, findings.sanitizer_summary(out.text))))
        return Result(
            passed,
            failed if in_summary else len(failures),
            skipped,
            said,
            True,
            failures,
            finding or ([] if failures else findings.last_lines(out.text)),
        )

    return do


def sanitizers(machine, *names, kernels=""):
    for name in names:
        step = f"{kernels}-{name}" if kernels else name
        device = f"{machine.on}_{kernels}" if kernels else machine.on
        if machine.sanitizer:
            tool = (machine.sanitizer, "--tool", name, "--error-exitcode", "9")
            yield step, tests(f"KernelTable/{device}.*", small=True, tool=tool)
        else:
            yield step, lambda _: not_run("compute-sanitizer isn't installed")


def bench(name, dtype, model, *options):
    """The kernel bench; its table is appended to the report."""

    def do(step):
        machine, figures = step.machine, step.report.logs / f"{name}.json"
        words = ["--device", "cuda", "--dtype", dtype]
        if machine.rehearsal:
            words = ["--device", "cpu", "--dtype", "fp32", *SMALL_SIZES]
        words += ["--json", figures, "--model", model, *options]
        out = step.run(machine.program("bench"), *words, apart=True)
        step.report.table = out.text
        if out.code == 2:
            return not_run(out.last_line())
        if out.code:
            return Result(said=f"FAILED: {out.last_line()}", red=True)
        try:
            text = figures.read_text()
            json.loads(text)
        except (OSError, ValueError) as error:
            return Result(said=f"FAILED: no figures: {error}", red=True)
        step.report.figures[name] = text.strip()
        return Result()

    return f"bench-{name}", do


def line_of_exception(row):
    """A line for BAREVISION_HOPPER_EXCEPT: the operation without its options (residual, +=), and
    its sizes without the first one, which depends on the batch, and without those of dropout."""
    sizes = row["shape"].split()[1:]
    kept = (size for size in sizes if not size.startswith("image_rows"))
    return " ".join((row["operation"].split()[0], *kept))


def beside_auto(name, hoppers):
    """Compares, for each operation and shape that a kernel made for sm_90 runs, its time with that
    of auto's kernel, from the benches of these names. Those that auto's kernel computes in less
    than 0.98 of the time are added to the report's hopper-except.txt."""

    def do(step):
        both = [step.report.logs / f"{which}.json" for which in (name, hoppers)]
        if not all(path.exists() for path in both):
            return not_run(f"no figures of bench-{name} and bench-{hoppers}", later=True)
        auto, hopper = (json.loads(path.read_text())["operations"] for path in both)
        before = {(row["operation"], row["shape"]): row["us"] for row in auto}
        columns = "{:<31} {:<45} {:>5} {:>9} {:>9} {:>6}"
        lines = [columns.format("operation", "shape", "calls", "auto us", "hopper us", "ratio")]
        sums = [0.0, 0.0]
        both_us = {}  # of a step, by a line of that file
        for row in (row for row in hopper if row.get("kernels") == "hopper"):
            us = before[row["operation"], row["shape"]], row["us"]
            line = line_of_exception(row)
            so_far = both_us.get(line, (0, 0))
            both_us[line] = [total + row["per_step"] * one for total, one in zip(so_far, us)]
            cells = [f"{us[0]:.1f}", f"{us[1]:.1f}", f"{us[0] / us[1]:.2f}"]
            lines.append(columns.format(row["operation"], row["shape"], row["per_step"], *cells))
            sums = [total + row["per_step"] * one for total, one in zip(sums, us)]
        if len(lines) == 1:
            return not_run("no operation uses a kernel made for sm_90")
        slower = [line for line, us in both_us.items() if us[0] < 0.98 * us[1]]
        step.report.except_from_hopper(slower)
        said = f"{sums[0] / 1e3:.2f} ms a step by auto, {sums[1] / 1e3:.2f} by hopper"
        step.report.table = "\n".join([f"{hoppers}: {said}", *lines])
        return Result(1, said=said)

    return f"beside-{hoppers}", do


def beside_library(name, dtype):
    """The convolutions measured by the bench of that name, compared with PyTorch's."""

    def do(step):
        python, ours = step.machine.python, step.report.logs / f"{name}.json"
        theirs = step.report.logs / f"conv-{name}.json"
        if step.machine.rehearsal:
            return not_run("no GPU")
        if not ours.exists():
            return not_run(f"no figures of bench-{name}", later=True)
        if step.run(python, "-c", "import torch").code:
            return not_run("no PyTorch (make peers)")
        words = [ours, "--device", "cuda", "--dtype", dtype, "--json", theirs]
        out = step.run(python, "bench/conv_torch.py", *words)
        if out.code:
            return not_run(out.last_line())
        step.report.figures[f"conv-{name}"] = theirs.read_text().strip()
        step.report.table = out.text
        return Result(said=out.last_line())

    return f"conv-{name}", do


def beside_pytorch(model, batch):
    """A training step compared with PyTorch's."""

    def do(step):
        if step.machine.rehearsal:
            return not_run("no GPU")
        words = ["--device", "cuda", "--precision", step.machine.bits16, "--batch", batch]
        words += ["--classes", "1000", "--rounds", "2", "--steps", "20"]
        out = step.run("bench/versus", model, *words)
        if out.code:
            return not_run(out.last_line())
        return Result(1, said=" ".join(out.last_line().split()))

    return do


def judged(judge):
    """A step whose outcome a function of training.py checks."""

    def do(step):
        try:
            return Result(1, said=judge(step))
        except (training.Failed, OSError, ValueError, KeyError, RuntimeError) as error:
            return Result(failed=1, said=f"FAILED: {error}", red=True)

    return do


def with_cudnn(machine, judge):
    return judged(judge) if not machine.no_cudnn else lambda _: not_run(machine.no_cudnn)


def faster_of_both(model, batch):
    """The training speed if each shape uses the kernel that was faster in the steps before."""

    def do(step):
        if not step.report.hopper_except.exists():
            return not_run("no comparison of hopper's kernels with auto's", later=True)
        environment = {"BAREVISION_HOPPER_EXCEPT": str(step.report.hopper_except.absolute())}
        hopper = ("--kernels", "hopper")
        return judged(training.speed(model, batch, *hopper, environment=environment))(step)

    return do


def are_hoppers_right(machine):
    """The kernels made for sm_90 (report.TELLING): first the instructions alone, then the kernels with
    ordinary launches, then as they are used."""
    if machine.no_hopper:
        yield "hopper", lambda _: not_run(machine.no_hopper)
        return
    table, sm_90 = f"KernelTable/{machine.on}_hopper.*", machine.as_sm_90
    yield "hopper-instructions", tests(f"HopperInstructions/{machine.on}.*", **sm_90)
    yield "hopper-ordinary", tests(table, small=True, **training.ORDINARY_LAUNCHES)
    yield "hopper-small", tests(table, small=True)
    yield "hopper-launches", judged(training.dependent_launches_change_nothing("vit_tiny"))
    yield "hopper-curve", judged(training.kernels_agree("vit_tiny", "--kernels", "hopper"))


def speeds(machine):
    """Training steps, then their kernels, each beside the kernels made for sm_90."""
    bits, hopper = machine.bits16, ("--kernels", "hopper")
    has_hopper = not machine.no_hopper and not machine.rehearsal
    speed, ordinary = training.speed, training.ORDINARY_LAUNCHES
    for model, batch, name in (("vit_tiny", 512, "tiny"), ("resnet50", 256, "resnet50")):
        yield f"speed-{name}", judged(speed(model, batch))
        if has_hopper:
            yield f"speed-hopper-{name}", judged(speed(model, batch, *hopper))
    for model, batch, name in (("vit_tiny", 512, bits), ("resnet50", 256, f"resnet50-{bits}")):
        yield bench(name, bits, model)
        if has_hopper:
            yield bench(f"hopper-{name}", bits, model, *hopper)
            yield beside_auto(name, f"hopper-{name}")
            short = "tiny" if model == "vit_tiny" else model
            yield f"speed-faster-{short}", faster_of_both(model, batch)
    if has_hopper:
        alone = speed("vit_tiny", 512, *hopper, environment=ordinary)
        yield "speed-hopper-ordinary", judged(alone)


def first_steps(machine):
    """Correctness and speed in brief: two commands of a loan of 15 minutes."""
    bits, gpus, has_hopper = machine.bits16, machine.gpus, not machine.no_hopper
    yield from are_hoppers_right(machine)
    yield "small", tests(f"KernelTable/{machine.on}.*", small=True)
    yield "training", tests(f"*TrainingOn*{machine.on}*")
    yield from speeds(machine)
    if has_hopper:
        yield from sanitizers(machine, "memcheck", "racecheck", kernels="hopper")
    yield from sanitizers(machine, "memcheck")
    if has_hopper and not machine.rehearsal:
        words = ("resnet50", *SYNTHETIC, "--batch", "16")
        launches_agree = training.dependent_launches_change_nothing
        yield "hopper-launches-resnet50", judged(launches_agree(*words))
    if gpus == 1:
        yield "shared-gpu", judged(training.ranks_agree(2, "--oversubscribe"))
        yield "shared-sync", judged(training.synced_ranks_agree(2, "--oversubscribe"))
    else:
        yield "nccl", judged(training.ranks_agree(gpus))
        yield "nccl-sync", judged(training.synced_ranks_agree(gpus))
    yield "equal-runs", judged(training.equal_runs)
    yield "resume", judged(training.resume_changes_nothing)
    yield from sanitizers(machine, "racecheck")
    yield beside_library(f"resnet50-{bits}", bits)
    if has_hopper and not machine.rehearsal:
        yield beside_library(f"hopper-resnet50-{bits}", bits)


def graphs_and_curves(precision):
    same, near = training.graphs_change_nothing, training.curve_stays_near
    yield f"tiny-{precision}", judged(same("vit_tiny", precision))
    yield f"large-{precision}", judged(same("vit_large", precision, *SYNTHETIC, "--batch", "8"))
    yield f"resnet34-{precision}", judged(same("resnet34", precision))
    yield f"resnet50-{precision}", judged(same("resnet50", precision, *SYNTHETIC, "--batch", "16"))
    small = ("--data", "synthetic", "--image-size", "64", "--batch", "16")
    yield f"resnext-{precision}", judged(same("resnext50_32x4d", precision, *small))
    if precision == "fp32":
        return
    yield f"curve-{precision}", judged(near("vit_tiny", precision, 0.05, "--steps", "20"))
    for model in ("resnet34", "resnet50"):
        start = (*RESNET_START, "--steps", "5")
        yield f"curve-{model}-{precision}", judged(near(model, precision, 0.1, *start))


def other_steps(machine):
    """The remaining steps."""
    bits = machine.bits16
    # A rehearsal doesn't repeat make test, except for tests that read the project's files.
    yield "tests", tests(REHEARSED if machine.rehearsal else "*cuda*:*Cuda*-*simt*")
    if not machine.no_hopper and not machine.rehearsal:
        small, hopper = ("--batch", "64"), ("--kernels", "hopper")
        yield bench(f"large-{bits}", bits, "vit_large", *small)
        yield bench(f"hopper-large-{bits}", bits, "vit_large", *small, *hopper)
        yield beside_auto(f"large-{bits}", f"hopper-large-{bits}")
        yield "speed-hopper-large", judged(training.speed("vit_large", 64, *hopper))
        yield "speed-faster-large", faster_of_both("vit_large", 64)
        yield "speed-hopper-resnet34", judged(training.speed("resnet34", 256, *hopper))
    for precision in dict.fromkeys(("fp32", "fp16", bits)):
        yield from graphs_and_curves(precision)
    recompute = ("--batch", "64", "--recompute", "blocks", "--steps", "5")
    yield "recompute", judged(training.only_runs("vit_large", "--data", "synthetic", *recompute))
    yield "recompute-rn", judged(training.only_runs("resnet50", *SYNTHETIC, *recompute))
    yield "cudnn", with_cudnn(machine, training.convolutions_agree_with_cudnn)
    for dtype in dict.fromkeys((bits, "fp16", "fp32")):
        if dtype != bits:
            yield bench(dtype, dtype, "vit_tiny")
        for model in RESNETS:
            if (model, dtype) != ("resnet50", bits):
                yield bench(f"{model}-{dtype}", dtype, model)
                yield beside_library(f"{model}-{dtype}", dtype)
    yield "speed-large", judged(training.speed("vit_large", 64))
    yield "peer-tiny", beside_pytorch("vit_tiny", 256)
    yield "peer-large", beside_pytorch("vit_large", 64)
    for model in RESNETS:
        name = model.partition("_")[0]
        if model != "resnet50":
            yield f"speed-{name}", judged(training.speed(model, 256))
        yield f"cudnn-{name}", with_cudnn(machine, training.speed(model, 256, "--conv", "cudnn"))
        yield f"peer-{name}", beside_pytorch(model, 256)
    yield from sanitizers(machine, "initcheck", "synccheck")


def all_steps(machine):
    return [*first_steps(machine), *other_steps(machine)]
