"""Counts results; prints failures at once, and at the end seconds and what reruns a failure."""

import collections
import glob
import os
import re
import sys
import time

RESULTS = ("passed", "failed", "skipped")
IN_FULL, OF_A_SUITE, BY_NAME = 10, 3, 20  # failures printed in full; then by name
FIRST, LAST = 60, 38  # lines of a failure's output
WORDS = ("counters", "racecheck", "fuzz")  # filters that run the checks that begin so
SAY = ("resources", "fuzz", "fuzz_pictures", "fuzz_records")  # their last line is printed


class Part:
    """The results and seconds of a program's tests, or of a check."""

    def __init__(self, title):
        self.title, self.counts, self.said = title, collections.Counter(), ""
        self.begin, self.end, self.cpu = 0.0, 0.0, 0.0


class Report:
    """Counts results and prints them."""

    def __init__(self, build):
        self.again = "make asan" if build.endswith("sanitized") else "make test"
        self.parts, self.skips = {}, collections.defaultdict(list)
        self.failures = collections.defaultdict(list)  # suite: (test, command)
        self.full, self.named, self.hidden = collections.Counter(), 0, 0
        self.times, self.rows = {}, collections.Counter()  # of the kernel table, by device
        self.tests, self.began, self.told = 0, time.monotonic(), time.monotonic()

    def part(self, title):
        return self.parts.setdefault(title, Part(title))

    def count(self, result):
        return sum(part.counts[result] for part in self.parts.values())

    def say(self, *lines):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(*lines, sep="\n", flush=True)

    def progress(self):
        """A line that is overwritten on a terminal; elsewhere one a minute."""
        terminal, now = sys.stderr.isatty(), time.monotonic()
        if now - self.told > (0.5 if terminal else 60):
            self.told = now
            done, failed = sum(map(self.count, RESULTS)), self.count("failed")
            line = f"{done} of {self.tests}, {failed} failed, {now - self.began:.0f} s"
            print(f"\r\033[K{line}" if terminal else f"{line}\n", end="", file=sys.stderr,
                  flush=True)

    def fail(self, part, title, lines, word, command=""):
        """Prints a failure, in full if there were few, and few of its suite."""
        suite = title.rpartition(".")[0] or title
        part.counts["failed"] += 1
        self.failures[suite].append((title, command or f"{self.again} FILTER={word}"))
        left = len(lines) - FIRST - LAST
        if sum(self.full.values()) < IN_FULL and self.full[suite] < OF_A_SUITE:
            self.full[suite] += 1
            if left > 1:
                lines = [*lines[:FIRST], f"... {left} more lines ...", *lines[-LAST:]]
            self.say(*lines)
        elif self.named < BY_NAME:
            self.named += 1
            self.say(f"failed: {title}")
        else:
            self.hidden += 1

    def settle(self, part, name, result, ms, text):
        """A test has ended."""
        if result == "FAILED":
            self.fail(part, name, text, name)
        elif result == "OK":
            part.counts["passed"] += 1
            if device := re.match(r"KernelTable/([a-z0-9_]+)\.", name):
                self.rows[device[1]] += 1
        else:
            self.skip(part, name, text)
        if result != "SKIPPED":
            self.times[name] = ms

    def skip(self, part, name, text):
        part.counts["skipped"] += 1
        at = next((i for i, line in enumerate(text) if line.endswith(": Skipped")), len(text))
        self.skips["".join(text[at + 1:at + 2]) or "without a reason"].append(name)

    def check_ended(self, part, command, good, how, lines):
        for line in lines:
            if skipped := re.match(r"(test_\w+) .*\.\.\. skipped '?(.*?)'?$", line):
                self.skips[skipped[2]].append(skipped[1])
        if good:
            part.counts["passed"] += 1
            part.said = lines[-1] if lines and part.title in SAY else ""
        else:
            word = part.title.partition("_")[0]
            self.fail(part, part.title, [*lines, f"{part.title} {how}"], word,
                      "" if word in WORDS else " ".join(command))

    def kernel_table(self, build, whole):
        """Number of rows that passed on each device."""
        built = {x: glob.glob(f"{build}/obj/{x}/kernels/*/*.o") for x in ("simt", "cuda")}
        if whole and built["simt"] and not self.rows["simt"]:
            self.fail(self.part("kernel table"), "no kernel ran on simt", [], "KernelTable")
        if whole or self.rows:
            text = [f"{x} {n}" for x, n in sorted(self.rows.items()) if x not in built]
            for device, objects in built.items():
                no_gpu = device == "cuda" and whole and not self.rows[device]
                why = " (no GPU)" if no_gpu else ""
                text.append(f"{device} {self.rows[device]}{why if objects else ' (not built)'}")
            self.say(f"kernel table: {', '.join(text)}")

    def say_skips(self):
        for reason, names in sorted(self.skips.items(), key=lambda x: -len(x[1]))[:12]:
            more = ", ..." if len(names) > 1 else ""
            self.say(f"skipped {len(names)}: {reason} ({names[0]}{more})")

    def say_failures(self):
        if self.hidden:
            self.say(f"and {self.hidden} more")
        if self.failures:
            self.say("failed, and the command that reruns it:")
        for suite, tests in self.failures.items():
            if len(tests) > 20:  # an operation's rows begin with its name
                common = os.path.commonprefix([title.rpartition(".")[2] for title, _ in tests])
                word = common.rstrip("_") if len(common) > 3 else suite
                tests = [(f"{len(tests)} tests of {suite}", f"{self.again} FILTER={word}")]
            self.say(*(f"  {title}  {command}" for title, command in tests))

    def seconds(self, last, build_seconds):
        """Prints the results and the seconds of each part beside the last ones; returns them."""
        rows = {"build": (Part("build"), *build_seconds)} if build_seconds else {}
        for part in self.parts.values():
            rows[part.title] = part, part.end - part.begin, part.cpu
        whole = Part("in all")
        whole.counts = sum((part.counts for part in self.parts.values()), collections.Counter())
        rows["in all"] = (whole, time.monotonic() - self.began + sum(build_seconds[:1]),
                          sum(cpu for _, _, cpu in rows.values()))
        for title, (part, wall, cpu) in rows.items():
            results = ", ".join(f"{part.counts[x]} {x}" for x in RESULTS if part.counts[x])
            if not results and title != "build":
                continue
            times = f"{wall:.0f} s wall, {cpu:.0f} s CPU"
            if title in last:
                times += " (last {:.0f}, {:.0f})".format(*last[title])
            self.say(f"{title}: {'; '.join(x for x in (results, part.said, times) if x)}")
        return {title: row[1:] for title, row in rows.items()}
