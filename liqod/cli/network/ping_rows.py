"""What ``ping`` shows of what it measured or could not measure. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from liqod.cli.console.render import join_reason
from liqod.model.records.network import NO_TUNNEL, NetworkConfig, TunnelEndpoint
from liqod.model.records.views import ForeignCluster

ADDRESSES: Final = 4
"""Addresses of a peer that are tried; a peer may have announced more."""


@attrs.frozen
class PathTimes:
    """The attempts on one path: how many, the seconds that the answered ones took, and what is to say about it.

    Without attempts the path was not measured, and ``broken`` says whether the records call it so.
    """

    path: str
    target: str = ""
    sent: int = 0
    times: Sequence[float] = ()
    note: str = ""
    broken: bool = attrs.field(default=False, kw_only=True)


def as_row(measured: PathTimes) -> dict[str, Any]:
    """Return a path's row: times in milliseconds, the loss in percent; None where nothing was measured."""
    times = sorted(1000 * one for one in measured.times)
    three = [round(one, 2) for one in (times[0], statistics.median(times), times[-1])] if times else [None] * 3
    lost = round(100 * (1 - len(times) / measured.sent)) if measured.sent else None
    return {
        "path": measured.path,
        "target": measured.target,
        "sent": measured.sent,
        "answered": len(times),
        "minMs": three[0],
        "medianMs": three[1],
        "maxMs": three[2],
        "lostPercent": lost,
        "note": measured.note,
    }


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as people read it: the three times in one cell."""
    times = " / ".join(f"{row[key]:.1f}" for key in ("minMs", "medianMs", "maxMs")) if row["answered"] else ""
    lost = row["lostPercent"]
    return {**row, "time": times, "loss": "" if lost is None else f"{lost} %"}


def unanswered(measured: Iterable[PathTimes]) -> bool:
    """Return whether a path that must work does not.

    An address that does not answer is no failure: the session may be one that the peer opened, and this machine need
    not be the daemon's host.
    """
    return any(one.broken or (one.sent > 0 and not one.times) for one in measured if one.path != "session")


def addresses_of(cluster: ForeignCluster) -> list[str]:
    """Return where a peer may be dialled, those written by hand first."""
    known = [*cluster.spec.endpoints, *cluster.status.endpoints]
    return list(dict.fromkeys(one.address for one in known))[:ADDRESSES]


def recorded_tunnel(tunnel: TunnelEndpoint) -> PathTimes:
    """Return what the daemon's own probes found, in steps: what a host other than the gateway's can know."""
    status = tunnel.status
    where = tunnel.spec.gateway.address
    if status.phase != "Connected":
        return PathTimes("tunnel", note=join_reason(status.reason, status.message), broken=status.phase == "Error")
    found = ", ".join(filter(None, (status.rtt, status.loss and f"{status.loss} lost"))) or "no figures yet"
    host = f"the gateway's host{f' ({where})' if where else ''}"
    return PathTimes("tunnel", note=f"recorded by the daemon: {found}; on {host} it is measured")


def without_tunnel(config: NetworkConfig | None) -> PathTimes:
    """Return why there is no tunnel to measure."""
    if config is not None and config.spec.decision.mode == NO_TUNNEL:
        decision = config.spec.decision
        return PathTimes("tunnel", note=f"none: {join_reason(decision.reason, decision.message)}")
    if config is not None:
        return PathTimes("tunnel", note=f"not there yet: {join_reason(config.status.reason, config.status.message)}")
    return PathTimes("tunnel", note="none: the clusters have no network in common")
