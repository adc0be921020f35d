"""Two nodes on this machine: network namespaces joined by a link, for bench/scaling --nodes 2. Needs root,
CAP_NET_ADMIN and iproute2."""

import concurrent.futures
import os
import subprocess
import tempfile

from measure import ROOT, fail, json_lines, run

ADDRESS = "10.77.{}.{}"


def ip(*words):
    run(["ip", *words], "ip " + " ".join(words))


class TwoNodes:
    """A context in which the namespaces exist. mbit: the link's rate in each direction; None: as fast as memory."""

    def __init__(self, mbit=None):
        self.names = [f"barevision-{os.getpid()}-{node}" for node in (0, 1)]
        self.mbit = mbit
        self.network = os.getpid() % 250 + 1

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            a, b = self.names
            ip("link", "add", "veth0", "netns", a, "type", "veth", "peer", "name", "veth1", "netns", b)
            for node, name in enumerate(self.names):
                address = ADDRESS.format(self.network, node + 1) + "/24"
                ip("-n", name, "addr", "add", address, "dev", f"veth{node}")
                for device in ("lo", f"veth{node}"):
                    ip("-n", name, "link", "set", device, "up")
                if self.mbit:
                    rate = ("rate", f"{self.mbit}mbit", "burst", "1mb", "latency", "50ms")
                    ip("netns", "exec", name, "tc", "qdisc", "add", "dev", f"veth{node}", "root", "tbf", *rate)
        except (RuntimeError, OSError) as error:
            self.__exit__()
            fail(f"--nodes 2 needs root, CAP_NET_ADMIN and iproute2: {error}")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def train(self, arguments, what):
        """Runs the launcher on both nodes. Returns how node 0 finished and the lines of metrics.jsonl."""
        address = ADDRESS.format(self.network, 1)
        with tempfile.TemporaryDirectory(prefix="barevision-bench-") as folder:

            def on(node):
                command = ["ip", "netns", "exec", self.names[node], ROOT / "launcher", *arguments, "--out", folder + "/run"]
                return run([*command, "--nnodes", 2, "--node-rank", node, "--master-addr", address], what)

            with concurrent.futures.ThreadPoolExecutor() as both:
                finished = list(both.map(on, (0, 1)))
            return finished[0], json_lines(folder + "/run/metrics.jsonl")
