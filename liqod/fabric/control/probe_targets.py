"""Which pod of a peer is pinged: one of each IP version that the peer's networks have. Pure.

Pods of both versions are asked, because one version may be cut behind the peer's gateway while the other one works.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from liqod.model.addresses import parse_ip
from liqod.model.objects.pod import Pod
from liqod.model.records.network import Network


def pod_targets(pods: Sequence[Pod], networks: Sequence[Network], current: Mapping[int, str]) -> dict[int, str]:
    """Return a running pod's address inside a peer's networks for each IP version of those, as ``pod_target``."""
    found: dict[int, str] = {}
    for version in sorted({network.version for network in networks}):
        inside = [network for network in networks if network.version == version]
        if pod := pod_target(pods, inside, current.get(version, "")):
            found[version] = pod
    return found


def pod_target(pods: Iterable[Pod], networks: Sequence[Network], current: str) -> str:
    """Return a running pod's address inside a peer's networks: the current one as long as it runs, else the first.

    One of IPv4 comes before all of IPv6.
    """
    running = sorted(
        (
            address.ip
            for pod in pods
            if pod.status.phase == "Running" and not pod.metadata.deleting
            for address in pod.status.pod_ips
            if _is_inside(address.ip, networks)
        ),
        key=lambda address: (":" in address, address),
    )
    return current if current in running else next(iter(running), "")


def _is_inside(text: str, networks: Sequence[Network]) -> bool:
    address = parse_ip(text)
    return address is not None and any(address in network for network in networks)
