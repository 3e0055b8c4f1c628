"""What the pods of ``test`` show of themselves: states of containers, and why a pod does not run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from liqod.cli.console.render import join_reason, printable
from liqod.cli.network.connectivity.cases import Case
from liqod.model.objects.meta import Condition, Object, View, find_condition, is_true
from liqod.model.objects.pod import PodAddress
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.timestamps import parse_rfc3339

LONGEST: Final = 300
"""Characters that are shown of what a pod or a lender says."""
OWN_REASONS: Final = ("NotReflected", "RemoteNameTaken")
"""Reasons of events by which a daemon says that an object is not at a lender, besides the lender's own refusals."""
_IMAGE: Final = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable")


class ContainerStateTerminated(View, frozen=True):
    """The end of a container."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str = ""
    finished_at: str = ""


class ContainerStateWaiting(View, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerState(View, frozen=True):
    """The state of a container, one of three."""

    terminated: ContainerStateTerminated | None = None
    waiting: ContainerStateWaiting | None = None


class ContainerStatus(View, frozen=True):
    """A container's name and state."""

    name: str = ""
    state: ContainerState = ContainerState()


class ProbePodStatus(View, frozen=True):
    """What is read of a pod's status."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ips: list[PodAddress] = msgspec.field(name="podIPs", default=[])
    container_statuses: list[ContainerStatus] = []
    conditions: list[Condition] = []


class ProbePod(Object, frozen=True):
    """A pod of a test."""

    status: ProbePodStatus = ProbePodStatus()


class ProbeIngress(Object, frozen=True):
    """An ingress of a test."""

    status: dict[str, Any] = {}

    @property
    def address(self) -> str:
        """The first address or name at which it is reached; empty while it has none."""
        entries = (self.status.get("loadBalancer") or {}).get("ingress") or ()
        return next((str(one.get("ip") or one.get("hostname") or "") for one in entries), "")


@attrs.frozen
class CaseOutcome:
    """What a case came to: whether there was an answer (None: it could not be tried), the words, the seconds."""

    answered: bool | None
    said: str = ""
    seconds: float | None = None


TERMS: Final = ("PoliciesNotEnforced",)
"""Reasons for which a lender refuses a pod of the test by what it is, and would run the other ones."""


@attrs.frozen
class Stopped:
    """Why a pod did not run, and what to do about it."""

    cause: str
    advice: str

    @property
    def is_by_terms(self) -> bool:
        """Whether its lender refuses such pods, as its administrator wants it."""
        return self.cause.partition(":")[0] in TERMS


def observed(pod: ProbePod, wanted: Iterable[Case]) -> dict[Case, CaseOutcome]:
    """Return what the containers of a client that have ended came to."""
    ended = {one.name: one.state.terminated for one in pod.status.container_statuses}
    return {one: of_end(end) for one in wanted if (end := ended.get(one.name)) is not None}


def of_end(ended: ContainerStateTerminated) -> CaseOutcome:
    """Return what the end of a container means; only 0 and 1 say whether there was an answer."""
    said = printable(" ".join(ended.message.split()))[:LONGEST]
    took = _seconds(ended)
    if ended.exit_code in (0, 1):
        return CaseOutcome(not ended.exit_code, said, took)
    return CaseOutcome(
        None, said or f"the container ended with {ended.exit_code} {printable(ended.reason)}".strip(), took
    )


def _seconds(ended: ContainerStateTerminated) -> float | None:
    began, over = parse_rfc3339(ended.started_at), parse_rfc3339(ended.finished_at)
    return max(0.0, (over - began).total_seconds()) if began is not None and over is not None else None


def is_serving(pod: ProbePod | None) -> bool:
    """Return whether a server is ready and has an address."""
    if pod is None or pod.status.phase != "Running" or not pod.status.pod_ips:
        return False
    return is_true(pod.status.conditions, "Ready")


def is_refused(pod: ProbePod | None) -> bool:
    """Return whether a lender refuses such pods; it is of no use to wait for one."""
    return pod is not None and pod.status.phase == "Pending" and why_stopped(pod, "", "").is_by_terms


def is_over(pod: ProbePod | None, wanted: Sequence[Case]) -> bool:
    """Return whether nothing more is to be expected of a client."""
    if pod is None:
        return False
    return pod.status.phase in FINISHED or len(observed(pod, wanted)) == len(wanted)


def why_stopped(pod: ProbePod | None, name: str, peer: str) -> Stopped:
    """Return why a pod does not run; ``peer`` is the name of the one whose node it is for, empty for this cluster."""
    if pod is None:
        return Stopped("it was not created", "`liqodctl doctor`")
    status = pod.status
    for one in status.container_statuses:
        waiting = one.state.waiting
        if waiting is not None and waiting.reason in _IMAGE:
            why = join_reason(waiting.reason, waiting.message)
            return Stopped(shown(why), "name an image that every cluster can pull: `liqodctl test --image IMAGE`")
    scheduled = find_condition(status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status != "True":
        where = f"`liqodctl status {peer}`" if peer else "`kubectl describe nodes`"
        return Stopped(shown(join_reason(scheduled.reason, scheduled.message)), where)
    advice = f"`liqodctl explain peer {peer}`" if peer else f"`kubectl -n {pod.metadata.namespace} describe pod {name}`"
    offloaded = find_condition(status.conditions, "liqo.io/Offloaded")
    if offloaded is not None and offloaded.status != "True":
        return Stopped(shown(join_reason(offloaded.reason, offloaded.message)), advice)
    waits = [one.state.waiting for one in status.container_statuses if one.state.waiting is not None]
    why = join_reason(status.reason, status.message) or next(
        (join_reason(one.reason, one.message) for one in waits), ""
    )
    return Stopped(shown(why or f"it stays {status.phase or 'without a phase'}"), advice)


def refusals(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the words by which objects of the run were kept from a lender, by the object's name, from Events.

    Only warnings of the daemon's reflection count, and no events of pods.
    """
    found: dict[str, str] = {}
    for event in events:
        regarding = event.get("involvedObject") or {}
        message = str(event.get("message") or "")
        named = event.get("reason") in OWN_REASONS or message.startswith("not reflected to ")
        if event.get("type") == "Warning" and named and regarding.get("kind") in ("Service", "EndpointSlice"):
            found.setdefault(str(regarding.get("name") or ""), shown(message))
    return found


def shown(text: str) -> str:
    """Return what a pod, a lender or an API server said as one line that a terminal takes."""
    return printable(" ".join(text.split()))[:LONGEST]
