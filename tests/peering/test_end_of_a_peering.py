"""The steps that end a peering, one at a time: what each waits for, and what it writes; without a peer."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.controller import After
from liqod.kube.errors import NotFound, from_status
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, NAMESPACES, Resource
from liqod.model.ids import ClusterID
from liqod.model.names import REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL, tenant_namespace
from liqod.model.records.unpeering import ABSENT, FINALIZER, ORDER, PATIENCE, PINNED_BY_SETTINGS, Tombstone
from liqod.model.records.views import ForeignCluster
from liqod.peering.session.lending import Lending, Withdrawal
from liqod.peering.session.lifecycle import Connected, PeeringState, Unpeered, Withdrawing
from liqod.peering.session.peer import Peer
from liqod.peering.trust.records import TrustRecords
from liqod.peering.unpeering import MAX_POLL, POLL, UnpeeringController
from liqod.wire.events import Bye, Event, Withdrawn
from tests.clocks import HostClock
from tests.peering.clusters import context_of

ROME = ClusterID("rome")
TENANT = tenant_namespace(ROME)
BEGUN = 1e9
OURS = {REMOTE_CLUSTER_LABEL: ROME, TENANT_NAMESPACE_LABEL: "true"}


class Around:
    """The API server, the records, and what is left of a virtual node, in one; keeps what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.record: ForeignCluster | None = None
        self.is_gone = False
        """Whether the record is gone already although the watch shows it."""
        self.namespace: dict[str, Any] | None = None
        self.left: list[str] = []
        self.settled = True
        self.conflicts = False
        self.tombstone: Tombstone | None = None

    # Of the API server

    async def patch(self, resource: Resource, name: str, body: Any, **options: Any) -> None:
        if self.is_gone:
            raise cast(NotFound, from_status(404, b'{"message": "no such object"}'))
        assert (resource, name) == (FOREIGNCLUSTERS, ROME)
        self.done.append(f"order {body['metadata']['annotations'][ORDER]}")

    async def delete(self, resource: Resource, name: str, *, uid: str = "") -> None:
        kinds = {FOREIGNCLUSTERS: "record", ADVERTISEMENTS: "offer", NAMESPACES: "namespace"}
        self.done.append(f"delete the {kinds[resource]} {uid}".rstrip())

    # Of records

    async def get_namespace(self, view: Any) -> Any:
        if self.namespace is None:
            raise cast(NotFound, from_status(404, b'{"message": "no such object"}'))
        return msgspec.convert({"metadata": {"name": TENANT, "uid": "n1", **self.namespace}}, view)

    def get(self, *asked: Any, **options: Any) -> Any:
        return self.get_namespace(options["view"]) if options else self.record

    def enqueue(self, peer: ClusterID) -> None:
        self.done.append("show it")

    def offer_of(self, peer: ClusterID) -> None:
        return None

    async def remove_finalizer(self, record: ForeignCluster) -> bool:
        self.done.append("remove the finalizer")
        return not self.conflicts

    # Of leftovers, tokens and the recorder of distrust

    def of(self, peer: ClusterID) -> list[str]:
        return list(self.left)

    def is_clear(self, peer: ClusterID, offer: Any) -> bool:
        return not self.left

    async def revoke(self, key: str) -> None:
        self.done.append(f"revoke {key}")

    def is_settled(self, peer: ClusterID) -> bool:
        return self.settled


class Tombstones:
    """One tombstone, or none."""

    def __init__(self, around: Around) -> None:
        self.around = around

    def get(self, peer: ClusterID) -> Tombstone | None:
        return self.around.tombstone

    async def put(self, peer: ClusterID, tombstone: Tombstone) -> None:
        self.around.done.append("note it")
        self.around.tombstone = tombstone


class Session:
    """A session that keeps what is sent through it."""

    def __init__(self) -> None:
        self.sent: list[Event] = []
        self.takes = True

    def send(self, event: Event) -> bool:
        if self.takes:
            self.sent.append(event)
        return self.takes

    def end(self, event: Bye) -> None:
        self.sent.append(event)


class EndCases(SynchronousTestCase):
    """One peering that ends; no case."""

    def setUp(self) -> None:
        self.clock = HostClock()
        self.clock.advance(BEGUN)
        self.around = Around()
        self.session = Session()
        self.peer = Peer(id=ROME, dialer=cast(Any, None), broken_at=0.0, credential=False)
        self.put_state()
        self.put_record()
        one = cast(Any, self.around)
        tombstones = cast(Any, Tombstones(self.around))
        self.controller = UnpeeringController(
            context_of(self.clock, {ROME: self.peer}, one),
            records=one,
            leftovers=one,
            trust=TrustRecords(tombstones, one, one),
            distrust=one,
        )

    def put_state(self, state: PeeringState | None = None, **fields: Any) -> None:
        self.peer.state = state or Withdrawing(**{"since": BEGUN, "ever_connected": True, **fields})

    def put_record(self, *finalizers: str, order: str = "", key: str = "key", **fields: Any) -> None:
        """Have the record be one that is being deleted."""
        meta: dict[str, Any] = {"name": ROME, "uid": "f1", "finalizers": list(finalizers or (FINALIZER,))}
        meta["annotations"] = {**({ORDER: order} if order else {}), **fields.pop("annotations", {})}
        if fields.pop("deleting", True):
            meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        self.around.record = msgspec.convert({"metadata": meta, "spec": {"fingerprint": key}}, ForeignCluster)

    def connect(self) -> None:
        self.peer.session = cast(Any, self.session)

    def step(self) -> tuple[float | None, list[str]]:
        """Take a step; returns after how many seconds the next follows, and what was done."""
        self.around.done.clear()
        after = self.successResultOf(Deferred.fromCoroutine(self.controller.reconcile(ROME)))
        return (after.seconds if isinstance(after, After) else None), list(self.around.done)

    def waits(self) -> str:
        """Return what the end waits for."""
        assert isinstance(self.peer.state, Withdrawing)
        return self.peer.state.waiting_for


LAST = ["revoke key", "delete the offer", "remove the finalizer"]


GONE = Lending(withdrawal=Withdrawal(cast(Any, None), "the peering ends", acknowledged=True))


class WhoseEndTests(EndCases):
    """Which records are this controller's to end."""

    def test_a_finalizer_of_somebody_else(self) -> None:
        """A record of which only others hold the end is done with: nothing is asked for and nothing written."""
        self.put_record("example.com/other")
        self.assertEqual(self.step(), (None, []))

    def test_beside_a_finalizer_of_somebody_else(self) -> None:
        """What is to be done is done, although somebody else holds the record as well."""
        self.put_record("example.com/other", FINALIZER, order="by-peer")
        self.put_state(finished=True)
        self.assertEqual(self.step(), (None, LAST))

    def test_before_the_deletion_was_noticed(self) -> None:
        """As long as the peer is not known to withdraw nothing is done."""
        self.put_state(Connected())
        self.assertEqual(self.step(), (None, []))

    def test_a_peering_that_lasts(self) -> None:
        """Nothing is deleted, however the peer's state came about."""
        self.put_record(deleting=False)
        for state in (Connected(), Withdrawing(since=BEGUN, finished=True)):
            self.put_state(state)
            self.assertEqual(self.step(), (None, []))

    def test_no_peer_or_no_record(self) -> None:
        """There is nothing to do."""
        self.around.record = None
        self.assertEqual(self.step(), (None, []))
        self.put_record()
        self.controller._peers.clear()
        self.assertEqual(self.step(), (None, []))

    def test_the_peer_ended_it(self) -> None:
        """The order is written first, then that very record is deleted; one that is gone is no failure."""
        self.put_record(deleting=False)
        self.put_state(Unpeered("ended"))
        self.assertEqual(self.step(), (None, ["order ended", "delete the record f1"]))
        self.around.is_gone = True
        self.assertEqual(self.step(), (None, []))


class WaitingTests(EndCases):
    """What an end waits for, and how long."""

    def test_what_this_cluster_has_to_do(self) -> None:
        """It is waited for without limit, also after a peer that is dead; each thing is named."""
        for left, said in (
            (lambda: self.around.left.append("node liqo-rome"), "node liqo-rome"),
            (lambda: setattr(self.peer, "credential", True), "the credential"),
            (lambda: setattr(self.peer, "lending", Lending(admitting=True)), "what the peer runs here"),
            (lambda: self.put_state(dismissal_owed=True), "what the peer runs here"),
        ):
            self.setUp()
            self.put_record(order="dead")
            left()
            self.clock.advance(1e5)
            self.assertEqual(self.step(), (MAX_POLL, ["show it"]), said)
            self.assertEqual(self.waits(), f"waiting for {said}")
            self.assertEqual(self.step(), (MAX_POLL, []), "it is shown once")

    def test_how_often_it_is_checked(self) -> None:
        """Soon at first, and the longer it takes the more rarely, up to a limit."""
        self.around.left.append("node liqo-rome")
        found = []
        for passed in (0.0, 4.0, 50.0, 290.0, 310.0, 1e6):
            self.put_state(since=self.clock.seconds() - passed)
            found.append(self.step()[0])
        self.assertEqual(found, [POLL, POLL, 5.0, 29.0, MAX_POLL, MAX_POLL])

    def test_how_long_the_peer_has(self) -> None:
        """As long as the order says; a peer without a session less; then the end comes, and is noted for the peer."""
        for order, connected, patience in (
            ("", True, PATIENCE),
            ("", False, ABSENT),
            ("20", True, 20.0),
            ("3", False, 3.0),
        ):
            self.setUp()
            self.put_record(order=order)
            if connected:
                self.connect()
            self.assertEqual(self.step(), (min(patience, 5.0), ["show it"]))
            self.assertIn("the peer", self.waits())
            self.clock.advance(patience - 1.0)
            self.assertEqual(self.step()[0], 1.0)
            self.clock.advance(1.0)
            self.assertEqual(self.step(), (None, ["note it", *LAST]))
            assert self.around.tombstone is not None
            self.assertEqual((self.around.tombstone.notified, self.around.tombstone.by), ("", "us"))

    def test_peers_that_do_not_rely_on_us(self) -> None:
        """One that never had a session, has no key, or has left already is not waited for, and needs no note."""
        for state, key, lending in (
            ({"ever_connected": False}, "key", Lending()),
            ({"finished": True}, "key", Lending()),
            ({}, "", Lending()),
            ({"unpeered_by_peer": True}, "key", GONE),
        ):
            self.setUp()
            self.put_record(key=key)
            self.put_state(**cast(Any, state))
            self.peer.lending = lending
            self.assertEqual(self.step(), (None, LAST if key else LAST[1:]), state)

    def test_a_key_that_is_not_trusted_any_more(self) -> None:
        """The end waits until that is on record, and no token of an empty key is revoked."""
        self.put_record(key="")
        self.around.settled = False
        self.assertEqual(self.step(), (POLL, ["show it"]))
        self.around.settled = True
        self.assertEqual(self.step(), (None, LAST[1:]))
        self.around.settled = False
        self.put_record(order="ended")
        self.assertEqual(self.step(), (None, LAST), "the others do not wait for it")

    def test_peers_that_still_rely_on_us(self) -> None:
        """One that has done only a part is waited for."""
        for state, lending in (
            ({"unpeered_by_peer": True}, Lending()),
            ({}, GONE),
            ({"unpeered_by_peer": True, "owed": 3}, GONE),
        ):
            self.put_state(**cast(Any, state))
            self.peer.lending = lending
            self.assertEqual(self.step()[0], 5.0, state)

    def test_an_acknowledgement_that_is_owed(self) -> None:
        """It is sent once nothing of the peer's is in use, once; not without a session, nor as long as it fails."""
        self.put_state(owed=7)
        self.around.left.append("node liqo-rome")
        self.connect()
        self.step()
        self.assertEqual(self.session.sent, [])
        self.around.left.clear()
        self.session.takes = False
        self.step()
        self.session.takes = True
        self.step()
        self.step()
        self.assertEqual(self.session.sent, [Withdrawn(7, "lender")])


class LastStepTests(EndCases):
    """What is done last."""

    def setUp(self) -> None:
        super().setUp()
        self.put_state(finished=True)

    def test_the_namespace(self) -> None:
        """It is deleted once, and the record goes after it; one of the name that is not ours is left alone."""
        self.around.namespace = {"labels": OURS}
        self.assertEqual(self.step(), (POLL, ["revoke key", "delete the offer", "delete the namespace n1", "show it"]))
        self.around.namespace = {"labels": OURS, "deletionTimestamp": "2030-01-01T00:00:00Z"}
        self.assertEqual(self.step(), (POLL, ["revoke key", "delete the offer"]))
        self.around.namespace = {"labels": {REMOTE_CLUSTER_LABEL: "milan", TENANT_NAMESPACE_LABEL: "true"}}
        self.assertEqual(self.step(), (None, LAST))
        self.around.namespace = None
        self.assertEqual(self.step(), (None, LAST))

    def test_a_record_that_changed(self) -> None:
        """Its finalizer is removed at the next step."""
        self.around.conflicts = True
        self.assertEqual(self.step(), (POLL, LAST))

    def test_the_session_ends(self) -> None:
        """The peer is notified that everything is over."""
        self.connect()
        self.step()
        self.assertEqual([type(event) for event in self.session.sent], [Bye])

    def test_who_ended_it_is_noted_where_settings_would_trust_again(self) -> None:
        """By either side; and nowhere else once the peer knows."""
        for order, by in (("", "us"), ("dead", "us"), ("by-peer", "peer"), ("ended", "peer")):
            for by_settings in (False, True):
                self.setUp()
                self.put_record(order=order, annotations={PINNED_BY_SETTINGS: "true"} if by_settings else {})
                self.assertEqual(self.step()[1], ["note it", *LAST] if by_settings else LAST)
                if by_settings:
                    assert self.around.tombstone is not None
                    kept = self.around.tombstone
                    self.assertEqual((kept.by, kept.by_settings, kept.fingerprint), (by, True, "key"))
                    self.assertEqual(kept.notified, kept.at)

    def test_what_is_noted_already(self) -> None:
        """It is not written again; a stronger note stays, and one that says something else is replaced."""
        self.put_record(order="dead")
        self.put_state()
        self.assertEqual(self.step(), (None, ["note it", *LAST]))
        assert self.around.tombstone is not None
        self.assertFalse(self.around.tombstone.by_settings)
        self.clock.advance(5.0)
        self.assertEqual(self.step(), (None, LAST))
        self.around.tombstone = Tombstone("another", "2030-01-01T00:00:00Z")
        self.assertEqual(self.step(), (None, ["note it", *LAST]))
        distrusted = self.around.tombstone = Tombstone("another", "2030-01-01T00:00:00Z", distrusted=True)
        self.assertEqual(self.step(), (None, LAST))
        self.assertIs(self.around.tombstone, distrusted)
