"""How large a tenant's config maps and secrets may be: bounds, sizes on the sandbox's API server, what is refused."""

from __future__ import annotations

import base64
from fractions import Fraction
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
from liqod.hosting.tenants.quota import tenant_records
from liqod.hosting.tenants.quota.content_bounds import BEYOND, CHANGES, GROWTH, most_contents, sums_of
from liqod.hosting.tenants.quota.record_bounds import BYTES, KINDS, REOPENED, full, label_of, labelled
from liqod.hosting.tenants.rights import user_of
from liqod.hosting.views import Counted
from liqod.kube.cache.sizes import Sizes
from liqod.kube.errors import KubeError
from liqod.kube.resources import CONFIGMAPS, NAMESPACES, SECRETS, Resource
from liqod.model.ids import ClusterID
from liqod.model.names import FULL_CONTENTS_LABEL, FULL_LABEL, ORIGIN_LABEL
from liqod.model.objects.meta import Object, ObjectMeta
from tests.hosting import counting
from tests.hosting.shadowpods.admission import Request, refusals

ROME = user_of(ClusterID("rome"))
DAEMON = "system:serviceaccount:liqo-system:liqod"
MARK = "something that is nobody's business"
STATES = ((), (GROWTH,), (GROWTH, CHANGES))

sizes = st.integers(0, 200)
states = st.sampled_from([frozenset(one) for one in STATES])
texts = st.tuples(st.sampled_from("x€"), st.integers(0, 3)).map(lambda pair: pair[0] * pair[1])
entries = st.dictionaries(st.sampled_from("abc"), texts, max_size=3)


class BoundTests(SynchronousTestCase):
    """What is refused at which size."""

    def test_table(self) -> None:
        """Growth from the bound on, all changes from a quarter more on; below nine tenths of each it is over."""
        bounds = {GROWTH: Fraction(100), CHANGES: Fraction(125)}
        nothing, growth, everything = (frozenset(one) for one in STATES)
        for size, before, now in (
            (99, nothing, nothing),
            (100, nothing, growth),
            (124, growth, growth),
            (125, growth, everything),
            (113, everything, everything),
            (112, everything, growth),
            (90, growth, growth),
            (89, growth, nothing),
            (0, everything, nothing),
        ):
            self.assertEqual(full(dict.fromkeys(bounds, size), bounds, before), now, (size, before))
            self.assertEqual(most_contents(Contract(HostingSettings(tenant_contents="100"))), bounds)

    @given(sizes, states, st.integers(1, 200))
    def test_any_size(self, size: int, before: frozenset[str], bound: int) -> None:
        """Where changes are refused growth is, more is refused of more, and the labels say it and are read back."""
        bounds = most_contents(Contract(HostingSettings(tenant_contents=str(bound))))
        now = full(dict.fromkeys(bounds, size), bounds, before)
        self.assertIn(now, {frozenset(one) for one in STATES})
        self.assertLessEqual(now, full(dict.fromkeys(bounds, size + 1), bounds, before))
        if size < bound * REOPENED:
            self.assertEqual(now, frozenset())
        if size >= bound:
            self.assertIn(GROWTH, now)
        self.assertEqual(CHANGES in now, size >= bound * BEYOND * (REOPENED if CHANGES in before else 1))
        value = label_of(now)
        labels = {} if value is None else {FULL_CONTENTS_LABEL: value}
        namespace = Object(metadata=ObjectMeta(labels=labels))
        self.assertEqual(labelled(namespace, FULL_CONTENTS_LABEL), now)
        self.assertEqual(labelled(namespace, FULL_LABEL), frozenset())

    def test_none(self) -> None:
        """An empty setting is no bound; the usual one is as large as that of records."""
        self.assertEqual(most_contents(Contract(HostingSettings(tenant_contents=""))), {})
        self.assertEqual(most_contents(Contract())[GROWTH], 256 << 20)

    def test_two_sums(self) -> None:
        """Records are one sum, config maps and secrets another."""
        self.assertEqual({sums_of(kind) for kind in KINDS}, {(BYTES,)})
        self.assertEqual({sums_of(kind.plural) for kind in (CONFIGMAPS, SECRETS)}, {(GROWTH, CHANGES)})


def asked(
    user: str, new: dict[str, Any] | None, old: dict[str, Any] | None, labels: dict[str, str], resource: str = "secrets"
) -> list[str]:
    """Return why a request in a namespace with these labels is refused."""
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    group = {"ingresses": "networking.k8s.io", "httproutes": "gateway.networking.k8s.io"}.get(resource, "")
    request = Request(user, operation, resource, new, old, group=group, namespace="shop-rome", namespace_labels=labels)
    return refusals(policies(Contract()), request)


def body(data: dict[str, str] | None, *, field: str = "data", origin: bool = True) -> dict[str, Any]:
    labels = {"labels": {ORIGIN_LABEL: "rome"}} if origin else {}
    return {"metadata": {"name": "a", **labels}, **({} if data is None else {field: data})}


class PolicyTests(SynchronousTestCase):
    """What the API server refuses in a namespace with the label."""

    @given(
        states,
        st.sampled_from([("configmaps", "data"), ("configmaps", "binaryData"), ("secrets", "data")]),
        st.none() | entries,
        st.none() | entries,
        st.booleans(),
    )
    def test_any_change(
        self,
        state: frozenset[str],
        where: tuple[str, str],
        new: dict[str, str] | None,
        old: dict[str, str] | None,
        update: bool,
    ) -> None:
        """Nothing new, and no entry that is new or longer; at last nothing at all. Without the label everything."""
        resource, field = where
        grows = any(
            len(text.encode()) > len((old or {}).get(key, "").encode()) or key not in (old or {})
            for key, text in (new or {}).items()
        )
        expected = CHANGES in state or (GROWTH in state and (grows or not update))
        labels = {FULL_CONTENTS_LABEL: label_of(state) or ""} if state else {}
        before = body(old, field=field) if update else None
        found = asked(ROME, body(new, field=field), before, labels, resource)
        self.assertEqual(bool(found), expected)
        for message in found:
            self.assertIn("[hosting] tenant-contents", message)
            self.assertIn("delete some at home", message)
        self.assertEqual(asked(DAEMON, body(new, field=field), before, labels, resource), [])

    def test_longer_is_counted_in_bytes(self) -> None:
        """As many characters that take more bytes are longer."""
        labels = {FULL_CONTENTS_LABEL: GROWTH}
        for old, new, refused in (("ab", "€€", True), ("€€", "ab", False), ("€a", "a€", False)):
            found = asked(ROME, body({"a": new}), body({"a": old}), labels, "configmaps")
            self.assertEqual(bool(found), refused, (old, new))

    def test_records_are_another_thing(self) -> None:
        """The label of records refuses no secret, and that of secrets no other kind."""
        self.assertEqual(asked(ROME, body({"a": "b"}), None, {FULL_LABEL: BYTES}), [])
        labels = {FULL_CONTENTS_LABEL: f"{CHANGES}.{GROWTH}"}
        self.assertEqual(asked(ROME, {**body(None), "spec": {}}, None, labels, "services"), [])


class OriginTests(SynchronousTestCase):
    """Whose an object is."""

    def test_table(self) -> None:
        """A borrower writes and deletes those with the label only, before and after a change."""
        with_it, without = (
            {**body({"a": "b"}, origin=origin), "spec": {"type": "ClusterIP"}} for origin in (True, False)
        )
        cases: tuple[tuple[dict[str, Any] | None, dict[str, Any] | None, bool], ...] = (
            (with_it, None, False),
            (without, None, True),
            (with_it, with_it, False),
            (without, with_it, True),  # no longer counted
            (with_it, without, True),  # the lender's own, such as kube-root-ca.crt
            (without, without, True),
            (None, with_it, False),
            (None, without, True),  # to be replaced by the borrower's
        )
        for resource in ("configmaps", "secrets", "services", "persistentvolumeclaims", "ingresses", "httproutes"):
            for new, old, refused in cases:
                found = [one for one in asked(ROME, new, old, {}, resource) if ORIGIN_LABEL in one]
                self.assertEqual(len(found), refused, (resource, new, old))
                self.assertEqual(asked(DAEMON, new, old, {}, resource), [])


class ViewTests(SynchronousTestCase):
    """What is kept of an object."""

    def test_name_and_version(self) -> None:
        """Nothing that somebody wrote in it: neither data nor labels, annotations, owners and finalizers."""
        metadata: dict[str, Any] = {
            "name": "a",
            "namespace": "shop-rome",
            "uid": "u",
            "resourceVersion": "7",
            "finalizers": [MARK],
        }
        metadata |= {"labels": {"a": MARK}, "annotations": {"a": MARK}, "ownerReferences": [{"name": MARK}]}
        seen = msgspec.json.decode(msgspec.json.encode({"metadata": metadata, "data": {"a": MARK}}), type=Counted)
        self.assertNotIn(MARK, repr(seen))
        found = seen.metadata
        self.assertEqual((found.key, found.uid, found.resource_version), (("shop-rome", "a"), "u", "7"))


class CountTests(counting.Counting):
    """A tenant whose config maps and secrets grow."""

    full = FULL_CONTENTS_LABEL

    async def write(
        self, resource: Resource, name: str, size: int, namespace: str = "shop-rome", *, label: str = ORIGIN_LABEL
    ) -> None:
        """Write an object with one long entry: the tenant's, or one with another label."""
        text = MARK + "x" * size
        data = base64.b64encode(text.encode()).decode() if resource == SECRETS else text
        metadata = {"name": name, "namespace": namespace, "labels": {label: "rome"}}
        await self.admin.apply(resource, {"metadata": metadata, "data": {"a": data}})

    async def test_a_tenant_fills_up(self) -> None:
        """Both kinds in all of its namespaces count together, those of the lender's own do not; a new namespace has the
        label before anything is in it; a daemon that starts finds it so and writes nothing; with less it goes.
        """
        granted = HostingSettings(tenant_contents="100Ki")
        client, records = await self.start(granted)
        await self.write(CONFIGMAPS, "one", 40_000)
        await self.write(SECRETS, "two", 20_000, "web-rome")
        await self.write(SECRETS, "own", 200_000, label="app")
        await deferLater(installed_reactor(), 1.0)
        self.assertEqual(await self.label(), {""})
        await self.write(SECRETS, "two", 50_000, "web-rome")
        await self.labels_become(GROWTH)
        used = records.used("rome")
        self.assertEqual((used["configmaps"], used["secrets"], used[BYTES]), (1, 1, 0))
        self.assertEqual(used[GROWTH], used[CHANGES])
        self.assertGreater(used[GROWTH], 100 << 10)
        await self.admin.create(NAMESPACES, {"metadata": {"name": "new-rome"}})
        await records.apply("rome", "new-rome")
        self.assertEqual(await self.label("new-rome"), {GROWTH})
        await records.stopService()
        client, records = await self.start(granted)
        await deferLater(installed_reactor(), 1.0)
        self.assertEqual([key for key in client.requests if key[0] not in ("list", "watch")], [])
        self.assertEqual(records.used("rome"), used)
        self.assertEqual([len(one) for one in self.contents], [1, 1])
        self.assertNotIn(MARK, repr([one.items() for one in self.contents]))
        await self.admin.delete(SECRETS, "two", "web-rome")
        await self.labels_become("")

    async def test_what_is_not_listed(self) -> None:
        """While the API server does not list what is counted, a new namespace is refused with the reason, and one that
        is there already stays."""
        self.patch(tenant_records, "PATIENCE", 0.5)
        _, records = await self.start(HostingSettings(tenant_contents="100Ki"), secrets=Sizes())
        await self.admin.create(NAMESPACES, {"metadata": {"name": "new-rome"}})
        with self.assertRaisesRegex(KubeError, "does not list secrets"):
            await records.apply("rome", "new-rome")
        await records.apply("rome", "shop-rome")

    async def test_what_grows_beyond(self) -> None:
        """From a quarter more on the label refuses all changes, whatever it is that grows; and with it off, nothing."""
        _, records = await self.start(HostingSettings(tenant_contents="100Ki"))
        await self.write(CONFIGMAPS, "one", 110_000)
        await self.labels_become(GROWTH)
        note = {"metadata": {"annotations": {"note": "x" * 30_000}}}
        await self.admin.patch(CONFIGMAPS, "one", note, "shop-rome")
        await self.labels_become(f"{CHANGES}.{GROWTH}")
        await records.stopService()
        await self.start(HostingSettings(tenant_contents=""))
        await self.labels_become("")
