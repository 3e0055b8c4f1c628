"""What ``up`` has to do, in its order, by what was found. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import attrs

State = Literal["done", "needed", "refused"]
Credentials = Literal["absent", "current", "usable", "rejected", "unreadable", "foreign"]
"""A kubeconfig on the host: none; as it would be written now; of this cluster, and accepted or rejected by it; of no
use at all; of another cluster."""
MARKS: Final = {"done": ("✓", "green"), "needed": ("+", ""), "refused": ("✗", "red")}


@attrs.frozen
class Kubeconfig:
    """The daemon's kubeconfig; ``ours`` if this program wrote it, and nobody changed it since."""

    path: str
    found: Credentials = "absent"
    ours: bool = False


@attrs.frozen
class DaemonUnit:
    """The daemon's unit; ``age`` in seconds is that of its process; ``problem`` is why no service can be run here."""

    unit: str
    enabled: bool = False
    running: bool = False
    age: float = 0.0
    problem: str = ""


@attrs.frozen
class Invitation:
    """The token of another cluster; ``problem`` is why it cannot be used, or ""."""

    issuer: str
    trusted: bool = False
    problem: str = ""


@attrs.frozen(kw_only=True)
class FoundSetup:
    """What was found; a sequence has one line for each thing.

    ``failed``: checks; ``obstacles``: what is in the way of files; ``files`` and ``objects``: what has to be written on
    the host, and in the cluster. ``packaged``: the host's files are a package's. ``outdated``: the unit is to be
    replaced, or unit or kubeconfig is younger than the process. ``service`` is None in a directory that is not this
    host's root. ``keyed`` says whether the cluster has its key, which the daemon makes at its first start.
    """

    kubeconfig: Kubeconfig
    failed: Sequence[str] = ()
    obstacles: Sequence[str] = ()
    files: Sequence[str] = ()
    objects: Sequence[str] = ()
    packaged: bool = False
    outdated: bool = False
    service: DaemonUnit | None = None
    keyed: bool = False
    invitation: Invitation | None = None


@attrs.frozen
class SetupStep:
    """One step: what it is about, whether it is done already, needed or refused, and why; ``lines`` are its details."""

    name: str
    state: State
    why: str
    lines: Sequence[str] = ()

    def as_row(self) -> dict[str, Any]:
        """Return the step as plain values."""
        return {"step": self.name, "state": self.state, "why": self.why, "lines": list(self.lines)}


def plan(found: FoundSetup) -> list[SetupStep]:
    """Return the steps in their order; if one is refused, none may be carried out."""
    steps = [checks(found.failed), _host(found), cluster(found.objects), credentials(found.kubeconfig)]
    if found.service is not None:
        service = _service(found.service, changed=found.outdated or steps[-1].state == "needed")
        steps += [service, _ready(found, service)]
    if found.invitation is not None:
        steps.append(peering(found.invitation))
    return steps


def refused(steps: Sequence[SetupStep]) -> list[str]:
    """Return why the steps cannot be carried out."""
    return [line for step in steps if step.state == "refused" for line in (step.lines or (step.why,))]


def is_needed(steps: Sequence[SetupStep]) -> bool:
    """Return whether anything is left to do."""
    return any(step.state == "needed" for step in steps)


def checks(failed: Sequence[str]) -> SetupStep:
    """Return the step for the prerequisites."""
    if failed:
        return SetupStep("check", "refused", "prerequisites are missing", failed)
    return SetupStep("check", "done", "the prerequisites are there")


def _host(found: FoundSetup) -> SetupStep:
    if found.obstacles:
        return SetupStep("host", "refused", "something is in the way", found.obstacles)
    if found.files:
        return SetupStep("host", "needed", "configuration, user, unit and completions", found.files)
    by = " by the package" if found.packaged else ""
    return SetupStep("host", "done", f"configuration, user, unit and completions are there{by}")


def cluster(objects: Sequence[str]) -> SetupStep:
    """Return the step for records, rights and policies; ``objects`` are those that have to be written."""
    if not objects:
        return SetupStep("cluster", "done", "records, rights and policies are as they should be")
    return SetupStep("cluster", "needed", f"missing, or not as needed: {counted(objects)}", sorted(objects))


def counted(objects: Sequence[str]) -> str:
    """Return how many objects there are of each kind; each is a line that begins with its kind."""
    kinds = Counter(line.split(" ")[0] for line in objects)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def credentials(file: Kubeconfig) -> SetupStep:
    """Return the step for the daemon's kubeconfig."""
    match (file.found, file.ours):
        case ("absent", _):
            return SetupStep("kubeconfig", "needed", f"write {file.path}, for the daemon's own account")
        case ("foreign", _):
            why = f"{file.path} is for another cluster; move it away, or choose that cluster with --kubeconfig"
            return SetupStep("kubeconfig", "refused", why)
        case ("current", _):
            return SetupStep("kubeconfig", "done", f"{file.path} is of the daemon's own account")
        case ("usable", False):
            return SetupStep("kubeconfig", "done", f"{file.path} is yours, and this cluster accepts it")
        case (_, True):
            return SetupStep("kubeconfig", "needed", f"replace {file.path}: it gets a new token of the account")
        case ("rejected", _):
            return SetupStep("kubeconfig", "refused", f"{file.path} is rejected by the API server; move it away")
    return SetupStep("kubeconfig", "refused", f"{file.path} cannot be used as a kubeconfig; move it away")


def _service(service: DaemonUnit, *, changed: bool) -> SetupStep:
    if service.problem:
        return SetupStep("service", "refused", service.problem)
    if not service.running:
        verb = "start" if service.enabled else "enable and start"
        return SetupStep("service", "needed", f"{verb} {service.unit}")
    if changed:
        return SetupStep("service", "needed", f"restart {service.unit}, to use what is new")
    if not service.enabled:
        return SetupStep("service", "needed", f"enable {service.unit}, which runs, for the next boot")
    return SetupStep("service", "done", f"{service.unit} is enabled and runs")


def _ready(found: FoundSetup, service: SetupStep) -> SetupStep:
    if found.keyed and service.state == "done":
        return SetupStep("ready", "done", "the daemon is ready")
    return SetupStep("ready", "needed", "wait until the daemon is ready")


def peering(invitation: Invitation) -> SetupStep:
    """Return the step for the token of another cluster."""
    if invitation.problem:
        return SetupStep("peering", "refused", invitation.problem)
    if invitation.trusted:
        return SetupStep("peering", "done", f"{invitation.issuer} and this cluster trust each other")
    return SetupStep("peering", "needed", f"peer with {invitation.issuer}")
