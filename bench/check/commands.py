"""The commands of a check, one at a time. Each is in its own process group and never outlives the
check: it ends at its time limit, on a signal to the check, and when the check is killed."""

import ctypes
import os
import signal
import subprocess
import time

GRACE = 5  # seconds between SIGTERM and SIGKILL
TIMED_OUT = (124, 137)  # exit codes of timeout
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def follow(parent):
    """Prepares a new process: its own group, and SIGTERM when the process `parent` dies."""

    def prepare():
        os.setpgid(0, 0)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


class Commands:
    def __init__(self, seconds=60):
        """`seconds`: time limit of the whole check."""
        self.begin = time.monotonic()
        self.seconds = seconds
        self.running = None
        self.exit_code = 0  # requested by a signal
        self.cut = ""  # why a command was stopped early
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup
                signal.signal(number, self.interrupt)

    def interrupt(self, number, _):
        self.exit_code = 128 + number
        self.stop(signal.SIGTERM)

    def stop(self, number):
        """Stops the running command: `timeout` passes SIGTERM to its whole group, then SIGKILL."""
        if self.running:
            try:
                if number == signal.SIGKILL:
                    os.killpg(self.running.pid, number)
                else:
                    os.kill(self.running.pid, number)
            except ProcessLookupError:
                pass

    def seconds_left(self):
        return self.seconds - (time.monotonic() - self.begin)

    def over(self):
        """Whether no further command may begin."""
        return bool(self.exit_code) or self.seconds_left() <= 0

    def run(self, words, out, err=subprocess.STDOUT, environment=None, most=600):
        """The exit code of a command that writes to the files `out` and `err`, after `most` seconds
        one of TIMED_OUT; sets `cut` if the command was stopped early."""
        if self.exit_code:
            self.cut = "interrupted"
            return self.exit_code
        most = max(1, min(most, round(self.seconds_left())))
        self.running = subprocess.Popen(
            ["timeout", "-k", str(GRACE), str(most), *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            preexec_fn=follow(os.getpid()),
            env={**os.environ, "OMP_WAIT_POLICY": "passive", **(environment or {})},
        )
        if self.exit_code:
            self.stop(signal.SIGTERM)  # the signal came before `running` was set
        code = self.running.wait()
        self.stop(signal.SIGKILL)
        self.running = None
        if self.exit_code:
            self.cut = "interrupted"
            return self.exit_code
        code = 128 - code if code < 0 else code
        if code in TIMED_OUT and self.over():
            self.cut = "out of time"
        return code
