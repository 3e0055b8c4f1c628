"""What ``up --in-cluster`` has to do, in its order, by what was found; and how far pods are. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from liqod.cli.setup.up.plan import Invitation, SetupStep, checks, cluster, counted, peering
from liqod.cli.setup.up.pods.wanted import component_of

CONFIGURED: Final = "liqod.io/configuration"
"""The annotation of a pod with the digest of its configuration."""
HOPELESS: Final = frozenset(
    ("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CrashLoopBackOff")
)
"""Reasons for which a container waits that do not go away by waiting."""
TELLING: Final = 5
_SERIOUS: Final = re.compile(r'''#(?:warn|error|critical)\]|"level":"(?:warn|error|critical)"''')
_TIME: Final = re.compile(r"""^\d{4}-\S+ |"time":"[^"]*",?""")
"""Both in a line of the log as text, or as JSON."""


@attrs.frozen(kw_only=True)
class FoundInCluster:
    """What was found; a sequence has one line for each thing.

    ``objects``: records and rights to be written; ``pods``: objects of the pods to be written or removed;
    ``obstacles``: what is in the way of them. ``waiting``: pods that are not there or not ready; ``keyed``: the daemon
    has made the cluster's key and said what it found.
    """

    failed: Sequence[str] = ()
    obstacles: Sequence[str] = ()
    objects: Sequence[str] = ()
    pods: Sequence[str] = ()
    waiting: Sequence[str] = ()
    keyed: bool = False
    invitation: Invitation | None = None


def plan(found: FoundInCluster) -> list[SetupStep]:
    """Return the steps in their order; if one is refused, none may be carried out."""
    steps = [checks(found.failed), cluster(found.objects), _pods(found)]
    steps.append(_ready(found, changed=steps[-1].state == "needed"))
    if found.invitation is not None:
        steps.append(peering(found.invitation))
    return steps


def _pods(found: FoundInCluster) -> SetupStep:
    if found.obstacles:
        return SetupStep("pods", "refused", "something is in the way", found.obstacles)
    if found.pods:
        return SetupStep("pods", "needed", f"missing, or not as needed: {counted(found.pods)}", sorted(found.pods))
    return SetupStep("pods", "done", "the pods' objects are as they should be")


def _ready(found: FoundInCluster, *, changed: bool) -> SetupStep:
    if changed or found.waiting or not found.keyed:
        return SetupStep("ready", "needed", "wait until the pods are ready", found.waiting)
    return SetupStep("ready", "done", "the pods are ready")


@attrs.frozen
class Progressed:
    """How far the pods are: a line for each workload that is not ready, and why waiting is of no use, or "".

    ``unready`` is the name of a pod whose container runs, or did, and that is not ready, or "".
    """

    waiting: Sequence[str] = ()
    hopeless: str = ""
    unready: str = ""


def progress(workloads: Iterable[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> Progressed:
    """Return how far workloads are, with what their pods say."""
    lines: list[str] = []
    hopeless = unready = ""
    for one in workloads:
        name, component = one["metadata"]["name"], component_of({"metadata": one["spec"]["template"]["metadata"]})
        ready, wanted = counts(one)
        refusal = _refusal(one)
        if refusal:
            return Progressed((f"{name}: {refusal}",), f"the pods of {name} are refused: {refusal}")
        if ready >= wanted and _is_observed(one):
            continue
        mine = [pod for pod in pods if component_of(pod) == component]
        said = Counter(_phase(pod) for pod in mine if not _is_ready(pod))
        shown = ", ".join(f"{count} {phase}" for phase, count in sorted(said.items()))
        lines.append(f"{name}: {ready} of {wanted} ready{f' ({shown})' if shown else ''}")
        # What an earlier spec made may be what is mended now.
        problems = [_hopeless(pod) for pod in mine if _identity(pod["metadata"], pod) == _identity_of(one)]
        hopeless = hopeless or next(filter(None, problems), "")
        unready = unready or next((str(pod["metadata"]["name"]) for pod in mine if _has_log(pod)), "")
    return Progressed(tuple(lines), hopeless, unready)


def telling(log: str) -> list[str]:
    """Return what a log says of why its daemon does not work: its last warnings, or its last lines if it has none.

    What is said again and again is shown once, as it was said last.
    """
    lines = log.splitlines()
    latest: dict[str, str] = {}
    for line in filter(_SERIOUS.search, lines):
        said = _TIME.sub("", line)
        latest.pop(said, None)
        latest[said] = line
    return [*latest.values()][-TELLING:] or lines[-TELLING:]


def _identity_of(workload: Mapping[str, Any]) -> tuple[Any, Any]:
    template = workload["spec"]["template"]
    return _identity(template["metadata"], template)


def _identity(metadata: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what tells the pods of one spec from those of an earlier one: configuration and image."""
    container: Mapping[str, Any] = next(iter((pod.get("spec") or {}).get("containers") or ()), {})
    return (metadata.get("annotations") or {}).get(CONFIGURED), container.get("image")


def counts(workload: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many pods of the newest kind are ready, and how many must be."""
    status: Mapping[str, Any] = workload.get("status") or {}
    if workload["kind"] == "DaemonSet":
        ready = min(int(status.get("numberReady", 0)), int(status.get("updatedNumberScheduled", 0)))
        if workload["spec"].get("updateStrategy", {}).get("type") == "OnDelete":
            ready = int(status.get("numberReady", 0))
        return ready, int(status.get("desiredNumberScheduled", 0))
    ready = min(int(status.get("readyReplicas", 0)), int(status.get("updatedReplicas", 0)))
    return ready, int(workload["spec"].get("replicas", 1))


def _is_observed(workload: Mapping[str, Any]) -> bool:
    """Return whether its controller has seen the newest spec: before that the counts are of an earlier one."""
    seen = int((workload.get("status") or {}).get("observedGeneration", 0))
    return seen >= int(workload["metadata"].get("generation", 0))


def _refusal(workload: Mapping[str, Any]) -> str:
    conditions = (workload.get("status") or {}).get("conditions") or []
    return next(
        (
            str(one.get("message", ""))
            for one in conditions
            if one.get("type") == "ReplicaFailure" and one.get("status") == "True"
        ),
        "",
    )


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _has_log(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is not ready although its container was started."""
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    ran = any({"running", "terminated"} & {*(one.get("state") or ()), *(one.get("lastState") or ())} for one in found)
    return ran and not _is_ready(pod)


def _waiting(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return why the container of a pod waits; empty where it does not."""
    for one in (pod.get("status") or {}).get("containerStatuses") or []:
        found: Mapping[str, Any] = (one.get("state") or {}).get("waiting") or {}
        if found:
            return found
    return {}


def _phase(pod: Mapping[str, Any]) -> str:
    """Return in a word or two what a pod that is not ready does."""
    if pod["metadata"].get("deletionTimestamp"):
        return "ending"
    status: Mapping[str, Any] = pod.get("status") or {}
    if reason := _waiting(pod).get("reason"):
        return str(reason)
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or []
    scheduled = next((one for one in conditions if one.get("type") == "PodScheduled"), {})
    if scheduled.get("status") == "False":
        return f"not scheduled: {scheduled.get('message') or scheduled.get('reason')}"
    return "starting" if status.get("phase") == "Running" else str(status.get("phase") or "Pending").lower()


def _hopeless(pod: Mapping[str, Any]) -> str:
    found = _waiting(pod)
    reason = str(found.get("reason", ""))
    if reason not in HOPELESS or pod["metadata"].get("deletionTimestamp"):
        return ""
    message = str(found.get("message", ""))
    return f"the pod {pod['metadata']['name']} does not run: {reason}{f': {message}' if message else ''}"
