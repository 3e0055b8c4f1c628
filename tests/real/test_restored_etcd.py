"""Home's etcd goes back to a backup from before two hundred pods with claims were offloaded: none of them is lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.real.path import NAMESPACE, condition, deployment, enabled_namespace, eventually, offloaded, peer_of
from tests.real.steps import VIRTUAL, Steps
from tests.testbed.image import BUSYBOX
from tests.testbed.process import CommandFailed

COUNT: Final = 200
APP, KEPT = "data", "kept"
CLASS: Final = "disk"
LONG: Final = 900.0
"""Seconds that hundreds of pods may take on two busy control planes."""
QUIET: Final = 40.0
"""Seconds in which the daemon would delete, had it not asked: more than it takes to look at all that there is."""
MADE_UP: Final = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}


def stateful_set() -> dict[str, Any]:
    """Return a set of pods that are made at once, each with a claim of the class whose data follows its pod."""
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "liqo",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sleep", "1000000"],
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {
        "nodeSelector": VIRTUAL,
        "tolerations": [MADE_UP],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": APP, "namespace": NAMESPACE},
        "spec": {
            "serviceName": APP,
            "replicas": COUNT,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": APP}},
            "template": {"metadata": {"labels": {"app": APP}}, "spec": spec},
            "volumeClaimTemplates": [claim],
        },
    }


def disks() -> list[dict[str, Any]]:
    """Return a class of storage and as many volumes of it as there are claims."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": default},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{CLASS}-{number}"},
            "spec": {
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": CLASS,
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": f"/nowhere/{CLASS}-{number}"},
            },
        }
        for number in range(COUNT)
    ]
    return [storage_class, *volumes]


class RestoredEtcdTests(Steps):
    """Rome's pods run on a made-up node of milan; the steps are a backup, what comes after it, and its restore."""

    shape: ClassVar[dict[str, Any]] = {"kwok": 1, "nodeless": (1, 2), "qps": 200}
    backup: ClassVar[Path | None] = None
    before: ClassVar[dict[str, dict[str, str]]] = {}

    def at_milan(self) -> dict[str, dict[str, str]]:
        """Return the UIDs of what the tests make there, by kind and name."""
        kinds = ("shadowpods", "pods", "pvc")
        listed = {kind: self.lender.get(kind, "-n", self.remote())["items"] for kind in kinds}
        return {
            kind: {one["metadata"]["name"]: one["metadata"]["uid"] for one in items} for kind, items in listed.items()
        }

    def bound(self) -> bool:
        """Tell whether all claims at milan have their volumes."""
        claims = self.lender.get("pvc", "-n", self.remote())["items"]
        return len(claims) == COUNT and all(one["status"]["phase"] == "Bound" for one in claims)

    def record(self) -> dict[str, Any]:
        """Return rome's record of the virtual node."""
        (found,) = self.home.get("vn", "-A")["items"]
        return dict(found)

    def status(self) -> str:
        """Return what `liqodctl status` prints, which fails while there is a question."""
        try:
            return self.rome.liqodctl("status")
        except CommandFailed as error:
            return error.output

    def test_01_a_backup(self) -> None:
        """A pod runs at milan, and rome's etcd is copied."""
        self.lender.apply(*disks())
        self.peer_up()
        kept = deployment(KEPT, 1)
        kept["spec"]["template"]["spec"]["tolerations"] = [MADE_UP]
        self.home.apply(enabled_namespace(), kept)
        eventually("the first pod runs", lambda: offloaded(self.home, self.lender, KEPT, 1))
        peer = peer_of(self.home, "milan")["metadata"]["name"]
        eventually(
            "storage is offered",
            lambda: CLASS in self.home.get("adv", f"advertisement-{peer}")["spec"]["offer"].get("storageClasses", ()),
        )
        type(self).backup = self.home.copy_etcd()
        eventually("the first pod runs still", lambda: offloaded(self.home, self.lender, KEPT, 1))

    def test_02_two_hundred_pods(self) -> None:
        """They come after the backup, run at milan, and each has a claim whose data is there."""
        self.home.apply(stateful_set())
        eventually("all run", lambda: offloaded(self.home, self.lender, APP, COUNT), LONG, 2.0)
        eventually("all claims are bound", self.bound, LONG, 2.0)
        type(self).before = self.at_milan()
        self.assertEqual(len(self.before["shadowpods"]), COUNT + 1)

    def test_03_the_restore(self) -> None:
        """Rome knows nothing of them any more; at milan none is deleted, neither pod nor claim, and `status` asks."""
        assert self.backup is not None
        self.rome.stop()
        self.home.restore_etcd(self.backup)
        self.assertTrue(self.is_absent(self.home, "statefulset", APP, NAMESPACE))
        self.rome.start()
        eventually("deletions are held", lambda: condition(self.record(), "DeletionsHeld") == "True", 300.0)
        end = time.monotonic() + QUIET
        while time.monotonic() < end:
            self.assertEqual(self.at_milan(), self.before)
            time.sleep(2.0)
        (held,) = (one for one in self.record()["status"]["conditions"] if one["type"] == "DeletionsHeld")
        self.assertIn(held["reason"], ("MissingAtHome", "HomeWentBack"))
        self.assertIn(f"{COUNT} of {COUNT + 1} shadowpods", held["message"])
        self.assertIn("liqodctl confirm-deletions milan", " ".join(self.status().split()))

    def test_04_the_answer(self) -> None:
        """Confirmed, the pods go; the first one runs on, and the claims stay: data is not deleted for being missing."""
        self.rome.liqodctl("confirm-deletions", "milan")
        eventually("the pods are gone", lambda: len(self.at_milan()["shadowpods"]) == 1, LONG, 2.0)
        eventually("the question is answered", lambda: condition(self.record(), "DeletionsHeld") == "False")
        after = self.at_milan()
        self.assertEqual(after["pvc"], self.before["pvc"])
        (name,) = after["shadowpods"]
        self.assertEqual(after["shadowpods"][name], self.before["shadowpods"][name])
        eventually("the first pod runs", lambda: offloaded(self.home, self.lender, KEPT, 1))
