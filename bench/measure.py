"""Shared by the benches: runs of the launcher and of PyTorch, by turns; tables; the machine's name."""

import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUSY = 0.5  # load average above which a run warns of other work
HAS_TORCH = (
    "import importlib.util as u, sys;"
    "sys.exit(not all(map(u.find_spec, ('safetensors', 'timm', 'torch', 'torchvision'))))"
)

# peak: the largest resident set of the command or one of its children, in bytes
Finished = collections.namedtuple("Finished", "printed seconds peak")


def fail(line, code=2):
    print(f"{pathlib.Path(sys.argv[0]).name}: {line}", file=sys.stderr)
    sys.exit(code)


def start(main):
    """Runs a bench; a command that fails in it ends it with one line."""
    try:
        main()
    except RuntimeError as error:
        fail(str(error), 1)


def warn_if_busy():
    """Warns if the machine is busy. Returns the load average."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"this machine is busy (load average {load:.1f}): timings will be too high", file=sys.stderr)
    return load


def split_arguments():
    """The command's arguments before a --, and those after it, which are the launcher's."""
    own = sys.argv[1:]
    at = own.index("--") if "--" in own else len(own)
    return own[:at], own[at + 1 :]


def flags(values):
    """Options from values by name: --image-size 224."""
    return [text for name, value in values.items() for text in ("--" + name.replace("_", "-"), str(value))]


def python_with_torch(asked=None):
    """An interpreter that has PyTorch and the libraries of models."""
    for python in [asked] if asked else [str(ROOT / "build/peers/bin/python"), "python3"]:
        try:
            if subprocess.run([python, "-c", HAS_TORCH], capture_output=True).returncode == 0:
                return python
        except OSError:
            pass
    fail(
        f"{asked or 'python3'} has no PyTorch with timm, torchvision and safetensors; run: make peers"
        " (or give --python)"
    )


def run(command, what, limit=None, **more):
    """limit: most seconds that it may take. more: of the environment."""
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ, **more}
    begin = time.monotonic()
    command = [*(["timeout", str(limit)] if limit else []), *map(str, command)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=errors, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = code = os.waitstatus_to_exitcode(status)
        out.seek(0), errors.seek(0)
        printed, said = out.read(), errors.read()
    if limit and code == 124:
        raise RuntimeError(f"{what} took more than {limit:.0f} s")
    if code:
        raise RuntimeError(f"{what} ended with {code}: {(said.strip() or printed.strip() or 'no output').splitlines()[-1]}")
    return Finished(printed, time.monotonic() - begin, usage.ru_maxrss * 1024)


def json_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def train(arguments, what, **environment):
    """Runs the launcher in its own folder. Returns how it finished and the lines of metrics.jsonl."""
    if not (ROOT / "build/launcher").exists():
        fail("build/launcher is missing; run: make")
    with tempfile.TemporaryDirectory(prefix="barevision-bench-") as folder:
        finished = run([ROOT / "launcher", *arguments, "--out", folder + "/run"], what, **environment)
        return finished, json_lines(folder + "/run/metrics.jsonl")


def pack(folder, place, *how):
    """Packs a folder of images into records, in place/records. Returns data pack's output."""
    data = lambda *words: run([ROOT / "launcher", "data", *words], "data " + words[0])
    data("list", folder, f"{place}/list")
    packed = data("pack", f"{place}/list", f"{place}/records", "--name", "images", *how)
    return packed.printed.strip().replace(place + "/", "")


def of_steps(seconds, batch, warmup):
    """Rate and times of steps, given the times of all, without those of the warm-up."""
    measured = seconds[warmup:]
    return {"images_per_second": batch * len(measured) / sum(measured), "step_seconds": measured}


def step_rates(lines, steps):
    """Images/s of each step."""
    rates = [line["images_per_second"] for line in lines if line["kind"] == "step"]
    if len(rates) != steps:
        raise RuntimeError(f"metrics.jsonl has {len(rates)} step lines, expected {steps}")
    return rates


def train_steps(arguments, what, o, **environment):
    """Trains on synthetic data, with o's batch, steps and warmup. Returns what of_steps does, how it finished, and the
    lines of metrics.jsonl."""
    total = o.warmup + o.steps
    command = [*arguments, "--data", "synthetic", "--steps", total, "--log-every", "1"]
    finished, lines = train(command, what, **environment)
    return of_steps([o.batch / rate for rate in step_rates(lines, total)], o.batch, o.warmup), finished, lines


def by_turns(rounds, runs, rate=lambda result: result["images_per_second"], may_fail=None):
    """Name -> results of that run, one per round. The run named by may_fail is left out if it fails."""
    results = {name: [] for name in runs}
    width = max(map(len, runs)) + 1
    for number in range(rounds):
        for name in list(results):
            begin = time.monotonic()
            try:
                results[name].append(runs[name]())
            except RuntimeError as error:
                if name != may_fail or len(results) == 1:
                    raise
                print(f"left out: {error}", file=sys.stderr)
                del results[name]
                continue
            took = time.monotonic() - begin
            print(f"round {number + 1}  {name:<{width}}{rate(results[name][-1]):9.1f} images/s  ({took:.0f} s)",
                  file=sys.stderr, flush=True)  # fmt: skip
    return results


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def spreads(results):
    """Name -> spread of images/s over the rounds."""
    return {name: spread([r["images_per_second"] for r in rounds]) for name, rounds in results.items()}


def peer_of(results):
    """A result that has PyTorch's version; empty if there is none."""
    return next((r for rounds in results.values() for r in rounds if "torch" in r), {})


def said_of(peer):
    return f", PyTorch {peer['torch']}, {peer['models']}" if peer else ""


def save(path, record):
    """Writes the figures as JSON, with the command that measures them again."""
    words = [f"bench/{pathlib.Path(sys.argv[0]).name}", *sys.argv[1:]]
    asked = [i for i, word in enumerate(words) if word == "--python"]
    kept = [w for i, w in enumerate(words) if not w.startswith("--python=") and i not in asked and i - 1 not in asked]
    path = ROOT / path
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"command": " ".join(kept), **record}, indent=1) + "\n")
    print(f"written: {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


def cpu_name():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else "unknown CPU"


def machine_name(device):
    cores = len(os.sched_getaffinity(0))
    if device == "cpu":
        return f"{cores} cores of {cpu_name()}"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return run(query, "nvidia-smi").printed.splitlines()[0].strip()
