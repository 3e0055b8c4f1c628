"""The exchange of the tunnel's key: announced, taken, acknowledged, exchanged; in the cluster's API and on a host."""

from __future__ import annotations

from typing import Any

import attrs
from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.demo.access import client_config
from liqod.fabric.agent.kernel.host import apply, observe
from liqod.fabric.agent.kernel.model import DesiredKernel
from liqod.fabric.agent.kernel.plan import plan
from liqod.fabric.agent.key import TunnelKeys, from_private, generate, load_or_create, plan_next
from liqod.fabric.agent.keyring import CONFIRM_TIMEOUT, TAKEOVER_TIMEOUT, KeyRing, all_accept, key_step
from liqod.fabric.state.validation import check_side
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import NAMESPACES
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.network import NetworkConfig, NetworkConfigStatus, Subnets, TunnelSide
from liqod.model.records.offer import Refusal
from tests.fabric.agent.test_host import DESIRED
from tests.fabric.fake_kernel import FakeKernel, public_key

REACTOR: Any = reactor
NOW = 1_800_000_000.0
NEXT = public_key("next")


def config(name: str, phase: str, known: str) -> NetworkConfig:
    """Return what a peer has said about our next key."""
    status = NetworkConfigStatus(phase=phase, ack=Subnets(pod_cidrs=["10.71.0.0/16"], known_key=known))
    return NetworkConfig(metadata=ObjectMeta(name=name), status=status)


class NextKeyTests(SynchronousTestCase):
    """When, and what a tunnel does meanwhile."""

    def test_it_is_taken_when_every_agreed_peer_says_so(self) -> None:
        """One that says nothing, or another key, holds it up; one with which nothing is agreed does not."""
        key = "k"
        self.assertTrue(all_accept([], key))
        self.assertTrue(all_accept([config("a", "Agreed", key), config("b", "Pending", "")], key))
        self.assertFalse(all_accept([config("a", "Agreed", key), config("b", "Agreed", "")], key))
        self.assertFalse(all_accept([config("a", "Agreed", "other")], key))

    def test_a_next_key_is_taken_without_any_network(self) -> None:
        """Traffic stays with the present key until the peer has the next; then networks move, and the old goes."""
        kernel = FakeKernel()

        async def converge(desired: DesiredKernel) -> int:
            steps = plan(desired, await observe(kernel, "liqod"), NOW)
            await apply(kernel, steps)
            return len(steps)

        def run(desired: DesiredKernel) -> int:
            return self.successResultOf(Deferred.fromCoroutine(converge(desired)))

        run(DESIRED)
        first = DESIRED.links[0]
        before = kernel.links["liqod"].peers[first.public_key]["allowed"]
        both = attrs.evolve(DESIRED, links=(attrs.evolve(first, next_key=NEXT), *DESIRED.links[1:]))
        self.assertEqual(run(both), 1)
        self.assertEqual(run(both), 0)
        peers = kernel.links["liqod"].peers
        self.assertEqual((peers[first.public_key]["allowed"], peers[NEXT]["allowed"]), (before, []))
        after = attrs.evolve(DESIRED, links=(attrs.evolve(first, public_key=NEXT), *DESIRED.links[1:]))
        run(after)
        self.assertEqual(run(after), 0)
        self.assertEqual(kernel.links["liqod"].peers[NEXT]["allowed"], before)
        self.assertNotIn(first.public_key, kernel.links["liqod"].peers)

    def test_a_next_key_of_somebody_else_is_refused(self) -> None:
        """Ours, another peer's and nonsense are no next keys; a fit one is passed on."""
        ours, other, fit = generate().public, generate().public, generate().public
        side = TunnelSide(pod_cidrs=["10.1.0.0/16"], public_key=generate().public, mtu=1420)

        def judge(key: str) -> str:
            try:
                return check_side(_with_next(side, key), ours, {other}).next_key
            except Refusal as refusal:
                return refusal.reason

        self.assertEqual([judge(key) for key in (ours, other, "A" * 44, fit)], ["KeyInUse", "KeyInUse", "BadKey", fit])

    def test_keys_show_no_secret(self) -> None:
        """Neither a key nor the pair of keys shows its private half."""
        key = generate()
        self.assertNotIn(key.private, repr(TunnelKeys(key, key)))
        self.assertEqual(from_private(key.private), key)


def _with_next(side: TunnelSide, key: str) -> TunnelSide:
    return TunnelSide(pod_cidrs=side.pod_cidrs, public_key=side.public_key, mtu=side.mtu, next_key=key)


class TakeoverTests(SynchronousTestCase):
    """What a gateway does about the key that an earlier one has, whose host may still live."""

    def test_the_table(self) -> None:
        """The same host keeps the key; another one has the next, when all peers accept it and however long that takes,
        for a peer that does not know it yet keeps its tunnel by the present one."""
        one, two = generate(), generate()
        for before, following, accepted, late, expected in (
            ("a", None, True, True, "keep"),
            ("", None, True, False, "note"),
            ("b", None, False, False, "begin"),
            ("b", None, True, True, "begin"),
            ("b", two, False, False, "keep"),
            ("b", two, False, True, "exchange"),
            ("b", two, True, False, "exchange"),
            ("a", two, False, False, "keep"),
            ("a", two, False, True, "exchange"),
            ("a", two, True, False, "exchange"),
            ("", two, False, True, "exchange"),
        ):
            keys = TunnelKeys(one, following, before)
            found = key_step(keys, "a", accepted=accepted, late=late)
            self.assertEqual(found, expected, (before, following is not None, accepted, late))
        for before in ("", "a"):
            self.assertEqual(key_step(TunnelKeys(one, None, before), "", accepted=True, late=True), "keep")


class KeyRingTests(TestCase):
    """The keys in the cluster's API."""

    timeout = 20

    def setUp(self) -> None:
        self.cluster = SandboxCluster(REACTOR, "rome")
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        self.client = Client(client_config(self.cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.client.close()))
        self.informers = Informers(self.client, REACTOR)
        self.clock = Clock()
        self.changes = 0

    async def ring(self, host: str = "192.0.2.11") -> KeyRing:
        """Return a ring whose Secret is followed."""
        ring = KeyRing(self.client, self.clock, self.informers, "liqo-system", host)
        for source in ring.sources("host"):
            self.addCleanup(source.start(self.changed))
        await manifests.ensure(self.client)
        self.informers.startService()
        self.addCleanup(self.informers.stopService)
        await ring.when_synced()
        return ring

    def changed(self, key: str) -> None:
        self.changes += 1

    async def until(self, count: int) -> None:
        """Wait until so many changes were reported."""
        while self.changes < count:
            await deferLater(REACTOR, 0.01)

    async def test_exchanged_when_taken(self) -> None:
        """The next key is announced to all, and is the key when the last peer takes it; the one that starts then finds
        it.
        """
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        ring = await self.ring()
        first = (await ring.keys()).current
        await deferLater(REACTOR, 0.1)
        following = await plan_next(self.client, "liqo-system")
        self.assertEqual(await plan_next(self.client, "liqo-system"), following)
        await self.until(1)
        self.assertEqual(await ring.keys(), TunnelKeys(first, following))
        await ring.rotate([config("a", "Agreed", following.public), config("b", "Agreed", "")])
        self.assertEqual((await ring.keys()).current, first)
        await ring.rotate([config("a", "Agreed", following.public), config("b", "Agreed", following.public)])
        exchanged = TunnelKeys(following, host="192.0.2.11")
        self.assertEqual(await ring.keys(), exchanged)
        self.assertEqual(await load_or_create(self.client, "liqo-system"), exchanged)

    async def test_nobody_holds_it_up_for_ever(self) -> None:
        """A peer that never says that it takes the next key is waited for two minutes, not longer."""
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        await load_or_create(self.client, "liqo-system")
        following = await plan_next(self.client, "liqo-system")
        ring = await self.ring()
        silent = [config("a", "Agreed", "")]
        await ring.rotate(silent)
        self.clock.advance(CONFIRM_TIMEOUT - 1)
        await ring.rotate(silent)
        self.assertEqual((await ring.keys()).next, following)
        self.clock.advance(2)
        await ring.rotate(silent)
        self.assertEqual(await ring.keys(), TunnelKeys(following, host="192.0.2.11"))

    async def test_another_host_takes_over(self) -> None:
        """Its key is a new one, which the former host, were it to live, does not have; the same host keeps its own."""
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        ring = await self.ring()
        first = (await ring.rotate([])).current
        self.assertEqual(await ring.rotate([]), TunnelKeys(first, host="192.0.2.11"))
        other = KeyRing(self.client, self.clock, self.informers, "liqo-system", "192.0.2.12")
        silent = [config("a", "Agreed", "")]
        begun = await other.rotate(silent)
        assert begun.next is not None
        self.assertEqual((begun.current, begun.host), (first, "192.0.2.11"))
        self.clock.advance(CONFIRM_TIMEOUT + 1)
        self.assertEqual(await other.rotate(silent), begun)
        self.clock.advance(TAKEOVER_TIMEOUT - CONFIRM_TIMEOUT - 2)
        self.assertEqual(await other.rotate(silent), begun)
        accepted = [config("a", "Agreed", begun.next.public)]
        self.assertEqual(await other.rotate(accepted), TunnelKeys(begun.next, host="192.0.2.12"))
        self.assertEqual(await load_or_create(self.client, "liqo-system"), TunnelKeys(begun.next, host="192.0.2.12"))
