"""Tests of liqod.kube.connection.concurrency_limit."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.connection.concurrency_limit import LEAST, PATIENCE, Slots


class Server:
    """Works off one request after the other, each in so many seconds, and is so many seconds away."""

    def __init__(self, clock: Clock, service: float, distance: float) -> None:
        self._clock = clock
        self._service = service
        self._distance = distance
        self._free_at = 0.0

    def ask(self) -> Deferred[None]:
        """Return a Deferred that fires with the answer."""
        now = self._clock.seconds()
        self._free_at = max(self._free_at, now) + self._service
        answer: Deferred[None] = Deferred()
        self._clock.callLater(self._free_at - now + self._distance, answer.callback, None)
        return answer


class SlotsTests(SynchronousTestCase):
    """Turns are given in order, to few at once, to more while they wait."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.slots = Slots(self.clock, 8, 60.0)

    def ask(self, count: int) -> list[Deferred[None]]:
        return [self.slots.acquire() for _ in range(count)]

    def test_a_short_burst_gets_the_few(self) -> None:
        """A caller that does not wait for long does not make the number grow, and turns are given in order."""
        asked = self.ask(LEAST + 2)
        self.assertEqual([one.called for one in asked], [True] * LEAST + [False] * 2)
        self.slots.release()
        self.assertEqual([one.called for one in asked[LEAST:]], [True, False])
        self.slots.release()
        self.clock.advance(10)
        self.assertEqual((self.slots.limit, self.slots.in_use), (LEAST, LEAST))

    def test_waiting_makes_more(self) -> None:
        """One more each time that somebody still waits, up to the most there may be."""
        asked = self.ask(20)
        self.clock.advance(PATIENCE)
        self.assertEqual(sum(one.called for one in asked), LEAST + 1)
        self.clock.pump([PATIENCE] * 20)
        self.assertEqual(sum(one.called for one in asked), 8)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_after_a_quiet_time_it_begins_again(self) -> None:
        """The connections that a burst made are kept for a while, and so is their number."""
        self.ask(20)
        self.clock.pump([PATIENCE] * 20)
        for _ in range(20):
            self.slots.release()
        self.assertEqual((self.slots.in_use, self.slots.limit), (0, 8))
        self.clock.advance(59)
        self.ask(1)
        self.assertEqual(self.slots.limit, 8)
        self.slots.release()
        self.clock.advance(61)
        self.ask(1)
        self.assertEqual(self.slots.limit, LEAST)

    def test_one_that_is_cancelled_takes_no_turn(self) -> None:
        """A place that nobody waits for any more goes to the next."""
        asked = self.ask(LEAST + 2)
        asked[LEAST].cancel()
        self.failureResultOf(asked[LEAST], CancelledError)
        self.slots.release()
        self.assertTrue(asked[LEAST + 1].called)
        self.assertEqual(self.slots.in_use, LEAST)

    def test_a_burst_of_one_flow_delays_another_by_one_turn(self) -> None:
        """One of another flow has the second turn, however many wait already, and nobody's place stays empty."""
        asked = [self.slots.acquire("pods") for _ in range(LEAST + 20)]
        other = self.slots.acquire("config maps")
        self.slots.release()
        self.assertTrue(asked[LEAST].called)
        self.assertFalse(other.called)
        self.slots.release()
        self.assertTrue(other.called)
        self.assertEqual(self.slots.in_use, LEAST)
        self.slots.release()
        self.assertEqual([one.called for one in asked[LEAST : LEAST + 3]], [True, True, False])

    def test_a_busy_server_is_not_asked_for_more_at_once(self) -> None:
        """The number goes back to few while answers take much longer than they can, and grows when they do not."""
        self.slots.answered("pods", 0.01)
        self.ask(200)
        self.clock.pump([PATIENCE] * 20)
        self.assertEqual(self.slots.limit, 8)
        for _ in range(40):
            self.slots.answered("pods", 1.0)
            self.clock.advance(PATIENCE)
        self.assertEqual(self.slots.limit, LEAST)
        for _ in range(8 - LEAST):
            self.slots.release()
        self.assertEqual(self.slots.in_use, LEAST)
        self.clock.advance(10 * PATIENCE)
        self.assertEqual(self.slots.limit, LEAST)
        for _ in range(10):
            self.slots.answered("pods", 0.01)
        self.clock.pump([PATIENCE] * 20)
        self.assertEqual((self.slots.limit, self.slots.in_use), (8, 8))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_that_waits_for_a_busy_server_has_its_turn(self) -> None:
        """However busy the server is: each answer lets the next one in."""
        self.slots.answered("pods", 0.01)
        asked = self.ask(50)
        for _ in range(50):
            self.slots.answered("pods", 3.0)
            self.slots.release()
            self.clock.advance(3.0)
        self.assertTrue(all(one.called for one in asked))
        self.assertEqual(self.slots.in_use, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class PacingTests(SynchronousTestCase):
    """What becomes of a burst in front of a model of a server."""

    MOST = 32

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.slots = Slots(self.clock, self.MOST, 60.0)
        self.waits: dict[str, list[float]] = {"pods": [], "config maps": []}

    async def one(self, server: Server, flow: str) -> None:
        asked = self.clock.seconds()
        await self.slots.acquire(flow)
        begun = self.clock.seconds()
        await server.ask()
        self.slots.answered(flow, self.clock.seconds() - begun)
        self.slots.release()
        self.waits[flow].append(self.clock.seconds() - asked)

    async def again_and_again(self, server: Server) -> None:
        while True:
            await self.one(server, "pods")

    def burst(self, server: Server, workers: int) -> None:
        """Have one of each kind at rest, then a minute of a burst of pods, with a config map every half second."""
        for flow in self.waits:
            Deferred.fromCoroutine(self.one(server, flow))
            self.clock.advance(1)
        for waits in self.waits.values():
            waits.clear()
        for _ in range(workers):
            Deferred.fromCoroutine(self.again_and_again(server))
        for step in range(60_000):
            if step % 500 == 0:
                Deferred.fromCoroutine(self.one(server, "config maps"))
            self.clock.advance(0.001)

    def test_a_busy_server(self) -> None:
        """It works off as much as it can, and what is not of the burst waits far less than if all were under way."""
        self.burst(Server(self.clock, 0.03, 0.002), 24)
        self.assertGreater(len(self.waits["pods"]) + len(self.waits["config maps"]), 0.98 * 60 / 0.03)
        together = 24 * 0.03
        settled = sorted(self.waits["config maps"][4:])
        self.assertLess(settled[len(settled) // 2], 0.3 * together)
        self.assertLess(settled[-1], 0.5 * together)

    def test_a_distant_server(self) -> None:
        """It gets as much at once as there may be."""
        self.burst(Server(self.clock, 0.0005, 0.2), 60)
        self.assertEqual(self.slots.limit, self.MOST)
        self.assertGreater(len(self.waits["pods"]), 0.9 * 58 * self.MOST / 0.2)
