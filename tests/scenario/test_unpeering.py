"""Peerings that end in the middle of failures, by either side: nothing is left of them, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from kubesandbox.kinds.kinds import NAMESPACES, NODES, GroupResource

from liqod.config.schema import Settings
from liqod.kube.errors import NotFound
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.records.unpeering import ORDER, UnpeeringOrder
from tests.scenario.case import FOREIGN, OFFERS, SHADOWPODS, ScenarioCase, has_seen, node_ready, unchanged
from tests.scenario.profile import profile, run_cases
from tests.scenario.side import Fault, Side
from tests.scenario.test_failures import SIDE, VIRTUALNODES, Pair, Trouble, short_offers

TABLES = GroupResource("virtualkubelet.liqo.io", "namespacenattingtables")
ORDERS = st.sampled_from(
    [UnpeeringOrder(), UnpeeringOrder("asked", 0.0), UnpeeringOrder("asked", 5.0), UnpeeringOrder("dead")]
)
WAITS = st.sampled_from([0.0, 2.0, 30.0, 150.0])
OWN = ("default", "kube-system", "kube-public", "kube-node-lease", "liqo-system", "shop")
"""The namespaces of a cluster, and of its user."""


def remains(side: Side) -> list[str]:
    """Return what a cluster keeps of a peering: everything but that a stranger is in sight."""
    found = [
        f"{side.name} {resource.plural} {one['metadata']['name']}"
        for resource in (OFFERS, VIRTUALNODES, TABLES, SHADOWPODS)
        for one in side.objects(resource)
    ]
    nodes = [one for one in side.objects(NODES) if "liqo.io/type" in one["metadata"].get("labels", {})]
    spaces = [one for one in side.objects(NAMESPACES) if one["metadata"]["name"] not in OWN]
    pins = [one for one in side.objects(FOREIGN) if one.get("spec", {}).get("fingerprint")]
    return found + [f"{side.name} {one['metadata']['name']}" for one in (*nodes, *spaces, *pins)]


class UnpeeringTests(ScenarioCase):
    """The end of a peering, with everything that can go wrong meanwhile."""

    def pair(self, change: Callable[[Settings], Settings] = unchanged) -> Pair:
        return Pair(self.scene(), change)

    def intact(self, pair: Pair) -> None:
        """Have nothing be lost that nobody asked to delete."""
        self.assertEqual(pair.lost(), {})
        self.assertEqual(pair.restarted(), [])

    def ends_and_begins_again(self, pair: Pair, wait: float = 0.0) -> None:
        """Wait until nothing is left on either side, then trust again and have everything run as before."""
        scene = pair.scene
        scene.becomes(
            "nothing is left of the peering",
            lambda: not any(map(remains, scene.sides)),
            900,
        )
        # Only rome knows where the other is: milan sees it when rome trusts, and therefore dials.
        for side, other in ((pair.rome, pair.milan), (pair.milan, pair.rome)):
            scene.becomes(f"{side.name} sees {other.name}", partial(has_seen, side, other), 300)
            scene.trust(side, other)
            scene.world.run(wait)
            spec = (side.object(FOREIGN, other.id) or {}).get("spec", {})
            self.assertTrue(spec.get("fingerprint"), "what a person trusts again is not taken back")
        pair.well()

    def test_either_side_ends_it_in_peace(self) -> None:
        """Whichever side asks, both clusters forget each other; trusted again they share pods as before."""
        for which in (0, 1):
            pair = self.pair()
            end(pair, which, UnpeeringOrder())
            self.ends_and_begins_again(pair)

    def test_both_end_it_at_the_same_time(self) -> None:
        """Two administrators who end it at once do not wait for each other for ever."""
        pair = self.pair()
        end(pair, 0, UnpeeringOrder())
        end(pair, 1, UnpeeringOrder())
        self.ends_and_begins_again(pair)

    def test_trusted_again_before_the_watch_tells(self) -> None:
        """A record that is gone, though the watch does not show it yet, does not end what the peer begins again."""
        pair = self.pair(short_offers)
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        end(pair, 0, UnpeeringOrder("asked", 0.0))
        scene.network.part(rome.address, milan.address)
        end(pair, 1, UnpeeringOrder("asked", 0.0))
        scene.network.part(rome.address, milan.api_address)
        scene.scale(rome, "moving", 1)
        milan.stop_api()
        scene.network.heal()
        milan.start_api()
        self.ends_and_begins_again(pair, 30.0)

    def test_trusted_again_on_one_side_only(self) -> None:
        """Who learned of the end and trusts again keeps that trust, sees whose turn it is, and shares once it is done.

        Also when the daemon starts meanwhile.
        """
        pair = self.pair()
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        scene.network.part(rome.address, milan.address)
        end(pair, 1, UnpeeringOrder("dead"))
        scene.becomes("milan is through", lambda: not remains(milan), 120)
        scene.network.heal()
        scene.becomes("rome was notified", lambda: not remains(rome) and has_seen(rome, milan), 120)
        scene.trust(rome, milan)
        for restarted in (False, True):
            if restarted:
                rome.kill()
                rome.start()
            scene.world.run(100)
            record = rome.object(FOREIGN, milan.id) or {}
            self.assertTrue(waits(rome, milan))
            self.assertIn(f"liqodctl trust {rome.id}", record["status"]["message"])
            self.assertTrue(record["spec"]["fingerprint"])
        scene.trust(milan, rome)
        pair.well()

    def test_the_record_goes_before_the_connection(self) -> None:
        """A peer that hangs, and does not let the connection close, is shown again once it goes on."""
        pair = self.pair()
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        process = milan.process
        assert process is not None
        process.suspend()
        end(pair, 0, UnpeeringOrder("dead"))
        scene.becomes("rome is through", lambda: not remains(rome), 120)
        scene.world.run(30)
        process.resume()
        self.ends_and_begins_again(pair)

    def test_the_word_is_lost(self) -> None:
        """A daemon that ends before it acts on a message gets it again: it does not know where to ask."""
        pair = self.pair()
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        scene.network.part(rome.address, milan.address)
        end(pair, 0, UnpeeringOrder("dead"))
        scene.becomes("rome is through", lambda: not remains(rome), 120)
        milan.door.fault = Fault(503, "ServiceUnavailable")
        scene.network.heal()
        scene.becomes("milan was notified", partial(has_seen, rome, milan), 60)
        milan.kill()
        milan.door.fault = None
        milan.start()
        self.ends_and_begins_again(pair)

    def test_a_peer_without_its_api_server(self) -> None:
        """Its daemon can do nothing, stands by or not: it learns of the end when its API server is back."""
        for seconds in (2.0, 30.0, 300.0):
            pair = self.pair()
            pair.milan.stop_api()
            end(pair, 0, UnpeeringOrder("asked", 5.0))
            pair.scene.world.run(seconds)
            pair.milan.start_api()
            self.ends_and_begins_again(pair)

    def given_up(self, seconds: float) -> None:
        """End a peering with a lender that does not answer, which is said to be dead so many seconds later."""
        pair = self.pair()
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        for address in (milan.address, milan.api_address):
            scene.network.part(rome.address, address)
        scene.becomes("the node is not ready", lambda: not node_ready(rome, milan), 90)
        if seconds:
            end(pair, 0, UnpeeringOrder())
            scene.world.run(seconds)
        self.assertTrue(remains(rome))
        end(pair, 0, UnpeeringOrder("dead"))
        scene.becomes("rome is through", lambda: not remains(rome), 5)
        scene.network.heal()
        self.ends_and_begins_again(pair)

    def test_who_is_said_to_be_dead_is_not_waited_for(self) -> None:
        """A lender that does not answer costs the end of a node half a minute, and nothing once it is said to be dead.

        Also when that is said after the end has begun.
        """
        self.given_up(0.0)
        self.given_up(5.0)

    def test_with_a_peer_that_has_a_new_key(self) -> None:
        """Who was reinstalled cannot be informed, because it cannot prove who it was: it keeps all, and sees what to
        do.
        """
        pair = self.pair()
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        pair.reinstall(milan)
        scene.world.run(60)
        # What rome runs there is rome's to take away.
        kept = {what for what in pair.kept if what.startswith("milan") and "pods" not in what}
        end(pair, 0, UnpeeringOrder())
        scene.becomes("rome is through", lambda: not remains(rome), 120)
        scene.becomes("rome sees milan's new key", partial(has_seen, rome, milan), 120)
        scene.becomes("milan waits", lambda: waits(milan, rome), 120)
        scene.world.run(600)
        self.assertEqual({what for what in pair.lost() if what in kept}, set())
        end(pair, 1, UnpeeringOrder())
        self.ends_and_begins_again(pair)

    def test_a_record_that_was_replaced_unseen(self) -> None:
        """A record that an administrator removes by force and makes again, while no event arrives, is kept true."""
        pair = self.pair()
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        before = rome.object(FOREIGN, milan.id) or {}
        rome.door.fault = Fault(503, "ServiceUnavailable", only_watches=True)
        for stream in list(rome.cluster.server.streams):
            stream.stop()
        scene.do(rome.client.delete(FOREIGNCLUSTERS, milan.id))
        scene.do(rome.client.patch(FOREIGNCLUSTERS, milan.id, {"metadata": {"finalizers": None}}, view=None))
        body = {"metadata": {"name": milan.id}, "spec": before["spec"]}
        scene.do(rome.client.create(FOREIGNCLUSTERS, body, view=None))
        rome.door.fault = None
        pair.well(300)

    def test_ended_while_the_daemons_start(self) -> None:
        """A record that goes before the kubelet of its node was started leaves no node behind."""
        pair = self.pair(short_offers)
        for side in pair.scene.sides:
            side.kill(power=False)
        for side in pair.scene.sides:
            side.start()
        pair.scene.network.part(pair.rome.address, pair.milan.api_address)
        for side in pair.scene.sides:
            side.door.fault = Fault(500, "InternalError")
            for stream in list(side.cluster.server.streams):
                stream.stop()
        end(pair, 1, UnpeeringOrder(patience=60.0))
        pair.scene.world.run(150.0)
        pair.scene.network.heal()
        for side in pair.scene.sides:
            side.door.fault = None
        self.ends_and_begins_again(pair)

    def test_in_any_order_with_failures(self) -> None:
        """Ended by either side, patient or not, amid failures: only what was asked for goes, and all of that."""
        EndingTrouble.ended = 0
        chosen = profile(6, 12)
        run_cases(lambda: EndingTrouble(self), chosen)
        print(f"\n{EndingTrouble.ended} peerings ended")
        # A case may run out of choices before it has clusters; more than one of them would be no chance.
        self.assertGreaterEqual(EndingTrouble.ended, chosen.max_examples - 1, "every case ends the peering")


def waits(side: Side, other: Side) -> bool:
    """Tell whether a side shows that the other does not trust it yet."""
    status = (side.object(FOREIGN, other.id) or {}).get("status", {})
    return bool(status.get("reason") == "WaitingForPeerTrust")


def end(pair: Pair, which: int, order: UnpeeringOrder) -> None:
    """Let an administrator end the peering on their own cluster; one that has ended already stays so."""
    side, other = pair.scene.sides[which], pair.scene.sides[1 - which]
    patch = {"metadata": {"annotations": {ORDER: order.render()}}}
    try:
        pair.scene.do(side.client.patch(FOREIGNCLUSTERS, other.id, patch, view=None))
        pair.scene.do(side.client.delete(FOREIGNCLUSTERS, other.id))
    except NotFound:
        return


class EndingTrouble(Trouble):
    """Breaks and heals one pair, and ends its peering at some moment."""

    case: Any
    new_key: ClassVar[None] = None  # type: ignore[assignment]
    ended: ClassVar[int] = 0
    """How many peerings were ended."""
    asked = False

    def __init__(self, case: UnpeeringTests) -> None:
        super().__init__(case)  # type: ignore[arg-type]

    @initialize(which=SIDE, order=ORDERS, wait=WAITS)
    def intend(self, which: int, order: UnpeeringOrder, wait: float) -> None:
        """A side that has not ended it before the failures are healed does so then, and they last on for a while."""
        self.last = (which, order, wait)

    @precondition(lambda self: not self.closed)
    @rule(which=SIDE, order=ORDERS)
    def unpeer(self, which: int, order: UnpeeringOrder) -> None:
        self.asked = True
        end(self.pair, which, order)

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "pair") and not self.asked:
            self.case.intact(self.pair)

    @precondition(lambda self: self.asked)
    @rule(wait=WAITS)
    def again(self, wait: float) -> None:
        """All is healed, both trust again and share as before: what was remembered of the end must not harm them."""
        self.finish(wait)
        self.asked = False
        self.pair.kept = self.pair.identities()

    def teardown(self) -> None:
        if not hasattr(self, "last") or not hasattr(self, "pair"):
            return  # there was no more chance to be drawn from
        which, order, wait = self.last
        if not self.asked:
            self.open_api(which)
            self.unpeer(which, order)
            self.pair.scene.world.run(wait)
        self.finish(wait)

    def finish(self, wait: float) -> None:
        """Heal everything; then the peering is over, and one that both start again is as the first."""
        EndingTrouble.ended += 1
        self.heal()
        for side in (0, 1):
            self.open_api(side)
            self.wake(side)
            self.set_clock(side, 0.0)
            self.side(side).door.fault = None
        self.case.ends_and_begins_again(self.pair, wait)
