"""Computes the status of the tunnel to a peer from the link and the report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs
import msgspec

from liqod.fabric.state.network import Link, of_four
from liqod.fabric.state.report import (
    NetworkReport,
    PodPath,
    ProbeResult,
    TunnelReport,
    find_cut,
    find_narrow,
)
from liqod.model.host_port import split_address
from liqod.model.objects.meta import Condition, set_condition
from liqod.model.records.network import LOSS_ABOVE, LOSS_SCALE, SESSION_LIFETIME, TunnelEndpointStatus
from liqod.model.timestamps import rfc3339

UP_WITHIN: Final = 60.0
"""Seconds without any handshake, from the first probe on, after which a port counts as closed."""
PHASES: Mapping[str, str] = {"Connected": "True", "Connecting": "Unknown", "Error": "False"}


@attrs.frozen
class Moment:
    """One moment by both clocks: ``now`` in seconds of the reactor, ``date`` for records."""

    now: float
    date: datetime


@attrs.frozen
class TunnelDevice:
    """The tunnel's device on this host: its name, and the UDP port that it listens on."""

    name: str
    port: int


def tunnel_status(
    link: Link, report: NetworkReport, before: TunnelEndpointStatus, device: TunnelDevice, moment: Moment
) -> TunnelEndpointStatus:
    """Return the whole status; ``before`` is the one that the record has."""
    peer = link.peer
    probes = report.probes.get(peer)
    tunnel = report.tunnels.get(link.public_key)
    age = tunnel.age(moment.now) if tunnel is not None else None
    if (missing := _missing(link, report)) is not None:
        phase, reason, message, cut = missing
    elif (reachable := _reachable(probes, report.paths_to(peer), moment.now, before.phase)) is not None:
        phase, reason, message, cut = reachable
    else:
        waited = moment.now - probes.since if probes is not None else 0.0
        if age is None and waited >= UP_WITHIN:
            phase, reason, message, cut = "Error", "PortClosed", _closed(link, device), "tunnel"
        else:
            phase, reason, message, cut = _unreachable(link, tunnel, age)
    conditions = set_condition(
        before.conditions,
        Condition(type="Connected", status=PHASES[phase], reason=reason, message=message),
        rfc3339(moment.date),
    )
    return TunnelEndpointStatus(
        phase=phase,
        reason=reason,
        message=message,
        cut=cut,
        device=device.name,
        implementation=report.implementation,
        handshake="never" if age is None else "fresh" if age < SESSION_LIFETIME else "stale",
        rtt=rtt_range(probes.rtt) if probes is not None and phase == "Connected" else "",
        loss=loss_range(probes.loss) if probes is not None else "",
        path_mtu=(probes.mtu if probes is not None else 0) or link.mtu,
        conditions=conditions,
        endpoint=tunnel.endpoint if tunnel is not None else "",
        accepted_key=link.next_key if link.next_key in report.tunnels else "",
        direct=sorted(str(one.home) for one in link.direct),
    )


def same_but_measurements(one: TunnelEndpointStatus, two: TunnelEndpointStatus) -> bool:
    """Return whether two statuses differ in measurements only, which are not worth a write at once."""
    return msgspec.structs.replace(one, rtt=two.rtt, loss=two.loss) == two


def rtt_range(seconds: float | None) -> str:
    """Return a round trip as a step of a scale, so that what is shown changes seldom."""
    if seconds is None:
        return ""
    steps = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    return next((f"under {step} ms" for step in steps if seconds * 1000 < step), "over 500 ms")


def loss_range(share: float) -> str:
    """Return a loss as a step of a scale."""
    return next((text for limit, text in LOSS_SCALE if share <= limit), LOSS_ABOVE)


Finding = tuple[str, str, str, str]
"""Phase, reason, message, and the place of the cut."""


def _missing(link: Link, report: NetworkReport) -> Finding | None:
    wanted = link.remote if report.has_six else of_four(link.remote)
    missing = [network for network in wanted if network not in report.routes]
    if not missing and report.implementation:
        return None
    what = f"there is no route to {missing[0]}" if report.implementation else "the tunnel's device is missing"
    return "Error", "LocalRouteMissing", f"{what} on this host", "local route"


def _reachable(probes: ProbeResult | None, paths: Sequence[PodPath], now: float, before: str) -> Finding | None:
    if probes is not None and probes.is_reachable(now):
        if not probes.is_forwarding:
            message = "the peer's gateway answers, and says that it forwards no packets: none reaches its pods"
            return "Error", "PeerForwardingOff", message, "remote pods"
        cut = find_cut(paths, now)
        if cut is not None and cut.whole:
            return "Error", "PodPathCut", cut.message, "remote pods"
        if cut is not None:
            # The node stays Ready although one of the two addresses of its pods is unreachable: no eviction for that.
            return "Connected", "FamilyCut", cut.message, "remote pods"
        if narrow := find_narrow(paths, now):
            return "Connected", "SizesLost", narrow, "remote pods"
        return "Connected", "PacketsCross", "packets cross in both directions", ""
    if before == "Connected" and probes is not None and probes.is_starting(now):
        # A daemon that has just started has no answer yet; the tunnel survived the restart.
        return "Connected", "PacketsCross", "packets cross in both directions", ""
    if probes is None or probes.is_undecided(now):
        return "Connecting", "Probing", "the first packets are under way", ""
    return None


def _closed(link: Link, device: TunnelDevice) -> str:
    """Return which port lets no packet in: with either of the two open, the tunnel would have come up."""
    ours = f"UDP port {device.port} of this cluster's gateway"
    if not link.endpoint:
        return (
            f"the tunnel has not come up within {UP_WITHIN:.0f} s: {ours} is closed; open it, because the peer "
            "named no address of its own to be called at"
        )
    address, port = split_address(link.endpoint)
    return (
        f"the tunnel has not come up within {UP_WITHIN:.0f} s: UDP port {port} of {address}, the peer's "
        f"gateway, is closed; open it there, or {ours}: one of the two is enough"
    )


def _unreachable(link: Link, tunnel: TunnelReport | None, age: float | None) -> Finding:
    if age is None or age >= SESSION_LIFETIME:
        where = link.endpoint or "it (it has to call us: it named no endpoint)"
        message = f"no packet of the tunnel comes back from {where}; is its UDP port open?"
        return "Error", "NoHandshake", message, "tunnel"
    if tunnel is None or not tunnel.received:
        message = f"the tunnel to {link.endpoint or 'the peer'} is up but nothing comes back"
        return "Error", "TunnelSilent", message, "tunnel"
    message = "the tunnel is up, but the probes through the peer's address translation are not answered"
    return "Error", "ProbesLost", message, "remote host"
