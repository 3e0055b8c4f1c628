"""Who is trusted: every combination of what can speak for a key and against it."""

from __future__ import annotations

import datetime
from collections.abc import Coroutine, Mapping
from typing import Any, cast

import attrs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import DiscoverySettings, PeeringSettings, PeerSettings, Settings
from liqod.identity.certs import generate
from liqod.identity.tls import PeerCertificate, PeerTLS
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.offer import Refusal
from liqod.model.records.unpeering import FINALIZER, Tombstone
from liqod.model.records.views import ForeignCluster, ForeignClusterSpec
from liqod.peering.ports import OwnCluster
from liqod.peering.records.foreignclusters import STRANGER_WRITE_INTERVAL, PendingPin
from liqod.peering.session.peer import ConnectionProblem
from liqod.peering.trust.authenticator import Authenticator
from liqod.wire.events import Bye, Hello, Join
from tests.peering.clusters import RecordedAudit

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
ME, ROME, MILAN = ClusterID("turin"), ClusterID("rome"), ClusterID("milan")
KEY, OTHER, THIRD = (Fingerprint("sha256:" + letter * 64) for letter in "abc")
OWN = generate(ME, NOW)
OWN_TLS = PeerTLS(OWN)
HELLO = Hello(ROME, "Rome", 1, 0, 0, [])
JOIN = Join("0a1b", "0" * 64)
STEADILY = settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])


@attrs.define(kw_only=True)
class World:
    """What speaks for a key, and against it."""

    pinned: str = "none"
    announced: bool = False
    used_elsewhere: bool = False
    vouched: bool = False
    autojoin: bool = False
    untrusted: bool = False
    by_hand: bool = False
    token: str = "none"
    sent_away: bool = False
    record: str = "none"

    @property
    def is_sent_away(self) -> bool:
        """Whether a person said so, by an end of the peering or by taking the pin away."""
        return self.sent_away or self.record == "withdrawn"

    def pins(self) -> dict[ClusterID, Fingerprint]:
        pins = {MILAN: KEY if self.used_elsewhere else THIRD}
        if self.pinned != "none":
            pins[ROME] = KEY if self.pinned == "this" else OTHER
        return pins


worlds = st.builds(
    World,
    pinned=st.sampled_from(["none", "none", "this", "another"]),
    announced=st.booleans(),
    used_elsewhere=st.booleans(),
    vouched=st.booleans(),
    autojoin=st.booleans(),
    untrusted=st.booleans(),
    by_hand=st.booleans(),
    token=st.sampled_from(["none", "good", "bad"]),
    sent_away=st.booleans(),
    record=st.sampled_from(["none", "stranger", "withdrawn"]),
)


@attrs.define(eq=False, kw_only=True)
class Shown:
    """A peer, as far as strangers are shown by it."""

    session: None = None
    seen: Fingerprint | None = None
    problem: ConnectionProblem | None = None
    status_written_at: float = 0.0
    impostor_shown_at: float = -1e9
    called_at: float = 0.0
    network: str | None = None
    name: str = ""
    life: list[str] = attrs.field(factory=list)

    def advance(self, event: object) -> None:
        self.life.append(type(event).__name__)


@attrs.define(eq=False)
class Call:
    """A connection."""

    expected: ClusterID | None = None
    expected_key: str = ""
    address: str = "192.0.2.1:5872"

    def binding(self) -> bytes:
        return b"b" * 32


def record(fingerprint: str) -> ForeignCluster:
    spec = ForeignClusterSpec(cluster_id=ROME, fingerprint=Fingerprint(fingerprint))
    return ForeignCluster(metadata=ObjectMeta(name=ROME), spec=spec)


class Around:
    """All that the judge asks and tells: records, tombstones, tokens, tasks and followers in one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pins = world.pins()
        self.trace: list[str] = []
        self.written: ForeignCluster | Exception | None = record(KEY)
        self.held: Deferred[None] | None = None
        """What the answer to a write waits for."""
        self.redeeming: Deferred[None] | None = None
        """What the answer about a token waits for."""
        self.pinning: dict[ClusterID, PendingPin] = {}
        self.room = True
        self.sent_away_meanwhile = False
        self.seen_there = False

    # ForeignClusters.

    def next_key(self, peer: ClusterID) -> Fingerprint | None:
        return KEY if self.world.announced else None

    def get(self, peer: ClusterID) -> Any:
        if self.world.record == "none":
            return None
        finalizers = [FINALIZER] if self.world.record == "withdrawn" else []
        return ForeignCluster(metadata=ObjectMeta(name=peer, finalizers=finalizers))

    def has_room_for(self, peer: ClusterID, network: str) -> bool:
        return self.room

    def is_sighted(self, peer: ClusterID) -> bool:
        return self.seen_there

    def enqueue(self, peer: ClusterID) -> None:
        self.trace.append("shown")

    async def ensure(self, peer: ClusterID, fingerprint: str, *, by_settings: bool) -> Any:
        self.trace.append(f"pinned{' by itself' if by_settings else ''}")
        return await self._wrote()

    async def promote_next_key(self, peer: ClusterID, fingerprint: str) -> Any:
        self.trace.append("succeeded")
        return await self._wrote()

    async def _wrote(self) -> Any:
        if self.held is not None:
            await self.held
        if isinstance(self.written, Exception):
            raise self.written
        return self.written

    # Tombstones.

    def refuses(self, peer: ClusterID, key: str) -> bool:
        return self.world.sent_away

    # PairingTokens.

    async def redeem(self, join: Join, binding: bytes, key: str, peer: ClusterID) -> None:
        self.trace.append("redeemed")
        if self.redeeming is not None:
            await self.redeeming
        self.world.sent_away = self.world.sent_away or self.sent_away_meanwhile
        if self.world.token == "bad":
            raise Refusal("TokenRefused", "it was not proven")

    async def spend(self, token: str) -> None:
        self.trace.append(f"spent {token}")

    # The rest.

    def record(self, reason: str, source: str, message: str) -> None:
        self.trace.append(reason)

    def spawn(self, work: Coroutine[Any, Any, Any], what: str) -> None:
        Deferred.fromCoroutine(work)

    def key_mismatch(self, peer: ClusterID, seen: Fingerprint) -> None:
        self.trace.append("repeated")

    def key_rotated(self, peer: ClusterID, new: Fingerprint) -> None:
        self.trace.append("rotated")


class Tombs:
    """Tombstones: ``kept`` is that of rome."""

    def __init__(self, around: Around) -> None:
        self.refuses = around.refuses
        self.kept: Tombstone | None = None
        self.notified: list[ClusterID] = []

    def get(self, peer: ClusterID) -> Tombstone | None:
        return self.kept

    async def mark_notified(self, peer: ClusterID) -> None:
        self.notified.append(peer)


@attrs.define
class Directory:
    """The known peers: one, whose problems are kept."""

    one: Shown
    problems: list[ConnectionProblem]

    def peer(self, cluster_id: ClusterID) -> Shown:
        return self.one

    def set_problem(self, peer: Shown, problem: ConnectionProblem) -> None:
        self.problems.append(problem)
        peer.problem = problem


class AuthenticatorCase(SynchronousTestCase):
    """A judge, and what it knows."""

    def begin(self, world: World) -> None:
        self.around = Around(world)
        self.audit = RecordedAudit()
        self.clock = Clock()
        self.clock.advance(1e9)
        self.peer = Shown()
        self.doubts: list[ConnectionProblem] = []
        self.tombs = Tombs(self.around)
        by_hand = [PeerSettings(address="192.0.2.1:5872", fingerprint=KEY)] if world.by_hand else []
        chosen = msgspec.structs.replace(
            Settings(),
            peering=PeeringSettings(autojoin=world.autojoin, autojoin_untrusted=world.untrusted),
            discovery=DiscoverySettings(peers=by_hand),
        )
        around = cast(Any, self.around)
        self.judge = Authenticator(
            cluster=OwnCluster(id=ME, name="turin", tls=OWN_TLS, epoch=1),
            clock=self.clock,
            settings=chosen,
            records=around,
            tombstones=cast(Any, self.tombs),
            tokens=around,
            refusals=around,
            tasks=around,
            directory=cast(Any, Directory(self.peer, self.doubts)),
            subscriber=around,
            audit=self.audit,
        )

    def certificate(self, key: Fingerprint = KEY) -> PeerCertificate:
        return PeerCertificate(key, self.around.world.vouched, ROME, NOW, NOW)

    def ask(
        self, key: Fingerprint = KEY, call: Call | None = None, *, claimed: ClusterID = ROME
    ) -> Deferred[Bye | None]:
        join = None if self.around.world.token == "none" else JOIN
        work = self.judge.authenticate(cast(Any, call or Call()), HELLO, claimed, self.certificate(key), join)
        return Deferred.fromCoroutine(work)

    def answer(self, key: Fingerprint = KEY, call: Call | None = None) -> Bye | None:
        return self.successResultOf(self.ask(key, call))


class AuthenticatorTests(AuthenticatorCase):
    """A key that claims to be rome."""

    def test_a_token_is_spent_by_the_session_that_it_led_to(self) -> None:
        """Once, and not before it is established; a session without a token, or one that ended first, spends none."""
        for token, ends_first, spent in (("good", False, True), ("good", True, False), ("none", False, False)):
            self.begin(World(pinned="this" if token == "none" else "none", token=token))
            call = Call()
            self.assertIsNone(self.answer(call=call))
            before = list(self.around.trace)
            if ends_first:
                self.judge.closed(cast(Any, call))
            for _ in range(2):
                self.judge.established(cast(Any, call))
            self.assertEqual(self.around.trace[len(before) :], [f"spent {JOIN.token}"] if spent else [])
            self.assertNotIn("spent", " ".join(before))

    @given(worlds)
    @STEADILY
    def test_who_is_let_in(self, world: World) -> None:
        """The pinned key, the one that it announced, and where none is pinned whom CA, settings or a token name.

        Never a key that is another cluster's; never, but by the pin itself, somebody who was sent away.
        """
        self.begin(world)
        bye = self.answer()
        if world.pinned == "this":
            allowed = True
        elif world.pinned == "another":
            allowed = world.announced
        elif world.is_sent_away or world.used_elsewhere:
            allowed = False
        else:
            named = (world.autojoin and world.vouched) or world.token == "good"
            allowed = named or (world.token == "none" and (world.untrusted or world.by_hand))
        self.assertEqual(bye is None, allowed, bye)
        expected = {**world.pins(), **({ROME: KEY} if allowed else {})}
        self.assertEqual(self.around.pins, expected)
        if allowed and world.pinned != "this":
            self.assertIn("succeeded" if world.pinned == "another" else "pinned", " ".join(self.around.trace))

    @given(worlds)
    @STEADILY
    def test_who_is_not_let_in_learns_why(self, world: World) -> None:
        """An impostor, a stranger, a token's holder: each by its own reason, and strangers are shown to the user."""
        self.begin(world)
        bye = self.answer()
        if bye is None:
            return
        if world.pinned == "another":
            reasons = {"ClusterIDRepetition"}
            self.assertEqual(self.around.trace, ["repeated"])
        elif world.token == "none":
            reasons = {"TrustPending"}
            self.assertEqual([problem.reason for problem in self.doubts], ["TrustPending"])
        else:
            reasons = {"TokenRefused"} if world.is_sent_away or not world.used_elsewhere else {"KeyInUse"}
        self.assertIn(bye.reason, reasons)

    def test_a_stranger_at_an_odd_address(self) -> None:
        """An interface may have a name that no address is written with, and a local socket has none: both are shown."""
        for address, network in (("[fe80::1%a@b]:40000", "fe80::/64"), ("a local socket:0", "a local socket:0")):
            self.begin(World())
            bye = self.answer(call=Call(address=address))
            self.assertEqual((bye and bye.reason, self.peer.network), ("TrustPending", network))

    def test_a_token_is_not_tried_for_a_key_that_is_refused_in_any_case(self) -> None:
        """It is not spent on a key that no token may bring back, nor on an impostor's."""
        for world in (World(token="good", sent_away=True), World(pinned="another", token="good")):
            self.begin(world)
            self.answer()
            self.assertNotIn("redeemed", self.around.trace)

    def test_a_token_that_was_not_needed_is_spent(self) -> None:
        """A key that is pinned, announced or vouched for is let in with any token, and keeps none for later."""
        for trusted in (
            World(pinned="this"),
            World(pinned="another", announced=True),
            World(autojoin=True, vouched=True),
        ):
            for token, spent in (("good", True), ("bad", False)):
                self.begin(attrs.evolve(trusted, token=token))
                self.assertIsNone(self.answer())
                self.assertIn("redeemed", self.around.trace)
                self.assertEqual(f"spent {JOIN.token}" in self.around.trace, spent)

    def test_who_is_sent_away_meanwhile_stays_away(self) -> None:
        """It is not pinned, and the token is not spent by it."""
        self.begin(World(token="good"))
        self.around.sent_away_meanwhile = True
        call = Call()
        bye = self.answer(call=call)
        assert bye is not None
        self.assertEqual(bye.reason, "TrustPending")
        self.judge.established(cast(Any, call))
        self.assertEqual(self.around.trace, ["redeemed"])
        self.assertNotIn(ROME, self.around.pins)

    def test_the_record_has_the_last_word(self) -> None:
        """Another key on it, or none any more: no session, and what is on record is what is pinned."""
        table: list[tuple[World, Any, str, Mapping[ClusterID, str]]] = [
            (World(untrusted=True), record(OTHER), "ClusterIDRepetition", {ROME: OTHER}),
            (World(untrusted=True), record(""), "TrustPending", {}),
            (World(pinned="another", announced=True), record(OTHER), "ClusterIDRepetition", {ROME: OTHER}),
            (World(pinned="another", announced=True), None, "ClusterIDRepetition", {ROME: OTHER}),
        ]
        for world, written, reason, pins in table:
            self.begin(world)
            self.around.written = written
            bye = self.answer()
            assert bye is not None
            self.assertEqual(bye.reason, reason)
            self.assertEqual({peer: pin for peer, pin in self.around.pins.items() if peer == ROME}, pins)
            self.assertNotIn("rotated", self.around.trace)

    def test_a_pin_that_was_not_written_is_none(self) -> None:
        """An API server that is away leaves no key that counts until the next start only."""
        self.begin(World(untrusted=True))
        self.around.written = OSError("away")
        work = self.judge.authenticate(cast(Any, Call()), HELLO, ROME, self.certificate(), None)
        self.failureResultOf(Deferred.fromCoroutine(work), OSError)
        self.assertNotIn(ROME, self.around.pins)

    def test_the_key_before_is_worth_nothing_after_the_next(self) -> None:
        """Once the announced key was used, the one that still has the old one is an impostor."""
        self.begin(World(pinned="another", announced=True))
        self.assertIsNone(self.answer())
        self.assertEqual(self.around.trace, ["succeeded", "rotated"])
        bye = self.answer(OTHER)
        assert bye is not None
        self.assertEqual(bye.reason, "ClusterIDRepetition")


class PendingPinTests(AuthenticatorCase):
    """While the write of a pin is not answered, nobody is trusted by it."""

    def hold(self, world: World) -> Deferred[None]:
        self.begin(world)
        self.around.held = Deferred()
        return self.around.held

    def test_others_with_the_key_wait_for_what_is_on_record(self) -> None:
        """Both sides dial at once: both connections are let in by one write, with one security event."""
        for world, reason in (
            (World(untrusted=True), ("TrustGranted", "Configuration")),
            (World(token="good"), ("TrustGranted", "Token")),
            (World(autojoin=True, vouched=True), ("TrustGranted", "Certificate")),
            (World(pinned="another", announced=True), ("KeyChanged", "Announced")),
        ):
            held = self.hold(world)
            first, second = self.ask(), self.ask()
            self.assertNoResult(first)
            self.assertNoResult(second)
            self.assertEqual(self.around.pins, world.pins())
            held.callback(None)
            self.assertEqual((self.successResultOf(first), self.successResultOf(second)), (None, None))
            self.assertEqual(self.around.pins[ROME], KEY)
            events = [event for event in self.audit.events if event.type != "TokenUsed"]
            self.assertEqual([(one.type, one.reason) for one in events], [reason])
            self.assertEqual(self.around.trace.count("rotated"), int(reason[0] == "KeyChanged"))
            self.assertEqual(self.around.pinning, {})

    def test_a_write_that_fails_lets_nobody_in(self) -> None:
        """Who waited tries on its own, and fails by its own write; there is neither a pin nor an event."""
        held = self.hold(World(untrusted=True))
        first, second = self.ask(), self.ask()
        self.assertNoResult(second)
        self.around.held, self.around.written = None, OSError("away")
        held.errback(OSError("away"))
        for asked in (first, second):
            self.failureResultOf(asked, OSError)
        self.assertEqual((self.around.pins, self.audit.events), (World().pins(), []))
        self.assertEqual(self.around.pinning, {})

    def test_another_key_waits_too(self) -> None:
        """It is an impostor's once the first is on record, and a stranger's if that never was."""
        for answer, reason in ((None, "ClusterIDRepetition"), (OSError("away"), "TrustPending")):
            held = self.hold(World(by_hand=True))
            first, other = self.ask(), self.ask(OTHER)
            self.assertNoResult(other)
            if answer is None:
                held.callback(None)
            else:
                held.errback(answer)
                self.failureResultOf(first, OSError)
            bye = self.successResultOf(other)
            self.assertEqual(bye and bye.reason, reason)

    def test_a_key_that_is_being_pinned_is_no_second_clusters(self) -> None:
        """Whatever speaks for it there: the settings, or a token."""
        for token, reason in (("none", "TrustPending"), ("good", "KeyInUse")):
            held = self.hold(World(untrusted=token == "none", token=token))
            first, other = self.ask(), self.ask(claimed=ClusterID("naples"))
            self.assertNoResult(other)
            held.callback(None)
            self.assertIsNone(self.successResultOf(first))
            bye = self.successResultOf(other)
            self.assertEqual(bye and bye.reason, reason)
            self.assertNotIn("naples", self.around.pins)

    def test_two_tokens_for_one_cluster(self) -> None:
        """Both were redeemed at the same moment: the key that is on record first is the cluster's."""
        self.begin(World(token="good"))
        redeemed = self.around.redeeming = Deferred()
        first, second = self.ask(), self.ask(OTHER)
        redeemed.callback(None)
        self.assertIsNone(self.successResultOf(first))
        bye = self.successResultOf(second)
        self.assertEqual(bye and bye.reason, "ClusterIDRepetition")
        self.assertEqual(self.around.pins[ROME], KEY)

    def test_a_connection_that_ends_meanwhile(self) -> None:
        """The write goes on, and is what it is: the key is pinned, with its event."""
        held = self.hold(World(untrusted=True))
        first = self.ask()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertEqual(self.around.pins, World().pins())
        held.callback(None)
        self.assertEqual(self.around.pins[ROME], KEY)
        self.assertEqual([one.reason for one in self.audit.of("TrustGranted")], ["Configuration"])

    def test_a_pin_whose_answer_was_lost(self) -> None:
        """The watch has shown it: it is on record, by this write."""
        held = self.hold(World(untrusted=True))
        first = self.ask()
        self.around.pins[ROME] = KEY
        held.errback(OSError("away"))
        self.assertIsNone(self.successResultOf(first))
        self.assertEqual([one.reason for one in self.audit.of("TrustGranted")], ["Configuration"])


class MistakeTests(AuthenticatorCase):
    """Who cannot be whom it claims to be, or is not whom was called."""

    def test_each_has_its_reason(self) -> None:
        """Ourselves, our ID with another key, another cluster than expected, another key than configured."""
        own = OWN.fingerprint
        self.begin(World())
        for call, claimed, key, reason in (
            (Call(), ME, own, "Self"),
            (Call(), ME, KEY, "ClusterIDRepetition"),
            (Call(expected=MILAN), ROME, KEY, "UnexpectedIdentity"),
            (Call(expected=ROME, expected_key=OTHER), ROME, KEY, "UnexpectedKey"),
            (Call(expected_key=OTHER), ROME, KEY, "UnexpectedKey"),
            (Call(expected=ROME, expected_key=KEY), ROME, KEY, ""),
            (Call(), ROME, KEY, ""),
        ):
            bye = self.judge.check_identity(cast(Any, call), claimed, self.certificate(key))
            self.assertEqual(bye.reason if bye is not None else "", reason)


class StrangerTests(AuthenticatorCase):
    """What the user is shown of keys that nobody trusts."""

    def test_a_second_key_is_shown_only_after_a_while_without_the_first(self) -> None:
        """Two that claim one ID do not take turns in what the user compares; who stays away makes room."""
        self.begin(World())
        self.answer(KEY)
        self.peer.status_written_at = self.clock.seconds()
        self.clock.advance(STRANGER_WRITE_INTERVAL)
        self.answer(OTHER)
        self.assertEqual((self.peer.seen, len(self.doubts)), (KEY, 1))
        self.answer(KEY)
        self.assertEqual((self.peer.seen, len(self.doubts)), (KEY, 2))
        self.clock.advance(1)
        self.answer(OTHER)
        self.assertEqual((self.peer.seen, len(self.doubts)), (OTHER, 3))

    def test_without_room_only_those_in_sight_are_shown(self) -> None:
        """A caller without an address is counted and reported, and leaves nothing behind."""
        for room, in_sight, shown in ((True, False, True), (False, True, True), (False, False, False)):
            self.begin(World())
            self.around.room, self.around.seen_there = room, in_sight
            bye = self.answer()
            assert bye is not None
            self.assertEqual(bye.reason, "TrustPending")
            self.assertEqual("TooManyUntrusted" in self.around.trace, not room)
            self.assertEqual("shown" in self.around.trace, shown)
            self.assertEqual(len(self.doubts), int(shown))

    def test_who_was_away_when_the_peering_ended_learns_of_it(self) -> None:
        """By the key that it had then, where it was we who ended it; a key that was distrusted learns nothing."""
        ended = Tombstone(KEY, "2029-12-31T00:00:00Z")
        for kept, reason in (
            (ended, "Unpeered"),
            (None, "TrustPending"),
            (msgspec.structs.replace(ended, fingerprint=OTHER), "TrustPending"),
            (msgspec.structs.replace(ended, by="peer"), "TrustPending"),
            (msgspec.structs.replace(ended, distrusted=True), "TrustPending"),
        ):
            for token in ("none", "good"):
                self.begin(World(sent_away=True, token=token))
                self.tombs.kept = kept
                bye = self.answer()
                assert bye is not None
                wanted = "TokenRefused" if token == "good" and reason == "TrustPending" else reason
                self.assertEqual(bye.reason, wanted, (kept, token))
                self.assertEqual(self.tombs.notified, [ROME] if reason == "Unpeered" else [])
