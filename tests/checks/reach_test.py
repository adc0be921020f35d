#!/usr/bin/env python3
"""Tests tests/reach in a small repository."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

root = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
files = {
    "kernels/kernels.h": "struct LayerNormForward {\n};\nstruct ConvForward {\n};\n",
    "kernels/layers/layernorm.cu": '#include "kernels/gemm/tiles.cuh"\nvoid run(LayerNormForward);\n',
    "kernels/gemm/tiles.cuh": "",
    "kernels/conv/conv.cpp": '#include "kernels/kernels.h"\nvoid run(ConvForward);\n',
    "comm/ring.h": "", "comm/ring.cpp": '#include "comm/ring.h"\n#include "base/wait.h"\n',
    "base/wait.h": "", "base/wait.cpp": '#include "base/wait.h"\n',
    "app/commands/train.cpp": '#include "comm/ring.h"\n',
    "app/commands/data_split.cpp": '#include "base/wait.h"\n#include "app/commands/deal.h"\n',
    "app/commands/deal.h": "", "app/commands/deal.cpp": "",
    "docs/kernels.md": "", "models/vit.json": "{}", "Makefile": "",
    "tests/program/program.h": "",
    "tests/kernels/layernorm_test.cpp": "TEST(LayerNorm, IsRight) { LayerNormForward(); }\n",
    "tests/kernels/conv_test.cpp": "TEST(Conv, IsRight) { ConvForward(); }\n",
    "tests/comm/ring_test.cpp": '#include "comm/ring.h"\nTEST(Ring, Goes) {}\n',
    "tests/models/golden_test.cpp": "TEST(Golden, Values) {}\n",
    "tests/lattice/lattice_test.cpp": "TEST(Lattice, Equal) {}\n",
    "tests/program/split_test.cpp": '#include "tests/program/program.h"\n// split\n',
    "tests/program/output_test.cpp": '#include "tests/program/program.h"\n',
}


class Reach(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.join(scratch.name, "repository")
        for path, text in files.items():
            self.write(path, text)
        shutil.copy(os.path.join(root, "tests", "reach"), os.path.join(self.folder, "tests"))
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def write(self, path, text):
        os.makedirs(os.path.dirname(os.path.join(self.folder, path)), exist_ok=True)
        with open(os.path.join(self.folder, path), "w", encoding="utf-8") as file:
            file.write(text)

    def git(self, *words, folder=None):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words],
                       cwd=folder or self.folder, check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")

    def output(self, *words, folder=None):
        return subprocess.run([os.path.join(folder or self.folder, "tests", "reach"), *words],
                              capture_output=True, text=True, check=True).stdout

    def reached(self, path, text="// changed\n"):
        """The test files that a change reaches, each with its filter."""
        self.write(path, files.get(path, "") + text)
        return re.findall(r"^  tests/(\S+?)_test\.cpp ?(\S*?)  \(", self.output("HEAD"), re.M)

    def test_a_kernel_reaches_its_operations_tests_and_its_models_rows(self):
        wanted = [("kernels/layernorm", ""), ("lattice/lattice", "*/simt_vit*"),
                  ("models/golden", "")]
        self.assertEqual(self.reached("kernels/layers/layernorm.cu"), wanted)

    def test_what_a_kernel_includes_reaches_its_tests(self):
        self.assertIn(("kernels/layernorm", ""), self.reached("kernels/gemm/tiles.cuh"))
        self.assertNotIn(("kernels/conv", ""), self.reached("kernels/gemm/tiles.cuh"))

    def test_a_cpu_kernel_reaches_the_rows_on_the_cpu(self):
        self.assertIn(("lattice/lattice", "*/cpu_resnet*"), self.reached("kernels/conv/conv.cpp"))

    def test_a_body_reaches_whoever_includes_its_header(self):
        names = dict(self.reached("base/wait.cpp"))
        self.assertEqual(sorted(names), ["comm/ring", "lattice/lattice", "program/output",
                                         "program/split"])

    def test_a_command_reaches_the_tests_that_name_it(self):
        self.assertEqual(self.reached("app/commands/deal.cpp"), [("program/split", "")])
        self.assertEqual(self.reached("app/commands/data_split.cpp"), [("program/split", "")])

    def test_documents_reach_no_test_but_checks(self):
        self.assertEqual(self.reached("docs/kernels.md"), [])
        self.assertRegex(self.output("HEAD"), "checks:.* docs .*quotes")

    def test_a_models_json_reaches_the_models(self):
        names = dict(self.reached("models/vit.json"))
        self.assertTrue({"models/golden", "lattice/lattice"} <= set(names))

    def test_a_new_or_deleted_test(self):
        self.assertEqual(self.reached("tests/comm/new_test.cpp"), [("comm/new", "")])
        os.remove(os.path.join(self.folder, "tests/comm/new_test.cpp"))
        os.remove(os.path.join(self.folder, "tests/comm/ring_test.cpp"))
        self.assertIn("test files: 0 of", self.output("HEAD"))

    def test_what_reaches_everything(self):
        for path, why in (("Makefile", "Makefile has changed"), ("notes.txt", "is in no room"),
                          ("room/a.cpp", "is in no room")):
            self.write(path, "changed")
            self.assertRegex(self.output("HEAD"), "^everything: .*" + why)
            self.git("stash", "--include-untracked")

    def test_bases_that_tell_nothing(self):
        self.assertEqual(self.output("origin/main"),
                         "everything: origin/main isn't a commit of this clone\n")
        self.git("checkout", "--quiet", "-b", "other")
        self.commit()
        self.git("checkout", "--quiet", "main")
        self.assertEqual(self.output("other"), "everything: other isn't an ancestor of HEAD\n")
        self.git("checkout", "--quiet", "--detach", "other")
        self.assertIn("changed since main: 0", self.output("main"))
        shallow = self.folder + ".shallow"
        self.git("clone", "--quiet", "--depth", "1", "file://" + self.folder, shallow)
        self.assertRegex(self.output("HEAD~1", folder=shallow), "^everything: HEAD~1 isn't a commit")
        shutil.rmtree(os.path.join(self.folder, ".git"))
        self.assertEqual(self.output("HEAD"), "everything: this isn't a git repository\n")

    def test_files_for_make(self):
        self.reached("kernels/layers/layernorm.cu")
        folder = os.path.join(self.folder, "build", "reach")
        self.output("HEAD", "--write", folder)
        got = {}
        for name in ("all", "sources", "tests", "units"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                got[name] = file.read().split("\n")[:-1]
        self.assertEqual(got["all"], [])
        self.assertEqual(got["sources"][0], "tests/kernels/layernorm_test.cpp")
        programs = os.path.join(self.folder, "build") + "/test_"
        self.assertIn(programs + "lattice.some */simt_vit*", got["tests"])
        sweeps = "KernelTable/cuda*:KernelTable/simt*"
        self.assertIn(f"{programs}kernels.some *-{sweeps}", got["tests"])
        self.assertIn(f"{programs}kernels.some {sweeps} sweeps", got["tests"])
        self.assertEqual(got["units"], ["kernels/layers/layernorm.cu"])

    def test_words(self):
        for word, wanted in (("layernorm", "kernels/layernorm"), ("Ring.Goes", "comm/ring"),
                             ("simt.layernorm_forward_rows4", "kernels/layernorm"),
                             ("Lattice", "lattice/lattice")):
            self.assertEqual(self.output("--filter", word), f"tests/{wanted}_test.cpp\n")
        self.assertEqual(self.output("--filter", "nothing_like_it").count("\n"), 7)


if __name__ == "__main__":
    unittest.main()
