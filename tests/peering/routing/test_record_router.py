"""What a change of a record means for a peer, and who is notified of it: without a cluster."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID, Fingerprint, Key
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.node import Node
from liqod.model.records.unpeering import ORDER
from liqod.model.records.views import Advertisement, ForeignCluster, Lent, NamespaceNattingTable, VirtualNode
from liqod.peering.changes import Change
from liqod.peering.records.foreignclusters import PendingPin
from liqod.peering.routing.record_router import RecordRouter
from liqod.peering.session.lending import Lending
from liqod.peering.session.lifecycle import RecordObserved
from liqod.peering.session.peer import ConnectionProblem
from liqod.wire.events import Bye
from tests.clocks import HostClock
from tests.peering.clusters import RecordedAudit, context_of

ROME = ClusterID("rome")
KEY, OTHER, THIRD = (Fingerprint("sha256:" + letter * 64) for letter in "abc")
RECORD = Key("", ROME)


class Watch:
    """An informer whose one subscriber is called by hand."""

    def __init__(self) -> None:
        self.shows: Callable[[Key, Any, Any], None] = lambda key, old, new: None

    def subscribe(self, subscriber: Callable[[Key, Any, Any], None]) -> Callable[[], None]:
        self.shows = subscriber
        return lambda: setattr(self, "shows", lambda key, old, new: None)


@attrs.define(eq=False, kw_only=True)
class FakePeer:
    """A peer; ``observed``: the events of its life; ``woken``: how often its dialer was."""

    id: ClusterID = ROME
    name: str = ""
    lending: Lending = attrs.field(factory=Lending)
    problem: ConnectionProblem | None = None
    seen: Fingerprint | None = KEY
    session: Any = None
    received: object = None
    observed: list[Any] = attrs.field(factory=list)
    woken: int = 0

    @property
    def lent(self) -> object:
        return self.lending.lent

    @property
    def dialer(self) -> Any:
        return SimpleNamespace(link=SimpleNamespace(wake=self.wake))

    def wake(self) -> None:
        self.woken += 1

    def advance(self, event: object) -> None:
        self.observed.append(event)


class Around:
    """The sessions, and every controller that is called, in one."""

    def __init__(self) -> None:
        self.peers: dict[ClusterID, FakePeer] = {}
        self.pins: dict[ClusterID, Fingerprint] = {}
        self.pinning: dict[ClusterID, PendingPin] = {}
        self.records: dict[ClusterID, ForeignCluster] = {}
        self.ready = True
        self.leftovers: set[str] = set()
        self.trace: list[str] = []

    def peer(self, peer: ClusterID) -> FakePeer:
        return self.peers.setdefault(peer, FakePeer(id=peer))

    def get(self, peer: ClusterID) -> ForeignCluster | None:
        return self.records.get(peer)

    def of(self, peer: ClusterID) -> set[str]:
        return self.leftovers

    def notify(self, change: Change, peer: ClusterID) -> None:
        self.trace.append(change.name)

    def unpinned(self, peer: ClusterID, former: Fingerprint) -> None:
        self.trace.append(f"unpinned {former}")

    def record_deleted(self, peer: FakePeer) -> None:
        self.trace.append("record deleted")

    def send_verdict(self, peer: FakePeer) -> None:
        self.trace.append("verdict")

    def acknowledge(self, peer: FakePeer) -> None:
        self.trace.append("acknowledged")


class Forgotten:
    """Notes what it is to forget."""

    def __init__(self, trace: list[str], what: str) -> None:
        self._trace, self._what = trace, what

    def forget(self, peer: ClusterID) -> None:
        self._trace.append(f"forgot {self._what}")


def record(key: str = KEY, *, deleted: str = "", uid: str = "u", **fields: Any) -> ForeignCluster:
    """Return the record of rome."""
    metadata: dict[str, Any] = {"name": ROME, "uid": uid, "annotations": fields.pop("annotations", {})}
    if deleted:
        metadata["deletionTimestamp"] = deleted
    spec = {"clusterID": ROME, "fingerprint": key, **fields.pop("spec", {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, **fields}, ForeignCluster)


class RouterCase(SynchronousTestCase):
    """A router, and everything around it."""

    def setUp(self) -> None:
        self.clock = HostClock()
        self.clock.advance(1e9)
        self.around = Around()
        self.audit = RecordedAudit()
        around, trace = cast(Any, self.around), self.around.trace
        self.watches = SimpleNamespace(
            clusters=Watch(), advertisements=Watch(), virtual_nodes=Watch(), nodes=Watch(), tables=Watch()
        )
        self.invitations = Watch()
        controllers: Any = SimpleNamespace(
            records=around,
            leftovers=around,
            unpeering=around,
            trust=SimpleNamespace(distrust=around),
            borrowing=SimpleNamespace(credential_store=Forgotten(trace, "its credential"), advertisements=around),
            forget=Forgotten(trace, "it").forget,
        )
        context = context_of(self.clock, cast(Any, self.around.peers))
        self.router = RecordRouter(
            context=attrs.evolve(context, changes=around, audit=self.audit),
            controllers=controllers,
            sessions=around,
            decisions=cast(Any, Forgotten(trace, "its decision")),
        )
        self.router.start(cast(Any, self.watches), cast(Any, self.invitations))

    def show(self, new: ForeignCluster | None, old: ForeignCluster | None = None) -> list[str]:
        """Let the watch show a change; return what followed."""
        if new is None:
            self.around.records.pop(ROME, None)
        else:
            self.around.records[ROME] = new
        return self.follow(lambda: self.watches.clusters.shows(RECORD, old, new))

    def follow(self, call: Callable[[], None]) -> list[str]:
        """Return what was called meanwhile."""
        before = len(self.around.trace)
        call()
        return self.around.trace[before:]

    @property
    def peer(self) -> FakePeer:
        return self.around.peers[ROME]

    @property
    def observed(self) -> RecordObserved:
        """What was last seen of the record."""
        found = self.peer.observed[-1]
        assert isinstance(found, RecordObserved)
        return found


class LifeTests(RouterCase):
    """A record appears, changes, and goes."""

    def test_what_a_record_says_at_the_start(self) -> None:
        """A key, a session that was proven, and what is lent are read from it."""
        for proven, lent in ((True, True), (False, False)):
            self.setUp()
            conditions = [{"type": "Authenticated", "status": str(proven)}]
            offered = {"lent": {"resources": {"cpu": "1"}}} if lent else {}
            self.show(record(status={"conditions": conditions, "clusterName": "Rome", **offered}))
            observed = self.observed
            self.assertEqual(
                (observed.pinned, observed.deleting, observed.authenticated, observed.lent), (True, False, proven, lent)
            )
            self.assertEqual((self.peer.name, self.peer.lent is not None), ("Rome", lent))

    def test_what_is_known_already_comes_first(self) -> None:
        """An offer and a name that this daemon has from the peer itself are newer than those on record."""
        own = Lending(lent=msgspec.convert({"resources": {"cpu": "2"}}, Lent))
        peer = self.around.peer(ROME)
        peer.lending, peer.name = own, "Roma"
        self.show(record(status={"clusterName": "Rome", "lent": {"resources": {"cpu": "1"}}}))
        self.assertEqual((peer.lending, peer.name), (own, "Roma"))

    def test_the_status_is_not_read_again(self) -> None:
        """It may be about a key that is no longer trusted; the offer of this daemon counts, not that on record."""
        conditions = [{"type": "Authenticated", "status": "True"}]
        status = {"conditions": conditions, "lent": {"resources": {"cpu": "1"}}}
        before = record()
        self.show(before)
        self.show(record(status=status, spec={"outgoingPeering": "No"}), before)
        self.assertEqual((self.observed.authenticated, self.observed.lent), (False, False))

    def test_who_is_notified_of_what(self) -> None:
        """A change of the spec, the begin of a deletion, another order in it; a change of the status is none."""
        date = "2030-01-01T00:00:00Z"
        plain, ending = record(), record(deleted=date)
        ordered = record(deleted=date, annotations={ORDER: "unpeer"})
        table: list[tuple[ForeignCluster | None, ForeignCluster, list[str]]] = [
            (None, plain, ["RECORD_CHANGED"]),
            (plain, record(status={"phase": "Suspect"}), []),
            (plain, ending, ["RECORD_DELETING", "RECORD_CHANGED"]),
            (None, ending, ["RECORD_DELETING", "RECORD_CHANGED"]),
            (ending, ending, []),
            (ending, ordered, ["ORDER_CHANGED"]),
        ]
        for old, new, expected in table:
            self.setUp()
            self.assertEqual(self.show(new, old), expected, (old, new))

    def test_when_a_deletion_began(self) -> None:
        """One that the daemon sees begin, now; one that it finds, at its date, but never in the future."""
        now = self.clock.seconds()
        wall = self.clock.wall()
        for moved, is_first, expected in ((-100, True, now - 100), (-100, False, now), (100, True, now)):
            self.setUp()
            date = (wall + datetime.timedelta(seconds=moved)).strftime("%Y-%m-%dT%H:%M:%SZ")
            ending = record(deleted=date)
            self.show(ending, None if is_first else record())
            self.assertApproximates(self.observed.since, expected, 1.0)

    def test_a_record_that_is_gone_takes_everything_along(self) -> None:
        """The pin with a security event, the state of the controllers, and the session; once."""
        before = record()
        self.show(before)
        self.assertEqual(self.show(None, before), ["forgot it", "record deleted"])
        self.assertEqual(self.around.pins, {})
        self.assertEqual([event.fingerprint for event in self.audit.of("TrustWithdrawn")], [KEY])
        self.show(None, before)
        self.assertEqual(len(self.audit.of("TrustWithdrawn")), 1)

    def test_another_record_of_the_name_is_another_peering(self) -> None:
        """One that was deleted and created again while nobody watched is the end of the first, too."""
        self.show(record(uid="u"))
        self.assertIn("record deleted", self.show(record(uid="v"), record(uid="u")))
        self.assertNotIn("record deleted", self.show(record(uid="v"), record(uid="v")))

    def test_a_gone_record_of_nobody(self) -> None:
        """A record of a cluster that was never a peer here leaves nothing to do."""
        self.assertEqual(self.show(None, record()), [])

    def test_an_end(self) -> None:
        """A router that stopped routes nothing."""
        self.router.stop()
        self.assertEqual(self.show(record()), [])


class PinTests(RouterCase):
    """The key on record."""

    def test_a_pin_of_a_user_is_a_security_event(self) -> None:
        """The first one and each other one; what is read at the start, or was pinned by the daemon, is none."""
        self.around.ready = False
        self.show(record())
        self.around.ready = True
        self.assertEqual(self.audit.events, [])
        self.show(record(OTHER), record())
        self.assertEqual([(one.type, one.fingerprint) for one in self.audit.events], [("KeyChanged", OTHER)])
        self.setUp()
        self.show(record())
        self.assertEqual([(one.type, one.fingerprint) for one in self.audit.events], [("TrustGranted", KEY)])
        self.setUp()
        self.around.pins[ROME] = KEY
        self.show(record())
        self.assertEqual(self.audit.events, [])

    def test_a_pin_that_the_daemon_is_writing_is_no_users(self) -> None:
        """The watch may show it before the write is answered: who writes it records the event; another key is one."""
        for before, type in (("", "TrustGranted"), (OTHER, "KeyChanged")):
            for pending, expected in ((KEY, []), (THIRD, [(type, "Administrator")])):
                self.setUp()
                self.around.ready = False
                self.show(record(before))
                self.around.ready = True
                self.around.pinning[ROME] = PendingPin(pending)
                self.show(record(), record(before))
                self.assertEqual([(one.type, one.reason) for one in self.audit.events], expected)
                self.assertEqual(self.around.pins[ROME], KEY)

    def test_a_credential_is_of_one_key(self) -> None:
        """What was received with one key is not used with another; a first key, and the same, take nothing."""
        self.assertNotIn("forgot its credential", self.show(record()))
        self.assertNotIn("forgot its credential", self.show(record(), record()))
        self.assertIn("forgot its credential", self.show(record(OTHER), record()))

    def test_trust_solves_what_waited_for_it(self) -> None:
        """And nothing else; the same key again changes nothing."""
        for reason, left in (("TrustPending", False), ("Unreachable", True)):
            self.setUp()
            self.around.peer(ROME).problem = ConnectionProblem(reason, "")
            self.show(record())
            self.assertEqual(self.peer.problem is not None, left)

    def test_without_a_pin(self) -> None:
        """The distrust is noted once, and the key that the peer shows next is the one that counts."""
        self.show(record())
        followed = self.show(record(""), record())
        self.assertIn(f"unpinned {KEY}", followed)
        self.assertIsNone(self.peer.seen)
        self.assertEqual(self.around.pins, {})
        self.assertNotIn(f"unpinned {KEY}", self.show(record(""), record("")))

    def test_a_session_with_another_key_ends(self) -> None:
        """By its reason: the change was announced by the key that was trusted, or trust is over."""
        announced = {"announcedKey": {"fingerprint": OTHER, "by": KEY, "at": "2030-01-01T00:00:00Z"}}
        table: list[tuple[str, dict[str, Any], list[str]]] = [
            (KEY, {}, []),
            (OTHER, {}, ["TrustPending"]),
            (OTHER, {"spec": announced}, ["KeyRotated"]),
            (OTHER, {"spec": {"announcedKey": {"fingerprint": OTHER, "by": OTHER}}}, ["TrustPending"]),
            (OTHER, {"spec": {"announcedKey": {"fingerprint": "sha256:" + 64 * "c", "by": KEY}}}, ["TrustPending"]),
            ("", {}, ["TrustPending"]),
        ]
        for key, more, expected in table:
            self.setUp()
            self.show(record())
            said: list[Bye] = []
            self.peer.session = SimpleNamespace(certificate=SimpleNamespace(fingerprint=KEY), end=said.append)
            self.show(record(key, **more), record())
            self.assertEqual([bye.reason for bye in said], expected, (key, more))

    def test_who_is_dialled(self) -> None:
        """A peer with a key, an address, or one that was just distrusted; nobody before the records are known."""
        address: dict[str, Any] = {"spec": {"endpoints": [{"address": "192.0.2.1:5872"}]}}
        table: list[tuple[bool, ForeignCluster | None, ForeignCluster, bool]] = [
            (True, None, record(), True),
            (False, None, record(), False),
            (True, None, record(""), False),
            (True, None, record("", **address), True),
            (True, record(), record(""), True),
            (True, record("", uid="u"), record("", spec={"outgoingPeering": "No"}), False),
            (True, record(), record("", deleted="2030-01-01T00:00:00Z"), False),
        ]
        for ready, old, new, woken in table:
            self.setUp()
            self.around.ready = ready
            self.show(new, old)
            self.assertEqual(bool(self.peer.woken), woken, (ready, old, new))


class OtherRecordsTests(RouterCase):
    """Records of a peer besides its own."""

    def leaves(self, call: Callable[[], None], left: bool) -> bool:
        """Return whether the end of what was borrowed is passed on."""
        self.around.leftovers = {"something"} if left else set()
        return "LEFTOVERS_GONE" in self.follow(call)

    def test_the_last_leftover(self) -> None:
        """A virtual node, its record, the names of its namespaces: the lender is answered when none is left."""
        self.around.peer(ROME)
        # A second one of the same lender, whose name is not the lender's.
        virtual = msgspec.convert({"metadata": {"name": "rome-2"}, "spec": {"clusterID": ROME}}, VirtualNode)
        table = NamespaceNattingTable(metadata=ObjectMeta(name=ROME))
        labels = {REMOTE_CLUSTER_LABEL: ROME, "liqo.io/type": "virtual-node"}
        node = Node(metadata=ObjectMeta(name="liqo-rome", labels=labels))
        key = Key("liqo-tenant-rome", "rome-2")
        for call in (
            lambda: self.watches.virtual_nodes.shows(key, virtual, None),
            lambda: self.watches.nodes.shows(Key("", "liqo-rome"), node, None),
            lambda: self.watches.tables.shows(Key("", ROME), table, None),
        ):
            self.assertFalse(self.leaves(call, True))
            self.assertTrue(self.leaves(call, False))
            self.assertEqual(self.around.trace[-3:], ["verdict", "acknowledged", "LEFTOVERS_GONE"])
        own = Node(metadata=ObjectMeta(name="one", labels={REMOTE_CLUSTER_LABEL: ROME}))
        for call in (
            lambda: self.watches.virtual_nodes.shows(key, virtual, virtual),
            lambda: self.watches.nodes.shows(Key("", "liqo-rome"), node, node),
            lambda: self.watches.nodes.shows(Key("", "one"), own, None),
            lambda: self.watches.tables.shows(Key("", ROME), table, table),
        ):
            self.assertFalse(self.leaves(call, False))
        added = self.follow(lambda: self.watches.virtual_nodes.shows(key, None, virtual))
        self.assertIn("NODE_ADDED_OR_REMOVED", added)
        self.around.peers.clear()
        self.assertFalse(self.leaves(lambda: self.watches.nodes.shows(Key("", "liqo-rome"), node, None), False))

    def test_an_offer_that_somebody_deleted(self) -> None:
        """One of a peer that still offers is written again; not where the record ends, or is not there."""
        offer = msgspec.convert(
            {"metadata": {"name": "advertisement-rome"}, "spec": {"clusterID": ROME}}, Advertisement
        )
        key = offer.metadata.key
        table: list[tuple[ForeignCluster | None, object, bool]] = [
            (record(), "an offer", True),
            (record(), None, False),
            (record(deleted="2030-01-01T00:00:00Z"), "an offer", False),
            (None, "an offer", False),
        ]
        for known, received, again in table:
            self.setUp()
            if known is not None:
                self.around.records[ROME] = known
            self.around.peer(ROME).received = received
            followed = self.follow(lambda: self.watches.advertisements.shows(key, offer, None))
            self.assertEqual("ADVERTISEMENT_DELETED" in followed, again, (known, received))
            self.assertIn("forgot its decision", followed)
        for old in (None, offer):
            followed = self.follow(lambda: self.watches.advertisements.shows(key, old, offer))  # noqa: B023
            self.assertEqual(followed, ["ADVERTISEMENT_CHANGED"])

    def test_an_invitation_is_used_at_once(self) -> None:
        """Its issuer is dialled, if it is a peer here and the records are known."""
        secret = SimpleNamespace()
        key = Key("liqo-system", "liqod-invitation-rome")
        self.invitations.shows(key, None, secret)
        peer = self.around.peer(ROME)
        for ready, new, woken in ((False, secret, 0), (True, None, 0), (True, secret, 1)):
            self.around.ready = ready
            self.invitations.shows(key, None, new)
            self.assertEqual(peer.woken, woken)
