"""Probe bursts over this host's loopback: what is answered is timed, what is too large is lost and no failure."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from liqod.fabric.agent.probing.probe import Prober
from liqod.fabric.agent.probing.probe_burst import measure_sizes

REACTOR: Any = reactor
HERE = "127.0.0.1"


class ProbeBurstTests(TestCase):
    """A burst, and a prober that answers as a gateway does."""

    timeout = 20

    async def test_every_size_that_passes_is_answered(self) -> None:
        """Every size that the path takes is answered as often as it was sent, each larger one never."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((HERE, 0))
            port = sock.getsockname()[1]
        gateway = Prober(REACTOR)
        gateway.bind(REACTOR, HERE, port)
        self.addCleanup(gateway.close)
        found = await measure_sizes(
            REACTOR, HERE, HERE, port, (64, 1400, 9000, 66000), count=2, interval=0, timeout=0.3
        )
        self.assertEqual(
            [(one.size, one.sent, len(one.times)) for one in found[:3]], [(64, 2, 2), (1400, 2, 2), (9000, 2, 2)]
        )
        self.assertEqual((found[3].times, found[3].loss), ([], 1.0))
        self.assertTrue(all(0 < one < 1 for part in found for one in part.times))

    async def test_without_an_answer_all_is_lost(self) -> None:
        """Where nobody answers, all is lost."""
        found = await measure_sizes(REACTOR, HERE, HERE, 9, (64,), count=2, interval=0, timeout=0.1)
        self.assertEqual(found[0].loss, 1.0)

    async def test_a_source_of_another_host_is_refused(self) -> None:
        """It is said at once that packets cannot be sent from there."""
        try:
            await measure_sizes(REACTOR, "192.0.2.1", HERE, 9, (64,), count=1)
        except OSError as error:
            self.assertIn("assign", str(error))
        else:
            self.fail("it was sent")
