"""ShadowEndpointSlice -> EndpointSlice: what a borrower's record becomes, as values."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.endpointslice_forge import (
    Create,
    Delete,
    EndpointSlice,
    Nothing,
    Replace,
    Update,
    body_of,
    decide,
    says_lost,
    template_of,
    unready,
)
from liqod.hosting.endpointslices import WrittenSlice
from liqod.hosting.tenants import policies
from liqod.model.records.views import ShadowEndpointSlice, SliceTemplate


def shadow(uid: str = "s1", **template: Any) -> ShadowEndpointSlice:
    labels = {
        "kubernetes.io/service-name": "db",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "liqo.io/managed-by": "someone",
    }
    body = {
        "metadata": {"name": "db-1", "namespace": "shop-home", "uid": uid, "labels": labels},
        "spec": {"template": {"addressType": "IPv4", **template}},
    }
    return msgspec.convert(body, ShadowEndpointSlice)


def slice_for(record: ShadowEndpointSlice) -> EndpointSlice:
    body = body_of(record, template_of(record, "home"))
    body["metadata"]["uid"] = "r1"
    return msgspec.convert(body, EndpointSlice)


ONE = {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "nodeName": "a-node-of-the-lender"}


class ShadowEndpointSliceTests(SynchronousTestCase):
    """One name, step by step."""

    def setUp(self) -> None:
        self.record = shadow(endpoints=[ONE], ports=[{"port": 80}])
        self.wanted = template_of(self.record, "home")

    def test_the_ports_are_those_of_the_borrower(self) -> None:
        """As the record has them, whatever becomes of the endpoints."""
        for endpoints in ([ONE], []):
            ports = template_of(shadow(endpoints=endpoints, ports=[{"port": 80}]), "home").ports or []
            self.assertEqual([port.port for port in ports], [80])
        self.assertIsNone(template_of(shadow(endpoints=[ONE]), "home").ports)

    def test_table(self) -> None:
        """It is made, changed, replaced where it cannot be changed, and otherwise left alone."""
        there = slice_for(self.record)
        self.assertEqual(decide(self.record, None, self.wanted), Create())
        self.assertEqual(decide(self.record, there, self.wanted), Nothing())
        self.assertEqual(decide(None, None, self.wanted), Nothing())
        self.assertEqual(decide(shadow("s2"), there, self.wanted), Replace("r1"))
        other = template_of(shadow(endpoints=[], ports=[{"port": 80}]), "home")
        self.assertEqual(decide(self.record, there, other), Update("r1"))
        six = shadow(addressType="IPv6")
        self.assertEqual(decide(six, there, template_of(six, "home")), Replace("r1"))

    def test_without_its_shadow(self) -> None:
        """A slice that was made here goes, also one that has no owner any more; others stay."""
        there = slice_for(self.record)

        def changed(**metadata: Any) -> EndpointSlice:
            return msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, **metadata))

        deployment = msgspec.structs.replace(there.metadata.owner_references[0], kind="Other")
        for present, step in (
            (there, Delete("r1")),
            (changed(owner_references=[]), Delete("r1")),
            (changed(owner_references=[deployment]), Nothing()),
            (changed(labels={}), Nothing()),
            (changed(deletion_timestamp="2030-01-01T00:00:00Z"), Nothing()),
        ):
            self.assertEqual(decide(None, present, self.wanted), step)
        self.assertEqual(decide(self.record, changed(owner_references=[]), self.wanted), Replace("r1"))

    def test_the_borrower_does_not_say_who_it_is(self) -> None:
        """Node name and managing labels are the lender's to say."""
        body = body_of(self.record, self.wanted)
        self.assertEqual(body["endpoints"][0]["nodeName"], "home")
        self.assertEqual(
            body["metadata"]["labels"],
            {
                "kubernetes.io/service-name": "db",
                "endpointslice.kubernetes.io/managed-by": "endpointslice.reflection.liqo.io",
                "liqo.io/managed-by": "shadowendpointslice",
            },
        )
        self.assertEqual(body["metadata"]["ownerReferences"][0]["uid"], "s1")

    def test_targets(self) -> None:
        """An endpoint stands for no pod or node of the lender, whatever kind the borrower names; other parts stay."""
        for said, shown in (("Pod", "RemotePod"), ("RemotePod", "RemotePod"), ("Node", "RemoteNode"), ("", "Remote")):
            target = {"kind": said, "namespace": "other", "name": "x"}
            (made,) = template_of(shadow(endpoints=[{**ONE, "targetRef": target}]), "home").endpoints or []
            self.assertEqual(msgspec.to_builtins(made.target_ref), {**target, "kind": shown})
        self.assertIsNone((self.wanted.endpoints or [])[0].target_ref)

    def test_addresses(self) -> None:
        """Addresses are the borrower's; endpoints without one are left out."""
        template = template_of(shadow(endpoints=[ONE, {"addresses": []}, {"addresses": [""]}]), "home")
        self.assertEqual([e.addresses for e in template.endpoints or ()], [["10.0.0.1"]])

    def test_a_path_that_is_lost(self) -> None:
        """No endpoint is ready then, and the slice says so itself; afterwards it is as the borrower wants it."""
        there, lost = slice_for(self.record), unready(self.wanted)
        self.assertEqual([one.conditions.ready for one in lost.endpoints or ()], [False])
        self.assertEqual([one.conditions.serving for one in lost.endpoints or ()], [False])
        self.assertEqual(decide(self.record, there, lost, lost=True), Update("r1"))
        body = body_of(self.record, lost, lost=True)
        body["metadata"]["uid"] = "r1"
        marked = msgspec.convert(body, EndpointSlice)
        self.assertEqual((says_lost(there), says_lost(marked)), (False, True))
        self.assertEqual(decide(self.record, marked, lost, lost=True), Nothing())
        self.assertEqual(decide(self.record, marked, self.wanted), Update("r1"))
        # A slice without endpoints says it all the same: those that it gets are not ready.
        empty = template_of(shadow(), "home")
        self.assertEqual(decide(shadow(), slice_for(shadow()), unready(empty), lost=True), Update("r1"))

    def test_policies(self) -> None:
        """Each policy is bound, fails closed, and is about borrowers alone; but for three."""
        self.assertEqual(
            {p["metadata"]["name"] for p in policies.policies()},
            {b["spec"]["policyName"] for b in policies.bindings()},
        )
        of_others = ("liqod-tenant-namespaces", "liqod-tenant-pod-security", policies.EPHEMERAL_POLICY)
        for each in policies.policies():
            self.assertEqual(each["spec"]["failurePolicy"], "Fail")
            if each["metadata"]["name"] not in of_others:
                self.assertIn("liqo-tenant-", each["spec"]["matchConditions"][0]["expression"])


class MemoryTests(SynchronousTestCase):
    """What the daemon keeps of the slices of a tenant that has as many endpoints as it can."""

    def test_many_endpoints(self) -> None:
        """Record and slice together take no more than three times their bytes at the API server."""
        endpoints = [{"addresses": [f"198.51.{one // 250}.{one % 250}"], "zone": "z" * 60} for one in range(1000)]
        body = msgspec.json.encode({**msgspec.to_builtins(shadow(endpoints=endpoints, ports=[{"port": 80}]))})
        made = msgspec.json.encode(body_of(record := decoded(body, ShadowEndpointSlice), template_of(record, "home")))
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            kept = (decoded(body, ShadowEndpointSlice), decoded(made, EndpointSlice))
            written = WrittenSlice("", b"").again("s1", template_of(kept[0], "home"), 0.0)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertLess(after - before, 3 * len(body))
        self.assertTrue(kept[1].holds(template_of(kept[0], "home")))
        self.assertFalse(kept[1].holds(SliceTemplate()))
        self.assertEqual(written.content, kept[1].content)


def decoded(data: bytes, view: type[Any]) -> Any:
    """Return an object as a cache keeps it."""
    return msgspec.json.decode(data, type=view)
