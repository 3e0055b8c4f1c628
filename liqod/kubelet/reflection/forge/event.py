"""Forges events about home objects from events of the lender (spec 004, "Events")."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from liqod.kubelet.common.context import Context
from liqod.kubelet.reflection.forge.configmap import name_at_home
from liqod.model.objects.meta import Object, View
from liqod.model.text import clean_text

FROM_LENDER: Final = " (at {lender})"
LONGEST: Final = 900
"""Leaves room for ``FROM_LENDER`` below the 1024 characters of an Event's note (NoteLengthLimit)."""


class Involved(View, frozen=True):
    """The object that an event is about."""

    kind: str = ""
    name: str = ""
    api_version: str = ""


class SourceComponent(View, frozen=True):
    """The component that reported an event."""

    component: str = ""


class Event(Object, frozen=True):
    """The reflected part of an event of the lender."""

    source: SourceComponent = SourceComponent()
    reporting_component: str = ""
    involved_object: Involved = Involved()
    reason: str = ""
    message: str = ""
    type: str = "Normal"
    count: int | None = None


_KINDS: Final = {
    "Pod": "Pod",
    "Service": "Service",
    "EndpointSlice": "EndpointSlice",
    "ShadowEndpointSlice": "EndpointSlice",
    "Ingress": "Ingress",
    "HTTPRoute": "HTTPRoute",
    "GRPCRoute": "GRPCRoute",
    "ConfigMap": "ConfigMap",
    "Secret": "Secret",
    "PersistentVolumeClaim": "PersistentVolumeClaim",
}


@frozen
class HomeEvent:
    """An event to record at home, and the object that it is about."""

    kind: str
    name: str
    type: str
    reason: str
    message: str
    component: str = ""
    """What reported it at the lender, such as ``kubelet``."""


def forge(event: Event, context: Context) -> HomeEvent | None:
    """Return the home event of an event of the lender; None for kinds that are not reflected and without a reason."""
    kind = _KINDS.get(event.involved_object.kind)
    reason = "".join(character for character in event.reason if character.isalnum())[:64]
    if kind is None or not reason:
        return None
    name = event.involved_object.name
    message = clean_text(event.message, LONGEST)
    return HomeEvent(
        kind=kind,
        name=name_at_home(name, context) if kind == "ConfigMap" else name,
        type="Warning" if event.type == "Warning" else "Normal",
        reason=reason,
        message=message + FROM_LENDER.format(lender=context.lender),
        component=event.source.component or event.reporting_component,
    )
