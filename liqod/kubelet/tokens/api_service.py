"""Forges the service at the lender behind which offloaded pods find their home API server. Pure.

Each remote namespace has one, without selector, at the port that programs have built in. Its ShadowEndpointSlice has
the addresses by which the lender's pods reach the API server through the tunnel; the lender makes an EndpointSlice of
it as of any other, if the addresses are of the networks that were agreed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from attrs import frozen

from liqod.kube.resources import SERVICES, SHADOWENDPOINTSLICES
from liqod.kubelet.common.context import ApiServer, Context
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.network import LenderNetwork
from liqod.kubelet.common.readiness import Readiness, not_known, not_ready
from liqod.model.names import HOME_API_LABEL, REFLECTED_SLICE, SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL
from liqod.model.objects.meta import Object, View
from liqod.model.records.offer import HomeStreamsGrant
from liqod.model.records.views import ShadowEndpointSlice, SliceTemplate

NAME: Final = "liqod-home-api"
"""The name of the service and of its slice."""
PORT: Final = 443
_PORT_NAME: Final = "https"
_REACHED: Final = "offloaded pods reach this cluster's API server as kubernetes.default.svc, port 443, by the tunnel"
_STREAMED: Final = (
    "offloaded pods reach this cluster's API server as kubernetes.default.svc, port 443, by streams of the daemons"
)


class _ServiceSpec(View, frozen=True):
    cluster_ip: str = msgspec.field(name="clusterIP", default="")


class ApiService(Object, frozen=True):
    """The service at the lender."""

    spec: _ServiceSpec = _ServiceSpec()


@frozen
class Reach:
    """How a lender's pods reach the home API server through the tunnel.

    ``addresses`` are those that they call, of one IP version; ``exports`` what must be exported for it; ``objections``
    why an address will never be reached; ``is_waiting``: an address is not exported yet.
    """

    addresses: tuple[str, ...] = ()
    port: int = PORT
    exports: frozenset[tuple[str, str]] = frozenset()
    objections: tuple[str, ...] = ()
    is_waiting: bool = False

    @property
    def family(self) -> str:
        """The IP family of the addresses, as Kubernetes names it."""
        return _family(self.addresses[0]) if self.addresses else "IPv4"


def reach(server: ApiServer, network: LenderNetwork) -> Reach:
    """Return how the lender's pods reach the home API server; a service has endpoints of one IP version."""
    own = [address for address in server.addresses if _family(address) == _family(server.addresses[0])]
    requested = [address for address in own if network.must_be_exported(address)]
    never = {address: why for address in requested if (why := network.objection(address))}
    seen = [network.endpoint_to_lender(address) for address in own if address not in never]
    return Reach(
        addresses=tuple(address for address in seen if address),
        port=server.port,
        exports=frozenset((address, f"TCP/{server.port}") for address in requested if address not in never),
        objections=tuple(f"the address {address} {why}" for address, why in never.items()),
        is_waiting=not all(seen),
    )


def readiness(server: ApiServer, found: Reach, refused: Mapping[str, str]) -> Readiness:
    """Return whether pods at the lender reach the API server; ``refused`` are namespaces where the lender refuses."""
    if refused:
        local, why = min(refused.items())
        return not_ready("ServiceRefused", f"the lender refuses the service {NAME} for the namespace {local}: {why}")
    if found.addresses:
        return Readiness(ready=True, reason="Tunnel", message=_REACHED)
    if found.objections:
        return not_ready(
            "NotExported", f"no address of this cluster's API server can be exported: {found.objections[0]}"
        )
    if not server.addresses:
        return not_known("no address of this cluster's API server is known yet")
    return not_ready("NotExportedYet", "the address of this cluster's API server is not exported to the lender yet")


WITHOUT_TUNNEL: Final = Readiness(
    ready=False,
    reason="NoTunnel",
    message="without a tunnel ([network] mode), and where the lender asks for no streams ([hosting] home-api there), "
    "liqod makes no way for offloaded pods to this cluster's API server: "
    f"they call its own address and port, which others must route, and find nothing at port {PORT}",
    known=False,
)
"""What is known of the way to the API server where liqod runs no tunnel."""


def has_streams(granted: HomeStreamsGrant | None) -> bool:
    """Return whether pods at a lender reach the home API server by streams."""
    return granted is not None and granted.count > 0


def readiness_of_streams(granted: HomeStreamsGrant | None, refused: Mapping[str, str]) -> Readiness:
    """Return the same where there is no tunnel; ``granted`` is what a lender got that asked for streams."""
    if granted is None:
        return WITHOUT_TUNNEL
    if not granted.count:
        return not_ready(granted.reason or "NoStreams", f"no streams are kept for the lender: {granted.message}")
    if refused:
        local, why = min(refused.items())
        return not_ready("ServiceRefused", f"the lender refuses the service {NAME} for the namespace {local}: {why}")
    message = f"{_STREAMED}; {granted.message}" if granted.message else _STREAMED
    return Readiness(ready=True, reason="Streams", message=message)


def forge_service(namespace: str, found: Reach, context: Context, cluster_ip: str = "") -> dict[str, Any]:
    """Return the service; ``cluster_ip`` is what pods already call, after somebody deleted it."""
    spec: dict[str, Any] = {
        "type": "ClusterIP",
        # Without selector only the name of a port leads to that of the slice (discovery/v1, EndpointPort).
        "ports": [{"name": _PORT_NAME, "port": PORT, "protocol": "TCP"}],
    }
    if found.family in context.network.families():
        spec["ipFamilies"] = [found.family]
    if cluster_ip:
        spec["clusterIP"] = cluster_ip
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": NAME, "namespace": namespace, "labels": labels(context)},
        "spec": spec,
    }


def forge_slice(namespace: str, found: Reach, context: Context) -> dict[str, Any]:
    """Return the ShadowEndpointSlice of the service."""
    slice_labels = {SERVICE_NAME_LABEL: NAME, SLICE_MANAGED_BY_LABEL: REFLECTED_SLICE}
    return {
        "apiVersion": SHADOWENDPOINTSLICES.api_version,
        "kind": SHADOWENDPOINTSLICES.kind,
        "metadata": {"name": NAME, "namespace": namespace, "labels": {**labels(context), **slice_labels}},
        "spec": {
            "template": {
                "addressType": found.family,
                "endpoints": [{"addresses": [address]} for address in found.addresses],
                "ports": [{"name": _PORT_NAME, "port": found.port, "protocol": "TCP"}],
            }
        },
    }


def is_same_slice(there: ShadowEndpointSlice, body: Mapping[str, Any]) -> bool:
    """Return whether a slice at the lender needs no write."""
    wanted = msgspec.convert(body["spec"]["template"], SliceTemplate)
    has_labels = body["metadata"]["labels"].items() <= there.metadata.labels.items()
    return has_labels and there.spec.template == wanted


def labels(context: Context) -> dict[str, str]:
    """Return the labels of the service and its slice; reflection leaves alone what has them."""
    return {**ownership(context), HOME_API_LABEL: "true"}


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"
