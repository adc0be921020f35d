#!/usr/bin/env python3
"""Installs the built program into an empty folder, runs it there as another user, and checks that
`make uninstall` leaves the files that existed before. BAREVISION_BUILD: the folder of the build."""

import os
import shutil
import subprocess
import tempfile
import unittest

root = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
build = os.path.join(root, os.environ.get("BAREVISION_BUILD", "build"))
install = os.path.join(root, "mk", "install")


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, folders, names in os.walk(folder) for name in folders + names)


class Install(unittest.TestCase):
    def setUp(self):
        if not os.access(os.path.join(build, "launcher"), os.X_OK):
            self.skipTest("the program is not built")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.stage = folder.name
        os.chmod(self.stage, 0o755)

    def call(self, *words, expect=0):
        done = subprocess.run([install, *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def program(self, prefix, *words, code=0):
        """The output of the installed program, started elsewhere and, if this is root, as nobody."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
        user = []
        if os.geteuid() == 0 and shutil.which("setpriv"):
            user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            if subprocess.run([*user, "true"], capture_output=True, check=False).returncode != 0:
                self.skipTest("this root can't become another user")
        done = subprocess.run([*user, os.path.join(prefix, "bin", "barevision"), *words],
                              cwd="/", env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_runs_elsewhere_and_leaves_nothing(self):
        prefix = os.path.join(self.stage, "opt", "bare vision")
        os.makedirs(os.path.join(self.stage, "opt"))
        self.call(build, prefix)
        installed = files_below(prefix)
        models = [name for name in os.listdir(os.path.join(root, "models")) if name.endswith(".json")]
        for model in models:
            self.assertIn(f"share/barevision/models/{model}", installed)
        for example in os.listdir(os.path.join(root, "docs/examples")):
            self.assertIn(f"share/doc/barevision/examples/{example}", installed)
        self.assertFalse([path for path in installed if path.endswith((".cpp", ".h", ".o"))])
        self.assertIn("flowers_vit_tiny", self.program(prefix, "recipes"))
        plan = self.program(prefix, "vit_tiny", "--data", "synthetic", "--device", "cpu", "--batch", "8",
                            "--plan")
        self.assertIn("5526346 parameters", plan)
        self.call(build, prefix)  # once more, over the first installation
        self.assertEqual(files_below(prefix), installed)
        self.call("--remove", prefix)
        self.assertFalse(os.path.exists(prefix))

    def test_names_itself_as_it_is_called(self):
        self.call(build, self.stage)
        out = os.path.join(self.stage, "runs")
        os.mkdir(out, 0o777)
        os.chmod(out, 0o777)
        text = self.program(self.stage, "vit_tiny", "--data", "synthetic", "--device", "cpu",
                            "--image-size", "32", "--patch-size", "8", "--batch", "8", "--steps", "1",
                            "--out", os.path.join(out, "first"))
        self.assertIn(f"barevision --resume {out}/first", text)
        self.assertNotIn("./launcher", text)

    def test_help_and_errors_have_the_installed_name(self):
        self.call(build, self.stage)
        for words, code, part in (
                (["--help"], 0, "usage: barevision [-n N] MODEL"),
                (["--help-all"], 0, "barevision recipes lists them"),
                (["help"], 0, "More: barevision help COMMAND"),
                (["help", "--man"], 0, ".B barevision\n"),
                (["eval", "--help"], 0, "usage: barevision eval"),
                (["recipes"], 0, "barevision --recipe NAME"),
                ([], 2, "try:   barevision vit_tiny"),
                (["nosuch"], 2, "; barevision help lists all"),
                (["vit_tiny", "--nosuch"], 2, "; barevision --help lists all"),
                (["completion", "bash"], 0, "\ncomplete -F _barevision barevision\n"),
                (["completion", "zsh"], 0, "#compdef barevision\n"),
                (["completion", "fish"], 0, "\ncomplete -f -a '(__barevision)' -c barevision\n")):
            text = self.program(self.stage, *words, code=code)
            self.assertIn(part, text)
            self.assertNotIn("launcher", text.replace("the launcher", ""), words)
        for path in ("bash-completion/completions/barevision", "zsh/site-functions/_barevision",
                     "fish/vendor_completions.d/barevision.fish", "man/man1/barevision.1"):
            with open(os.path.join(self.stage, "share", path)) as file:
                self.assertNotIn("./launcher", file.read(), path)

    def test_what_was_there_stays(self):
        for path in ("bin/other", "share/man/man1/other.1"):
            os.makedirs(os.path.join(self.stage, "usr", os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(self.stage, "usr", path), "w") as file:
                file.write("another program's\n")
        os.makedirs(os.path.join(self.stage, "usr", "share", "zsh"))  # an empty folder that belongs to another package
        before = files_below(self.stage)
        self.call(build, "/usr", self.stage)
        older = os.path.join(self.stage, "usr/share/barevision/models/older.json")
        with open(older, "w") as file:  # a file that this version doesn't install
            file.write("{}\n")
        with open(os.path.join(self.stage, "usr/share/barevision/installed"), "a") as file:
            file.write("share/barevision/models/older.json\n")
        self.call(build, "/usr", self.stage)
        self.assertFalse(os.path.exists(older))
        self.call("--remove", "/usr", self.stage)
        self.assertEqual(files_below(self.stage), before)

    def test_refusals(self):
        self.assertIn("nothing is installed", self.call("--remove", "/usr", self.stage, expect=2))
        self.assertIn("must begin with /", self.call(build, "usr", self.stage, expect=2))
        self.call(build, "/usr", self.stage)
        with open(os.path.join(self.stage, "usr/share/barevision/installed"), "a") as file:
            file.write("../../outside\n")
        outside = os.path.join(self.stage, "outside")
        open(outside, "w").close()
        self.assertIn("not a path of ours", self.call("--remove", "/usr", self.stage, expect=1))
        self.assertTrue(os.path.exists(outside))


if __name__ == "__main__":
    unittest.main(verbosity=2)
