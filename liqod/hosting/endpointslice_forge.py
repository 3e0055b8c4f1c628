"""ShadowEndpointSlice -> EndpointSlice: the content of the slice, and the next step for it.

The nodeName of each endpoint is always the borrower's cluster ID; the borrower's own value is not used. Its targetRef
names no object of this cluster: what is no kind of the borrower's (``RemotePod``) is made one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from attrs import frozen

from liqod.kube.resources import ENDPOINTSLICES, SHADOWENDPOINTSLICES
from liqod.model.ids import Key
from liqod.model.names import (
    MANAGED_BY_LABEL,
    MANAGED_BY_SHADOWSLICE,
    PATH_LOST_ANNOTATION,
    REFLECTED_SLICE,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
)
from liqod.model.objects.meta import Object, ObjectMeta, controller_of, to_dict
from liqod.model.records.network import AddressMap
from liqod.model.records.views import (
    MAX_DIRECT_ENDPOINTS,
    ObjectReference,
    ShadowEndpointSlice,
    SliceEndpoint,
    SlicePort,
    SliceTemplate,
)

# The EndpointSlice controller leaves slices alone that another managed-by label claims (Kubernetes, "EndpointSlices").
LABELS: Final = {MANAGED_BY_LABEL: MANAGED_BY_SHADOWSLICE, SLICE_MANAGED_BY_LABEL: REFLECTED_SLICE}
_REMOTE: Final = "Remote"
_LABELS_KEPT: Final = (SERVICE_NAME_LABEL, "service.kubernetes.io/headless")


def digest_of(template: SliceTemplate) -> bytes:
    """Return the digest of what a slice holds; equal ones have the same.

    Their JSON may differ: a value is left out of it where it is the default one itself, and not where it is equal.
    """
    return hashlib.blake2b(repr(template).encode(errors="backslashreplace"), digest_size=16).digest()


class EndpointSlice(Object, frozen=True):
    """An EndpointSlice of this cluster: of the fields that come from a ShadowEndpointSlice the digest alone is kept.

    In memory a thousand endpoints take several times what they do at the API server, and a borrower chooses how many
    there are.
    """

    address_type: str = "IPv4"
    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None
    content: bytes = msgspec.field(default=b"", name="-")

    def __post_init__(self) -> None:
        if self.content and not self.endpoints and not self.ports:
            return  # a copy with other metadata
        held = SliceTemplate(address_type=self.address_type, endpoints=self.endpoints or None, ports=self.ports or None)
        for name, value in (("content", digest_of(held)), ("endpoints", None), ("ports", None)):
            msgspec.structs.force_setattr(self, name, value)

    def holds(self, wanted: SliceTemplate) -> bool:
        """Return whether it is as wanted."""
        return self.content == digest_of(wanted)


@frozen
class Create:
    """There is no slice and there should be one."""


@frozen
class Update:
    """The slice differs from what it should hold."""

    uid: str


@frozen
class Replace:
    """The slice must be replaced: its address type is immutable, or it belongs to an earlier ShadowEndpointSlice."""

    uid: str


@frozen
class Nothing:
    """The states agree."""


@frozen
class Delete:
    """The slice is of no ShadowEndpointSlice any more."""

    uid: str


Step = Create | Update | Replace | Delete | Nothing


def decide(
    shadow: ShadowEndpointSlice | None, present: EndpointSlice | None, wanted: SliceTemplate, *, lost: bool = False
) -> Step:
    """Return the next step for one name.

    ``lost``: the slice is to say that the path to its borrower's home is lost.
    """
    if shadow is None and present is not None and not present.metadata.deleting and is_made_here(present):
        return Delete(present.metadata.uid)
    if shadow is None or shadow.metadata.deleting or (present is not None and present.metadata.deleting):
        return Nothing()
    if present is None:
        return Create()
    owner = controller_of(present)
    if owner is None or owner.uid != shadow.metadata.uid or present.address_type != wanted.address_type:
        return Replace(present.metadata.uid)
    labels = labels_of(shadow.metadata)
    is_labelled = all(present.metadata.labels.get(key) == value for key, value in labels.items())
    if not present.holds(wanted) or not is_labelled or says_lost(present) != lost:
        return Update(present.metadata.uid)
    return Nothing()


def service_of(shadow: ShadowEndpointSlice) -> Key | None:
    """Return the Service that a slice says it is of; None for a slice of none."""
    name = shadow.metadata.labels.get(SERVICE_NAME_LABEL, "")
    return Key(shadow.metadata.namespace, name) if name else None


def of_no_service(shadow: ShadowEndpointSlice) -> ShadowEndpointSlice:
    """Return a slice that names no Service: proxies and DNS servers join it to none."""
    labels = {key: value for key, value in shadow.metadata.labels.items() if key != SERVICE_NAME_LABEL}
    return msgspec.structs.replace(shadow, metadata=msgspec.structs.replace(shadow.metadata, labels=labels))


def is_made_here(present: EndpointSlice) -> bool:
    """Return whether a slice was made from a ShadowEndpointSlice: it has the labels, and no other controller.

    The garbage collector takes the owner off what an owner leaves that is deleted with ``propagationPolicy=Orphan``.
    """
    owner = controller_of(present)
    return all(present.metadata.labels.get(key) == value for key, value in LABELS.items()) and (
        owner is None
        or (owner.kind, owner.api_version) == (SHADOWENDPOINTSLICES.kind, SHADOWENDPOINTSLICES.api_version)
    )


def says_lost(present: EndpointSlice | None) -> bool:
    """Return whether a slice says that the path to its borrower's home is lost."""
    return present is not None and PATH_LOST_ANNOTATION in present.metadata.annotations


def unready(template: SliceTemplate, besides: Collection[str] = ()) -> SliceTemplate:
    """Return a slice whose endpoints cannot be reached: none is ready, nor serves, but for those ``besides``."""
    endpoints = [
        endpoint
        if endpoint.addresses and all(one in besides for one in endpoint.addresses)
        else msgspec.structs.replace(
            endpoint, conditions=msgspec.structs.replace(endpoint.conditions, ready=False, serving=False)
        )
        for endpoint in template.endpoints or ()
    ]
    return msgspec.structs.replace(template, endpoints=endpoints or None)


def direct_ways(shadow: ShadowEndpointSlice, known: Mapping[str, AddressMap]) -> dict[str, str]:
    """Return the addresses of a slice to which there is a way without home, each with the one to use.

    ``known`` has, by lender, how its addresses read here. What it does not translate stays as home wrote it, which
    leads there by way of home: a borrower gets no address by this but those of its pods' networks at that lender.
    """
    found = {}
    for one in (shadow.spec.direct or ())[:MAX_DIRECT_ENDPOINTS]:
        seen = known[one.lender].seen(one.original) if one.lender in known else ""
        if seen and (":" in seen) == (":" in one.address):
            found[one.address] = seen
    return found


def directly(template: SliceTemplate, ways: Mapping[str, str]) -> SliceTemplate:
    """Return a slice whose endpoints are reached by these ways, where there is one."""
    endpoints = [
        msgspec.structs.replace(endpoint, addresses=[ways.get(one, one) for one in endpoint.addresses])
        for endpoint in template.endpoints or ()
    ]
    return msgspec.structs.replace(template, endpoints=endpoints or None)


def labels_of(shadow: ObjectMeta) -> dict[str, str]:
    """Return the labels of a slice: its service, and the controller that manages it."""
    return {**{key: shadow.labels[key] for key in _LABELS_KEPT if key in shadow.labels}, **LABELS}


def template_of(shadow: ShadowEndpointSlice, tenant: str, refused: Collection[str] = ()) -> SliceTemplate:
    """Return what the slice should hold; endpoints without an address, or with a refused one, are left out.

    The addresses were translated by the borrower into addresses that are reachable from this cluster.
    """
    template = shadow.spec.template
    endpoints = [
        msgspec.structs.replace(endpoint, node_name=tenant, target_ref=_remote(endpoint.target_ref))
        for endpoint in template.endpoints or ()
        if endpoint.addresses and all(one and one not in refused for one in endpoint.addresses)
    ]
    return SliceTemplate(address_type=template.address_type, endpoints=endpoints or None, ports=template.ports or None)


def _remote(target: ObjectReference | None) -> ObjectReference | None:
    if target is None:
        return None
    return msgspec.structs.replace(target, kind=f"{_REMOTE}{target.kind.removeprefix(_REMOTE)}")


def refused_addresses(shadow: ShadowEndpointSlice, objection: Callable[[str], str]) -> dict[str, str]:
    """Return the addresses that the slice may not hold, each with the reason."""
    named = {one for endpoint in shadow.spec.template.endpoints or () for one in endpoint.addresses if one}
    return {one: why for one in sorted(named) if (why := objection(one))}


def body_of(shadow: ShadowEndpointSlice, wanted: SliceTemplate, *, lost: bool = False) -> dict[str, Any]:
    """Return the body of the slice to create; ``lost`` as in ``decide``."""
    meta = shadow.metadata
    owner = {
        "apiVersion": SHADOWENDPOINTSLICES.api_version,
        "kind": SHADOWENDPOINTSLICES.kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        # True would need the right to update the owner's finalizers (admission OwnerReferencesPermissionEnforcement).
        "blockOwnerDeletion": False,
    }
    metadata = {
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": labels_of(meta),
        "annotations": {PATH_LOST_ANNOTATION: "true"} if lost else {},
        "ownerReferences": [owner],
    }
    return {
        "apiVersion": ENDPOINTSLICES.api_version,
        "kind": ENDPOINTSLICES.kind,
        "metadata": metadata,
        # endpoints and addressType are required by the API (discovery/v1); they are sent also where they are default
        # values that the encoder would omit.
        "addressType": wanted.address_type,
        "endpoints": to_dict(wanted.endpoints or []),
        "ports": to_dict(wanted.ports or []),
    }
