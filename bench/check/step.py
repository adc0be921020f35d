"""A running step of a check: its commands, its complete log, and a folder that is removed when the
check ends."""

import pathlib
import shlex
import subprocess
import tempfile
from dataclasses import dataclass

from check.commands import TIMED_OUT


@dataclass
class Output:
    """A command's output. `text`: both streams, or only standard output if they are separate."""

    code: int
    text: str
    errors: str

    def last_line(self):
        return ((self.errors or self.text).strip().splitlines() or ["it printed nothing"])[-1]


class Step:
    def __init__(self, name, most, machine, commands, report, scratch):
        """most: seconds that one of its commands may take."""
        self.name, self.machine, self.commands, self.report = name, machine, commands, report
        self.most, self.scratch = most, pathlib.Path(scratch)
        self.late = ""  # the first command that took longer
        report.log_of(name).unlink(missing_ok=True)

    def run(self, *words, apart=False, environment=None):
        """Appends the command and all its output to the step's log."""
        with open(self.report.log_of(self.name), "a+b") as log, tempfile.TemporaryFile() as errors:
            set_before = [f"{name}={value}" for name, value in (environment or {}).items()]
            log.write(f"$ {' '.join(set_before + [shlex.join(map(str, words))])}\n".encode())
            log.flush()
            begin = log.tell()
            err = errors if apart else subprocess.STDOUT
            code = self.commands.run(words, log, err, environment, self.most)
            if code in TIMED_OUT and not self.commands.cut:
                self.late = self.late or f"FAILED: still running after {self.most} s"
            log.seek(begin)
            text = log.read()
            errors.seek(0)
            apart_from_it = errors.read()
            log.write(apart_from_it)
        return Output(code, text.decode(errors="replace"), apart_from_it.decode(errors="replace"))
