#!/usr/bin/env python3
"""Plants one offence of each kind in a small tree: tests/lint must fail with it and pass without it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
source = "// Adds images to a batch.\nint add(int a, int b) { return a + b; }\n"
tree = {
    "kernels/GLOSSARY.md": "| term | meaning | don't write |\n| --- | --- | --- |\n"
    "| resumes | after a stop | wanders off |\n| live range | first to last use | `lives` |\n",
    "base/add.cpp": source,
    "base/add.h": "// Adds two numbers.\nint add(int a, int b);\n",
    "bench/times": '#!/usr/bin/env python3\n"""Times a run."""\n\nprint("0 s")\n',
    "tests/run": '#!/usr/bin/env bash\n# Runs all tests.\ncd "$(dirname "$0")" || exit\n',
    "README.md": "# Guide\n\nThe run resumes with the next step. `base/` adds.\n",
}


class Lint(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name in (".clang-format", "ruff.toml"):
            shutil.copy(os.path.join(root, name), self.folder.name)
        for path, text in tree.items():
            self.write(path, text)

    def write(self, path, text):
        path = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def lint(self):
        command = [os.path.join(root, "tests/lint"), self.folder.name]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        return done.returncode, done.stdout + done.stderr

    def green(self):
        code, text = self.lint()
        self.assertEqual(code, 0, text)

    def red(self, pattern, tool=""):
        code, text = self.lint()
        if tool and re.search(rf"^lint: {tool} is not", text, re.M):
            self.skipTest(f"{tool} is not installed")
        self.assertEqual(code, 1, text)
        self.assertRegex(text, pattern)

    def test_a_clean_tree(self):
        self.green()

    def test_openings(self):
        for word in ("Of", "What", "By", "Where"):
            self.write("base/add.h", f"// {word} two numbers the sum.\nint add(int a, int b);\n")
            self.red(f'base/add.h:1: the comment opens with "{word}"')
        self.write("base/add.h", "// ---- sums ----\n// Of two numbers the sum.\nint add(int a, int b);\n")
        self.red('base/add.h:1: the comment opens with "Of"')
        self.write("base/add.h", "int add(int a, int b);  // what a and b make\n")
        self.red("base/add.h:1: the comment opens")
        self.write("base/add.h", "int a;  // one\nint b;  // what\n        // it is\n")
        self.red("base/add.h:2: the comment opens")
        self.write("base/add.h", "// A sum.\n// By hand, of two.\nint add(int a, int b);\n")
        self.green()
        self.write("bench/times", '#!/usr/bin/env python3\n"""What it takes."""\n')
        self.red("bench/times:2: the comment opens")
        self.write("bench/times", '#!/usr/bin/env python3\nprint("What")\n')
        self.green()
        self.write("tests/run", "#!/usr/bin/env bash\n\n# Where it is.\n")
        self.red("tests/run:3: the comment opens")

    def test_words_of_the_glossary(self):
        words = "the run wanders off to step 3"
        self.write("base/add.cpp", source.replace("Adds", "Wanders off to"))
        self.red('base/add.cpp:1: "Wanders off": resumes')
        self.write("base/add.cpp", f'const char* text = "{words}";\n')
        self.red('base/add.cpp:1: "wanders off": resumes')
        self.write("base/add.cpp", source.replace("batch.", "batch, then wanders\n// off to the next."))
        self.red('base/add.cpp:1: "wanders off"')
        self.write("base/add.cpp", source)
        self.write("bench/times", f'#!/usr/bin/env python3\nprint("{words}")\n')
        self.red("bench/times:2: ")
        self.write("bench/times", "#!/usr/bin/env python3\n")
        self.write("README.md", f"# Guide\n\nHere {words}.\n")
        self.red("README.md:3: ")

    def test_names_of_the_glossary(self):
        self.write("base/add.cpp", "int lives = 0;\n")
        self.red('base/add.cpp:1: "lives": live range')
        self.write("base/add.cpp", "// He lives here.\nint lives_here = 0;\n")
        self.green()

    def test_a_long_line(self):
        self.write("base/add.h", "// A sum of two numbers. " + "x" * 80 + "\n")
        self.red(r"base/add.h:1: 10\d columns")

    def test_an_include_upward(self):
        self.write("base/add.cpp", '#include "kernels/kernels.h"\n' + source)
        self.red("base/add.cpp:1: includes kernels/kernels.h")

    def test_a_room_over_its_budget(self):
        header = "// Adds numbers.\n" + "int add(int a, int b);\n" * 10000
        self.write("base/add.h", header)
        self.red(r"base: 10,003 lines, [0-9,]+ over its budget")
        self.write("base/add.txt", header)  # no source
        self.write("base/add.h", tree["base/add.h"])
        self.green()
        code, text = self.lint()
        self.assertRegex(text, r"lines: base 4 of [0-9,]+, kernels 0 of ")

    def test_a_circle_of_files(self):
        for one, other in (("add", "sum"), ("sum", "add")):
            self.write(f"base/{one}.h", f'// Adds.\n#pragma once\n#include "base/{other}.h"\n')
        self.red("base/add base/sum")

    def test_a_doubled_type(self):
        for name in ("add", "sub"):
            self.write(f"base/{name}.h", "namespace bv {\n\nstruct Sum {};\n\n}  // namespace bv\n")
        self.red("bv::Sum is also in base/add.h:3")

    def test_format(self):
        self.write("base/add.cpp", source.replace("a + b", "a+b"))
        self.red("base/add.cpp:2:.*clang-format", "clang-format")

    def test_a_shell_script(self):
        self.write("tests/run", tree["tests/run"].replace(" || exit", ""))
        self.red("SC2164", "shellcheck")

    def test_a_python_script(self):
        self.write("bench/times", tree["bench/times"].replace("print", "import os\n\nprint"))
        self.red("bench/times:4:.*F401", "ruff")

    def test_a_link(self):
        if not os.path.exists(os.path.join(root, "tests/check_docs")):
            self.skipTest("no tests/check_docs")
        self.write("README.md", tree["README.md"] + "\nSee [here](nowhere.md).\n")
        self.red("nowhere.md")

    def test_missing_tools_are_named(self):
        for tool in ("python3", "bash", "env"):
            path = os.path.join(self.folder.name, "path", tool)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(sys.executable if tool == "python3" else shutil.which(tool), path)
        command = [sys.executable, os.path.join(root, "tests/lint"), self.folder.name]
        environment = {"PATH": os.path.join(self.folder.name, "path")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        self.assertIn("lint: shellcheck is not installed: make deps-dev\n", done.stdout, done.stderr)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
