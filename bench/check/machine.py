"""The machine on which a check runs, and the abilities of a build's programs there."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

PROGRAMS = ("bench", "launcher", "tests")
LIBRARIES = ("libcublasLt.so.13", "libnccl.so.2")  # that a package may lack
LIBRARY_FOLDERS = ["/usr/local/cuda*/lib64", "/usr/lib", "/opt", "/usr/local/lib"]


class NoMachine(Exception):
    """One line: why this machine can't run a check."""


@dataclass
class Machine:
    on: str  # "cuda", or "simt" in a rehearsal
    build: str  # folder
    device: str  # description
    gpus: int
    bits16: str  # fp16 or bf16: the 16-bit type to train in
    no_cudnn: str  # why convolutions can't use cuDNN, or ""
    no_hopper: str  # why the kernels made for sm_90 can't run, or ""
    sanitizer: str  # compute-sanitizer, or ""
    python: str  # an interpreter that may have PyTorch

    @property
    def rehearsal(self):
        return self.on != "cuda"

    @property
    def as_sm_90(self):
        """The environment in which kernels made for sm_90 run."""
        return {"SIMT_ARCH": "sm_90"} if self.rehearsal else {}

    def program(self, name):
        return f"{self.build}/{name}"


def output_of(words):
    """The output of a short command; "" if it fails."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.stdout.strip()
    except OSError:
        return ""


def require_programs(build):
    for name in PROGRAMS:
        path = pathlib.Path(build) / name
        if not (path.is_file() and os.access(path, os.X_OK)):
            remedy = f"make BUILD={build} all {build}/bench {build}/tests"
            raise NoMachine(f"{path}: no such program; build it by: {remedy}")


def find_libraries(build):
    """Lets a package without these libraries use the machine's, wherever they are installed."""
    linked = output_of(["ldd", f"{build}/bench", f"{build}/launcher"])
    for library in LIBRARIES:
        if not re.search(rf"{re.escape(library)}.*not found", linked):
            continue
        folders = " ".join(LIBRARY_FOLDERS)
        search = f"find -L {folders} -name {library} 2>/dev/null | head -n 1"
        found = output_of(["sh", "-c", search])
        if found:
            places = [str(pathlib.Path(found).parent), os.environ.get("LD_LIBRARY_PATH", "")]
            os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, places))


def commit_of(build):
    try:
        return pathlib.Path(build, "commit").read_text().strip()
    except OSError:
        return output_of(["git", "describe", "--always", "--dirty"]) or "unknown"


def checksum(build):
    """The programs' checksum: another build is another check."""
    total = hashlib.sha256()
    for name in PROGRAMS:
        total.update(pathlib.Path(build, name).read_bytes())
    return total.hexdigest()[:16]


def look(on, build, commands):
    """The Machine. Raises NoMachine."""

    def tried(*words, environment=None):
        """(whether the command succeeds, the first and the last line of its output)"""
        with tempfile.TemporaryFile() as out:
            good = commands.run(words, out, environment=environment) == 0
            out.seek(0)
            lines = out.read().decode(errors="replace").splitlines() or [""]
        return good, lines[0], lines[-1]

    require_programs(build)
    find_libraries(build)
    device = "simt, a stand-in for CUDA: a rehearsal"
    if on == "cuda":
        good, device, _ = tried(f"{build}/bench", "--device", "cuda", "--describe")
        if not good and not commands.exit_code:
            raise NoMachine(device)
    plan = ("--plan", "--device", on)
    has_bf16, _, _ = tried(f"{build}/launcher", "vit_tiny", *plan, "--precision", "bf16")
    has_cudnn, _, refusal = tried(f"{build}/launcher", "resnet34", *plan, "--conv", "cudnn")
    has_hopper, _, no_hopper = tried(
        f"{build}/launcher",
        "vit_tiny",
        *plan,
        *("--kernels", "hopper"),
        environment={"SIMT_ARCH": "sm_90"},
    )
    gpus = len(output_of(["nvidia-smi", "--list-gpus"]).splitlines()) if on == "cuda" else 1
    peers = "build/peers/bin/python"
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    return Machine(
        on=on,
        build=build,
        device=device,
        gpus=max(1, gpus),
        bits16="bf16" if has_bf16 or commands.cut else "fp16",
        no_cudnn="" if has_cudnn else refusal,
        no_hopper="" if has_hopper else no_hopper or "./launcher --kernels hopper fails",
        sanitizer=sanitizer if os.access(sanitizer, os.X_OK) else "",
        python=peers if os.access(peers, os.X_OK) else "python3",
    )
