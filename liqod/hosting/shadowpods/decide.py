"""The next step for one ShadowPod and the pod of its name: a function of the two.

A pod that vanished is created again; a pod that finished never runs again; a pod that this cluster took away (eviction,
a lost node, preemption) has not finished. Nothing is deleted on absence alone: ``Delete.certain`` is whether the
deletion of the ShadowPod was observed, or must be confirmed by a read first.
"""

from __future__ import annotations

from attrs import define, field, frozen

from liqod.hosting.crash_backoff import Creations
from liqod.hosting.shadowpods.admission import sentence
from liqod.hosting.shadowpods.forge import MAX_GRACE
from liqod.hosting.views import Pod, is_managed
from liqod.model.names import DELETION_GRACE_ANNOTATION, FINISHED_ANNOTATION
from liqod.model.objects.meta import controller_of
from liqod.model.objects.pod_completion import FINISHED, is_to_return
from liqod.model.records.views import ShadowPod


@frozen
class Nothing:
    """The states agree, or a watch event will follow."""


@frozen
class AwaitTermination:
    """The pod of a ShadowPod terminates and has its name until then: force-delete it if its node is lost."""


@frozen
class Create:
    """There is no pod and there should be one."""


@frozen
class Update:
    """The pod runs: apply to it what of a running pod may change: metadata, images, tolerations, deadline, size."""


@frozen
class Delete:
    """The pod of this UID should not exist; unless ``certain``, read first whether the ShadowPod ``owner`` does.

    The owner is empty where it was taken off the pod.
    """

    uid: str
    owner: str
    certain: bool


@frozen
class RecordResult:
    """The pod has finished for good: write that to the ShadowPod's status."""

    phase: str
    reason: str = ""
    message: str = ""


@frozen
class NameTaken:
    """A pod of this name exists that was not made from a ShadowPod."""


@frozen
class Terminate:
    """Delete the pod of this UID with ``grace`` seconds: the borrower deletes the ShadowPod when it has terminated."""

    uid: str
    grace: int


Step = Nothing | AwaitTermination | Create | Update | Delete | RecordResult | NameTaken | Terminate


@frozen
class FinishedPod:
    """The result of a pod that was seen to finish, and the UID of its ShadowPod."""

    owner: str
    result: RecordResult


@frozen
class Orphan:
    """The UID of a pod whose ShadowPod is gone, and since when that is known (seconds of the reactor's clock)."""

    uid: str
    since: float


@define
class Tracked:
    """The memory about one name, dropped when neither ShadowPod nor pod of that name exist any more."""

    appeared: float | None = None
    """When the ShadowPod appeared, in seconds of the reactor's clock; None for one that was there at the start."""
    creations: Creations = field(factory=Creations)
    observed: FinishedPod | None = None
    """How its pod finished, until the informer shows that in the record's status."""
    followed: int | None = None
    """What ``compared`` returned for a ShadowPod and a pod between which there was no difference."""
    applied: tuple[str, str] | None = None
    """UID of the pod, and digest of the ShadowPod, that was last brought to it."""
    refused_size: tuple[str, str] | None = None
    """UID of the pod, and digest of the resources, for which a resize was refused and an event recorded."""
    deleted_uid: str = ""
    """UID of the ShadowPod of this name whose deletion was observed."""
    unbounded_uid: str = ""
    """UID of the pod whose resources as a whole the API server dropped (``rejections.is_dropped``)."""
    orphan: Orphan | None = None

    def creation_in(self, now: float, settling: float) -> float:
        """Return the seconds until a pod may be created, 0 or less for now; a new ShadowPod settles for some."""
        settled = 0.0 if self.appeared is None else self.appeared + settling - now
        return max(settled, self.creations.wait(now))

    def result_of(self, shadow: ShadowPod | None) -> RecordResult | None:
        """Return how the pod of this very ShadowPod finished, as far as its record may not show it yet."""
        if shadow is None or self.observed is None or self.observed.owner != shadow.metadata.uid:
            return None
        return self.observed.result

    def without_shadowpod(self) -> Tracked:
        """Return the part to remember while only the pod is left."""
        return Tracked(deleted_uid=self.deleted_uid, orphan=self.orphan)


def decide(
    shadow: ShadowPod | None,
    pod: Pod | None,
    *,
    result: RecordResult | None = None,
    deleted_uid: str = "",
    unbounded_uid: str = "",
) -> Step:
    """Return the next step.

    ``result`` is how the pod of this very ShadowPod was seen to finish, should the record not show it yet;
    ``deleted_uid`` is the UID of the ShadowPod of this name whose deletion was observed, ``unbounded_uid`` that of a
    pod that must not run, for it has no limits.
    """
    if shadow is None or shadow.metadata.deleting:
        if pod is None or pod.metadata.deleting or not is_managed(pod):
            return Nothing() if shadow is None else _rest(pod)
        owner = _owner(pod)
        known = shadow is not None and owner == shadow.metadata.uid
        return Delete(pod.metadata.uid, owner, certain=known or (owner != "" and owner == deleted_uid))
    if shadow.status.phase in FINISHED:
        return _rest(pod)
    if result is not None:
        return result
    if (grace := requested_grace(shadow)) is not None:
        return _terminate(shadow, pod, grace)
    if pod is None:
        # It finished, and was deleted, while no daemon ran here; the borrower observed it.
        phase = shadow.metadata.annotations.get(FINISHED_ANNOTATION, "")
        return RecordResult(phase, "SeenByBorrower") if phase in FINISHED else Create()
    if not is_managed(pod):
        return NameTaken()
    if _owner(pod) != shadow.metadata.uid:
        owner = _owner(pod)
        gone = owner != "" and owner == deleted_uid
        return _rest(pod) if pod.metadata.deleting else Delete(pod.metadata.uid, owner, certain=gone)
    if pod.metadata.uid == unbounded_uid:
        return _terminate(shadow, pod, 1)
    return _own_pod(pod)


def result_of(pod: Pod) -> RecordResult | None:
    """Return how a pod finished for good, or None while it runs or must be created again."""
    if not pod.finished or _is_to_return(pod):
        return None
    return RecordResult(pod.status.phase, sentence(pod.status.reason)[:64], sentence(pod.status.message))


def requested_grace(shadow: ShadowPod) -> int | None:
    """Return the grace period in seconds with which a borrower wants its pod to terminate; None when it does not, or
    the annotation is invalid.

    It is a second at least: with 0 the API server removes the pod at once, and the node would still run it (source:
    Kubernetes, "Pod termination, forced").
    """
    text = shadow.metadata.annotations.get(DELETION_GRACE_ANNOTATION, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        return None
    return min(max(1, int(text)), MAX_GRACE)


def _terminate(shadow: ShadowPod, pod: Pod | None, grace: int) -> Step:
    """Terminate what runs; nothing is created again, and a pod that is not of this ShadowPod is left alone."""
    if pod is None or not is_managed(pod) or _owner(pod) != shadow.metadata.uid:
        return _rest(pod)
    left = pod.metadata.deletion_grace_period_seconds
    # A grace period can only be shortened. Source: Kubernetes, pkg/registry/core/pod/strategy.go, CheckGracefulDelete.
    if pod.metadata.deleting and (left is None or left <= grace):
        return _rest(pod)
    return Terminate(pod.metadata.uid, grace)


def _rest(pod: Pod | None) -> Step:
    """Return the step where nothing is to be done but to free the name of a pod of ours that cannot terminate."""
    return AwaitTermination() if pod is not None and pod.metadata.deleting and is_managed(pod) else Nothing()


def _own_pod(pod: Pod) -> Step:
    if (result := result_of(pod)) is not None:
        return result
    if pod.metadata.deleting:
        return _rest(pod)
    if pod.finished:
        return Delete(pod.metadata.uid, _owner(pod), certain=True)
    return Update()


def _is_to_return(pod: Pod) -> bool:
    # DisruptionTarget marks pods that eviction, preemption, a taint or the garbage collector ends, not their own doing
    # (Kubernetes: "Pod disruption conditions").
    disrupted = any(c.type == "DisruptionTarget" and c.status == "True" for c in pod.status.conditions or ())
    return is_to_return(
        pod.spec.restart_policy or "",
        pod.status.phase,
        pod.status.reason,
        disrupted=disrupted,
        deleting=pod.metadata.deleting,
    )


def _owner(pod: Pod) -> str:
    owner = controller_of(pod)
    return "" if owner is None else owner.uid
