"""liqod daemons on test clusters, as processes: with an account of their own, or with a file and nothing else."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.testbed.cluster import Cluster
from tests.testbed.process import Process

CONFIGURATION = """\
[cluster]
name = "{name}"

[kubernetes]
kubeconfig = "{kubeconfig}"

[discovery]
interfaces = ["eth0"]

[leader]
identity = "{identity}"
{leader}
# Volumes of the tests are directories beside the cluster's files.
[storage]
node-paths = ["{directory}/*"]

# The image of the tests is on the nodes already, and no registry has it; the rest is what the tests' objects ask for.
[hosting]
image-pull-policy = "any"
annotations = ["example.com/"]
labels = ["example.com/"]
tolerations = ["mine", "made-up", "kwok.x-k8s.io/node"]
service-types = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]
ingress-hosts = ["example.com"]
"""
"""It ends within ``[hosting]``: what is appended may begin with settings of that section."""


class Daemon:
    """One ``twistd liqod`` in the network namespace of a cluster.

    ``name`` is the cluster's name for people; a second daemon of the same cluster gets another ``identity``.
    ``extra`` is appended to the configuration file; unless it says so there is no tunnel. ``leader`` is more of that
    section.
    """

    def __init__(
        self, cluster: Cluster, name: str, *, identity: str = "one", extra: str = "", leader: str = ""
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.identity = identity
        self.directory = cluster.directory / f"liqod-{identity}"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config = self.directory / "liqod.toml"
        self.kubeconfig = self.directory / "kubeconfig"
        values = {"name": name, "kubeconfig": self.kubeconfig, "identity": f"{cluster.name}-{identity}"}
        values["directory"] = cluster.directory
        values["leader"] = leader
        # Tests of other things need no tunnel, which two hosts that can hold one would make.
        network = "" if "[network]" in extra else '[network]\nmode = "none"\n\n'
        self.config.write_text(network + CONFIGURATION.format(**values) + extra)
        self.process: Process | None = None

    @property
    def log(self) -> Path:
        """The log of all starts."""
        return self.cluster.directory / f"liqod-{self.identity}.log"

    @property
    def pid(self) -> int:
        """The daemon's process ID."""
        assert self.process is not None
        return self.process.pid

    def install(self) -> None:
        """Prepare the cluster as its administrator, and write the daemon a kubeconfig of its own."""
        self.liqodctl("install", f"--config={self.config}", f"--daemon-kubeconfig={self.kubeconfig}")

    @property
    def running(self) -> bool:
        """Whether the daemon was started and has not ended."""
        return self.process is not None and self.process.running

    def start(self) -> None:
        """Start the daemon, in a cluster that is prepared for it, with the rights that it is given there."""
        if not self.kubeconfig.exists():
            self.install()
        self.process = self.cluster.spawn(
            f"liqod-{self.identity}",
            [
                str(Path(sys.executable).with_name("twistd")),
                "--nodaemon",
                "--pidfile=",
                "--reactor=asyncio",
                f"--rundir={self.directory}",
                "liqod",
                f"--config={self.config}",
            ],
        )

    def kill(self) -> None:
        """End the daemon as a crash would."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.stop(0.1)

    def stop(self) -> None:
        """End the daemon as systemd would."""
        if self.process is not None:
            self.process.stop(10.0)

    def liqodctl(self, *args: str, timeout: float = 120.0) -> str:
        """Run liqodctl on the daemon's own cluster and return what it prints."""
        program = str(Path(sys.executable).with_name("liqodctl"))
        return self.cluster.run([program, *args, f"--kubeconfig={self.cluster.kubeconfig}"], timeout=timeout)


class BareDaemon(Daemon):
    """A daemon that is given nothing but its configuration file: the kubeconfig it names is the administrator's.

    It prepares the cluster by itself, definitions included.
    """

    def __init__(self, cluster: Cluster, name: str, *, identity: str = "one", extra: str = "") -> None:
        super().__init__(cluster, name, identity=identity, extra=extra)
        text = self.config.read_text()
        self.config.write_text(text.replace(str(self.kubeconfig), str(cluster.kubeconfig)))
        self.kubeconfig = cluster.kubeconfig


class HostDaemon(Daemon):
    """A daemon in all namespaces of its cluster's host: what it starts ends with the cluster."""

    def start(self) -> None:
        """Start the daemon on the host."""
        spawn = self.cluster.spawn
        self.cluster.spawn = self.cluster.host.spawn  # type: ignore[method-assign]
        try:
            super().start()
        finally:
            self.cluster.spawn = spawn  # type: ignore[method-assign]
