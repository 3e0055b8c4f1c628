"""Peerings that end in the middle of failures, by either side: nothing is left of them, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from liqod.config.schema import Settings
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.unpeering import ORDER, Order
from liqod.sandbox.kinds import NAMESPACES, NODES, GroupResource
from tests.scenario.case import FOREIGN, OFFERS, SHADOWPODS, ScenarioCase, Scene, unchanged
from tests.scenario.profile import profile
from tests.scenario.side import PEER_PORT, Side
from tests.scenario.test_failures import SIDE, VIRTUALNODES, Pair, Trouble

TABLES = GroupResource("virtualkubelet.liqo.io", "namespacenattingtables")
ORDERS = st.sampled_from([Order(), Order("asked", 0.0), Order("asked", 5.0), Order("dead")])
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


class Endings(ScenarioCase):
    """The end of a peering, with everything that can go wrong meanwhile."""

    def pair(self, change: Callable[[Settings], Settings] = unchanged) -> Pair:
        return Pair(self.scene(), change)

    def intact(self, pair: Pair) -> None:
        """Have nothing be lost that nobody asked to delete."""
        self.assertEqual(pair.lost(), {})
        self.assertEqual(pair.restarted(), [])

    def ends_and_begins_anew(self, pair: Pair) -> None:
        """Wait until nothing is left on either side, then trust again and have everything run as before."""
        scene = pair.scene
        scene.becomes(
            "nothing is left of the peering",
            lambda: not any(map(remains, scene.sides)),
            900,
        )
        for side, other in ((pair.rome, pair.milan), (pair.milan, pair.rome)):
            trust_by_hand(side, other, scene)
        pair.well()

    def test_either_side_ends_it_in_peace(self) -> None:
        """Whoever asks, both clusters forget each other; trusted again they share pods as before."""
        for which in (0, 1):
            pair = self.pair()
            end(pair, which, Order())
            self.ends_and_begins_anew(pair)

    def test_both_end_it_at_the_same_time(self) -> None:
        """Two administrators who end it at once do not wait for each other for ever."""
        pair = self.pair()
        end(pair, 0, Order())
        end(pair, 1, Order())
        self.ends_and_begins_anew(pair)

    def test_in_any_order_with_failures(self) -> None:
        """Ended by either side, patient or not, amid failures: only what was asked for goes, and all of that."""
        made: Any = lambda: EndingTrouble(self)  # noqa: E731
        EndingTrouble.ended = 0
        run_state_machine_as_test(made, settings=profile(6, 12))
        print(f"\n{EndingTrouble.ended} peerings ended")
        self.assertGreater(EndingTrouble.ended, 4, "every case ends the peering")


def trust_by_hand(side: Side, other: Side, scene: Scene) -> None:
    """Let an administrator, who knows the other's address and key, trust it: whether it is in sight or not."""
    home = other.daemon.home
    assert home is not None
    endpoints = [{"address": f"{other.address}:{PEER_PORT}"}]
    spec = {"clusterID": other.id, "fingerprint": home.keypair.fingerprint, "endpoints": endpoints}
    body = {"metadata": {"name": other.id}, "spec": spec}
    try:
        scene.do(side.client.create(FOREIGNCLUSTERS, body, view=None))
    except AlreadyExists:
        scene.do(side.client.patch(FOREIGNCLUSTERS, other.id, {"spec": spec}, view=None))


def end(pair: Pair, which: int, order: Order) -> None:
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

    def __init__(self, case: Endings) -> None:
        super().__init__(case)  # type: ignore[arg-type]

    @initialize(which=SIDE, order=ORDERS, wait=st.sampled_from([0.0, 2.0, 30.0, 150.0]))
    def intend(self, which: int, order: Order, wait: float) -> None:
        """Whoever has not ended it before the failures are healed does so then, and they last on for a while."""
        self.last = (which, order, wait)

    @precondition(lambda self: not self.closed)
    @rule(which=SIDE, order=ORDERS)
    def unpeer(self, which: int, order: Order) -> None:
        self.asked = True
        end(self.pair, which, order)

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "pair") and not self.asked:
            self.case.intact(self.pair)

    def teardown(self) -> None:
        if not hasattr(self, "last"):
            return
        which, order, wait = self.last
        if not self.asked:
            self.open_api(which)
            self.unpeer(which, order)
            self.pair.scene.world.run(wait)
        EndingTrouble.ended += 1
        self.heal()
        for side in (0, 1):
            self.open_api(side)
            self.wake(side)
            self.set_clock(side, 0.0)
            self.side(side).door.fault = None
        self.case.ends_and_begins_anew(self.pair)
