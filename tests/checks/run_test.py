#!/usr/bin/env python3
"""Tests tests/run on small programs that answer as GoogleTest's do."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

root = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.append(os.path.join(root, "tests"))

from run_queue import SHORTEST, WORKERS, Check, Program, Queue  # noqa: E402

# Runs the code of each chosen test, which may set result, and say: whether GoogleTest's line at the
# test's end comes through.
PROGRAM = f"#!{sys.executable} -SE\n" + r"""
import json, os, signal, sys, time
tests = TESTS
if "BAREVISION_ISA" in os.environ:
    tests = {name: text for name, text in tests.items() if "BAREVISION_ISA" in text}
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
if "gtest_list_tests" in options:
    print("Running main() from gtest_main.cc")
    for name in tests:
        suite, _, test = name.rpartition(".")
        print(f"{suite}.  # TypeParam = int\n  {test}  # GetParam() = 1")
    sys.exit()
with open(options["gtest_flagfile"]) as file:
    flags = dict(line[2:].rstrip("\n").partition("=")[::2] for line in file)
chosen, report = flags["gtest_filter"].split(":"), {}
code = 0
for name, text in tests.items():
    if name not in chosen or text == "is not run":
        continue
    print("[ RUN      ]", name, flush=True)
    scope = {**globals(), "result": "OK", "say": True, "code": 0}
    exec(text, scope)
    result = scope["result"]
    word = f"[{'OK ':>10}]" if result == "OK" else f"[{result:^10}]"
    if scope["say"]:
        print(f"{word} {name}, where GetParam() = 1 (7 ms)", flush=True)
    suite, _, test = name.rpartition(".")
    report.setdefault(suite, []).append({
        "name": test, "classname": suite, "status": "RUN", "time": "0.007s",
        "result": "SKIPPED" if result == "SKIPPED" else "COMPLETED",
        **({"failures": [{"failure": "from.cpp:1\nthe report"}]} if result == "FAILED" else {})})
    code = code or scope["code"] or int(result == "FAILED")
with open(options["gtest_output"].partition(":")[2], "w") as file:
    json.dump({"testsuites": [{"testsuite": all} for all in report.values()]}, file)
sys.exit(code)
"""
GOOD, BAD = "", "result = 'FAILED'; print('a.cpp:1: Failure')"
SKIP = "result = 'SKIPPED'; print('a.cpp:1: Skipped\\nno GPU')"


def take_interrupts():
    """A command that a shell started in the background would ignore them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build, self.code = folder.name, None

    def at(self, name):
        return os.path.join(self.build, name)

    def read(self, name):
        with open(self.at(name)) as file:
            return file.read()

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        with open(self.at(name), "w") as file:
            file.write(text)
        os.chmod(self.at(name), 0o755)

    def program(self, tests, name="tests"):
        self.write(name, PROGRAM.replace("TESTS", repr(tests)))

    def start(self, *words, **more):
        environment = {**{name: text for name, text in os.environ.items()
                          if not name.startswith(("BAREVISION_", "SIMT_"))}, "REPORT": self.build}
        return subprocess.Popen([os.path.join(root, "tests/run"), self.build, *words], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env=environment, **more)

    def run_tests(self, *words):
        process = self.start(*words)
        text = process.communicate()[0]
        self.code = process.returncode
        return text

    def test_a_test_that_ends_its_process(self):
        self.program({"A.One": GOOD, "A.Two": SKIP, "A.Three": GOOD, "A.Four": BAD,
                      "A.Five": "os.kill(os.getpid(), signal.SIGSEGV)", "A.Six": GOOD,
                      "A.Seven": "sys.exit(0)", "A.Eight": GOOD})
        text = self.run_tests("A")
        self.assertEqual(self.code, 1)
        self.assertIn("[ RUN      ] A.Five\nended by SIGSEGV in this test\n", text)
        self.assertIn("[ RUN      ] A.Seven\nended with code 0 in this test\n", text)
        for name in ("Four", "Five", "Seven"):
            self.assertIn(f"\n  A.{name}  make test FILTER=A.{name}\n", text)
        self.assertIn("\nskipped 1: no GPU (A.Two)\n", text)
        self.assertTrue(text.endswith("\n4 passed, 3 failed, 1 skipped\n"), text)

    def test_a_process_that_fails_outside_of_its_tests(self):
        self.program({"A.One": "print('of a leak'); code = 23"})
        text = self.run_tests("A")
        self.assertEqual(self.code, 1)
        self.assertIn("of a leak\n", text)
        self.assertIn("\ntests ended with code 23\n", text)
        self.assertTrue(text.endswith("\n1 passed, 1 failed, 0 skipped\n"), text)

    def test_a_program_that_cant_start(self):
        self.write("tests", "#!/bin/sh\necho no library\nexit 127\n")
        text = self.run_tests("A")
        self.assertIn("no library\n", text)
        self.assertIn(f"\n  tests can't list its tests  {self.at('tests')}\n", text)
        self.assertEqual(self.code, 1)
        self.program({"A.One": GOOD})
        self.write("tests", self.read("tests").replace("flags = ", "sys.exit(3)\n    flags = "))
        self.assertIn("tests ended with code 3; 1 of its tests have not run\n",
                      self.run_tests("A"))
        self.assertEqual(self.code, 1)

    def test_a_test_that_is_not_run(self):
        self.program({"A.One": GOOD, "A.Two": "is not run"})
        self.assertIn("\ntests ended with code 0; 1 of its tests have not run\n",
                      "\n" + self.run_tests("A"))
        self.assertEqual(self.code, 1)

    def test_results_whose_lines_are_lost(self):
        self.program({"A.One": "say = False", "A.Two": BAD + "; say = False",
                      "A.Three": SKIP + "; say = False", "A.Four": "print('no end', end='')"})
        text = self.run_tests("A")
        self.assertIn("A.Two\nfrom.cpp:1\nthe report\n", text)
        self.assertTrue(text.endswith("\n2 passed, 1 failed, 1 skipped\n"), text)

    def test_a_failure_is_printed_while_others_run(self):
        seen = ("until = time.monotonic() + 300\n"
                "while not os.path.exists(os.environ['REPORT'] + '/seen'):\n"
                "    assert time.monotonic() < until\n"
                "    time.sleep(0.01)\n")
        self.program({"A.One": BAD, "A.Two": seen})
        process = self.start("A")
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "a.cpp:1: Failure\n":
                self.write("seen", "")
        process.stdout.close()
        process.wait()
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped\n", lines)

    def test_many_failures_are_short(self):
        rows = {f"KernelTable/simt.layernorm_rows{n}": BAD + "; print('line\\n' * 15)"
                for n in range(102)}
        self.program({**rows, "A.Long": BAD + "; print('line\\n' * 5000)", "B.One": BAD})
        text = self.run_tests("--checks", "none")
        self.assertLess(text.count("\n"), 250)
        self.assertEqual(text.count("[ RUN      ] KernelTable"), 3)
        self.assertIn("more lines ...\n", text)
        self.assertIn("\nand 79 more\n", text)
        self.assertIn("\n  102 tests of KernelTable/simt  make test FILTER=layernorm_rows\n", text)
        self.assertTrue(text.endswith("\n0 passed, 104 failed, 0 skipped\n"), text[-300:])

    def test_a_word_without_tests_names_the_nearest_suites(self):
        self.program({"Launch.One": GOOD, "Schedule.Two": GOOD, "Abc.Three": GOOD})
        self.assertIn("no test has schedulr in its name; the nearest suites: Schedule, Launch\n",
                      self.run_tests("schedulr"))
        self.assertEqual(self.code, 1)

    def test_filters(self):
        self.program({"A.One": GOOD, "B/A.One": GOOD, "A.OneMore": GOOD, "C.DISABLED_One": GOOD})
        for words, passed in ((["A.One"], 2), (["--filter", "One"], 3), (["A"], 3), (["C"], 0)):
            self.assertIn(f"\n{passed} passed, 0 failed,", "\n" + self.run_tests(*words))
        self.program({"D.One": GOOD, "D.Two": GOOD}, "more")
        both = f"{self.at('tests')} {self.at('more')}"
        self.assertIn("\nmore: 2 passed; ", self.run_tests("--programs", both, "--checks", "none"))
        self.write("list", f"{self.at('tests')} A.*:B/*-*More\n{self.at('more')} D.T?o\n")
        text = self.run_tests("--tests", self.at("list"))
        self.assertTrue(text.endswith("\n3 passed, 0 failed, 0 skipped\n"), text)
        self.assertEqual(self.run_tests("A", "--tests", self.at("list")),
                         "tests/run: either a word or --tests\n")
        self.write("list", f"{self.at('none')} *\n")
        self.assertEqual(self.run_tests("--tests", self.at("list")),
                         f"tests/run: {self.at('none')} is not built\n")
        self.assertEqual(self.code, 2)

    def test_long_sweeps_of_one_program(self):
        swept = "assert 'BAREVISION_TEST_ALL' in os.environ"
        self.program({"A.Swept": swept}, "one")
        self.program({"A.Short": swept.replace(" in ", " not in ")}, "other")
        self.write("list", f"{self.at('one')} * sweeps\n{self.at('other')} *\n")
        self.assertIn("\n2 passed, 0 failed", self.run_tests("--tests", self.at("list")))
        self.write("list", f"{self.at('one')} *\n{self.at('other')} * sweeps\n")
        self.assertIn("\n0 passed, 2 failed", self.run_tests("--tests", self.at("list")))

    def test_checks(self):
        self.program({"A.One": GOOD})
        self.write("fuzz", "#!/bin/sh\necho 'it is well'\n")
        self.write("fuzz_pictures", "#!/bin/sh\necho 'it crashed'\nexit 1\n")
        text = self.run_tests("fuzz")
        self.assertIn("\nfuzz: 1 passed; it is well; ", text)
        self.assertIn("it crashed\nfuzz_pictures ended with code 1\n", text)
        self.assertIn("\n  fuzz_pictures  make test FILTER=fuzz\n", text)
        self.assertEqual(self.run_tests("--checks", "counters"), 
                         "tests/run: counters is not built, or not for this build\n")
        self.assertIn("there is no check nothing, but: includes, ",
                      self.run_tests("--checks", "nothing"))
        self.assertEqual(self.code, 2)
        self.assertIn("\nstart_test\n", self.run_tests("--checks", "list"))

    def test_all_that_a_run_has_started_ends_with_it(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 128 + 15)):
            # A child in another process group, which waits on a pipe that never ends.
            self.program({"A.One": "pid = os.fork()\nif not pid: os.setpgid(0, 0)\n"
                          "else: open(os.environ['REPORT'] + '/pid', 'w').write(f'{pid} ')\n"
                          "signal.pause()"})
            process = self.start("A", start_new_session=True, preexec_fn=take_interrupts)
            until = time.monotonic() + 300
            while not os.path.exists(self.at("pid")) or not self.read("pid"):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            process.send_signal(number)
            process.communicate()
            self.assertEqual(process.returncode, code)
            child = f"/proc/{int(self.read('pid'))}/stat"
            while os.path.exists(child):
                with open(child) as file:
                    if file.read().rpartition(")")[2].split()[0] in "ZX":
                        break
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            os.remove(self.at("pid"))

    def test_which_kernels_ran_is_compared_last(self):
        note = ("open(os.environ['REPORT'] + '/order', 'a').write({!r} + "
                "os.environ.get('BAREVISION_KERNELS', '-'))")
        name = "SimtKernelsRun.AreAllOfThemInAWholeRun"
        self.program({name: note.format("last ") + "; result = 'FAILED'",
                      "A.One": note.format("A "), "B.One": note.format("B "),
                      "A.Kernels": "assert 'BAREVISION_KERNELS_RUN' in os.environ"})
        text = self.run_tests("--checks", "none")
        self.assertRegex(self.read("order"), "^[AB] -[AB] -last kernels$")
        self.assertTrue(text.endswith("\n3 passed, 1 failed, 0 skipped\n"), text)
        self.program({name: note.format("last "), "A.One": "sys.exit(0)"})
        self.assertIn("not known whether all kernels have run", self.run_tests("--checks", "none"))
        self.assertEqual(self.read("order").count("last"), 1)

    def test_the_kernel_table(self):
        rows = ("cpu_x.a", "cpu_x.b", "simt.a", "Masks.On/simt")
        self.program({f"KernelTable/{row}": GOOD for row in rows})
        self.write("obj/simt/kernels/layers/a.o", "")
        self.assertIn("\nkernel table: cpu_x 2, simt 1, cuda 0 (not built)\n",
                      "\n" + self.run_tests("simt", "--filter", "KernelTable"))
        self.program({"KernelTable/cpu_x.a": GOOD})
        self.write("obj/cuda/kernels/layers/a.o", "")
        text = self.run_tests("--checks", "none")
        self.assertIn("kernel table: cpu_x 1, simt 0, cuda 0 (no GPU)\n", text)
        self.assertIn("\n  no kernel ran on simt  make test FILTER=KernelTable\n", text)
        self.assertEqual(self.code, 1)

    def test_environment(self):
        self.program({"A.One": "print(dict(os.environ),"
                               " file=open(os.environ['REPORT'] + '/environment', 'w'))"})
        for words, sweeps in (((), False), (("--sweeps",), True)):
            self.run_tests("A", *words)
            text = self.read("environment")
            for row in (f"'BAREVISION_MODELS': '{root}/models'",
                        "'BAREVISION_DATA': '../shared/data'",
                        "'OMP_WAIT_POLICY': 'passive'", "'SIMT_TIMEOUT': '10'"):
                self.assertIn(row, text)
            self.assertEqual("'BAREVISION_TEST_ALL': '1'" in text, sweeps)

    def test_times_are_kept(self):
        self.program({"A.One": GOOD, "B.Two": GOOD})
        self.write("test_times", "90 Gone.One\n")
        text = self.run_tests("--checks", "none", "--build-seconds", "40", "60")
        self.assertRegex(text, r"\nbuild: 40 s wall, 60 s CPU\n")
        self.assertNotIn("(last", text)
        self.assertEqual(sorted(self.read("test_times").splitlines()), ["7 A.One", "7 B.Two"])
        last = json.loads(self.read("test_parts.json"))
        self.assertGreater(last["tests"][1], 0)
        self.write("test_parts.json", json.dumps({**last, "tests": [350, 560]}))
        self.assertRegex(self.run_tests("--checks", "none"),
                         r"tests: 2 passed; \d+ s wall, \d+ s CPU \(last 350, 560\)\n")
        self.write("test_times", "90 Gone.One\n90 A.One\n")
        self.assertNotIn("(last", self.run_tests("A.One"))
        self.assertEqual(self.read("test_times"), "90 Gone.One\n7 A.One\n")

    def test_rows_without_avx512(self):
        with open("/proc/cpuinfo") as file:
            if not re.search(r"\bavx512f\b", file.read()):
                self.skipTest("this CPU has no AVX-512")
        self.program({"A.One": GOOD,
                      "KernelTable/cpu.a": "assert os.environ.get('BAREVISION_ISA') != 'avx2'"})
        text = self.run_tests("KernelTable")
        self.assertIn("tests: 1 passed; ", text)
        self.assertIn("tests, AVX-512 off: 1 failed; ", text)


class Batches(unittest.TestCase):
    @staticmethod
    def taken(queue):
        while queue.items:
            yield queue.take()

    def test_what_is_longest_begins_and_the_end_is_small(self):
        names = {f"S{n}": [f"S{n}.T{i}" for i in range(100)] for n in range(10)}
        ms = {name: 500 for tests in names.values() for name in tests}
        queue = Queue(None, {**ms, "Slow.One": 90000}, "")
        program, other = Program(None, "tests", {}), Program(None, "more", {})
        for tests in names.values():
            queue.add(program, list(tests))
        queue.add(other, ["Slow.One"])
        queue.add_check(Check(None, ["check"]), 30)
        batches = list(self.taken(queue))
        self.assertEqual(batches[0], (other, ["Slow.One"]))
        self.assertEqual(batches[1][0], Check(None, ["check"]))
        own = [tests for _, tests in batches[2:]]
        self.assertEqual(sorted(sum(own, [])), sorted(ms))  # each once
        self.assertLessEqual(len(own[-1]), SHORTEST * 2)
        self.assertGreater(len(own[0]), len(own[-1]))
        self.assertGreater(len(own), WORKERS)

    def test_a_suite_stays_together_if_it_is_short(self):
        queue, program = Queue(None, {}, ""), Program(None, "tests", {})
        suites = [[f"S{n}.T{i}" for i in range(5)] for n in range(200)]
        for suite in suites:
            queue.add(program, list(suite))
        for _, tests in self.taken(queue):
            for suite in suites:
                self.assertIn(len(set(suite) & set(tests)), (0, 5))

    def test_unknown_tests_take_as_long_as_their_suite(self):
        queue = Queue(None, {"A.One": 3000, "A.Two": 5000}, "")
        queue.add(Program(None, "build/tests", {}), ["A.New", "B.New"])
        queue.add(Program(None, "build/test_kernels", {}), ["A.Newer", "C.New"])
        self.assertEqual([queue.seconds(name) for name in ("A.New", "B.New", "A.Newer", "C.New")],
                         [4, 0.2, 4, 0.015])


if __name__ == "__main__":
    unittest.main()
