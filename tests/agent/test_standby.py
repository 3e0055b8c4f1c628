"""A second daemon on a sandbox cluster: what it asks for, what its features begin with, and what goes wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock, deferLater

from liqod.agent import service, standby
from liqod.agent.metrics.daemon import Numbers
from liqod.agent.service import Agent
from liqod.agent.standby import Standby
from liqod.agent.state import StandingBy
from liqod.kube.connection.kept_caches import KeptCaches
from liqod.kube.resources import LEASES, NAMESPACES
from tests.agent.test_service import REACTOR, DaemonCase
from tests.kubelet.test_standby import READS, Recording

OF_A_LEAD = {"mutatingwebhookconfigurations.admissionregistration.k8s.io"}
"""What a leader alone watches."""
RARELY = {"LIQOD_LEADER__LEASE_DURATION": "30", "LIQOD_LEADER__RETRY_INTERVAL": "15"}
"""Settings by which a candidate looks rarely for the lease."""


class StandbyTests(DaemonCase):
    """Two daemons of one cluster."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(service, "Client", Recording)

    async def two(self, **environ: str) -> tuple[Agent, Agent]:
        """Return one that leads, and one that stands by and has complete caches."""
        first = self.start(None, **environ)
        await first.ready.wait()
        second = self.start(None, **environ)
        await self.until(lambda: isinstance(second.state.value, StandingBy))
        await self.until(lambda: all(informer.synced for informer in second.caches))
        return first, second

    def lists(self, agent: Agent) -> list[str]:
        assert isinstance(agent.client, Recording)
        return agent.client.lists

    async def test_takeover(self) -> None:
        """It only reads while it stands by; when it leads its features have what they need without a list."""
        first, second = await self.two()
        assert first.features is not None and second.client is not None
        known = {informer.watched for informer in second.caches}
        self.assertLessEqual({informer.watched for informer in first.features.informers}, known)
        before, lists = second.client.requests.copy(), list(self.lists(second))
        await self.client.create(NAMESPACES, {"metadata": {"name": "shop", "labels": {"liqo.io/enabled": "true"}}})
        await deferLater(REACTOR, 1.0)
        self.assertEqual({verb for verb, _ in second.client.requests - before} - READS, set())
        self.assertEqual(self.lists(second), lists)
        await first.stopService()
        await second.ready.wait()
        assert second.features is not None
        self.assertEqual(set(self.lists(second)[len(lists) :]) - OF_A_LEAD, set())
        self.assertEqual([one.metadata.name for one in second.features.kubelets.enabled.items()], ["shop"])
        self.assertEqual(second.missing(), [])

    async def test_a_lead_that_is_let_go_is_taken_at_once(self) -> None:
        """The watch of the lease shows it: nobody waits for the next look."""
        first, second = await self.two(**RARELY)
        await first.stopService()
        await self.until(lambda: second.features is not None, 5.0)
        await second.ready.wait()

    async def test_a_lost_lead(self) -> None:
        """Who loses the lead writes nothing while it stands by, and leads again without lists."""
        agent = self.start()
        await agent.ready.wait()
        assert agent.client is not None
        lists = list(self.lists(agent))
        thief = {"spec": {"holderIdentity": "somebody else", "leaseDurationSeconds": 3}}
        await self.client.patch(LEASES, "liqod", thief, "liqo-system")
        await self.until(lambda: isinstance(agent.state.value, StandingBy))
        await self.until(lambda: agent.caches and all(informer.synced for informer in agent.caches))
        before = agent.client.requests.copy()
        await deferLater(REACTOR, 0.5)
        self.assertIsInstance(agent.state.value, StandingBy)
        self.assertEqual({verb for verb, _ in agent.client.requests - before} - READS, set())
        await self.until(lambda: agent.status == "leading")
        new = set(self.lists(agent)[len(lists) :])
        self.assertEqual(new - OF_A_LEAD, {"leases.coordination.k8s.io"}, "what a standby alone watches is listed")

    async def test_without(self) -> None:
        """Where the settings say so nothing is watched, and it takes over all the same."""
        first = self.start(LIQOD_LEADER__WARM_STANDBY="false")
        await first.ready.wait()
        second = self.start(LIQOD_LEADER__WARM_STANDBY="false")
        await self.until(lambda: isinstance(second.state.value, StandingBy))
        await deferLater(REACTOR, 0.3)
        self.assertEqual((second.caches, self.lists(second)), ([], []))
        await first.stopService()
        await second.ready.wait()
        self.assertNotEqual(self.lists(second), [])

    async def test_what_cannot_be_watched(self) -> None:
        """A failure is logged, and costs nothing but the time of the lists."""

        def broken(*_: Any) -> None:
            raise ZeroDivisionError

        first = self.start()
        await first.ready.wait()
        self.patch(standby, "Features", broken)
        second = self.start()
        await self.until(lambda: isinstance(second.state.value, StandingBy))
        await self.until(lambda: self.flushLoggedErrors(ZeroDivisionError))
        self.assertEqual(second.caches, [])
        await first.stopService()
        await second.ready.wait()

    async def test_a_stop_while_it_takes_over(self) -> None:
        """What it served while it stood by ends all the same, and is waited for."""
        clock, ending = Clock(), Deferred[None]()
        client: Any = SimpleNamespace(kept=KeptCaches())
        one = Standby(client, cast(Any, clock), cast(Any, None))
        one._services = cast(Any, SimpleNamespace(stopService=lambda: ending))
        taking = Deferred.fromCoroutine(one.hand_over())
        taking.cancel()
        self.failureResultOf(taking, CancelledError)
        closing = Deferred.fromCoroutine(one.close())
        self.assertNoResult(closing)
        ending.callback(None)
        self.successResultOf(closing)

    async def test_an_end_that_takes_long(self) -> None:
        """The lead begins without it, and it is not broken off."""
        clock, ending = Clock(), Deferred[None]()
        client: Any = SimpleNamespace(kept=KeptCaches())
        one = Standby(client, cast(Any, clock), cast(Any, None))
        one._services = cast(Any, SimpleNamespace(stopService=lambda: ending))
        taking = Deferred.fromCoroutine(one.hand_over())
        clock.advance(standby.STOP_DEADLINE + 0.1)
        self.successResultOf(taking)
        self.assertFalse(ending.called)

    async def test_what_is_kept_is_kept_for_a_while(self) -> None:
        """When all caches have begun nothing is held a second time."""
        self.patch(standby, "KEPT_FOR", 0.5)
        first, second = await self.two()
        assert second.client is not None
        self.assertEqual(len(second.client.kept), 0)
        await first.stopService()
        await self.until(lambda: len(second.client.kept) if second.client is not None else 0)
        await second.ready.wait()
        await self.until(lambda: not len(second.client.kept) if second.client is not None else False)

    def test_stale_caches(self) -> None:
        """Those of a standby count as well."""
        caches = [SimpleNamespace(resource="pods", error=error) for error in ("cut off", "", "cut off")]
        daemon: Any = SimpleNamespace(features=None, caches=caches)
        self.assertEqual(list(Numbers(daemon).stale()), [(("pods",), 2.0)])
