"""The rules of a host that is no gateway: its pods keep their addresses on the way to the gateway. Pure.

The gateway alone decides who may talk with whom; here the pods' addresses are pinned against the CNI's masquerade, and
of what comes over the overlay only that reaches the host itself which goes to its own address among the hosts: the
gateway lets a peer's packets go there where that address was exported to the peer, and else to none but pods.
"""

from __future__ import annotations

from collections.abc import Mapping

from liqod.fabric.kernel.model import NodeDesired
from liqod.fabric.kernel.rules.gateway_rules import overlay_guard


def node_sets(desired: NodeDesired) -> Mapping[str, frozenset[str]]:
    """Return the named sets of addresses: the hosts that frames of the overlay may come from."""
    version = 6 if ":" in desired.overlay.local else 4
    return {f"hosts_{version}": frozenset(end.address for end in desired.overlay.ends)}


def node_chains(desired: NodeDesired) -> list[tuple[str, list[str]]]:
    """Return each chain's head and its rules."""
    device = desired.overlay.device
    clamp = "tcp flags syn / syn,rst tcp option maxseg size set rt mtu"
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
        f'oifname "{device}" {clamp}',
        f'iifname "{device}" {clamp}',
    ]
    pins = []
    for network in desired.pods:
        word = "ip" if network.version == 4 else "ip6"
        pins.append(f'oifname "{device}" {word} saddr {network} snat {word} prefix to {network}')
    return [
        ("input type filter hook input priority filter; policy accept;", entering),
        ("forward type filter hook forward priority filter; policy accept;", passing),
        ("from_pods type nat hook postrouting priority srcnat - 10; policy accept;", pins),
    ]


def _from_gateway(desired: NodeDesired) -> list[str]:
    local = desired.overlay.local
    return [f'iifname "{desired.overlay.device}" {"ip6" if ":" in local else "ip"} daddr {local} accept']
