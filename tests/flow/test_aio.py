"""Tests of liqod.flow.aio."""

from __future__ import annotations

import asyncio

from twisted.internet import reactor
from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from liqod.flow.aio import from_coroutine, reactor_is_asyncio


class AioTests(TestCase):
    """asyncio coroutines on the reactor's loop."""

    def setUp(self) -> None:
        if not reactor_is_asyncio(reactor):
            self.skipTest("needs --reactor=asyncio")

    async def test_a_result_comes_back(self) -> None:
        """An asyncio coroutine may await asyncio's things, and its result is a Deferred's."""

        async def add() -> int:
            await asyncio.sleep(0.001)
            assert asyncio.get_running_loop().is_running()
            return 3

        self.assertEqual(await from_coroutine(add()), 3)

    async def test_cancelling_reaches_the_coroutine(self) -> None:
        """Cancelling the Deferred cancels the asyncio coroutine."""
        seen: list[str] = []

        async def linger() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        running = from_coroutine(linger())
        await deferLater(reactor, 0.01)
        running.cancel()
        with self.assertRaises(CancelledError):
            await running
        await deferLater(reactor, 0.01)
        self.assertEqual(seen, ["cancelled"])
