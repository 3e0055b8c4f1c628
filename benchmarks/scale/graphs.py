"""Who peers with whom, among clusters with numbers from 1: rings, stars, graphs by chance. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

Edge = tuple[int, int]
"""Two clusters that peer, the lower number first: that one dials."""
Graph = frozenset[Edge]

DEGREE: Final = 6
"""How many peers a cluster has on average in a graph by chance."""


def edge(one: int, two: int) -> Edge:
    """Return the edge between two clusters."""
    return (one, two) if one < two else (two, one)


def ring(count: int) -> Graph:
    """Return a ring: each cluster peers with the next one."""
    return frozenset(edge(one, one % count + 1) for one in range(1, count + 1) if one != one % count + 1)


def star(count: int) -> Graph:
    """Return a star: all peer with the first."""
    return frozenset((1, other) for other in range(2, count + 1))


def scattered(count: int, chance: Random, degree: int = DEGREE) -> Graph:
    """Return a graph by chance in which every cluster reaches every other: a ring of any order, and chords."""
    order = chance.sample(range(1, count + 1), count)
    pairs = zip(order, [*order[1:], order[0]], strict=True)
    found = {edge(one, two) for one, two in pairs if one != two}
    wanted = min(count * degree // 2, count * (count - 1) // 2)
    while len(found) < wanted:
        one, two = chance.sample(range(1, count + 1), 2)
        found.add(edge(one, two))
    return frozenset(found)


SHAPES: Final[Mapping[str, Callable[[int, Random], Graph]]] = {
    "ring": lambda count, chance: ring(count),
    "star": lambda count, chance: star(count),
    "random": scattered,
}


def degrees(count: int, graph: Graph) -> list[int]:
    """Return how many peers each cluster has, in the order of their numbers."""
    found = [0] * (count + 1)
    for one, two in graph:
        found[one] += 1
        found[two] += 1
    return found[1:]


def severed(count: int, graph: Graph) -> Graph:
    """Return the edges between the lower and the upper half of the numbers: what a partition cuts."""
    half = count // 2
    return frozenset((one, two) for one, two in graph if one <= half < two)
