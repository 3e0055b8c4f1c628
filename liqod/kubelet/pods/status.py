"""Forges the home pod's status from the remote pod's (spec 004, "Pods offloading"): pure functions of status dicts.

Each function returns the whole desired status; the status writer sends only the difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from liqod.kubelet.common.context import Context
from liqod.kubelet.pods import status_resources, status_times
from liqod.kubelet.pods.generations import FIELD, UNKNOWN, Generations
from liqod.kubelet.pods.restarts import Tally

OFFLOADED_CONDITION: Final = "liqo.io/Offloaded"
BACK_OFF: Final = "OffloadingBackOff"
ABORTED: Final = "OffloadingAborted"
DISRUPTION: Final = "DisruptionTarget"
# The reason that a kubelet gives, with exit code 137, for a container that it cannot find
# (pkg/kubelet/kubelet_pods.go).
GONE: Final = "ContainerStatusUnknown"

# These describe the remote object's own generation, claims and scheduling.
_NOT_REFLECTED: Final = frozenset(
    {
        FIELD,
        "nominatedNodeName",
        "resourceClaimStatuses",
        "extendedResourceClaimStatus",
        "resize",
    }
)
_READY: Final = ("Ready", "ContainersReady")
# Conditions that a kubelet owns: they follow the remote pod even while the remote pod does not have them.
_NODE_OWNED: Final = frozenset(
    {
        *_READY,
        "Initialized",
        "PodReadyToStartContainers",
        "PodResizeInProgress",
        "PodResizePending",
        OFFLOADED_CONDITION,
    }
)
_GATES_CLOSED: Final = "ReadinessGatesNotReady"
_SPECS: Final = {"initContainerStatuses": "initContainers", "containerStatuses": "containers"}
_NAMES: Final = ("image", "imageID", "containerID")
# Names of images, and IDs of containers with a runtime in front (CRI, distribution/reference); none has a space.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}")
_CONTAINER_KINDS: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def forge_status(
    home: Mapping[str, Any],
    remote: Mapping[str, Any],
    *,
    tally: Tally,
    context: Context,
    now: str,
    spec: Mapping[str, Any],
    generations: Generations = UNKNOWN,
) -> dict[str, Any]:
    """Return the home pod's status for a remote pod's.

    Addresses are translated, the host's address is the virtual node's, restart counts include earlier remote pods. The
    QoS class (immutable in the API) and conditions that no kubelet writes belong to the home pod. ``spec`` is the home
    pod's: it decides which containers may not run again (the API refuses to change those from terminated). No date of
    the lender's is later than ``now``.
    """
    status = {key: value for key, value in remote.items() if key not in _NOT_REFLECTED and value is not None}
    for key in ("qosClass", "startTime"):
        if home.get(key) and (key == "qosClass" or key not in status):
            status[key] = home[key]
    status = status_times.of_start(status, home, now) | generations.of_status(home, remote)
    _addresses(status, remote, context)
    for kind in _CONTAINER_KINDS:
        if status.get(kind):
            status[kind] = _with_names(status_times.of_containers(status[kind], home.get(kind) or [], now))
    for kind in ("initContainerStatuses", "containerStatuses"):
        if status.get(kind):
            status[kind] = _containers(home.get(kind) or [], status[kind], kind, tally, spec)
    _ephemeral(status, home, spec)
    status = status_resources.within(status, spec.get("resources") or {}, home)
    gates = [gate.get("conditionType") for gate in spec.get("readinessGates") or []]
    # The condition of a readiness gate is owned by its controller in the home cluster.
    reported = [
        status_times.of_condition(one, now)
        for one in remote.get("conditions") or []
        if one.get("type") not in gates or one["type"] in _NODE_OWNED
    ]
    conditions = _conditions(home.get("conditions") or [], reported, generations, now)
    if gates:
        conditions = _through_gates(gates, conditions, home.get("conditions") or [], now)
    if conditions:
        status["conditions"] = conditions
    else:
        status.pop("conditions", None)
    return status


def _with_names(containers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return statuses of containers whose names of images and IDs are such, or empty: tools at home go by them."""
    return [{**one, **{key: "" for key in _NAMES if key in one and not _is_name(one[key])}} for one in containers]


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def _ephemeral(status: dict[str, Any], home: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    """Set the statuses of the home pod's ephemeral containers.

    Those of a replaced remote pod are terminated; those that were added at the lender are left out.
    """
    key = "ephemeralContainerStatuses"
    names = {container.get("name") for container in spec.get("ephemeralContainers") or []}
    present = {one.get("name"): one for one in status.pop(key, None) or [] if one.get("name") in names}
    ended = "terminated"
    for old in home.get(key) or []:
        # A terminated ephemeral container stays terminated. Source: Kubernetes API validation,
        # ValidateEphemeralContainerStateTransition.
        if old.get("name") not in present or ended in (old.get("state") or {}):
            present[old.get("name")] = old if ended in (old.get("state") or {}) else _ended(old, 137, GONE)
    if present:
        status[key] = list(present.values())


def not_ready_status(home: Mapping[str, Any], reason: str, message: str, now: str) -> dict[str, Any]:
    """Return the home pod's status with the pod and all its containers not ready, for this reason."""
    status = dict(home)
    conditions = [
        _not_ready(condition, reason, message, now) if condition.get("type") in _READY else condition
        for condition in home.get("conditions") or []
    ]
    if conditions:
        status["conditions"] = conditions
    for kind in _CONTAINER_KINDS:
        if any(container.get("ready") for container in home.get(kind) or []):
            status[kind] = [{**container, "ready": False} for container in home[kind]]
    return status


def _not_ready(condition: Mapping[str, Any], reason: str, message: str, now: str) -> dict[str, Any]:
    since = {"status": "False", "lastTransitionTime": now} if condition.get("status") == "True" else {}
    return {**condition, **since, "reason": reason, "message": message}


def keep_times(home: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status whose unchanged conditions keep their lastTransitionTime."""
    before = {condition.get("type"): condition for condition in home.get("conditions") or []}
    conditions = [
        _without_generation(old) | {key: new[key] for key in (FIELD,) if key in new}
        if (old := before.get(new.get("type"))) is not None and _same(old, new)
        else new
        for new in status.get("conditions") or []
    ]
    return {**status, "conditions": conditions} if conditions else dict(status)


def missing_status(home: Mapping[str, Any], reason: str, message: str, now: str) -> dict[str, Any]:
    """Return the status of a home pod that has none at the lender now: not ready, and nothing else is said of it."""
    status = _without_words(not_ready_status(home, reason, message, now))
    conditions = [one for one in status.pop("conditions", None) or [] if one.get("type") != OFFLOADED_CONDITION]
    return {**status, "conditions": conditions} if conditions else status


def refused_status(home: Mapping[str, Any], reason: str, message: str, now: str) -> dict[str, Any]:
    """Return the status of a home pod that cannot be offloaded: not ready, with the reason as a condition."""
    status = _without_words(not_ready_status(home, reason, message, now))
    status.setdefault("phase", "Pending")
    new = {"type": OFFLOADED_CONDITION, "status": "False", "reason": reason, "message": message}
    status["conditions"] = _with_condition(status.get("conditions") or [], new, now)
    return status


def not_offloaded_status(home: Mapping[str, Any], message: str, now: str) -> dict[str, Any]:
    """Return the status of a pod on the virtual node whose namespace is not offloaded.

    A pod that never ran is Pending with OffloadingBackOff, any other is Failed with OffloadingAborted.
    """
    ran = home.get("phase", "Pending") != "Pending" or bool(home.get("containerStatuses"))
    if not ran:
        return {**refused_status(home, BACK_OFF, message, now), "phase": "Pending", "reason": BACK_OFF}
    return ended_status(refused_status(home, ABORTED, message, now), "Failed", ABORTED, message)


def ended_status(home: Mapping[str, Any], phase: str, reason: str, message: str) -> dict[str, Any]:
    """Return the status of a pod that terminated without a final report: all its containers are terminated.

    The exit code of those of a pod that failed is not known, and that which a kubelet gives then: 137.
    """
    status = {**home, "phase": phase, "reason": reason, "message": message}
    code = 137 if phase == "Failed" else 0
    for kind in _CONTAINER_KINDS:
        if home.get(kind):
            status[kind] = [_ended(container, code, reason) for container in home[kind]]
    return status


def _without_words(status: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if key not in ("reason", "message")}


def _ended(container: Mapping[str, Any], code: int, reason: str) -> dict[str, Any]:
    ended = {**container, "ready": False, "started": False}
    if "terminated" not in (container.get("state") or {}):
        ended["state"] = {"terminated": {"exitCode": code, "reason": reason}}
    return ended


def is_ready(status: Mapping[str, Any]) -> bool:
    """Return whether a pod status has the condition Ready with status True."""
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or [])


def _addresses(status: dict[str, Any], remote: Mapping[str, Any], context: Context) -> None:
    for key in ("podIP", "podIPs", "hostIP", "hostIPs"):
        status.pop(key, None)
    mapped = [context.network.to_home(address) for address in _addresses_of(remote)]
    if mapped and mapped[0]:
        # podIPs[0] must equal podIP (PodStatus.podIPs), which single-stack clients read: the home's primary IP version.
        known = sorted(
            (address for address in mapped if address), key=lambda one: _is_second(one, context.node_address)
        )
        status["podIP"] = known[0]
        status["podIPs"] = [{"ip": address} for address in known]
    if remote.get("hostIP") and context.node_address:
        status["hostIP"] = context.node_address
        status["hostIPs"] = [{"ip": context.node_address}]


def refused_addresses(remote: Mapping[str, Any], context: Context) -> str:
    """Return which addresses of the remote pod are not shown, and why; empty if all are."""
    found = ((address, context.network.refusal(address)) for address in _addresses_of(remote))
    return "; ".join(f"{address} {why}" for address, why in found if why)


def _addresses_of(remote: Mapping[str, Any]) -> list[str]:
    addresses = [str(entry.get("ip") or "") for entry in remote.get("podIPs") or []]
    if not addresses and remote.get("podIP"):
        addresses = [str(remote["podIP"])]
    return [address for address in addresses if address]


def _is_second(address: str, node_address: str) -> bool:
    return bool(node_address) and (":" in address) != (":" in node_address)


def _containers(
    home: Iterable[Mapping[str, Any]],
    remote: Iterable[Mapping[str, Any]],
    kind: str,
    tally: Tally,
    spec: Mapping[str, Any],
) -> list[dict[str, Any]]:
    before = {container.get("name"): container for container in home}
    # Containers that the lender's admission webhooks add (sidecars) are not part of the home pod.
    specs = spec.get(_SPECS[kind]) or []
    left = [container.get("name") for container in specs]
    resources = {container.get("name"): container.get("resources") or {} for container in specs}
    forged = []
    for container in remote:
        if spec.get("containers"):
            if container.get("name") not in left:
                continue
            left.remove(container.get("name"))
        old = before.get(container.get("name"))
        if (
            old is not None
            and _may_not_run_again(old, kind, spec)
            and "terminated" not in (container.get("state") or {})
        ):
            forged.append(dict(old))
            continue
        count = tally.count(str(container.get("name", "")), int(container.get("restartCount") or 0))
        own = resources.get(container.get("name"))
        held = container if own is None else status_resources.within(container, own, old or {})
        forged.append({**held, "restartCount": count})
    return forged


def _may_not_run_again(old: Mapping[str, Any], kind: str, spec: Mapping[str, Any]) -> bool:
    # Source: Kubernetes API validation, ValidateContainerStateTransition.
    terminated = (old.get("state") or {}).get("terminated")
    policy = spec.get("restartPolicy", "Always")
    if not terminated or policy == "Always" or (policy == "OnFailure" and terminated.get("exitCode") != 0):
        return False
    if kind == "initContainerStatuses":
        containers = spec.get("initContainers") or []
        return not any(c.get("name") == old.get("name") and c.get("restartPolicy") == "Always" for c in containers)
    return True


def _conditions(
    home: list[dict[str, Any]], remote: list[dict[str, Any]], generations: Generations, now: str
) -> list[dict[str, Any]]:
    before = {condition.get("type"): condition for condition in home}
    forged = []
    for condition in remote:
        if condition.get("type") == DISRUPTION:
            # The lender re-creates a pod that it evicted or preempted: the home pod is not disrupted.
            continue
        old = before.pop(condition.get("type"), None)
        if old is None or not _same(old, condition):
            kept = {key: value for key, value in condition.items() if value is not None}
        else:
            kept = old
        forged.append(_without_generation(kept) | generations.of_condition(old, condition))
    for kind, old in before.items():
        if kind in _READY:
            forged.append(_not_ready(old, "RemotePodPending", "the remote pod does not say that it is ready", now))
        elif kind not in _NODE_OWNED:
            forged.append(old)
    return forged


def _through_gates(
    gates: Sequence[Any], forged: list[dict[str, Any]], home: Iterable[dict[str, Any]], now: str
) -> list[dict[str, Any]]:
    """Return the conditions of a pod with readiness gates, evaluated with the gates' conditions at home.

    The remote kubelet does not see the conditions that controllers write to the home pod, and therefore reports the pod
    as not ready. Source: kubelet, pkg/kubelet/status/generate.go, GeneratePodReadyCondition.
    """
    known = {condition.get("type"): condition.get("status") for condition in forged}
    closed = [
        f'corresponding condition of pod readiness gate "{gate}" does not exist.'
        if gate not in known
        else f'the status of pod readiness gate "{gate}" is not "True", but {known[gate]}'
        for gate in gates
        if known.get(gate) != "True"
    ]
    new: dict[str, Any] = {"type": "Ready", "status": "True"}
    if closed:
        new |= {"status": "False", "reason": _GATES_CLOSED, "message": ", ".join(closed)}
    before = next((condition for condition in home if condition.get("type") == "Ready"), {})
    ready: dict[str, Any] = next((condition for condition in forged if condition.get("type") == "Ready"), {})
    if FIELD in ready:
        new[FIELD] = ready[FIELD]
    new["lastTransitionTime"] = before.get("lastTransitionTime", now) if before.get("status") == new["status"] else now
    if _same(before, new):
        new = {**before, **new}
    return [
        new if condition.get("type") == "Ready" and condition.get("reason") == _GATES_CLOSED else condition
        for condition in forged
    ]


def _without_generation(condition: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in condition.items() if key != FIELD}


def _same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return all((left.get(key) or "") == (right.get(key) or "") for key in ("status", "reason", "message"))


def _with_condition(conditions: list[dict[str, Any]], new: dict[str, Any], now: str) -> list[dict[str, Any]]:
    for index, old in enumerate(conditions):
        if old.get("type") == new["type"]:
            since = old.get("lastTransitionTime", now) if old.get("status") == new["status"] else now
            return [*conditions[:index], {**new, "lastTransitionTime": since}, *conditions[index + 1 :]]
    return [*conditions, {**new, "lastTransitionTime": now}]
