"""Generated variations of what a tenant may not have, asked with its own credential of a real API server.

The oracle is what the API server shows to an administrator afterwards (``tests.variations``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from random import Random

from twisted.internet.task import deferLater

from liqod.kube.errors import AlreadyExists
from liqod.kube.resources import (
    CRDS,
    HTTPROUTES,
    NAMESPACES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    SHADOWPODS,
    Resource,
)
from tests.variations import kinds, pods, seen, tenant
from tests.variations.families import FAMILIES, SEED, Family
from tests.variations.pods_seen import insecure, pod
from tests.variations.variation import LATER, Variation, varied, with_origin


class VariationsOnRealClustersTests(tenant.Tenant):
    """Three hundred variations; nothing of what they are after is there in the end."""

    maxDiff = None

    async def test_pods(self) -> None:
        """Whatever a ShadowPod asks for, at once or later, its pod is an ordinary one, or there is a reason why not."""
        asked = [
            with_origin(one, self.peer)
            for one in varied(Random(SEED), SHADOWPODS, pods.forbidden_objects(), 150, strategic=False)
        ]
        await self.ask_all(asked)
        await self.becomes(self.settled, "each ShadowPod has a pod or a reason")
        # What was asked of a pod that ran must not come with its successor.
        changed = {one.name for one in asked if one.how in LATER}
        for name in [one for one in await self.names() if one in changed]:
            await self.admin.delete(PODS, name, self.namespace, grace=0)
        await deferLater(self.clock(), 1.0)
        await self.becomes(self.settled, "each ShadowPod has a pod or a reason again")
        self.assertEqual("\n".join(await self.pod_breaches(asked)), "")
        self.assertGreater(len(await self.names()), 20, "ordinary parts of what was asked run")

    async def test_services(self) -> None:
        """No Service has an address, a class or a name of others."""
        await self.nothing_of(FAMILIES["services"])

    async def test_ingresses(self) -> None:
        """No Ingress takes a host, or has a controller do what was not granted."""
        await self.nothing_of(FAMILIES["ingresses"])

    async def test_routes(self) -> None:
        """No HTTPRoute is of another gateway, takes a host, leads elsewhere, or has a proxy do what was not granted."""
        await self.define(HTTPROUTES)
        await self.nothing_of(FAMILIES["routes"])

    async def test_claims(self) -> None:
        """No claim gets a volume of others, or one of a class that is not granted."""
        asked = await self.nothing_of(FAMILIES["claims"])
        await deferLater(self.clock(), 1.0)  # The binder has seen the claims.
        self.assertEqual(await self.breaches(PERSISTENTVOLUMES, seen.volume, asked, ""), [])

    async def test_secrets(self) -> None:
        """No Secret is filled with a token, or copied."""
        await self.nothing_of(FAMILIES["secrets"])

    async def test_slices(self) -> None:
        """No EndpointSlice leads to the lender's pods, services and nodes, whatever an address looks like."""
        await self.nothing_of(FAMILIES["slices"])

    async def test_sets_of_policies(self) -> None:
        """A namespace has one record of home's NetworkPolicies."""
        await self.nothing_of(FAMILIES["sets"])

    async def test_kinds_without_rights(self) -> None:
        """Routes of each kind, and everything else in which a tenant has no business, is refused by the rights."""
        await self.define(*kinds.ROUTES)
        done = []
        for step in kinds.steps(Random(SEED), self.namespace, f"liqo-tenant-{self.peer}", 60):
            error = await step.ask(self.client)
            if error is None or error.code != 403:
                done.append(f"{step.words}: {error}")
        self.assertEqual(done, [])

    async def define(self, *resources: Resource) -> None:
        """Make definitions of kinds, and wait until they are served."""
        for definition in kinds.definitions(resources):
            with contextlib.suppress(AlreadyExists):
                await self.admin.create(CRDS, definition)

        async def served() -> bool:
            for one in resources:
                await self.admin.list(one, self.namespace)
            return True

        await self.becomes(served, "the kinds are served")

    async def nothing_of(self, family: Family) -> list[Variation]:
        """Ask for the variations of a family, and compare what is there with what may be."""
        asked, found = await self.asked_for(family)
        self.assertEqual("\n".join(found), "")
        return asked

    async def names(self) -> list[str]:
        """Return the names of the tenant's pods."""
        return [one["metadata"]["name"] for one in (await self.admin.list(PODS, self.namespace)).items]

    async def settled(self) -> bool:
        """Return whether each ShadowPod has a pod that was considered by the scheduler, or a reason why not."""
        found = {one["metadata"]["name"]: one for one in (await self.admin.list(PODS, self.namespace)).items}
        for shadow in (await self.admin.list(SHADOWPODS, self.namespace)).items:
            body = found.get(shadow["metadata"]["name"])
            if body is None and not shadow.get("status", {}).get("reason"):
                return False
            if body and not body.get("status", {}).get("conditions") and not body["spec"].get("nodeName"):
                return False
        return True

    async def pod_breaches(self, asked: Sequence[Variation]) -> list[str]:
        """Return what is wrong with the tenant's pods, their claims, and with what others can do beside them."""
        judging = f"judging-{self.peer}"
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        await self.admin.create(NAMESPACES, {"metadata": {"name": judging, "labels": labels}})
        found = await self.breaches(PODS, pod, asked)
        for body in (await self.admin.list(PODS, self.namespace)).items:
            if wrong := await insecure(self.admin, body, judging):
                found.append(f"{body['metadata']['name']}: {wrong}")
        await self.admin.delete(NAMESPACES, judging)
        found += await self.breaches(SHADOWPODS, seen.finalizers, asked)
        found += await self.breaches(PERSISTENTVOLUMECLAIMS, seen.claim, ())
        return found
