"""The variations with one guard taken away: the oracle has to see it, or it is worth nothing."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from twisted.internet.task import deferLater

from liqod.hosting.shadowpods import controller, forge
from liqod.hosting.tenants import networks, policies
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import (
    CONFIGMAPS,
    NAMESPACES,
    PERSISTENTVOLUMECLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    SHADOWPODS,
    VALIDATINGPOLICYBINDINGS,
)
from liqod.model.names import FULL_CONTENTS_LABEL, ORIGIN_LABEL
from liqod.model.objects.portable_metadata import METADATA_POLICY
from tests.variations import pods, seen, tenant
from tests.variations.families import FAMILIES, SEED
from tests.variations.pods_seen import pod
from tests.variations.variation import varied, with_origin

_OF_ALL: Final = (METADATA_POLICY, policies.FINALIZER_POLICY, policies.ORIGIN_POLICY)
"""Policies that are not of one family: its own one is in force without them."""


class WeakenedTests(tenant.Tenant):
    """Each guard is the one that stops something."""

    async def prepare(self) -> None:
        """Leave no policy out for the tests that follow on the same cluster."""
        await super().prepare()
        self.bindings = {one["metadata"]["name"]: one for one in policies.bindings()}

    async def take_away(self, name: str) -> None:
        """Disable a policy until the end of the test."""
        await self.admin.delete(VALIDATINGPOLICYBINDINGS, name)
        self.addCleanup(self.put_back, name)

    async def put_back(self, name: str) -> None:
        try:
            await self.admin.get(VALIDATINGPOLICYBINDINGS, name)
        except NotFound:
            await self.admin.create(VALIDATINGPOLICYBINDINGS, self.bindings[name])

    async def seen_without(self, name: str, family: str) -> str:
        """Return what is seen of a family without a policy."""
        await self.take_away(name)
        judged = name in _OF_ALL
        if judged:
            await deferLater(self.clock(), 3.0)  # There is no probe for it: the API server takes a second.
        _, found = await self.asked_for(FAMILIES[family], judged=judged)
        return "\n".join(found)

    async def test_services(self) -> None:
        """Without the policy of Services external addresses are seen."""
        self.assertIn("externalIPs", await self.seen_without(policies.SERVICE_POLICY, "services"))

    async def test_ingresses(self) -> None:
        """Without the policy of ingresses hosts of others are seen."""
        self.assertIn("host", await self.seen_without(policies.INGRESS_POLICY, "ingresses"))

    async def test_claims(self) -> None:
        """Without the policy of claims selectors of volumes are seen."""
        self.assertIn("a selector", await self.seen_without(policies.CLAIM_POLICY, "claims"))

    async def test_secrets(self) -> None:
        """Two guards: a token's annotation is not among those that are granted, either."""
        await self.take_away(METADATA_POLICY)
        self.assertIn("a token", await self.seen_without(policies.SECRET_POLICY, "secrets"))

    async def test_origins(self) -> None:
        """Without the policy of origins a secret is seen that is not known to be the tenant's, and does not count."""
        self.assertIn("nobody's", await self.seen_without(policies.ORIGIN_POLICY, "secrets"))

    async def test_what_is_the_lenders(self) -> None:
        """Without the policy of origins a tenant deletes a service of the lender's; with it none."""

        async def is_kept() -> bool:
            body = {"metadata": {"generateName": "lender-"}, "spec": {"ports": [{"port": 80}]}}
            name = (await self.admin.create(SERVICES, body, self.namespace))["metadata"]["name"]
            try:
                await self.client.delete(SERVICES, name, self.namespace)
            except Forbidden as error:
                self.assertIn(policies.ORIGIN_POLICY, error.message)
                await self.admin.delete(SERVICES, name, self.namespace)
                return True
            return False

        async def is_open() -> bool:
            return not await is_kept()

        await self.becomes(is_kept, "a refusal")
        await self.take_away(policies.ORIGIN_POLICY)
        await self.becomes(is_open, "a deletion")

    async def test_contents(self) -> None:
        """Without the policy of contents a tenant that has no room has another secret; with it, none."""
        body = {"metadata": {"generateName": "s-", "labels": {ORIGIN_LABEL: "any"}}, "data": {"a": "a" * 100_000}}

        async def refused() -> bool:
            try:
                await self.client.create(SECRETS, body, self.namespace)
            except Forbidden as error:
                self.assertIn("tenant-contents", error.message)
                return True
            return False

        await self.becomes(refused, "a refusal")
        await self.take_away(policies.CONTENT_POLICY)

        async def accepted() -> bool:
            return not await refused()

        await self.becomes(accepted, "another secret")
        namespace = await self.admin.get(NAMESPACES, self.namespace)
        self.assertIn(FULL_CONTENTS_LABEL, namespace["metadata"]["labels"])

    async def test_slices(self) -> None:
        """Without the policy of slices names are seen in EndpointSlices."""
        self.assertIn("names", await self.seen_without(policies.SLICE_POLICY, "slices"))

    async def test_sets(self) -> None:
        """Without the policy of network policies a second record is seen."""
        self.assertIn("another set", await self.seen_without(policies.ISOLATION_POLICY, "sets"))

    async def test_metadata(self) -> None:
        """Without the policy of metadata annotations that others act on are seen."""
        self.assertIn("annotations", await self.seen_without(METADATA_POLICY, "services"))

    async def test_finalizers(self) -> None:
        """Without the policy of finalizers a record that nobody can delete is seen."""
        self.assertIn("finalizer", await self.seen_without(policies.FINALIZER_POLICY, "slices"))

    async def test_deletions(self) -> None:
        """Without the policy of deletions one of the tenant's may leave dependents; with it none may."""
        await self.becomes(self.is_kept_from_orphans, "deletions that leave dependents are refused")
        await self.take_away(policies.DELETION_POLICY)

        async def is_open() -> bool:
            return not await self.is_kept_from_orphans()

        await self.becomes(is_open, "a deletion that leaves dependents")

    async def is_kept_from_orphans(self) -> bool:
        """Return whether the policy refuses a deletion with ``propagationPolicy=Orphan``; nothing is kept."""
        metadata = {"generateName": "leaves-", "labels": {ORIGIN_LABEL: "any"}}
        made = await self.client.create(CONFIGMAPS, {"metadata": metadata}, self.namespace)
        name = made["metadata"]["name"]
        try:
            await self.client.delete(CONFIGMAPS, name, self.namespace, propagation="Orphan")
        except Forbidden as error:
            if policies.DELETION_POLICY not in error.message:
                raise
            await self.client.delete(CONFIGMAPS, name, self.namespace)
            return True
        return False

    async def test_claims_of_pods(self) -> None:
        """Without the policy of ephemeral claims the class is seen that a template without one got."""
        await self.take_away(policies.EPHEMERAL_POLICY)
        await deferLater(self.clock(), 3.0)
        await self.ask_for_pods()

        async def seen_at_last() -> bool:
            return "class private" in "\n".join(await self.breaches(PERSISTENTVOLUMECLAIMS, seen.claim, ()))

        await self.becomes(seen_at_last, "a claim of a class that is not granted")

    async def test_contract_of_pods(self) -> None:
        """Without the contract of pods images that somebody else pulled are seen."""
        await self.without(controller, "restrict", lambda shadow, contract, **options: shadow, "pulled")

    async def test_what_is_forced(self) -> None:
        """Without what is forced on a pod it has the token of its account."""
        await self.without(forge, "_FORCED", {}, "the token of its account")

    async def test_what_is_dropped(self) -> None:
        """Without what is dropped from a pod it has the scheduler that it names."""
        await self.without(forge, "DROPPED", (), "scheduler other")

    async def test_addresses(self) -> None:
        """Without the check of addresses an EndpointSlice leads to the API server."""
        self.patch(networks, "objection", lambda address, own, peer: "")
        _, found = await self.asked_for(FAMILIES["slices"])
        self.assertIn("10.96.0.1 is the lender's", "\n".join(found))

    async def without(self, module: Any, name: str, instead: Any, word: str) -> None:
        """Have something else in the place of a guard of the daemon's; the oracle sees a word."""
        self.patch(module, name, instead)
        await self.ask_for_pods()

        async def seen_at_last() -> bool:
            return word in "\n".join(await self.breaches(PODS, pod, ()))

        await self.becomes(seen_at_last, word)

    async def ask_for_pods(self) -> None:
        made = varied(Random(SEED), SHADOWPODS, pods.forbidden_objects(), 150, strategic=False)
        await self.ask_all([with_origin(one, self.peer) for one in made])
