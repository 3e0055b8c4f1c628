"""Ten of the broken set-ups, those that are made and undone quickly, with the alerts that have to fire. Pure.

Written down before anything is broken: ``alerts`` are those of which at least one fires at the side ``at``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from tests.real.broken_setups.setups import MILAN, ROME, Fault

BLIND: Final = ("LiqodDown", "LiqodNoLeader", "LiqodStaleCaches", "LiqodReconcileFailing")
"""A daemon that may not ask its API server cannot say who scrapes it either, and loses the lead."""
PATH: Final = ("LiqodTunnelDown", "LiqodProblem")
ANYWAY: Final = frozenset({"LiqodReactorLag"})
"""What a busy machine may cause at clusters that nothing is done to."""


@frozen
class Case:
    """One set-up: what is broken, at which side it is seen, and by which alerts."""

    name: str
    fault: Fault
    at: str
    alerts: Sequence[str]


CASES: Final[Sequence[Case]] = (
    Case("firewall on 5872/tcp", Fault("port", MILAN, ("tcp", "5872")), ROME, ("LiqodPeerDown",)),
    Case("firewall on 5871/udp", Fault("port", MILAN, ("udp", "5871")), ROME, ("LiqodTunnelDown",)),
    Case(
        "a link that loses packets",
        Fault("rules", MILAN, ("input", "udp dport 5871 numgen random mod 10 < 4 drop")),
        ROME,
        ("LiqodTunnelLossHigh",),
    ),
    Case("the peer forwards nothing", Fault("forwarding"), ROME, PATH),
    Case("no nft", Fault("no nft", ROME), ROME, PATH),
    Case("the daemon hangs", Fault("frozen", ROME), ROME, ("LiqodDown",)),
    Case("the peer's host sleeps", Fault("frozen", MILAN), ROME, ("LiqodPeerDown",)),
    Case("the daemon was killed", Fault("killed", MILAN), MILAN, ("LiqodDown",)),
    Case("no rights", Fault("rights", ROME), ROME, BLIND),
    Case("deleted credential", Fault("credential", ROME), ROME, BLIND),
)
"""What else is broken in thirty ways is seen by `liqodctl status` alone, or takes longer than an alert does."""
