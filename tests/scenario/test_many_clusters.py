"""Six clusters that peer as a ring, a star and by chance: all agree, at first and after what may happen to them.

``python -m benchmarks clusters`` does the same with a hundred.
"""

from __future__ import annotations

from random import Random

from benchmarks.scale.crowd import Crowd, gather
from benchmarks.scale.fit import line
from benchmarks.scale.graphs import SHAPES, degrees
from tests.scenario.case import ScenarioCase

COUNT = 6
AT_FIRST = 60.0
"""Virtual seconds within which all pairs agree, however many peers the busiest has."""
AFTERWARDS = 120.0
"""The same after daemons were started again, or the network is whole again: their back-off may have grown."""


class ManyClustersTests(ScenarioCase):
    """Whole daemons, whose administrators trust and accept whatever comes."""

    def crowd(self, shape: str, count: int = COUNT) -> Crowd:
        chance = Random(3)
        return gather(self.scene(), count, SHAPES[shape](count, chance), chance)

    def test_they_agree(self) -> None:
        """In every graph all pairs take each other for Ready within a minute, and nobody knows more than its peers."""
        for shape in SHAPES:
            crowd = self.crowd(shape)
            self.assertLess(crowd.start(), AT_FIRST, shape)
            for side, peers in zip(crowd.sides, degrees(COUNT, crowd.graph), strict=True):
                self.assertEqual(len(side.daemon.features.peering.sessions() if side.daemon.features else ()), peers)

    def test_churn(self) -> None:
        """After a daemon was killed and started again all agree again."""
        crowd = self.crowd("random")
        crowd.start()
        self.assertLess(crowd.churn(), AFTERWARDS)

    def test_partition(self) -> None:
        """A partition ends the sessions that it cuts, and none else; when it is over all agree again."""
        crowd = self.crowd("ring")
        crowd.start()
        healed, cut, lost = crowd.partition()
        self.assertEqual((cut, lost), (2, 2))
        self.assertLess(healed, AFTERWARDS)

    def test_a_daemon_costs_by_its_peers(self) -> None:
        """At rest the events of a daemon are on a line by its number of peers: no daemon works for others' sessions."""
        crowd = self.crowd("star")
        crowd.start()
        crowd.scene.world.run(60.0)
        samples = crowd.samples()
        found = line([(float(one.peers), one.events) for one in samples])
        assert found is not None
        self.assertGreater(found.slope, 0.0)
        hub = next(one for one in samples if one.peers == COUNT - 1)
        leaves = [one for one in samples if one.peers == 1]
        self.assertLess(hub.events, 1.5 * (COUNT - 1) * max(one.events for one in leaves))
