"""The table of reflected kinds: the resources watched at home and at the lender, and the functions between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import frozen

from liqod.config.schema import ReflectionSettings
from liqod.kube.resources import (
    CONFIGMAPS,
    ENDPOINTSLICES,
    GRPCROUTES,
    HTTPROUTES,
    INGRESSES,
    PERSISTENTVOLUMECLAIMS,
    SECRETS,
    SERVICES,
    SHADOWENDPOINTSLICES,
    Resource,
)
from liqod.kubelet.common.context import Context
from liqod.kubelet.reflection.forge import claim, configmap, endpointslice, ingress, route, secret, service
from liqod.kubelet.reflection.forge.policy import Listing
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld
from liqod.kubelet.reflection.views import ConfigMap, EndpointSlice, Reflectable, Secret, WithSpec
from liqod.kubelet.tokens.secret import ACCOUNT_LABEL
from liqod.model.names import HOME_API_LABEL

SLICE_PAUSE: Final = 0.5
"""Seconds between two writes of one slice: endpoints change in bursts, and only the latest state matters."""


def _same(name: str, context: Context) -> str:
    return name


def _never(observed: dict[str, Any], desired: DesiredObject) -> bool:
    return False


def _no_objection(there: Reflectable, desired: DesiredObject) -> str:
    return ""


@frozen
class Kind:
    """One reflected kind.

    ``forge`` returns the desired object, ``observe`` the same fields of the object at the lender. ``is_fixed``: the
    difference is in an immutable field, so the object must be re-created. ``pause``: minimum seconds between two writes
    of one object. ``setting``: the name in the configuration. ``unless``: objects of ours with this label are not
    reflected ones. ``objection``: why an object of ours may not be updated. ``lasting``: objects at the lender hold
    data and are kept when they are no longer desired. ``requests_exports``: objects contain addresses that the
    lender's pods must reach. ``class_field``: the field of the spec with the object's class at the lender.
    ``by_offer``: what it becomes depends on the lender's offer in another way. ``may_be_absent``: not every API server
    serves it.
    """

    setting: str
    home: Resource
    there: Resource
    home_view: type[Reflectable]
    there_view: type[Reflectable]
    forge: Callable[[Any, ForgeInputs], DesiredObject | Withheld]
    observe: Callable[[Any, DesiredObject], dict[str, Any]]
    is_fixed: Callable[[dict[str, Any], DesiredObject], bool] = _never
    name_there: Callable[[str, Context], str] = _same
    name_at_home: Callable[[str, Context], str] = _same
    pause: float = 0.0
    unless: str = ""
    objection: Callable[[Reflectable, DesiredObject], str] = _no_objection
    lasting: bool = False
    requests_exports: bool = False
    class_field: str = ""
    by_offer: bool = False
    may_be_absent: bool = False


CONFIGMAP: Final = Kind(
    "configmap",
    CONFIGMAPS,
    CONFIGMAPS,
    ConfigMap,
    ConfigMap,
    configmap.forge,
    configmap.observe,
    configmap.is_fixed,
    configmap.name_there,
    configmap.name_at_home,
)
SECRET: Final = Kind(
    "secret",
    SECRETS,
    SECRETS,
    Secret,
    Secret,
    secret.forge,
    secret.observe,
    secret.is_fixed,
    unless=ACCOUNT_LABEL,
)
SERVICE: Final = Kind(
    "service",
    SERVICES,
    SERVICES,
    WithSpec,
    WithSpec,
    service.forge,
    service.observe,
    service.is_fixed,
    unless=HOME_API_LABEL,
    class_field=service.CLASS,
)
INGRESS: Final = Kind(
    "ingress", INGRESSES, INGRESSES, WithSpec, WithSpec, ingress.forge, ingress.observe, class_field=ingress.CLASS
)
HTTPROUTE: Final = Kind(
    "httproute",
    HTTPROUTES,
    HTTPROUTES,
    WithSpec,
    WithSpec,
    route.forge_http,
    route.observe_http,
    by_offer=True,
    may_be_absent=True,
)
GRPCROUTE: Final = Kind(
    "grpcroute",
    GRPCROUTES,
    GRPCROUTES,
    WithSpec,
    WithSpec,
    route.forge_grpc,
    route.observe_grpc,
    by_offer=True,
    may_be_absent=True,
)
ENDPOINTSLICE: Final = Kind(
    "endpointslice",
    ENDPOINTSLICES,
    SHADOWENDPOINTSLICES,
    EndpointSlice,
    WithSpec,
    endpointslice.forge,
    endpointslice.observe,
    pause=SLICE_PAUSE,
    unless=HOME_API_LABEL,
    requests_exports=True,
)
CLAIM: Final = Kind(
    "persistentvolumeclaim",
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMECLAIMS,
    WithSpec,
    WithSpec,
    claim.forge,
    claim.observe,
    objection=claim.objection,
    lasting=True,
    class_field=claim.CLASS,
)
KINDS: Final = (CONFIGMAP, SECRET, SERVICE, ENDPOINTSLICE, INGRESS, HTTPROUTE, GRPCROUTE, CLAIM)


def reflected_kinds(settings: ReflectionSettings, *, storage: bool) -> list[Kind]:
    """Return the kinds that are reflected; claims are where their data follows pods (``storage``)."""
    return [kind for kind in KINDS if getattr(settings, kind.setting).workers and (kind is not CLAIM or storage)]


def listing_of(kind: Kind, settings: ReflectionSettings) -> Listing:
    """Return the list type of a kind; slices go by that of services, claims go unless annotated."""
    if kind is CLAIM:
        return "DenyList"
    listing: Listing = getattr(settings, SERVICE.setting if kind is ENDPOINTSLICE else kind.setting).type
    return listing
