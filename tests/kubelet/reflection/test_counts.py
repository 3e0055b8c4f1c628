"""What reflection counts: how long until a lender has a change, what waits, and what failed."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kubelet.common.readiness import not_ready
from liqod.kubelet.reflection.kinds import CONFIGMAP
from liqod.kubelet.reflection.namespace_pair import AWAITED, FirstServices
from tests.kube.cases import Answer
from tests.kubelet.reflection.sides import Server, Sides
from tests.kubelet.reflection.test_refusals import put, sides

QUOTA = (403, "Forbidden", "exceeded quota")


class FirstServicesTests(SynchronousTestCase):
    """Namespaces whose first pods wait for Services."""

    def setUp(self) -> None:
        """Await one."""
        self.clock = Clock()
        self.settled: Latest[frozenset[str]] = Latest(frozenset())
        self.first = FirstServices(self.clock, self.settled)
        self.first.await_in("shop")

    def test_it_settles(self) -> None:
        """Its pods wait no longer, and nothing is left that would come later."""
        self.first.settle("shop")
        self.assertEqual((self.settled.value, self.clock.getDelayedCalls()), ({"shop"}, []))

    def test_it_does_not_settle(self) -> None:
        """Its pods wait no longer than they may for what the lender refuses."""
        self.clock.advance(AWAITED - 0.1)
        self.assertEqual(self.settled.value, frozenset())
        self.clock.advance(0.2)
        self.assertEqual(self.settled.value, {"shop"})

    def test_it_ends(self) -> None:
        """What is reflected no more is forgotten; what another virtual node reflects stays as it is."""
        self.settled.set(frozenset({"other"}))
        self.first.settle("bank")
        self.first.settle("shop")
        self.first.close()
        self.assertEqual((self.settled.value, self.clock.getDelayedCalls()), ({"other"}, []))


class CountsTests(SynchronousTestCase):
    """Of one kind, between two servers."""

    def lags(self, both: Sides) -> dict[float, int]:
        """Return how many changes arrived within so many seconds."""
        found = both.reflector._counts.lags.get("ConfigMap")
        return {} if found is None else dict(found.cumulative())

    def test_a_change_arrives(self) -> None:
        """Each change is timed once, from the moment it is seen here; an object that is as it should be is not."""
        both = Sides(CONFIGMAP)
        both.pass_time(0.1)
        put(both.home, "a", data={"a": "1"})
        both.pass_time(0.1)
        self.assertEqual(self.lags(both)[0.1], 1)
        put(both.home, "a", data={"a": "2"})
        both.pass_time(0.1)
        self.assertEqual(self.lags(both)[0.1], 2)
        self.assertEqual((self.lags(both)[float("inf")], both.reflector.outstanding), (2, 0))
        # Metadata that does not go along changes nothing at the lender.
        put(both.home, "a", data={"a": "2"}, extra="x")
        both.pass_time(0.1)
        self.assertEqual((self.lags(both)[float("inf")], both.reflector.outstanding), (2, 0))

    def test_a_deletion_arrives(self) -> None:
        """The end of an object is a change like any other, and leaves nothing behind."""
        both = Sides(CONFIGMAP)
        both.pass_time(0.1)
        put(both.home, "a", data={"a": "1"})
        both.pass_time(0.1)
        both.home.remove("a")
        both.pass_time(2)
        self.assertEqual(both.lender.objects, {})
        self.assertEqual((self.lags(both)[float("inf")], both.reflector.outstanding), (2, 0))

    def test_what_was_there_before(self) -> None:
        """When a namespace begins to be reflected its objects are timed from then on; after a restart, which finds
        them at the lender, no time is counted.
        """
        both = Sides(CONFIGMAP)
        put(both.home, "a", data={"a": "1"})
        both.pass_time(0.1)
        self.assertEqual(self.lags(both)[float("inf")], 1)
        both.crash()
        both.begin()
        both.pass_time(0.1)
        self.assertEqual((self.lags(both), both.reflector.outstanding), ({}, 0))

    def test_a_namespace_settles(self) -> None:
        """Once, when the lender has what there was at home; of what it had before nobody waits for changes."""
        both = Sides(CONFIGMAP)
        health = both.reflector._health
        before = health.state.value
        put(both.home, "a", data={"a": "1"})
        health.state.set(not_ready("PeerUnreachable", "no answer"))
        both.pass_time(0.1)
        self.assertEqual(both.settled, [])
        health.state.set(before)
        both.pass_time(0.1)
        put(both.home, "b", data={"b": "1"})
        both.pass_time(0.1)
        self.assertEqual(both.settled, ["shop"])
        both.crash()
        put(both.home, "c", data={"c": "1"})
        both.begin()
        both.reflector._health.state.set(not_ready("PeerUnreachable", "no answer"))
        both.pass_time(0.1)
        self.assertEqual((both.settled, both.reflector.outstanding), (["shop"], 1))

    def test_an_empty_namespace_settles(self) -> None:
        """Where there is nothing at home there is nothing to wait for."""
        both = Sides(CONFIGMAP)
        both.pass_time(0.1)
        self.assertEqual(both.settled, ["shop"])

    def test_an_outage_counts(self) -> None:
        """A change that waits for the lender is outstanding, and its time is the whole of it."""
        both = Sides(CONFIGMAP)
        both.pass_time(0.1)
        health = both.reflector._health
        before = health.state.value
        health.state.set(not_ready("PeerUnreachable", "no answer"))
        put(both.home, "a", data={"a": "1"})
        both.pass_time(0.05)
        both.clock.advance(10)
        both.pass_time(0.05)
        self.assertEqual((both.reflector.outstanding, self.lags(both)), (1, {}))
        health.state.set(before)
        both.pass_time(0.1)
        self.assertEqual(both.reflector.outstanding, 0)
        self.assertEqual([self.lags(both)[bound] for bound in (5.0, 30.0)], [0, 1])

    def test_a_refusal(self) -> None:
        """Each refused write is counted by its reason; the change stays outstanding until it is accepted, or gone."""
        both, lender, _ = sides()
        both.clock.advance(11)
        lender.refusal = QUOTA
        put(both.home, "bad", data={"a": "1"})
        both.pass_time(0.1)
        failures = both.reflector._counts.failures
        self.assertEqual((failures, both.reflector.outstanding), ({("ConfigMap", "RemoteForbidden"): 1}, 1))
        both.home.remove("bad")
        both.pass_time(0.1)
        self.assertEqual(both.reflector.outstanding, 0)

    def test_a_name_that_is_taken(self) -> None:
        """Neither written nor forgotten: it is counted as what it is."""
        both, lender, _ = sides()
        put(lender, "bad", data={"not": "ours"})
        put(both.home, "bad", data={"a": "1"})
        both.pass_time(0.1)
        self.assertEqual(both.reflector._counts.failures, {("ConfigMap", "RemoteNameTaken"): 1})
        self.assertEqual((both.reflector.outstanding, self.lags(both)), (1, {}))

    def test_a_change_while_another_one_is_written(self) -> None:
        """It is a change of its own, whose time begins when it comes."""
        seen: list[float] = []

        class Slow(Server):
            def write(self, method: bytes, name: str, body: dict[str, Any]) -> Answer:
                if not seen:
                    seen.append(self.clock.seconds())
                    put(both.home, "a", data={"a": "2"})
                return super().write(method, name, body)

        both = Sides(CONFIGMAP, Slow)
        both.pass_time(0.1)
        put(both.home, "a", data={"a": "1"})
        both.pass_time(0.2)
        self.assertEqual(both.lender.objects["a"]["data"], {"a": "2"})
        self.assertEqual((self.lags(both)[float("inf")], both.reflector.outstanding), (2, 0))
