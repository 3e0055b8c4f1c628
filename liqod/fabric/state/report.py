"""What the network agent reports to control: the host, the tunnels, and what probes found. Pure.

Dates from the kernel (handshakes) are seconds since 1970, by the wall clock; all other times are seconds of the agent's
own clock, which never goes back, and mean something only beside another time of that clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import attrs

from liqod.fabric.state.network import DesiredNetwork, PathKey
from liqod.model.records.network import Network

DEAD_AFTER: Final = 5.0
"""Seconds without any answer after which a peer, or a pod of it, counts as unreachable."""


NARROW_AFTER: Final = 30.0
"""Seconds without an answer to any large packet after which small ones alone cross: a lossy path answers some."""


@attrs.frozen(kw_only=True)
class HostReport:
    """The facts about the host that control decides from.

    ``mtu`` is that of the tunnel's device, ``networks`` what the host itself needs: those that its routes lead to (its
    tunnel's left out), the next hops, the name servers. ``needed``: the next hops, the name servers and the host's own
    addresses, without which it cannot work. ``address`` is the host's among the cluster's nodes; of the tunnel's keys
    it has the public halves.
    """

    mtu: int
    networks: tuple[Network, ...] = ()
    needed: tuple[Network, ...] = ()
    address: str = ""
    public_key: str = ""
    next_key: str = ""


@attrs.frozen
class TunnelReport:
    """WireGuard's state of one peer: the endpoint it uses, the last handshake, and the bytes received and sent.

    ``handshake`` is its date (0: never), ``handshake_at`` when it was by the agent's clock (None: never).
    """

    endpoint: str
    handshake: float = 0
    received: int = 0
    handshake_at: float | None = None
    sent: int = attrs.field(default=0, kw_only=True)

    def age(self, now: float) -> float | None:
        """Return the seconds since the last handshake, None where there was none."""
        return None if self.handshake_at is None else now - self.handshake_at


@attrs.frozen
class ProbeResult:
    """What the probes of one peer's gateway found, ``since`` when it is probed; ``rtt`` is in seconds.

    ``mtu`` is that of the path, 0 while it is not known; ``loss`` the share of the latest probes without an answer;
    ``is_forwarding`` is False where the gateway itself says that it forwards no packets.
    """

    since: float
    answered_at: float | None = None
    rtt: float | None = None
    loss: float = 0.0
    mtu: int = 0
    is_forwarding: bool = attrs.field(default=True, kw_only=True)

    def is_reachable(self, now: float) -> bool:
        """Return whether packets reach the peer's gateway, and come back."""
        return self.answered_at is not None and now - self.answered_at < DEAD_AFTER

    def is_starting(self, now: float) -> bool:
        """Return whether probing has just started: until an answer had time to arrive, the earlier result holds."""
        return self.answered_at is None and now - self.since < DEAD_AFTER

    def is_undecided(self, now: float) -> bool:
        """Return whether it is too early to say that the peer is unreachable."""
        return self.answered_at is None and now - self.since < 2 * DEAD_AFTER


@attrs.frozen
class PodPath:
    """One pod that is pinged, by the address at which it is reached here; times are in seconds.

    ``large_since`` is when the first packet of ``size`` bytes was sent since the last of that size came back, None
    where none is out.
    """

    pod: str
    since: float
    answered_at: float | None = None
    size: int = attrs.field(default=0, kw_only=True)
    large_since: float | None = attrs.field(default=None, kw_only=True)

    def is_silent(self, now: float) -> bool:
        """Return whether a pod has stopped answering. One that never answered may not answer pings at all."""
        return self.answered_at is not None and now - self.answered_at >= DEAD_AFTER

    def is_narrow(self, now: float) -> bool:
        """Return whether small packets come back from a pod, and of the large ones none has for long."""
        answers = self.answered_at is not None and now - self.answered_at < DEAD_AFTER
        return answers and self.large_since is not None and now - self.large_since >= NARROW_AFTER


@attrs.frozen
class Cut:
    """Pods that used to answer and are silent, one of each IP version; ``whole``: no other one answers either."""

    pods: tuple[str, ...]
    whole: bool

    @property
    def message(self) -> str:
        """The meaning of the cut, as a message."""
        if self.whole:
            what, verb = ("pods", "do") if len(self.pods) > 1 else ("pod", "does")
            return f"the peer's gateway answers, but its {what} {', '.join(self.pods)} {verb} not any more"
        version = 6 if ":" in self.pods[0] else 4
        return f"packets cross, but not those of IPv{version}: the peer's pod {self.pods[0]} does not answer any more"


def find_cut(paths: Iterable[PodPath], now: float) -> Cut | None:
    """Return what is cut on the paths to a peer's pods, one of each IP version; None where nothing is known to be."""
    known = tuple(paths)
    silent = tuple(path.pod for path in known if path.is_silent(now))
    return Cut(silent, whole=all(path.answered_at is None or path.is_silent(now) for path in known)) if silent else None


def find_narrow(paths: Iterable[PodPath], now: float) -> str:
    """Return a message about a pod's path that carries small packets alone; empty where none is known."""
    found = next((path for path in paths if path.is_narrow(now)), None)
    if found is None:
        return ""
    return f"packets of {found.size} bytes reach the peer's gateway, but not its pod {found.pod}: small ones alone do"


@attrs.frozen
class NetworkReport:
    """The observed state of the gateway's host, and the results of probes.

    ``implementation`` is what runs the tunnel's device ("kernel", "wireguard-go"), empty where there is no device;
    ``routes`` are the networks of peers that are routed; ``tunnels`` are by public key, ``probes`` by peer. Without
    ``has_six`` the host has no IPv6, and no network of it is routed.
    """

    implementation: str = ""
    routes: frozenset[Network] = frozenset()
    tunnels: Mapping[str, TunnelReport] = attrs.field(factory=dict)
    probes: Mapping[str, ProbeResult] = attrs.field(factory=dict)
    pods: Mapping[PathKey, PodPath] = attrs.field(factory=dict)
    has_six: bool = attrs.field(default=True, kw_only=True)

    def paths_to(self, peer: str) -> tuple[PodPath, ...]:
        """Return the paths to a peer's pods, by IP version."""
        return tuple(path for key, path in sorted(self.pods.items()) if key[0] == peer)


class NetworkAgent(Protocol):
    """Changes the gateway's host, in this process or another: the only interface between control and the agent."""

    async def lacking(self) -> str:
        """Return what the host lacks for tunnels, with what to do; empty where it lacks nothing.

        Raises ExpectedError where that is not known yet.
        """
        ...

    async def inspect_host(self) -> HostReport:
        """Return what there is of the host's own network; raises ExpectedError where that cannot be found out."""
        ...

    async def clear(self) -> None:
        """Remove everything of ours from the host because there is no peer; raises ExpectedError."""
        ...

    async def converge(self, desired: DesiredNetwork) -> NetworkReport:
        """Make the host's network as desired and return what there is then; raises ExpectedError."""
        ...

    def report(self) -> NetworkReport:
        """Return what was observed last, with the newest results of probes."""
        ...
