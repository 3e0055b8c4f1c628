"""Decides the next step for one pod: a pure function of the observed state at home and at the lender.

One step is decided at a time. Applying it changes the observed state, which enqueues the pod again until nothing is
left to do. Decide only after the caches of home pods, ShadowPods and remote pods have synced: before, a missing object
may exist.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve, frozen

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.egress import DENIED
from liqod.kubelet.common.messages import clean_message, clean_reason
from liqod.kubelet.common.meta import FORGED_ANNOTATION, home_uid, is_of_node, is_ours
from liqod.kubelet.common.readiness import CREDENTIAL_REJECTED
from liqod.kubelet.common.views import HomePod, RemotePod, Shadow, decoded
from liqod.kubelet.pods.forge import digest_of, digest_of_spec, forge_patch, forge_shadow
from liqod.kubelet.pods.generations import Generations
from liqod.kubelet.pods.offloading_patch import PATCHED_ANNOTATION, contradiction, placement_digest
from liqod.kubelet.pods.restarts import Tally
from liqod.kubelet.pods.status import (
    ABORTED,
    BACK_OFF,
    OFFLOADED_CONDITION,
    ended_status,
    forge_status,
    is_ready,
    keep_times,
    missing_status,
    not_offloaded_status,
    not_ready_status,
    refused_addresses,
    refused_status,
)
from liqod.model.names import (
    DELETION_GRACE_ANNOTATION,
    FINISHED_ANNOTATION,
    HOME_SPEC_ANNOTATION,
    RUNTIME_CLASS,
)
from liqod.model.objects.pod_completion import FINISHED, is_to_return

DEFAULT_GRACE: Final = 30
"""Grace period in seconds of a pod that names none. Source: Kubernetes API, PodSpec.terminationGracePeriodSeconds."""
CONTRADICTS: Final = "PatchContradicts"
ADDRESS_REFUSED: Final = "AddressRefused"
GRACE_DEADLINE: Final = 10.0
"""Seconds within which a lender must start to delete a pod with the requested grace period."""


@frozen
class Report:
    """A warning to record as an event of the home pod."""

    reason: str
    message: str


@frozen
class Create:
    """Create the ShadowPod."""

    body: dict[str, Any]


@frozen
class Patch:
    """Bring the ShadowPod up to date by a merge patch."""

    patch: dict[str, Any]


@frozen
class DeleteShadow:
    """Delete the ShadowPod that has this UID."""

    uid: str


@frozen
class DeleteHome:
    """Delete the home pod that has this UID, with grace period 0."""

    uid: str


@frozen
class WriteStatus:
    """Write this status of the home pod; ``report`` is recorded as an event unless it was recorded before."""

    status: dict[str, Any]
    report: Report | None = None


@frozen
class Keep:
    """Do nothing; ``why`` is for readers and tests, ``again`` is the number of seconds until the next reconcile."""

    why: str = ""
    again: float | None = None


@frozen
class Skip:
    """Do nothing, because an object that is not ours has the name; ``report`` becomes a condition and an event."""

    report: Report


Decision = Create | Patch | DeleteShadow | DeleteHome | WriteStatus | Keep | Skip


@frozen(kw_only=True)
class _Observed:
    """The objects of one pod in both clusters, and what statuses are forged with."""

    home: HomePod | None
    shadow: Shadow | None
    remote: RemotePod | None
    context: Context
    tally: Tally | None
    now: str


def decide(
    home: HomePod | None,
    shadow: Shadow | None,
    remote: RemotePod | None,
    *,
    context: Context,
    namespace: str,
    tally: Tally | None,
    now: str,
    lender_lost: bool = False,
    ended: RemotePod | None = None,
    grace_ignored: bool = False,
    held: str | None = None,
) -> Decision:
    """Return the next step for a pod of an offloaded namespace.

    ``namespace`` is the remote one; ``tally`` counts restarts of the remote pod (None without one); ``now`` is RFC
    3339. ``lender_lost``: a deleted pod has waited for the lender long enough. ``ended``: the last state of a remote
    pod that terminated and is gone. ``grace_ignored``: the lender did not apply the requested grace period in time.
    ``held``: the digest of an update that must wait, because the lender refused it a moment ago, say; statuses do not
    wait for it.
    """
    observed = _Observed(home=home, shadow=shadow, remote=remote, context=context, tally=tally, now=now)
    if home is not None and home.metadata.deleting:
        return _end(_own(observed, home), lender_lost=lender_lost, grace_ignored=grace_ignored, ended=ended)
    if home is None:
        left = shadow is not None and is_ours(shadow.metadata, context) and is_of_node(shadow.metadata, context)
        return _delete(shadow) if shadow is not None and left else Keep("there is no such pod")
    for seen in (shadow, remote):
        if seen is not None and not is_ours(seen.metadata, context):
            return Skip(name_taken_report(seen.metadata.name, namespace))
    if shadow is not None and not is_of_node(shadow.metadata, context):
        return Skip(name_taken_report(shadow.metadata.name, namespace))
    status = decoded(home.status)
    if status.get("phase") in FINISHED:
        step = _finished(home, status, shadow, remote)
        more = isinstance(step, Keep) and shadow is not None and _has_news(home, status, remote)
        if not more or remote is None or tally is None:
            return step
        return _write_home(observed, home, remote, tally)
    if shadow is not None and home_uid(shadow.metadata) != home.metadata.uid:
        return _delete(shadow)
    if why := context.egress.value.objection("pod", home.metadata.namespace, home.metadata.labels):
        return _stay(status, shadow, why, now)
    if shadow is None:
        return _write_end(observed, home, ended) or _create(observed, home, namespace)
    unseen = remote is None and shadow.status.phase not in FINISHED
    if unseen and ended is not None and tally is not None and _has_ended(home, ended):
        return _write_home(observed, home, ended, tally)
    return _follow(observed, home, shadow, held)


def decide_unreachable(
    home: HomePod, decision: Decision, now: str, *, silent: bool, rejected: bool = False
) -> Decision:
    """Return the decision that replaces ``decision`` while the lender does not answer (``silent``: for long).

    After ``silent`` running pods become not ready, as on a silent node, so that services leave them out (node lifecycle
    controller, MarkPodsNotReady). Before, no pod that is not ready becomes ready: the lender's state is stale.
    ``rejected``: it answers that it does not accept the credential. Then a pod whose ShadowPod is gone does not run
    either, and cannot be created again: it becomes not ready as well.
    """
    status = decoded(home.status)
    reason, message = "LenderUnreachable", "the lender has not answered for long"
    if rejected:
        reason, message = CREDENTIAL_REJECTED, "the lender does not accept the credential that it granted"
        if silent and isinstance(decision, Create) and is_ready(status) and not home.metadata.deleting:
            message += "; the pod is gone there, and is created again when it does"
            return _write(status, not_ready_status(status, reason, message, now), None)
    if home.metadata.deleting or not isinstance(decision, WriteStatus | Keep) or status.get("phase") in FINISHED:
        return decision
    new = decision.status if isinstance(decision, WriteStatus) else status
    if new.get("phase") in FINISHED:
        return decision
    if not is_ready(status):
        return Keep("the lender does not answer") if silent or is_ready(new) else decision
    if not silent:
        return decision
    return _write(status, not_ready_status(status, reason, message, now), None)


def decide_network_down(home: HomePod, decision: Decision, now: str) -> Decision:
    """Return the decision that replaces ``decision`` while the network is down although the lender's API answers.

    Services would send clients to unreachable addresses, so no pod is ready at home. The rest of the remote status is
    reflected as usual; nothing is deleted or evicted.
    """
    status = decoded(home.status)
    if home.metadata.deleting or not isinstance(decision, WriteStatus | Keep) or status.get("phase") in FINISHED:
        return decision
    new = decision.status if isinstance(decision, WriteStatus) else status
    if new.get("phase") in FINISHED or not is_ready(new):
        return decision
    message = "no packet crosses between the clusters: the TunnelEndpoint says where it is cut"
    return _write(status, keep_times(status, not_ready_status(new, "NetworkDown", message, now)), None)


def decide_not_offloaded(home: HomePod | None, message: str, now: str) -> Decision:
    """Return the next step for a pod on the virtual node whose namespace is not offloaded to it."""
    if home is None:
        return Keep("there is no such pod")
    if home.metadata.deleting:
        return delete_home(home, now)
    status = decoded(home.status)
    if status.get("phase") in FINISHED:
        return Keep("the pod has finished")
    if decoded(home.spec).get("runtimeClassName") == RUNTIME_CLASS:
        message += f" (its runtimeClassName {RUNTIME_CLASS} asks for virtual nodes: without it a pod can run here)"
    new = not_offloaded_status(status, message, now)
    return _write(status, new, Report(str(new.get("reason", BACK_OFF)), message))


def decide_refused(home: HomePod | None, reason: str, message: str, now: str) -> Decision:
    """Return the next step for a pod that the lender or a rule of this cluster refuses, for the given reason."""
    if home is None:
        return Keep("there is no such pod")
    if home.metadata.deleting:
        return delete_home(home, now)
    status = decoded(home.status)
    if status.get("phase") in FINISHED:
        return Keep("the pod has finished")
    reason, message = clean_reason(reason, "Refused"), clean_message(message)
    return _write(status, refused_status(status, reason, message, now), Report(reason, message))


def _stay(status: dict[str, Any], shadow: Shadow | None, why: str, now: str) -> Decision:
    """Return the next step for a pod that may not leave home, by the rules of this cluster.

    One that has left ends, with all that is there of it: its controller makes another, which is scheduled again.
    """
    message = clean_message(f"the pod may not leave: {why}")
    new = refused_status(status, DENIED, message, now)
    if shadow is not None or status.get("phase", "Pending") != "Pending" or status.get("containerStatuses"):
        new = ended_status(new, "Failed", ABORTED, message)
    return _write(status, new, Report(DENIED, message))


def _create(observed: _Observed, home: HomePod, namespace: str) -> Decision:
    """Return the next step for a pod without a ShadowPod."""
    if observed.remote is not None:
        return Keep("the pod that an earlier ShadowPod left at the lender is still going away")
    status, spec, context = decoded(home.status), decoded(home.spec), observed.context
    if why := contradiction(spec, context.patch.value):
        return _write(status, refused_status(status, CONTRADICTS, why, observed.now), Report(CONTRADICTS, why))
    return Create(forge_shadow(home.metadata, spec, namespace, context))


def _follow(observed: _Observed, home: HomePod, shadow: Shadow, held: str | None) -> Decision:
    """Return the next step for a pod that has its ShadowPod: bring that up to date, or write the remote status home."""
    status, remote, context, now = decoded(home.status), observed.remote, observed.context, observed.now
    spec = decoded(home.spec)
    if _is_to_be_placed_again(shadow, remote, context):
        return _delete(shadow)
    wanted = digest_of(home.metadata, spec, context)
    if not shadow.metadata.deleting and wanted not in (shadow.metadata.annotations.get(FORGED_ANNOTATION), held):
        return Patch(forge_patch(home.metadata, spec, shadow.metadata, context))
    there = shadow.status
    if remote is not None and home_uid(remote.metadata) not in ("", home.metadata.uid):
        remote = None
    if remote is None or remote.metadata.deleting or _returns(home, remote):
        if there.phase in FINISHED:
            return _write(status, _ended(status, there.phase, there.reason, there.message, now), None)
        if there.reason:
            reason, message = clean_reason(there.reason, "Refused"), clean_message(there.message)
            return _write(status, refused_status(status, reason, message, now), Report(reason, message))
        message = "the pod at the lender is gone; it is re-created there"
        return _write(status, missing_status(status, "RemotePodMissing", message, now), None)
    if observed.tally is None:
        return Keep("the restarts of the remote pod are not counted yet")
    return _write_home(observed, home, remote, observed.tally)


def _is_to_be_placed_again(shadow: Shadow, remote: RemotePod | None, context: Context) -> bool:
    """Return whether a ShadowPod has an older offloading patch, and its pod never came to a node of the lender.

    Such a pod waits for what the patch may have mended, and loses nothing by being created once more. One that runs
    keeps what it was created with: Kubernetes changes neither nodes nor runtime of a pod.
    """
    if shadow.metadata.annotations.get(PATCHED_ANNOTATION, "") == placement_digest(context.patch.value):
        return False
    if remote is None:
        return bool(shadow.status.reason) and shadow.status.phase not in FINISHED
    conditions = decoded(remote.status).get("conditions") or []
    return any(one.get("type") == "PodScheduled" and one.get("status") == "False" for one in conditions)


def _write_home(observed: _Observed, home: HomePod, remote: RemotePod, tally: Tally) -> Decision:
    """Return the write of a remote pod's status to the home pod."""
    status, spec = decoded(home.status), decoded(home.spec)
    current = remote.metadata.annotations.get(HOME_SPEC_ANNOTATION) == digest_of_spec(home.metadata, spec)
    there = decoded(remote.status)
    forged = forge_status(
        status,
        there,
        tally=tally,
        context=observed.context,
        now=observed.now,
        spec=spec,
        generations=Generations(home.metadata.generation if current else 0, remote.metadata.generation),
    )
    refused = refused_addresses(there, observed.context)
    message = clean_message(f"an address that the lender gives the pod is not shown here: {refused}")
    return _write(status, forged, Report(ADDRESS_REFUSED, message) if refused else None)


def _finished(home: HomePod, status: dict[str, Any], shadow: Shadow | None, remote: RemotePod | None) -> Decision:
    if shadow is None:
        return Keep("the pod has finished; it is never run again")
    if status.get("reason") == ABORTED or home_uid(shadow.metadata) != home.metadata.uid:
        return _delete(shadow)
    if remote is None and shadow.status.phase not in FINISHED:
        return _note_end(shadow, str(status["phase"]))
    return Keep("the pod has finished; it is never run again")


def _has_news(home: HomePod, status: dict[str, Any], remote: RemotePod | None) -> bool:
    """Return whether the remote pod has a terminated container that a finished home pod still shows as running.

    With activeDeadlineSeconds a pod is Failed at its deadline, and its containers terminate after that.
    """
    if remote is None or home_uid(remote.metadata) not in ("", home.metadata.uid):
        return False
    seen = decoded(remote.status)
    return seen.get("phase") == status["phase"] and bool(_ended_containers(seen) - _ended_containers(status))


def _ended_containers(status: dict[str, Any]) -> set[str]:
    return {
        str(container.get("name"))
        for kind in ("initContainerStatuses", "containerStatuses")
        for container in status.get(kind) or ()
        if "terminated" in (container.get("state") or {})
    }


def _note_end(shadow: Shadow, phase: str) -> Decision:
    """Annotate the ShadowPod with the phase in which its pod ended: without it the lender would re-create the pod."""
    if shadow.metadata.deleting or shadow.metadata.annotations.get(FINISHED_ANNOTATION) == phase:
        return Keep("the ShadowPod is annotated: the pod has finished")
    note = {"uid": shadow.metadata.uid, "annotations": {FINISHED_ANNOTATION: phase}}
    return Patch({"metadata": note})


def _write_end(observed: _Observed, home: HomePod, ended: RemotePod | None) -> Decision | None:
    """Return the write of the end of a remote pod whose ShadowPod is gone; None unless it terminated by itself."""
    last, tally = observed.remote or ended, observed.tally
    if last is None or tally is None or home_uid(last.metadata) != home.metadata.uid:
        return None
    is_over = decoded(last.status).get("phase") in FINISHED and _has_ended(home, last)
    return _write_home(observed, home, last, tally) if is_over else None


def _has_ended(home: HomePod, last: RemotePod) -> bool:
    """Return whether a remote pod that is in a final phase had terminated by itself, and is not to be re-created."""
    if home_uid(last.metadata) not in ("", home.metadata.uid):
        return False
    ended_by_itself = decoded(last.status).get("phase") == "Succeeded" or not last.metadata.deleting
    return (
        decoded(home.spec).get("restartPolicy") in ("Never", "OnFailure")
        and ended_by_itself
        and not _returns(home, last)
    )


def _returns(home: HomePod, remote: RemotePod) -> bool:
    """Return whether a remote pod terminated by a disruption, so that the lender re-creates it."""
    seen = decoded(remote.status)
    if seen.get("phase") not in FINISHED:
        return False
    disrupted = any(
        c.get("type") == "DisruptionTarget" and c.get("status") == "True" for c in seen.get("conditions") or []
    )
    policy, reason = decoded(home.spec).get("restartPolicy") or "", seen.get("reason") or ""
    return is_to_return(policy, seen["phase"], reason, disrupted=disrupted, deleting=False)


def _ended(status: dict[str, Any], phase: str, reason: str, message: str, now: str) -> dict[str, Any]:
    reason = clean_reason(reason, "RemotePodTerminated")
    message = clean_message(message) or "the pod ended at the lender and is gone there"
    return ended_status(missing_status(status, reason, message, now), phase, reason, message)


def _own(observed: _Observed, home: HomePod) -> _Observed:
    """Return what was observed without the objects that belong to other nodes, or are not ours: nothing waits for them.

    A pod that was made for this home pod counts, whatever the ShadowPod of its name is by now.
    """
    shadow, remote, context = observed.shadow, observed.remote, observed.context
    if shadow is not None and not (is_ours(shadow.metadata, context) and is_of_node(shadow.metadata, context)):
        shadow = None
    if remote is not None:
        meta = remote.metadata
        if not is_ours(meta, context) or not (is_of_node(meta, context) or home_uid(meta) == home.metadata.uid):
            remote = None
    return evolve(observed, shadow=shadow, remote=remote)


def _end(observed: _Observed, *, lender_lost: bool, grace_ignored: bool, ended: RemotePod | None) -> Decision:
    """Return the next step for a home pod that is being deleted."""
    home, shadow, remote = observed.home, observed.shadow, observed.remote
    if home is None:
        return Keep("there is no such pod")
    if lender_lost:
        return delete_home(home, observed.now)
    final = _last_phase(observed, home, ended)
    if final is not None and home.metadata.finalizers:
        # With the ShadowPod the lender's pod goes, which alone has the phase.
        return final
    if shadow is not None and not shadow.metadata.deleting:
        if (
            home_uid(shadow.metadata) != home.metadata.uid
            or remote is None
            or remote.metadata.deleting
            or grace_ignored
        ):
            return _delete(shadow)
        return _end_with_grace(home, shadow)
    if shadow is None and remote is None:
        return delete_home(home, observed.now)
    return final or Keep("waiting for the pod at the lender to end")


def _last_phase(observed: _Observed, home: HomePod, ended: RemotePod | None) -> Decision | None:
    """Return the write of the final phase of a deleted pod; None if that is written, or not known.

    The Job controller reads it; other changes of a terminating pod are not worth a request. What is gone at the lender
    counts for pods with finalizers only: any other pod goes at home as well.
    """
    status, shadow, last, tally = decoded(home.status), observed.shadow, observed.remote, observed.tally
    uid, has_finalizers = home.metadata.uid, bool(home.metadata.finalizers)
    if status.get("phase") in FINISHED:
        return None
    if last is None and has_finalizers:
        last = ended
    if last is not None:
        is_own = home_uid(last.metadata) in ("", uid)
        has_ended = is_own and decoded(last.status).get("phase") in FINISHED
        return _write_home(observed, home, last, tally) if has_ended and tally is not None else None
    if not has_finalizers or shadow is None or home_uid(shadow.metadata) != uid:
        return None
    there = shadow.status
    new = _ended(status, there.phase, there.reason, there.message, observed.now)
    return WriteStatus(new) if there.phase in FINISHED else None


def _end_with_grace(home: HomePod, shadow: Shadow) -> Decision:
    """Return the next step to delete a ShadowPod; a grace period other than that of the spec is annotated first."""
    grace, own = home.metadata.deletion_grace_period_seconds, decoded(home.spec).get("terminationGracePeriodSeconds")
    # The API server makes 1 of a negative period (pkg/registry/core/pod/strategy.go, CheckGracefulDelete).
    if grace is None or grace == (DEFAULT_GRACE if own is None else max(1, own)):
        return _delete(shadow)
    if shadow.metadata.annotations.get(DELETION_GRACE_ANNOTATION) != str(grace):
        note = {"uid": shadow.metadata.uid, "annotations": {DELETION_GRACE_ANNOTATION: str(grace)}}
        return Patch({"metadata": note})
    return Keep("the ShadowPod is annotated with the grace period of the deletion", again=GRACE_DEADLINE)


def _delete(shadow: Shadow) -> Decision:
    if shadow.metadata.deleting:
        return Keep("the ShadowPod is being deleted")
    return DeleteShadow(shadow.metadata.uid)


def is_held(home: HomePod) -> bool:
    """Return whether finalizers alone hold a deleted home pod: it has its final phase, and its last grace, of zero."""
    return home.metadata.deletion_grace_period_seconds == 0 and bool(home.metadata.finalizers) and _has_finished(home)


def delete_home(home: HomePod, now: str) -> Decision:
    """Return the last step for a home pod of which nothing is left to wait for.

    A kubelet writes a final phase before it lets a pod go, Failed unless it knows of another. The Job controller waits
    for one before it removes its finalizer (podFailurePolicy, podReplacementPolicy: Failed). Source: KEP-3329.
    """
    if home.metadata.finalizers and not _has_finished(home):
        message = "the pod was deleted before the lender reported an end of it"
        return WriteStatus(_ended(decoded(home.status), "Failed", "", message, now))
    if is_held(home):
        # The API server removes the pod when the last finalizer is removed; another DELETE changes nothing.
        return Keep("finalizers hold the pod")
    return DeleteHome(home.metadata.uid)


def _has_finished(home: HomePod) -> bool:
    return decoded(home.status).get("phase") in FINISHED


def _write(old: dict[str, Any], new: dict[str, Any], report: Report | None) -> Decision:
    if old == new:
        return Keep("the status is up to date")
    news = report
    if report is not None:
        recorded = {(c.get("type"), c.get("reason"), c.get("message")) for c in old.get("conditions") or []}
        news = None if (OFFLOADED_CONDITION, report.reason, report.message) in recorded else report
    return WriteStatus(new, news)


def name_taken_report(name: str, namespace: str) -> Report:
    """Return the report about an object at the lender that has a pod's name and is not ours."""
    return Report(
        "RemoteNameTaken",
        f"an object {name} that is not ours is in the remote namespace {namespace}; it is left alone, and this pod "
        "waits until it is gone (rename the pod, or ask the lender's administrator)",
    )
