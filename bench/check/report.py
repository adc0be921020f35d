"""The report of a check: one table as text and as JSON, and a folder with the complete log of each
step. Both files are rewritten after each step, so an interrupted check keeps its findings."""

import json
import os
import pathlib
import sys
from dataclasses import dataclass, field

from check.findings import MOST_TESTS

COLUMNS = "{:<19} {:>7} {:>7} {:>7} {:>8}  {}"
# The steps that tell whether the kernels made for sm_90 are right, in order.
TELLING = ("instructions", "ordinary", "small", "launches", "curve")
TELLING = tuple(f"hopper-{name}" for name in TELLING)
HEADING = COLUMNS.format("step", "passed", "failed", "skipped", "seconds", "result")


@dataclass
class Result:
    """A step's result. `red`: the check fails."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    said: str = "ok"
    red: bool = False
    failures: list = field(default_factory=list)  # from findings.failed_tests
    # Lines: compute-sanitizer's first error, or the program's last lines.
    finding: list = field(default_factory=list)
    later: bool = False  # the next command runs the step again


def say(line=""):
    """Prints a line. Closed output must not stop the check."""
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def row_of(record):
    cells = (record[name] for name in ("step", "passed", "failed", "skipped", "seconds"))
    return COLUMNS.format(*cells, record["result"])


def details_of(record):
    """The lines that say what failed."""
    details = [f"  {line}" for line in record.get("finding", ())]
    failures = record.get("failures", ())
    for test in failures[:MOST_TESTS]:
        details += [f"  {test['test']}", *(f"    {line}" for line in test["lines"])]
    if len(failures) > MOST_TESTS:
        details.append(f"  and {len(failures) - MOST_TESTS} more tests")
    if details:
        details = ["", f"{record['step']}: the whole log is {record.get('log')}", *details]
    return details


class Report:
    def __init__(self, folder, name, head, why_left):
        """Continues the report with this `head` (device, commit, programs), if there is one.
        `why_left`: a function that returns why the remaining steps were not started."""
        folder = pathlib.Path(folder)
        self.text, self.json = folder / f"{name}.txt", folder / f"{name}.json"
        self.logs = folder / name
        self.logs.mkdir(parents=True, exist_ok=True)
        self.hopper_except = self.logs / "hopper-except.txt"
        self.head, self.why_left, self.left = head, why_left, []  # left: steps
        self.steps = []  # records, in the order in which they ran
        self.figures = {}  # name: a bench's JSON
        self.table = ""  # a bench's, of the running step
        try:
            old = json.loads(self.json.read_text())
            if {name: old[name] for name in head} == head:
                self.steps = [record for record in old["steps"] if not record["cut"]]
                self.figures = {name: json.dumps(one) for name, one in old["bench"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            pass
        if not self.steps:
            for file in [*self.logs.glob("*.log"), *self.logs.glob("*.json"), self.hopper_except]:
                file.unlink(missing_ok=True)

    def except_from_hopper(self, lines):
        before = self.hopper_except.read_text().splitlines() if self.hopper_except.exists() else ()
        self.hopper_except.write_text("".join(f"{line}\n" for line in sorted({*before, *lines})))

    def log_of(self, step):
        return self.logs / f"{step}.log"

    def has(self, step):
        return any(record["step"] == step for record in self.steps)

    def green(self):
        return not any(record["red"] for record in self.steps)

    def forget(self, steps):
        """These steps are to run again."""
        self.steps = [record for record in self.steps if record["step"] not in steps]

    def title(self):
        return f"{self.head['device']}; {self.head['commit']}"

    def left_out(self):
        return [f"{self.why_left()}: {' '.join(self.left)}"] if self.left else []

    def verdict(self):
        """A line: whether the kernels made for sm_90 are right."""
        steps = [record for record in self.steps if record["step"] in TELLING]
        ended = [record["step"] for record in steps if not record["cut"]]
        missing = [step for step in TELLING if step not in ended]
        wrong = [record["step"] for record in steps if record["red"]]
        if not steps:
            return []
        if wrong:
            return [f"Hopper's kernels are WRONG: {', '.join(wrong)}"]
        if missing:
            return [f"Hopper's kernels: nothing wrong so far; to come: {', '.join(missing)}"]
        tests = sum(record["passed"] for record in steps)
        return [f"Hopper's kernels are right: {tests} checks of {len(steps)} steps passed"]

    def add(self, step, seconds, result, cut):
        """Writes a row, then prints it. Failures are printed after the row; in the files they
        follow the table."""
        record = {
            "step": step,
            "passed": result.passed,
            "failed": result.failed,
            "skipped": result.skipped,
            "seconds": seconds,
            "result": result.said,
            "red": result.red,
            "cut": bool(cut) or result.later,
            "failures": result.failures,
            "finding": result.finding,
            "table": self.table.rstrip("\n"),
        }
        self.table = ""
        if self.log_of(step).exists():
            record["log"] = str(self.log_of(step))
        self.steps.append(record)
        self.write()
        for line in [row_of(record), *details_of(record)]:
            say(line)

    def tables(self):
        return [line for record in self.steps if record["table"] for line in ("", record["table"])]

    def write(self):
        text = ["# Reprint with:  make gpu-check", self.title(), "", HEADING]
        text += [row_of(record) for record in self.steps]
        text += [*self.verdict(), *self.left_out()]
        text += [line for record in self.steps for line in details_of(record)] + self.tables()
        steps = ",\n ".join(map(json.dumps, self.steps))
        figures = ", ".join(f"{json.dumps(name)}: {text}" for name, text in self.figures.items())
        record = (
            f'{json.dumps(self.head)[:-1]}, "steps": [{steps}], {json.dumps(self.why_left())}: '
            f'{json.dumps(" ".join(self.left))}, "bench": {{{figures}}}}}'
        )
        for path, whole in ((self.text, "\n".join(text)), (self.json, record)):
            path.with_name(path.name + ".new").write_text(whole + "\n")
        for path in (self.text, self.json):
            path.with_name(path.name + ".new").replace(path)  # the file is always complete

    def end(self):
        """Prints the lines after the table."""
        for line in [*self.tables(), "", *self.verdict(), *self.left_out()]:
            say(line)
        say(f"written   {self.text}, {self.json}")
        logs = [path.name for path in sorted(self.logs.glob("*.log"))]
        if logs:
            say(f"logs      {self.logs}: {', '.join(logs)}")
