"""How much unknown callers of the API of virtual nodes may cost the home cluster and this daemon."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.reviews import TokenReview, UserInfo
from liqod.kubelet.api.callers import KEPT, MAX_TOKEN, REVIEWS, Callers


class Reviews:
    """A home API server that knows no token, and answers when the test says."""

    def __init__(self) -> None:
        self.open: list[Deferred[Any]] = []
        self.asked = 0

    def create(self, *_: Any, **__: Any) -> Deferred[Any]:
        """Begin a review."""
        self.asked += 1
        self.open.append(Deferred())
        return self.open[-1]

    def answer(self) -> None:
        """End the oldest review."""
        self.open.pop(0).callback(TokenReview())


class CallersTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.home = Reviews()
        client: Any = self.home
        self.callers = Callers(client, Clock())

    def call(self, token: str) -> Deferred[UserInfo | None]:
        return Deferred.fromCoroutine(self.callers.by_token(token))

    def test_a_flood_of_tokens(self) -> None:
        """Few tokens are reviewed at a time, the others wait; and only so many results are remembered."""
        calls = [self.call(f"bad-{number}") for number in range(KEPT + 50)]
        for _ in calls:
            self.assertLessEqual(len(self.home.open), REVIEWS)
            self.home.answer()
        self.assertEqual([self.successResultOf(one) for one in calls], [None] * len(calls))
        self.assertEqual(self.home.asked, len(calls))
        self.assertEqual(len(self.callers._users), KEPT)

    def test_a_long_token(self) -> None:
        """A token longer than any is no token, and nobody is asked about it."""
        self.assertIsNone(self.successResultOf(self.call("x" * (MAX_TOKEN + 1))))
        self.assertEqual(self.home.asked, 0)
