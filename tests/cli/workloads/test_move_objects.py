"""What is made for a move."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.workloads.move import objects
from liqod.cli.workloads.move.seen import HOME, MoveRecord
from liqod.model.ids import Key
from liqod.model.names import SKIP_REFLECTION

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
