"""A tenant on a real API server for variations: what it is granted, and what others have there.

A case imports the module, not the class: trial runs what it finds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, DeferredSemaphore
from twisted.internet.task import deferLater

from liqod.config.schema import HostingSettings, NetworkSettings, Settings
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError
from liqod.kube.resources import (
    NODES,
    PERSISTENTVOLUMES,
    RUNTIMECLASSES,
    SERVICEACCOUNTS,
    STORAGECLASSES,
    Resource,
)
from tests.hosting.side import HostingSide
from tests.real.sides import Asked
from tests.testbed.kwok import node_manifest
from tests.variations import seen
from tests.variations.families import Family
from tests.variations.pods_seen import FOR_OTHERS
from tests.variations.routes import GATEWAY
from tests.variations.seen import Judge
from tests.variations.services import HOSTS
from tests.variations.storage import CLASS
from tests.variations.variation import Variation

AT_A_TIME: Final = 8
_CAPACITY: Final = {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"]}
_NODES: Final = ((FOR_OTHERS[0], "node-role.kubernetes.io/control-plane", ""), (FOR_OTHERS[1], "dedicated", "gpu"))
"""Nodes that are not for tenants: name, the key of their taint and label, its value."""


class Tenant(Asked, HostingSide):
    """One tenant with a namespace of a cluster where others have volumes, accounts and nodes."""

    cluster_count = 1
    timeout = 900

    async def prepare(self) -> None:
        """Begin, and give others what the tenant is after."""
        (self.admin,) = self.admins
        await self.begin()
        for resource, body, namespace in _others():
            with contextlib.suppress(AlreadyExists):
                await self.admin.create(resource, body, namespace)
        for name, taint, value in _NODES:
            node = json.loads(node_manifest(name, tainted=False))
            node["metadata"]["labels"][taint] = value
            node["spec"] = {"taints": [{"key": taint, "value": value, "effect": "NoSchedule"}]}
            with contextlib.suppress(AlreadyExists):
                await self.admin.create(NODES, node)
        lent = {"cpu": "1000", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "1000"}
        self.client, self.namespace = await self.tenant(**lent)
        # The admission plugin ServiceAccount wants the account that a pod names.
        await self.admin.create(SERVICEACCOUNTS, {"metadata": {"name": "strong"}}, self.namespace)

    def settings(self) -> Settings:
        """Return settings that grant a little of everything, so that not all is refused for being of its kind."""
        granted = HostingSettings(
            ingress_hosts=[HOSTS],
            ingress_classes=["public"],
            gateways=[GATEWAY],
            # The controller manager counts a new kind only after a while, and until then nothing of it is made.
            uncounted=[f"count/{kind}.gateway.networking.k8s.io" for kind in ("httproutes", "grpcroutes")],
            storage_classes=[CLASS],
            tenant_contents="1Mi",
        )
        return Settings(network=NetworkSettings(mode="none"), hosting=granted)

    async def ask_all(self, variations: Iterable[Variation], client: Client | None = None) -> dict[str, str]:
        """Ask for all variations, some at a time; return the refusals, empty ones too, by name."""
        turns = DeferredSemaphore(AT_A_TIME)
        refusals: dict[str, str] = {}

        async def ask(variation: Variation) -> None:
            refusals[variation.name] = await variation.ask(client or self.client, self.namespace)

        def begin(variation: Variation) -> Deferred[None]:
            return Deferred.fromCoroutine(ask(variation))

        waits = [turns.run(begin, one) for one in variations]
        await DeferredList(waits, fireOnOneErrback=True, consumeErrors=True)
        return refusals

    async def breaches(
        self, resource: Resource, judge: Judge, variations: Sequence[Variation], namespace: str | None = None
    ) -> list[str]:
        """Return what is wrong with the objects of a kind that exist, with the variations that they come from."""
        known = {one.name: one for one in variations}
        where = self.namespace if namespace is None else namespace
        found = []
        for body in (await self.admin.list(resource, where)).items:
            name = body["metadata"]["name"]
            found += [f"{known.get(name.partition('-')[0], name)}: {wrong}" for wrong in judge(body)]
        return found

    async def asked_for(self, family: Family, *, judged: bool = True) -> tuple[list[Variation], list[str]]:
        """Ask for the variations of a family; return them, and what is wrong with what came of them.

        ``judged``: whether the policy of the family is there, and is to be in force before.
        """

        async def in_force() -> bool:
            return await self.is_refused(family.resource, dict(family.probe)) == judged

        await self.becomes(in_force, "the API server knows the policies")
        (node,) = [one for one in (await self.admin.list(NODES)).items if one["metadata"]["name"] not in FOR_OTHERS]
        address = next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
        asked = family.variations(address)
        refusals = await self.ask_all(asked)
        found = []
        if family.shown != family.resource:
            found += await self.breaches(family.resource, seen.finalizers, asked)
            await deferLater(self.clock(), 3.0)  # The daemon has done what it was asked for.
        found += await self.breaches(family.shown, family.judge(address), asked)
        if judged:
            self.assertTrue(any(refusals.values()), "something of it is refused")
        return asked, found

    def clock(self) -> Any:
        """Return the reactor."""
        from twisted.internet import reactor

        return reactor

    async def is_refused(self, resource: Resource, desired: dict[str, Any]) -> bool:
        """Return whether a policy refuses an object of the tenant's; none is kept.

        Raises ApiError for another refusal, such as that of a quota that is not counted yet.
        """
        try:
            made = await self.client.create(resource, {"metadata": {"name": "probe"}, **desired}, self.namespace)
        except ApiError as error:
            if "ValidatingAdmissionPolicy" not in error.message:
                raise
            return True
        await self.admin.delete(resource, made["metadata"]["name"], self.namespace)
        return False


def _others() -> list[tuple[Resource, dict[str, Any], str]]:
    """Return what others have: kind, object, namespace."""

    def volume(name: str, klass: str, **spec: Any) -> dict[str, Any]:
        fields = {**_CAPACITY, "storageClassName": klass, "hostPath": {"path": f"/srv/{name}"}, **spec}
        return {"metadata": {"name": name, "labels": {"data": "others"}}, "spec": fields}

    def storage(name: str, default: str) -> dict[str, Any]:
        annotations = {"storageclass.kubernetes.io/is-default-class": default}
        metadata = {"name": name, "annotations": annotations}
        return {"metadata": metadata, "provisioner": "example.com/none", "volumeBindingMode": "Immediate"}

    reserved = {"claimRef": {"namespace": "default", "name": "data"}}
    return [
        (STORAGECLASSES, storage("private", "true"), ""),
        (STORAGECLASSES, storage(CLASS, "false"), ""),
        (PERSISTENTVOLUMES, volume("others", ""), ""),
        (PERSISTENTVOLUMES, volume("private", "private"), ""),
        (PERSISTENTVOLUMES, volume("reserved", CLASS, **reserved), ""),
        (RUNTIMECLASSES, {"metadata": {"name": "strong"}, "handler": "runc"}, ""),
    ]
