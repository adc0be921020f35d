"""One queue of tests and checks: what runs next, and the processes that run it (tests/run)."""

import collections
import glob
import json
import os
import re
import signal
import subprocess
import time

WORKERS = (os.cpu_count() or 1) + 1  # one more than cores, since many tests wait
# Times of tests that have never run, by program: those that wait begin, and kernels fill their pauses.
UNKNOWN_MS = {"test_kernels": 15, "test_lattice": 3000, "test_program": 1000, "test_models": 800,
              "test_app": 500, "test_comm": 500, "test_learn": 2000}
OTHER_MS = 200
SHORTEST, LONGEST = 3, 60  # seconds of a batch; a program starts in half a second
SILENCE = 1800  # seconds without output after which a process hangs
RUN = re.compile(r"\[ RUN      \] (\S+)$")
END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^ ,]+).* \((\d+) ms\)$")
UNEVENTFUL = re.compile(r"\[ +(OK|SKIPPED|RUN) +\]|\[-+\]|$")

# A GoogleTest program in an environment; the part of the report that its tests count in.
Program = collections.namedtuple("Program", "part path environment")
Check = collections.namedtuple("Check", "part command")


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):  # there is none, or a process ended while it wrote
        return {}


class Process:
    """A command in a session of its own, whose output goes to a file."""

    def __init__(self, queue, part, command, environment, path):
        self.queue, self.part, self.path = queue, part, path
        self.rest, self.heard, self.hung = b"", time.monotonic(), False
        part.begin = part.begin or self.heard
        with open(path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **environment}, start_new_session=True)
        self.log = open(path, "rb")

    def kill(self):
        """Ends the command and all that it has started, also in other process groups."""
        for status in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(status, encoding="utf-8", errors="replace") as file:
                    session = int(file.read().rpartition(")")[2].split()[3])
                if session == self.process.pid:
                    os.kill(int(status.split("/")[2]), signal.SIGKILL)
            except OSError:  # it has just ended
                pass

    def ended(self):
        """Whether the command has ended; ends what it has left running."""
        self.read()
        if time.monotonic() - self.heard > SILENCE and not self.hung:
            self.hung = True
            self.kill()
        # It isn't reaped yet, so that no other process can have its number.
        if not os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return False
        self.kill()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.part.cpu += usage.ru_utime + usage.ru_stime
        self.part.end = time.monotonic()
        self.read()
        self.log.close()
        return True

    def how(self):
        code = self.process.returncode
        if self.hung:
            return f"said nothing for {SILENCE} s"
        return f"ended with code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"

    def read(self):
        if text := self.log.read():
            self.heard = time.monotonic()
            *lines, self.rest = (self.rest + text).split(b"\n")
            for line in lines:
                self.line(line.decode(errors="replace"))

    def line(self, line):
        pass

    def output(self):
        with open(self.path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()


class CheckProcess(Process):
    """A check is one result: that of its process."""

    def __init__(self, queue, check, path):
        super().__init__(queue, check.part, check.command, {}, path)
        self.command = check.command

    def finish(self):
        good = self.process.returncode == 0
        self.queue.report.check_ended(self.part, self.command, good, self.how(), self.output())


class Batch(Process):
    """A process that runs some of a program's tests. Its output tells of each as it ends, but may
    be mixed with that of its children; GoogleTest's JSON, at the end, is complete."""

    def __init__(self, queue, program, names, path):
        self.program, self.left = program, dict.fromkeys(names)
        self.now, self.text, self.failed = None, [], False
        with open(f"{path}.flags", "w", encoding="utf-8") as file:  # an argument would be too long
            file.write(f"--gtest_filter={':'.join(names)}\n--gtest_color=no\n")
        self.json = f"{path}.json"
        super().__init__(queue, program.part, [program.path, f"--gtest_flagfile={path}.flags",
                                               f"--gtest_output=json:{self.json}"],
                         program.environment, path)

    def line(self, line):
        begins, ends = RUN.search(line), END.search(line)
        if begins and begins[1] in self.left:
            self.now, self.text = begins[1], []
        self.text.append(line)
        if ends and ends[2] == self.now:
            self.settle(ends[2], ends[1], int(ends[3]), self.text)
            self.now, self.text = None, []

    def settle(self, name, result, ms, text):
        del self.left[name]
        self.failed |= result == "FAILED"
        self.queue.report.settle(self.part, name, result, ms, text)

    def finish(self):
        report = read_json(self.json)
        for test in (test for suite in report.get("testsuites", []) for test in suite["testsuite"]):
            name = f"{test['classname']}.{test['name']}"
            if name in self.left and test["status"] == "RUN":
                said = [line for failure in test.get("failures", [])
                        for line in failure["failure"].splitlines()]
                result = {"SKIPPED": "SKIPPED"}.get(test["result"], "FAILED" if said else "OK")
                self.settle(name, result, round(float(test["time"][:-1]) * 1000), [name, *said])
        if not report and self.now:
            self.settle(self.now, "FAILED", 0, [*self.text, f"{self.how()} in this test"])
            self.queue.add(self.program, list(self.left))
        elif self.left or (self.process.returncode and not self.failed):
            what = f"{self.part.title} {self.how()}"
            if self.left:
                what += f"; {len(self.left)} of its tests have not run"
            lines = [line for line in self.output() if not UNEVENTFUL.match(line)]
            self.queue.report.fail(self.part, self.part.title, [*lines, what],
                                   next(iter(self.left), ""))
        self.queue.ended_early |= not report
        os.remove(self.path)


class Queue:
    """Begins with what is longest. Tests are taken in batches of one program, smaller towards the
    end; the tests of a suite stay together unless they are longer than a batch."""

    def __init__(self, report, ms, folder):
        self.report, self.ms, self.folder = report, dict(ms), folder
        self.items, self.running, self.ended_early, self.started = [], [], False, 0
        of_suite = collections.defaultdict(list)
        for name, own in ms.items():
            of_suite[name.rpartition(".")[0]].append(own)
        self.means = {suite: sum(all_of) / len(all_of) for suite, all_of in of_suite.items()}

    def seconds(self, name):
        return self.ms[name] / 1000

    def add(self, program, names):
        unknown = UNKNOWN_MS.get(os.path.basename(program.path), OTHER_MS)
        for name in names:
            self.ms.setdefault(name, self.means.get(name.rpartition(".")[0], unknown))
        if names:
            self.items.append((max(map(self.seconds, names)), program, names))

    def add_check(self, check, seconds):
        self.items.append((seconds, check, []))

    def take(self):
        """The next check, or a program and the names of tests of it."""
        self.items.sort(key=lambda x: -x[0])
        first = self.items[0][1]
        if isinstance(first, Check):
            return self.items.pop(0)[1:]
        left = sum(self.seconds(name) for _, _, names in self.items for name in names)
        room = min(max(left / (2 * WORKERS), SHORTEST), LONGEST)
        batch = []
        for _, item, names in self.items:
            if item is first and (not batch or sum(map(self.seconds, names)) <= room):
                while names and (not batch or room > 0):
                    batch.append(names.pop(0))
                    room -= self.seconds(batch[-1])
        self.items = [x for x in self.items if x[2] or isinstance(x[1], Check)]
        return first, batch

    def work(self):
        """Runs all; on the way out, also by a signal, nothing that it has started is left."""
        try:
            while self.running or self.items:
                while self.items and len(self.running) < WORKERS:
                    item, names = self.take()
                    self.started += 1
                    path = os.path.join(self.folder, str(self.started))
                    self.running.append(Batch(self, item, names, path) if names
                                        else CheckProcess(self, item, path))
                for process in list(self.running):
                    if process.ended():
                        self.running.remove(process)
                        process.finish()
                self.report.progress()
                time.sleep(0.02)
        finally:
            for process in self.running:
                process.kill()
