"""The rules of a host that is no gateway: its pods keep their addresses on the way to the gateway. Pure.

The gateway alone decides who may talk with whom. Here the pods' addresses are mapped to themselves, so that the CNI
does not masquerade them; and of what comes over the overlay, the host itself takes only what goes to its own node
address: the gateway forwards a peer's packets to that only where it was exported to the peer.
"""

from __future__ import annotations

from collections.abc import Mapping

from liqod.fabric.agent.kernel.model import DesiredNodeKernel
from liqod.fabric.agent.kernel.rules.gateway_rules import clamp_rules, overlay_guard
from liqod.fabric.agent.kernel.rules.guest_rules import from_guests, guest_sets, to_guests


def node_sets(desired: DesiredNodeKernel) -> Mapping[str, frozenset[str]]:
    """Return the named sets of addresses: the hosts that frames of the overlay may come from, and peers' pods here."""
    version = 6 if ":" in desired.overlay.local else 4
    hosts = {f"hosts_{version}": frozenset(vtep.address for vtep in desired.overlay.vteps)}
    return {**hosts, **guest_sets(desired.guests)}


def node_chains(desired: DesiredNodeKernel) -> list[tuple[str, list[str]]]:
    """Return each chain's head and its rules."""
    device = desired.overlay.device
    entering = [
        *overlay_guard(desired.overlay),
        f'iifname "{device}" ct state established,related accept',
        f'iifname "{device}" icmp type echo-request accept',
        f'iifname "{device}" icmpv6 type echo-request accept',
        *_from_gateway(desired),
        f'iifname "{device}" drop',
    ]
    passing = [
        f'iifname "{device}" oifname "{device}" drop',
        *clamp_rules(device),
    ]
    pins = []
    for network in desired.pods:
        family = "ip" if network.version == 4 else "ip6"
        pins.append(f'oifname "{device}" {family} saddr {network} snat {family} prefix to {network}')
    return [
        ("to_guests type nat hook prerouting priority dstnat - 10; policy accept;", to_guests(desired.guests)),
        ("input type filter hook input priority filter; policy accept;", entering),
        ("forward type filter hook forward priority filter; policy accept;", passing),
        (
            "from_pods type nat hook postrouting priority srcnat - 10; policy accept;",
            [*pins, *from_guests(desired.guests)],
        ),
    ]


def _from_gateway(desired: DesiredNodeKernel) -> list[str]:
    local = desired.overlay.local
    return [f'iifname "{desired.overlay.device}" {"ip6" if ":" in local else "ip"} daddr {local} accept']
