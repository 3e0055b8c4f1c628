"""Who uses what of whom: what is requested, what kubelets measure, what quotas count, what tunnels carried. Pure.

``borrowed`` is what this cluster's pods use at a peer, ``lent`` what a peer's pods use here. What is not known is None,
which is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal

import attrs
import msgspec

from liqod.cli.console.render import printable
from liqod.model.ids import Key
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import View
from liqod.model.objects.quantity import Resources

Direction = Literal["borrowed", "lent"]
COLUMNS: Final = {
    "peer": "PEER",
    "direction": "WHAT",
    "namespace": "NAMESPACE",
    "pods": "PODS",
    "cpu": "CPU",
    "memory": "MEMORY",
    "storage": "STORAGE",
}
WIDE: Final = {**COLUMNS, "home": "AT HOME", "bytes": "IN/OUT", "counted": "QUOTA COUNTS"}
ALL: Final = "all"
"""In place of a namespace: the sum of a peer in one direction."""
LARGEST: Final = 1 << 62
"""Numbers of a lender's summary that are larger are no measurement."""


class CpuStats(View, frozen=True):
    """CPU in billionths of a core."""

    usage_nano_cores: int | None = None


class MemoryStats(View, frozen=True):
    """Memory that cannot be reclaimed, in bytes."""

    working_set_bytes: int | None = None


class NetworkStats(View, frozen=True):
    """Bytes that a pod's first interface received and sent since it started."""

    rx_bytes: int | None = None
    tx_bytes: int | None = None


class PodRef(View, frozen=True):
    """Which pod, or which claim."""

    name: str = ""
    namespace: str = ""


class VolumeStats(View, frozen=True):
    """Bytes that a volume holds; ``pvc_ref`` is its claim, if it has one."""

    used_bytes: int | None = None
    pvc_ref: PodRef | None = None


class PodStats(View, frozen=True):
    """One pod of a summary."""

    pod_ref: PodRef = PodRef()
    cpu: CpuStats | None = None
    memory: MemoryStats | None = None
    network: NetworkStats | None = None
    volume: list[VolumeStats] = []


class Summary(View, frozen=True):
    """The body of /stats/summary of a kubelet (k8s.io/kubelet/pkg/apis/stats/v1alpha1)."""

    pods: list[PodStats] = []


@attrs.frozen
class PodUsage:
    """What a kubelet measured of a pod; None: not measured."""

    cores: Fraction | None = None
    memory: int | None = None
    received: int | None = None
    sent: int | None = None
    volumes: Mapping[Key, int] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Used:
    """A pod: what it requests, and what was measured of it."""

    peer: str
    direction: Direction
    namespace: str
    requests: Resources
    measured: PodUsage | None = None


@attrs.frozen(kw_only=True)
class Claimed:
    """A claim whose data is at the other side: bytes that it is given."""

    peer: str
    direction: Direction
    namespace: str
    size: Fraction


@attrs.frozen(kw_only=True)
class Carried:
    """What the tunnel to a peer carried since its device was made, in bytes."""

    received: int
    sent: int


@attrs.frozen(kw_only=True)
class Known:
    """All that is known; ``bounds`` by peer and direction, ``counted`` what quotas count, by peer and namespace.

    ``home`` has the names that namespaces of lent pods have in their own cluster.
    """

    names: Mapping[str, str]
    used: Sequence[Used] = ()
    claimed: Sequence[Claimed] = ()
    bounds: Mapping[tuple[str, Direction], Resources] = {}
    counted: Mapping[tuple[str, str], Resources] = {}
    carried: Mapping[str, Carried] = {}
    home: Mapping[str, str] = {}


def measured(body: bytes) -> dict[Key, PodUsage]:
    """Return what a summary says of pods; raises ValueError for what is none."""
    try:
        summary = msgspec.json.decode(body, type=Summary)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is no summary of a kubelet: {error}") from None
    return {Key(one.pod_ref.namespace, one.pod_ref.name): _of_stats(one) for one in summary.pods}


def _of_stats(one: PodStats) -> PodUsage:
    nano = _sane(one.cpu.usage_nano_cores if one.cpu is not None else None)
    net = one.network or NetworkStats()
    volumes = {
        Key(each.pvc_ref.namespace or one.pod_ref.namespace, each.pvc_ref.name): size
        for each in one.volume
        if each.pvc_ref is not None and (size := _sane(each.used_bytes)) is not None
    }
    return PodUsage(
        cores=Fraction(nano, 10**9) if nano is not None else None,
        memory=_sane(one.memory.working_set_bytes if one.memory is not None else None),
        received=_sane(net.rx_bytes),
        sent=_sane(net.tx_bytes),
        volumes=volumes,
    )


def _sane(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= LARGEST else None


def lenders_of(volumes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the cluster at which the data of a volume is, by the volume's name, as its node affinity says."""
    found = {}
    for one in volumes:
        required = (((one.get("spec") or {}).get("nodeAffinity") or {}).get("required")) or {}
        for term in required.get("nodeSelectorTerms") or []:
            for rule in term.get("matchExpressions") or []:
                if rule.get("key") == REMOTE_CLUSTER_LABEL and rule.get("operator") == "In" and rule.get("values"):
                    found[str(one["metadata"]["name"])] = str(rule["values"][0])
    return found


def usage_rows(known: Known) -> list[dict[str, Any]]:
    """Return for each peer and direction a row for each namespace, and before them one for all, with the bounds."""
    shares: list[Used | Claimed] = [*known.used, *known.claimed]
    pairs = {(one.peer, one.direction) for one in shares} | set(known.bounds)
    pairs |= {(peer, "lent") for peer, _ in known.counted}
    pairs |= {(peer, "borrowed") for peer in known.carried if not any(peer == one for one, _ in pairs)}
    rows = []
    for peer, direction in sorted(pairs, key=lambda one: (known.names.get(one[0], one[0]), one[0], one[1])):
        used = [one for one in known.used if (one.peer, one.direction) == (peer, direction)]
        claimed = [one for one in known.claimed if (one.peer, one.direction) == (peer, direction)]
        counted = {space: each for (of, space), each in known.counted.items() if of == peer and direction == "lent"}
        mine = {one.namespace for one in shares if (one.peer, one.direction) == (peer, direction)}
        spaces = sorted(mine | set(counted))
        bound = known.bounds.get((peer, direction), {})
        # The tunnel carries both directions: its bytes stand in the first row of the peer.
        first = direction == min(one for of, one in pairs if of == peer)
        carried = known.carried.get(peer) if first else None
        total = quantity.add(counted.values()) if counted else {}
        rows.append(_row(known, (peer, direction, ALL), used, claimed, bound=bound, counted=total, carried=carried))
        for space in spaces:
            of_space = [one for one in used if one.namespace == space]
            claims = [one for one in claimed if one.namespace == space]
            here = (peer, direction, space)
            rows.append(_row(known, here, of_space, claims, bound={}, counted=counted.get(space, {}), carried=None))
    return rows


def _row(
    known: Known,
    subject: tuple[str, Direction, str],
    used: Sequence[Used],
    claimed: Sequence[Claimed],
    *,
    bound: Resources,
    counted: Resources,
    carried: Carried | None,
) -> dict[str, Any]:
    peer, direction, space = subject
    requests = quantity.add(one.requests for one in used)
    seen = [one.measured for one in used]
    claims: dict[Key, int] = {}
    for one in seen:
        claims |= one.volumes if one is not None else {}
    return {
        "peer": known.names.get(peer, peer),
        "id": peer,
        "direction": direction,
        "namespace": printable(space),
        "home": printable(known.home.get(space, "")) if direction == "lent" else "",
        "pods": len(used),
        "requested": quantity.render_all({name: requests.get(name, Fraction(0)) for name in ("cpu", "memory")}),
        "measured": {
            "cpu": _total([one.cores if one is not None else None for one in seen], "cpu"),
            "memory": _total([one.memory if one is not None else None for one in seen], "memory"),
            "pods": sum(one is not None for one in seen),
        },
        "claimed": quantity.render(sum((one.size for one in claimed), Fraction(0)), resource="storage"),
        "stored": sum(claims.values()) if claims else None,
        "bound": quantity.render_all(bound),
        "counted": quantity.render_all(counted),
        "received": _sum([one.received if one is not None else None for one in seen]),
        "sent": _sum([one.sent if one is not None else None for one in seen]),
        "tunnel": {"received": carried.received, "sent": carried.sent} if carried is not None else None,
    }


def _sum(values: Sequence[Fraction | int | None]) -> Any:
    """Return the sum of what is known; None where nothing is."""
    found = [one for one in values if one is not None]
    return sum(found) if found else None


def _total(values: Sequence[Fraction | int | None], resource: str) -> str | None:
    total = _sum(values)
    return quantity.render(Fraction(total), resource=resource) if total is not None else None


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as people read it: "requested, measured used, of bound" in one cell for each resource."""
    bound, requested, used = row["bound"], row["requested"], row["measured"]
    claims = bound.get("requests.storage") or bound.get("storage")
    carried = row["tunnel"] or {"received": row["received"], "sent": row["sent"]}
    amounts = (carried["received"], carried["sent"])
    return {
        **row,
        "cpu": _cell(_cores(requested["cpu"]), _cores(used["cpu"]), _cores(bound.get("cpu"))),
        "memory": _cell(_size(requested["memory"]), _size(used["memory"]), _size(bound.get("memory"))),
        "storage": _cell(_size(row["claimed"]), _size(row["stored"]), _size(claims)) if row["claimed"] != "0" else "",
        "bytes": " / ".join(map(_size, amounts)) if None not in amounts else "",
    }


def _cell(requested: str, used: str, bound: str) -> str:
    return requested + (f" ({used} used)" if used else "") + (f" of {bound}" if bound else "")


def _cores(text: str | None) -> str:
    return f"{float(quantity.parse(text)):.3g}" if text is not None else ""


def _size(value: str | int | None) -> str:
    """Return bytes with a unit of which there is at least one."""
    if value is None:
        return ""
    amount = float(quantity.parse(str(value)))
    for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount >= size:
            return f"{amount / size:.3g}{unit}"
    return f"{amount:.0f}"
