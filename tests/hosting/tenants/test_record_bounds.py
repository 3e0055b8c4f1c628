"""How many records a tenant may have: bounds, counts on the sandbox's API server, and what the policy refuses."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings
from liqod.flow.clocks import installed_reactor
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.policies import policies
from liqod.hosting.tenants.quota.record_bounds import (
    BYTES,
    KINDS,
    REOPENED,
    full,
    label_of,
    labelled,
    most_records,
)
from liqod.hosting.tenants.rights import user_of
from liqod.kube.resources import NAMESPACES, SHADOWPODS
from liqod.model.ids import ClusterID
from liqod.model.names import FULL_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object, ObjectMeta
from tests.hosting import counting
from tests.hosting.shadowpods.admission import Request, refusals

NAMES = (*KINDS, BYTES)


class Unreadable(Object, frozen=True):
    """A view that no ShadowPod fits."""

    spec: int = 0


amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 30))


def most(**amounts: str) -> HostingSettings:
    return HostingSettings(tenant_records=dict(amounts))  # type: ignore[arg-type]


def contract(**amounts: str) -> Contract:
    return Contract(most(**amounts))


class BoundTests(SynchronousTestCase):
    """What is full."""

    @given(amounts, amounts.map(lambda most: {name: number + 1 for name, number in most.items()}))
    def test_full_and_reopened(self, used: dict[str, int], most: dict[str, int]) -> None:
        """From its bound on something is full, and stays so until it is clearly below."""
        limits = quantity.parse_all(most)
        now = full(used, limits, frozenset())
        self.assertEqual(now, {name for name, limit in most.items() if used.get(name, 0) >= limit})
        after = full(used, limits, frozenset(most))
        self.assertLessEqual(now, after)
        self.assertEqual(after, {name for name, limit in most.items() if used.get(name, 0) >= limit * REOPENED})
        self.assertLessEqual(full(used, limits, now), after)

    @given(st.frozensets(st.sampled_from(NAMES)))
    def test_the_label_says_it(self, names: frozenset[str]) -> None:
        """Any of it fits into the value of a label, and is read back."""
        value = label_of(names)
        self.assertLessEqual(len(value or ""), 63)
        labels = {} if value is None else {FULL_LABEL: value}
        self.assertEqual(labelled(Object(metadata=ObjectMeta(labels=labels))), names)
        self.assertEqual({name for name in NAMES if name in (value or "")}, names)  # as the policy reads it

    def test_amounts(self) -> None:
        """There is room for the pods that are lent and for many that have ended; settings count before that."""
        usual = most_records(contract(), quantity.parse_all({"pods": "110"}))
        self.assertEqual(set(usual), set(NAMES))
        self.assertEqual(usual["shadowpods"], 2100)
        self.assertEqual(most_records(contract(), None)["shadowpods"], 11000)
        self.assertEqual(most_records(contract(bytes="1Gi"), None)[BYTES], 1 << 30)


class PolicyTests(SynchronousTestCase):
    """What the API server refuses in a namespace with the label."""

    def asked(self, resource: str, value: str, *, update: bool = False, user: str = user_of(ClusterID("rome"))) -> bool:
        """Return whether a request is refused."""
        pod = {"containers": [{"name": "main", "image": "a"}]}
        body: dict[str, Any] = {"metadata": {"name": "home"}, "spec": {"pod": pod} if resource == "shadowpods" else {}}
        request = Request(
            user,
            "UPDATE" if update else "CREATE",
            resource,
            body,
            body if update else None,
            group="offloading.liqo.io",
            namespace="shop-rome",
            namespace_labels={FULL_LABEL: value} if value else {},
        )
        return any("tenant-records" in message for message in refusals(policies(Contract()), request))

    @given(st.frozensets(st.sampled_from(NAMES)), st.sampled_from(KINDS), st.booleans())
    def test_table(self, names: frozenset[str], resource: str, update: bool) -> None:
        """New ones of a full kind are refused; where it is the size that is full, all that could be larger."""
        refused = BYTES in names or (resource in names and not update)
        self.assertEqual(self.asked(resource, label_of(names) or "", update=update), refused)

    def test_others(self) -> None:
        """The daemon itself is not concerned."""
        self.assertFalse(self.asked("shadowpods", "shadowpods", user="system:serviceaccount:liqo-system:liqod"))


class CountTests(counting.Counting):
    """A tenant that creates records, in two namespaces."""

    async def pods(self, namespace: str, numbers: range) -> None:
        for number in numbers:
            body = {"metadata": {"name": f"p{number}"}, "spec": {"pod": {"containers": []}}}
            await self.admin.create(SHADOWPODS, body, namespace)

    async def test_a_tenant_fills_up(self) -> None:
        """All of its namespaces have the label when all of them together are full, a new one before anything is in it;
        a daemon that starts finds it so and writes nothing; and it goes with the records.
        """
        client, records = await self.start(most(shadowpods="10"))
        await self.pods("shop-rome", range(6))
        await self.pods("web-rome", range(3))
        await deferLater(installed_reactor(), 1.0)
        self.assertEqual(await self.label(), {""})
        await self.pods("web-rome", range(3, 4))
        await self.labels_become("shadowpods")
        self.assertEqual(records.used("rome")["shadowpods"], 10)
        (event,) = self.audit.events
        self.assertEqual((event.type, event.reason, event.object), ("RateLimited", "TenantFull", "bound/shadowpods"))
        await self.admin.create(NAMESPACES, {"metadata": {"name": "new-rome"}})
        await records.apply("rome", "new-rome")
        self.assertEqual(await self.label("new-rome"), {"shadowpods"})
        await records.stopService()
        client, records = await self.start(most(shadowpods="10"))
        await deferLater(installed_reactor(), 1.0)
        self.assertEqual([key for key in client.requests if key[0] not in ("list", "watch")], [])
        await self.admin.delete(SHADOWPODS, "p0", "shop-rome")
        await deferLater(installed_reactor(), 1.0)
        self.assertEqual(await self.label(), {"shadowpods"})  # nine: not yet clearly below
        await self.admin.delete(SHADOWPODS, "p1", "shop-rome")
        await self.labels_become("")

    async def test_size(self) -> None:
        """Few large records are as full as many small ones; one that is made larger counts as it is then."""
        await self.start(most(bytes="20Ki"))
        await self.pods("shop-rome", range(2))
        await deferLater(installed_reactor(), 1.0)
        self.assertEqual(await self.label(), {""})
        change = {"metadata": {"annotations": {"note": "x" * 30_000}}}
        await self.admin.patch(SHADOWPODS, "p1", change, "shop-rome")
        await self.labels_become(BYTES)
        await self.admin.patch(SHADOWPODS, "p1", {"metadata": {"annotations": {"note": None}}}, "shop-rome")
        await self.labels_become("")

    async def test_managed_fields(self) -> None:
        """What the API server keeps about managers of fields counts: a small record that many have applied fills the
        room. A daemon that starts counts the same, from a list.
        """
        _, records = await self.start(most(bytes="40Ki"))
        labels = {f"label-{number}": "" for number in range(20)}
        body = {"metadata": {"name": "p", "namespace": "shop-rome", "labels": labels}, "spec": {"pod": {}}}
        applied: dict[str, Any] = await self.admin.apply(SHADOWPODS, body)
        for number in range(100):
            applied = await self.admin.apply(SHADOWPODS, body, manager=f"manager-{number}")
        applied["metadata"].pop("managedFields")
        self.assertLess(len(msgspec.json.encode(applied)), 2000)
        await self.labels_become(BYTES)
        used = records.used("rome")
        self.assertGreater(used[BYTES], 40 << 10)
        await records.stopService()
        _, records = await self.start(most(bytes="40Ki"))
        self.assertEqual(records.used("rome"), used)
        await self.admin.delete(SHADOWPODS, "p", "shop-rome")
        await self.labels_become("")
        self.assertEqual(records.used("rome"), {})

    async def test_what_cannot_be_read(self) -> None:
        """A record that the daemon cannot decode lies in etcd as well, and counts."""
        _, records = await self.start(most(bytes="20Ki", shadowpods="10"), Unreadable)
        await self.pods("shop-rome", range(2))
        await self.admin.patch(SHADOWPODS, "p1", {"metadata": {"annotations": {"note": "x" * 30_000}}}, "shop-rome")
        await self.labels_become(BYTES)
        self.assertEqual(records.used("rome")["shadowpods"], 2)
        await self.admin.delete(SHADOWPODS, "p1", "shop-rome")
        await self.labels_become("")
