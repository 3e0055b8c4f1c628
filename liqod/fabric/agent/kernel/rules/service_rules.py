"""The rules of home's gateway for its own pods in another cluster that call its Services by their addresses. Pure.

What comes out of the tunnel for a range is put back to the network of Services before connection tracking sees it, and
what goes back is translated again after it (priorities of nft(8): conntrack at -200, source translation at 100). So
conntrack and kube-proxy see an ordinary call of a ClusterIP. The set ``offloaded_`` has the only addresses for which
this is done: those of our own pods there, and of no others in the lender's cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from liqod.fabric.agent.kernel.rules.guest_rules import peer_digest
from liqod.fabric.state.network import Link, ServiceMap

_FAMILIES = ((4, "ip"), (6, "ip6"))


def service_sets(links: Sequence[Link]) -> Mapping[str, frozenset[str]]:
    """Return the named sets of our pods in peers' clusters."""
    return {
        f"offloaded_{peer_digest(link.peer)}_{version}": frozenset(
            one for one in link.offloaded if (":" in one) == (version == 6)
        )
        for link in links
        for version, _ in _families(link)
        if link.pods is not None or any(one.services.version == version for one in link.services)
    }


def service_chains(device: str, links: Sequence[Link]) -> list[tuple[str, list[str]]]:
    """Return the chains that translate without connection tracking; none where no peer calls Services."""
    entering, leaving = [], []
    for family, offloaded, maps in _present(links):
        for one in maps:
            mask, network, seen = one.host_mask, one.services.network_address, one.seen.network_address
            entering.append(
                f'iifname "{device}" {family} saddr {offloaded} {family} daddr {one.seen} '
                f"{family} daddr set {family} daddr & {mask} | {network}"
            )
            leaving.append(
                f'oifname "{device}" {family} daddr {offloaded} {family} saddr {one.services} '
                f"{family} saddr set {family} saddr & {mask} | {seen}"
            )
    if not entering:
        return []
    return [
        ("to_services type filter hook prerouting priority raw - 10; policy accept;", entering),
        ("from_services type filter hook postrouting priority 300; policy accept;", leaving),
    ]


def guard_services(device: str, links: Sequence[Link]) -> list[str]:
    """Return the rules that let calls of Services out of the tunnel."""
    return [
        f'iifname "{device}" {family} saddr {offloaded} {family} daddr {_networks(maps)} accept'
        for family, offloaded, maps in _present(links)
    ]


def forward_services(device: str, links: Sequence[Link]) -> list[str]:
    """Return the rules for calls of Services whose endpoint is elsewhere: a pod here, or one behind a tunnel."""
    rules = []
    for family, offloaded, maps in _present(links):
        # An address that no Service has is not translated by kube-proxy, and would leave by the host's default route.
        rules.append(f'iifname "{device}" {family} daddr {_networks(maps)} drop')
        rules.append(
            f'iifname "{device}" {family} saddr {offloaded} ct original {family} daddr {_networks(maps)} accept'
        )
    return rules


def input_services(device: str, links: Sequence[Link]) -> list[str]:
    """Return the rules for calls of Services whose endpoint is this host, such as the API server."""
    return [
        f'iifname "{device}" {family} saddr {offloaded} ct original {family} daddr {_networks(maps)} accept'
        for family, offloaded, maps in _present(links)
    ]


def forward_offloaded(device: str, link: Link) -> list[str]:
    """Return the rules under the closed policy for our own pods there: they reach all pods of home, and these them.

    Source: Kubernetes, "The Kubernetes network model": pods communicate with all other pods on any other node.
    """
    rules = []
    for version, family in _families(link):
        offloaded = f"@offloaded_{peer_digest(link.peer)}_{version}"
        rules.append(f'iifname "{device}" {family} saddr {offloaded} accept')
        rules.append(f'oifname "{device}" {family} daddr {offloaded} accept')
    return rules


def _families(link: Link) -> list[tuple[int, str]]:
    versions = {network.version for network in link.remote}
    return [(version, family) for version, family in _FAMILIES if version in versions]


def _present(links: Sequence[Link]) -> Iterator[tuple[str, str, list[ServiceMap]]]:
    for link in links:
        for version, family in _families(link):
            if maps := [one for one in link.services if one.services.version == version]:
                yield family, f"@offloaded_{peer_digest(link.peer)}_{version}", maps


def _networks(maps: Sequence[ServiceMap]) -> str:
    return "{ " + ", ".join(str(one.services) for one in maps) + " }"
