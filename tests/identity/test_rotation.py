"""Changing a key: the proof of the next one, the table of steps, and every order of events in simulated time."""

from __future__ import annotations

import datetime
from typing import Any

import attrs
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from twisted.trial.unittest import SynchronousTestCase

from liqod.identity.certs import generate
from liqod.identity.pins import Mismatch, Trusted, judge
from liqod.identity.rotation import (
    ANSWER,
    Drop,
    Kept,
    Make,
    Promote,
    Rest,
    Step,
    TrustingPeer,
    Wait,
    announce,
    decide,
    fingerprint_of,
    is_proven,
)
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.rotation import ORDER, RotationOrder, order_of

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
ME = ClusterID("turin")
OLD = Fingerprint("sha256:" + "0" * 64)
BINDING = bytes(range(32))


class ProofTests(SynchronousTestCase):
    """What an announcement proves, and where."""

    def test_it_holds_in_its_own_session_only(self) -> None:
        """Another session, another cluster, another present key or another next key: the proof is worth nothing."""
        following, other = generate(ME, NOW), generate(ME, NOW)
        public_key, proof = announce(following, ME, OLD, BINDING)
        self.assertEqual(fingerprint_of(public_key), following.fingerprint)
        self.assertTrue(is_proven(public_key, proof, ME, OLD, BINDING))
        another_key, another_proof = announce(other, ME, OLD, BINDING)
        present = Fingerprint("sha256:" + "1" * 64)
        for what in (
            (public_key, proof, ME, OLD, bytes(32)),
            (public_key, proof, ClusterID("milan"), OLD, BINDING),
            (public_key, proof, ME, present, BINDING),
            (another_key, proof, ME, OLD, BINDING),
            (public_key, another_proof, ME, OLD, BINDING),
            (public_key, "", ME, OLD, BINDING),
            ("", proof, ME, OLD, BINDING),
            (public_key, "not base64", ME, OLD, BINDING),
        ):
            self.assertFalse(is_proven(*what), what)


class OrderTests(SynchronousTestCase):
    """What the annotation says."""

    def test_round_trip(self) -> None:
        """What is rendered is read; what cannot be read, or is absurd, is an ordinary order; nothing is none."""
        for order in (RotationOrder(), RotationOrder(0.0), RotationOrder(3600.0)):
            self.assertEqual(order_of({ORDER: order.render()}), order)
        for text in ("", "true", "{", '{"within": -1}', '{"within": 1e12}', '{"within": "x"}'):
            self.assertEqual(order_of({ORDER: text}), RotationOrder(), text)
        self.assertIsNone(order_of({}))


class ReplacementTableTests(SynchronousTestCase):
    """Every situation and its step."""

    def test_steps(self) -> None:
        """The next key is made on order, takes over when all know it or the wait is over, and goes without an order."""
        order = RotationOrder()
        kept = Kept("next", order, 100.0)
        knows = TrustingPeer("a", connected=True, able=True, knows=True)
        away = TrustingPeer("b", connected=False, able=False, knows=False)
        hears = TrustingPeer("c", connected=True, able=True, knows=False)
        deaf = TrustingPeer("d", connected=True, able=False, knows=False)
        late = 100.0 + ANSWER
        table: list[tuple[Kept, list[TrustingPeer], float, Step]] = [
            (Kept(), [hears], 0.0, Rest()),
            (Kept("next"), [knows], 0.0, Drop()),
            (Kept("", order), [], 0.0, Make()),
            (Kept("next", order), [], 0.0, Make()),
            (kept, [], 0.0, Promote(())),
            (kept, [knows], 0.0, Promote(())),
            (kept, [knows, away], 0.0, Wait(("b",), 100.0)),
            (kept, [hears], 99.0, Wait(("c",), 100.0)),
            (kept, [deaf], 99.0, Wait(("d",), 100.0)),
            (kept, [knows, away], 100.0, Promote(("b",))),
            (kept, [deaf], 100.0, Promote(("d",))),
            (kept, [hears, away], 100.0, Wait(("c", "b"), late)),
            (kept, [hears], late, Promote(("c",))),
        ]
        for at, audience, now, step in table:
            self.assertEqual(decide(at, audience, now), step, (at, audience, now))


@attrs.define
class Away:
    """A peer as it keeps us: the pinned key and the announced one, and whether it could have received it in time."""

    pin: str
    following: str = ""
    by: str = ""
    connected: bool = attrs.field(default=True, kw_only=True)
    announced: bool = attrs.field(default=False, kw_only=True)
    left_behind: bool = attrs.field(default=False, kw_only=True)


class Rotating(RuleBasedStateMachine):
    """One cluster that changes its key over and over, three peers, and a daemon that may end between any two steps.

    What is on record is in ``secret`` and ``pins``; everything else is lost when the daemon ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.now = 0.0
        self.secret: dict[str, Any] = {"key": "key-0", "next": "", "until": None, "order": None}
        self.peers = {name: Away("key-0") for name in "abc"}
        self.knows: dict[str, str] = {}
        self.using = "key-0"

    @initialize()
    def begin(self) -> None:
        self.using = self.secret["key"]

    @rule(within=strategies.sampled_from([0.0, 50.0]))
    def order(self, within: float) -> None:
        self.secret["order"] = RotationOrder(within)

    @rule()
    def take_back(self) -> None:
        self.secret["order"] = None

    @rule(name=strategies.sampled_from("abc"))
    def goes_or_comes(self, name: str) -> None:
        peer = self.peers[name]
        peer.connected = not peer.connected and self._meets(peer)

    @rule(seconds=strategies.sampled_from([1.0, 60.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def restart(self) -> None:
        """The daemon ends: what it knew is gone, the key is read from the Secret, every session is new."""
        self.using = self.secret["key"]
        for peer in self.peers.values():
            peer.announced = False
            peer.connected = peer.connected and self._meets(peer)

    @rule(name=strategies.sampled_from("abc"))
    def announcement(self, name: str) -> None:
        """It arrives and is put on record; that the peer says so may come later, or never."""
        peer = self.peers[name]
        if peer.connected and self.secret["next"] and peer.pin == self.using:
            peer.following, peer.by, peer.announced = self.secret["next"], peer.pin, True

    @rule(name=strategies.sampled_from("abc"))
    def acknowledgement(self, name: str) -> None:
        peer = self.peers[name]
        if peer.connected and peer.announced:
            self.knows[name] = peer.following

    @rule()
    def step(self) -> None:
        """The daemon decides by the Secret, whose key it uses from the moment at which it reads it."""
        self.swap()
        kept = Kept(self.secret["next"], self.secret["order"], self.secret["until"])
        wanted = self.secret["next"]
        audience = [
            TrustingPeer(name, peer.connected, able=True, knows=bool(wanted) and self.knows.get(name) == wanted)
            for name, peer in self.peers.items()
            if not peer.left_behind
        ]
        match decide(kept, audience, self.now):
            case Make():
                self.number += 1
                within = self.secret["order"].within
                self.secret |= {"next": f"key-{self.number}", "until": self.now + within}
            case Drop():
                self.secret |= {"next": "", "until": None}
            case Promote(left_behind):
                for name in left_behind:
                    # Those that got it, and whose answer did not arrive, are not lost.
                    self.peers[name].left_behind = self.peers[name].following != wanted
                self.secret |= {"key": wanted, "next": "", "until": None, "order": None}
            case _:
                pass

    @rule()
    def swap(self) -> None:
        """The daemon sees the new key in the Secret: sessions begin again with it."""
        if self.using != self.secret["key"]:
            self.restart()

    def _meets(self, peer: Away) -> bool:
        announced = Fingerprint(peer.following) if peer.by == peer.pin else None
        judged = judge(
            ME, Fingerprint(self.using), {ME: Fingerprint(peer.pin)}, chains_to_ca=False, announced=announced
        )
        if isinstance(judged, Mismatch):
            return False
        if judged == Trusted("announcement"):
            peer.pin = self.using
        return True

    @invariant()
    def somebody_is_known_everywhere(self) -> None:
        """One that was not given up accepts the key that the Secret holds: at no point is there a moment with none."""
        for name, peer in self.peers.items():
            accepted = {peer.pin} | ({peer.following} if peer.by == peer.pin else set())
            if not peer.left_behind:
                assert self.secret["key"] in accepted, (name, peer, self.secret)

    @invariant()
    def nobody_believes_an_older_key(self) -> None:
        """Once the present key was seen, the ones before are worth nothing."""
        for peer in self.peers.values():
            if peer.connected and self.using == self.secret["key"] and peer.pin == self.using:
                assert judge(ME, Fingerprint("key--1"), {ME: Fingerprint(peer.pin)}, chains_to_ca=False) == Mismatch(
                    Fingerprint(peer.pin)
                )


Rotating.TestCase.settings = settings(max_examples=150, stateful_step_count=40)


class AnyOrderTests(SynchronousTestCase):
    """The machine above, in orders that hypothesis chooses."""

    def test_either_key_works_at_any_point(self) -> None:
        """Orders, cancellations, absences, deaths between any two steps: the key in use is known to all that got it."""
        Rotating.TestCase("runTest").runTest()
