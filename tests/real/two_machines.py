"""Two booted machines with the Debian package, peered by the README's own commands: networkd, a reboot, removal.

Each machine is a Debian with systemd in a container, in the network namespace of the node of a real cluster: a control
plane node, as far as liqod is concerned. The steps run in the order of their names.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.real.base import made_once, require_clusters
from tests.real.chart_install import KINDS, MORE
from tests.real.path import deployment, eventually, is_running, live_pods, node_ready, offloaded, peer_of
from tests.real.readme import BORROW, INSTALL, by_cluster, lines_of, undoing
from tests.real.systemd_boot import LEFT_BEHIND, package
from tests.real.terminal import on_terminal, plain
from tests.real.test_network import WEB, fetch
from tests.testbed import machine, versions
from tests.testbed.cluster import Cluster
from tests.testbed.machine import Machine
from tests.testbed.process import CommandFailed
from tests.testbed.testbed import Testbed

ROME: Final = "rome"
MILAN: Final = "milan"
NAMESPACE: Final = "shop"
SERVER: Final = "server"
CLIENT: Final = "client"
BESIDE: Final = ("wireguard-tools", "wireguard-go", "nftables", "conntrack", "polkitd", "ca-certificates")
"""What the package recommends or suggests: installed before it, so that what it brings itself can be seen."""
CONFIGURATION: Final = '[hosting]\nimage-pull-policy = "any"\n'
"""The image of the tests is on the nodes already, and no registry has it."""
NETWORK: Final = "[Match]\nName=eth0\n[Network]\nAddress={address}/24\nGateway=10.99.0.1\nLinkLocalAddressing=no\n"
"""The host's own network, by systemd-networkd, as it is without it."""
TABLES: Final = ("18951", "18952")
"""The tables of routes that liqod's policy rules look up."""
OF_PODS: Final = ("veth", "cni0", "table ip nat", "table ip6 nat", "table ip filter", "table ip6 filter")
"""What the first pods of a node bring, which the network plugin makes and leaves."""
UNWANTED: Final = ("Traceback", "plugin cache", "Permission denied")
VOLATILE: Final = (
    *LEFT_BEHIND,
    "./etc/resolv.conf",
    "./var/lib/apt",
    "./var/lib/private",
    "./var/lib/systemd",
)
"""Where a running machine writes by itself."""
YES: Final = [("[y/N]", "y\n")]


class Host:
    """A booted machine and the cluster that it is a node of, with its administrator at a terminal."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.debian = Machine.create(Path(tempfile.mkdtemp()) / "root", netns=cluster.namespace, name=name)

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
        shutil.copy(package(), root / "root")
        shutil.copy(versions.program("kubectl"), root / "usr/local/bin/kubectl")
        (root / "etc/kubernetes").mkdir()
        shutil.copy(self.cluster.kubeconfig, root / "etc/kubernetes/admin.conf")
        (root / "etc/systemd/network/eth0.network").write_text(NETWORK.format(address=self.cluster.address))
        self.debian.chroot("systemctl", "enable", "systemd-networkd")
        # Without udev networkd never says that the network is online, and a unit that waits for that waits two minutes.
        self.debian.chroot("systemctl", "mask", "systemd-networkd-wait-online.service")
        self._boot()

    def types(self, *lines: str, timeout: float = 400.0) -> str:
        """Type lines at a terminal, in one shell; whatever is asked is answered with yes. Returns what stays there."""
        script = "\n".join(("cd /root", "set -e", *lines))
        shown = on_terminal([*self.debian.entry(), "sh", "-c", script], timeout=timeout, answers=YES)
        assert shown.status == 0, f"{self.name}: {lines}: {shown.status}: {shown.text}"
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


class MachinesTests(SynchronousTestCase):
    """rome and milan, from bare hosts to a peering and back to bare hosts."""

    _hosts: ClassVar[dict[str, Host]] = {}
    _before: ClassVar[dict[str, tuple[set[str], set[str], set[str]]]] = {}

    def setUp(self) -> None:
        made_once(MachinesTests, self._make)
        self.rome, self.milan = self._hosts[ROME], self._hosts[MILAN]

    def _make(self) -> None:
        require(machine.missing() or ("" if shutil.which("dpkg-deb") else "dpkg-deb is not installed"))
        require_clusters()
        testbed = Testbed(2, nodes=True, same_pod_cidr=True)
        atexit.register(testbed.stop)
        testbed.start()
        for number, name in enumerate((ROME, MILAN), 1):
            host = self._hosts[name] = Host(name, testbed[number])
            atexit.register(host.debian.stop)
            host.furnish()
        for name, host in self._hosts.items():
            self._before[name] = host.files(), host.objects(), host.network()

    def until(self, what: str, done: Callable[[], Any]) -> Any:
        """Wait for a state, and show what the daemons said if it does not come."""
        try:
            return eventually(what, done, 240)
        except AssertionError as error:
            said = "\n".join(f"--- {host.name}\n{host.journal()[-6000:]}" for host in self._hosts.values())
            raise AssertionError(f"{error}\n{said}") from error

    def connected(self, host: Host, other: Host) -> bool:
        """Tell whether packets cross to a peer."""
        peer = peer_of(host.cluster, other.name)["metadata"]["name"]
        return bool(host.cluster.get("tunnelendpoint", peer).get("status", {}).get("phase") == "Connected")

    def are_peered(self) -> None:
        """Wait until each has a virtual node that is Ready, and the tunnel is up at both."""
        for host, other in ((self.rome, self.milan), (self.milan, self.rome)):
            self.until(f"the virtual node of {host.name} is Ready", partial(node_ready, host.cluster))
            self.until(f"the tunnel of {host.name} is up", partial(self.connected, host, other))

    def pod_calls_pod(self) -> bool:
        """Tell whether the pod at home gets the page of the one at milan."""
        (client,) = live_pods(self.rome.cluster, CLIENT)
        (server,) = live_pods(self.rome.cluster, SERVER).values()
        return "hello" in fetch(self.rome.cluster, client, NAMESPACE, server["status"]["podIP"])

    def rules(self, host: Host) -> set[str]:
        """Return the policy rules of liqod on a host."""
        return {line for line in host.network() if any(f"lookup {table}" in line for table in TABLES)}

    def assert_clean(self, host: Host) -> None:
        """Have nothing in the journal that an administrator would have to look into."""
        journal = host.journal()
        self.assertIn("liqod", journal)
        self.assertEqual([word for word in UNWANTED if word in journal], [], journal[-8000:])

    def test_01_peer(self) -> None:
        """The README's commands, word for word: the package on both, and a token from the one to the other."""
        lines = by_cluster(lines_of(INSTALL))
        self.assertEqual(set(lines), {ROME, MILAN})
        self.assertEqual([len(each) for each in lines.values()], [3, 3])
        token = ""
        for host in (self.milan, self.rome):
            install, *others = lines[host.name]
            self.assertTrue(install.startswith("apt install "), install)
            host.types(install)
            (host.debian.root / "etc/liqod/liqod.toml").write_text(CONFIGURATION)
            said = host.types(*(line.replace("TOKEN", token) for line in others)).splitlines()
            token = said[-1].strip()
            for question in ("is-active", "is-enabled"):
                host.debian.run("systemctl", question, "liqod.service")
        self.are_peered()

    def test_02_a_pod_runs_there(self) -> None:
        """A namespace that is offloaded as the README says: a pod runs in the other cluster, and one here calls it."""
        lines = lines_of(BORROW)
        self.rome.types("export KUBECONFIG=/etc/kubernetes/admin.conf", *lines[:2])
        offloading = [line for line in lines if f"namespace {NAMESPACE}" in line]
        self.assertEqual(len(offloading), 2)
        self.rome.types("export KUBECONFIG=/etc/kubernetes/admin.conf", *offloading)
        server, client = deployment(SERVER, 1), deployment(CLIENT, 1)
        for one in (server, client):
            one["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", WEB]
        client["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.rome.cluster.node_name}
        self.rome.cluster.apply(server, client)
        self.until("the server runs at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, SERVER, 1))
        self.until("the client runs", lambda: all(map(is_running, live_pods(self.rome.cluster, CLIENT).values())))
        self.until("the client gets the page", self.pod_calls_pod)

    def test_03_networkd(self) -> None:
        """systemd-networkd, restarted beside the tunnel on both hosts: the rules are there, and packets pass again."""
        for host in (self.rome, self.milan):
            rules = self.rules(host)
            self.assertNotEqual(rules, set())
            host.debian.run("systemctl", "restart", "systemd-networkd.service")
            host.debian.run("systemctl", "is-active", "systemd-networkd.service")
            self.until("the rules are there", partial(self._has, host, rules))
            self.until("the client gets the page", self.pod_calls_pod)
        self.are_peered()

    def _has(self, host: Host, rules: set[str]) -> bool:
        return self.rules(host) == rules

    def test_04_reboot(self) -> None:
        """rome reboots: service, peering and tunnel are back by themselves, and the same pods talk again."""
        uids = {pod["metadata"]["uid"] for pod in live_pods(self.rome.cluster, SERVER).values()}
        rules = self.rules(self.rome)
        self.assert_clean(self.rome)
        self.rome.reboot()
        self.until("the service runs", lambda: self.rome.debian.run("systemctl", "is-active", "liqod.service"))
        self.are_peered()
        self.until("the rules are there", partial(self._has, self.rome, rules))
        self.until("the client gets the page", self.pod_calls_pod)
        self.assertEqual({pod["metadata"]["uid"] for pod in live_pods(self.rome.cluster, SERVER).values()}, uids)

    def test_05_journal(self) -> None:
        """Neither journal has a traceback, nor any other trouble of the service."""
        for host in (self.rome, self.milan):
            self.assert_clean(host)

    def test_06_removed(self) -> None:
        """The README's undo, and the package purged: files, objects and networks are what they were before."""
        kubeconfig = "export KUBECONFIG=/etc/kubernetes/admin.conf"
        self.rome.types(kubeconfig, undoing("unoffload"))
        self.rome.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s", timeout=200)
        self.rome.types(kubeconfig, undoing("unpeer"))
        for host in (self.rome, self.milan):
            self.assert_clean(host)
            host.types(kubeconfig, undoing("down"))
            host.types("apt purge liqod")
        for host in (self.rome, self.milan):
            files, objects, network = self._before[host.name]
            self.assertEqual(host.files() ^ files, set(), host.name)
            self.until("the objects are what they were", partial(self._is, host.objects, objects))
            self.until("the network is what it was", partial(self._is, host.network, network))

    def _is(self, now: Callable[[], set[str]], before: set[str]) -> bool:
        self.assertEqual(now() ^ before, set())
        return True
