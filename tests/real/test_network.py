"""Pods of two real clusters with the same pod network talk with each other, through services and by address."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

from liqod.model.names import REFLECTED_SLICE
from tests.real.daemons import Daemon, HostDaemon
from tests.real.manifests import service, slice_of
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    condition,
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
    virtual_node,
)
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed

SERVER, CLIENT, FAR = "server", "client", "far"
PORT = "8080"
MACHINE, CLOSED_PORT, EXPORTING = "machine", "8081", "exporting"
SIZES, SIZES_PORT = str(Path(__file__).parents[1] / "netns" / "sizes.py"), "7010"
WEB = "echo hello from the pod > /tmp/index.html; exec busybox httpd -f -v -p 8080 -h /tmp"
HELD = (
    ("ip", "rule"),
    ("ip", "route", "show", "table", "18952"),
    ("wg", "show", "liqod", "public-key"),
    ("wg", "show", "liqod", "allowed-ips"),
    ("ip", "-brief", "address", "show", "dev", "liqod"),
)
"""What shows what the network has on a gateway's host."""
CONFIGURATION = """
[network]
mode = "wireguard"
"""


def fetch(cluster: Cluster, pod: str, namespace: str, address: str) -> str:
    """Have a pod fetch a page from an address."""
    script = f"printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} {PORT}"
    return cluster.kubectl("exec", "-n", namespace, pod, "--", "sh", "-c", script)


LARGE = 100
"""Megabytes of the large transfers."""
FETCH_LARGE = (
    "printf 'GET /large HTTP/1.0\\r\\n\\r\\n' | nc -w 60 {address} {port} |"
    " {{ while read -r line; do [ ${{#line}} -le 1 ] && break; done; sha256sum; }}"
)
"""A line of shell that fetches the large file and says the checksum of what came after the header."""


def make_large(cluster: Cluster, pod: str, namespace: str) -> str:
    """Have a pod make a large file of chance bytes and serve it; returns its checksum."""
    script = f"dd if=/dev/urandom of=/tmp/large bs=1048576 count={LARGE} 2>/dev/null; sha256sum /tmp/large"
    return cluster.kubectl("exec", "-n", namespace, pod, "--", "sh", "-c", script, timeout=120).split()[0]


def fetch_large(cluster: Cluster, pod: str, namespace: str, address: str) -> str:
    """Have a pod fetch the large file from an address; returns the checksum of what arrived."""
    script = FETCH_LARGE.format(address=address, port=PORT)
    return cluster.kubectl("exec", "-n", namespace, pod, "--", "sh", "-c", script, timeout=300).split()[0]


def inside_pod(cluster: Cluster, pod: dict[str, Any]) -> list[str]:
    """Return what to put before a command line so that it runs in the network namespace of a pod's container."""
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    tasks = cluster.host.run(["ctr", "--namespace", "k8s.io", "tasks", "list"])
    (process,) = [line.split()[1] for line in tasks.splitlines() if line.startswith(container)]
    return ["nsenter", f"--net=/proc/{process}/ns/net"]


def start_on_node(daemon: Daemon) -> None:
    """Start a daemon on the second host of a cluster, that leads its pods to the first."""
    worker = daemon.cluster.workers[0]
    config = worker.directory / "liqod.toml"
    config.write_text(
        f'[kubernetes]\nkubeconfig = "{daemon.kubeconfig}"\n[network]\nmode = "wireguard"\nrole = "node"\n'
    )
    twistd = str(Path(sys.executable).with_name("twistd"))
    words = ["--nodaemon", "--pidfile=", "--reactor=asyncio", f"--rundir={worker.directory}"]
    worker.host.spawn("liqod", [twistd, *words, "liqod", f"--config={config}"])


class NetworkTests(PairTests):
    """One walk: peering, tunnel, pods on both sides, traffic in both directions, restarts, the end."""

    configuration = CONFIGURATION
    same_pod_cidr = True
    workers = 1
    # One cluster with each way of kube-proxy.
    shape: ClassVar[dict[str, Any]] = {"dns": True, "proxies": ("nftables", "iptables")}
    daemon_class = HostDaemon

    def network(self, daemon: Daemon, other: Daemon) -> dict[str, Any]:
        """Return the NetworkConfig of a peer."""
        peer = peer_of(daemon.cluster, other.name)["metadata"]["name"]
        return dict(daemon.cluster.get("networkconfig", peer))

    def tunnel(self, daemon: Daemon, other: Daemon) -> dict[str, Any]:
        """Return the status of the tunnel to a peer."""
        peer = peer_of(daemon.cluster, other.name)["metadata"]["name"]
        return dict(daemon.cluster.get("tunnelendpoint", peer).get("status", {}))

    def connected(self, daemon: Daemon, other: Daemon) -> bool:
        """Tell whether packets cross to a peer."""
        return bool(self.tunnel(daemon, other).get("phase") == "Connected")

    def seen(self, daemon: Daemon, other: Daemon, address: str) -> str:
        """Return how an address of the other cluster reads here."""
        network = self.network(daemon, other)
        before, after = network["status"]["remote"]["podCIDRs"][0], network["spec"]["remap"]["podCIDRs"][0]
        self.assertTrue(before.endswith("/16"))
        return ".".join([*after.split(".")[:2], *address.split(".")[2:]])

    def ask(self, cluster: Cluster, pod: str, namespace: str, address: str) -> str:
        """Have a pod fetch a page from an address."""
        return fetch(cluster, pod, namespace, address)

    def test_01_tunnel(self) -> None:
        """Acceptance alone brings the tunnel up: packets cross, and each virtual node is Ready."""
        trust_each_other(self.rome, self.milan)
        for daemon, other in ((self.rome, self.milan), (self.milan, self.rome)):
            eventually("the tunnel", partial(self.connected, daemon, other))
            eventually("the virtual node is Ready", partial(node_ready, daemon.cluster))
            network = self.network(daemon, other)
            self.assertEqual(network["status"]["phase"], "Agreed")
            self.assertNotEqual(network["spec"]["remap"]["podCIDRs"], network["status"]["remote"]["podCIDRs"])

    def test_02_pods(self) -> None:
        """An offloaded server has, at home, the address by which home reaches it."""
        server, client = deployment(SERVER, 1), deployment(CLIENT, 1)
        for one in (server, client):
            container = one["spec"]["template"]["spec"]["containers"][0]
            container["command"] = ["sh", "-c", WEB]
        client["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.rome.cluster.node_name}
        services = [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"selector": {"app": name}, "ports": [{"port": 8080}]},
            }
            for name in (SERVER, CLIENT)
        ]
        self.rome.cluster.apply(enabled_namespace(), server, client, *services)
        home = eventually(
            "the server runs at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, SERVER, 1)
        )
        eventually(
            "the client runs at home", lambda: all(_runs(pod) for pod in self.clients().values()) and self.clients()
        )
        (pod,) = home.values()
        (remote,) = live_pods(self.milan.cluster, SERVER).values()
        self.assertEqual(pod["status"]["podIP"], self.seen(self.rome, self.milan, remote["status"]["podIP"]))
        self.assertNotEqual(pod["status"]["podIP"], remote["status"]["podIP"])

    def clients(self) -> dict[str, dict[str, Any]]:
        """Return the client pods at home."""
        return live_pods(self.rome.cluster, CLIENT)

    def test_03_by_service(self) -> None:
        """A pod at home calls the service; the server in the other cluster sees the pod's mapped address."""
        (name,) = self.clients()
        address = self.rome.cluster.get("service", SERVER, "-n", NAMESPACE)["spec"]["clusterIP"]
        eventually("an answer by service", lambda: "hello" in self.ask(self.rome.cluster, name, NAMESPACE, address))
        (remote,) = live_pods(self.milan.cluster, SERVER).values()
        self.logged(self.milan, remote, self.seen(self.milan, self.rome, self.clients()[name]["status"]["podIP"]))

    def logged(self, daemon: Daemon, pod: dict[str, Any], caller: str) -> None:
        """Wait until the log of a pod names a caller: what it says reaches the log a moment later."""
        words = ("logs", "-n", pod["metadata"]["namespace"], pod["metadata"]["name"])
        eventually(f"the log names {caller}", lambda: caller in daemon.cluster.kubectl(*words))

    def test_04_back(self) -> None:
        """The offloaded pod calls a pod at home by the address that its cluster sees."""
        (remote,) = live_pods(self.milan.cluster, SERVER).values()
        (client,) = self.clients().values()
        address = self.seen(self.milan, self.rome, client["status"]["podIP"])
        meta = remote["metadata"]
        eventually("an answer", partial(self.answered, self.milan.cluster, meta["name"], meta["namespace"], address))

    def test_0401_large(self) -> None:
        """A hundred megabytes pass through the service unharmed, from either cluster to the other."""
        (name,) = self.clients()
        (remote,) = live_pods(self.milan.cluster, SERVER).values()
        there: tuple[str, str] = (remote["metadata"]["name"], remote["metadata"]["namespace"])
        here = (name, NAMESPACE)
        for fetching, fetcher, serving, server, called in (
            (self.rome, here, self.milan, there, SERVER),
            (self.milan, there, self.rome, here, CLIENT),
        ):
            made = make_large(serving.cluster, *server)
            address = fetching.cluster.get("service", called, "-n", fetcher[1])["spec"]["clusterIP"]
            eventually("the service", partial(self.answered, fetching.cluster, *fetcher, address))
            started = time.monotonic()
            self.assertEqual(fetch_large(fetching.cluster, *fetcher, address), made)
            print(f"\n{LARGE} MB to {fetching.name} in {time.monotonic() - started:.1f} s")

    def answered(self, cluster: Cluster, pod: str, namespace: str, address: str) -> bool:
        """Tell whether a pod gets a page from an address."""
        return "hello" in self.ask(cluster, pod, namespace, address)

    def test_0402_sizes(self) -> None:
        """Packets of every size from 576 to 9000 that may not be fragmented pass as they are, or are refused."""
        (client,) = self.clients().values()
        (remote,) = live_pods(self.milan.cluster, SERVER).values()
        ends = (self.rome, client), (self.milan, remote)
        for (daemon, pod), (other, target) in permutations(ends):
            to = self.seen(daemon, other, target["status"]["podIP"])
            begin = [*inside_pod(other.cluster, target), sys.executable, "-S", SIZES]
            server = other.cluster.host.spawn("sizes", [*begin, "echo", SIZES_PORT])
            try:
                eventually("the echo", partial(self.every_size, daemon, pod, to), 120)
            finally:
                server.stop()

    def every_size(self, daemon: Daemon, pod: dict[str, Any], address: str) -> bool:
        """Send packets of all sizes from a pod's network: all that fit the tunnel come back, others are refused."""
        inside = inside_pod(daemon.cluster, pod)
        # Of earlier tries it shall remember nothing.
        daemon.cluster.host.run([*inside, "ip", "route", "flush", "cache"])
        words = [sys.executable, "-S", SIZES, "sweep", address, SIZES_PORT, "do", "576", "9000"]
        swept = json.loads(daemon.cluster.host.run([*inside, *words], timeout=240))
        print(f"\n{swept}")
        wanted = {"passed": [[576, 1420]], "refused": [[1421, 9000]], "vanished": [], "harmed": []}
        self.assertEqual(swept, wanted)
        return True

    def name_called(self, cluster: Cluster, pod: str, namespace: str, name: str) -> str:
        """Have a pod look a service up by its name at home, wherever it runs, and fetch a page from what it found."""
        said = cluster.kubectl(
            "exec", "-n", namespace, pod, "--", "nslookup", "-type=a", f"{name}.{NAMESPACE}.svc.cluster.local"
        )
        address = re.findall(r"Address:\s+([0-9.]+)$", said, re.MULTILINE)[-1]
        return self.ask(cluster, pod, namespace, address)

    def test_041_by_name(self) -> None:
        """Pods on both sides call a service by its DNS name, whichever cluster its pods run in."""
        (name,) = self.clients()
        eventually("an answer by name", lambda: "hello" in self.name_called(self.rome.cluster, name, NAMESPACE, SERVER))
        (remote,) = live_pods(self.milan.cluster, SERVER).values()
        meta = remote["metadata"]
        eventually(
            "an answer by name, from home",
            lambda: "hello" in self.name_called(self.milan.cluster, meta["name"], meta["namespace"], CLIENT),
        )
        self.logged(self.rome, self.clients()[name], self.seen(self.rome, self.milan, remote["status"]["podIP"]))

    def test_042_second_node(self) -> None:
        """A pod on a node that is not the gateway calls and is called, through the daemon of its own host."""
        worker = self.rome.cluster.workers[0]
        start_on_node(self.rome)
        far = deployment(FAR, 1)
        spec = far["spec"]["template"]["spec"]
        spec["containers"][0]["command"] = ["sh", "-c", WEB]
        spec["nodeSelector"] = {"kubernetes.io/hostname": worker.node_name}
        self.rome.cluster.apply(far)
        eventually(
            "the pod on the second node",
            lambda: [p for p in live_pods(self.rome.cluster, FAR).values() if _runs(p)],
        )
        (pod,) = live_pods(self.rome.cluster, FAR).values()
        (remote,) = live_pods(self.milan.cluster, SERVER).values()
        there = self.seen(self.rome, self.milan, remote["status"]["podIP"])
        back = self.seen(self.milan, self.rome, pod["status"]["podIP"])
        eventually(
            "an answer to the second node",
            lambda: "hello" in self.ask(self.rome.cluster, pod["metadata"]["name"], NAMESPACE, there),
        )
        meta = remote["metadata"]
        eventually(
            "an answer from the second node",
            lambda: "hello" in self.ask(self.milan.cluster, meta["name"], meta["namespace"], back),
        )
        self.logged(self.milan, remote, back)
        self.assertIn("liqodx", worker.run(["ip", "route", "get", there]))

    def test_043_exported(self) -> None:
        """What is no pod: milan's host is called by the pod on rome's second node, that node itself by milan's pod.

        Each by a service of its own cluster, at the port that its slice names, and by no other.
        """
        worker = self.rome.cluster.workers[0]
        (far,) = live_pods(self.rome.cluster, FAR)
        (remote,) = live_pods(self.milan.cluster, SERVER).values()
        there: tuple[str, str] = (remote["metadata"]["name"], remote["metadata"]["namespace"])
        ends = (
            (self.milan, self.milan.cluster.host, self.milan.cluster.address, self.rome, (far, NAMESPACE)),
            (self.rome, worker.host, worker.address, self.milan, there),
        )
        # A namespace is the lender's concern from its first pod there on.
        self.milan.cluster.apply(enabled_namespace(EXPORTING), deployment("tenant", 1, namespace=EXPORTING))
        self.addCleanup(self.milan.cluster.kubectl, "delete", "namespace", EXPORTING, "--wait=false")
        for home, host, address, caller, pod in ends:
            page = host.directory / "machine"
            page.mkdir()
            (page / "index.html").write_text(f"at {address}\n")
            for port in (PORT, CLOSED_PORT):
                words = ["-m", "http.server", port, "--bind", address, "--directory", str(page)]
                server = host.spawn(f"machine-{port}", [sys.executable, *words])
                self.addCleanup(server.stop)
            space = EXPORTING if home is self.milan else NAMESPACE
            front = service(MACHINE, {}, int(PORT), namespace=space)
            del front["spec"]["selector"]
            home.cluster.apply(front, slice_of(MACHINE, address, int(PORT), namespace=space))
            exported = eventually(f"{address} is exported", partial(self.machine, caller))
            answered = partial(self.page_of, caller.cluster, *pod, exported, PORT)
            eventually(f"an answer of {address}", partial(self.has, f"at {address}", answered))
            self.assertNotIn("at ", self.page_of(caller.cluster, *pod, exported, CLOSED_PORT))

    def has(self, wanted: str, ask: Callable[[], str]) -> bool:
        """Tell whether what is asked for now has a text in it."""
        return wanted in ask()

    def machine(self, caller: Daemon) -> str:
        """Return the address that a peer got for what a cluster exported; empty while it got none."""
        label = f"kubernetes.io/service-name={MACHINE},endpointslice.kubernetes.io/managed-by={REFLECTED_SLICE}"
        for each in caller.cluster.get("endpointslices", "-A", "-l", label)["items"]:
            for endpoint in each.get("endpoints") or ():
                return str(endpoint["addresses"][0])
        return ""

    def page_of(self, cluster: Cluster, pod: str, namespace: str, address: str, port: str) -> str:
        """Return what a pod gets from a port, which may be nothing."""
        script = f"printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {address} {port}; true"
        return cluster.kubectl("exec", "-n", namespace, pod, "--", "sh", "-c", script)

    def test_05_closed(self) -> None:
        """Pods of all of home's namespaces reach those offloaded; the lender's own reach nothing at home."""
        (home,) = self.clients().values()
        (pod,) = live_pods(self.rome.cluster, SERVER).values()
        for daemon, address, is_open in (
            (self.rome, pod["status"]["podIP"], True),
            (self.milan, self.seen(self.milan, self.rome, home["status"]["podIP"]), False),
        ):
            stranger = deployment("stranger", 1, namespace="default")
            stranger["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": daemon.cluster.node_name}
            stranger["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", WEB]
            daemon.cluster.apply(stranger)
            eventually("the stranger runs", partial(self.runs, daemon.cluster, "stranger"))
            (name,) = live_pods(daemon.cluster, "stranger")
            if is_open:
                eventually("an answer", partial(self.answered, daemon.cluster, name, "default", address))
                continue
            # What offloaded pods reach at that address is not what the lender's own do.
            try:
                said = self.ask(daemon.cluster, name, "default", address)
            except CommandFailed:
                said = ""
            self.assertNotIn("hello", said)

    def runs(self, cluster: Cluster, name: str) -> bool:
        """Tell whether a deployment's pod runs."""
        return any(_runs(pod) for pod in live_pods(cluster, name).values())

    def test_05_home_services(self) -> None:
        """An offloaded pod calls Services of home by their own addresses, wherever their endpoint is."""
        (remote,) = live_pods(self.milan.cluster, SERVER).values()
        meta = remote["metadata"]
        stranger = service("stranger", {"app": "stranger"}, int(PORT), namespace="default")
        self.rome.cluster.apply(stranger)
        for name, namespace in ((CLIENT, NAMESPACE), ("stranger", "default"), (SERVER, NAMESPACE)):
            address = self.rome.cluster.get("service", name, "-n", namespace)["spec"]["clusterIP"]
            eventually(
                f"an answer from {name}",
                partial(self.answered, self.milan.cluster, meta["name"], meta["namespace"], address),
            )
        # The lender's own pods are not led there.
        (own,) = live_pods(self.milan.cluster, "stranger")
        address = self.rome.cluster.get("service", CLIENT, "-n", NAMESPACE)["spec"]["clusterIP"]
        with self.assertRaises(CommandFailed):
            self.ask(self.milan.cluster, own, "default", address)

    def test_06_restart(self) -> None:
        """The tunnel carries while no daemon runs, and after they are back nothing was set up again."""
        (name,) = self.clients()
        (pod,) = live_pods(self.rome.cluster, SERVER).values()
        address = pod["status"]["podIP"]
        for daemon in (self.rome, self.milan):
            daemon.kill()
        for _ in range(5):
            self.assertIn("hello", self.ask(self.rome.cluster, name, NAMESPACE, address))
        for daemon in (self.rome, self.milan):
            daemon.start()
        deadline = time.monotonic() + 12
        while time.monotonic() < deadline:
            self.assertIn("hello", self.ask(self.rome.cluster, name, NAMESPACE, address))
        eventually("the tunnel", lambda: self.tunnel(self.rome, self.milan).get("phase") == "Connected")

    def test_061_boot(self) -> None:
        """After a boot, when nothing of the network is left on the gateway's host, the daemon alone brings it back."""
        (name,) = self.clients()
        (pod,) = live_pods(self.rome.cluster, SERVER).values()
        address = pod["status"]["podIP"]
        run = self.rome.cluster.host.run
        before = {words: run(list(words)) for words in HELD}
        self.rome.kill()
        self.lose_network(self.rome)
        self.rome.start()
        eventually("traffic", partial(self.answered, self.rome.cluster, name, NAMESPACE, address))
        eventually("the tunnel", partial(self.connected, self.rome, self.milan))
        eventually("the tunnel back", partial(self.connected, self.milan, self.rome))
        eventually("what there was", lambda: {words: run(list(words)) for words in HELD} == before)
        (same,) = live_pods(self.rome.cluster, SERVER).values()
        self.assertEqual(same["status"]["podIP"], address)

    def lose_network(self, daemon: Daemon) -> None:
        """End what carries the tunnel, and take all from the host's kernel that a boot would take of the network."""
        run = daemon.cluster.host.run
        for process in run(["pgrep", "-x", "wireguard-go"]).split():
            run(["kill", "-KILL", process])
        script = (
            "ip rule del pref 18952; ip route flush table 18952; ip rule del pref 18951; ip route flush table 18951;"
            " nft delete table inet liqod; ip link del liqodx; conntrack -F; for i in 1 2 3 4 5 6 7 8 9 10; do"
            " ip link show liqod || break; ip link del liqod; sleep 0.1; done; rm -rf /run/wireguard"
        )
        run(["sh", "-c", f"{{ {script}; }} >/dev/null 2>&1; true"])
        self.assertNotIn(": liqod", run(["ip", "-o", "link"]))
        self.assertNotIn("1895", run(["ip", "rule"]))
        self.assertNotIn("inet liqod", run(["nft", "list", "tables"]))

    def test_07_records(self) -> None:
        """The tunnel's record says what it is made of; nothing in it changes while nothing happens."""
        peer = peer_of(self.rome.cluster, "milan")["metadata"]["name"]
        record = self.rome.cluster.get("tunnelendpoint", peer)
        print(json.dumps(record["status"], indent=1))
        self.assertEqual(record["status"]["phase"], "Connected")
        self.assertTrue(record["spec"]["allowedIPs"])

    def on_host(self, daemon: Daemon, *words: str) -> str:
        """Run liqodctl as root on a gateway's host and return what it prints."""
        program = str(Path(sys.executable).with_name("liqodctl"))
        options = [f"--kubeconfig={daemon.cluster.kubeconfig}", f"--config={daemon.config}"]
        return daemon.cluster.host.run([program, *words, *options], timeout=240)

    def test_071_commands(self) -> None:
        """Nothing is planned, every hop is good, and there are figures for what pods that call each other get."""
        eventually("nothing to do", lambda: self.on_host(self.rome, "plan") == "nothing to do\n")

        def good() -> bool:
            said = self.on_host(self.rome, "netcheck", "milan")
            for hop in ("Agreement", "Local route", "Tunnel", "Peer's gateway", "Sizes", "Peer's pods"):
                self.assertIn(hop, said)
            return "✗" not in said

        eventually("every hop is good", good)
        commands = (
            ("bench", "milan", "latency", "--count=5"),
            ("bench", "milan", "throughput", "--megabytes=20"),
        )

        def pinged_well() -> dict[str, Any]:
            # The loss is counted over the probes of the last minute, and a test before this one rebooted a gateway.
            answer: dict[str, Any] = json.loads(self.on_host(self.rome, "ping", "milan", "--count=3", "-o", "json"))
            self.assertEqual(answer["problems"], [])
            return answer

        pinged = eventually("nothing is wrong between the two", pinged_well)
        print(json.dumps(pinged, indent=1))
        rows = {row["path"]: row for row in pinged["paths"]}
        for path in ("own API", "peer API", "tunnel"):
            self.assertEqual((rows[path]["answered"], rows[path]["lostPercent"]), (3, 0), rows[path])
        self.assertTrue(any(row["answered"] for row in pinged["paths"] if row["path"] == "session"), pinged)
        # Each has a namespace of its own, so that they need not wait for each other's pods.
        with ThreadPoolExecutor(len(commands)) as beside:
            (latency,), (throughput,) = beside.map(self.tried, commands)
        print(f"\n{latency}\n{throughput}")
        self.assertGreater(latency["avgMs"], 0)
        self.assertGreater(throughput["megabitsPerSecond"], 0)
        self.assertEqual(throughput["megabytes"], 20)

    def tried(self, words: Sequence[str]) -> list[dict[str, Any]]:
        """Run a command that runs pods, and return the rows that it prints."""
        said = self.on_host(self.rome, *words, "--image=localhost/busybox:1", "-o", "json")
        return [dict(row) for row in json.loads(said)]

    def test_08_cut(self) -> None:
        """What cuts the lender's pods off, with its gateway healthy, turns red within ten seconds and is named.

        The pods there are not Ready at home for as long, and in no service; they are the same pods all the time.
        """
        pods = live_pods(self.rome.cluster, SERVER)
        before = {name: pod["metadata"]["uid"] for name, pod in pods.items()}
        self.assertTrue(before and all(map(is_running, pods.values())))
        rule = 'table inet cut { chain on { type filter hook forward priority 0; iifname "liqod" drop; }; }'
        self.milan.cluster.run(["nft", rule])
        started = time.monotonic()
        eventually("red", lambda: self.tunnel(self.rome, self.milan).get("phase") == "Error")
        took = time.monotonic() - started
        status = self.tunnel(self.rome, self.milan)
        print(f"\nred after {took:.1f} s: {status['message']}")
        self.assertEqual(status["cut"], "remote pods")
        self.assertLess(took, 10)
        eventually("its pods are not Ready, and say why", lambda: self.reasons() == {"NetworkDown"})

        def reported() -> bool:
            node = virtual_node(self.rome.cluster)
            self.assertEqual((condition(node, "Ready"), condition(node, "NetworkUnavailable")), ("False", "True"))
            return True

        eventually("the node says so", reported)
        eventually("no service leads there", lambda: not self.served())
        self.milan.cluster.run(["nft", "delete table inet cut"])
        eventually("green again", partial(self.connected, self.rome, self.milan))
        eventually("its pods are Ready", lambda: all(map(is_running, live_pods(self.rome.cluster, SERVER).values())))
        eventually("the service leads there", self.served)
        after = {name: pod["metadata"]["uid"] for name, pod in live_pods(self.rome.cluster, SERVER).items()}
        self.assertEqual(after, before)

    def reasons(self) -> set[str]:
        """Return why the servers are not Ready at home; empty where one is."""
        found = [
            next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")
            for pod in live_pods(self.rome.cluster, SERVER).values()
        ]
        return set() if any(c["status"] == "True" for c in found) else {c.get("reason", "") for c in found}

    def served(self) -> list[str]:
        """Return the addresses that the service of the servers leads to at home."""
        selected = ("-n", NAMESPACE, "-l", f"kubernetes.io/service-name={SERVER}")
        slices = self.rome.cluster.get("endpointslices", *selected)["items"]
        ready = [one for each in slices for one in each.get("endpoints") or [] if one["conditions"].get("ready")]
        return [address for one in ready for address in one["addresses"]]

    def test_09_end(self) -> None:
        """When the peering ends on one side, nothing of the network is left on that side's host."""
        peer = peer_of(self.rome.cluster, "milan")["metadata"]["name"]
        self.rome.cluster.kubectl("delete", "fc", peer, "--wait=false")

        def clean() -> bool:
            self.assertNotIn(": liqod:", self.rome.cluster.run(["ip", "-o", "link"]))
            self.assertNotIn("18952", self.rome.cluster.run(["ip", "rule"]))
            self.assertNotIn("inet liqod", self.rome.cluster.run(["nft", "list", "tables"]))
            return True

        eventually("a clean host", clean)

    def test_10_uninstall(self) -> None:
        """On the side that was not notified, uninstalling leaves nothing in the host's network either."""
        self.milan.stop()
        self.on_host(self.milan, "uninstall", "--this-host")
        self.assertNotIn(": liqod", self.milan.cluster.run(["ip", "-o", "link"]))
        self.assertNotIn("18952", self.milan.cluster.run(["ip", "rule"]))
        self.assertNotIn("inet liqod", self.milan.cluster.run(["nft", "list", "tables"]))


def _runs(pod: dict[str, Any]) -> bool:
    return condition(pod, "Ready") == "True"
