"""What the network agent takes out of records, and what it refuses, no matter who wrote them."""

from __future__ import annotations

import ipaddress
from typing import Any

import attrs
import msgspec
from kubesandbox.kinds.schema import prune, validate
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.desired import RecordLimits, desired_network, link_of
from liqod.fabric.agent.key import generate
from liqod.fabric.control.agreed import AgreedPeer, detailed, tunnel_spec
from liqod.fabric.control.agreement.agreement import LocalNetwork, agree, allocation
from liqod.kube.manifests import definitions
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.network import (
    Export,
    Network,
    NetworkConfig,
    NetworkConfigSpec,
    NetworkConfigStatus,
    NetworkGatewaySpec,
    OverlayHost,
    SeenExport,
    Subnets,
    TunnelEndpoint,
    TunnelSide,
)

# In order: a cluster whose key is the greater one chooses networks from the end.
OWN, KEY, OTHER = sorted(generate().public for _ in range(3))


def nets(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


LIMITS = RecordLimits(
    given=nets("10.64.0.0/10", "fd4c:6971:6f00::/40"),
    needed=nets("10.64.0.53/32", "192.0.2.1/32"),
    externals=nets("10.70.0.0/20", "fd4c:6971:6e00::/112"),
    keys=frozenset({OWN}),
    closed=True,
    service_pools=nets("240.0.0.0/5"),
)
LOCAL = LocalNetwork(
    pods=nets("10.201.0.0/16", "fd00:201::/48"),
    external=nets("10.70.0.0/20")[0],
    reserved=nets("10.64.0.53/32"),
    pools=LIMITS.given,
    endpoints=("192.0.2.1:5871",),
    public_key=OWN,
    mtu=1420,
    six=nets("fd4c:6971:6e00::/112")[0],
    services=nets("10.96.0.0/12"),
    service_pools=LIMITS.service_pools,
)


def agreed(name: str = "milan", key: str = KEY) -> tuple[NetworkConfig, AgreedPeer]:
    """Return the record of an agreement with everything in it, and what control makes of that."""
    side = TunnelSide(
        pod_cidrs=["10.201.0.0/16", "fd00:201::/48"],
        external_cidr="10.70.0.0/20",
        endpoints=["192.0.2.7:5871"],
        public_key=key,
        mtu=1400,
        next_key=generate().public,
        external_six="fd4c:6971:6e00::/112",
        service_cidrs=["10.112.0.0/12"],
    )
    ack = Subnets(
        pod_cidrs=["10.80.0.0/16", "fd00:80::/48"],
        external_cidr="10.81.0.0/20",
        external_six="fd00:81::/112",
        service_cidrs=["240.32.0.0/12"],
    )
    exports = [
        Export(address="198.51.100.9", external="10.70.0.9", ports=["TCP/80", "UDP/53"]),
        Export(address="2001:db8::9", external="fd4c:6971:6e00::9", ports=["TCP/80"]),
    ]
    config = NetworkConfig(metadata=ObjectMeta(name=name), status=NetworkConfigStatus(remote=side, ack=ack))
    remap = allocation(LOCAL, config, [], [])
    spec = NetworkConfigSpec(cluster_id=name, local=LOCAL.side, remap=remap, exports=exports)
    config = msgspec.structs.replace(config, spec=spec)
    found = agree(LOCAL, config, remap, ())
    assert found is not None
    remote, link = found
    pods, guests = frozenset({"10.201.0.5", "fd00:201::5"}), frozenset({"10.201.0.6", "fd00:201::6"})
    own, offloaded = frozenset({"10.112.0.10"}), frozenset({str(link.remote[0][9])})
    link = attrs.evolve(link, pods=pods, guests=guests, own_services=own, offloaded=offloaded)
    return config, AgreedPeer(remote, link, is_followed=True)


def record(name: str = "milan", key: str = KEY, **changes: Any) -> TunnelEndpoint:
    """Return the record that control writes, with changes that somebody else made to it."""
    config, peer = agreed(name, key)
    spec = detailed(tunnel_spec(config, peer), peer, ["10.64.0.9"])
    return TunnelEndpoint(metadata=ObjectMeta(name=name), spec=msgspec.structs.replace(spec, **changes))


class DerivationTests(SynchronousTestCase):
    """Control and the agent understand the same by a record."""

    def test_nothing_is_lost_on_the_way(self) -> None:
        """The link that control agreed on is the link that the agent makes."""
        config, peer = agreed()
        spec = detailed(tunnel_spec(config, peer), peer, [])
        one = TunnelEndpoint(metadata=ObjectMeta(name="milan"), spec=spec)
        # By way of JSON, as the API server keeps it.
        stored = msgspec.json.decode(msgspec.json.encode(one), type=TunnelEndpoint)
        self.assertEqual(link_of(stored, LIMITS, 1420), attrs.evolve(peer.link, exports=_sorted(peer)))

    def test_what_is_written_is_what_is_stored(self) -> None:
        """The API server drops no field of a tunnel's record, during a rotation of keys too: else it is never equal."""
        config, peer = agreed()
        ack = msgspec.structs.replace(
            config.status.ack, known_key=OTHER, reason="Some", message="words", service_cidrs=["240.0.0.0/16"] * 9
        )
        remap = msgspec.structs.replace(config.spec.remap, known_key=OTHER)
        config = msgspec.structs.replace(
            config,
            spec=msgspec.structs.replace(config.spec, remap=remap),
            status=msgspec.structs.replace(config.status, ack=ack),
        )
        spec = detailed(tunnel_spec(config, peer), peer, ["10.64.0.9"])
        body = {"spec": msgspec.to_builtins(spec)}
        (definition,) = [one for one in definitions() if one["spec"]["names"]["kind"] == "TunnelEndpoint"]
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        self.assertEqual(prune(body, schema), body)
        self.assertEqual(validate(body, schema), [])

    def test_the_network_of_a_gateway(self) -> None:
        """Own addresses, hosts on the overlay and probes come from the records too."""
        gateway = NetworkGatewaySpec(
            addresses=["10.70.0.1/32", "fd4c:6971:6e00::1/128"],
            hosts=[OverlayHost(address="192.0.2.11", networks=["192.0.2.11/32", "10.201.1.0/24"])],
        )
        found = desired_network(gateway, [record()], LIMITS, 1420)
        self.assertEqual(found.refused, {})
        self.assertEqual(found.network.addresses, nets("10.70.0.1/32", "fd4c:6971:6e00::1/128"))
        (host,) = found.network.vteps
        self.assertEqual((host.address, host.networks), ("192.0.2.11", nets("192.0.2.11/32", "10.201.1.0/24")))
        pods = found.network.links[0].remote
        self.assertEqual(set(found.network.probes.gateways), {"milan"})
        self.assertEqual(bool(found.network.probes.pods), ipaddress.ip_address("10.64.0.9") in pods[0])

    def test_the_gateway_that_is_probed(self) -> None:
        """It has the IP version of our first address, from which probes are sent; a peer without one is not probed."""
        pods = ["10.65.0.0/16", "fd4c:6971:6f01::/48"]
        both = Subnets(pod_cidrs=pods, external_cidr="10.66.0.0/20", external_six="fd4c:6971:6f02::/112")
        six = Subnets(pod_cidrs=pods, external_cidr="fd4c:6971:6f02::/112")
        for own, remote, probed in (
            ("10.70.0.1/32", both, {"milan": "10.66.0.1"}),
            ("10.70.0.1/32", six, {}),
            ("fd4c:6971:6e00::1/128", both, {"milan": "fd4c:6971:6f02::1"}),
            ("fd4c:6971:6e00::1/128", six, {"milan": "fd4c:6971:6f02::1"}),
        ):
            gateway = NetworkGatewaySpec(addresses=[own])
            found = desired_network(gateway, [record(remote_seen=remote)], LIMITS, 1420)
            self.assertEqual(found.refused, {})
            self.assertEqual(found.network.probes.gateways, probed)


def _sorted(peer: AgreedPeer) -> Any:
    return tuple(sorted(peer.link.exports, key=lambda one: one.seen))


def seen(*pods: str, external: str = "") -> Subnets:
    return Subnets(pod_cidrs=list(pods), external_cidr=external)


class RefusalTests(SynchronousTestCase):
    """A record that was written by a thief of control's credential, one row for each attempt."""

    def test_networks_of_our_services(self) -> None:
        """They hold nothing that this host needs, but for the API server where that is reached by its Service."""

        def refused(services: str, *needed: str, own: str = "") -> list[str]:
            local = msgspec.structs.replace(record().spec.local, service_cidrs=[services])
            limits = attrs.evolve(
                LIMITS, needed=(*LIMITS.needed, *nets(*needed)), own_services=nets(own) if own else ()
            )
            found = desired_network(NetworkGatewaySpec(), [record(local=local)], limits, 1420)
            return [refusal.reason for refusal in found.refused.values()]

        server = "10.96.0.1/32"
        self.assertEqual(refused("10.96.0.0/16"), [])
        self.assertEqual(refused("10.96.0.0/16", server), ["CIDRForbidden"])
        self.assertEqual(refused("10.96.0.0/16", server, own=server), [])
        self.assertEqual(refused("10.96.0.0/16", server, "10.96.9.1/32", own=server), ["CIDRForbidden"])
        self.assertEqual(refused("192.0.2.0/24", server, own=server), ["CIDRForbidden"])

    def test_attempts(self) -> None:
        """Each is refused with its reason, and none of it reaches the desired network."""
        for changes, reason in (
            ({"remote_seen": seen("8.8.8.0/24")}, "CIDRForbidden"),
            ({"remote_seen": seen("10.1.0.0/16")}, "CIDRForbidden"),
            ({"remote_seen": seen("0.0.0.0/0")}, "CIDRTooWide"),
            ({"remote_seen": seen("127.0.0.0/8")}, "CIDRForbidden"),
            ({"remote_seen": seen("10.64.0.0/16")}, "CIDRForbidden"),
            ({"remote_seen": seen("10.65.0.0/16", "10.65.3.0/24")}, "CIDROverlap"),
            ({"remote_seen": seen("10.65.0.0/16", external="10.70.0.0/20")}, "CIDRForbidden"),
            ({"remote_seen": seen("10.65.0.0/16; flush ruleset")}, "BadCIDR"),
            ({"remote_seen": seen()}, "NoPodNetwork"),
            ({"remote_seen": seen(*(f"10.{n}.0.0/24" for n in range(80, 100)))}, "NoPodNetwork"),
            ({"local": seen("10.201.0.0/16", "fd00:201::/48", external="10.7.0.0/20")}, "CIDRForbidden"),
            ({"local_seen": seen("10.80.0.0/24", "fd00:80::/48")}, "BadAnswer"),
            ({"public_key": OWN}, "KeyInUse"),
            ({"next_key": OWN}, "KeyInUse"),
            ({"public_key": "x\nAllowedIPs = 0.0.0.0/0"}, "BadKey"),
            ({"endpoint": "127.0.0.1:5871"}, "BadEndpoint"),
            ({"endpoint": "192.0.2.7:5871\n[Peer]"}, "BadEndpoint"),
            ({"mtu": 70000}, "BadMTU"),
            ({"exports": [SeenExport("10.81.0.9", "127.0.0.1", ["TCP/6443"])]}, "BadExport"),
            ({"exports": [SeenExport("10.81.0.9", "169.254.169.254", ["TCP/80"])]}, "BadExport"),
            ({"exports": [SeenExport("10.81.0.9", "100.100.100.200", ["TCP/80"])]}, "BadExport"),
            ({"exports": [SeenExport("10.99.0.9", "198.51.100.9", ["TCP/80"])]}, "BadExport"),
            ({"exports": [SeenExport("10.81.0.9", "198.51.100.9", [])]}, "BadExport"),
            ({"exports": [SeenExport("10.81.0.9", "198.51.100.9", ["TCP/80 accept"])]}, "BadExport"),
            ({"exports": [SeenExport("10.81.0.9", "2001:db8::9", ["TCP/80"])]}, "BadExport"),
            ({"exports": [SeenExport("10.81.0.9", "198.51.100.9", ["TCP/80"])] * 1025}, "TooMany"),
            ({"cluster_id": "turin"}, "BadRecord"),
            ({"detailed": False}, "NotDetailed"),
        ):
            found = desired_network(NetworkGatewaySpec(), [record(**changes)], LIMITS, 1420)
            self.assertEqual(found.network.links, (), changes)
            self.assertEqual([refusal.reason for refusal in found.refused.values()], [reason], changes)

    def test_the_first_of_two_has_it(self) -> None:
        """A second record with the networks or the key of another is refused; the other one is not touched."""
        for changes, reason in (({}, "CIDROverlap"), ({"key": KEY}, "KeyInUse")):
            two = record("turin", **{"key": OTHER, **changes})
            found = desired_network(NetworkGatewaySpec(), [two, record()], LIMITS, 1420)
            self.assertEqual([link.peer for link in found.network.links], [ClusterID("milan")])
            self.assertEqual([refusal.reason for refusal in found.refused.values()], [reason])

    def test_a_key_in_use_is_no_next_key(self) -> None:
        """A record that names the key of another as its next one is refused, whichever name comes first."""
        found = desired_network(NetworkGatewaySpec(), [record(), record("ankara", OTHER, next_key=KEY)], LIMITS, 1420)
        self.assertEqual([link.peer for link in found.network.links], [ClusterID("milan")])
        self.assertEqual([refusal.reason for refusal in found.refused.values()], ["KeyInUse"])

    def test_the_policy_is_the_hosts(self) -> None:
        """A record does not open a tunnel to all pods where the host's settings say closed, nor to what is no pod."""
        one = record(closed=False, allowed_pods=["10.201.0.9", "192.0.2.1", "x"])
        self.assertEqual(link_of(one, LIMITS, 1420).pods, frozenset({"10.201.0.9"}))
        self.assertIsNone(link_of(one, attrs.evolve(LIMITS, closed=False), 1420).pods)

    def test_hosts_and_addresses(self) -> None:
        """Own addresses outside the external networks, and hosts that are this one or a name server, are left out."""
        gateway = NetworkGatewaySpec(
            addresses=["192.0.2.9/32", "10.70.0.0/24"],
            hosts=[
                OverlayHost(address="192.0.2.1", networks=["10.201.1.0/24"]),
                OverlayHost(address="127.0.0.1", networks=["10.201.1.0/24"]),
                OverlayHost(address="192.0.2.12; reboot", networks=["10.201.1.0/24"]),
                OverlayHost(address="192.0.2.11", networks=["0.0.0.0/0", "10.64.0.0/16", "10.201.1.0/24"]),
            ],
        )
        found = desired_network(gateway, [], LIMITS, 1420).network
        self.assertEqual(found.addresses, ())
        self.assertEqual([(one.address, one.networks) for one in found.vteps], [("192.0.2.11", nets("10.201.1.0/24"))])
