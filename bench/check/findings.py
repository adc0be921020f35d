"""Extracts findings from the log of a GoogleTest program, possibly run under compute-sanitizer."""

import re

MOST_TESTS, MOST_LINES, MOST_COLUMNS = 40, 8, 300  # limits of a report
SANITIZER = "========="


def shortened(lines, most=MOST_LINES):
    """The first lines, and the number of lines left out."""
    shown = [line[:MOST_COLUMNS] for line in lines[:most]]
    return shown + ([f"... {len(lines) - most} more lines"] if len(lines) > most else [])


def counts(log):
    """(passed, failed, skipped) tests in the summary, or None if the program ended without one."""
    if not re.search(r"^\[  PASSED +\]", log, re.M):
        return None
    words = ("PASSED", "FAILED", "SKIPPED")
    found = (re.search(rf"^\[  {word} +\] (\d+) test", log, re.M) for word in words)
    return tuple(int(match[1]) if match else 0 for match in found)


def counts_so_far(log):
    """The same counts for a program that ended before its summary."""
    begins = ("OK", "FAILED", "SKIPPED")
    return tuple(len(re.findall(rf"^\[ +{word} +\]", log, re.M)) for word in begins)


def failed_tests(log, ended="ended in it"):
    """[{"test": name, "lines": its own lines}], including the test in which the program ended."""
    found, name, lines = [], None, []

    def add(more=()):
        found.append({"test": name, "lines": shortened([*lines, *more])})

    for line in log.splitlines():
        match = re.match(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+)", line)
        if match:
            if match[1] == "RUN":
                name, lines = match[2], []
            elif name and match[2].rstrip(",") == name:
                if match[1] == "FAILED":
                    add()
                name = None
        elif name and line.strip() not in ("", "Failed") and not line.startswith(SANITIZER):
            lines.append(line)
    if name:
        add([ended])
    return found


def last_lines(log):
    """The last lines of a program that failed although all its tests passed."""
    lines = log.splitlines()
    told = [line for line in lines if line.strip() and not re.match(r"\[[ =-]|\$ ", line)]
    return [line[:MOST_COLUMNS] for line in told[-MOST_LINES:]]


def sanitizer_summary(log):
    """compute-sanitizer's summary, as "ERROR SUMMARY: 1 error", or ""."""
    found = re.findall(rf"^{SANITIZER} (\w+ SUMMARY: .*)", log, re.M)
    return found[-1].strip() if found else ""


def sanitizer_finding(log):
    """The lines of compute-sanitizer's first error, without the host's call stack; and the test
    in which it occurred."""
    lines, test = [], None
    for line in log.splitlines():
        if line.startswith("[ RUN "):
            test = line.split()[-1]
        if not line.startswith(SANITIZER) or "COMPUTE-SANITIZER" in line:
            continue
        told = line[len(SANITIZER) :].rstrip()
        if " SUMMARY: " in told or (lines and not told.strip()):
            break
        if told.strip() and "Host Frame" not in told and "Saved host backtrace" not in told:
            lines.append(told[1:])
    return shortened(lines, 12) + ([f"while {test} ran"] if lines and test else [])
