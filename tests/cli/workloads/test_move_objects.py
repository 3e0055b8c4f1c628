"""What is made for a move."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.workloads.move import objects
from liqod.cli.workloads.move.seen import HOME, MoveRecord
from liqod.hosting.shadowpods.forge import labels_of
from liqod.kubelet.common.context import Context
from liqod.kubelet.pods.forge import forge_shadow
from liqod.kubelet.reflection.forge import endpointslice as endpoint_forge
from liqod.kubelet.reflection.forge import service as service_forge
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs
from liqod.kubelet.reflection.views import EndpointSlice, WithSpec
from liqod.model.ids import ClusterID, Key
from liqod.model.names import SKIP_REFLECTION
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.views import ShadowPod
from tests.kubelet.networks import LenderObjects

CLAIM: dict[str, Any] = {
    "metadata": {
        "name": "data",
        "uid": "u1",
        "labels": {"app": "web", "storage.liqo.io/move": "earlier"},
        "annotations": {
            "note": "n",
            "volume.kubernetes.io/selected-node": "one",
            "pv.kubernetes.io/bind-completed": "yes",
            "volume.beta.kubernetes.io/storage-provisioner": "x",
        },
        "finalizers": ["kubernetes.io/pvc-protection"],
    },
    "spec": {"storageClassName": "liqo", "volumeName": "pv-1", "resources": {"requests": {"storage": "1Gi"}}},
}
RECORD = MoveRecord(
    id="0a1b", claim="data", uid="u1", origin="c2", target=HOME, phase="copying", body=objects.portable(CLAIM)
)
IMAGES = objects.Images("restic:1", "server:1")


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether a selector finds a pod with these labels."""
    return bool(selector) and selector.items() <= labels.items()


def slice_of(origin: str) -> dict[str, Any]:
    """Return the endpoints of the repository as home has them, of a pod at home or on the virtual node of a lender."""
    labels = {"kubernetes.io/service-name": "liqo-move-0a1b"}
    endpoint = {"addresses": ["10.1.0.5"], "nodeName": "one" if origin == HOME else f"liqo-{origin}"}
    metadata = {"name": "liqo-move-0a1b-x", "namespace": "shop", "labels": labels}
    return {"metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint], "ports": [{"port": objects.PORT}]}


class ObjectsTests(SynchronousTestCase):
    """Bodies."""

    def test_the_claim_made_again(self) -> None:
        """It has what users wrote, and neither the volume nor the node of the original."""
        made = objects.new_claim(RECORD, "shop")
        self.assertEqual(made["metadata"]["labels"], {"app": "web", "storage.liqo.io/move": "0a1b"})
        self.assertEqual(made["metadata"]["annotations"], {"note": "n"})
        self.assertNotIn("finalizers", made["metadata"])
        self.assertEqual(set(made["spec"]), {"storageClassName", "resources"})
        copy = objects.copy_claim(RECORD, "shop")
        self.assertEqual((copy["metadata"]["name"], copy["spec"]), ("liqo-move-0a1b", made["spec"]))

    def test_the_record_stays(self) -> None:
        """It is not reflected; there is one name for all moves of a claim."""
        body = objects.record_body(RECORD, "shop")
        self.assertEqual(body["metadata"]["annotations"], {SKIP_REFLECTION: "true"})
        self.assertEqual(body["metadata"]["name"], objects.record_name("data"))
        self.assertNotEqual(objects.record_name("data"), objects.record_name("other"))
        first = objects.move_id(Key("shop", "data"), "u1", "c2")
        self.assertNotEqual(first, objects.move_id(Key("shop", "data"), "u2", "c2"))

    def test_the_secret(self) -> None:
        """The server knows the digest of the password that restic has."""
        made = objects.secret(RECORD, "shop", "word")["stringData"]
        digest = base64.b64encode(hashlib.sha1(b"word", usedforsecurity=False).digest()).decode()
        self.assertEqual((made["password"], made["htpasswd"]), ("word", f"move:{{SHA}}{digest}\n"))

    def test_where_jobs_run_and_what_they_mount(self) -> None:
        """The original is mounted to be read; at home no virtual node is tolerated."""
        backup = objects.job(RECORD, "shop", "backup", IMAGES, "s1")
        restore = objects.job(RECORD, "shop", "restore", IMAGES, "s1")
        refill = objects.job(RECORD, "shop", "refill", IMAGES, "")
        for job, tolerates, mounts in (
            (backup, True, [("data", True)]),
            (restore, False, [("liqo-move-0a1b", False)]),
            (refill, False, [("liqo-move-0a1b", True), ("data", False)]),
        ):
            spec = job["spec"]["template"]["spec"]
            self.assertEqual(bool(spec["tolerations"]), tolerates)
            claims = [one["persistentVolumeClaim"]["claimName"] for one in spec["volumes"]]
            modes = [one["readOnly"] for one in spec["containers"][0]["volumeMounts"]]
            self.assertEqual(list(zip(claims, modes, strict=True)), mounts)
            self.assertEqual(spec["containers"][0]["image"], "restic:1")
        self.assertEqual(backup["metadata"]["annotations"], {"storage.liqo.io/repository": "s1"})
        self.assertEqual(objects.server_pod(RECORD, "shop", IMAGES)["spec"]["containers"][0]["image"], "server:1")

    def test_the_repository_is_found_from_each_cluster(self) -> None:
        """By its labels where the original is, as they are there, and by its address everywhere else."""
        encode, decode = msgspec.json.encode, msgspec.json.decode
        for origin, target in ((HOME, "c2"), ("c2", HOME), ("c2", "c3")):
            record = msgspec.structs.replace(RECORD, origin=origin, target=target)
            pod, service = objects.server_pod(record, "shop", IMAGES), objects.service(record, "shop")
            # At home, whose own endpoints name pods at a lender as well.
            self.assertTrue(selects(service["spec"]["selector"], pod["metadata"]["labels"]))
            for lender in sorted({origin, target} - {HOME}):
                node = f"liqo-{lender}"
                context = Context(home=ClusterID("c1"), lender=ClusterID(lender), node_name=node)
                inputs = ForgeInputs(context, home=LenderObjects(nodes=(node,)))
                there = service_forge.forge(decode(encode(service), type=WithSpec), inputs)
                meta = decode(encode(pod["metadata"]), type=ObjectMeta)
                shadow = decode(encode(forge_shadow(meta, pod["spec"], "shop-c1", context)), type=ShadowPod)
                endpoints = endpoint_forge.forge(decode(encode(slice_of(origin)), type=EndpointSlice), inputs)
                assert isinstance(there, DesiredObject)
                assert isinstance(endpoints, DesiredObject)
                self.assertTrue(selects(there.content["spec"]["selector"], labels_of(shadow)), lender)
                # Where the labels find the pod, its address would name it a second time.
                addresses = endpoints.content["spec"]["template"].get("endpoints", [])
                self.assertEqual(bool(addresses), lender != origin, lender)

    def test_progress(self) -> None:
        """By the last line that says so; whatever else a log holds is none."""
        line = '{"message_type":"status","percent_done":0.42}'
        for log, text in (
            (f'{{"percent_done":0.1}}\n{line}\nnoise', "42 %"),
            ("", ""),
            ("[1]\n{", ""),
            ('{"percent_done":"all"}', ""),
            ('{"percent_done":7}', ""),
        ):
            self.assertEqual(objects.progress(log), text)
