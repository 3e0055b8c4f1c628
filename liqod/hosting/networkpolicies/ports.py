"""Sets of ports as NetworkPolicies write them: ranges of a protocol, and names of ports of containers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

Range = tuple[str, int, int]
"""A protocol, the first port and the last one."""
PortName = tuple[str, str]
"""A protocol, and the name of a container's port."""
LAST: Final = 65535


@attrs.frozen
class RulePorts:
    """The ports of a rule; ``ranges`` None: all traffic, also of protocols without ports."""

    ranges: frozenset[Range] | None = None
    names: frozenset[PortName] = frozenset()

    def __bool__(self) -> bool:
        return self.ranges is None or bool(self.ranges) or bool(self.names)

    def has(self, protocol: str, port: int) -> bool:
        """Return whether a port is in the ranges."""
        return self.ranges is None or any(one == protocol and low <= port <= high for one, low, high in self.ranges)

    def rendered(self) -> list[dict[str, Any]] | None:
        """Return the NetworkPolicyPorts in order; None for all traffic."""
        if self.ranges is None:
            return None
        made = [_rendered(*one) for one in sorted(self.ranges)]
        return made + [{"protocol": protocol, "port": name} for protocol, name in sorted(self.names)]


def _rendered(protocol: str, low: int, high: int) -> dict[str, Any]:
    if (low, high) == (1, LAST):
        return {"protocol": protocol}
    return {"protocol": protocol, "port": low} | ({"endPort": high} if high > low else {})


def merged(ranges: Iterable[Range]) -> frozenset[Range]:
    """Return the fewest ranges with the same ports."""
    found: list[Range] = []
    for protocol, low, high in sorted(ranges):
        if found and found[-1][0] == protocol and low <= found[-1][2] + 1:
            found[-1] = (protocol, found[-1][1], max(found[-1][2], high))
        else:
            found.append((protocol, low, high))
    return frozenset(found)


def common(one: frozenset[Range] | None, other: frozenset[Range] | None) -> frozenset[Range] | None:
    """Return the ports that are in both; None: all traffic."""
    if one is None or other is None:
        return other if one is None else one
    return merged(
        (protocol, max(low, first), min(high, last))
        for protocol, low, high in one
        for its, first, last in other
        if its == protocol and max(low, first) <= min(high, last)
    )
