"""How long an owner's pods are left alone whose returns end on a virtual node again."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.spillover.successors import AWAY, MAX_OWNERS, REMEMBERED, Successors


class SuccessorsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.successors = Successors(300.0)
        self.now = 0.0

    def wait(self, owner: str = "web") -> float:
        """Return until when an owner's pods stay."""
        return self.successors.owners[owner].until - self.now

    def assert_about(self, seconds: float, expected: float) -> None:
        """Compare but for the jitter."""
        self.assertGreaterEqual(seconds, expected * (1 - AWAY.jitter))
        self.assertLessEqual(seconds, expected * (1 + AWAY.jitter))

    def test_a_pod_that_comes_home(self) -> None:
        """Nothing waits for an owner whose evicted pods are followed by pods at home, and it is forgotten."""
        self.successors.evicted("web", self.now)
        self.assertFalse(self.successors.stays("web", self.now))
        self.successors.appeared("other", self.now)
        self.successors.forget(self.now + REMEMBERED + 299)
        self.assertEqual(list(self.successors.owners), ["web"])
        self.successors.forget(self.now + REMEMBERED + 300)
        self.assertEqual(self.successors.owners, {})

    def test_doubles(self) -> None:
        """Each successor that goes away again doubles the time, up to a bound; others of one eviction do not count."""
        for round_ in range(9):
            self.successors.evicted("web", self.now)
            self.successors.appeared("web", self.now)
            self.assert_about(self.wait(), min(AWAY.initial * 2**round_, AWAY.cap))
            until = self.now + self.wait()
            self.successors.appeared("web", self.now + 1)
            self.assertTrue(self.successors.stays("web", until - 1))
            self.assertFalse(self.successors.stays("web", until))
            self.now = until + 300
            self.successors.forget(self.now)

    def test_pods_that_nobody_evicted(self) -> None:
        """A pod that leaves because home is full delays nothing."""
        self.successors.appeared("web", self.now)
        self.assertFalse(self.successors.stays("web", self.now))

    def test_bound(self) -> None:
        """The owner that would be forgotten first makes place."""
        for number in range(MAX_OWNERS + 1):
            self.successors.evicted(f"web-{number}", float(number))
        self.successors.evicted("web-1", float(MAX_OWNERS + 1))
        self.assertEqual(len(self.successors.owners), MAX_OWNERS)
        self.assertEqual({"web-0", "web-1", "web-2"} & self.successors.owners.keys(), {"web-1", "web-2"})
