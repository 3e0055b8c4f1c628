"""Finds what a host loses again and again of what its agent makes: something else there removes it. Pure."""

from __future__ import annotations

from typing import Final

from liqod.fabric.agent.kernel import vxlan
from liqod.fabric.agent.kernel.model import (
    TABLE,
    DesiredKernel,
    DesiredNodeKernel,
    ObservedKernel,
    ObservedNodeKernel,
)
from liqod.fabric.agent.kernel.routes import wanted_routes
from liqod.fabric.agent.kernel.rules import nftables

TIMES: Final = 3
"""Passes in a row that find something gone which the pass before had made; a restart of a firewall is one."""

_ROUTES: Final = f"routes of the table {TABLE}"
_RULES: Final = f"the nftables table {nftables.NAME}"


def absent(desired: DesiredKernel, observed: ObservedKernel) -> frozenset[str]:
    """Return what of a gateway's network is missing, in words; of a device that is missing nothing else is."""
    found = set()
    if observed.device is None:
        found.add(f"the device {desired.device}")
    else:
        known = observed.tunnel.peers if observed.tunnel is not None else {}
        if any(link.public_key not in known for link in desired.links):
            found.add(f"a peer's key on the device {desired.device}")
        if any(network not in observed.routes for network in wanted_routes(desired)):
            found.add(_ROUTES)
    if observed.rules is None:
        found.add(_RULES)
    return frozenset(found)


def absent_of_node(desired: DesiredNodeKernel, observed: ObservedNodeKernel) -> frozenset[str]:
    """Return the same of a host that is no gateway."""
    found = set()
    if observed.overlay is None:
        found.add(f"the device {desired.overlay.device}")
    elif any(network not in observed.outward.routes for network in vxlan.wanted_routes(desired.overlay)):
        found.add(_ROUTES)
    if observed.rules is None:
        found.add(_RULES)
    return frozenset(found)


class Losses:
    """Counts in how many passes in a row something was missing that the pass before had made."""

    def __init__(self) -> None:
        self._made: object = None
        self._times: dict[str, int] = {}

    def note(self, wanted: object, missing: frozenset[str]) -> None:
        """Note what a pass found missing before it makes ``wanted``.

        Of what the pass before did not want, or could not make, nothing was lost.
        """
        if self._made is None:
            self._times = {}
        elif wanted == self._made:
            self._times = {one: self._times.get(one, 0) + 1 for one in missing}
        self._made = None

    def made(self, wanted: object) -> None:
        """Note that a pass made what it wanted."""
        self._made = wanted

    @property
    def sentence(self) -> str:
        """What is removed again and again; empty where nothing is."""
        lost = sorted(one for one, times in self._times.items() if times >= TIMES)
        if not lost:
            return ""
        return f"something on this host removes {' and '.join(lost)} again and again; each time that is made again"
