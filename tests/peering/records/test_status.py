"""What a ForeignCluster says about its peer, by what is known; and small pure parts of peering."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.control.records import is_peered
from liqod.kube.writing.merge_patch import merge_patch
from liqod.model.objects.meta import Condition, ObjectMeta, find_condition
from liqod.model.records.offer import PeerUnreachable
from liqod.model.records.views import (
    AdvertisementStatus,
    ForeignCluster,
    ForeignClusterSpec,
    ForeignClusterStatus,
    Lent,
)
from liqod.peering.borrowing.virtual_nodes import node_name
from liqod.peering.records.directions import is_on
from liqod.peering.records.status import PeerFacts, describe, was_authenticated
from liqod.peering.session.dial import STAGGER, Race
from liqod.peering.session.liveness import Liveness
from liqod.peering.session.protocol import PeerConnection
from liqod.peering.session.refusal_log import MAX_SOURCES, QUIET, RefusalLog

NOW = "2030-01-01T00:00:00Z"
UP = PeerFacts(connected=True, met=True, pinned=True)
FRESH = ForeignClusterStatus()
json_values: Any = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.sampled_from("abcd"), json_values, max_size=4)


def offer(phase: str, reason: str = "Why") -> AdvertisementStatus:
    return AdvertisementStatus(phase=phase, reason=reason, message="because")


class PhaseTests(SynchronousTestCase):
    """The truth table of phases."""

    def test_each_situation_has_its_phase_and_reason(self) -> None:
        """The furthest step that was reached, or what stands in the way."""
        away = attrs.evolve(UP, connected=False, problem=("ConnectionLost", "it broke"))
        for facts, phase, reason in (
            (PeerFacts(), "Discovered", "NotContacted"),
            (PeerFacts(pinned=True), "Connecting", "Dialing"),
            (PeerFacts(pinned=True, problem=("Unreachable", "no route")), "Connecting", "Unreachable"),
            (PeerFacts(problem=("TrustPending", "compare"), problem_about_key=True), "TrustPending", "TrustPending"),
            (
                PeerFacts(problem=("WaitingForPeerTrust", "wait"), problem_about_key=True),
                "TrustPending",
                "WaitingForPeerTrust",
            ),
            (
                PeerFacts(problem=("ClusterIDRepetition", "impostor"), problem_about_key=True),
                "Refused",
                "ClusterIDRepetition",
            ),
            (PeerFacts(withdrawn=True), "TrustPending", "TrustWithdrawn"),
            (attrs.evolve(away, pinned=False, withdrawn=True), "TrustPending", "TrustWithdrawn"),
            (UP, "Authenticated", "SessionEstablished"),
            (attrs.evolve(UP, offer=offer("Pending", "DecisionPending")), "Offered", "DecisionPending"),
            (attrs.evolve(UP, offer=offer("Refused", "NoRoom")), "Refused", "NoRoom"),
            (attrs.evolve(UP, offer=offer("Accepted")), "Accepted", "Why"),
            (attrs.evolve(UP, offer=offer("Accepted"), node_ready=True), "Ready", "Peered"),
            (attrs.evolve(UP, lent=Lent(verdict="Accepted")), "Ready", "Lending"),
            (attrs.evolve(away, standing=Liveness.SUSPECT), "Suspect", "ConnectionLost"),
            (attrs.evolve(away, standing=Liveness.LOST), "Lost", "OfferExpired"),
        ):
            status = describe(facts, FRESH, NOW)
            self.assertEqual((status.phase, status.reason), (phase, reason), facts)
            self.assertTrue(status.message)

    def test_a_short_break_shows_nothing(self) -> None:
        """Within the grace after a break the phase stays what it was."""
        before = describe(attrs.evolve(UP, offer=offer("Accepted"), node_ready=True), FRESH, NOW)
        facts = attrs.evolve(UP, connected=False, offer=offer("Accepted"), node_ready=True, problem=("X", "y"))
        after = describe(facts, before, NOW)
        self.assertEqual((after.phase, after.reason, after.message), (before.phase, before.reason, before.message))

    def test_equal_facts_give_an_equal_status(self) -> None:
        """However often it is looked at, and whenever: nothing to write."""
        facts = attrs.evolve(UP, offer=offer("Accepted"), lent=Lent(verdict="Refused", reason="NoRoom"))
        first = describe(facts, FRESH, NOW)
        self.assertEqual(describe(facts, first, "2031-01-01T00:00:00Z"), first)

    def test_a_missing_offer_is_not_its_end(self) -> None:
        """Without an offer it is unknown whether it is accepted while there is a virtual node, and whether the networks
        are needed; without a node, or with an offer that ended, it is known.
        """
        table: tuple[tuple[AdvertisementStatus | None, bool, str, str, bool | None], ...] = (
            (None, False, "False", "NoOffer", False),
            (None, True, "Unknown", "AdvertisementMissing", None),
            (offer("", ""), False, "False", "NoOffer", False),
            (offer("", ""), True, "Unknown", "AdvertisementMissing", None),
            (offer("Pending", "DecisionPending"), False, "False", "DecisionPending", False),
            (offer("Pending", "DecisionPending"), True, "Unknown", "DecisionPending", None),
            (offer("Accepted", "Accepted"), True, "True", "Accepted", True),
            (offer("Expired", "OfferExpired"), True, "False", "OfferExpired", None),
            (offer("Refused", "RefusedByUser"), True, "False", "RefusedByUser", False),
            (offer("Withdrawn", "Withdrawn"), True, "False", "Withdrawn", False),
        )
        for received, has_node, status, reason, peered in table:
            for connected in (True, False):
                facts = attrs.evolve(UP, connected=connected, offer=received, has_node=has_node, lends=False)
                found = describe(facts, FRESH, NOW)
                condition = find_condition(found.conditions, "Accepted")
                self.assertEqual((condition.status, condition.reason) if condition else (), (status, reason), facts)
                self.assertIs(is_peered(ForeignCluster(metadata=ObjectMeta(name="milan"), status=found)), peered, facts)

    def test_conditions_of_others_stay(self) -> None:
        """What other parts of the daemon wrote is kept."""
        other = Condition(type="Network", status="True", reason="Up", last_transition_time=NOW)
        status = describe(UP, ForeignClusterStatus(conditions=[other]), NOW)
        self.assertEqual(find_condition(status.conditions, "Network"), other)

    def test_a_broken_session_does_not_undo_what_was_proven(self) -> None:
        """Authenticated stays True while the peer is away."""
        before = describe(UP, FRESH, NOW)
        after = describe(attrs.evolve(UP, connected=False, standing=Liveness.LOST), before, NOW)
        condition = find_condition(after.conditions, "Authenticated")
        self.assertEqual(condition.status if condition else "", "True")

    def test_what_proves_a_session(self) -> None:
        """The condition, or on a pinned record a claim of the ID by another key, which may have replaced it."""
        table = [
            ("True", "KeyPinned", True, True),
            ("True", "KeyPinned", False, True),
            ("False", "ClusterIDRepetition", True, True),
            ("False", "ClusterIDRepetition", False, False),
            ("False", "TrustWithdrawn", True, False),
            ("Unknown", "NotContacted", True, False),
        ]
        for status, reason, pinned, proven in table:
            condition = Condition(type="Authenticated", status=status, reason=reason)
            spec = ForeignClusterSpec(cluster_id="rome", fingerprint="sha256:key" if pinned else "")
            record = ForeignCluster(spec=spec, status=ForeignClusterStatus(conditions=[condition]))
            self.assertEqual(was_authenticated(record), proven, (status, reason, pinned))
        self.assertFalse(was_authenticated(ForeignCluster()))


class DiffTests(SynchronousTestCase):
    """Merge patches."""

    @given(json_objects, json_objects)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_a_patch_leads_from_one_to_the_other(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Applying the patch to the old value gives the new one, and equal values need none."""
        self.assertEqual(applied(before, merge_patch(before, after)), after)
        self.assertEqual(merge_patch(after, after), {})


def applied(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), value)
    return result


class NameTests(SynchronousTestCase):
    """Names of virtual nodes, switches."""

    def test_a_taken_name_gets_a_short_id(self) -> None:
        """The plain name where it is free, the same with a hash where not, always a DNS label."""
        self.assertEqual(node_name("Milan", "id-1", set()), "liqo-milan")
        self.assertRegex(node_name("milan", "id-1", {"liqo-milan"}), r"^liqo-milan-[0-9a-f]{6}$")
        self.assertNotEqual(node_name("m", "id-1", {"liqo-m"}), node_name("m", "id-2", {"liqo-m"}))
        self.assertRegex(node_name("x" * 99, "id", {"liqo-" + "x" * 58}), r"^[a-z0-9-]{1,63}$")
        self.assertRegex(node_name("***", "id", set()), r"^liqo-[0-9a-f]{6}$")

    def test_auto_follows_the_settings(self) -> None:
        """The record decides, Auto leaves it to the settings, and Auto there means yes."""
        for switch, default, on in (
            ("Yes", "No", True),
            ("No", "Yes", False),
            ("Auto", "No", False),
            ("Auto", "Auto", True),
        ):
            self.assertEqual(is_on(switch, default), on)  # type: ignore[arg-type]


class RefusalsTests(SynchronousTestCase):
    """Counting and logging of refusals."""

    def test_memory_and_log_are_bounded(self) -> None:
        """Every refusal counts; sources beyond the bound are forgotten, the oldest first."""
        clock = Clock()
        refusals = RefusalLog(clock)
        for number in range(MAX_SOURCES + 10):
            refusals.record("Bad", f"10.0.{number // 256}.{number % 256}", "why")
        clock.advance(QUIET)
        refusals.record("Bad", "10.0.4.1", "again")
        self.assertEqual(refusals.counts["Bad"], MAX_SOURCES + 11)
        self.assertLessEqual(len(refusals._logged), MAX_SOURCES)

    def test_another_port_is_no_other_source(self) -> None:
        """Each connection comes from another port, and a host may have all addresses of a /64: logged once."""
        for sources in (
            ("192.0.2.7:40001", "192.0.2.7:40002", "192.0.2.7"),
            ("[2001:db8::7]:40001", "[2001:db8::7]:40002", "[2001:db8::8]:40001", "2001:db8::7"),
        ):
            refusals = RefusalLog(Clock())
            with capturedLogs() as events:
                for source in sources:
                    refusals.record("BadCertificate", source, "why")
            self.assertEqual([one["source"] for one in events], [sources[0]])


class RaceTests(SynchronousTestCase):
    """Attempts at several addresses."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.attempts: dict[str, Deferred[PeerConnection]] = {}

    def race(self, *addresses: str) -> Race:
        def attempt(address: str) -> Deferred[PeerConnection]:
            self.attempts[address] = Deferred()
            return self.attempts[address]

        return Race(self.clock, addresses, attempt)

    def test_a_slow_address_is_not_waited_for(self) -> None:
        """The next one begins after a quarter of a second; the first that answers ends the others."""
        race = self.race("a:1", "b:1", "c:1")
        self.assertEqual(list(self.attempts), ["a:1"])
        self.clock.advance(STAGGER)
        self.assertEqual(list(self.attempts), ["a:1", "b:1"])
        winner: Any = object()
        cancelled: list[object] = []
        self.attempts["a:1"].addErrback(cancelled.append)
        self.attempts["b:1"].callback(winner)
        self.assertIs(self.successResultOf(race.result), winner)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.clock.advance(10)
        self.assertNotIn("c:1", self.attempts)

    def test_a_refused_address_is_followed_by_the_next_at_once(self) -> None:
        """And when all failed, the sentence tells about each of them."""
        race = self.race("a:1", "b:1")
        self.attempts["a:1"].errback(OSError("refused"))
        self.assertIn("b:1", self.attempts)
        self.attempts["b:1"].errback(OSError("no route"))
        failure = self.failureResultOf(race.result, PeerUnreachable)
        self.assertIn("cannot connect to a:1: refused", str(failure.value))
        self.assertIn("cannot connect to b:1: no route", str(failure.value))

    def test_addresses_of_the_link(self) -> None:
        """They are named where the peer has no others."""
        for addresses, named in (
            (("[fe80::1%2]:1", "a:1"), "cannot connect to a:1: refused"),
            (("[fe80::1%2]:1",), "cannot connect to [fe80::1%2]:1: refused"),
        ):
            race = self.race(*addresses)
            for one in addresses:
                self.attempts[one].errback(OSError("refused"))
            self.assertEqual(str(self.failureResultOf(race.result, PeerUnreachable).value), named)

    def test_cancelling_ends_everything(self) -> None:
        """No timer and no attempt is left."""
        race = self.race("a:1", "b:1")
        race.result.addErrback(lambda _: None)
        race.result.cancel()
        self.assertEqual(self.clock.getDelayedCalls(), [])
