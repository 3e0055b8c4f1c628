"""Forges ShadowEndpointSlices from EndpointSlices: the endpoints that the lender's own slices do not contain.

Pods that run at the lender are in its own slices; all other endpoints are reflected with translated addresses.
Addresses that are no pods of this cluster must be exported, together with the ports of the slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from liqod.kubelet.common.context import Context
from liqod.kubelet.reflection.forge import policy
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld, wanted
from liqod.kubelet.reflection.forge.service import API_SERVER
from liqod.kubelet.reflection.views import EndpointSlice, WithSpec
from liqod.model.ids import Key
from liqod.model.names import REFLECTED_SLICE, SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL
from liqod.model.records.views import MAX_DIRECT_ENDPOINTS

# It changes with every endpoint of this cluster, also with those that are not reflected.
_LEFT_OUT: Final = frozenset({"endpoints.kubernetes.io/last-change-trigger-time"})
_CONDITIONS: Final = ("ready", "serving", "terminating")
MAX_ADDRESSES: Final = 4
"""Addresses of an endpoint that a lender takes, the first ones. They are the same to clients, which use the first one
(discovery.k8s.io/v1 EndpointSlice)."""
EVERYTHING: Final = ""
"""The request for all ports of an address."""
_PORT_FIELDS: Final = ("name", "port", "protocol", "appProtocol")


def forge(home: EndpointSlice, inputs: ForgeInputs) -> DesiredObject | Withheld:
    """Return the ShadowEndpointSlice for the lender.

    The annotations of its service decide whether it is reflected, unless it has its own.
    """
    meta = home.metadata
    service_name = meta.labels.get(SERVICE_NAME_LABEL, "")
    if meta.namespace == API_SERVER.namespace and API_SERVER.name in (meta.name, service_name):
        return Withheld("it is of this cluster's API server")
    why = policy.explicit(meta.annotations)
    if why is None:
        service = inputs.home.service(Key(meta.namespace, service_name)) if service_name else None
        if service is None and service_name and inputs.has_services:
            # Two watches: the slice of a service that is not to be reflected may come first. The service enqueues it.
            return Withheld("its service is not known")
        why = inputs.objection(meta.annotations if service is None else service.metadata.annotations)
    if why:
        return Withheld(why)
    return _desired(home, inputs)


def _desired(home: EndpointSlice, inputs: ForgeInputs) -> DesiredObject:
    content = home.content()
    everywhere = content.get("endpoints") or ()
    elsewhere = [_shortened(one) for one in everywhere if not inputs.home.is_at_lender(one.get("nodeName") or "")]
    is_name = home.address_type == "FQDN"
    singles = set() if is_name else _singles(elsewhere, inputs.context)
    never = {address: why for address in sorted(singles) if (why := inputs.context.network.objection(address))}
    called = _called(content)
    # With all ports the network decides whether the whole address may be opened, so it must see the request.
    requested = singles if EVERYTHING in called else singles - never.keys()
    endpoints = [e for e in (_endpoint(one, inputs.context, is_name) for one in elsewhere) if e is not None]
    left_out = [one for one in elsewhere if not never.keys().isdisjoint(one.get("addresses") or ())]
    template: dict[str, Any] = {"addressType": home.address_type}
    if endpoints:
        template["endpoints"] = endpoints
    spec: dict[str, Any] = {"template": template}
    if direct := _direct(elsewhere, inputs.context, is_name):
        spec["direct"] = direct
    if ports := [_taken(port, _PORT_FIELDS) for port in content.get("ports") or ()]:
        template["ports"] = ports
    return wanted(
        home.metadata,
        {"spec": spec},
        inputs.context,
        labels={SLICE_MANAGED_BY_LABEL: REFLECTED_SLICE},
        left_out=_LEFT_OUT,
        idle=not endpoints,
        incomplete=len(endpoints) + len(left_out) < len(elsewhere),
        exports=frozenset((address, port) for address in requested for port in called),
        objections=tuple(f"the endpoint {address} {why}" for address, why in never.items()),
    )


def _shortened(endpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    addresses = endpoint.get("addresses") or ()
    return endpoint if len(addresses) <= MAX_ADDRESSES else {**endpoint, "addresses": addresses[:MAX_ADDRESSES]}


def _singles(endpoints: Iterable[Mapping[str, Any]], context: Context) -> set[str]:
    """Return the addresses that must be exported so that the lender's pods reach them."""
    return {
        address
        for one in endpoints
        for address in one.get("addresses") or ()
        if context.network.must_be_exported(address)
    }


def _called(content: Mapping[str, Any]) -> set[str]:
    """Return the ports of a slice as "protocol/number", with EVERYTHING if any port may be meant.

    That is so without ports and for a port without a number (discovery.k8s.io/v1 EndpointSlice).
    """
    ports = content.get("ports") or ()
    named = {f"{port.get('protocol') or 'TCP'}/{port['port']}" for port in ports if port.get("port")}
    return named if named and all(port.get("port") for port in ports) else {*named, EVERYTHING}


def _endpoint(endpoint: Mapping[str, Any], context: Context, is_name: bool) -> dict[str, Any] | None:
    """Return an endpoint for the lender; None while its address there is not known."""
    addresses = list(endpoint.get("addresses") or ())
    if not is_name:
        addresses = [context.network.endpoint_to_lender(address) for address in addresses]
    if not addresses or not all(addresses):
        return None
    forged: dict[str, Any] = {"addresses": addresses}
    if conditions := _taken(endpoint.get("conditions") or {}, _CONDITIONS):
        forged["conditions"] = conditions
    # Not nodeName: nodes of home do not exist at the lender.
    forged |= _taken(endpoint, ("hostname", "zone"))
    if zones := (endpoint.get("hints") or {}).get("forZones"):
        forged["hints"] = {"forZones": [{"name": zone.get("name", "")} for zone in zones]}
    target = endpoint.get("targetRef")
    if target:
        # With the kind Pod, what reads endpoints at the lender would look for a pod of this name there.
        forged["targetRef"] = _taken(target, ("namespace", "name", "uid")) | {"kind": f"Remote{target.get('kind', '')}"}
    return forged


def _direct(endpoints: Iterable[Mapping[str, Any]], context: Context, is_name: bool) -> list[dict[str, str]]:
    """Return which addresses of the slice are of pods at other lenders that this one reaches directly, and how.

    The lender translates them itself; the addresses of the slice lead there by way of home, and stay what it goes back
    to.
    """
    found: dict[str, dict[str, str]] = {}
    for address in () if is_name else (one for each in endpoints for one in each.get("addresses") or ()):
        seen, straight = context.network.endpoint_to_lender(address), context.network.direct(address)
        if seen and straight is not None:
            found[seen] = {"address": seen, "lender": straight[0], "original": straight[1]}
    return [found[seen] for seen in sorted(found)][:MAX_DIRECT_ENDPOINTS]


def _taken(source: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    return {field: source[field] for field in fields if source.get(field) not in (None, "")}


def observe(there: WithSpec, desired: DesiredObject) -> dict[str, Any]:
    """Return the content of the object at the lender."""
    spec = there.content().get("spec") or {}
    observed: dict[str, Any] = {"template": dict(spec.get("template") or {})}
    if direct := spec.get("direct"):
        observed["direct"] = direct
    return {"spec": observed}
