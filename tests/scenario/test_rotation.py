"""A cluster's key changes in simulated time, and daemons die at each point of the way."""

from __future__ import annotations

from collections.abc import Callable

from kubesandbox.kinds.kinds import SECRETS, GroupResource, Json

from liqod.kube.resources import SECRETS as SECRET_RECORDS
from liqod.model.diagnosis.releases import NEWEST
from liqod.model.records.rotation import CERTIFICATE, IDENTITY_SECRET, NEXT_KEY, ORDER, RotationOrder
from tests.scenario.case import FOREIGN, ScenarioCase, Scene, node_ready, phase
from tests.scenario.side import Side

VIRTUAL_NODES = GroupResource("offloading.liqo.io", "virtualnodes")
OWN = "liqo-system"


class KeyRotationTests(ScenarioCase):
    """Rome changes its key; milan is its peer."""

    def secret(self, side: Side) -> Json:
        return side.object(SECRETS, IDENTITY_SECRET, OWN) or {}

    def spec(self, side: Side, other: Side) -> Json:
        found: Json = (side.object(FOREIGN, other.id) or {}).get("spec", {})
        return found

    def order(self, scene: Scene, side: Side, within: float) -> None:
        change = {"metadata": {"annotations": {ORDER: RotationOrder(within).render()}}}
        scene.do(side.client.patch(SECRET_RECORDS, IDENTITY_SECRET, change, OWN, view=None))

    def points(self, rome: Side, milan: Side) -> dict[str, Callable[[], bool]]:
        """Return what happens on the way, in order, each with how it is seen on record."""
        before = self.secret(rome)["data"][CERTIFICATE]
        pinned = self.spec(milan, rome)["fingerprint"]
        known = (rome.object(FOREIGN, milan.id) or {}).get("status", {}).get("knowsKey")

        def knows() -> bool:
            return bool((rome.object(FOREIGN, milan.id) or {}).get("status", {}).get("knowsKey") != known)

        def announced() -> bool:
            return bool((self.spec(milan, rome).get("announcedKey") or {}).get("by") == pinned)

        return {
            "ordered": lambda: ORDER in self.secret(rome)["metadata"].get("annotations", {}),
            "made": lambda: NEXT_KEY in self.secret(rome)["data"],
            "on record at the peer": announced,
            "acknowledged": knows,
            "promoted": lambda: self.secret(rome)["data"][CERTIFICATE] != before,
            "pinned": lambda: self.spec(milan, rome)["fingerprint"] != pinned,
        }

    def speaks(self, side: Side, other: Side) -> str:
        """Return the version of the protocol that is on record."""
        return str((side.object(FOREIGN, other.id) or {}).get("status", {}).get("protocol", ""))

    def is_well(self, rome: Side, milan: Side) -> bool:
        """Tell whether both are peers as ever, and no rotation is under way."""
        return bool(
            phase(rome, milan) == phase(milan, rome) == "Ready"
            and self.speaks(rome, milan) == self.speaks(milan, rome) == NEWEST
            and ORDER not in self.secret(rome)["metadata"].get("annotations", {})
            and NEXT_KEY not in self.secret(rome)["data"]
            and all(
                side.agent is not None
                and side.agent.features is not None
                and [one.peer for one in side.agent.features.peering.sessions()] == [other.id]
                for side, other in ((rome, milan), (milan, rome))
            )
        )

    def test_a_death_at_every_point(self) -> None:
        """Whichever side dies, and wherever: both end with the new key on record, and the virtual node is the same."""
        scene = self.scene()
        rome, milan = scene.peered()
        scene.becomes("both are well", lambda: self.is_well(rome, milan))
        nodes = {one["metadata"]["uid"] for side in (rome, milan) for one in side.objects(VIRTUAL_NODES)}
        for point in ("ordered", "made", "on record at the peer", "acknowledged", "promoted", "pinned"):
            for victims in ((rome,), (milan,)) if point != "promoted" else ((rome,), (milan,), (rome, milan)):
                reached = self.points(rome, milan)
                self.order(scene, rome, 3600.0)
                self.assertIsNotNone(scene.world.until(reached[point], 60.0, look=0.0005), point)
                for side in victims:
                    side.kill()
                for side in victims:
                    side.start()
                scene.becomes(
                    f"the new key is used after the death of {[side.name for side in victims]} at {point}",
                    lambda reached=reached: reached["pinned"]() and self.is_well(rome, milan),  # type: ignore[misc]
                    120.0,
                )
                self.assertTrue(node_ready(rome, milan))
        left = {one["metadata"]["uid"] for side in (rome, milan) for one in side.objects(VIRTUAL_NODES)}
        self.assertEqual(left, nodes)

    def test_a_peer_that_is_away_holds_it_up_for_so_long_only(self) -> None:
        """It is waited for as long as was said; back before that it hears, later it refuses and removes nothing."""
        scene = self.scene()
        rome, milan = scene.peered()
        scene.becomes("both are well", lambda: self.is_well(rome, milan))
        milan.kill()
        reached = self.points(rome, milan)
        self.order(scene, rome, 3600.0)
        scene.world.run(1800.0)
        self.assertFalse(reached["promoted"]())
        milan.start()
        scene.becomes("the new key is used", lambda: reached["pinned"]() and self.is_well(rome, milan), 120.0)
        milan.kill()
        reached = self.points(rome, milan)
        self.order(scene, rome, 3600.0)
        scene.world.run(3500.0)
        self.assertFalse(reached["promoted"]())
        scene.becomes("the time is over", reached["promoted"], 200.0)
        milan.start()
        refused = "ClusterIDRepetition"
        scene.becomes(
            "milan refuses the key",
            lambda: (milan.object(FOREIGN, rome.id) or {}).get("status", {}).get("reason") == refused,
            300.0,
        )
        self.assertFalse(reached["pinned"]())
        self.assertTrue(milan.objects(VIRTUAL_NODES) or rome.objects(VIRTUAL_NODES))
