"""How API servers are reached while addresses come and go: over the relay, directly, and over from one to the other."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from kubesandbox.kinds.kinds import GroupResource

from liqod.config.schema import Settings
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.ids import ClusterID
from tests.scenario.case import FOREIGN, SMALL, ScenarioCase, Scene, condition, live, node_ready, offloaded
from tests.scenario.side import Side

VIRTUALNODES = GroupResource("offloading.liqo.io", "virtualnodes")


def reached_by(setting: str) -> Callable[[Settings], Settings]:
    """Return a change of settings: how API servers are reached."""

    def change(settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, peering=msgspec.structs.replace(settings.peering, api=setting))

    return change


def way(side: Side, lender: Side) -> str:
    """Return the way in use, as the record of the lender tells."""
    return str((side.object(FOREIGN, lender.id) or {}).get("status", {}).get("api", ""))


def served(lender: Side, borrower: Side) -> int:
    """Return how many connections a borrower has to a lender's relay."""
    assert lender.daemon.features is not None
    relay = lender.daemon.features.peering.relay
    return relay.connections(ClusterID(borrower.id)) if relay is not None else 0


class RelayTests(ScenarioCase):
    def pair(self, scene: Scene, ours: str, theirs: str, *, walled: bool) -> tuple[Side, Side]:
        """Return a borrower and a lender that trust each other; ``walled``: neither reaches the other's API server."""
        rome = scene.side("rome", nodes=(SMALL,), peers=(2,), change=reached_by(ours))
        milan = scene.side("milan", change=reached_by(theirs))
        if walled:
            self.wall(scene, rome, milan)
        rome.start()
        milan.start()
        scene.acquaint((rome, milan))
        return rome, milan

    def wall(self, scene: Scene, rome: Side, milan: Side) -> None:
        scene.network.block(rome.address, milan.api_address)
        scene.network.block(milan.address, rome.api_address)

    def test_only_the_relay(self) -> None:
        """API servers that nobody outside reaches lend and borrow; distrust ends what is relayed in the same moment."""
        scene = self.scene()
        rome, milan = self.pair(scene, "relay", "relay", walled=True)
        scene.becomes("the node is ready", lambda: node_ready(rome, milan), 5.0)
        scene.enable(rome)
        scene.deploy(rome, "web", 3)
        scene.becomes("three run", lambda: offloaded(rome, milan, "web", 3), 5.0)
        scene.becomes("the record tells", lambda: way(rome, milan) == "relay")
        self.assertGreater(served(milan, rome), 3)
        self.assertNotIn("create", {verb for _, verb, what in milan.door.requests if what == "serviceaccounts/token"})
        scene.do(milan.client.patch(FOREIGNCLUSTERS, rome.id, {"spec": {"fingerprint": ""}}, view=None))
        took = scene.becomes("nothing is relayed", lambda: served(milan, rome) == 0, 5.0)
        self.assertLess(took, 0.1)
        scene.becomes("the node is not ready", lambda: not node_ready(rome, milan))

    def test_not_reachable_from_the_start(self) -> None:
        """With auto, a lender whose address leads nowhere is reached over its relay within seconds."""
        scene = self.scene()
        rome, milan = self.pair(scene, "auto", "auto", walled=True)
        scene.becomes("the node is ready", lambda: node_ready(rome, milan), 15.0)
        scene.becomes("the record tells", lambda: way(rome, milan) == "relay")

    def test_over_and_back(self) -> None:
        """With auto, a wall that comes and goes changes the way, and no pod: what is scaled meanwhile is scaled."""
        scene = self.scene()
        rome, milan = self.pair(scene, "auto", "auto", walled=False)
        scene.becomes("the node is ready", lambda: node_ready(rome, milan), 5.0)
        scene.enable(rome)
        scene.deploy(rome, "web", 3)
        scene.becomes("three run", lambda: offloaded(rome, milan, "web", 3))
        scene.becomes("the record tells", lambda: way(rome, milan) == "direct")
        self.assertEqual(served(milan, rome), 0)
        first = {name: pod["metadata"]["uid"] for name, pod in live(milan, "web").items()}
        self.wall(scene, rome, milan)
        scene.becomes("the relay is used", lambda: way(rome, milan) == "relay", 90.0)
        scene.becomes("the node is ready again", lambda: node_ready(rome, milan))
        scene.scale(rome, "web", 5)
        scene.becomes("five run", lambda: offloaded(rome, milan, "web", 5), 30.0)
        scene.network.heal()
        back = scene.becomes("the direct way is used", lambda: way(rome, milan) == "direct", 400.0)
        self.assertGreater(back, 120.0)
        scene.scale(rome, "web", 4)
        scene.becomes("four run", lambda: offloaded(rome, milan, "web", 4), 30.0)
        scene.becomes("nothing is relayed", lambda: served(milan, rome) == 0, 90.0)
        last = {name: pod["metadata"]["uid"] for name, pod in live(milan, "web").items()}
        self.assertGreaterEqual(len(first.items() & last.items()), 2, "pods were replaced")

    def test_the_lenders_daemon_dies(self) -> None:
        """A relay is gone with its machine: the node says so, no pod is touched, and all goes on when it is back.

        Watches that were open then receive nothing more, not even their end: they are made again when they are overdue.
        """
        scene = self.scene()
        rome, milan = self.pair(scene, "relay", "relay", walled=True)
        scene.becomes("the node is ready", lambda: node_ready(rome, milan), 5.0)
        scene.enable(rome)
        scene.deploy(rome, "web", 3)
        scene.becomes("three run", lambda: offloaded(rome, milan, "web", 3), 5.0)
        uids = {pod["metadata"]["uid"] for side in (rome, milan) for pod in live(side, "web").values()}
        milan.kill(power=True)
        scene.becomes("the node is not ready", lambda: not node_ready(rome, milan), 90.0)
        milan.start()
        scene.becomes("the node is ready again", lambda: node_ready(rome, milan), 90.0)
        scene.scale(rome, "web", 4)
        scene.becomes("four run", lambda: offloaded(rome, milan, "web", 4), 180.0)
        now = {pod["metadata"]["uid"] for side in (rome, milan) for pod in live(side, "web").values()}
        self.assertLessEqual(uids, now, "pods were replaced")

    def test_no_common_way(self) -> None:
        """A borrower that wants only the relay says so of a lender that has none, and what to change."""
        scene = self.scene()
        rome, _ = self.pair(scene, "relay", "direct", walled=False)

        def said() -> bool:
            (record,) = rome.objects(VIRTUALNODES) or [{}]
            reasons = {one["type"]: one["reason"] for one in record.get("status", {}).get("conditions", [])}
            return reasons.get("Credential") == "NoCommonWay" and condition(record, "Credential") == "False"

        scene.becomes("the record tells", said, 10.0)
