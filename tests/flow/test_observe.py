"""Waiting for values and gates."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Gate, Latest


class LatestWhenTests(SynchronousTestCase):
    """``Latest.when`` waits for a value."""

    def test_present_value(self) -> None:
        """A value that satisfies the predicate already is returned at once."""
        self.assertEqual(self.successResultOf(Latest(3).when(lambda value: value > 2)), 3)

    def test_first_later_value(self) -> None:
        """It fires once, with the first value that satisfies the predicate."""
        latest = Latest(0)
        waiting = latest.when(lambda value: value > 1)
        latest.set(1)
        self.assertNoResult(waiting)
        latest.set(2)
        latest.set(3)
        self.assertEqual(self.successResultOf(waiting), 2)

    def test_cancelled(self) -> None:
        """After a cancellation later values are ignored."""
        latest = Latest(0)
        waiting = latest.when(bool)
        waiting.cancel()
        latest.set(1)
        self.failureResultOf(waiting, CancelledError)


class GateOpenTests(SynchronousTestCase):
    """Opening a gate while its waiters react."""

    def test_cancelled_by_another_waiter(self) -> None:
        """A waiter that an earlier waiter cancels is not fired; the ones after it are."""
        gate = Gate()
        first, second, third = gate.wait(), gate.wait(), gate.wait()

        def cancel(_: None, other: Deferred[None] = second) -> None:
            other.cancel()

        first.addCallback(cancel)
        gate.open()
        self.failureResultOf(second, CancelledError)
        self.assertIsNone(self.successResultOf(third))
