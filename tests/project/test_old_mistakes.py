"""Mistakes that an earlier implementation of peering made, each as a test; docs/peering.md has the whole list."""

from __future__ import annotations

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.acceptance.pipeline import rule_all
from liqod.acceptance.stages import AcceptanceRules, OfferCase
from liqod.config.schema import PeeringSettings, Settings, SharingSettings
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS
from liqod.kubelet.common.readiness import READY, judge, not_ready
from liqod.model.ids import ClusterID
from liqod.model.names import advertisement_name, remote_namespace
from liqod.peering.borrowing import acceptance_loop
from tests.peering.clusters import PairCase, accepting, settings, use_rules


class CountingTests(SynchronousTestCase):
    """The accepted count is what the records say."""

    def test_peers_that_came_and_went_take_no_place(self) -> None:
        """With room for two, any number of peers may come one after the other, as long as two leave before."""
        rules = AcceptanceRules("AutoAcceptMax", 2)
        present: list[OfferCase] = []
        for number in range(0, 40, 2):
            newcomers = [
                OfferCase(peer=ClusterID(f"c{number + each}"), first_seen=f"{number + each:03}") for each in (0, 1)
            ]
            rulings = rule_all(newcomers, rules)
            self.assertEqual([rulings[case.peer].phase for case in newcomers], ["Accepted", "Accepted"])
            present = [attrs.evolve(case, seated=True) for case in newcomers]
        late = OfferCase(peer=ClusterID("late"), first_seen="999")
        self.assertEqual(rule_all([*present, late], rules)[late.peer].reason, "NoRoom")

    def test_an_offer_that_is_taken_back_again_and_again_gives_back_one_place(self) -> None:
        """However often a withdrawn offer is looked at, it makes room for one other and no more."""
        rules = AcceptanceRules("AutoAcceptMax", 1)
        leaving = OfferCase(peer=ClusterID("leaving"), first_seen="0", seated=True, withdrawn="Unpeered")
        waiting = [OfferCase(peer=ClusterID(f"w{number}"), first_seen=str(number)) for number in range(1, 4)]
        for _ in range(5):
            rulings = rule_all([leaving, *waiting], rules)
            self.assertEqual(sum(one.seated for one in rulings.values()), 1)
            waiting = [attrs.evolve(case, seated=rulings[case.peer].seated) for case in waiting]


class DefaultsTests(SynchronousTestCase):
    """What a cluster does that was not configured."""

    def test_nobody_unknown_is_let_in(self) -> None:
        """Unknown keys wait for a person; five offers are accepted at most; a third of what is free is lent."""
        self.assertFalse(PeeringSettings().autojoin_untrusted)
        self.assertEqual((Settings().acceptance.policy, Settings().acceptance.maximum), ("AutoAcceptMax", 5))
        self.assertEqual(SharingSettings().percentage, 30)

    def test_names_are_not_cut_until_they_collide(self) -> None:
        """Long names that begin alike stay different in whatever is made of them."""
        home = ClusterID("0b4f7a1e-9d55-4d0e-8f5e-3c0c8f1f2a11")
        names = {remote_namespace(f"{'n' * 50}-{number}", home) for number in range(50)}
        self.assertEqual(len(names), 50)

    def test_a_dead_tunnel_is_a_node_that_is_not_ready(self) -> None:
        """With everything else in order, what the network says decides; nothing is assumed of a tunnel without it."""
        down = not_ready("NetworkDown", "packets do not cross")
        self.assertEqual(judge(READY, READY, down, READY), down)
        self.assertTrue(judge(READY, READY, READY, READY).ready)


class WatchingTests(PairCase):
    """What goes on after a restart, a change of policy, a refusal."""

    async def test_a_policy_changed_at_run_time_holds_from_the_next_offer_on(self) -> None:
        """Manual at first, then AutoAcceptAll, then Manual again: each is obeyed, and nobody is evicted."""
        home = await self.side("home", accepting("Manual"))
        lenders = [await self.side(f"lender-{number}", settings(autojoin_untrusted=True)) for number in range(2)]
        for lender in lenders:
            await home.trust(lender)
        home.sees(lenders[0])

        async def is_in(number: int, phase: str) -> bool:
            return (await home.offer_record(lenders[number])).status.phase == phase

        await self.becomes(lambda: is_in(0, "Pending"), "the first waits for a person")
        use_rules(home.peering._acceptance, AcceptanceRules("AutoAcceptAll"))
        await self.becomes(lambda: is_in(0, "Accepted"), "the first is accepted")
        use_rules(home.peering._acceptance, AcceptanceRules("Manual"))
        home.sees(*lenders)
        await self.becomes(lambda: is_in(1, "Pending"), "the second waits for a person")
        self.assertTrue(await is_in(0, "Accepted"))

    async def test_a_restart_goes_on_watching(self) -> None:
        """A daemon that starts while its peer is dead finds that out by itself: Suspect, then Lost, nothing deleted."""
        short = msgspec.structs.replace(settings(autojoin_untrusted=True), sharing=SharingSettings(ttl=4.0))
        alpha, beta = await self.pair(settings(autojoin_untrusted=True), short)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        node = await alpha.virtual_node(beta)
        await beta.stop()
        await alpha.stop()
        self.patch(acceptance_loop, "RETURN", 0.0)  # as if the daemon had been up for long
        await alpha.start()
        await self.phase(alpha, beta, "Lost")
        self.assertEqual((await alpha.offer_record(beta)).status.phase, "Expired")
        self.assertEqual((await alpha.virtual_node(beta)).metadata.uid, node.metadata.uid)

    async def test_what_is_switched_off_does_not_come_back_with_the_next_offer(self) -> None:
        """While borrowing is off the lender's new offers are refused, also when their record was deleted."""
        alpha, beta = await self.pair(settings(autojoin_untrusted=True), settings(autojoin_untrusted=True))
        alpha.sees(beta)
        await self.peered(alpha, beta)
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": {"outgoingPeering": "No"}}, view=None)

        async def refused() -> bool:
            record = await alpha.offer_record(beta)
            return record.status.reason == "PeeringDisabled" and beta.room.tenants == {}

        await self.becomes(refused, "the offer is refused and the lender took back its rights")
        seq = (await alpha.offer_record(beta)).spec.seq
        await alpha.admin.delete(ADVERTISEMENTS, advertisement_name(beta.id))
        await beta.set_cpu("one", "40")

        async def refused_again() -> bool:
            return (await alpha.offer_record(beta)).spec.seq > seq and await refused()

        await self.becomes(refused_again, "the next offer is refused as well")
        self.assertEqual((await alpha.cluster_record(beta)).spec.outgoing_peering, "No")
