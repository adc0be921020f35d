"""The commands of a check, one at a time. Each has a process group of its own, of which nothing
stays: it ends in time, on a signal to the check, and with a check that is killed."""

import ctypes
import os
import signal
import subprocess
import time

HALF_AN_HOUR = 1800  # of one command, at most
GRACE = 5  # seconds that a command has to end when it is asked to
TIMED_OUT = (124, 137)  # exit codes of timeout
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def follow(parent):
    """For a new process: a group of its own, and SIGTERM when the process `parent` dies."""

    def prepare():
        os.setpgid(0, 0)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


class Commands:
    def __init__(self, seconds):
        """`seconds`: of the whole check, or None."""
        self.begin = time.monotonic()
        self.seconds = seconds
        self.running = None
        self.exit_code = 0  # that a signal has asked for
        self.cut = ""  # why a command was not let finish
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
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
        if self.seconds is None:
            return HALF_AN_HOUR
        return self.seconds - (time.monotonic() - self.begin)

    def over(self):
        """Whether nothing more may begin."""
        return bool(self.exit_code) or self.seconds_left() <= 0

    def run(self, words, out, err=subprocess.STDOUT, environment=None):
        """The exit code of a command that writes to the files `out` and `err`; sets `cut` if it
        was cut short."""
        if self.exit_code:
            self.cut = "interrupted"
            return self.exit_code
        most = max(1, min(HALF_AN_HOUR, round(self.seconds_left())))
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
