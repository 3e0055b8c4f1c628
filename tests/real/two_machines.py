"""Two booted machines with the Debian package, peered by the README's own commands: under load, a reboot, removal.

Each machine is a Debian with systemd in a container, in the network namespace of the node of a real cluster: a control
plane node, as far as liqod is concerned. The steps run in the order of their names. Between the lines of the README
nothing is written on a machine: the image that it names is in a registry that the nodes ask, as those of a company ask
its mirror. Figures are printed, and kept in ``.cache/figures/machines.txt``.
"""

from __future__ import annotations

import atexit
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Final

from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.converge import PERIOD
from tests.environment import require
from tests.real.base import made_once, require_clusters
from tests.real.figures import keep
from tests.real.load import Load
from tests.real.machines import TABLES, Host
from tests.real.path import deployment, eventually, is_running, live_pods, node_ready, offloaded, peer_of
from tests.real.readme import BORROW, INSTALL, OPERATIONS, SPLIT, by_cluster, lines_of, undoing, upgrading
from tests.real.systemd_boot import package
from tests.real.test_network import WEB, fetch
from tests.testbed import image_registry, machine
from tests.testbed.node import use_registry
from tests.testbed.testbed import Testbed

ROME: Final = "rome"
MILAN: Final = "milan"
NAMESPACE: Final = "shop"
WORKLOAD: Final = "web"
"""The README's own deployment."""
SERVER: Final = "server"
CLIENT: Final = "client"
IMAGE: Final = "busybox:1"
APPS: Final = (WORKLOAD, SERVER, CLIENT)
KUBECONFIG: Final = "export KUBECONFIG=/etc/kubernetes/admin.conf"
LATER: Final = "0.2.0"
"""The release that the package is upgraded to: one minor release later, with what this one has."""
UNWANTED: Final = ("Traceback", "plugin cache", "Permission denied")
FIGURES: Final = "machines"
SPLIT_UNITS: Final = {"liqod-control": "liqod", "liqod-network": "liqod-network", "liqod-names": "liqod-names"}
"""The units of a split daemon, each with its user."""
NAMES: Final = '[names]\nenabled = true\nupstream = ["192.0.2.53"]\n'
"""For the process that answers for names; the test clusters have no DNS that it could ask."""
NETWORK_RIGHTS: Final = 1 << 12 | 1 << 13
"""CAP_NET_ADMIN and CAP_NET_RAW, as /proc shows them."""
CHANGED: Final = "changing the network"


class MachinesTests(SynchronousTestCase):
    """rome and milan, from bare hosts to a peering and back to bare hosts."""

    _hosts: ClassVar[dict[str, Host]] = {}
    _before: ClassVar[dict[str, tuple[set[str], set[str], set[str]]]] = {}
    _begin: ClassVar[float] = 0.0

    def setUp(self) -> None:
        made_once(MachinesTests, self._make)
        self.rome, self.milan = self._hosts[ROME], self._hosts[MILAN]

    def _make(self) -> None:
        require(machine.missing())
        require_clusters()
        testbed = Testbed(2, nodes=True, same_pod_cidr=True)
        atexit.register(testbed.stop)
        with ThreadPoolExecutor(3) as beside:
            packages = [beside.submit(package, release, compression="gzip") for release in ("", LATER)]
            testbed.start()
            for built in packages:
                built.result()
        images = testbed.directory / "registry"
        images.mkdir()
        image_registry.add_usual(images, testbed.directory / "image.tar")
        atexit.register(image_registry.start(testbed.lan, images).stop)
        for number, name in enumerate((ROME, MILAN), 1):
            use_registry(testbed[number].host, image_registry.URL)
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

    def loaded(self) -> Load:
        """Return load between the clusters that flows, and ends with the test."""
        load = Load(self.rome.cluster, self.milan.cluster, APPS)
        self.addCleanup(load.stop)
        load.start(CLIENT, SERVER)
        return load

    def tunnel(self, host: Host) -> str:
        """Return the process of the tunnel; systemd guesses which one it is, and not always."""
        return host.debian.run("pgrep", "--exact", "wireguard-go", ok=False).strip()

    def is_another_process(self, host: Host, unit: str, before: str) -> bool:
        """Tell whether a unit runs, and as another process than before."""
        return host.show(unit, "ActiveState") == "active" and host.show(unit, "MainPID") not in ("0", before)

    def test_01_peer(self) -> None:
        """The README's commands, word for word: the package on both, and a token from the one to the other."""
        lines = by_cluster(lines_of(INSTALL))
        self.assertEqual(set(lines), {ROME, MILAN})
        self.assertEqual([len(each) for each in lines.values()], [3, 3])
        type(self)._begin = time.monotonic()
        token = ""
        for host in (self.milan, self.rome):
            said = host.types(*(line.replace("TOKEN", token) for line in lines[host.name])).splitlines()
            token = said[-1].strip()
        for host in (self.milan, self.rome):
            for question in ("is-active", "is-enabled"):
                host.debian.run("systemctl", question, "liqod.service")
            keep(
                FIGURES,
                f"{host.name}: {host.typed[-1][1]:.1f} s for its {len(lines[host.name])} lines of the README",
            )
        self.are_peered()
        keep(
            FIGURES,
            f"{time.monotonic() - self._begin:.1f} s from the first command until both are peered with a tunnel",
        )

    def test_02_a_pod_runs_there(self) -> None:
        """The README's lines for who borrows, word for word: a pod of its deployment runs at milan, seconds later."""
        self.rome.types(KUBECONFIG, *lines_of(BORROW))
        self.until("a pod runs at milan", partial(self._running, 1, there=True))
        seconds = time.monotonic() - self._begin
        keep(FIGURES, f"{seconds:.1f} s from the first command to the first pod Running in the other cluster")
        keep(FIGURES, f"{sum(spent for _, spent in self.rome.typed):.1f} s of rome's commands in all")
        self.until("all pods run", partial(self._running, 3, there=False))

    def _running(self, count: int, *, there: bool) -> bool:
        """Tell whether so many pods of the README's deployment run, or so many of them at milan."""
        pods = live_pods(self.milan.cluster if there else self.rome.cluster, WORKLOAD)
        here = live_pods(self.rome.cluster, WORKLOAD)
        return sum(is_running(pod) and is_running(here[name]) for name, pod in pods.items()) >= count

    def test_03_pod_calls_pod(self) -> None:
        """A pod at home gets the page of an offloaded one."""
        server, client = deployment(SERVER, 1), deployment(CLIENT, 1)
        for one in (server, client):
            container = one["spec"]["template"]["spec"]["containers"][0]
            container |= {"command": ["sh", "-c", WEB], "image": IMAGE, "imagePullPolicy": "Always"}
        client["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.rome.cluster.node_name}
        self.rome.cluster.apply(server, client)
        self.until("the server runs at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, SERVER, 1))
        self.until("the client runs", lambda: all(map(is_running, live_pods(self.rome.cluster, CLIENT).values())))
        self.until("the client gets the page", self.pod_calls_pod)

    def test_04_verified(self) -> None:
        """systemd has nothing against any unit of the package, with all programs where the units name them."""
        listed = self.rome.debian.run("dpkg", "--listfiles", "liqod").split()
        installed = [path for path in listed if path.startswith("/lib/systemd/system/")]
        units = [name for path in installed if (name := path.rpartition("/")[2]).endswith(".service")]
        self.assertEqual(len(units), 6, units)
        words = ["systemd-analyze", "verify", *(name.replace("@", "@liqod") for name in units)]
        said = self.rome.debian.run("sh", "-c", f"{' '.join(words)} 2>&1", ok=False)
        self.assertEqual([line for line in said.splitlines() if "liqod" in line], [])

    def test_05_networkd(self) -> None:
        """systemd-networkd, restarted beside the tunnel on both hosts: rules and connection are there, packets pass."""
        load = self.loaded()
        for host in (self.rome, self.milan):
            rules = self.rules(host)
            self.assertNotEqual(rules, set())
            host.debian.run("systemctl", "restart", "systemd-networkd.service")
            host.debian.run("systemctl", "is-active", "systemd-networkd.service")
            self.until("the rules are there", partial(self._has, host, rules))
            self.until("the client gets the page", self.pod_calls_pod)
        keep(FIGURES, f"systemd-networkd restarted on both hosts: {load.assert_unharmed()}")
        self.are_peered()

    def _has(self, host: Host, rules: set[str]) -> bool:
        return self.rules(host) == rules

    def test_06_restart(self) -> None:
        """The service restarts on both hosts while data flows: no pod restarts, and the connection goes on."""
        load = self.loaded()
        for host in (self.rome, self.milan):
            before = host.show("liqod", "MainPID")
            host.debian.run("systemctl", "restart", "liqod")
            self.until("another process runs", partial(self.is_another_process, host, "liqod", before))
            load.flows()
        self.are_peered()
        keep(FIGURES, f"systemctl restart liqod on both hosts: {load.assert_unharmed()}")

    def test_07_upgraded_and_back(self) -> None:
        """A later package and back to the earlier one, as the guide has it, on both hosts while data flows."""
        load = self.loaded()
        for built in (package(LATER, compression="gzip"), package(compression="gzip")):
            release = built.name.split("_")[1].partition("-")[0]
            for host in (self.rome, self.milan):
                before, tunnel = host.show("liqod", "MainPID"), self.tunnel(host)
                shutil.copy(built, host.debian.root / "root" / f"liqod_{release}.deb")
                lines = upgrading("Debian package")[0 if release == LATER else 1]
                host.types(KUBECONFIG, *(line.replace("NEW", release).replace("OLD", release) for line in lines))
                spent = host.typed[-1][1]
                (host.debian.root / "root" / f"liqod_{release}.deb").unlink()
                self.until("another process runs", partial(self.is_another_process, host, "liqod", before))
                self.assertNotEqual(tunnel, "")
                self.assertEqual(self.tunnel(host), tunnel)
                said = host.debian.run("dpkg-query", "--show", "--showformat=${Version}", "liqod")
                self.assertEqual(said, f"{release}-1")
                self.assertIn(release, host.debian.run("liqodctl", "--version"))
                load.flows()
                keep(FIGURES, f"{host.name}: {spent:.1f} s for {'; '.join(lines)}, with {release}")
            self.are_peered()
            keep(FIGURES, f"package {release} on both hosts: {load.assert_unharmed()}")
        for host in (self.rome, self.milan):
            self.assert_clean(host)

    def has_another_tunnel(self, before: str) -> bool:
        """Tell whether one process carries the tunnel of rome, and not that of before."""
        now = self.tunnel(self.rome)
        return now.isdecimal() and now != before

    def test_08_tunnel_ends(self) -> None:
        """Where wireguard-go ends, or hangs after its device is gone, it is started again, and pods talk again."""
        for signal in ("TERM", "STOP"):
            before = self.tunnel(self.rome)
            self.rome.debian.run("kill", f"-{signal}", before)
            if signal == "STOP":
                self.rome.debian.run("ip", "link", "del", "liqod")
            self.until("it runs again", partial(self.has_another_tunnel, before))
            self.until("the client gets the page", self.pod_calls_pod)
            self.are_peered()

    def test_09_split(self) -> None:
        """At milan three processes instead of one, by the package's units: ready, bounded, tunnel and journal good."""
        configuration = self.milan.debian.root / "etc/liqod/liqod.toml"
        configuration.write_text(configuration.read_text().replace("[names]\n", NAMES))
        self.milan.types(*lines_of(SPLIT, OPERATIONS))
        for unit, user in SPLIT_UNITS.items():
            self.assertEqual(self.milan.show(unit, "ActiveState"), "active", unit)
            process = self.milan.show(unit, "MainPID")
            self.assertEqual(self.milan.debian.run("ps", "-o", "user:20=", "-p", process).strip(), user)
            status = self.milan.debian.run("cat", f"/proc/{process}/status")
            found = {key: value.strip() for key, _, value in (line.partition(":") for line in status.splitlines())}
            rights = NETWORK_RIGHTS if unit == "liqod-network" else 0
            self.assertEqual(
                (int(found["CapEff"], 16), int(found["CapBnd"], 16), found["NoNewPrivs"], found["Seccomp"]),
                (rights, rights, "1", "2"),
                unit,
            )
            self.assertEqual(self.milan.show(unit, "NRestarts"), "0")
        self.assertEqual(self.milan.debian.run("systemctl", "is-active", "liqod", ok=False).strip(), "inactive")
        self.until("the client gets the page", self.pod_calls_pod)
        self.are_peered()
        self.assertEqual(self.milan.show("liqod-network-tunnel@liqod", "ActiveState"), "active")
        self.assertEqual(self.milan.show("liqod-network-tunnel@liqod", "User"), "liqod-network")
        self.assert_clean(self.milan)

    def test_10_reboot(self) -> None:
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

    def test_11_journal(self) -> None:
        """Neither journal has a traceback or other trouble; at rest the network is observed, and not changed again."""
        for host in (self.rome, self.milan):
            self.assert_clean(host)
        self.until("nothing is changed any more", self.rests)

    def rests(self) -> bool:
        """Tell whether three passes of both hosts change nothing."""
        before = [host.journal().count(CHANGED) for host in (self.rome, self.milan)]
        time.sleep(3 * PERIOD)
        return before == [host.journal().count(CHANGED) for host in (self.rome, self.milan)]

    def test_12_removed(self) -> None:
        """The README's undo, and the package purged: files, objects and networks are what they were before."""
        self.rome.types(KUBECONFIG, undoing("unoffload"))
        self.rome.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s", timeout=200)
        self.rome.types(KUBECONFIG, undoing("unpeer"))
        for host in (self.rome, self.milan):
            self.assert_clean(host)
            host.types(KUBECONFIG, undoing("down"))
            host.types("apt purge liqod")
        for host in (self.rome, self.milan):
            files, objects, network = self._before[host.name]
            self.assertEqual(host.files() ^ files, set(), host.name)
            self.until("the objects are what they were", partial(self._is, host.objects, objects))
            self.until("the network is what it was", partial(self._is, host.network, network))
            counted = f"{len(files)} files, {len(objects)} objects, {len(network)} rules, tables and devices"
            keep(FIGURES, f"{host.name}, removed: {counted}, as before the installation")

    def _is(self, now: Callable[[], set[str]], before: set[str]) -> bool:
        self.assertEqual(now() ^ before, set())
        return True
