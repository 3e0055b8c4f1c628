"""Which VirtualNodes have a virtual kubelet."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.node.idle import NAME_TAKEN, Holder, Idle, comes_back, idle
from liqod.model.ids import ClusterID, Key
from liqod.model.names import tenant_namespace
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.views import (
    Advertisement,
    AdvertisementStatus,
    ForeignCluster,
    ForeignClusterSpec,
    VirtualNode,
    VirtualNodeSpec,
    VirtualNodeStatus,
)

NOBODY = Holder()
PEER = ForeignCluster(metadata=ObjectMeta(name="milan"))


def record(name: str, node: str = "gpu", lender: str = "milan", reason: str = "", **meta: Any) -> VirtualNode:
    return VirtualNode(
        metadata=ObjectMeta(**{"name": name, "namespace": "n", **meta}),
        spec=VirtualNodeSpec(cluster_id=lender, node_name=node),
        status=VirtualNodeStatus(reason=reason),
    )


def offer(phase: str) -> Advertisement:
    return Advertisement(status=AdvertisementStatus(phase=phase, message="so it is"))


OWN = record("milan", namespace=tenant_namespace(ClusterID("milan")))


class ComesBackTests(SynchronousTestCase):
    def test_what_ends_a_peering(self) -> None:
        """A removed node comes back while its peer is trusted and its offer lasts, even expired, and else not."""
        spec = ForeignClusterSpec(fingerprint="f")
        trusted = ForeignCluster(metadata=ObjectMeta(name="milan"), spec=spec)
        ends = ForeignCluster(metadata=ObjectMeta(name="milan", deletion_timestamp="2026-01-01T00:00:00Z"), spec=spec)
        for phase in ("Accepted", "Pending", "Expired"):
            self.assertTrue(comes_back(trusted, offer(phase)), phase)
        for peer, there in (
            (trusted, offer("Refused")),
            (trusted, offer("Withdrawn")),
            (trusted, None),
            (None, offer("Accepted")),
            (PEER, offer("Accepted")),
            (ends, offer("Accepted")),
        ):
            self.assertFalse(comes_back(peer, there), (peer, there))


class StandingTests(SynchronousTestCase):
    def judge(self, one: VirtualNode, *rivals: VirtualNode, holder: Holder = NOBODY) -> Idle | None:
        return idle(one, rivals, holder, peer=PEER, offer=offer("Accepted"))

    def test_a_record_that_is_not_whole(self) -> None:
        """Without a node name or a cluster ID there is no node, and the record says what is missing."""
        for each in (record("a", node=""), record("a", lender=""), record("a", lender="Not an ID")):
            found = self.judge(each)
            assert found is not None
            self.assertEqual((found.reason, found.releases), ("Incomplete", False))

    def test_two_of_one_name(self) -> None:
        """Of several records with one node name exactly one runs, the oldest, in whatever order they are listed."""
        old, new = record("b", creation_timestamp="2026-01-01T00:00:00Z"), record("a", creation_timestamp="2026-01-02")
        third = record("c", lender="turin", creation_timestamp="2026-01-03")
        for listed in permutations((old, new, third)):
            runs = [one.metadata.name for one in listed if self.judge(one, *listed) is None]
            self.assertEqual(runs, ["b"])
        refused = self.judge(new, old, new)
        assert refused is not None
        self.assertEqual((refused.reason, refused.releases), (NAME_TAKEN, False))
        self.assertIn("n/b", refused.message)

    def test_who_has_the_name_keeps_it(self) -> None:
        """The record whose kubelet runs has the name, then that of the lender that the Node names, then whichever was
        not refused before: no older record takes the node of pods that run.
        """
        old, new = record("a", creation_timestamp="1"), record("b", creation_timestamp="2")
        self.assertIsNone(self.judge(new, old, holder=Holder(running=Key("n", "b"))))
        self.assertIsNotNone(self.judge(old, new, holder=Holder(running=Key("n", "b"))))
        foreign = record("b", lender="turin", creation_timestamp="2")
        self.assertIsNone(self.judge(foreign, old, holder=Holder(lender="turin")))
        refused = record("a", reason=NAME_TAKEN, creation_timestamp="1")
        self.assertIsNone(self.judge(new, refused))
        self.assertIsNotNone(self.judge(refused, new))

    def test_one_that_is_deleted(self) -> None:
        """A deleted record has the name until its node is gone."""
        going = record("a", creation_timestamp="1", deletion_timestamp="3")
        new = record("b", creation_timestamp="2")
        self.assertIsNone(self.judge(new, going))
        self.assertIsNotNone(self.judge(new, going, holder=Holder(running=Key("n", "a"))))

    def test_the_lender_ends_it(self) -> None:
        """With the end of an offer or of the peering a user's node goes and its record stays; peering's own it deletes
        itself, and what is merely missing removes nothing.
        """
        ended = ForeignCluster(metadata=ObjectMeta(name="milan", deletion_timestamp="1"))
        runs = Holder(running=Key("n", "gpu"))
        for peer, phase, holder, reason, releases in (
            (PEER, "Accepted", runs, None, False),
            (PEER, "Pending", runs, None, False),
            (PEER, "Expired", runs, None, False),
            (PEER, None, runs, None, False),
            (PEER, None, Holder(), None, False),
            (PEER, "Withdrawn", runs, "OfferWithdrawn", True),
            (PEER, "Refused", runs, "OfferRefused", True),
            (ended, "Accepted", runs, "Unpeering", True),
            (None, "Accepted", Holder(), None, False),
            (None, None, runs, None, False),
            (None, None, Holder(lender="milan"), None, False),
            (None, None, Holder(), "LenderUnknown", False),
        ):
            known = None if phase is None else offer(phase)
            found = idle(record("gpu"), [], holder, peer=peer, offer=known)
            shown = (None, False) if found is None else (found.reason, found.releases)
            self.assertEqual(shown, (reason, releases), (peer, phase, holder))
            self.assertIsNone(idle(OWN, [], holder, peer=peer, offer=known))
