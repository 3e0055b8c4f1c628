"""What happens in which minute of a soak, by a seed. Pure.

A round has every kind of event on both sides once, in an order of its own; rounds follow one another without end. Pods,
namespaces and objects come and go beside every event.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, Literal

from attrs import frozen

ROME: Final = "rome"
MILAN: Final = "milan"
SIDES: Final = (ROME, MILAN)

Kind = Literal["rest", "cut", "kill standby", "kill leader", "lease", "key", "tunnel key"]
KINDS: Final[tuple[Kind, ...]] = ("rest", "cut", "kill standby", "kill leader", "lease", "key", "tunnel key")
SHORTEST_CUT: Final = 3.0
LONGEST_CUT: Final = 20.0
MOST_PODS: Final = 5


@frozen
class Event:
    """What happens in a minute: the kind, the side, the seconds that it lasts, and the pods that come and go beside.

    "rest": nothing but these. "lease": the leader sleeps until the other daemon of its side leads. The daemon that is
    killed is always the second one, be it the leader or not: the first one lives as long as the soak.
    """

    kind: Kind
    side: str
    seconds: float
    pods: int

    @property
    def text(self) -> str:
        """The event in a few words."""
        return f"{self.kind} at {self.side}, {self.seconds:.0f} s, {self.pods} pods"


def plan(seed: int) -> Iterator[Event]:
    """Yield events without end; the same seed gives the same."""
    chance = Random(seed)
    while True:
        pairs = [(kind, side) for kind in KINDS for side in SIDES]
        chance.shuffle(pairs)
        for kind, side in pairs:
            yield Event(kind, side, round(chance.uniform(SHORTEST_CUT, LONGEST_CUT), 1), chance.randint(1, MOST_PODS))
