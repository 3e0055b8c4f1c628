"""What one peer takes: counted, held once it had its share, and shown; the others do not wait for it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.share import Share
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import find_condition
from liqod.model.records.views import ForeignClusterStatus
from liqod.peering.records.status import LIMITS, PeerFacts, describe
from liqod.peering.session.refusal_log import RefusalLog
from liqod.peering.session.usage import (
    LONGEST,
    MOST_REASONS,
    OTHER,
    QUIET,
    SHARES,
    PeerUsage,
    Usages,
    rounded,
)
from tests.peering.clusters import RecordedAudit

NOW = "2030-01-01T00:00:00Z"
ROME, OSLO = ClusterID("rome"), ClusterID("oslo")


class ShareTests(SynchronousTestCase):
    """What may be taken of one thing."""

    @given(st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 10.0)), max_size=60))
    def test_no_more_than_its_share(self, taken: list[tuple[float, float]]) -> None:
        """What takes only when it need not wait has, in any time, no more than the burst, one piece, and the rate."""
        share, now, total = Share(2.0, 10.0), 0.0, 0.0
        for amount, pause in taken:
            now += pause + share.wait(now)
            self.assertAlmostEqual(share.wait(now), 0.0, places=6)
            share.take(amount, now)
            total += amount
            self.assertLessEqual(total, 10.0 + 50.0 + 2.0 * now + 1e-6)

    def test_who_takes_little_never_waits(self) -> None:
        """However long."""
        share = Share(2.0, 10.0)
        for second in range(1000):
            share.take(2.0, float(second))
            self.assertEqual(share.wait(float(second)), 0.0)


class PeerUsageTests(SynchronousTestCase):
    """One peer."""

    def setUp(self) -> None:
        self.changes = 0
        self.usage = PeerUsage(changed=self.changed)

    def changed(self) -> None:
        self.changes += 1

    def test_each_share(self) -> None:
        """It waits for what it had its share of, for a bounded time, and that is counted by what it was."""
        for what, take, relay in (
            ("ReactorTime", lambda usage, amount: usage.worked(amount, 0.0), False),
            ("RelayRequests", lambda usage, amount: [usage.requested(0.0) for _ in range(int(amount))], True),
            ("RelayBytes", lambda usage, amount: usage.passed_on(int(amount), 0.0), True),
        ):
            usage, (rate, burst) = PeerUsage(), SHARES[what]
            take(usage, burst)
            self.assertEqual(usage.hold(0.0, relay=relay), 0.0, what)
            take(usage, rate)
            self.assertAlmostEqual(usage.hold(0.0, relay=relay), 1.0, places=3, msg=what)
            take(usage, 100 * rate)
            self.assertEqual(usage.hold(0.0, relay=relay), LONGEST, what)
            self.assertEqual(dict(usage.held), {what: 2})

    def test_a_session_does_not_wait_for_the_relay(self) -> None:
        """Only the event loop's time is common to both."""
        for _ in range(20_000):
            self.usage.requested(0.0)
        self.assertEqual(self.usage.hold(0.0), 0.0)
        self.assertGreater(self.usage.hold(0.0, relay=True), 0.0)

    def test_a_flood_is_shown_by_few_changes(self) -> None:
        """What is shown changes with each power of two, and again when it was quiet for long."""
        for number in range(1000):
            self.usage.refuse("RelayDenied", number / 1000)
        self.assertEqual(self.changes, 10)
        self.assertEqual(self.usage.shown(), ("refused 512 times or more: RelayDenied", 0.999 + QUIET))
        self.usage.refuse("RelayDenied", 1.0 + QUIET)
        self.assertEqual(self.changes, 11)

    def test_held_writes(self) -> None:
        """That its writes are refused for a time is shown like the rest."""
        self.usage.held_writes(5.0)
        self.assertEqual(self.usage.shown(), ("held back once: WrittenBytes", 5.0 + QUIET))

    def test_reasons_are_bounded(self) -> None:
        """So many are counted by themselves, the others together: each would be a series of the metrics."""
        for number in range(3 * MOST_REASONS):
            self.usage.refuse(f"Reason{number}", 0.0)
        self.assertEqual(len(self.usage.refused), MOST_REASONS + 1)
        self.assertEqual(self.usage.refused[OTHER], 2 * MOST_REASONS)

    def test_rounded(self) -> None:
        """To powers of two."""
        self.assertEqual([rounded(n) for n in (0, 1, 2, 3, 4, 1023, 1024)], [0, 1, 2, 2, 4, 512, 1024])


class AttributionTests(SynchronousTestCase):
    """Whose a refusal is."""

    def setUp(self) -> None:
        self.changed: list[ClusterID] = []
        self.usages = Usages(self.changed.append)
        self.refusals = RefusalLog(Clock(), usages=self.usages)

    def test_of_who_proved_its_key(self) -> None:
        """That of a cluster that is named by its ID, or is said to have proved it."""
        self.refusals.record("RelayDenied", "rome", "why")
        self.refusals.record("BadField", "192.0.2.1", "why", peer="rome", address="192.0.2.1", proven="rome")
        usage = self.usages.get(ROME)
        assert usage is not None
        self.assertEqual(dict(usage.refused), {"RelayDenied": 1, "BadField": 1})
        self.assertEqual(self.changed, [ROME, ROME])

    def test_who_is_held_back(self) -> None:
        """It is a security event as often as the status changes with it: a flood writes few."""
        audit = RecordedAudit()
        usage = Usages(audit=audit).of(ROME)
        usage.worked(1000.0, 0.0)
        for _ in range(9):
            self.assertGreater(usage.hold(0.0), 0.0)
        usage.held_writes(0.0)
        found = [(one.type, one.reason, one.peer) for one in audit.events]
        self.assertEqual(found, [("RateLimited", "ReactorTime", "rome")] * 4)

    def test_of_who_only_claims_it(self) -> None:
        """A stranger that names a peer leaves no mark on that one; nor do networks and restarts."""
        self.refusals.record("HandshakeFailed", "192.0.2.1", "why", peer="rome", address="192.0.2.1")
        self.refusals.record("TooManyFromAddress", "192.0.2.1:40000", "why")
        self.refusals.record("Unreachable", "rome", "why")
        self.refusals.record("Starting", "192.0.2.1", "why", peer="rome", address="192.0.2.1", proven="rome")
        self.assertEqual(self.usages.items(), [])

    def test_each_by_itself(self) -> None:
        """What one peer does is not seen at another, and ends with its record."""
        self.refusals.record("RelayDenied", "rome", "why")
        self.usages.of(OSLO).worked(100.0, 0.0)
        self.assertEqual(self.usages.of(ROME).hold(0.0), 0.0)
        self.usages.forget(ROME)
        self.assertEqual([peer for peer, _ in self.usages.items()], [OSLO])


class StatusTests(SynchronousTestCase):
    """The condition of the ForeignCluster."""

    def condition(self, limited: tuple[str, bool] | None, before: ForeignClusterStatus) -> tuple[Any, Any]:
        after = describe(PeerFacts(connected=True, pinned=True, limited=limited), before, NOW)
        found = find_condition(after.conditions, LIMITS)
        return after, None if found is None else (found.status, found.reason, found.message)

    def test_only_once_there_was_something(self) -> None:
        """It is absent before, says what was, then that it is over, and is gone with the daemon that counted."""
        status, found = self.condition(None, ForeignClusterStatus())
        self.assertIsNone(found)
        status, found = self.condition(("refused once: RelayDenied", True), status)
        self.assertEqual(found[:2], ("False", "Limited"))
        self.assertIn("refused once: RelayDenied", found[2])
        status, found = self.condition(("refused once: RelayDenied", False), status)
        self.assertEqual(found[:2], ("True", "NotLimited"))
        status, found = self.condition(None, status)
        self.assertIsNone(found)
