"""A peer after both sides agreed, and the record of its tunnel that follows from that. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import msgspec

from liqod.fabric.state.network import Link
from liqod.fabric.state.validation import RemoteNetwork
from liqod.model.records.network import (
    MAX_GUESTS,
    MAX_OWN_SERVICES,
    MAX_PODS,
    MAX_SERVICE_NETWORKS,
    DirectPods,
    Gateway,
    NetworkConfig,
    SeenExport,
    Subnets,
    TunnelEndpointSpec,
)


@attrs.frozen
class AgreedPeer:
    """A peer after both sides agreed: its parameters, the link to it, and the VTEP for our other hosts.

    ``is_followed``: other hosts or processes act by the record.
    """

    remote: RemoteNetwork
    link: Link
    gateway: Gateway = attrs.field(factory=Gateway)
    is_followed: bool = False


def tunnel_spec(config: NetworkConfig, agreed: AgreedPeer) -> TunnelEndpointSpec:
    """Return what both clusters agreed on, in both views."""
    local, remote = config.spec.local, config.status.remote
    return TunnelEndpointSpec(
        cluster_id=config.metadata.name,
        endpoint=agreed.link.endpoint,
        public_key=agreed.link.public_key,
        next_key=agreed.link.next_key,
        allowed_ips=[str(one) for one in agreed.link.remote],
        local=Subnets(
            pod_cidrs=local.pod_cidrs,
            external_cidr=local.external_cidr,
            external_six=local.external_six,
            service_cidrs=local.service_cidrs,
        ),
        local_seen=_networks_alone(config.status.ack),
        # Of the peer's networks of Services those that its pods here can call.
        remote=Subnets(
            pod_cidrs=remote.pod_cidrs,
            external_cidr=remote.external_cidr,
            external_six=remote.external_six,
            service_cidrs=[str(one.services) for one in agreed.link.peer_services],
        ),
        remote_seen=msgspec.structs.replace(
            _networks_alone(config.spec.remap), service_cidrs=[str(one.seen) for one in agreed.link.peer_services]
        ),
        gateway=agreed.gateway,
        # Those beyond the bound of the schema are not translated on other hosts.
        guests=sorted(agreed.link.guests)[:MAX_GUESTS] if agreed.is_followed else [],
        own_services=sorted(agreed.link.own_services)[:MAX_OWN_SERVICES] if agreed.is_followed else [],
        direct=[DirectPods(home=one.home, networks=[str(net) for net in one.networks]) for one in agreed.link.direct],
    )


def _networks_alone(seen: Subnets) -> Subnets:
    """Return what a tunnel's record holds of a view: a field that its schema lacks would be written again and again."""
    services = seen.service_cidrs if len(seen.service_cidrs) <= MAX_SERVICE_NETWORKS else []
    return msgspec.structs.replace(seen, reason="", message="", known_key="", service_cidrs=services)


def detailed(spec: TunnelEndpointSpec, agreed: AgreedPeer, probe_pods: Sequence[str]) -> TunnelEndpointSpec:
    """Return a tunnel's spec with all that a network agent in another process needs to make the link."""
    link = agreed.link
    return msgspec.structs.replace(
        spec,
        detailed=True,
        mtu=agreed.remote.mtu,
        exports=[
            SeenExport(
                address=one.seen,
                target=one.real,
                ports=sorted(f"{protocol.upper()}/{port}" for protocol, port in one.ports),
            )
            for one in link.exports
        ],
        closed=link.pods is not None,
        # Those beyond the bound of the schema have no network, which fails closed.
        allowed_pods=sorted(link.pods or ())[:MAX_PODS],
        probe_pods=sorted(probe_pods),
        offloaded=sorted(link.offloaded)[:MAX_PODS],
        direct=[
            msgspec.structs.replace(record, pods=sorted(one.pods)[:MAX_GUESTS])
            for record, one in zip(spec.direct, link.direct, strict=True)
        ],
    )
