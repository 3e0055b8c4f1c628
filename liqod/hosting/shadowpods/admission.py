"""Admits or refuses a ShadowPod: a function of the record, of the tenant of its namespace, and of the free capacity."""

from __future__ import annotations

import msgspec
from attrs import field, frozen

from liqod.hosting.shadowpods.quota import resource_requests
from liqod.hosting.shadowpods.quota.ledger import shortage
from liqod.hosting.tenants.admission.pod_shape import MAX_CONTAINERS, MAX_TOLERATIONS
from liqod.hosting.views import PodSpec
from liqod.model.names import ORIGIN_LABEL
from liqod.model.objects.quantity import Resources
from liqod.model.records.views import MAX_POD_BYTES, ShadowPod
from liqod.model.text import clean_text

MAX_MESSAGE = 1000


def sentence(text: str) -> str:
    """Return an untrusted text as one line of bounded length without control characters."""
    return clean_text(text, MAX_MESSAGE, ellipsis=True)


@frozen
class Admit:
    """The pod may be created; it counts with these requests."""

    asked: Resources


@frozen
class Refuse:
    """The pod may not be created: a CamelCase reason, and a message for people."""

    reason: str
    message: str = field(converter=sentence)


def admit(
    shadow: ShadowPod,
    tenant: str,
    offered: Resources | None,
    used: Resources,
    *,
    defaults: Resources = resource_requests.NOTHING,
) -> Admit | Refuse:
    """Admit or refuse a ShadowPod.

    ``tenant`` is the borrower that the namespace was granted to (empty: none), ``offered`` what this cluster lends to
    it (None: nothing), ``used`` what its other pods request, ``defaults`` what a container requests that names nothing.
    """
    origin = shadow.metadata.labels.get(ORIGIN_LABEL, "")
    if not tenant:
        return Refuse(
            "OriginMismatch",
            f"namespace {shadow.metadata.namespace} was not granted to any cluster: a ShadowPod runs only in a "
            "namespace that the borrower asked for (MapNamespace)",
        )
    if origin != tenant:
        return Refuse(
            "OriginMismatch",
            f"the label {ORIGIN_LABEL} says {origin or 'nothing'}, but namespace {shadow.metadata.namespace} was "
            f"granted to {tenant}: the label must be that cluster's ID",
        )
    try:
        asked = resource_requests.of_pod(read_spec(shadow), defaults)
    except ValueError as error:
        return Refuse("InvalidPod", f"spec.pod cannot be run: {error}")
    if offered is None:
        return Refuse(
            "NotLent", f"nothing is lent to cluster {tenant} at this time; it runs when an offer stands again"
        )
    if missing := shortage(asked, used, offered):
        return Refuse("QuotaExceeded", f"more than what is lent to cluster {tenant}: {missing}")
    return Admit(asked)


def raw_spec(shadow: ShadowPod) -> bytes:
    """Return the JSON of a ShadowPod's pod; raises ValueError for one that is too large."""
    if size := shadow.spec.oversize:
        raise ValueError(f"it has {size} bytes, more than the {MAX_POD_BYTES} allowed")
    return bytes(shadow.spec.pod)


def read_spec(shadow: ShadowPod) -> PodSpec:
    """Decode the opaque pod of a ShadowPod; raises ValueError for what is not a pod spec."""
    try:
        spec = msgspec.json.decode(raw_spec(shadow), type=PodSpec)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is not a pod spec: {error}") from None
    if not spec.containers:
        raise ValueError("it has no containers")
    check_containers(spec)
    if len(spec.tolerations or ()) > MAX_TOLERATIONS:
        raise ValueError(f"it has more than {MAX_TOLERATIONS} tolerations")
    return spec


def check_containers(spec: PodSpec, added: int = 0) -> None:
    """Check that a pod, with so many more containers, has no more than it may; raises ValueError."""
    if (
        sum(len(kind or ()) for kind in (spec.containers, spec.init_containers, spec.ephemeral_containers)) + added
        > MAX_CONTAINERS
    ):
        raise ValueError(f"it has more than {MAX_CONTAINERS} containers")
