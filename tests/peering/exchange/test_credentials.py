"""When a lender renews the credential of a borrower, and when that one keeps it, under a clock of our own."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import KubeError, NotFound, from_status
from liqod.kube.resources import NAMESPACES
from liqod.model.api_url import OwnAddresses
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.records.offer import AccessGrant, Refusal
from liqod.model.records.views import Lent
from liqod.peering.changes import Queue
from liqod.peering.controller import PACE
from liqod.peering.exchange.credentials import MIN_LIFETIME, CredentialIssuer, CredentialStore
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.session.lending import Lending
from liqod.peering.session.peer import Peer
from liqod.wire.codec import decode, encode
from liqod.wire.errors import LocalProtocolError
from liqod.wire.events import Credential, Event, Hello
from liqod.wire.framing import FrameLimits
from tests.peering.clusters import FakeLender, context_of

PEER = ClusterID("beta")
TENANT = {"liqo.io/remote-cluster-id": "beta", "liqo.io/tenant-namespace": "true"}


class FakeSession:
    """A session that keeps what is sent through it."""

    def __init__(self, *features: str) -> None:
        self.answers: list[Event] = []
        self.peer_hello = Hello("beta", "beta", 1, 0, 0, list(features))

    def send(self, event: Event) -> bool:
        self.answers.append(event)
        return True

    @property
    def credentials(self) -> list[Credential]:
        return [event for event in self.answers if isinstance(event, Credential)]


class RelayOnlyLender(FakeLender):
    """A lender whose API server is reached over its relay and in no other way."""

    async def admit(self, peer: ClusterID, offered: Mapping[str, str]) -> AccessGrant:
        return AccessGrant(api_url="", ca="", token="", lifetime=3600, namespace="tenant", relay=True)


class SlowLender(FakeLender):
    """A lender that takes its time to make room."""

    def __init__(self) -> None:
        super().__init__()
        self.done: Deferred[None] = Deferred()

    async def admit(self, peer: ClusterID, offered: Mapping[str, str]) -> AccessGrant:
        grant = await super().admit(peer, offered)
        await self.done
        return grant


class NoForeignClusters:
    """ForeignClusters that are of no interest here."""

    def get(self, peer: ClusterID) -> None:
        return None

    def enqueue(self, peer: ClusterID) -> None:
        return None


class RenewalTests(SynchronousTestCase):
    """Two thirds of the life of a credential."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000.0)
        self.room = FakeLender()
        self.session = FakeSession()
        self.peer = Peer(
            id=PEER,
            dialer=cast(Any, None),
            broken_at=0.0,
            session=cast(Any, self.session),
            lending=Lending(lent=Lent(verdict="Accepted")),
        )
        self.context = context_of(self.clock, {PEER: self.peer})
        self.grants = CredentialIssuer(
            self.context,
            cast(Any, NoForeignClusters()),
            self.room,
            DirectionPolicy("Yes", "Yes"),
        )
        self.context.changes.known.open()

    def look(self) -> float | None:
        after = self.successResultOf(Deferred.fromCoroutine(self.grants.reconcile(PEER)))
        return after.seconds if after is not None else None

    def test_a_credential_is_renewed_at_two_thirds_of_its_life(self) -> None:
        """Of 3600 s: nothing is minted or sent before 2400 s, a new one then."""
        self.assertEqual(self.look(), 2400.0)
        self.clock.advance(2399.0)
        self.assertEqual(self.look(), 1.0)
        self.assertEqual((self.room.minted, len(self.session.credentials)), (1, 1))
        self.clock.advance(1.0)
        self.assertEqual(self.look(), 2400.0)
        self.assertEqual([reported.token for reported in self.session.credentials], ["token-1", "token-2"])
        self.assertEqual([reported.lifetime for reported in self.session.credentials], [3600, 3600])

    def test_a_new_session_gets_the_same_credential_with_what_is_left_of_its_life(self) -> None:
        """After a short break no token is minted, and the borrower learns how long it has."""
        self.look()
        self.clock.advance(600.0)
        later = FakeSession()
        self.peer.session = cast(Any, later)
        self.assertEqual(self.look(), 1800.0)
        self.assertEqual(self.room.minted, 1)
        self.assertEqual([(reported.token, reported.lifetime) for reported in later.credentials], [("token-1", 3000)])

    def test_a_break_across_the_renewal_renews_at_once_afterwards(self) -> None:
        """Without a session nothing is minted; with the next one the renewal is made up for."""
        self.look()
        self.peer.session = None
        self.clock.advance(3000.0)
        self.assertIsNone(self.look())
        self.peer.session = cast(Any, self.session)
        self.look()
        self.assertEqual(self.room.minted, 2)

    def slow(self) -> SlowLender:
        """Begin to admit the peer, at a lender that is not done yet."""
        room = SlowLender()
        self.grants = CredentialIssuer(
            context_of(self.clock, {PEER: self.peer}),
            cast(Any, NoForeignClusters()),
            room,
            DirectionPolicy("Yes", "Yes"),
        )
        self.looking = Deferred.fromCoroutine(self.grants.reconcile(PEER))
        return room

    def test_a_flood_of_verdicts(self) -> None:
        """One that takes turns, 200 times a second, has rights granted once a second; each time they end at once."""
        self.grants.startService()
        self.addCleanup(self.grants.stopService)
        for number in range(1000):
            self.peer.lending = self.peer.lending.answered("Refused" if number % 2 else "Accepted", "")
            self.grants.enqueue(PEER)
            self.clock.advance(0.005)
            if number % 2:
                self.assertEqual(self.room.tenants, {})
        self.assertLessEqual(self.room.minted, 7)
        self.assertGreater(self.room.minted, 1)
        self.peer.lending = self.peer.lending.answered("Accepted", "")
        self.grants.enqueue(PEER)
        self.clock.advance(PACE)
        self.assertEqual(set(self.room.tenants), {PEER})

    def test_a_lender_without_room_is_asked_ever_more_slowly(self) -> None:
        """The pace of grants does not count what failed as done, which would begin the back-off from its start."""
        asked: list[float] = []

        async def admit(peer: ClusterID, offered: Mapping[str, str]) -> AccessGrant:
            asked.append(self.clock.seconds())
            raise Refusal("NoRoom", "there is none")

        self.patch(self.room, "admit", admit)
        self.grants.startService()
        self.addCleanup(self.grants.stopService)
        self.grants.enqueue(PEER)
        self.clock.pump([0.1] * 200)
        self.assertLessEqual(len(asked), 7)
        self.assertGreater(len(asked), 3)

    def test_rights_that_were_granted_in_part_go_with_the_trust(self) -> None:
        """Also those of a borrower that was dismissed before, and came back: what failed halfway is not forgotten."""
        self.look()
        self.peer.lending = self.peer.lending.answered("Refused", "")
        self.look()
        self.assertEqual(self.room.dismissed, [PEER])

        async def admit(peer: ClusterID, offered: Mapping[str, str]) -> AccessGrant:
            self.room.tenants[peer] = {}
            raise KubeError("the API server is away")

        self.patch(self.room, "admit", admit)
        self.clock.advance(PACE)
        self.peer.lending = self.peer.lending.answered("Accepted", "")
        self.failureResultOf(Deferred.fromCoroutine(self.grants.reconcile(PEER)), KubeError)
        self.patch(self.grants, "_directions", DirectionPolicy("No", "No"))
        self.look()
        self.assertEqual((self.room.dismissed, self.room.tenants), ([PEER, PEER], {}))

    def test_what_was_left_over(self) -> None:
        """A borrower that refused is dismissed once more when a namespace was made for it meanwhile, until that is
        done; so it is by a daemon that does not know."""
        self.look()
        self.peer.lending = self.peer.lending.answered("Refused", "")
        self.look()
        self.look()
        self.assertEqual(self.room.dismissed, [PEER])
        self.grants.left_over(PEER)
        dismiss = self.room.dismiss

        async def fails(peer: ClusterID) -> bool:
            raise KubeError("the API server is away")

        self.patch(self.room, "dismiss", fails)
        self.failureResultOf(Deferred.fromCoroutine(self.grants.reconcile(PEER)), KubeError)
        self.patch(self.room, "dismiss", dismiss)
        self.look()
        self.look()
        self.assertEqual(self.room.dismissed, [PEER, PEER])
        self.grants.forget(PEER)
        self.look()
        self.assertEqual(self.room.dismissed, [PEER, PEER, PEER])

    def test_who_is_being_admitted_has_something_here(self) -> None:
        """From the first step of making room until the record tells of it, the peer counts as one that runs here."""
        room = self.slow()
        self.assertTrue(self.peer.lending.admitting)
        room.done.callback(None)
        self.successResultOf(self.looking)
        self.assertFalse(self.peer.lending.admitting)
        self.assertEqual(cast(Lent, self.peer.lent).tenant_namespace, "liqo-tenant-beta")

    def test_room_for_a_peering_that_ended_meanwhile_is_taken_back(self) -> None:
        """Nothing of it is reported or remembered: a later peering gets a credential of its own."""
        room = self.slow()
        self.peer.lending = Lending()
        self.grants.forget(PEER)
        room.done.callback(None)
        self.assertIsNone(self.successResultOf(self.looking))
        self.assertEqual((room.dismissed, room.tenants, self.session.credentials), ([PEER], {}, []))
        self.peer.lending = Lending(lent=Lent(verdict="Accepted"))
        self.look()
        self.assertEqual([one.token for one in self.session.credentials], ["token-2"])

    def test_only_those_who_know_the_relay_get_nothing_else(self) -> None:
        """A borrower without the relay is not sent what it would take for an error; the record says why."""
        self.grants = CredentialIssuer(
            context_of(self.clock, {PEER: self.peer}),
            cast(Any, NoForeignClusters()),
            RelayOnlyLender(),
            DirectionPolicy("Yes", "Yes"),
        )
        self.look()
        self.assertEqual(self.session.credentials, [])
        self.assertIn("does not know the API relay", self.peer.lending.trouble)
        newer = FakeSession("relay")
        self.peer.session = cast(Any, newer)
        self.look()
        (reported,) = newer.credentials
        self.assertEqual((reported.relay, reported.api_url, reported.token), (True, "", ""))

    def test_a_credential_without_a_url_travels_only_as_one_for_the_relay(self) -> None:
        """Neither URL nor token may be missing alone, nor both where there is no relay."""
        limits = FrameLimits()
        for reported in (
            Credential("", "", "", 3600, "tenant", True),
            Credential("https://a:6443", "", "token", 3600, "tenant", True),
            Credential("https://a:6443", "", "token", 3600, "tenant"),
        ):
            self.assertEqual(decode(encode(reported, limits), limits), reported)
        for wrong in (
            Credential("", "", "", 3600, "tenant"),
            Credential("", "", "token", 3600, "tenant", True),
            Credential("https://a:6443", "", "", 3600, "tenant", True),
        ):
            self.assertRaises(LocalProtocolError, encode, wrong, limits)


class RecordingClient:
    """A client that takes note of what is made and changed."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.deleted = 0
        self.read = 0
        self.busy: Deferred[None] | None = None
        self.namespace: dict[str, str] | None = None

    async def create(self, resource: Any, body: dict[str, Any], **_: Any) -> None:
        if resource is NAMESPACES and self.namespace is not None:
            raise from_status(409, b'{"reason": "AlreadyExists", "message": "it exists"}')
        if self.busy is not None:
            await self.busy
        self._note(body.get("data"))

    async def delete(self, resource: Any, name: str, *_: Any, **__: Any) -> None:
        self.deleted += 1

    async def get(self, resource: Any, *_: Any, **__: Any) -> Object | None:
        if resource is NAMESPACES:
            labels = {**TENANT} if self.namespace is None else self.namespace
            return Object(metadata=ObjectMeta(name="liqo-tenant-beta", labels=labels))
        self.read += 1
        if not self.tokens:
            raise cast(NotFound, from_status(404, b'{"message": "no such object"}'))
        return None

    async def patch(self, resource: Any, name: str, patch: dict[str, Any], *_: Any, **__: Any) -> None:
        self._note(patch.get("data"))

    def _note(self, data: Mapping[str, str] | None) -> None:
        if data is not None:
            self.tokens.append(base64.b64decode(data["token"]).decode())


class StoreTests(SynchronousTestCase):
    """A borrower that gets a credential before, or after, it accepted the offer."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.client = RecordingClient()
        self.peer = Peer(id=PEER, dialer=cast(Any, None), broken_at=0.0)
        self.kept: list[ClusterID] = []
        context = context_of(self.clock, {PEER: self.peer}, self.client)
        context.changes.of(Queue.VIRTUAL_NODE).start(self.kept.append)
        self.refused = context.refusals.counts
        self.credential_store = CredentialStore(context)

    def reported(self, token: str, *, accepted: bool, lifetime: int = 3600) -> None:
        credential = Credential("https://milan.example:6443", "", token, lifetime, "tenant", False)
        self.credential_store.received(self.peer, credential, accepted=accepted)
        self.work()

    def work(self) -> None:
        self.successResultOf(Deferred.fromCoroutine(self.credential_store.reconcile(PEER)))

    def accept(self) -> None:
        self.credential_store.offer_accepted(self.peer)
        self.work()

    def test_whether_there_is_one_is_read_once(self) -> None:
        """From the API server, that is after a restart: what became of it since is known without reading."""
        for stored in (True, False):
            self.setUp()
            self.client.tokens = ["before"] if stored else []
            for _ in range(2):
                found = Deferred.fromCoroutine(self.credential_store.exists(self.peer))
                self.assertEqual(self.successResultOf(found), stored)
            self.assertEqual(self.client.read, 1)

    def test_none_is_kept_in_a_namespace_of_somebody_else(self) -> None:
        """Who made a namespace of the name beforehand reads no credential, and none that lies there is used."""
        for labels in ({}, {"liqo.io/remote-cluster-id": "beta"}, {**TENANT, "liqo.io/remote-cluster-id": "other"}):
            self.setUp()
            self.client.namespace = labels
            credential = Credential("https://milan.example:6443", "", "secret", 3600, "tenant", False)
            self.credential_store.received(self.peer, credential, accepted=True)
            failed = self.failureResultOf(Deferred.fromCoroutine(self.credential_store.reconcile(PEER)), Refusal)
            self.assertEqual(failed.value.reason, "NamespaceTaken")
            self.assertEqual(self.client.tokens, [])
            self.client.tokens = ["planted"]
            self.failureResultOf(Deferred.fromCoroutine(self.credential_store.exists(self.peer)), Refusal)
            self.assertFalse(self.peer.credential)
        self.setUp()
        self.client.namespace = {**TENANT}
        self.reported("mine", accepted=True)
        self.assertEqual(self.client.tokens, ["mine"])

    def test_one_that_comes_before_the_offer_is_accepted_waits(self) -> None:
        """It is not written while the offer is not accepted, and written once when it is."""
        self.reported("early", accepted=False)
        self.assertEqual((self.client.tokens, self.kept), ([], []))
        self.accept()
        self.assertEqual((self.client.tokens, self.kept), (["early"], [PEER]))
        self.accept()
        self.assertEqual(self.client.tokens, ["early"])

    def test_the_newest_counts(self) -> None:
        """Of several that come early the last is kept, and none of them after one that comes in time."""
        self.reported("first", accepted=False)
        self.reported("second", accepted=False)
        self.accept()
        self.clock.advance(PACE)
        self.reported("third", accepted=False)
        self.reported("fourth", accepted=True)
        self.accept()
        self.assertEqual(self.client.tokens, ["second", "fourth"])

    def test_a_flood(self) -> None:
        """200 credentials a second are written once a second, the first at once, and the last of them as well."""
        self.credential_store.startService()
        self.addCleanup(self.credential_store.stopService)
        for number in range(1000):
            credential = Credential("https://milan.example:6443", "", str(number), 3600, "tenant", False)
            self.credential_store.received(self.peer, credential, accepted=True)
            self.clock.advance(0.005)
        self.assertEqual(self.client.tokens[0], "0")
        self.clock.advance(PACE)
        self.assertLessEqual(len(self.client.tokens), 7)
        self.assertEqual(self.client.tokens[-1], "999")

    def test_an_api_server_that_fails_is_asked_ever_more_slowly(self) -> None:
        """Neither the pace of writes nor credentials that come meanwhile begin the back-off from its start."""
        asked: list[float] = []

        async def fails(*given: Any, **options: Any) -> None:
            asked.append(self.clock.seconds())
            raise KubeError("the API server is away")

        self.patch(self.client, "create", fails)
        self.credential_store.startService()
        self.addCleanup(self.credential_store.stopService)
        for number in range(200):
            credential = Credential("https://milan.example:6443", "", str(number), 3600, "tenant", False)
            self.credential_store.received(self.peer, credential, accepted=True)
            self.clock.advance(0.1)
        self.assertLessEqual(len(asked), 7)
        self.assertGreater(len(asked), 3)

    def test_one_that_expires_is_not_kept(self) -> None:
        """What waited until hardly anything of its life is left is not written."""
        self.reported("old", accepted=False, lifetime=3600)
        self.clock.advance(3600 - MIN_LIFETIME + 1)
        self.accept()
        self.assertEqual(self.client.tokens, [])

    def test_nothing_is_kept_of_a_peer_that_is_known_no_more(self) -> None:
        """What waited goes with the peer's record."""
        self.reported("early", accepted=False)
        self.credential_store.forget(PEER)
        self.accept()
        self.assertEqual(self.client.tokens, [])

    def test_one_that_could_not_be_written_goes_with_the_trust(self) -> None:
        """What waits for an API server that fails is not written once the key that said it means nothing any more."""
        self.client.busy = Deferred()
        credential = Credential("https://milan.example:6443", "", "of the former key", 3600, "tenant", False)
        self.credential_store.received(self.peer, credential, accepted=True)
        writing = Deferred.fromCoroutine(self.credential_store.reconcile(PEER))
        self.client.busy.errback(OSError("no answer"))
        self.failureResultOf(writing, OSError)
        self.client.busy = None
        self.credential_store.forget(PEER)
        self.work()
        self.assertEqual((self.client.tokens, self.kept), ([], []))

    def test_one_that_is_being_written_goes_with_the_trust(self) -> None:
        """It is deleted again when the key that said it lost its trust while it was on its way."""
        busy: Deferred[None] = Deferred()
        self.client.busy = busy
        credential = Credential("https://milan.example:6443", "", "of the former key", 3600, "tenant", False)
        self.credential_store.received(self.peer, credential, accepted=True)
        writing = Deferred.fromCoroutine(self.credential_store.reconcile(PEER))
        self.credential_store.forget(PEER)
        busy.callback(None)
        self.successResultOf(writing)
        self.assertEqual((self.client.tokens, self.client.deleted, self.kept), (["of the former key"], 1, []))
        self.assertFalse(self.peer.credential)

    def test_the_own_api_server_is_no_lenders(self) -> None:
        """A lender does not lead requests to this cluster's own API server, or into its networks."""
        own = OwnAddresses("https://milan.example:6443", ("10.96.0.0/12",))
        self.credential_store = CredentialStore(context_of(self.clock, {PEER: self.peer}, self.client), own)
        self.reported("mirror", accepted=True)
        self.credential_store.received(
            self.peer, Credential("https://10.96.0.1", "", "inner", 3600, "tenant", False), accepted=True
        )
        self.work()
        self.assertEqual(self.client.tokens, [])
        both = Credential("https://milan.example:6443", "", "mirror", 3600, "tenant", True)
        self.credential_store.received(self.peer, both, accepted=True)
        self.work()
        self.assertEqual(self.client.tokens, [""], "the relay alone is left of it")

    def test_nonsense_does_not_wait(self) -> None:
        """A life of a moment, or of for ever, is refused also while the offer is not accepted."""
        for lifetime in (MIN_LIFETIME - 1, 10**9):
            self.reported("odd", accepted=False, lifetime=lifetime)
        self.accept()
        self.assertEqual((self.client.tokens, self.refused), ([], {"BadCredential": 2}))
