#!/usr/bin/env python3
"""Runs README's first line in a fresh clone of the last commit with an empty home, and make deps where
it can't install anything. The clone has the objects of this build, so that nothing is compiled there
but the file with the commit's name. BAREVISION_BUILD: the folder of the build."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

root = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
build = os.path.join(root, os.environ.get("BAREVISION_BUILD", "build"))
install = os.path.join(root, "mk", "apt_install")


def lines_of_readme():
    """The lines of README's sh blocks that begin with make deps."""
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```sh\n(.*?)^```", file.read(), re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line.startswith("make deps")]


def environment(home):
    """The variables of a new user's shell: none of make's or of the tests'. ccache, whose store would be
    in this home, compiles without one."""
    path = {name: value for name, value in os.environ.items() if name == "PATH"}
    return {**path, "HOME": home, "TERM": "dumb", "LC_ALL": "C.UTF-8", "CCACHE_DISABLE": "1"}


class Clone:
    """A clone whose files are older than the objects that it has from this build."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "barevision")
        subprocess.run(["git", "clone", "--quiet", root, self.path], check=True)
        for at, folders, names in os.walk(self.path):
            if ".git" in folders:
                folders.remove(".git")
            for name in names:
                os.utime(os.path.join(at, name), (1, 1), follow_symlinks=False)
        shutil.copytree(build, os.path.join(self.path, "build"), copy_function=self.take,
                        ignore=self.not_needed, symlinks=True)

    @staticmethod
    def not_needed(folder, names):
        kept = {"obj", "pch", "gen", "launcher", "flags", "choices", "commit", "cuda_arch"}
        if folder == build:
            return [name for name in names if name not in kept]
        return [name for name in names
                if os.path.join(folder, name) in (f"{build}/obj/tests", f"{build}/obj/counters",
                                                  f"{build}/obj/races")]

    @staticmethod
    def take(source, target):
        """A link, or a copy of what make may write again."""
        if source.endswith((".o", ".gch")) and not source.endswith("version.o"):
            try:
                return os.link(source, target)
            except OSError:  # on another file system
                pass
        return shutil.copy2(source, target)


class Start(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.home = os.path.join(self.folder, "home")
        os.mkdir(self.home)

    def test_readme_has_both_lines(self):
        self.assertEqual(lines_of_readme(), ["make deps && make && ./launcher -n 2 vit_tiny",
                                             "make deps && make test"])

    def skip_unless_built(self):
        if not os.access(os.path.join(build, "launcher"), os.X_OK):
            self.skipTest("the program is not built")
        if not os.path.exists(os.path.join(root, ".git")):
            self.skipTest("not a git repository")
        planned = subprocess.run(["make", "-n", "deps"], cwd=root, env=environment(self.home),
                                 capture_output=True, text=True, check=True).stdout
        if "nothing to install" not in planned:
            self.skipTest("packages are missing here, which make deps would install")

    def test_first_line_trains_in_a_fresh_clone(self):
        self.skip_unless_built()
        clone = Clone(self.folder)
        log_path = os.path.join(self.folder, "log")
        with open(log_path, "w", encoding="utf-8") as log:
            run = subprocess.Popen(["bash", "-c", lines_of_readme()[0]], cwd=clone.path, stdout=log,
                                   stderr=subprocess.STDOUT, env=environment(self.home),
                                   stdin=subprocess.DEVNULL, start_new_session=True)

        def text():
            with open(log_path, encoding="utf-8") as log:
                return log.read()

        try:  # until an epoch has ended: README's run takes half a minute
            began = time.monotonic()
            while run.poll() is None and "epoch  1  train" not in text():
                self.assertLess(time.monotonic() - began, 900, text())
                time.sleep(0.1)
            os.killpg(run.pid, signal.SIGINT)
            run.wait(900)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
        self.assertTrue(text().startswith("nothing to install\n"), text())
        self.assertIn("epoch  1  train", text())
        self.assertIn("saved. Resume with: ./launcher --resume runs/vit_tiny-", text())
        self.assertEqual(os.listdir(self.home), [])

    def test_second_line_is_a_dry_run_without_errors(self):
        self.skip_unless_built()
        done = subprocess.run(["bash", "-c", lines_of_readme()[1].replace("make", "make -n")], cwd=root,
                              env=environment(self.home), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tests/run", done.stdout)

    def tools(self, **scripts):
        """A folder with what mk/apt_install needs and these programs; None: without it."""
        tools = tempfile.mkdtemp(dir=self.folder)
        for name in ("bash", "env", "mktemp", "rm", "grep", "tail"):
            os.symlink(shutil.which(name), os.path.join(tools, name))
        for name, script in scripts.items():
            path = os.path.join(tools, name.replace("_", "-"))
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/usr/bin/env bash\n" + script + "\n")
            os.chmod(path, 0o755)
        return tools

    def refusal(self, **scripts):
        done = subprocess.run([install, "libx-dev", "y"], env={"PATH": self.tools(**scripts)},
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_what_make_deps_says(self):
        user, admin = "echo 1000", "echo 0"
        self.assertEqual(self.refusal(id=admin),
                         "make deps: there is no apt-get here; install these yourself: libx-dev y\n")
        self.assertEqual(self.refusal(id=user, apt_get="exit 1"),
                         "make deps: neither root nor sudo here; as root, run: "
                         "apt-get update && apt-get install -y libx-dev y\n")
        lock = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt)"
        self.assertEqual(self.refusal(id=admin, apt_get=f"echo '{lock}' >&2; exit 100"),
                         "make deps: another program is installing packages; when it has ended, run "
                         f"make deps again ({lock})\n")
        offline = ("case $* in *update*) echo \"W: Failed to fetch http://x Temporary failure resolving 'x'\""
                   " ;; *) echo 'E: Unable to locate package y' ;; esac >&2; [[ $* = *update* ]]")
        self.assertEqual(self.refusal(id=admin, apt_get=offline),
                         "make deps: packages can't be downloaded; with a network (or http_proxy), run "
                         "make deps again (E: Unable to locate package y)\n")
        self.assertEqual(self.refusal(id=user, sudo="echo 'sudo: a password is required' >&2; exit 1",
                                      apt_get="exit 1"),
                         "make deps: apt-get failed; run it yourself: sudo apt-get install libx-dev y "
                         "(sudo: a password is required)\n")

    def test_make_deps_installs_as_root_or_by_sudo(self):
        for user, sudo in (("0", ""), ("1000", "sudo ")):
            calls = os.path.join(self.folder, "calls" + user)
            tools = self.tools(id="echo " + user, sudo='printf "sudo " >>"$CALLS"; exec "$@"',
                               apt_get='echo "$*" >>"$CALLS"')
            done = subprocess.run([install, "y"], env={"PATH": tools, "CALLS": calls},
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "installing y\n", ""))
            with open(calls, encoding="utf-8") as file:
                self.assertEqual(file.read(), f"{sudo}-qq update\n"
                                              f"{sudo}-qq install -y --no-install-recommends y\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
