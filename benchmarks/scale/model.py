"""What many clusters take, from what some dozens did: lines by the number of peers, and what the machine adds. Pure.

A daemon knows its peers and nobody else: there is no list of all clusters anywhere, and no message goes further than
one session. So what a daemon takes depends on how many peers it has, and the whole is the sum over the graph. That is
the claim which ``deviation`` checks on clusters that the lines were not fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import field, frozen

from benchmarks.scale.fit import Line, Points, line
from benchmarks.scale.graphs import Graph, degrees

CPU_OF_PEER: Final = 0.06
"""CPU seconds that a daemon takes for one peer until it is Ready: docs/performance.md, "A hub with many peers"."""
IDLE_OF_PEER: Final = 1.38 / 64
"""Percent of a core for one peer at rest: the same section."""
MIB_OF_DAEMON: Final = 91.0
MIB_OF_PEER: Final = 0.64
"""Resident memory of a daemon in a process of its own, and of each peer: the same page."""
HANDSHAKES: Final = 64
HANDSHAKES_BURST: Final = 256
"""TLS handshakes that a daemon takes on in a second, from all addresses, and at once: docs/limits.md."""
DEFAULT_SESSIONS: Final = 512
MOST_SESSIONS: Final = 4096
"""``[peering] max-sessions``: its default, and the most that it can be (``liqod/config/schema.py``)."""


@frozen
class Sample:
    """What one daemon does at rest, a second: events that its peers send to it, and requests to API servers."""

    peers: int
    events: float
    requests: float


@frozen(kw_only=True)
class Reading:
    """What so many clusters did: virtual seconds until all pairs agreed, at first, after daemons were killed, and
    after a partition; MiB for each daemon with what its API server stores; and each daemon at rest.

    ``cut`` is how many sessions the partition was to end, ``lost`` how many of them it did; ``commit`` is what was
    measured.
    """

    shape: str
    clusters: int
    sessions: int
    most: int
    agreed: float
    churned: float
    healed: float
    cut: int
    lost: int
    mib: float
    samples: Sequence[Sample] = field(factory=tuple)
    commit: str = ""

    @property
    def mean(self) -> float:
        """How many peers a cluster has on average."""
        return 2 * self.sessions / self.clusters

    @property
    def events(self) -> float:
        """Events of all sessions, a second."""
        return math.fsum(one.events for one in self.samples)

    @property
    def requests(self) -> float:
        """Requests of all daemons, a second."""
        return math.fsum(one.requests for one in self.samples)


@frozen
class Model:
    """Events and requests of a daemon by its peers, MiB by the average of peers, virtual seconds by the most."""

    events: Line
    requests: Line
    mib: Line
    agreed: Line


@frozen(kw_only=True)
class Forecast:
    """What so many clusters will take.

    ``events`` and ``requests`` are of all, a second; ``seconds`` is the virtual time until all agree, ``cpu_seconds``
    what the daemon with the most peers computes meanwhile, which comes on top where it has one core.
    """

    clusters: int
    sessions: int
    most: int
    mib: float
    events: float
    requests: float
    seconds: float
    cpu_seconds: float

    @property
    def busiest_mib(self) -> float:
        """Resident MiB of the daemon with the most peers, in a process of its own."""
        return MIB_OF_DAEMON + MIB_OF_PEER * self.most

    @property
    def busiest_idle(self) -> float:
        """Percent of a core that it takes at rest."""
        return IDLE_OF_PEER * self.most

    @property
    def admission(self) -> float:
        """Seconds until the daemon with the most peers has let all in, where they dial it at the same moment."""
        return max(0.0, (self.most - HANDSHAKES_BURST) / HANDSHAKES)

    @property
    def longest(self) -> float:
        """Seconds until all agree at the latest: the protocol, and what the busiest daemon waits for and computes."""
        return self.seconds + max(self.admission, self.cpu_seconds)

    @property
    def obstacle(self) -> str:
        """What has to be configured, or cannot be, before there can be so many; empty: nothing."""
        if self.most > MOST_SESSIONS:
            return f"{self.most} sessions of one daemon, {MOST_SESSIONS} at most"
        if self.most > DEFAULT_SESSIONS:
            return f"`max-sessions` {self.most} or more"
        return ""


def fitted(readings: Iterable[Reading]) -> Model:
    """Return the model that fits readings best; ValueError without any."""
    known = list(readings)
    samples = [one for reading in known for one in reading.samples]
    if not samples:
        raise ValueError("there is nothing to fit a model to")
    return Model(
        events=_line([(float(one.peers), one.events) for one in samples]),
        requests=_line([(float(one.peers), one.requests) for one in samples]),
        mib=_line([(one.mean, one.mib) for one in known]),
        agreed=_line([(float(one.most), one.agreed) for one in known]),
    )


def forecast(model: Model, clusters: int, graph: Graph) -> Forecast:
    """Return what a model says of a graph."""
    peers = degrees(clusters, graph)
    most = max(peers, default=0)
    return Forecast(
        clusters=clusters,
        sessions=len(graph),
        most=most,
        mib=model.mib.at(2 * len(graph) / clusters),
        events=math.fsum(model.events.at(one) for one in peers),
        requests=math.fsum(model.requests.at(one) for one in peers),
        seconds=model.agreed.at(most),
        cpu_seconds=CPU_OF_PEER * most,
    )


def deviation(expected: Forecast, reading: Reading) -> Mapping[str, float]:
    """Return how many times more was measured than a model had said, by figure; infinite where it had said nothing."""
    pairs = {
        "MiB": (reading.mib, expected.mib),
        "events": (reading.events, expected.events),
        "requests": (reading.requests, expected.requests),
        "agreed": (reading.agreed, expected.seconds),
    }
    return {name: seen / said if said > 0 else math.inf for name, (seen, said) in pairs.items()}


def _line(points: Points) -> Line:
    """Return the line through points, a level one where all have the same size."""
    return line(points) or Line(math.fsum(value for _, value in points) / len(points), 0.0)
