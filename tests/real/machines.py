"""A booted Debian that is the host of a cluster, with its administrator at a terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.real.chart_install import KINDS, MORE
from tests.real.systemd_boot import LEFT_BEHIND, package
from tests.real.terminal import on_terminal, plain
from tests.testbed import versions
from tests.testbed.cluster import Cluster
from tests.testbed.machine import Machine
from tests.testbed.process import CommandFailed

BESIDE: Final = ("wireguard-tools", "wireguard-go", "nftables", "conntrack", "polkitd", "ca-certificates")
"""What the package recommends or suggests: installed before it, so that what it brings itself can be seen."""
NETWORK: Final = (
    "[Match]\nName=eth0\n[Network]\nGateway=10.99.0.1\nLinkLocalAddressing=no\n"
    "[Address]\nAddress={address}/24\nBroadcast=no\n"
)
"""The host's own network, by systemd-networkd, as it is without it.

An address that differs in its broadcast networkd sets again and again, thousands of times a second: the kernel leaves
it as it is.
"""
TABLES: Final = ("18951", "18952")
"""The tables of routes that liqod's policy rules look up."""
OF_PODS: Final = ("veth", "cni0", "table ip nat", "table ip6 nat", "table ip filter", "table ip6 filter")
"""What the first pods of a node bring, which the network plugin makes and leaves."""
VOLATILE: Final = (
    *LEFT_BEHIND,
    "./etc/resolv.conf",
    "./var/lib/apt",
    "./var/lib/private",
    "./var/backups",  # Debian keeps copies of its databases there each night
    "./var/lib/systemd",
)
"""Where a running machine writes by itself."""
YES: Final = [("[y/N]", "y\n")]
"""One question is answered: who asks a second one waits until the command's time is over."""


class Host:
    """A booted machine and the cluster that it is a node of, with its administrator at a terminal."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.debian = Machine.create(Path(tempfile.mkdtemp()) / "root", netns=cluster.namespace, name=name)
        self.typed: list[tuple[str, float]] = []

    def furnish(self) -> None:
        """Have everything there that an administrator has before liqod comes, and boot."""
        root = self.debian.root
        self.debian.use_mirror()
        (root / "etc/apt/apt.conf.d/99test").write_text('APT::Get::Assume-Yes "true";\nDPkg::Use-Pty "false";\n')
        os.environ.setdefault("DEBIAN_FRONTEND", "noninteractive")
        self.debian.chroot("apt-get", "update")
        self.debian.chroot("apt-get", "install", "--no-install-recommends", *BESIDE)
        # The machine's users are files that it changes: not their content, only that they are there, is compared.
        self.debian.chroot("systemd-sysusers", "--inline", "u other -")
        shutil.copy(package(compression="gzip"), root / "root")
        shutil.copy(versions.program("kubectl"), root / "usr/local/bin/kubectl")
        (root / "etc/kubernetes").mkdir()
        shutil.copy(self.cluster.kubeconfig, root / "etc/kubernetes/admin.conf")
        (root / "etc/systemd/network/eth0.network").write_text(NETWORK.format(address=self.cluster.address))
        self.debian.chroot("systemctl", "enable", "systemd-networkd")
        # Without udev networkd never says that the network is online, and a unit that waits for that waits two minutes.
        self.debian.chroot("systemctl", "mask", "systemd-networkd-wait-online.service")
        self._boot()

    def types(self, *lines: str, timeout: float = 900.0) -> str:
        """Type lines at a terminal, in one shell; whatever is asked is answered with yes. Returns what stays there."""
        script = "\n".join(("cd /root", "set -e", *lines))
        shown = on_terminal([*self.debian.entry(), "sh", "-c", script], timeout=timeout, answers=YES)
        if shown.status != 0:
            raise AssertionError(f"{self.name}: {lines}: {shown.status}: {shown.text}\n{self.journal()[-6000:]}")
        self.typed.append(("; ".join(lines), shown.seconds))
        return plain(shown.text)

    def files(self) -> set[str]:
        """Return path, mode, owner and target of everything in the machine but what it writes by itself."""
        words = ["find", ".", "-xdev", "-printf", "%p %M %u %l\n"]
        found = subprocess.run(words, cwd=self.debian.root, check=True, capture_output=True, text=True).stdout
        # dpkg removes a directory that it shares with a package and that is empty.
        return {line for line in found.splitlines() if not line.startswith((*VOLATILE, "./opt "))}

    def objects(self) -> set[str]:
        """Return what there is in the cluster of the kinds that an installation makes."""
        found = self.cluster.get(f"{KINDS},{MORE},nodes", "-A")["items"]
        names = {f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}" for one in found}
        return {name for name in names if not name.startswith(("Lease kube-", "Secret kube-"))}

    def network(self) -> set[str]:
        """Return the rules, tables and devices of the host's network, without those of pods."""
        rules = [self.cluster.run(["ip", f"-{version}", "rule"]) for version in "46"]
        tables = self.cluster.run(["nft", "list", "tables"])
        devices = self.cluster.run(["ip", "-brief", "link"])
        lines = "\n".join((*rules, tables, *(line.split()[0] for line in devices.splitlines()))).splitlines()
        return {line.strip() for line in lines if not line.startswith(OF_PODS)}

    def journal(self) -> str:
        """Return what the services of liqod wrote since the machine booted."""
        return self.debian.run("journalctl", "--no-pager", "--output=cat", "--unit=liqod*")

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.debian.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def reboot(self) -> None:
        """Reboot the machine; the kernel forgets what a reboot makes it forget, although the cluster's node goes on."""
        self.debian.reboot(self._forget)
        self._unlock()

    def _boot(self) -> None:
        self.debian.boot()
        self._unlock()

    def _unlock(self) -> None:
        # In a container these are read-only, on a host they are not.
        self.debian.run("mount", "-o", "remount,bind,rw", "/proc/sys", ok=False)

    def _forget(self) -> None:
        for version in "46":
            for line in self.cluster.run(["ip", f"-{version}", "rule"]).splitlines():
                if line.split()[-1] in TABLES or any(f"lookup {table}" in line for table in TABLES):
                    self.cluster.run(["ip", f"-{version}", "rule", "del", "priority", line.partition(":")[0]])
            for table in TABLES:
                with contextlib.suppress(CommandFailed):
                    self.cluster.run(["ip", f"-{version}", "route", "flush", "table", table])
        for line in self.cluster.run(["nft", "list", "tables"]).splitlines():
            if "liqod" in line:
                self.cluster.run(["nft", "delete", *line.split()])
        for line in self.cluster.run(["ip", "-brief", "link"]).splitlines():
            if line.startswith("liqod"):
                self.cluster.run(["ip", "link", "del", line.split()[0]])
