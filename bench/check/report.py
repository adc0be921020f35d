"""The report of a check: one table as text and as JSON, and a folder with the complete log of each
step. Both files are rewritten after each step, so an interrupted check keeps its findings."""

import json
import os
import pathlib
import sys
from dataclasses import dataclass, field

from check.findings import MOST_TESTS

COLUMNS = "{:<19} {:>7} {:>7} {:>7} {:>8}  {}"
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


def say(line=""):
    """Prints a line. Closed output must not stop the check."""
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Report:
    def __init__(self, folder, name, device, commit, why_left):
        """`why_left`: a function that returns why the remaining steps were not started."""
        folder = pathlib.Path(folder)
        self.text, self.json = folder / f"{name}.txt", folder / f"{name}.json"
        self.logs = folder / name
        self.logs.mkdir(parents=True, exist_ok=True)
        for old in self.logs.glob("*.log"):
            old.unlink()
        self.hopper_except = self.logs / "hopper-except.txt"
        self.excepted = None  # the lines of hopper-except.txt; None: nothing compared yet, so the file is an older check's
        self.device, self.commit, self.why_left = device, commit, why_left
        self.rows, self.steps, self.left, self.details = [], [], [], []
        self.tables = []  # the benches' tables, as text
        self.figures = {}  # name: a bench's JSON

    def except_from_hopper(self, lines):
        self.excepted = sorted({*(self.excepted or ()), *lines})
        self.hopper_except.write_text("".join(f"{line}\n" for line in self.excepted))

    def log_of(self, step):
        return self.logs / f"{step}.log"

    def title(self):
        return f"{self.device}; {self.commit}"

    def left_out(self):
        return [f"{self.why_left()}: {' '.join(self.left)}"] if self.left else []

    def add(self, step, seconds, result):
        """Writes a row, then prints it. Failures are printed after the row; in the files they
        follow the table."""
        cells = (step, result.passed, result.failed, result.skipped, seconds)
        row = COLUMNS.format(*cells, result.said)
        names = ("step", "passed", "failed", "skipped", "seconds")
        record = dict(zip(names, cells), result=result.said)
        if self.log_of(step).exists():
            record["log"] = str(self.log_of(step))
        shown = result.failures[:MOST_TESTS]
        details = [f"  {line}" for line in result.finding]
        for test in shown:
            details += [f"  {test['test']}", *(f"    {line}" for line in test["lines"])]
        if len(result.failures) > len(shown):
            details.append(f"  and {len(result.failures) - len(shown)} more tests")
        if shown:
            record["failures"] = shown
        if result.finding:
            record["finding"] = result.finding
        if details:
            details = ["", f"{step}: the whole log is {record.get('log')}", *details]
        self.rows.append(row)
        self.steps.append(record)
        self.details += details
        self.write()
        for line in [row, *details]:
            say(line)

    def write(self):
        text = ["# Reprint with:  make gpu-check", self.title(), "", HEADING]
        text += [*self.rows, *self.left_out(), *self.details]
        for table in self.tables:
            text += ["", table.rstrip("\n")]
        head = {"device": self.device, "commit": self.commit}
        steps = ",\n ".join(map(json.dumps, self.steps))
        figures = ", ".join(f"{json.dumps(name)}: {text}" for name, text in self.figures.items())
        record = (
            f'{json.dumps(head)[:-1]}, "steps": [{steps}], {json.dumps(self.why_left())}: '
            f'{json.dumps(" ".join(self.left))}, "bench": {{{figures}}}}}'
        )
        for path, whole in ((self.text, "\n".join(text)), (self.json, record)):
            path.with_name(path.name + ".new").write_text(whole + "\n")
        for path in (self.text, self.json):
            path.with_name(path.name + ".new").replace(path)  # the file is always complete

    def end(self):
        """Prints the lines after the table."""
        for table in self.tables:
            say("\n" + table.rstrip("\n"))
        say()
        for line in self.left_out():
            say(line)
        say(f"written   {self.text}, {self.json}")
        logs = [path.name for path in sorted(self.logs.glob("*.log"))]
        if logs:
            say(f"logs      {self.logs}: {', '.join(logs)}")
