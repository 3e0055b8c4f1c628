"""What the records say about the network with a peer, computed from what is known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import msgspec

from liqod.fabric.agreement.validation import Remote
from liqod.fabric.kernel.device import implementation
from liqod.fabric.kernel.model import Link, Observed
from liqod.fabric.kernel.wireguard import ALIVE
from liqod.fabric.probing.health import Health, loss_in_words, rtt_in_words
from liqod.fabric.probing.pod_reachability import PodPath, cut_of
from liqod.model.objects.meta import Condition, set_condition
from liqod.model.records.network import Gateway, NetworkConfig, Subnets, TunnelEndpointSpec, TunnelEndpointStatus

PHASES: Mapping[str, str] = {"Connected": "True", "Connecting": "Unknown", "Error": "False"}


@attrs.frozen
class Agreed:
    """A peer with which all is agreed: its side, the link that was made of it, and where our own hosts turn for it."""

    remote: Remote
    link: Link
    gateway: Gateway = attrs.field(factory=Gateway)


def tunnel_spec(config: NetworkConfig, agreed: Agreed) -> TunnelEndpointSpec:
    """Return what both clusters agreed on, in both views."""
    local, remote = config.spec.local, config.status.remote
    return TunnelEndpointSpec(
        cluster_id=config.metadata.name,
        endpoint=agreed.link.endpoint,
        public_key=agreed.link.public_key,
        allowed_ips=[str(one) for one in agreed.link.remote],
        local=Subnets(pod_cidrs=local.pod_cidrs, external_cidr=local.external_cidr, external_six=local.external_six),
        local_seen=config.status.ack,
        remote=Subnets(
            pod_cidrs=remote.pod_cidrs, external_cidr=remote.external_cidr, external_six=remote.external_six
        ),
        remote_seen=config.spec.remap,
        gateway=agreed.gateway,
    )


def tunnel_status(
    agreed: Agreed,
    observed: Observed,
    health: Health | None,
    paths: Sequence[PodPath],
    device: str,
    before: TunnelEndpointStatus,
    now: float,
    stamp: str,
) -> TunnelEndpointStatus:
    """Return the whole status; ``now`` is in seconds since 1970, ``stamp`` the same in RFC 3339."""
    age = _handshake_age(agreed.link, observed, now)
    phase, reason, message, cut = _phase(agreed.link, observed, health, paths, age, now, before.phase)
    conditions = set_condition(
        before.conditions, Condition(type="Connected", status=PHASES[phase], reason=reason, message=message), stamp
    )
    return TunnelEndpointStatus(
        phase=phase,
        reason=reason,
        message=message,
        cut=cut,
        device=device,
        implementation=implementation(observed.device.kind) if observed.device is not None else "",
        handshake="never" if age is None else "fresh" if age < ALIVE else "stale",
        rtt=rtt_in_words(health.rtt) if health is not None and phase == "Connected" else "",
        loss=loss_in_words(health.loss) if health is not None else "",
        path_mtu=(health.mtu if health is not None else 0) or agreed.link.mtu,
        conditions=conditions,
    )


def same_but_numbers(one: TunnelEndpointStatus, two: TunnelEndpointStatus) -> bool:
    """Tell whether two statuses differ in measurements only, which are not worth a write at once."""
    return msgspec.structs.replace(one, rtt=two.rtt, loss=two.loss) == two


def _handshake_age(link: Link, observed: Observed, now: float) -> float | None:
    peer = observed.tunnel.peers.get(link.public_key) if observed.tunnel is not None else None
    return now - peer.handshake if peer is not None and peer.handshake else None


def _phase(
    link: Link,
    observed: Observed,
    health: Health | None,
    paths: Sequence[PodPath],
    age: float | None,
    now: float,
    before: str,
) -> tuple[str, str, str, str]:
    missing = [network for network in link.remote if network not in observed.routes]
    if missing or observed.device is None:
        what = "the tunnel's device is missing" if observed.device is None else f"there is no route to {missing[0]}"
        return "Error", "LocalRouteMissing", f"{what} on this host", "local route"
    if health is not None and health.crosses(now) and (cut := cut_of(paths, now)) is not None:
        if cut.whole:
            return "Error", "PodPathCut", cut.message, "remote pods"
        # Pods are not taken from a node because one of their two addresses is not reached: it is told, no more.
        return "Connected", "FamilyCut", cut.message, "remote pods"
    if health is not None and health.crosses(now):
        return "Connected", "PacketsCross", "packets cross in both directions", ""
    if before == "Connected" and health is not None and health.fresh(now):
        # A daemon that has just started has no answer yet; the tunnel outlived the one before it.
        return "Connected", "PacketsCross", "packets cross in both directions", ""
    if health is None or health.undecided(now):
        return "Connecting", "Probing", "the first packets are under way", ""
    if age is None or age >= ALIVE:
        where = link.endpoint or "it (it has to call us: it named no endpoint)"
        return (
            "Error",
            "NoHandshake",
            f"no packet of the tunnel comes back from {where}; is its UDP port open?",
            "tunnel",
        )
    if not _advanced(link, observed):
        return (
            "Error",
            "TunnelSilent",
            f"the tunnel to {link.endpoint or 'the peer'} is up but nothing comes back",
            "tunnel",
        )
    message = "the tunnel is up, but the probes through the peer's address translation are not answered"
    return "Error", "ProbesLost", message, "remote host"


def _advanced(link: Link, observed: Observed) -> bool:
    peer = observed.tunnel.peers.get(link.public_key) if observed.tunnel is not None else None
    return peer is not None and peer.received > 0
