"""Finds what is wrong with the processes of the daemon, by the Lease that each of them renews. Pure.

The Lease of a process that cannot work says why; that of a process that is gone is not renewed. Clocks of hosts are not
trusted: the API server dates each write (``metadata.managedFields``). By its date the age of a renewal is known, and
what the process wrote beside it shows how far off the clock of its host is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

import attrs
import msgspec

from liqod.model.diagnosis.installation import SKEW_FATAL, SKEW_WARNING, Unmet
from liqod.model.diagnosis.problem import PROCESSES, Kind, Problem, Severity
from liqod.model.ids import Key
from liqod.model.names import FIELD_MANAGER, PROCESS_ANNOTATION, PROCESS_LABEL
from liqod.model.objects.meta import Object, ObjectMeta, View
from liqod.model.records.name_service import LABEL as NAMES_LABEL
from liqod.model.records.name_service import LeaseSpec
from liqod.model.timestamps import parse_rfc3339

Activity = Literal["begins", "works", "stands by", "waits", "ends"]
"""What a process does: it works as the only one of its kind, or alone; it stands by for the one that does; it waits
since it cannot work."""

RENEW: Final = 20.0
"""Seconds between two renewals of the Lease of a process."""
DURATION: Final = 60
"""Seconds after which a process that has not renewed its Lease is silent: three renewals."""
MOST_UNMET: Final = 5
"""What a process lacks, at most, in its Lease."""
LONGEST_CAUSE: Final = 500
"""Characters of each sentence there."""

UNITS: Final[Mapping[str, str]] = {
    "all": "liqod",
    "control": "liqod-control",
    "network": "liqod-network",
    "node": "liqod-network",
    "names": "liqod-names",
}
"""The unit of systemd of each role."""
PREFIX: Final = "liqod-process-"
"""What the names of Leases of processes begin with; their role follows."""
LEADERS: Final = ("all", "control")
"""Roles of which one process leads the cluster."""
_WRITERS: Final = (FIELD_MANAGER, "liqodctl")
"""Who renews leases, as the API server names writers: by the user agent."""
_PASSING: Final = ("Starting", "Stopping", "LeaderUnknown")
"""Reasons that last for seconds."""
_NAME: Final = re.compile(r"[^a-z0-9.-]+")


class Lack(View, frozen=True):
    """One thing that a process lacks: a reason, and a sentence."""

    code: str = ""
    cause: str = ""


class ProcessState(View, frozen=True):
    """What a process says of itself; ``webhook`` is where the API server is to call it, empty where it serves none."""

    role: str = ""
    host: str = ""
    state: str = ""
    webhook: str = ""
    unmet: list[Lack] = []


class WriteStamp(View, frozen=True):
    """When a writer of an object wrote last, by the API server's clock."""

    manager: str = ""
    time: str | None = None


class StampedMeta(ObjectMeta, frozen=True):
    """Metadata with the dates of the writers."""

    managed_fields: list[WriteStamp] = []


class ProcessLease(Object, frozen=True):
    """A Lease in the namespace of the daemon."""

    metadata: StampedMeta = StampedMeta()
    spec: LeaseSpec = LeaseSpec()

    @property
    def written(self) -> datetime | None:
        """When the daemon wrote it last, by the API server's clock; None where that does not say."""
        dates = [parse_rfc3339(one.time) for one in self.metadata.managed_fields if one.manager in _WRITERS]
        return max((date for date in dates if date is not None), default=None)

    def age(self, now: datetime) -> float | None:
        """Return the seconds since the last renewal; None without one, or without a holder."""
        renewed = parse_rfc3339(self.spec.renew_time)
        if renewed is None or not self.spec.holder_identity:
            return None
        return max(0.0, (now - (self.written or renewed)).total_seconds())

    def skew(self, now: datetime) -> float | None:
        """Return by how many seconds the holder's clock was ahead of the API server's; None where it is not known.

        Without a date of the API server's only a renewal in the future shows that.
        """
        renewed, written = parse_rfc3339(self.spec.renew_time), self.written
        if renewed is None:
            return None
        if written is not None:
            return (renewed - written).total_seconds()
        ahead = (renewed - now).total_seconds()
        return ahead if ahead >= SKEW_WARNING else None


@attrs.frozen(kw_only=True)
class ProcessFacts:
    """One process, by its Lease; ``identity`` is its name as a candidate, ``skew`` as in ``ProcessLease``."""

    role: str
    host: str
    identity: str
    lease: Key
    state: str
    age: float
    silent: bool = False
    skew: float | None = None
    webhook: str = ""
    unmet: tuple[Unmet, ...] = ()

    @property
    def title(self) -> str:
        """The process, for people."""
        return f"{UNITS.get(self.role, 'liqod')} on {self.host}"

    @property
    def is_working(self) -> bool:
        """Whether it does what one process of its kind alone does."""
        return not self.silent and self.state == "works"

    @property
    def is_standing_by(self) -> bool:
        """Whether it would take over."""
        return not self.silent and self.state == "stands by"


def lease_name(role: str, host: str) -> str:
    """Return the name of the Lease of a process; that of a host with a role is always the same."""
    plain = _NAME.sub("-", host.lower())[:200].strip("-.")
    return f"{PREFIX}{role}-{plain or 'host'}"


def process_of(lease: ProcessLease, now: datetime) -> ProcessFacts | None:
    """Return the process of a Lease; None for another Lease, and for one whose process ended in order."""
    meta, age = lease.metadata, lease.age(now)
    if age is None:
        return None
    holder = lease.spec.holder_identity
    if PROCESS_LABEL in meta.labels:
        said = _said(meta.annotations.get(PROCESS_ANNOTATION, ""))
        if not meta.name.startswith(f"{PREFIX}{said.role}-"):
            return None  # Who may write some Leases, by their names, speaks for no other process.
    elif NAMES_LABEL in meta.labels:
        said = ProcessState(role="names", host=holder, state="works")
    else:
        return None
    return ProcessFacts(
        role=said.role,
        host=said.host or holder,
        identity=holder,
        lease=meta.key,
        state=said.state,
        age=age,
        silent=age > max(DURATION, lease.spec.lease_duration_seconds),
        skew=lease.skew(now),
        webhook=said.webhook,
        unmet=tuple(Unmet(one.code, one.cause) for one in said.unmet[:MOST_UNMET] if one.code),
    )


def processes_of(leases: Iterable[ProcessLease], now: datetime) -> list[ProcessFacts]:
    """Return the processes of Leases, by role and host."""
    found = [one for lease in leases if (one := process_of(lease, now)) is not None]
    return sorted(found, key=lambda one: (one.role, one.host, one.identity))


def _said(text: str) -> ProcessState:
    try:
        return msgspec.json.decode(text, type=ProcessState)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ProcessState()


def of_processes(processes: Sequence[ProcessFacts], holder: str, *, leads: bool) -> Iterator[Problem]:
    """Yield what is wrong with processes; ``holder`` has the lease of the cluster, and ``leads`` while it renews it."""
    for one in processes:
        others = [other for other in processes if other is not one and _group(other) == _group(one)]
        is_covered = any(other.is_working for other in others)
        if one.silent:
            yield from _silent(one, holder, leads=leads, is_covered=is_covered)
            continue
        yield from _unable(one, is_covered=is_covered)
        yield from _clock(one)


def _group(process: ProcessFacts) -> str:
    """Return what those processes share of which one does the work: an agent of a node is alone on its host."""
    if process.role in LEADERS:
        return "leaders"
    return f"node {process.host}" if process.role == "node" else process.role


def _silent(one: ProcessFacts, holder: str, *, leads: bool, is_covered: bool) -> Iterator[Problem]:
    if one.role in LEADERS and one.identity == holder:
        return  # Its other lease, by which it leads, says so.
    since = f"has not renewed its Lease for {one.age:.0f} s: it hangs, or its host is gone"
    if one.role in LEADERS and not leads:
        yield _about(one, "DaemonSilent", f"it {since}")
    elif one.role in LEADERS or (one.role == "network" and is_covered):
        yield _about(one, "StandbySilent", f"it would take over, and {since}", "warning")
    elif one.role == "network":
        yield _about(one, "AgentSilent", f"the gateway's network agent {since}; tunnels stay as they were")
    elif one.role == "node":
        yield _about(one, "AgentSilent", f"the network agent of this node {since}; its routes stay as they were")
    else:
        yield _about(one, "NamesSilent", f"it answers for names, and {since}", "warning" if is_covered else "error")


def _unable(one: ProcessFacts, *, is_covered: bool) -> Iterator[Problem]:
    for lack in one.unmet:
        severity: Severity = "warning" if is_covered and one.state == "waits" else "error"
        if lack.code in _PASSING:
            severity = "info"
        yield attrs.evolve(_about(one, lack.code, lack.cause, severity), advice="")


def _clock(one: ProcessFacts) -> Iterator[Problem]:
    skew = one.skew
    if skew is None or abs(skew) < SKEW_WARNING or any(lack.code == "ClockSkew" for lack in one.unmet):
        return
    side = "ahead of" if skew > 0 else "behind"
    found = _about(
        one,
        "ClockSkew",
        f"the clock of its host is {abs(skew):.0f} s {side} the API server's",
        "error" if abs(skew) >= SKEW_FATAL else "warning",
    )
    yield attrs.evolve(found, advice=f"on {one.host}: `timedatectl set-ntp true`; have both set by NTP")


def without_agent(processes: Sequence[ProcessFacts], holder: str, *, holds: bool) -> Iterator[Problem]:
    """Yield that nobody makes the network that control wants; ``holder`` had the lease of agents, empty if it let go.

    An agent that is silent, or cannot work, is a problem of its own.
    """
    is_split = any(one.is_working and one.role == "control" for one in processes)
    known = [one for one in processes if one.role == "network"]
    if not is_split or holds or any(one.silent or one.unmet for one in known):
        return
    last = f"the last one, {holder}, does not renew its lease" if holder else "the last one was stopped"
    yield Problem(
        code="NoNetworkAgent",
        kind="host",
        name="liqod-network",
        cause=f"no network agent runs, so that tunnels and routes follow no change: {last}",
        advice="on the gateway's host: `systemctl status liqod-network`; `journalctl -u liqod-network`",
        topic=PROCESSES,
    )


def _about(one: ProcessFacts, code: str, cause: str, severity: Severity = "error") -> Problem:
    kind: Kind = "host" if one.role in ("network", "node") else "daemon"
    unit = UNITS.get(one.role, "liqod")
    return Problem(
        code=code,
        kind=kind,
        name=one.title,
        cause=cause,
        severity=severity,
        advice=f"on {one.host}: `systemctl status {unit}`, `journalctl -u {unit}`; where it is gone for good: "
        f"`kubectl -n {one.lease.namespace} delete lease {one.lease.name}`",
        topic=PROCESSES,
    )
