"""The container image on real clusters: by helm and by `up --in-cluster`, peered by a token, upgraded, removed."""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import yaml
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.up.chart.render import Release, render
from tests.packaging.test_chart import VARIANTS
from tests.real.base import made_once, require_clusters
from tests.real.manifests import pod
from tests.real.path import eventually
from tests.testbed import build, versions
from tests.testbed.cluster import Cluster
from tests.testbed.node import import_images
from tests.testbed.process import CommandFailed
from tests.testbed.testbed import Testbed

CHECKOUT = Path(__file__).resolve().parents[2]
CHART = CHECKOUT / "packaging/chart"
NAMESPACE = "liqo-system"
ENFORCE = "pod-security.kubernetes.io/enforce"
IMAGE = "localhost/liqod"
RELEASES = (versions.release("1.30"), versions.KUBERNETES)
"""Those of Kubernetes that the chart is read for: the oldest that is supported, and the usual one."""
KINDS = "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,priorityclass"
"""Kinds without a namespace that an installation has objects of."""
MORE = "namespace,mutatingwebhookconfiguration,storageclass,role,rolebinding,serviceaccount,secret,configmap,lease"


class ChartTests(SynchronousTestCase):
    """Two clusters, rome with two nodes, without anything of liqod; the steps run in the order of their names."""

    _testbed: ClassVar[Testbed | None] = None
    _before: ClassVar[dict[int, set[str]]] = {}

    def setUp(self) -> None:
        made_once(type(self), self._make)
        assert self._testbed is not None
        self.rome, self.milan = self._testbed.clusters

    def _make(self) -> None:
        require_clusters()
        build.ensure(("helm",))
        type(self)._testbed = testbed = Testbed(2, nodes=True, workers=1)
        atexit.register(testbed.stop)
        testbed.start()
        archive = _image()
        for cluster in testbed.clusters:
            for host in (cluster.host, *(worker.host for worker in cluster.workers)):
                import_images(host, archive, "native")
            self._before[cluster.index] = self.objects(cluster)

    def objects(self, cluster: Cluster) -> set[str]:
        """Return what there is of the kinds that an installation makes, but for what the cluster itself keeps."""
        found = cluster.get(f"{KINDS},{MORE}", "-A")["items"]
        names = {f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}" for one in found}
        return {name for name in names if not re.search(r" (kube-|default/)| liqo-system/(default|kube-root)", name)}

    def helm(self, cluster: Cluster, *words: str) -> str:
        """Run helm in a cluster; returns what it prints."""
        program = [str(versions.program("helm")), "--kubeconfig", str(cluster.kubeconfig), "-n", NAMESPACE]
        return cluster.run([*program, *words], timeout=1000)

    def install(self, cluster: Cluster, verb: str, *words: str) -> str:
        """Install or upgrade the chart with the test's image."""
        given = {"image.repository": IMAGE, "image.tag": "test", "image.pullPolicy": "Never", "clusterName": "rome"}
        if cluster is self.milan:
            given |= {"clusterName": "milan", "replicas": "1"}
            # The image of the offloaded pod is on the node, and nowhere else.
            configuration = '[hosting]\nimage-pull-policy = "any"\n[names]\nupstream = ["192.0.2.53"]'
            words = (*words, "--set-literal", f"configuration={configuration}")
        sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        return self.helm(cluster, verb, "liqod", str(CHART), "--wait", "--timeout=8m", *sets, *words)

    def liqodctl(self, cluster: Cluster, *words: str) -> Any:
        """Run liqodctl in the pod of a daemon, as the chart's notes say; returns what it publishes."""
        out = cluster.kubectl("-n", NAMESPACE, "exec", "deploy/liqod", "--", "liqodctl", *words, "-o", "json")
        return json.loads(out)

    def administrator(self, cluster: Cluster, *words: str) -> None:
        """Run the checkout's liqodctl with an administrator's kubeconfig."""
        cluster.run([sys.executable, "-m", "liqod.cli", *words, "--kubeconfig", str(cluster.kubeconfig)])

    def pods(self, cluster: Cluster) -> list[dict[str, Any]]:
        """Return the daemon's pods that are Ready and not about to end."""
        found = cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=daemon")["items"]
        return [
            one
            for one in found
            if "deletionTimestamp" not in one["metadata"]
            and any(c["type"] == "Ready" and c["status"] == "True" for c in one["status"].get("conditions", []))
        ]

    def are_ready(self, cluster: Cluster, count: int) -> bool:
        """Tell whether there are so many daemons, each on a node of its own."""
        return len({one["spec"]["nodeName"] for one in self.pods(cluster)}) == count

    def test_01_wrong_values(self) -> None:
        """What is wrong with the values or the configuration is refused, and nothing is left in the cluster."""
        with self.assertRaisesRegex(CommandFailed, "replicas"):
            self.install(self.rome, "install", "--create-namespace", "--set", "replicas=none")
        with self.assertRaises(CommandFailed):
            self.install(
                self.rome, "install", "--create-namespace", "--set", "configuration=[sharing]\npercentage = 500"
            )
        log = self.rome.kubectl("-n", NAMESPACE, "logs", "job/liqod-setup-install", "-c", "check-configuration")
        self.assertIn("percentage", log)
        self.assertNotIn("liqod", self.rome.kubectl("get", "crd,clusterrole"))
        self.helm(self.rome, "uninstall", "liqod", "--no-hooks")
        self.rome.kubectl("-n", NAMESPACE, "delete", "job,configmap,serviceaccount", "--all", "--ignore-not-found")
        self.rome.kubectl("delete", "clusterrolebinding", "liqod-setup", "--ignore-not-found")

    def test_02_install(self) -> None:
        """One command for each cluster: two daemons, one of which leads, without a right on their hosts."""
        for cluster in (self.rome, self.milan):
            self.install(cluster, "install", "--create-namespace")
            # helm waits for all pods but one of a Deployment that may lack one.
            eventually("a daemon on each node", partial(self.are_ready, cluster, 1 + len(cluster.workers)))
            # The rights of an administrator went with the job that had them.
            self.assertNotIn("liqod-setup", cluster.kubectl("get", "clusterrolebinding"))
            self.helm(cluster, "test", "liqod")

    def test_03_pods_of_rome_run_at_milan(self) -> None:
        """A token made in one pod and used in another: a virtual node, and a pod that runs there."""
        token = self.liqodctl(self.milan, "token", "create")[0]["token"]
        self.liqodctl(self.rome, "peer", token)
        eventually("the virtual node", lambda: self.node_is_ready(), 120)
        self.rome.kubectl("create", "namespace", "shop")
        self.administrator(self.rome, "offload", "namespace", "shop", "--placement=Remote")
        web = pod("web", ["sleep", "100000"], namespace="shop")
        eventually("the pod is accepted", partial(self.rome.apply, web), 60)
        self.rome.kubectl("-n", "shop", "wait", "pod/web", "--for=condition=Ready", "--timeout=120s", timeout=130)

    def node_is_ready(self) -> bool:
        """Tell whether the lender's virtual node is Ready."""
        nodes = self.rome.get("nodes", "-l", "liqo.io/type=virtual-node")["items"]
        return any(
            c["type"] == "Ready" and c["status"] == "True" for node in nodes for c in node["status"]["conditions"]
        )

    def test_04_upgrade(self) -> None:
        """An upgrade with another configuration replaces the daemons; the offloaded pod does not notice."""
        before = self.started("shop", "web")
        old = {one["metadata"]["uid"] for one in self.pods(self.rome)}
        self.install(self.rome, "upgrade", "--set", 'configuration=[log]\nlevel = "debug"')
        # helm does not wait for the last pod of a Deployment that may lack one.
        eventually("other pods", lambda: not old & {one["metadata"]["uid"] for one in self.pods(self.rome)}, 120)
        eventually("the virtual node", self.node_is_ready, 120)
        self.assertEqual(self.started("shop", "web"), before)
        self.helm(self.rome, "rollback", "liqod", "1", "--wait", "--timeout=8m")
        eventually("the virtual node", self.node_is_ready, 120)
        self.assertEqual(self.started("shop", "web"), before)

    def started(self, namespace: str, name: str) -> tuple[str, list[Any]]:
        """Return the identity of a pod and when its containers began to run."""
        found = self.rome.get("pod", name, "-n", namespace)
        return found["metadata"]["uid"], [one["state"] for one in found["status"]["containerStatuses"]]

    def test_05_removal(self) -> None:
        """With a peering it is refused, and all is as it was; afterwards nothing is left but the namespace."""
        with self.assertRaises(CommandFailed):
            self.helm(self.rome, "uninstall", "liqod", "--wait", "--timeout=2m")
        self.assertTrue(self.pods(self.rome))
        log = self.rome.kubectl("-n", NAMESPACE, "logs", "job/liqod-setup-check")
        self.assertIn("liqodctl unpeer", log)
        self.administrator(self.rome, "unoffload", "namespace", "shop")
        self.rome.kubectl("delete", "namespace", "shop")
        self.administrator(self.rome, "unpeer", "milan", "--yes")
        for cluster in (self.rome, self.milan):
            self.helm(cluster, "uninstall", "liqod", "--wait", "--timeout=4m")
            # A namespace is gone when all that was in it is.
            eventually("nothing is left", partial(self.is_as_before, cluster), 60)

    def is_as_before(self, cluster: Cluster) -> bool:
        """Tell whether there is what was there before the installation, and its namespace."""
        left = self.objects(cluster) - self._before[cluster.index]
        self.assertEqual(left, {f"Namespace /{NAMESPACE}"})
        return True

    def test_06_restricted(self) -> None:
        """Without the host's network everything runs in a namespace of the level restricted; a Service leads to the
        daemon that leads, whichever of two that is.
        """
        self.milan.kubectl("label", "namespace", NAMESPACE, f"{ENFORCE}=restricted")
        sets = ("--set", "hostNetwork=false", "--set", "replicas=2", "--set", "service.type=ClusterIP")
        self.install(self.milan, "install", *sets, "--set", "names.enabled=true")
        eventually("two daemons", lambda: len(self.pods(self.milan)) == 2, 120)
        for name in ("liqod-names-1", "liqod-names-2"):
            eventually("a name server", partial(self.milan.get, "lease", name, "-n", NAMESPACE), 60)
        for name in ("liqod-webhook", "liqod-peers"):
            eventually(f"{name} leads to the leader", partial(self.leads_to_the_leader, self.milan, name), 60)
        first = self.leader(self.milan)
        self.milan.kubectl("-n", NAMESPACE, "delete", "pod", first, "--wait")
        eventually("another leader", lambda: self.leader(self.milan) not in ("", first), 60)
        eventually("the Service follows", partial(self.leads_to_the_leader, self.milan, "liqod-webhook"), 60)
        self.helm(self.milan, "test", "liqod")
        self.milan.kubectl("-n", NAMESPACE, "scale", "deployment/liqod", "--replicas=0")
        eventually("no daemon leads", lambda: not self.leader(self.milan), 60)
        with self.assertRaises(CommandFailed):
            self.helm(self.milan, "test", "liqod", "--timeout=2m")
        self.helm(self.milan, "uninstall", "liqod", "--wait", "--timeout=4m")
        eventually("nothing is left", partial(self.is_as_before, self.milan), 60)

    def leader(self, cluster: Cluster) -> str:
        """Return the pod that leads."""
        return str(cluster.get("lease", "liqod", "-n", NAMESPACE)["spec"].get("holderIdentity") or "")

    def leads_to_the_leader(self, cluster: Cluster, name: str) -> bool:
        """Tell whether a Service leads to the pod that leads."""
        address = cluster.get("pod", self.leader(cluster), "-n", NAMESPACE)["status"]["podIP"]
        endpoints = cluster.get("endpointslice", name, "-n", NAMESPACE)["endpoints"]
        return [one["addresses"] for one in endpoints] == [[address]]

    # Without Helm

    def up(self, cluster: Cluster, *words: str) -> dict[str, Any]:
        """Run `liqodctl up --in-cluster` as an administrator of a cluster; returns what it publishes."""
        config = cluster.directory / "pods.toml"
        # The image of the offloaded pod is on the node, and nowhere else.
        config.write_text('[hosting]\nimage-pull-policy = "any"\n')
        name = "rome" if cluster is self.rome else "milan"
        image = (f"--image={IMAGE}:test", "--local-image", f"--name={name}", f"--config={config}")
        return self.program(cluster, "up", "--in-cluster", "--yes", "--timeout=240", *image, *words)

    def program(self, cluster: Cluster, *words: str) -> dict[str, Any]:
        """Run the checkout's liqodctl with an administrator's kubeconfig; returns what it publishes."""
        argv = [sys.executable, "-m", "liqod.cli", *words, "-o", "json", "--kubeconfig", str(cluster.kubeconfig)]
        found: dict[str, Any] = json.loads(cluster.run(argv, timeout=400))
        return found

    def test_07_up(self) -> None:
        """Two commands make two peers with a tunnel, out of nothing; each said beforehand what it would do."""
        for cluster in (self.rome, self.milan):
            cluster.kubectl("delete", "namespace", NAMESPACE, "--wait", timeout=120)
        tunnels = {one.index: ("--userspace", f"--gateway={one.node_name}") for one in (self.rome, self.milan)}
        planned = self.up(self.rome, "--dry-run", *tunnels[self.rome.index])
        self.assertFalse(planned["done"])
        self.assertEqual(self.objects(self.rome), self._before[self.rome.index])
        made = self.up(self.milan, "--invite", *tunnels[self.milan.index])
        found = self.up(self.rome, "--join", made["invitation"]["token"], *tunnels[self.rome.index])
        self.assertEqual(found["peer"], made["cluster"])
        self.assertEqual({step["state"] for step in self.up(self.rome)["steps"]}, {"done"})
        eventually("the virtual node", self.node_is_ready, 120)
        for cluster in (self.rome, self.milan):
            eventually("the tunnel", partial(self.is_connected, cluster), 120)

    def is_connected(self, cluster: Cluster) -> bool:
        """Tell whether packets cross to the peer."""
        found = cluster.get("tunnelendpoints")["items"]
        return [one.get("status", {}).get("phase") for one in found] == ["Connected"]

    def test_08_pods_call_each_other(self) -> None:
        """A pod here and one there: through the tunnel that the agents in pods made, also while their pods change."""
        self.rome.kubectl("create", "namespace", "shop")
        self.administrator(self.rome, "offload", "namespace", "shop", "--placement=Remote")
        self.rome.kubectl("create", "namespace", "here")
        serve = "echo hello from afar > /tmp/index.html; exec busybox httpd -f -p 8080 -h /tmp"
        there = pod("there", ["sh", "-c", serve], namespace="shop")
        eventually("the pod is accepted", partial(self.rome.apply, there), 60)
        local = {"nodeSelector": {"kubernetes.io/hostname": self.rome.node_name}}
        self.rome.apply(pod("client", ["sleep", "100000"], namespace="here", **local))
        for name, namespace in (("there", "shop"), ("client", "here")):
            ready = ("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=120s")
            self.rome.kubectl("-n", namespace, *ready, timeout=130)
        eventually("an answer", lambda: "hello from afar" in self.fetch(), 60)
        failures: list[str] = []
        done = threading.Event()

        def fetching() -> None:
            while not done.is_set():
                try:
                    if "hello from afar" not in self.fetch():
                        failures.append("another answer")
                except CommandFailed as error:
                    failures.append(str(error))

        asking = threading.Thread(target=fetching)
        asking.start()
        try:
            old = {one["metadata"]["uid"] for one in self.all_pods(self.rome)}
            config = self.rome.directory / "changed.toml"
            config.write_text('[log]\nlevel = "debug"\n')
            self.program(self.rome, "up", "--in-cluster", "--yes", "--timeout=240", f"--config={config}")
            replaced = old - {one["metadata"]["uid"] for one in self.all_pods(self.rome)}
            # All but wireguard-go's.
            self.assertEqual(len(replaced), len(old) - 1)
        finally:
            done.set()
            asking.join()
        self.assertEqual(failures, [])

    def all_pods(self, cluster: Cluster) -> list[dict[str, Any]]:
        """Return liqod's pods."""
        found: list[dict[str, Any]] = cluster.get("pods", "-n", NAMESPACE)["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def fetch(self) -> str:
        """Have the pod at home fetch a page from the one at the peer, by its address."""
        address = self.rome.get("pod", "there", "-n", "shop")["status"]["podIP"]
        script = f"printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} 8080"
        return self.rome.kubectl("exec", "-n", "here", "client", "--", "sh", "-c", script)

    def test_09_down(self) -> None:
        """After the end of the peering one command takes all of it back: objects, namespace, and the nodes' network."""
        self.administrator(self.rome, "unoffload", "namespace", "shop")
        self.rome.kubectl("delete", "namespace", "shop", "here")
        self.administrator(self.rome, "unpeer", "milan", "--yes")
        for cluster in (self.rome, self.milan):
            self.program(cluster, "down", "--in-cluster", "--yes")
            self.assertEqual(self.objects(cluster), self._before[cluster.index])
            for host in (cluster.host, *(worker.host for worker in cluster.workers)):
                held = host.run(["ip", "-brief", "link"]) + host.run(["nft", "list", "tables"])
                self.assertNotIn("liqod", held)
            self.assertNotIn("net.liqo.io/overlay", str(cluster.get("nodes")["items"]))


class RenderTests(SynchronousTestCase):
    """The chart as Helm reads it, on this machine alone."""

    def helm(self, *words: str) -> str:
        """Run helm."""
        build.ensure(("helm",))
        done = subprocess.run([str(versions.program("helm")), *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_lint(self) -> None:
        """Helm finds nothing wrong with it, for the oldest Kubernetes and for the usual one."""
        for release in RELEASES:
            self.assertIn("0 chart(s) failed", self.helm("lint", str(CHART), "--strict", "--kube-version", release))

    def test_as_helm(self) -> None:
        """For each kind of values Helm makes the objects that `liqodctl` makes of the same templates.

        They are the same for the oldest Kubernetes and for the usual one.
        """
        for variant, values in VARIANTS.items():
            file = Path(self.mktemp())
            file.write_text(json.dumps(values))
            ours = {_named(one): one for one in render(values, Release(NAMESPACE))}
            for release in RELEASES:
                words = ("--namespace", NAMESPACE, "--values", str(file), "--kube-version", release)
                printed = self.helm("template", "liqod", str(CHART), *words)
                theirs = {_named(one): one for one in yaml.safe_load_all(printed) if one}
                self.assertEqual(sorted(theirs), sorted(ours), (variant, release))
                for name, one in ours.items():
                    self.assertEqual(theirs[name], one, (variant, release, name))

    def test_older(self) -> None:
        """For a Kubernetes that is older than the oldest one Helm refuses, and says which it takes."""
        program = str(versions.program("helm"))
        words = [program, "template", "liqod", str(CHART), "--kube-version", "1.29.9"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(">=1.30.0-0", done.stderr)


def _named(body: dict[str, Any]) -> str:
    return f"{body['kind']} {body['metadata']['name']}"


def _image() -> Path:
    """Return the archive of the image, built for this run."""
    output = Path(tempfile.mkdtemp())
    words = [sys.executable, str(CHECKOUT / "packaging/tools/image.py")]
    done = subprocess.run(
        [*words, "--output", str(output), "--tag", f"{IMAGE}:test"],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = output.glob("*.oci.tar")
    return archive
