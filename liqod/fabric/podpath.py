"""What pings of one pod of a peer tell. Pure.

A pod that never answered proves nothing: it may not answer pings at all. One that did and stopped, while the peer's
gateway goes on answering, tells that the path behind the gateway is cut.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

import attrs

from liqod.fabric.facts import Pod
from liqod.fabric.health import SILENCE
from liqod.model.network import Network


@attrs.define
class PodPath:
    """One pod, by the address at which it is reached here; times are in seconds."""

    pod: str
    since: float
    heard: float | None = None

    def cut(self, now: float) -> bool:
        """Tell whether a pod that used to answer is silent."""
        return self.heard is not None and now - self.heard >= SILENCE


def target(pods: Iterable[Pod], networks: Sequence[Network], present: str) -> str:
    """Return a running pod's address inside a peer's networks: the present one as long as it runs, else the first.

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
    return present if present in running else next(iter(running), "")


def _is_inside(text: str, networks: Sequence[Network]) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(address in network for network in networks)
