"""liqod as pods in one cluster and as a daemon of a host in the other: peered without a tunnel and with one, removed.

The steps run in the order of their names, on two clusters whose pods have the same addresses.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any, ClassVar, Final
from unittest import TestResult

from twisted.trial.unittest import SynchronousTestCase

from tests.real.base import failures, made_once, require_clusters
from tests.real.chart_install import CHART, IMAGE, KINDS, MORE, _image
from tests.real.daemons import HostDaemon
from tests.real.manifests import pod, service
from tests.real.path import (
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    node_ready,
    offloaded,
    peer_of,
)
from tests.real.test_network import WEB, fetch
from tests.real.test_unpeer_network import kernel
from tests.testbed import build, versions
from tests.testbed.cluster import Cluster
from tests.testbed.node import import_images
from tests.testbed.process import CommandFailed, tail
from tests.testbed.testbed import Testbed

ROME: Final = "rome"
MILAN: Final = "milan"
SYSTEM: Final = "liqo-system"
CONFIGURATION: Final = '[hosting]\nimage-pull-policy = "any"\n'
"""For the pods: the image of offloaded pods is on the nodes, and no registry has it."""
DEFAULT: Final = "\n[network]\n"
"""For the host: nothing is said about the mode, which is auto then; without this section it has no tunnel."""
READY: Final = "liqod is ready"
AWAY: Final = "away"
AT_HOME: Final = "at-home"
OF_PEERS: Final = "foreignclusters,virtualnodes,networkconfigs,tunnelendpoints,advertisements"
"""Records that there are of peers alone."""


class MixedFormsTests(SynchronousTestCase):
    """rome has liqod as pods, by Helm first and by `up --in-cluster` then; milan a daemon on its host."""

    _testbed: ClassVar[Testbed | None] = None
    _before: ClassVar[dict[str, tuple[set[str], list[str]]]] = {}
    _daemon: ClassVar[HostDaemon | None] = None

    def setUp(self) -> None:
        made_once(type(self), self._make)
        assert self._testbed is not None
        self.rome, self.milan = self._testbed.clusters
        self.clusters = {ROME: self.rome, MILAN: self.milan}

    def _make(self) -> None:
        require_clusters()
        build.ensure(("helm",))
        type(self)._testbed = testbed = Testbed(2, nodes=True, same_pod_cidr=True)
        atexit.register(testbed.stop)
        testbed.start()
        import_images(testbed[1].host, _image(), "native")
        for name, cluster in zip((ROME, MILAN), testbed.clusters, strict=True):
            # With its first pod a node gets a bridge for pods, which stays and is not liqod's.
            cluster.apply(pod("first", ["true"], restartPolicy="Never"))
            eventually("a pod has run", partial(self.has_ended, cluster, "first"))
            cluster.kubectl("delete", "pod", "first", "--wait")
            self._before[name] = objects(cluster), kernel(cluster)

    def run(self, result: TestResult | None = None) -> TestResult | None:
        """Run one step; when it fails, show what the daemons said."""
        before = failures(result)
        done: TestResult | None = super().run(result)
        if failures(result) > before and self._testbed is not None:
            if self._daemon is not None and self._daemon.log.exists():
                print("--- milan", tail(self._daemon.log, 80), sep="\n")
            for one in self._testbed[1].get("pods", "-n", SYSTEM)["items"]:
                name = one["metadata"]["name"]
                with contextlib.suppress(CommandFailed):
                    said = self._testbed[1].kubectl("-n", SYSTEM, "logs", name, "--tail=60")
                    print(f"--- rome {name}", said, sep="\n")
        return done

    # Commands

    def helm(self, *words: str) -> str:
        """Run helm in rome; returns what it prints."""
        program = [str(versions.program("helm")), "--kubeconfig", str(self.rome.kubeconfig), "-n", SYSTEM]
        return self.rome.run([*program, *words], timeout=400)

    def administrator(self, cluster: Cluster, *words: str) -> str:
        """Run the checkout's liqodctl on a host with an administrator's kubeconfig; returns what it publishes."""
        argv = [sys.executable, "-m", "liqod.cli", *words, "-o", "json", "--kubeconfig", str(cluster.kubeconfig)]
        return cluster.host.run(argv, timeout=400)

    def in_pod(self, *words: str) -> Any:
        """Run liqodctl in the pod of rome's daemon; returns what it publishes."""
        argv = ("-n", SYSTEM, "exec", "deploy/liqod", "--", "liqodctl", *words, "-o", "json")
        return json.loads(self.rome.kubectl(*argv))

    def start_at_milan(self, configuration: str) -> None:
        """Start the daemon on milan's host, with an account of its own."""
        type(self)._daemon = daemon = HostDaemon(self.milan, MILAN, extra=configuration)
        said = daemon.log.read_text().count(READY) if daemon.log.exists() else 0
        daemon.start()
        eventually("milan's daemon is ready", lambda: daemon.log.read_text().count(READY) > said)

    # What holds of both

    def both(self) -> tuple[tuple[str, Cluster, str, Cluster], ...]:
        """Return each cluster as home with the other one as its lender, and their names."""
        return (ROME, self.rome, MILAN, self.milan), (MILAN, self.milan, ROME, self.rome)

    def peered(self, step: str) -> None:
        """Wait until each is a node of the other, and a pod of each runs there, and one at home beside it."""
        for name, home, _, _ in self.both():
            eventually(f"the virtual node of {name} is Ready", partial(node_ready, home), 180)
        for name, home, _, _ in self.both():
            space = f"{step}-of-{name}"
            away, at_home = (deployment(f"{name}-{place}", 1, namespace=space) for place in (AWAY, AT_HOME))
            for one in (away, at_home):
                one["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", WEB]
            at_home["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": home.node_name}
            home.apply(enabled_namespace(space), service(AT_HOME, {"app": f"{name}-{AT_HOME}"}, 8080, namespace=space))
            home.apply(away, at_home)
        for name, home, other, lender in self.both():
            there = partial(offloaded, home, lender, f"{name}-{AWAY}", 1)
            eventually(f"a pod of {name} runs at {other}", there, 180)
            eventually(f"a pod of {name} is at home", partial(self.runs, home, f"{name}-{AT_HOME}"))
            # By way of the kubelet API of this cluster's daemon, the tunnel has no part in it.
            (theirs,) = live_pods(home, f"{name}-{AWAY}")
            ran = partial(home.kubectl, "exec", "-n", f"{step}-of-{name}", theirs, "--", "echo", "ran")
            eventually(f"a program in a pod of {name} at {other}", ran)

    def has_ended(self, cluster: Cluster, name: str) -> bool:
        """Tell whether a pod has done its work."""
        return bool(cluster.get("pod", name)["status"]["phase"] == "Succeeded")

    def runs(self, cluster: Cluster, app: str) -> bool:
        """Tell whether an application has one pod, and that one runs."""
        return [is_running(one) for one in live_pods(cluster, app).values()] == [True]

    def ended(self, step: str, at: Cluster, peer: str) -> None:
        """End the peering at one cluster; neither has a node, a record or a namespace of it afterwards."""
        for name, home, _, _ in self.both():
            home.kubectl("delete", "namespace", f"{step}-of-{name}", "--timeout=180s", timeout=200)
        # It fails where an object of the peering is left.
        self.administrator(at, "unpeer", peer, "--yes")
        for name, home, _, _ in self.both():
            eventually(f"{name} has nothing of the peering", partial(self.is_without_peers, home), 180)

    def is_without_peers(self, cluster: Cluster) -> bool:
        """Tell whether a cluster has a virtual node, a namespace of a tenant, or a record of a peer that it trusts."""
        self.assertEqual(cluster.get("nodes", "-l", "liqo.io/type=virtual-node")["items"], [])
        self.assertEqual(cluster.get("namespaces", "-l", "liqo.io/remote-cluster-id")["items"], [])
        found = cluster.get(OF_PEERS, "-A")["items"]
        # Two that see each other on their network remain strangers to each other.
        self.assertEqual([one["kind"] for one in found if not _is_stranger(one)], [])
        return True

    def removed(self, name: str) -> None:
        """Have objects and the host's network be what they were before liqod came."""
        before_objects, before_kernel = self._before[name]
        cluster = self.clusters[name]
        eventually(f"the objects of {name}", partial(self.same, partial(objects, cluster), before_objects), 60)
        eventually(f"the kernel of {name}", partial(self.same, lambda: set(kernel(cluster)), set(before_kernel)), 60)

    def same(self, now: Callable[[], set[str]], before: set[str]) -> bool:
        """Tell whether something is as it was; the complaint shows the difference."""
        found = now()
        self.assertEqual((found - before, before - found), (set(), set()))
        return True

    def left_by_milan(self) -> None:
        """End the daemon on milan's host, and take its cluster's part back."""
        assert self._daemon is not None
        self._daemon.stop()
        self._daemon.kubeconfig.unlink()
        self.administrator(self.milan, "uninstall", "--yes")

    # The steps

    def test_01_without_a_tunnel(self) -> None:
        """A token of the host's daemon, used in a pod of the other one: each is a node of the other, pods run there."""
        sets = {"image.repository": IMAGE, "image.tag": "test", "image.pullPolicy": "Never", "clusterName": ROME}
        words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        configured = ("--set-literal", f"configuration={CONFIGURATION}")
        self.helm("install", "liqod", str(CHART), "--create-namespace", "--wait", "--timeout=5m", *words, *configured)
        self.start_at_milan("")
        (token,) = json.loads(self.administrator(self.milan, "token", "create"))
        self.in_pod("peer", token["token"])
        self.peered("plain")
        for name, cluster in self.clusters.items():
            self.assertEqual(cluster.get("tunnelendpoints")["items"], [])
            self.assertNotIn("liqod", cluster.run(["ip", "-brief", "link"]), name)

    def test_02_unpeered(self) -> None:
        """The host's side ends it: nothing of it is left at either, and each form goes without a trace."""
        self.ended("plain", self.milan, ROME)
        self.helm("uninstall", "liqod", "--wait", "--timeout=4m")
        # Helm did not make the namespace an object of the release, and leaves it.
        self.rome.kubectl("delete", "namespace", SYSTEM, "--timeout=120s", timeout=130)
        self.left_by_milan()
        for name in self.clusters:
            self.removed(name)

    def test_03_with_a_tunnel(self) -> None:
        """An invitation of the pods, used by the administrator of the host: packets cross a tunnel of both forms."""
        config = self.rome.directory / "pods.toml"
        config.write_text(CONFIGURATION)
        words = (f"--image={IMAGE}:test", "--local-image", f"--name={ROME}", f"--config={config}", "--invite")
        tunnel = ("--userspace", f"--gateway={self.rome.node_name}", "--timeout=240", "--yes")
        made = json.loads(self.administrator(self.rome, "up", "--in-cluster", *words, *tunnel))
        self.start_at_milan(DEFAULT)
        self.administrator(self.milan, "peer", made["invitation"]["token"])
        self.peered("tunnelled")
        for name, cluster in self.clusters.items():
            eventually(f"the tunnel of {name}", partial(self.is_connected, cluster), 180)

    def is_connected(self, cluster: Cluster) -> bool:
        """Tell whether packets cross to the peer."""
        found = cluster.get("tunnelendpoints")["items"]
        self.assertEqual([one.get("status", {}).get("phase") for one in found], ["Connected"])
        return True

    def test_04_pods_call_each_other(self) -> None:
        """Through the tunnel, in both directions and of both clusters' pods: home calls away by address, and away home,
        by its service and by its address.
        """
        for name, home, other, lender in self.both():
            space = f"tunnelled-of-{name}"
            ((away, at_peer),) = live_pods(home, f"{name}-{AWAY}").items()
            ((here, at_home),) = live_pods(home, f"{name}-{AT_HOME}").items()
            remote = live_pods(lender, f"{name}-{AWAY}")[away]
            there = remote["metadata"]["namespace"]
            # As addresses of both are the same, what answers at another one has come through the tunnel.
            self.assertNotEqual(at_peer["status"]["podIP"], remote["status"]["podIP"])
            self.answers(f"{name} calls {other}", home, here, space, at_peer["status"]["podIP"])
            back = seen(lender, name, at_home["status"]["podIP"])
            self.answers(f"{other} calls {name}", lender, away, there, back)
            front = eventually("the service is at the peer", partial(lender.get, "service", AT_HOME, "-n", there))
            self.answers(f"{other} calls the service of {name}", lender, away, there, front["spec"]["clusterIP"])

    def answers(self, what: str, cluster: Cluster, caller: str, namespace: str, address: str) -> None:
        """Wait until a pod gets a page from an address."""
        eventually(what, lambda: "hello from the pod" in fetch(cluster, caller, namespace, address))

    def test_05_down(self) -> None:
        """The pods' side ends it, and each form goes: neither API servers nor kernels keep anything."""
        self.ended("tunnelled", self.rome, MILAN)
        self.administrator(self.rome, "down", "--in-cluster", "--yes")
        self.left_by_milan()
        for name in self.clusters:
            self.removed(name)


def objects(cluster: Cluster) -> set[str]:
    """Return what there is of the kinds that an installation makes, without what the cluster itself keeps."""
    found = cluster.get(f"{KINDS},{MORE},nodes", "-A")["items"]
    names = {f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}" for one in found}
    return {name for name in names if not name.startswith(("Lease kube-", "Secret kube-"))}


def seen(cluster: Cluster, peer: str, address: str) -> str:
    """Return how an address of a pod of a peer reads in a cluster."""
    network = cluster.get("networkconfig", peer_of(cluster, peer)["metadata"]["name"])
    theirs = ip_network(network["status"]["remote"]["podCIDRs"][0])
    ours = ip_network(network["spec"]["remap"]["podCIDRs"][0])
    return str(ours[int(ip_address(address)) - int(theirs.network_address)])


def _is_stranger(record: dict[str, Any]) -> bool:
    phase = record.get("status", {}).get("phase")
    return bool(record["kind"] == "ForeignCluster" and phase == "TrustPending")
