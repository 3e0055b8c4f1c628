"""Forges Services without the addresses and node ports of this cluster (spec 004, "Services").

externalIPs are never reflected: with them a service intercepts traffic to any address (CVE-2020-8554). Of ipFamilies
the first is reflected if the lender has it; by ipFamilyPolicy the lender adds the other one itself. Without it an IPv6
service would become an IPv4 one at a dual-stack lender, and the endpoints of this cluster would not match.

A service with a load balancer gets the class that the lender offers first. Nobody can change that of a service that is
there, so what it has is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld, wanted, with_class
from liqod.kubelet.reflection.views import WithSpec
from liqod.model.ids import Key
from liqod.model.names import FORCE_NODE_PORT

API_SERVER: Final = Key("default", "kubernetes")
HEADLESS: Final = "None"
LOAD_BALANCER: Final = "LoadBalancer"
CLASS: Final = "loadBalancerClass"
FAMILIES: Final = ("IPv4", "IPv6")
_FIELDS: Final = (
    "type",
    "selector",
    "externalName",
    "allocateLoadBalancerNodePorts",
    "externalTrafficPolicy",
    "internalTrafficPolicy",
    "ipFamilyPolicy",
    "loadBalancerSourceRanges",
    "publishNotReadyAddresses",
    "sessionAffinity",
    "sessionAffinityConfig",
    "trafficDistribution",
)
_OUTSIDE: Final = ("NodePort", LOAD_BALANCER)
# Without nodePort, which the lender's API server allocates from a range of its own (--service-node-port-range).
_PORT_FIELDS: Final = ("name", "port", "targetPort", "protocol", "appProtocol")


def forge(home: WithSpec, inputs: ForgeInputs) -> DesiredObject | Withheld:
    """Return the Service for the lender."""
    if home.metadata.key == API_SERVER:
        return Withheld("it is the service of this cluster's API server")
    if why := inputs.objection(home.metadata.annotations):
        return Withheld(why)
    force = home.metadata.annotations.get(FORCE_NODE_PORT) == "true"
    spec = forge_spec(home.content().get("spec") or {}, force=force, families=inputs.context.network.families())
    desired = wanted(home.metadata, {"spec": spec}, inputs.context)
    if spec["type"] != LOAD_BALANCER:
        return desired
    return with_class(desired, inputs.home.load_balancer_classes(home.metadata.namespace), CLASS)


def forge_spec(spec: Mapping[str, Any], *, force: bool, families: Collection[str] = ()) -> dict[str, Any]:
    """Return the reflected part of a Service spec, with its node ports if ``force``.

    The first IP family is included if it is in ``families``.
    """
    forged = {field: spec[field] for field in _FIELDS if spec.get(field) not in (None, "", {}, [])}
    forged.setdefault("type", "ClusterIP")
    if forged.get("publishNotReadyAddresses") is False:
        del forged["publishNotReadyAddresses"]
    if forged["type"] not in _OUTSIDE:
        # A ClusterIP service with externalIPs may have the field; without externalIPs, which are not reflected, the API
        # server refuses it (422).
        forged.pop("externalTrafficPolicy", None)
    if spec.get("clusterIP") == HEADLESS:
        forged["clusterIP"] = HEADLESS
    if (first := next(iter(spec.get("ipFamilies") or ()), "")) in families:
        forged["ipFamilies"] = [first]
    ports = [_port(port, force) for port in spec.get("ports") or []]
    if ports:
        forged["ports"] = ports
    return forged


def _port(port: Mapping[str, Any], force: bool) -> dict[str, Any]:
    forged = {field: port[field] for field in _PORT_FIELDS if port.get(field) not in (None, "")}
    if force and port.get("nodePort"):
        forged["nodePort"] = port["nodePort"]
    return forged


def observe(there: WithSpec, desired: DesiredObject) -> dict[str, Any]:
    """Return the reflected part of the object at the lender; node ports and IP families only if they are desired.

    Its class is taken as desired.
    """
    forced = any("nodePort" in port for port in desired.content["spec"].get("ports", ()))
    families = FAMILIES if "ipFamilies" in desired.content["spec"] else ()
    observed = forge_spec(there.content().get("spec") or {}, force=forced, families=families)
    desired_class = desired.content["spec"].get(CLASS)
    return {"spec": {**observed, CLASS: desired_class} if desired_class else observed}


def is_fixed(observed: dict[str, Any], desired: DesiredObject) -> bool:
    """Return whether the object must be re-created.

    The lender lets no borrower change the type; the API server lets nobody change the primary IP family.
    """
    old, new = observed["spec"], desired.content["spec"]
    return any(old.get(field) != new.get(field) for field in ("type", "clusterIP", "ipFamilies"))
