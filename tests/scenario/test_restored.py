"""Home's etcd goes back to a snapshot while the daemon runs: it notices, and what home forgot stays at the lender."""

from __future__ import annotations

from functools import partial

from kubesandbox.kinds.kinds import CONFIGMAPS, Key

from tests.scenario.case import SHADOWPODS, ScenarioCase, offloaded
from tests.scenario.side import Side
from tests.scenario.test_failures import VIRTUALNODES, Pair

MANY = 2000
"""Versions by which home goes back: more than it writes in the minutes in which the daemon has not noticed."""


def held(side: Side) -> str:
    """Return the reason of the condition DeletionsHeld where it is true."""
    conditions = [each for one in side.objects(VIRTUALNODES) for each in one["status"].get("conditions", [])]
    reasons = (each["reason"] for each in conditions if (each["type"], each["status"]) == ("DeletionsHeld", "True"))
    return next(reasons, "")


class RestoredTests(ScenarioCase):
    """Both sides share pods; home's API server is stopped for the restore."""

    def test_a_restore_under_a_running_daemon(self) -> None:
        """Though no watch gets an error, the daemon lists again, holds its deletions and says that home went back."""
        pair = Pair(self.scene())
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        store = rome.cluster.store
        snapshot = store.snapshot()
        scene.deploy(rome, "later", 2)
        scene.becomes("later runs", partial(offloaded, rome, milan, "later", 2))
        for number in range(MANY):
            store.put(CONFIGMAPS, Key("default", "count"), {"metadata": {"name": "count", "uid": str(number)}})
        scene.world.run(90)  # Bookmarks bring each kind's version up to the server's.
        shadows = {one["metadata"]["uid"] for one in milan.objects(SHADOWPODS)}
        rome.stop_api()
        scene.world.run(1)
        store.restore(snapshot)
        rome.start_api()
        scene.becomes("deletions are held", lambda: held(rome) == "HomeWentBack", 300)
        scene.world.run(60)
        self.assertEqual({one["metadata"]["uid"] for one in milan.objects(SHADOWPODS)}, shadows)
