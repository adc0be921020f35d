"""Shared by bench/versus, bench/scaling and bench/records: runs of the launcher, and the
machine's name."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUSY = 0.5  # load average above which a run warns of other work


def fail(line, code=2):
    print(f"{pathlib.Path(sys.argv[0]).name}: {line}", file=sys.stderr)
    sys.exit(code)


def warn_if_busy():
    """Warns if the machine is busy. Returns the load average."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"this machine is busy (load average {load:.1f}): timings will be too high", file=sys.stderr)
    return load


def run(command, what, **more):
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ, **more}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    if result.returncode:
        last = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()[-1]
        raise RuntimeError(f"{what} ended with {result.returncode}: {last}")
    return result.stdout


def train(arguments, what, **environment):
    """Runs the launcher in its own folder. Returns its output and the lines of metrics.jsonl."""
    if not (ROOT / "build/launcher").exists():
        fail("build/launcher is missing; run: make")
    with tempfile.TemporaryDirectory(prefix="barevision-bench-") as folder:
        out = pathlib.Path(folder) / "run"
        printed = run([str(ROOT / "launcher"), *arguments, "--out", str(out)], what, **environment)
        return printed, [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def pack(folder, place, *how):
    """Packs a folder of images into records, in place/records. Returns data pack's output."""
    data = lambda *words: run([str(ROOT / "launcher"), "data", *words], "data " + words[0])
    data("list", folder, f"{place}/list")
    return data("pack", f"{place}/list", f"{place}/records", "--name", "images", *how).strip().replace(place + "/", "")


def step_rates(lines, steps):
    """Images/s of each step."""
    rates = [line["images_per_second"] for line in lines if line["kind"] == "step"]
    if len(rates) != steps:
        raise RuntimeError(f"metrics.jsonl has {len(rates)} step lines, expected {steps}")
    return rates


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def cpu_name():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else "unknown CPU"


def machine_name(device):
    cores = len(os.sched_getaffinity(0))
    if device == "cpu":
        return f"{cores} cores of {cpu_name()}"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return run(query, "nvidia-smi").splitlines()[0].strip()
