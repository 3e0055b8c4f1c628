"""Many whole daemons in virtual time, peering as a graph says: until all agree, at rest, after kills and a partition.

    python -m benchmarks.scale.crowd SHAPE CLUSTERS SEED

prints one reading as JSON. Each runs in a process of its own, because nothing of a scene may ever be collected. API
servers are sandbox ones, and the network is in memory; addresses of peers are written down, as mDNS needs a real
network.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

import msgspec
from attrs import asdict, field, frozen
from twisted.protocols import tls
from twisted.python.monkey import MonkeyPatcher

from benchmarks.figures.measure import spent
from benchmarks.scale.exposition import total
from benchmarks.scale.graphs import SHAPES, Edge, Graph, degrees, severed
from benchmarks.scale.model import Reading, Sample
from liqod.config.schema import AcceptanceSettings, Settings
from tests.scenario.case import BIG, Scene, lasting, phase
from tests.scenario.side import Side

AGREE_WITHIN: Final = 900.0
"""Virtual seconds after which those that do not agree never will."""
LOOK: Final = 0.25
"""Virtual seconds between two looks: reading all records takes a while."""
SETTLE: Final = 60.0
REST: Final = 120.0
AWAY: Final = 60.0
"""Virtual seconds for which killed daemons are away."""
CUT: Final = 180.0
"""Virtual seconds for which a partition lasts: both sides must have missed pings enough to give the session up."""
KILLED: Final = 10
"""Of so many daemons one is killed."""


def open_to_all(settings: Settings) -> Settings:
    """Return settings of clusters that trust whom they meet, and accept what anybody offers."""
    peering = msgspec.structs.replace(settings.peering, autojoin_untrusted=True, max_untrusted=4096, max_sessions=4096)
    return msgspec.structs.replace(settings, peering=peering, acceptance=AcceptanceSettings(policy="AutoAcceptAll"))


@frozen
class Crowd:
    """So many clusters that peer as a graph says; made by ``gather``."""

    scene: Scene
    graph: Graph
    sides: Sequence[Side]
    _chance: Random = field(factory=Random)

    def start(self) -> float:
        """Start all daemons; return the virtual seconds until all pairs agree."""
        for side in self.sides:
            side.start()
        return self.until_agreed(self.graph)

    def disagreeing(self, edges: Iterable[Edge]) -> list[Edge]:
        """Return the pairs of which one does not take the other for Ready."""
        return [edge for edge in edges if not self._agrees(edge)]

    def until_agreed(self, edges: Graph) -> float:
        """Let time pass until all pairs agree, and return it; LookupError names one that does not."""
        left = sorted(edges)
        begin = self.scene.world.now

        def agreed() -> bool:
            # What agreed is looked at again in the end: a pair may have parted while others met.
            while left and self._agrees(left[-1]):
                left.pop()
            return not left

        while True:
            room = begin + AGREE_WITHIN - self.scene.world.now
            if room <= 0 or self.scene.world.until(agreed, room, look=LOOK) is None:
                one, two = (self.disagreeing(edges) or sorted(edges))[0]
                raise LookupError(f"not within {AGREE_WITHIN:.0f} s: clusters {one} and {two} agree")
            left = sorted(self.disagreeing(edges))
            if not left:
                return self.scene.world.now - begin

    def churn(self) -> float:
        """Kill one of ten daemons, start them again after a while; return the seconds from then until all agree."""
        chosen = self._chance.sample(list(self.sides), max(1, len(self.sides) // KILLED))
        for side in chosen:
            side.kill()
        self.scene.world.run(AWAY)
        for side in chosen:
            side.start()
        self.scene.world.run(LOOK)
        return self.until_agreed(self.graph)

    def partition(self) -> tuple[float, int, int]:
        """Cut the clusters in two halves for a while.

        Returns the seconds from the end of that until all agree, how many sessions were cut, and how many had ended.
        """
        cut = severed(len(self.sides), self.graph)
        network = self.scene.network
        for edge in cut:
            one, two = (self.sides[number - 1] for number in edge)
            for here, there in ((one.address, two.address), (one.address, two.api_address)):
                network.part(here, there)
            network.part(two.address, one.api_address)
        self.scene.world.run(CUT)
        lost = len(self.disagreeing(cut))
        network.heal()
        return self.until_agreed(self.graph), len(cut), lost

    def samples(self, seconds: float = REST) -> list[Sample]:
        """Let time pass; return what each daemon did in it, a second."""
        before = [(self._events(side), self._requests(side)) for side in self.sides]
        self.scene.world.run(seconds)
        peers = degrees(len(self.sides), self.graph)
        return [
            Sample(count, (self._events(side) - events) / seconds, (self._requests(side) - requests) / seconds)
            for side, count, (events, requests) in zip(self.sides, peers, before, strict=True)
        ]

    def _agrees(self, edge: Edge) -> bool:
        one, two = (self.sides[number - 1] for number in edge)
        return phase(one, two) == phase(two, one) == "Ready"

    def _events(self, side: Side) -> float:
        """Return how many events the peers of a side sent to its daemon since that began."""
        return total(side.daemon.registry.text().decode(), "liqod_peer_session_events_total")

    def _requests(self, side: Side) -> float:
        """Return how many requests a side's daemon sent to all API servers, watches apart."""
        return float(
            sum(
                count
                for other in self.sides
                for (host, verb, _), count in other.door.asked_by.items()
                if host == side.address and verb != "watch"
            )
        )


def gather(scene: Scene, count: int, graph: Graph, chance: Random) -> Crowd:
    """Make so many clusters whose daemons know the addresses of their peers in a graph; none is started."""
    for number in range(1, count + 1):
        dialled = tuple(sorted(two for one, two in graph if one == number))
        scene.side(f"cluster{number}", nodes=(BIG,), peers=dialled, change=open_to_all)
    return Crowd(scene, graph, list(scene.sides), chance)


def read(scene: Scene, shape: str, count: int, seed: int) -> Reading:
    """Take everything that a reading has."""
    chance = Random(seed)
    graph = SHAPES[shape](count, chance)
    before = spent(os.getpid()).resident_mib
    crowd = gather(scene, count, graph, chance)
    agreed = crowd.start()
    scene.world.run(SETTLE)
    mib = (spent(os.getpid()).resident_mib - before) / count
    samples = crowd.samples()
    churned = crowd.churn()
    healed, cut, lost = crowd.partition()
    return Reading(
        shape=shape,
        clusters=count,
        sessions=len(graph),
        most=max(degrees(count, graph)),
        agreed=agreed,
        churned=churned,
        healed=healed,
        cut=cut,
        lost=lost,
        mib=mib,
        samples=samples,
    )


def decoded(one: Any) -> Reading:
    """Return a reading that ``asdict`` made plain."""
    return Reading(**{**one, "samples": [Sample(**each) for each in one["samples"]]})


def main(shape: str, clusters: str, seed: str) -> None:
    """Print the reading, and end before anything is collected."""
    scene = lasting(int(seed))
    MonkeyPatcher((tls, "_get_default_clock", lambda: scene.clock)).patch()
    print(json.dumps(asdict(read(scene, shape, int(clusters), int(seed)))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
