"""What pings of one pod of a peer tell. Pure.

A pod that never answered proves nothing: it may not answer pings at all. One that did and stopped, while the peer's
gateway goes on answering, tells that the path behind the gateway is cut. Where a peer's pods have addresses of both IP
versions, a pod of each is asked: one version may be cut while the other one works.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

import attrs

from liqod.fabric.kernel.host_facts import Pod
from liqod.fabric.probing.health import SILENCE
from liqod.model.records.network import Network


@attrs.define
class PodPath:
    """One pod, by the address at which it is reached here; times are in seconds."""

    pod: str
    since: float
    heard: float | None = None

    def cut(self, now: float) -> bool:
        """Tell whether a pod that used to answer is silent."""
        return self.heard is not None and now - self.heard >= SILENCE


@attrs.frozen
class Cut:
    """Pods that used to answer and are silent, one of each IP version; ``whole``: no other one answers either."""

    pods: tuple[str, ...]
    whole: bool

    @property
    def message(self) -> str:
        """What that means, as a sentence."""
        if self.whole:
            what, verb = ("pods", "do") if len(self.pods) > 1 else ("pod", "does")
            return f"the peer's gateway answers, but its {what} {', '.join(self.pods)} {verb} not any more"
        version = 6 if ":" in self.pods[0] else 4
        return f"packets cross, but not those of IPv{version}: the peer's pod {self.pods[0]} does not answer any more"


def cut_of(paths: Iterable[PodPath], now: float) -> Cut | None:
    """Return what is cut on the ways to a peer's pods, one of each IP version; None where nothing is known to be."""
    ways = tuple(paths)
    silent = tuple(way.pod for way in ways if way.cut(now))
    return Cut(silent, whole=all(way.heard is None or way.cut(now) for way in ways)) if silent else None


def targets(pods: Sequence[Pod], networks: Sequence[Network], present: Mapping[int, str]) -> dict[int, str]:
    """Return a running pod's address inside a peer's networks for each IP version that those have, as ``target``."""
    found: dict[int, str] = {}
    for version in sorted({network.version for network in networks}):
        inside = [network for network in networks if network.version == version]
        if pod := target(pods, inside, present.get(version, "")):
            found[version] = pod
    return found


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
