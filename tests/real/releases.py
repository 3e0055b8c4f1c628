"""A walk that is the same on every release of Kubernetes: two clusters of one release, or of two."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any, ClassVar, Final

from tests.real.base import require_built, require_clusters
from tests.real.manifests import pod
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    offloaded,
    peer_of,
)
from tests.real.steps import VIRTUAL, Steps
from tests.testbed import versions
from tests.testbed.process import CommandFailed

APP: Final = "web"


class ReleaseCase(Steps):
    """Offload, reflect, store, read logs, be admitted, end; a class names the releases of home and lender."""

    releases: ClassVar[tuple[str, ...]] = ()

    def setUp(self) -> None:
        """Build the programs of the releases, and make the clusters before the first step."""
        cls = type(self)
        if cls._testbed is None:
            require_clusters()
            for name in cls.releases:
                require_built(versions.SERVERS, versions.release(name))
            cls.shape = {"versions": cls.releases}
        super().setUp()

    def test_01_they_are_what_they_say(self) -> None:
        """Each API server and each kubelet says its release, and `check` says what it lacks."""
        for daemon in (self.rome, self.milan):
            cluster = daemon.cluster
            said = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
            self.assertEqual(said, f"v{cluster.version}")
            info = cluster.get("node", cluster.node_name)["status"]["nodeInfo"]
            self.assertEqual(info["kubeletVersion"], f"v{cluster.version}")
            findings = self.checked(daemon.liqodctl)
            lacks = [one["text"] for one in findings if one["group"] == "Kubernetes"]
            self.assertEqual(bool(lacks), versions.minor(cluster.version) < (1, 36), lacks)

    def checked(self, liqodctl: Any) -> list[dict[str, Any]]:
        """Return what `liqodctl check` finds, whatever its verdict is."""
        try:
            said = liqodctl("check", "--pre", "-o", "json")
        except CommandFailed as error:
            said = error.output
        begin = re.search(r"^\[", said, re.MULTILINE)
        self.assertIsNotNone(begin, said)
        assert begin is not None
        text = said[begin.start() : said.rindex("]") + 1]
        return [dict(one) for one in json.loads(text)]

    def test_02_peers(self) -> None:
        """The clusters find each other and trust; home has a virtual node with the lender's release.

        `status` says what that release lacks for pods there.
        """
        self.peer_up()
        node = self.home.get("node", "liqo-milan")
        self.assertEqual(node["status"]["nodeInfo"]["kubeletVersion"], f"v{self.lender.version}")
        said = json.loads(self.rome.liqodctl("status", "milan", "-o", "json"))
        self.assertEqual(bool(said["lacks"]), versions.minor(self.lender.version) < (1, 34), said)

    def test_03_webhook(self) -> None:
        """A pod of an enabled namespace gets the toleration when it is made; one of another namespace does not."""
        self.home.apply(enabled_namespace())
        eventually("the account", partial(self.home.get, "serviceaccount", "default", "-n", NAMESPACE))
        eventually("the webhook", lambda: self.home.get("mutatingwebhookconfiguration", "liqod")["webhooks"])

        def tolerant(namespace: str) -> bool:
            made = self.home.kubectl(
                "create", "--dry-run=server", "-o", "json", "-f", "-",
                input=json.dumps(pod("asked", ["sleep", "1"], namespace=namespace)),
            )  # fmt: skip
            keys = {one.get("key") for one in json.loads(made)["spec"].get("tolerations", [])}
            return "virtual-node.liqo.io/not-allowed" in keys

        eventually("the toleration", partial(tolerant, NAMESPACE))
        self.assertFalse(tolerant("default"))

    def test_04_offloaded(self) -> None:
        """Three pods run at the lender, are scaled, and replaced when one is deleted."""
        self.home.apply(deployment(APP, 3))
        eventually("three pods", lambda: offloaded(self.home, self.lender, APP, 3), 180)
        self.home.kubectl("scale", "-n", NAMESPACE, f"deployment/{APP}", "--replicas=2")
        pods = eventually("two pods", lambda: offloaded(self.home, self.lender, APP, 2))
        self.drop(f"pod/{sorted(pods)[0]}")
        eventually("two pods again", lambda: offloaded(self.home, self.lender, APP, 2))

    def test_05_logs_and_exec(self) -> None:
        """``kubectl logs`` and ``exec`` reach the containers, with output, errors and standard input."""
        name = sorted(live_pods(self.home, APP))[0]
        self.assertIn("hello from", self.home.kubectl("logs", "-n", NAMESPACE, name))
        self.assertEqual(self.home.kubectl("exec", "-n", NAMESPACE, name, "--", "hostname").strip(), name)
        said = self.home.kubectl("exec", "-i", "-n", NAMESPACE, name, "--", "cat", input="through both\n")
        self.assertEqual(said, "through both\n")
        with self.assertRaises(CommandFailed) as failed:
            self.home.kubectl("exec", "-n", NAMESPACE, name, "--", "sh", "-c", "exit 7")
        self.assertIn("exit code 7", failed.exception.output)

    def test_06_reflected(self) -> None:
        """Config maps, secrets and services follow, are kept up to date, and go; a pod sees what it mounts."""
        meta = {"name": "conf", "namespace": NAMESPACE}
        front = {"ports": [{"port": 80}], "selector": {"app": APP}}
        objects = [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "1"}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"b": "2"}},
            {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": front},
        ]
        self.home.apply(*objects)
        volumes = [{"name": "conf", "configMap": {"name": "conf"}}]
        body = pod("reader", ["sh", "-c", "cat /conf/a; while :; do sleep 1; done"], namespace=NAMESPACE)
        body["spec"].update({"nodeSelector": VIRTUAL, "volumes": volumes})
        body["spec"]["containers"][0]["volumeMounts"] = [{"name": "conf", "mountPath": "/conf"}]
        self.home.apply(body)
        eventually("the reader runs", lambda: is_running(self.here("pod", "reader")))
        eventually("it has read", lambda: self.home.kubectl("logs", "-n", NAMESPACE, "reader") == "1")
        for kind in ("configmap", "secret", "service"):
            eventually(f"the {kind}", partial(self.there, kind, "conf"))
        objects[0]["data"] = {"a": "3"}
        self.home.apply(objects[0])
        eventually("the change", lambda: self.there("configmap", "conf")["data"] == {"a": "3"})
        self.drop("pod/reader", "configmap/conf", "secret/conf", "service/conf")
        for kind in ("configmap", "secret", "service"):
            eventually(f"no {kind}", partial(self.is_absent, self.lender, kind, "conf", self.remote()))

    def test_07_storage(self) -> None:
        """A claim's data is made at the lender and found there by the next pod."""
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        self.lender.apply(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "disks", "annotations": default},
                "provisioner": "kubernetes.io/no-provisioner",
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": "disk"},
                "spec": {
                    "storageClassName": "disks",
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(self.lender.directory / "volume"), "type": "DirectoryOrCreate"},
                },
            },
        )
        peer = peer_of(self.home, "milan")["metadata"]["name"]
        offer = partial(self.home.get, "adv", f"advertisement-{peer}")
        eventually("the class is offered", lambda: offer()["spec"]["offer"].get("storageClasses") == ["disks"])
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "liqo",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        meta = {"name": "data", "namespace": NAMESPACE}
        self.home.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
        for number, wanted in (("1", "found"), ("2", "found 1")):
            script = f"echo found $(cat /data/x); echo {number} > /data/x; while :; do sleep 1; done"
            body = pod(f"keeps-{number}", ["sh", "-c", script], namespace=NAMESPACE)
            claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
            body["spec"].update({"nodeSelector": VIRTUAL, "volumes": [claim]})
            body["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
            self.home.apply(body)
            said = partial(self.home.kubectl, "logs", "-n", NAMESPACE, f"keeps-{number}")
            eventually(f"pod {number}", partial(self.has_said, said, wanted), 180)
            self.drop(f"pod/keeps-{number}")
        self.drop("pvc/data")
        eventually("no claim is left", lambda: not self.lender.get("pvc", "-n", self.remote())["items"])

    def has_said(self, said: Any, wanted: str) -> bool:
        """Tell whether a pod has printed this line, and nothing else."""
        return bool(said().strip() == wanted)

    def test_08_requests_of_the_whole_pod(self) -> None:
        """What a lender drops, requests of the pod as a whole before 1.34, is refused with the reason."""
        body = pod("whole", ["sh", "-c", "while :; do sleep 1; done"], namespace=NAMESPACE)
        body["spec"].update({"nodeSelector": VIRTUAL, "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}})
        if versions.minor(self.home.version) < (1, 34):
            return  # home drops it already, and has an ordinary pod
        self.home.apply(body)
        if versions.minor(self.lender.version) >= (1, 34):
            eventually("it runs", lambda: is_running(self.here("pod", "whole")))
        else:
            eventually("it is refused", lambda: "1.34" in json.dumps(self.here("pod", "whole")["status"]))
        self.drop("pod/whole")

    def test_09_the_end(self) -> None:
        """When the peering ends, nothing of it is left at either side."""
        self.addCleanup(self._close)
        remote = self.remote()
        self.home.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s", timeout=190)
        eventually("the namespace is gone", partial(self.is_absent, self.lender, "namespace", remote), 180)
        self.rome.liqodctl("unpeer", "milan", "--yes", timeout=200)
        eventually("no node", partial(self.is_absent, self.home, "node", "liqo-milan"))
        for cluster in (self.home, self.lender):
            for kind in ("shadowpods", "virtualnodes", "networkconfigs"):
                eventually(f"no {kind}", lambda c=cluster, k=kind: c.get(k, "-A")["items"] == [])  # type: ignore[misc]

    def _close(self) -> None:
        """Remove the clusters: those of the next class need the memory."""
        for daemon in (self.rome, self.milan):
            daemon.stop()
        assert self._testbed is not None
        self._testbed.stop()
