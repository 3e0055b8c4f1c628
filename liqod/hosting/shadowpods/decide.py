"""What to do about one ShadowPod and the pod of its name: a function of the two, without doing it.

A pod that vanished is made again; a pod that ended is never run again; a pod that this cluster took away (eviction, a
lost node, preemption) has not ended. Nothing is deleted on absence alone: ``Remove`` says
whether the disappearance of the ShadowPod was witnessed or has to be asked for first.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from liqod.hosting.shadowpods.admission import sentence
from liqod.hosting.shadowpods.forge import MAX_GRACE
from liqod.hosting.views import Pod, controller_of, is_managed
from liqod.model.names import DELETION_GRACE_ANNOTATION, FINISHED_ANNOTATION
from liqod.model.objects.pod_completion import is_to_return
from liqod.model.records.views import ShadowPod

FINAL_PHASES: Final = ("Succeeded", "Failed")


@frozen
class Nothing:
    """All is as it should be, or an event will tell."""


@frozen
class Create:
    """There is no pod and there should be one."""


@frozen
class Follow:
    """The pod runs: bring changed labels, annotations and images to it."""


@frozen
class Remove:
    """The pod of this uid should not be; unless ``certain``, ask first whether the ShadowPod ``owner`` is really
    gone.
    """

    uid: str
    owner: str
    certain: bool


@frozen
class Finish:
    """The pod has ended for good: keep that in the ShadowPod's status."""

    phase: str
    reason: str = ""
    message: str = ""


@frozen
class Collide:
    """A pod that this ShadowPod has no right to bears its name."""


@frozen
class End:
    """The pod of this uid is to end with ``grace`` seconds: the borrower wants it, and deletes the ShadowPod then."""

    uid: str
    grace: int


Step = Nothing | Create | Follow | Remove | Finish | Collide | End


def decide(shadow: ShadowPod | None, pod: Pod | None, *, ended: Finish | None = None, witnessed: str = "") -> Step:
    """Return the next step.

    ``ended`` is how the pod of this very ShadowPod was seen to end, should the record not show it yet; ``witnessed``
    is the uid of the ShadowPod of this name that was seen being deleted.
    """
    if shadow is None or shadow.metadata.deleting:
        if pod is None or pod.metadata.deleting or not is_managed(pod):
            return Nothing()
        owner = _owner(pod)
        known = shadow is not None and owner == shadow.metadata.uid
        return Remove(pod.metadata.uid, owner, certain=known or owner == witnessed)
    if shadow.status.phase in FINAL_PHASES:
        return Nothing()
    if ended is not None:
        return ended
    if (grace := grace_to_end(shadow)) is not None:
        return _end(shadow, pod, grace)
    if pod is None:
        # The borrower saw it end while nobody here looked, and it is gone since.
        told = shadow.metadata.annotations.get(FINISHED_ANNOTATION, "")
        return Finish(told, "SeenByBorrower") if told in FINAL_PHASES else Create()
    if not is_managed(pod):
        return Collide()
    if _owner(pod) != shadow.metadata.uid:
        gone = _owner(pod) == witnessed
        return Nothing() if pod.metadata.deleting else Remove(pod.metadata.uid, _owner(pod), certain=gone)
    return _about_own(pod)


def how_it_ended(pod: Pod) -> Finish | None:
    """Return how a pod ended for good, or None while it runs or is to be run again."""
    if not pod.finished or _is_to_return(pod):
        return None
    return Finish(pod.status.phase, sentence(pod.status.reason)[:64], sentence(pod.status.message))


def grace_to_end(shadow: ShadowPod) -> int | None:
    """Return the seconds within which a borrower wants a pod to end; None when it wants none to, or says it wrongly.

    It is a second at least: the node has to see the pod end. Source: kubelet, "Termination of Pods".
    """
    text = shadow.metadata.annotations.get(DELETION_GRACE_ANNOTATION, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        return None
    return min(max(1, int(text)), MAX_GRACE)


def _end(shadow: ShadowPod, pod: Pod | None, grace: int) -> Step:
    """End what runs; nothing is made again, and what is no pod of this ShadowPod is left alone."""
    if pod is None or not is_managed(pod) or _owner(pod) != shadow.metadata.uid:
        return Nothing()
    left = pod.metadata.deletion_grace_period_seconds
    # An API server lets a pod's grace be shortened only. Source: Kubernetes, pkg/registry/core/pod/strategy.go.
    if pod.metadata.deleting and (left is None or left <= grace):
        return Nothing()
    return End(pod.metadata.uid, grace)


def _about_own(pod: Pod) -> Step:
    if (ended := how_it_ended(pod)) is not None:
        return ended
    if pod.metadata.deleting:
        return Nothing()
    if pod.finished:
        return Remove(pod.metadata.uid, _owner(pod), certain=True)
    return Follow()


def _is_to_return(pod: Pod) -> bool:
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
