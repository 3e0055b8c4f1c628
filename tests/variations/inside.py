"""The oracle inside of a pod: what its own containers found out, against an ordinary pod of the same node. Pure.

What the API server shows is judged by ``seen`` and ``pods_seen``. Here counts what a process has, whatever is written
in the pod: a field that no oracle knows would show here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from attrs import frozen

from tests.variations.probe import BEGIN

_CAPABILITIES: Final = """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
    NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
    SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
    MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
    """.split()  # noqa: SIM905
"""The names by their numbers (capabilities(7))."""
_BASELINE: Final = frozenset(
    """
    AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID SYS_CHROOT
    """.split()  # noqa: SIM905
)
"""What a pod may add (Kubernetes: "Pod Security Standards", Baseline)."""
NAMESPACES_OF_NODE: Final = ("pid", "net", "ipc", "uts", "mnt")
"""The kinds of namespaces that a pod shares with its node when it has those of the host."""
_FILTERED: Final = 2
"""The mode of seccomp with a profile (proc_pid_status(5))."""


@frozen(kw_only=True)
class Report:
    """What one container found out: capabilities and those it could get as bits, its namespaces by their IDs.

    ``files`` and ``sockets`` are those of the node that it has, ``tokens`` of this cluster; ``devices`` counts block
    devices; ``masked`` and ``writable`` are of /proc; ``reached`` names the targets that took a connection.
    """

    probe: str
    uid: int
    gid: int
    capabilities: int
    bounding: int
    seccomp: int
    no_new_privileges: int
    namespaces: Mapping[str, str]
    devices: int
    masked: bool
    writable: bool
    files: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()


@frozen(kw_only=True)
class Surroundings:
    """Where the pods are: an ordinary pod's report, the node's own namespaces, the namespace's level of Pod Security.

    NetworkPolicies are enforced there, so that whatever is reached of the targets is a finding.
    """

    ordinary: Report
    node: Mapping[str, str]
    level: Literal["baseline", "restricted"] = "baseline"


def parse(log: str) -> Report | None:
    """Return the report in a container's log; None where it has none, or one that was cut off."""
    for line in reversed(log.splitlines()):
        if line.startswith(BEGIN):
            try:
                return _report(json.loads(line))
            except (ValueError, TypeError, KeyError):
                return None
    return None


def _report(body: dict[str, Any]) -> Report:
    lists = {name: tuple(body.pop(name)) for name in ("files", "sockets", "tokens", "reached")}
    bits = {name: int(body.pop(name), 16) for name in ("capabilities", "bounding")}
    fields: dict[str, Any] = {**body, **lists, **bits}
    return Report(**fields)


def capabilities(bits: int) -> frozenset[str]:
    """Return the names of capabilities; those that are not known yet by their numbers."""
    names = dict(enumerate(_CAPABILITIES))
    return frozenset(names.get(number, f"number {number}") for number in range(64) if bits >> number & 1)


def breaches(report: Report, around: Surroundings) -> Iterator[str]:
    """Yield what a container has that no tenant's may have, in words."""
    for kind, found in sorted(report.namespaces.items()):
        if found == around.node.get(kind):
            yield f"the node's own {kind} namespace"
    yield from _rights(report, around)
    for text in report.files:
        yield f"the file {text} of the node, or of others"
    for text in report.sockets:
        yield f"the socket {text} of the node"
    if report.tokens:
        yield f"{len(report.tokens)} tokens of this cluster"
    if report.devices > around.ordinary.devices:
        yield f"{report.devices} block devices"
    if around.ordinary.masked and not report.masked:
        yield "an unmasked /proc"
    if report.writable and not around.ordinary.writable:
        yield "settings of the node's kernel"
    for target in report.reached:
        yield f"a way to {target}"


def _rights(report: Report, around: Surroundings) -> Iterator[str]:
    allowed = capabilities(around.ordinary.bounding) | _BASELINE
    seccomp = around.ordinary.seccomp
    if around.level == "restricted":
        allowed, seccomp = frozenset({"NET_BIND_SERVICE"}), _FILTERED
        if report.uid == 0:
            yield "the user root"
        if not report.no_new_privileges:
            yield "new privileges"
    has = capabilities(report.capabilities) | (frozenset() if around.level == "restricted" else _bounding(report))
    for name in sorted(has - allowed):
        yield f"the capability {name}"
    if report.seccomp < seccomp:
        yield "no seccomp"


def _bounding(report: Report) -> frozenset[str]:
    """Return what the container's programs could get, be it by a file's capabilities."""
    return capabilities(report.bounding)


def is_over(body: Mapping[str, Any]) -> bool:
    """Return whether nothing more comes of a pod: it has ended, has no node, or a container that cannot be made."""
    status = body.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    if conditions.get("PodScheduled") == "False":
        return True
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [(one.get("state") or {}).get("waiting", {}).get("reason", "") for one in states]
    return any(reason in NEVER_MADE for reason in waiting)


NEVER_MADE: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Why a container waits that will not be made (Kubernetes, pkg/kubelet/container and pkg/kubelet/images)."""
