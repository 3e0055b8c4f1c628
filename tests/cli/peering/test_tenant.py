"""``liqodctl tenant show``: what a peer may do, has here and has left."""

from __future__ import annotations

import json
from typing import Any

from liqod.hosting.tenants.quota.levels import OF_NEW_TENANTS
from liqod.kube.resources import FOREIGNCLUSTERS, NAMESPACES, PODS, RESOURCEQUOTAS, SECRETS, SHADOWPODS
from liqod.model.names import (
    FULL_LABEL,
    HELD_WRITES_LABEL,
    MANAGED_BY_LABEL,
    MANAGED_BY_SHADOWPOD,
    ORIGIN_LABEL,
    ORIGINAL_NAME_ANNOTATION,
    REMOTE_CLUSTER_LABEL,
)
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object
from liqod.peering.records.status import LIMITS
from tests.cli import test_every_command


class TenantTests(test_every_command.EveryCase):
    """A cluster that lends to one peer."""

    async def namespace(self, name: str, peer: str) -> None:
        metadata = {
            "name": name,
            "labels": {REMOTE_CLUSTER_LABEL: peer},
            "annotations": {ORIGINAL_NAME_ANNOTATION: "shop"},
        }
        await self.client.create(NAMESPACES, {"metadata": metadata})

    async def pod(self, name: str, namespace: str, *, managed: bool = True) -> None:
        metadata: dict[str, Any] = {"name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY_SHADOWPOD}}
        if managed:  # the garbage collector deletes a pod whose owner does not exist
            owner = await self.client.create(
                SHADOWPODS, {"metadata": {"name": name}, "spec": {"pod": {}}}, namespace, view=Object
            )
            reference = {"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod", "controller": True}
            metadata["ownerReferences"] = [{**reference, "name": name, "uid": owner.metadata.uid}]
        resources = {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}
        spec = {"containers": [{"name": "main", "image": "x", "resources": resources}]}
        await self.client.create(PODS, {"metadata": metadata, "spec": spec}, namespace)

    async def rows(self) -> dict[tuple[str, str], tuple[str, str, str]]:
        out, err, status = await self.outcome("tenant", "show", "milan", "-o", "json")
        self.assertEqual(status, 0, err)
        return {(row["of"], row["what"]): (row["used"], row["bound"], row["left"]) for row in json.loads(out)}

    async def test_show(self) -> None:
        """The offer less what its pods request, quotas by namespace, and the contract; nothing of other peers."""
        await self.namespace("shop-c2", "c2")
        await self.namespace("shop-c3", "c3")
        await self.pod("web", "shop-c2")
        await self.pod("of-mine", "shop-c2", managed=False)
        await self.pod("of-others", "shop-c3")
        lent = {"resources": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "verdict": "Accepted"}
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"status": {"lent": lent}}, subresource="status")
        amounts = {"hard": {"count/secrets": "510", "requests.storage": "1Ti"}, "used": {"count/secrets": "7"}}
        quota = {"metadata": {"name": "liqod-tenant"}, "spec": {"hard": amounts["hard"]}}
        await self.client.create(RESOURCEQUOTAS, quota, "shop-c2")
        await self.client.patch(RESOURCEQUOTAS, "liqod-tenant", {"status": amounts}, "shop-c2", subresource="status")
        for label, size in ((ORIGIN_LABEL, 5000), ("app", 90_000)):
            secret = {"metadata": {"name": label.partition("/")[0], "labels": {label: "c2"}}}
            await self.client.create(SECRETS, {**secret, "data": {"a": "eHh4" * (size // 4)}}, "shop-c2")
        found = await self.rows()
        self.assertEqual(found["offer", "cpu"], ("500m", "4", "3500m"))
        self.assertEqual(found["offer", "memory"], ("1Gi", "8Gi", "7Gi"))
        self.assertEqual(found["offer", "pods"], ("1", "10", "9"))
        self.assertEqual(found["offer", "namespaces"], ("1", "1000", "999"))
        self.assertEqual(found["shop-c2", "count/secrets"], ("7", "510", "503"))
        self.assertEqual(found["shop-c2", "requests.storage"], ("0", "1Ti", "1Ti"))
        self.assertEqual(found["tenant", "count/secrets"], ("7", "5010", "5003"))
        self.assertEqual(found["tenant", "requests.storage"], ("0", "10Ti", "10Ti"))
        self.assertEqual(found["tenant", "shadowpods"], ("1", "1100", "1099"))
        self.assertEqual(found["tenant", "shadownetworkpolicysets"], ("0", "1000", "1000"))
        self.assertEqual(found["tenant", "bytes"][1], "256Mi")
        self.assertNotIn(found["tenant", "bytes"][0], ("", "0"))
        used, bound, _ = found["tenant", "config maps and secrets"]
        self.assertEqual((quantity.parse(used) > 5000, quantity.parse(used) < 7000, bound), (True, True, "256Mi"))
        self.assertEqual(found["contract", "quota"][1], OF_NEW_TENANTS)
        self.assertEqual(found["contract", "control-plane-nodes"][1], "auto")
        self.assertIn("persistentVolumeClaim", found["contract", "volumes"][1])
        self.assertFalse(any(of == "shop-c3" for of, _ in found))
        self.assertEqual(found["fixed", "ports of a service"][1], "64")
        self.assertIn("livenessProbe", found["fixed", "fields of a container"][1])
        self.assertEqual(found["share", "RelayRequests"][1], "500 a second, 5000 at once")
        self.assertFalse(any(of == "refused" for of, _ in found))

    async def test_what_was_refused(self) -> None:
        """What was refused or held back, what there is no room for, and the slices of the offer."""
        await self.namespace("shop-c2", "c2")
        labels = {"metadata": {"labels": {FULL_LABEL: "shadowpods", HELD_WRITES_LABEL: "x"}}}
        await self.client.patch(NAMESPACES, "shop-c2", labels)
        conditions = [{"type": LIMITS, "status": "False", "reason": "Limited", "message": "held back once: RelayBytes"}]
        lent = {"resources": {"cpu": "4"}, "verdict": "Accepted", "slices": [{"name": "s", "resources": {"cpu": "1"}}]}
        status = {"lent": lent, "conditions": conditions}
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"status": status}, subresource="status")
        found = await self.rows()
        self.assertEqual(found["refused", "Limited"][1], "held back once: RelayBytes")
        self.assertEqual(found["refused", "no room"][1], "shadowpods")
        self.assertEqual(found["refused", "writes are held until"][1], "x")
        self.assertEqual(found["offer", "slice s"][1], "cpu=1")

    async def test_nothing_is_lent(self) -> None:
        """A peer to which nothing is lent has no room, and the table says so."""
        await self.namespace("shop-c2", "c2")
        await self.pod("web", "shop-c2")
        self.assertEqual((await self.rows())["offer", "cpu"], ("500m", "0", "0"))
        out, _, _ = await self.outcome("tenant", "show", "milan", tty=80)
        self.assertIn("nothing is lent to milan", out)
