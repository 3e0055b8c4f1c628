"""Tests of liqod.kube.version."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import KubeError, Undecodable, Unreachable
from liqod.kube.version import ServerVersion


class ServerVersionTests(SynchronousTestCase):
    """The server's version is asked once, and again on demand."""

    def setUp(self) -> None:
        self.asked: list[Deferred[bytes]] = []
        self.version = ServerVersion(self.fetch)

    async def fetch(self) -> bytes:
        self.asked.append(Deferred())
        return await self.asked[-1]

    def get(self) -> Deferred[str]:
        return Deferred.fromCoroutine(self.version.get())

    def test_one_request(self) -> None:
        """All who ask at once, and later, share one request."""
        answers = [self.get(), self.get()]
        self.asked[0].callback(b'{"gitVersion": "v1.35.0", "platform": "linux/amd64"}')
        answers.append(self.get())
        self.assertEqual([self.successResultOf(answer) for answer in answers], ["v1.35.0"] * 3)
        self.assertEqual((len(self.asked), self.version.known.value), (1, "v1.35.0"))

    def test_upgrade(self) -> None:
        """Who asks again gets the version as it is then, and it is the known one; without an answer that stays."""
        versions: list[str] = []
        self.version.known.subscribe(versions.append)
        self.get()
        self.asked[0].callback(b'{"gitVersion": "v1.35.0"}')
        again = Deferred.fromCoroutine(self.version.ask())
        self.asked[1].callback(b'{"gitVersion": "v1.36.0"}')
        self.assertEqual(self.successResultOf(again), "v1.36.0")
        failed = Deferred.fromCoroutine(self.version.ask())
        self.asked[2].errback(Unreachable("no answer"))
        self.failureResultOf(failed, KubeError)
        self.assertEqual(self.successResultOf(self.get()), "v1.36.0")
        self.assertEqual(versions, ["v1.35.0", "v1.36.0"])

    def test_failures_are_not_remembered(self) -> None:
        """Who asks learns of a failure; the next to ask asks the server again."""
        first = self.get()
        self.asked[0].errback(Unreachable("no answer"))
        self.failureResultOf(first, KubeError)
        second = self.get()
        self.asked[1].callback(b"<html>")
        self.failureResultOf(second, Undecodable)
        third = self.get()
        self.asked[2].callback(b'{"gitVersion": "v1"}')
        self.assertEqual(self.successResultOf(third), "v1")
