"""Finds pods on virtual nodes that do not run, with the lender's reason, and tenants that have all they may. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import msgspec

from liqod.model.diagnosis.problem import WORKLOADS, Problem
from liqod.model.ids import Key
from liqod.model.names import FULL_CONTENTS_LABEL, FULL_LABEL, RUNTIME_CLASS
from liqod.model.objects.granted_namespace import tenant_of
from liqod.model.objects.meta import Object, ObjectMeta, View
from liqod.model.objects.node_selector import NodeSelector
from liqod.model.text import clean_text
from liqod.model.timestamps import parse_rfc3339

OFFLOADED: Final = "liqo.io/Offloaded"
"""The condition of a pod at home by which it is said why a lender does not run it."""
NAMED: Final = 3
"""Pods that are named; the others are counted."""
LONGEST: Final = 300
"""Characters of a lender's words."""
SETTLING: Final = 30.0
"""Seconds for which a lender's scheduler and kubelet may have a reason that passes."""
STARTING: Final = 180.0
"""Seconds after which a pod that has no reason to wait is one that does not run: its images are loaded by then."""

_OURS: Final = ("liqo.io", "offloading.liqo.io")
"""What the labels begin with that virtual nodes alone have."""
_ORDINARY: Final = ("ContainerCreating", "PodInitializing")
_IMAGES: Final = (
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RegistryUnavailable",
)
"""Reasons of a kubelet that has no image (Kubernetes, pkg/kubelet/images and kuberuntime)."""
_REFUSALS: Final = (
    "AdmissionDenied",
    "AdmissionUnavailable",
    "ClaimTaken",
    "CredentialRejected",
    "Forbidden",
    "InvalidPod",
    "LenderUnreachable",
    "NotLent",
    "OffloadingBackOff",
    "PatchContradicts",
    "PodSecurity",
    "PoliciesNotEnforced",
    "PoliciesUnknown",
    "QuotaExceeded",
    "RemoteApiError",
    "RemoteForbidden",
    "RemoteInvalid",
    "RemoteNameTaken",
    "RemoteNotFound",
    "ResourceQuota",
    "ServiceAccountTokenRefused",
)
"""Reasons of a pod that a lender does not run which are explained; with others a lender may say what it likes."""
_NEXT: Final[Mapping[str, str]] = {
    "ImageMissing": "mend the name of the image, or let the lender's nodes pull it (imagePullSecrets); ",
    "QuotaExceeded": "smaller requests, or more of what is lent; ",
    "ResourceQuota": "ask the lender's administrator; ",
}
_FULL: Final[Mapping[str, str]] = {
    "bytes": "bytes of records",
    "changes": "changes of config maps and secrets",
    "growth": "config maps and secrets",
}
"""What is full, where the word of the label is not the plural of a kind."""


class _Waiting(View, frozen=True):
    reason: str = ""
    message: str = ""


class _ContainerState(View, frozen=True):
    waiting: _Waiting | None = None


class _ContainerStatus(View, frozen=True):
    state: _ContainerState = _ContainerState()


class _PodCondition(View, frozen=True):
    """Unlike a condition of ours it may have null for a date."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Phase(View, frozen=True):
    """Of most pods there is no need to read more."""

    phase: str = ""


class _PendingStatus(View, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[_PodCondition] = []
    init_container_statuses: list[_ContainerStatus] = []
    container_statuses: list[_ContainerStatus] = []


class _PendingSpec(View, frozen=True):
    node_name: str = ""


class _Required(View, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(View, frozen=True):
    node_affinity: _Required | None = None


class PendingPod(Object, frozen=True):
    """A pod, by why it does not run."""

    spec: _PendingSpec = _PendingSpec()
    status: _PendingStatus = _PendingStatus()


def pending_pod(metadata: ObjectMeta, node: str, status: msgspec.Raw | bytes) -> PendingPod | None:
    """Return a pod that waits, by its status as the API has it; None for one that runs or has ended."""
    try:
        if msgspec.json.decode(status or b"{}", type=_Phase).phase not in ("", "Pending"):
            return None
        known = msgspec.json.decode(status or b"{}", type=_PendingStatus)
    except msgspec.MsgspecError:
        return None
    return PendingPod(metadata=metadata, spec=_PendingSpec(node_name=node), status=known)


@attrs.frozen(kw_only=True)
class WaitingPod:
    """A pod on a virtual node that does not run: a code, the reason in its lender's words, the node."""

    key: Key
    node: str
    code: str
    words: str


def waiting_pod(pod: PendingPod, now: datetime) -> WaitingPod | None:
    """Return why a pod does not run; None for one that is starting, ending, or on no node."""
    node, status = pod.spec.node_name, pod.status
    if not node or status.phase not in ("", "Pending") or pod.metadata.deleting:
        return None
    created = parse_rfc3339(pod.metadata.creation_timestamp)
    age = (now - created).total_seconds() if created is not None else 0.0
    found = _reason(status, age)
    if found is None:
        return None
    code, reason, message = found
    text = f"{reason}: {message}" if reason and message else reason or message
    return WaitingPod(key=pod.key, node=node, code=code, words=clean_text(text, LONGEST, ellipsis=True))


def _reason(status: _PendingStatus, age: float) -> tuple[str, str, str] | None:
    """Return code, reason and message."""
    offloaded = next((one for one in status.conditions if one.type == OFFLOADED), None)
    if offloaded is not None and offloaded.status == "False":
        code = offloaded.reason if offloaded.reason in _REFUSALS else "PodRefused"
        return code, offloaded.reason, offloaded.message
    containers = [*status.init_container_statuses, *status.container_statuses]
    waiting = [one.state.waiting for one in containers if one.state.waiting is not None]
    stuck = next((one for one in waiting if one.reason and one.reason not in _ORDINARY), None)
    if stuck is not None and stuck.reason in _IMAGES:
        return "ImageMissing", stuck.reason, stuck.message
    if age < SETTLING:
        return None
    if stuck is not None:
        return "PodWaiting", stuck.reason, stuck.message
    scheduled = next((one for one in status.conditions if one.type == "PodScheduled"), None)
    if scheduled is not None and scheduled.status == "False":
        return "PodWaiting", scheduled.reason, scheduled.message
    if status.reason:
        return "PodWaiting", status.reason, status.message
    if age < STARTING:
        return None
    usual = next((one.reason for one in waiting if one.reason), "")
    return "PodWaiting", usual, f"it has been waiting for {age:.0f} s"


def of_pods(pods: Sequence[WaitingPod], lenders: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what keeps pods from running, once for each lender and code; ``lenders`` are names, by virtual node."""
    groups: dict[tuple[str, str], list[WaitingPod]] = {}
    for one in sorted(pods, key=lambda pod: pod.key):
        if one.node in lenders:
            groups.setdefault((one.code, lenders[one.node]), []).append(one)
    for (code, lender), waiting in groups.items():
        first = waiting[0]
        names = ", ".join(str(one.key) for one in waiting[:NAMED])
        more = f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
        who = "it does not run" if len(waiting) == 1 else f"{len(waiting)} pods do not run ({names}{more})"
        yield Problem(
            code=code,
            kind="pod",
            name=str(first.key),
            cause=f"{who}, says {lender}" + (f": {first.words}" if first.words else ""),
            severity="warning",
            advice=f"{_NEXT.get(code, '')}`liqodctl explain {first.key.name} -n {first.key.namespace}`",
            topic=WORKLOADS,
        )


class _Selecting(View, frozen=True):
    """What of a pod's spec asks for nodes."""

    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    runtime_class_name: str = ""
    tolerations: list[dict[str, Any]] | None = None


class UnplacedPod(Object, frozen=True):
    """A pod that the scheduler has put on no node."""

    spec: _Selecting = _Selecting()
    status: _PendingStatus = _PendingStatus()

    @property
    def asks(self) -> bool:
        """Whether it asks for virtual nodes, by its RuntimeClass or by a label that these alone have."""
        spec = self.spec
        required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
        terms = (required.node_selector_terms or ()) if required is not None else ()
        keys = {*(spec.node_selector or ()), *(one.key for term in terms for one in term.match_expressions or ())}
        return spec.runtime_class_name == RUNTIME_CLASS or any(key.partition("/")[0] in _OURS for key in keys)

    @property
    def words(self) -> str:
        """Why the scheduler has no node for it; empty while it has not said so."""
        said = next((one for one in self.status.conditions if one.type == "PodScheduled"), None)
        return clean_text(said.message, LONGEST, ellipsis=True) if said is not None and said.status == "False" else ""


@attrs.frozen(kw_only=True)
class AskingPod:
    """A pod that asks for virtual nodes and is on none: is its namespace offloaded, and does it tolerate them."""

    key: Key
    enabled: bool
    tolerant: bool
    words: str


def of_asking_pods(pods: Iterable[AskingPod]) -> Iterator[Problem]:
    """Yield why pods that ask for virtual nodes are on none, once for each namespace and reason."""
    groups: dict[tuple[str, bool, bool], list[AskingPod]] = {}
    for one in sorted(pods, key=lambda pod: pod.key):
        groups.setdefault((one.key.namespace, one.enabled, one.tolerant), []).append(one)
    for (namespace, enabled, tolerant), asking in groups.items():
        first = asking[0]
        names = ", ".join(one.key.name for one in asking[:NAMED])
        more = f" and {len(asking) - NAMED} more" if len(asking) > NAMED else ""
        who = "it asks" if len(asking) == 1 else f"{len(asking)} pods ({names}{more}) ask"
        explain = f"`liqodctl explain {first.key.name} -n {namespace}`"
        if tolerant:
            code, why, advice = "PodUnplaced", f"no node takes it: {first.words}", explain
        elif enabled:
            code, why = "PodUnplaced", "without the toleration that the webhook gives to the pods of its namespace"
            advice = f"delete it, and its owner makes it again; {explain}"
        else:
            code, why = "NamespaceNotOffloaded", f"the namespace {namespace} is not offloaded"
            advice = f"`liqodctl offload namespace {namespace}`, or take the selector out of its template; {explain}"
        yield Problem(
            code=code,
            kind="pod",
            name=str(first.key),
            cause=f"{who} for virtual nodes, and {why}",
            severity="warning",
            advice=advice,
            topic=WORKLOADS,
        )


@attrs.frozen
class FullTenant:
    """A borrower that has all that it may have here, by its cluster ID, and of what."""

    tenant: str
    kinds: tuple[str, ...]


def full_tenants(namespaces: Iterable[Object]) -> list[FullTenant]:
    """Return the tenants whose namespaces have a label that says that they are full."""
    found: dict[str, set[str]] = {}
    for one in namespaces:
        labels = one.metadata.labels
        words = ".".join(labels.get(label, "") for label in (FULL_LABEL, FULL_CONTENTS_LABEL))
        if (tenant := tenant_of(one)) and (kinds := set(filter(None, words.split(".")))):
            found.setdefault(tenant, set()).update(kinds)
    return [FullTenant(tenant, tuple(sorted(kinds))) for tenant, kinds in sorted(found.items())]


def of_tenants(tenants: Iterable[FullTenant], names: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the tenants that get no more here; ``names`` are names of peers, by cluster ID."""
    for one in tenants:
        name = names.get(one.tenant, one.tenant)
        kinds = ", ".join(_FULL.get(kind, kind) for kind in one.kinds)
        yield Problem(
            code="TenantFull",
            kind="peer",
            name=name,
            cause=f"it has all that it may have here of {kinds}: new ones are refused",
            severity="warning",
            advice=f"`liqodctl tenant show {name}`; `tenant-records`, `tenant-contents` under [hosting]",
            topic=WORKLOADS,
        )
