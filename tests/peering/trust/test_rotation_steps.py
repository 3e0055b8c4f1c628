"""The steps of a key's rotation that depend on the peers: who is waited for, and who is sent what."""

from __future__ import annotations

import datetime
from typing import Any, Final, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.identity.certs import certify, generate
from liqod.identity.store import to_secret
from liqod.identity.tls import PeerTLS
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.meta import Condition, ObjectMeta
from liqod.model.records import rotation as recorded
from liqod.model.records.views import ForeignCluster, ForeignClusterSpec, ForeignClusterStatus
from liqod.model.timestamps import rfc3339
from liqod.peering.ports import OwnCluster
from liqod.peering.session.lifecycle import Connected, Disconnected, PeeringState, Pending, Stranger
from liqod.peering.trust.pairing import Secret
from liqod.peering.trust.rotation import SINCE_MINOR, KeyRotation
from liqod.wire.events import Event, NewKey
from tests.clocks import HostClock
from tests.peering.clusters import context_of

NOW: Final = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
ME: Final = ClusterID("turin")
PINNED: Final = Fingerprint("sha256:" + "a" * 64)


@attrs.define(eq=False)
class Session:
    """A session of a protocol version; ``sent`` is what went to the peer."""

    minor: int
    sent: list[Event] = attrs.field(factory=list)

    def binding(self, purpose: bytes) -> bytes:
        return b"b" * 32

    def send(self, event: Event) -> bool:
        self.sent.append(event)
        return True


@attrs.define(eq=False)
class Known:
    """A peer, as far as a rotation knows it."""

    id: ClusterID
    state: PeeringState
    session: Session | None = None
    name: str = ""
    knows_key: str = ""


class Server:
    """The Secret with the key, as informer and as API server."""

    def __init__(self, data: dict[str, str]) -> None:
        self.secret = Secret(metadata=ObjectMeta(name=recorded.IDENTITY_SECRET), data=data)

    def of(self, *args: object, **options: object) -> Server:
        return self

    def get(self, key: object) -> Secret:
        return self.secret

    async def patch(self, resource: object, name: str, patch: dict[str, Any], namespace: str, *, view: object) -> None:
        data = {**self.secret.data, **patch.get("data", {})}
        annotations = {**self.secret.metadata.annotations, **patch["metadata"]["annotations"]}
        self.secret = Secret(
            metadata=ObjectMeta(
                name=recorded.IDENTITY_SECRET,
                annotations={name: text for name, text in annotations.items() if text is not None},
            ),
            data={name: text for name, text in data.items() if text is not None},
        )


class Records:
    """ForeignClusters with a pinned key each; ``proven``: those whose records say that the peer authenticated us."""

    def __init__(self, peers: dict[ClusterID, Known], proven: set[ClusterID]) -> None:
        self.clusters = self
        self.peers = peers
        self.proven = proven
        self.going: set[ClusterID] = set()

    def items(self) -> list[ForeignCluster]:
        return [
            ForeignCluster(
                metadata=ObjectMeta(name=peer, deletion_timestamp=rfc3339(NOW) if peer in self.going else None),
                spec=ForeignClusterSpec(cluster_id=peer, fingerprint=PINNED),
                status=ForeignClusterStatus(
                    conditions=[Condition(type="Authenticated", status="True" if peer in self.proven else "False")]
                ),
            )
            for peer in self.peers
        ]


class StepTests(SynchronousTestCase):
    """A rotation that was ordered, with peers in various states."""

    def begin(self, *peers: Known, proven: set[ClusterID] | None = None) -> None:
        self.clock = HostClock()
        self.clock.advance(1.9e9)
        self.tls = PeerTLS(generate(ME, NOW))
        self.server = Server(to_secret(self.tls.keypair))
        known = {peer.id: peer for peer in peers}
        self.records = Records(known, proven or set())
        self.rotation = KeyRotation(
            context_of(self.clock, known, cast(Any, self.server)),
            informers=cast(Any, self.server),
            namespace="liqo-system",
            cluster=OwnCluster(id=ME, name=ME, tls=self.tls, epoch=1),
            records=cast(Any, self.records),
            within=3600.0,
            in_files=False,
        )
        self.annotate(**{recorded.ORDER: recorded.RotationOrder(3600.0).render()})

    def annotate(self, **annotations: str | None) -> None:
        self.does(self.server.patch(None, "", {"metadata": {"annotations": annotations}}, "", view=None))

    def does(self, work: Any) -> Any:
        return self.successResultOf(Deferred.fromCoroutine(work))

    def steps(self, count: int = 2) -> str:
        """Take steps, and return what the Secret says of them."""
        for _ in range(count):
            self.does(self.rotation.reconcile(""))
        return self.server.secret.metadata.annotations.get(recorded.PROGRESS, "")

    def test_who_is_waited_for(self) -> None:
        """A peer that ever had a session, or says in its record that it authenticated us, may hold our key; one that
        never did has none to replace, and holds up nothing.
        """
        rome = ClusterID("rome")
        for state, proven, is_waited_for in (
            (Connected(), False, True),
            (Disconnected(), False, True),
            (Pending(), True, True),
            (Pending(), False, False),
            (Stranger(recorded=True), False, False),
        ):
            self.begin(Known(rome, state), proven={rome} if proven else set())
            progress = self.steps()
            self.assertEqual("waiting" in progress and "rome" in progress, is_waited_for, (state, proven, progress))
            self.assertEqual(progress.startswith("done"), not is_waited_for, (state, proven, progress))

    def test_a_peering_that_ends_holds_up_nothing(self) -> None:
        """A peer whose record is being deleted is not waited for, connected or not."""
        self.begin(Known(ClusterID("rome"), Connected()))
        self.assertIn("waiting", self.steps())
        self.records.going.add(ClusterID("rome"))
        self.assertTrue(self.steps().startswith("done"))

    def test_who_is_sent_the_key_and_that_it_was_taken_back(self) -> None:
        """Every session whose protocol has the event gets both, an older one neither."""
        minors = (SINCE_MINOR - 1, SINCE_MINOR, SINCE_MINOR + 1)
        peers = [Known(ClusterID(f"p{minor}"), Connected(), Session(minor)) for minor in minors]
        self.begin(*peers)
        self.assertIn("waiting", self.steps())
        self.annotate(**{recorded.ORDER: None})
        self.assertIn("taken back", self.steps(1))
        for peer, minor in zip(peers, minors, strict=True):
            assert peer.session is not None
            sent = [event.public_key != "" for event in peer.session.sent if isinstance(event, NewKey)]
            self.assertEqual(sent, [] if minor < SINCE_MINOR else [True, False], minor)
        self.assertEqual(self.steps(1), "taken back: the key stays")

    def test_a_peer_that_came_back_with_an_older_release_is_not_sent_that_the_key_was_taken_back(self) -> None:
        """What counts is the protocol of the present session, not of the one in which the key was sent."""
        peer = Known(ClusterID("rome"), Connected(), Session(SINCE_MINOR))
        self.begin(peer)
        self.assertIn("waiting", self.steps())
        peer.session = older = Session(SINCE_MINOR - 1)
        self.annotate(**{recorded.ORDER: None})
        self.assertIn("taken back", self.steps(1))
        self.assertEqual(older.sent, [])

    def test_the_time_to_wait_is_on_record(self) -> None:
        """The first step sets until when peers are waited for, by the order."""
        self.begin(Known(ClusterID("rome"), Disconnected()))
        self.steps(1)
        until = self.server.secret.metadata.annotations[recorded.UNTIL]
        self.assertEqual(until, rfc3339(self.clock.wall() + datetime.timedelta(hours=1)))

    def test_a_renewed_certificate_of_the_same_key(self) -> None:
        """It is used, and is no change of the key."""
        self.begin()
        changes: list[Fingerprint] = []
        self.rotation.own_key.subscribe(changes.append)
        renewed = certify(self.tls.keypair.key, ME, NOW + datetime.timedelta(days=1))
        body = {"metadata": {"annotations": {recorded.ORDER: None}}, "data": to_secret(renewed)}
        self.does(self.server.patch(None, "", body, "", view=None))
        self.steps(1)
        self.assertEqual(self.tls.keypair, renewed)
        self.assertEqual(changes, [])
