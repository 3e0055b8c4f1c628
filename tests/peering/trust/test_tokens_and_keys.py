"""What guesses cost, what an invitation that is gone says, and whose announcement of a new key counts."""

from __future__ import annotations

import datetime
from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.identity.certs import generate
from liqod.identity.pairing import verifier
from liqod.identity.rotation import announce
from liqod.identity.tls import PeerCertificate, PeerTLS
from liqod.kube.errors import NotFound
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.invitations import EXPIRES, VERIFIER
from liqod.model.records.offer import Refusal
from liqod.model.timestamps import rfc3339
from liqod.peering.records.foreignclusters import PendingPin
from liqod.peering.trust.next_keys import NextKeys
from liqod.peering.trust.pairing import GUESSES, Invitations, PairingTokens, Secret, encoded
from liqod.wire.events import Join, KeyNoted, NewKey
from tests.clocks import HostClock
from tests.peering.clusters import context_of

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
ROME = ClusterID("rome")
KEY = Fingerprint("sha256:" + "a" * 64)


class Empty:
    """An API server, and an informer, that have nothing; ``asked`` counts questions."""

    def __init__(self) -> None:
        self.asked = 0

    async def get(self, *args: Any, **options: Any) -> Any:
        self.asked += 1
        raise NotFound(404, "NotFound", "there is none")

    def of(self, *args: Any, **options: Any) -> Any:
        class Nothing:
            def get(self, key: object) -> None:
                return None

        return Nothing()


class GuessTests(SynchronousTestCase):
    """PairingTokens that nobody issued."""

    def test_the_api_server_is_asked_a_bounded_number_of_times_a_minute(self) -> None:
        """Every guess is refused; beyond thirty a minute nothing is asked for it, and the next minute begins again."""
        clock, server = Clock(), Empty()
        clock.advance(6e8)
        tokens = PairingTokens(cast(Any, server), clock, "liqo-system", PeerTLS(generate(ROME, NOW)))
        for minute in (1, 2):
            for number in range(GUESSES + 5):
                work = Deferred.fromCoroutine(tokens.redeem(Join(f"{number:04x}", "0" * 64), b"x" * 32, KEY, ROME))
                refusal = cast(Refusal, self.failureResultOf(work, Refusal).value)
                reported = "too many" if number >= GUESSES else "no such token"
                self.assertIn(reported, refusal.message)
                clock.advance(1)
            self.assertEqual(server.asked, minute * GUESSES)
            clock.advance(60 - GUESSES - 5)

    def test_an_invitation_that_was_used_meanwhile_proves_nothing(self) -> None:
        """There is no token, and nothing to say."""
        invitations = Invitations(cast(Any, Empty()), cast(Any, Empty()), "liqo-system", PeerTLS(generate(ROME, NOW)))
        self.assertIsNone(invitations.of(ROME))
        self.assertIsNone(invitations.join(ROME, b"x" * 32))


class Issued:
    """An API server with one token; ``deleted`` has the UIDs with which it was deleted."""

    def __init__(self, expires: str) -> None:
        data = {VERIFIER: verifier(b"s" * 32), **({EXPIRES: expires} if expires else {})}
        self.secret = Secret(metadata=ObjectMeta(name="token", uid="u-1"), data=encoded(data))
        self.deleted: list[str] = []

    async def get(self, *args: object, **options: object) -> Secret:
        return self.secret

    async def patch(self, *args: object, **options: object) -> None:
        pass

    async def delete(self, *args: object, uid: str) -> None:
        self.deleted.append(uid)


class CrowdedTests(SynchronousTestCase):
    """A token of one who was given it, while a stranger tries others without end."""

    def test_it_is_not_refused_for_what_strangers_try(self) -> None:
        """Thirty wrong ones in a minute keep nobody from pairing whose token is there."""
        clock, server = HostClock(), Empty()
        clock.advance(1.9e9)
        issued = Issued(rfc3339(clock.wall() + datetime.timedelta(hours=1)))
        tokens = PairingTokens(
            cast(Any, server),
            clock,
            "liqo-system",
            PeerTLS(generate(ROME, NOW)),
            is_issued=lambda name: name.endswith("0a1b"),
        )

        def tried(token: str) -> str:
            work = Deferred.fromCoroutine(tokens.redeem(Join(token, "0" * 64), b"x" * 32, KEY, ROME))
            return cast(Refusal, self.failureResultOf(work, Refusal).value).message

        for number in range(GUESSES):
            self.assertIn("no such token", tried(f"{number:04x}"))
        self.assertIn("too many", tried("beef"))
        tokens._client = cast(Any, issued)
        self.assertIn("not proven", tried("0a1b"))
        self.assertIn("too many", tried("beef"))


class ExpiryTests(SynchronousTestCase):
    """A token whose time is over."""

    def test_a_token_is_tried_only_before_a_readable_end(self) -> None:
        """At its end, after it, or without an end that can be read it is refused and deleted."""
        clock = HostClock()
        clock.advance(1.9e9)
        now = clock.wall()
        second = datetime.timedelta(seconds=1)
        for expires, is_over in (
            (rfc3339(now + second), False),
            (rfc3339(now), True),
            (rfc3339(now - second), True),
            ("tomorrow", True),
            ("", True),
        ):
            server = Issued(expires)
            tokens = PairingTokens(cast(Any, server), clock, "liqo-system", PeerTLS(generate(ROME, NOW)))
            work = Deferred.fromCoroutine(tokens.redeem(Join("0a1b", "0" * 64), b"x" * 32, KEY, ROME))
            refusal = cast(Refusal, self.failureResultOf(work, Refusal).value)
            self.assertIn("has expired" if is_over else "not proven", refusal.message, expires)
            self.assertEqual(server.deleted, ["u-1"] if is_over else [], expires)


@attrs.define
class Named:
    """A peer, by its ID."""

    id: ClusterID


class Said:
    """A session with the holder of a key; ``sent`` is what it gets."""

    def __init__(self, key: Fingerprint | None) -> None:
        self.certificate = PeerCertificate(key, False, "rome", NOW, NOW) if key is not None else None
        self.sent: list[KeyNoted] = []

    def binding(self, purpose: bytes) -> bytes:
        return b"b" * 32

    def send(self, event: KeyNoted) -> None:
        self.sent.append(event)


class Pinned:
    """ForeignClusters of pinned keys and of announced ones."""

    def __init__(self, pins: dict[ClusterID, Fingerprint]) -> None:
        self.pins = pins
        self.pinning: dict[ClusterID, PendingPin] = {}

    def next_key(self, peer: ClusterID) -> None:
        return None


class AnnouncementTests(SynchronousTestCase):
    """Who may announce a cluster's next key."""

    def test_only_who_holds_the_pinned_key(self) -> None:
        """A session whose key is pinned no more, or that showed none, announces nothing and learns nothing."""
        own, present, following = (generate(ClusterID(name), NOW) for name in ("turin", "rome", "rome"))
        event = NewKey(*announce(following, ROME, present.fingerprint, b"b" * 32))
        for pin, key, counts in (
            (present.fingerprint, present.fingerprint, True),
            (following.fingerprint, present.fingerprint, False),
            (KEY, present.fingerprint, False),
            (present.fingerprint, None, False),
        ):
            context = context_of(Clock())
            keys = NextKeys(context, PeerTLS(own), cast(Any, Pinned({ROME: pin})))
            session = Said(key)
            keys.announcement_received(cast(Any, Named(ROME)), cast(Any, session), event)
            self.assertEqual(keys.waiting > 0, counts, (pin, key))
            self.assertEqual((session.sent, context.refusals.counts), ([], {}))

    def test_a_key_that_did_not_sign_or_is_anothers_is_answered_with_why(self) -> None:
        """Nothing is noted of it: not our own key, not another peer's, not one whose holder is elsewhere."""
        names = ("turin", "rome", "rome", "milan", "naples")
        own, present, following, other, pending = (generate(ClusterID(name), NOW) for name in names)
        pins = {ROME: present.fingerprint, ClusterID("milan"): other.fingerprint}
        for key, binding, reason in (
            (following, b"b" * 32, ""),
            (following, b"c" * 32, "KeyNotProven"),
            (own, b"b" * 32, "KeyInUse"),
            (other, b"b" * 32, "KeyInUse"),
            (pending, b"b" * 32, "KeyInUse"),
        ):
            context = context_of(Clock())
            pinned = Pinned(pins)
            pinned.pinning[ClusterID("naples")] = PendingPin(pending.fingerprint)
            keys = NextKeys(context, PeerTLS(own), cast(Any, pinned))
            session = Said(present.fingerprint)
            keys.announcement_received(
                cast(Any, Named(ROME)),
                cast(Any, session),
                NewKey(*announce(key, ROME, present.fingerprint, binding)),
            )
            self.assertEqual([noted.reason for noted in session.sent], [reason] if reason else [])
            self.assertEqual(list(context.refusals.counts), [reason] if reason else [])
            self.assertEqual(keys.waiting > 0, not reason)
