"""Two real clusters with addresses of both IP versions, each with another one first: pods, services, traffic, a cut."""

from __future__ import annotations

import ipaddress
import re
from functools import partial
from typing import Any, ClassVar

from liqod.model.names import remote_namespace
from tests.real.daemons import HostDaemon
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
)
from tests.real.test_network import CONFIGURATION, WEB
from tests.testbed.cluster import Cluster

SERVER, CLIENT, PORT = "server", "client", 8080
BOTH: dict[str, Any] = {"ipFamilyPolicy": "RequireDualStack"}
SERVICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "four": {"ipFamilies": ["IPv4"]},
    "six": {"ipFamilies": ["IPv6"]},
    "preferred": {"ipFamilyPolicy": "PreferDualStack"},
    "four-first": {**BOTH, "ipFamilies": ["IPv4", "IPv6"]},
    "six-first": {**BOTH, "ipFamilies": ["IPv6", "IPv4"]},
    "headless": {**BOTH, "ipFamilies": ["IPv4", "IPv6"], "clusterIP": "None"},
    "headless-six": {"ipFamilies": ["IPv6"], "clusterIP": "None"},
}
"""What the services have besides their ports, and the pods of both clusters behind each of them."""
CUT = 'table inet cut { chain on { type filter hook forward priority 0; iifname "liqod" meta nfproto ipv6 drop; }; }'


def service(name: str) -> dict[str, Any]:
    """Return one of the services."""
    spec = {"selector": {"web": "yes"}, "ports": [{"port": PORT}], **SERVICES[name]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def addresses(pod: dict[str, Any]) -> dict[str, str]:
    """Return the addresses of a pod by their version, in the order of its status."""
    found = [str(one["ip"]) for one in pod["status"]["podIPs"]]
    return {f"IPv{ipaddress.ip_address(address).version}": address for address in found}


class DualStackTests(PairTests):
    """One walk; at rome IPv4 comes first, at milan IPv6. Both clusters have the same networks for their pods."""

    configuration = CONFIGURATION
    same_pod_cidr = True
    shape: ClassVar[dict[str, Any]] = {"dns": True, "families": ("46", "64")}
    daemon_class = HostDaemon

    @property
    def home(self) -> Cluster:
        return self.rome.cluster

    @property
    def lender(self) -> Cluster:
        return self.milan.cluster

    @property
    def remote(self) -> str:
        """The name of the namespace at milan."""
        return remote_namespace(NAMESPACE, peer_of(self.lender, "rome")["metadata"]["name"])

    def one(self, cluster: Cluster, app: str) -> dict[str, Any]:
        """Return the one pod of a name."""
        (pod,) = live_pods(cluster, app).values()
        return pod

    def seen(self, cluster: Cluster, pod: dict[str, Any]) -> dict[str, str]:
        """Return how the addresses of a pod of the other cluster read in a cluster, by version."""
        (config,) = cluster.get("networkconfigs")["items"]
        networks = {}
        for before, after in zip(
            config["status"]["remote"]["podCIDRs"], config["spec"]["remap"]["podCIDRs"], strict=True
        ):
            networks[f"IPv{ipaddress.ip_network(before).version}"] = (before, after)
        found = {}
        for version, address in addresses(pod).items():
            before, after = (int(ipaddress.ip_network(text).network_address) for text in networks[version])
            found[version] = str(ipaddress.ip_address(int(ipaddress.ip_address(address)) - before + after))
        return found

    def test_01_pods(self) -> None:
        """An offloaded pod has, at home, both addresses by which home reaches it, and that of home's version first."""
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.home), 90)
        pods = [deployment(SERVER, 1), deployment(CLIENT, 1)]
        for one in pods:
            template = one["spec"]["template"]
            template["metadata"]["labels"]["web"] = "yes"
            template["spec"]["containers"][0]["command"] = ["sh", "-c", WEB]
        pods[1]["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.home.node_name}
        self.home.apply(enabled_namespace(), *pods, *map(service, SERVICES))
        eventually("the server runs at milan", lambda: offloaded(self.home, self.lender, SERVER, 1), 90)
        eventually("the client runs at home", lambda: is_running(self.one(self.home, CLIENT)))
        there, here = self.one(self.lender, SERVER), self.one(self.home, SERVER)
        self.assertEqual(list(addresses(there)), ["IPv6", "IPv4"])
        self.assertEqual(list(addresses(here)), ["IPv4", "IPv6"])
        self.assertEqual(addresses(here), self.seen(self.home, there))
        self.assertFalse({*addresses(here).values()} & {*addresses(there).values()})
        self.assertEqual(here["status"]["podIP"], addresses(here)["IPv4"])

    def test_02_services(self) -> None:
        """Every service has the same IP versions in the same order at milan, and slices of each with all endpoints."""
        for name in SERVICES:
            spec = self.home.get("service", name, "-n", NAMESPACE)["spec"]
            eventually(f"{name} at milan", partial(self.is_same, name, spec))
            for cluster, namespace in ((self.home, NAMESPACE), (self.lender, self.remote)):
                ends = self.ends(cluster)
                wanted = {(version, end[version]) for version in spec["ipFamilies"] for end in ends}
                eventually(
                    f"the slices of {name} at {cluster.name}", partial(self.has, cluster, namespace, name, wanted)
                )

    def is_same(self, name: str, spec: dict[str, Any]) -> bool:
        """Tell whether a service has the same IP versions at milan."""
        there = self.lender.get("service", name, "-n", self.remote)["spec"]
        fields = ("ipFamilies", "ipFamilyPolicy")
        self.assertEqual([there[field] for field in fields], [spec[field] for field in fields])
        return True

    def ends(self, cluster: Cluster) -> tuple[dict[str, str], dict[str, str]]:
        """Return the addresses of the server and of the client as they read in a cluster."""
        if cluster is self.home:
            return addresses(self.one(cluster, SERVER)), addresses(self.one(cluster, CLIENT))
        return addresses(self.one(cluster, SERVER)), self.seen(cluster, self.one(self.home, CLIENT))

    def has(self, cluster: Cluster, namespace: str, name: str, wanted: set[tuple[str, str]]) -> bool:
        """Tell whether the ready endpoints of a service are just these."""
        slices = cluster.get("endpointslices", "-n", namespace, "-l", f"kubernetes.io/service-name={name}")["items"]
        found = {
            (each["addressType"], address)
            for each in slices
            for end in each.get("endpoints") or ()
            if (end.get("conditions") or {}).get("ready") is not False
            for address in end["addresses"]
        }
        self.assertEqual(found, wanted)
        return True

    def test_03_traffic(self) -> None:
        """Pods on both sides are answered by every pod's and service's address of either version.

        The offloaded one learns what to ask through its virtual node.
        """
        for cluster, app in ((self.home, CLIENT), (self.lender, SERVER)):
            namespace = NAMESPACE if cluster is self.home else self.remote
            called = [address for end in self.ends(cluster) for address in end.values()]
            for name in SERVICES:
                spec = cluster.get("service", name, "-n", namespace)["spec"]
                called += [address for address in spec["clusterIPs"] if address != "None"]
            self.assertEqual(len(called), 4 + 1 + 1 + 1 + 2 + 2 + 2)
            eventually(f"answers to {app}", partial(self.all_answer, app, called), 90)

    def all_answer(self, app: str, called: list[str]) -> bool:
        """Tell whether a pod is answered by all addresses, twice each."""
        asked = "printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 5 $to 8080 | grep -q hello || echo none from $to"
        said = self.say(app, f"for to in {' '.join(called * 2)}; do {asked}; done")
        self.assertEqual(said, "")
        return True

    def say(self, app: str, script: str) -> str:
        """Have a pod run a script, as an administrator of rome."""
        name = self.one(self.home, app)["metadata"]["name"]
        return self.home.kubectl("exec", "-n", NAMESPACE, name, "--", "sh", "-c", script, timeout=120).strip()

    def test_04_names(self) -> None:
        """The name of a headless service leads to all its pods, by the addresses of its versions, in both clusters."""
        for cluster, app in ((self.home, CLIENT), (self.lender, SERVER)):
            for name, kinds in (("headless", {"IPv4": "a", "IPv6": "aaaa"}), ("headless-six", {"IPv6": "aaaa"})):
                for version, kind in kinds.items():
                    wanted = {end[version] for end in self.ends(cluster)}
                    lookup = f"nslookup -type={kind} {name}.{NAMESPACE}.svc.cluster.local"
                    eventually(f"{version} of {name} at {cluster.name}", partial(self.leads, app, lookup, wanted))

    def leads(self, app: str, lookup: str, wanted: set[str]) -> bool:
        """Tell whether a pod that looks a name up gets just these addresses."""
        answers = self.say(app, lookup).partition("Name:")[2]
        self.assertEqual(set(re.findall(r"Address:\s+(\S+)$", answers, re.MULTILINE)), wanted)
        return True

    def test_05_logs(self) -> None:
        """What the offloaded pod says is read at home, and has callers of both versions in it."""
        name = self.one(self.home, SERVER)["metadata"]["name"]
        said = self.home.kubectl("logs", "-n", NAMESPACE, name)
        for address in self.seen(self.lender, self.one(self.home, CLIENT)).values():
            self.assertIn(address, said)

    def test_06_one_version_is_cut(self) -> None:
        """The tunnel tells of a cut of IPv6 alone, and that it is over; pods stay ready all the while."""
        address = addresses(self.one(self.home, SERVER))["IPv6"]
        eventually("packets cross", partial(self.has_event, "PacketsCross", ""))
        self.lender.run(["nft", "-f", "-"], input=CUT + "\n")
        eventually("the cut", partial(self.has_event, "FamilyCut", address))
        self.assertTrue(is_running(self.one(self.home, SERVER)))
        self.assertTrue(node_ready(self.home))
        self.lender.run(["nft", "delete", "table", "inet", "cut"])
        eventually("packets cross", partial(self.has_event, "PacketsCross", ""))

    def has_event(self, reason: str, pod: str) -> bool:
        """Tell whether the tunnel is connected, for this reason and with an address in its words."""
        (tunnel,) = self.home.get("tunnelendpoints")["items"]
        status = tunnel["status"]
        self.assertEqual((status["phase"], status["reason"]), ("Connected", reason), status)
        self.assertIn(pod, status["message"])
        return True
