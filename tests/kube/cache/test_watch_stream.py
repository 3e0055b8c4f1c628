"""How a watch's body ends, and what is said about it."""

from __future__ import annotations

from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseDone, ResponseFailed

from liqod.kube.cache.watch_stream import WatchStream


class EndTests(SynchronousTestCase):
    """The end of one watch."""

    def test_causes(self) -> None:
        """A regular end is none; of a lost connection its cause is named, and of other failures that it broke off."""
        lost = ConnectionLost("reset by peer")
        for error, words in (
            (ResponseDone(), ""),
            (lost, "reset by peer"),
            (ResponseFailed([Failure(lost)]), "reset by peer"),
            (ResponseFailed([Failure(ValueError("a chunk"))]), "broke off in the middle"),
        ):
            stream = WatchStream(Clock(), lambda line: True)
            stream.connectionLost(Failure(error))
            ended = self.successResultOf(stream.closed)
            self.assertEqual(ended is None, not words)
            self.assertIn(words, str(ended))
