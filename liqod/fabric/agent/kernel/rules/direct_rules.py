"""The rules of direct connections: whose pods may use the tunnel between two clusters that a home borrows from. Pure.

Both ends have them, for one home at most, and each only after the other cluster said that it has them for the same home
(``MAX_DIRECT``). Each lets packets of that home's pods here out to the networks with its pods there, and those from
there in to that home's pods here, and to no others: both ends of a packet are of that home. Addresses are translated as
on every link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from liqod.fabric.agent.kernel.rules.guest_rules import peer_digest
from liqod.fabric.state.network import DirectLink, Link
from liqod.model.ids import ClusterID

_FAMILIES = ((4, "ip"), (6, "ip6"))


def direct_sets(links: Sequence[Link]) -> Mapping[str, frozenset[str]]:
    """Return the named sets of those homes' pods here."""
    return {
        _name(link, one, version): frozenset(pod for pod in one.pods if (":" in pod) == (version == 6))
        for link in links
        for one in link.direct
        for version, _, _ in _present(link, one)
    }


def forward_direct(device: str, link: Link) -> list[str]:
    """Return the rules under the closed policy by which pods of these homes pass; all others are dropped after them."""
    rules = []
    for one in link.direct:
        for version, family, networks in _present(link, one):
            pods = f"@{_name(link, one, version)}"
            rules.append(f'iifname "{device}" {family} saddr {networks} {family} daddr {pods} accept')
            rules.append(f'oifname "{device}" {family} daddr {networks} {family} saddr {pods} accept')
    return rules


def _present(link: Link, one: DirectLink) -> Iterator[tuple[int, str, str]]:
    """Yield each IP version that both the link and the networks have: its number, its family, the networks."""
    versions = {network.version for network in link.remote}
    for version, family in _FAMILIES:
        networks = [str(network) for network in one.networks if network.version == version]
        if networks and version in versions:
            yield version, family, "{ " + ", ".join(networks) + " }"


def _name(link: Link, one: DirectLink, version: int) -> str:
    # Neither part has a slash: two pairs never have one name.
    return f"direct_{peer_digest(ClusterID(f'{one.home}/{link.peer}'))}_{version}"
