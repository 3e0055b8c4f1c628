"""The container image and the chart on real clusters: installed by helm, peered by a token, upgraded, removed."""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.real.base import require_clusters
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
IMAGE = "localhost/liqod"
KINDS = "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,priorityclass"
"""Kinds without a namespace that an installation has objects of."""
MORE = "namespace,mutatingwebhookconfiguration,storageclass,role,rolebinding,serviceaccount,secret,configmap,lease"


class ChartTests(SynchronousTestCase):
    """Two clusters, rome with two nodes, without anything of liqod; the steps run in the order of their names."""

    _testbed: ClassVar[Testbed | None] = None
    _before: ClassVar[dict[int, set[str]]] = {}

    def setUp(self) -> None:
        if self._testbed is None:
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
        assert self._testbed is not None
        self.rome, self.milan = self._testbed.clusters

    def objects(self, cluster: Cluster) -> set[str]:
        """Return what there is of the kinds that an installation makes, but for what the cluster itself keeps."""
        found = cluster.get(f"{KINDS},{MORE}", "-A")["items"]
        names = {f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}" for one in found}
        return {name for name in names if not re.search(r" (kube-|default/)| liqo-system/(default|kube-root)", name)}

    def helm(self, cluster: Cluster, *words: str) -> str:
        """Run helm in a cluster; returns what it prints."""
        program = [str(versions.program("helm")), "--kubeconfig", str(cluster.kubeconfig), "-n", NAMESPACE]
        return cluster.run([*program, *words], timeout=400)

    def install(self, cluster: Cluster, verb: str, *words: str) -> str:
        """Install or upgrade the chart with the test's image."""
        given = {"image.repository": IMAGE, "image.tag": "test", "image.pullPolicy": "Never", "clusterName": "rome"}
        if cluster is self.milan:
            given |= {"clusterName": "milan", "replicas": "1"}
            # The image of the offloaded pod is on the node, and nowhere else.
            words = (*words, "--set-literal", 'configuration=[hosting]\nimage-pull-policy = "any"')
        sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        return self.helm(cluster, verb, "liqod", str(CHART), "--wait", "--timeout=5m", *sets, *words)

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
        self.helm(self.rome, "rollback", "liqod", "1", "--wait", "--timeout=5m")
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
