"""Home's Services by their own addresses: which ranges they get, what is led and what is not, and by which rules."""

from __future__ import annotations

import ipaddress
from typing import Any

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.desired import link_of
from liqod.fabric.agent.kernel.rules.guest_rules import guest_sets, peer_digest, to_guests
from liqod.fabric.agent.kernel.rules.service_rules import (
    forward_services,
    guard_services,
    input_services,
    service_chains,
    service_sets,
)
from liqod.fabric.agent.node_view import node_desired
from liqod.fabric.control.agreement.agreement import LocalNetwork, agree, allocation, assigned
from liqod.fabric.state.guests import Guests
from liqod.fabric.state.network import Link, ServiceMap, overlaps
from liqod.fabric.state.services import callable_services, own_services, service_maps
from liqod.fabric.state.validation import usable_services
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.network import (
    Gateway,
    Network,
    NetworkConfig,
    NetworkConfigSpec,
    NetworkConfigStatus,
    Subnets,
)
from liqod.model.records.offer import Refusal
from tests.fabric.control.test_desired import LIMITS, record

KEYS = sorted(("xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=", "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw="))
SERVICES = ("10.96.0.0/12", "fd00:96::/112")


def nets(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


def cluster(number: int = 0, **changes: Any) -> LocalNetwork:
    """Return a cluster's side; all are made by one installer, and differ in their keys."""
    one = LocalNetwork(
        pods=nets("10.201.0.0/16"),
        external=nets("10.70.0.0/20")[0],
        reserved=nets(*SERVICES, "192.0.2.1/32"),
        pools=nets("10.64.0.0/10", "172.16.0.0/12"),
        endpoints=(f"192.0.2.{number + 1}:5871",),
        public_key=KEYS[number],
        mtu=1420,
        services=nets(*SERVICES),
        service_pools=nets("240.0.0.0/5", "fd4c:6971:7000::/40"),
    )
    return attrs.evolve(one, **changes)


def met(own: LocalNetwork, peer: LocalNetwork) -> tuple[NetworkConfig, Link]:
    """Return what a cluster makes of another after both announced all that they have."""
    mine, theirs = (
        NetworkConfig(metadata=ObjectMeta(name="peer"), status=NetworkConfigStatus(remote=one.side))
        for one in (peer, own)
    )
    remap, ack = allocation(own, mine, [], []), allocation(peer, theirs, [], [])
    config = msgspec.structs.replace(
        mine,
        spec=NetworkConfigSpec(cluster_id="peer", local=own.side, remap=remap),
        status=msgspec.structs.replace(mine.status, ack=ack),
    )
    found = agree(own, config, remap, ())
    assert found is not None
    return config, found[1]


class AgreementTests(SynchronousTestCase):
    """What two clusters agree on."""

    def test_both_sides_agree(self) -> None:
        """The range by which one knows the other's Services is the one that the other puts back to them."""
        links = met(cluster(0), cluster(1))[1], met(cluster(1), cluster(0))[1]
        for one, other in (links, links[::-1]):
            self.assertEqual([pair.services for pair in one.services], list(nets(*SERVICES)))
            self.assertEqual(one.services, other.peer_services)
            for pair in one.peer_services:
                self.assertIn(pair.seen, one.remote)
                self.assertEqual(pair.seen.prefixlen, pair.services.prefixlen)

    def test_what_leads_no_services(self) -> None:
        """Where packets to Services are not seen nothing is announced and nothing taken, and the tunnel is there."""
        for pair in ((cluster(0, leads_services=False), cluster(1)), (cluster(0), cluster(1, leads_services=False))):
            for own, peer in (pair, pair[::-1]):
                link = met(own, peer)[1]
                self.assertEqual((link.services, link.peer_services), ((), ()))
                self.assertEqual(len(link.remote), 2)

    def test_no_room_is_no_reason_against_the_tunnel(self) -> None:
        """Pools without a range of that size, or of that IP version, give none at all."""
        for pools in ((), nets("240.0.0.0/16", "fd4c:6971:7000::/40"), nets("240.0.0.0/5")):
            link = met(cluster(0, service_pools=pools), cluster(1))[1]
            self.assertEqual(link.peer_services, ())
            self.assertEqual(len(link.services), 2)

    def test_unsound_networks_of_services(self) -> None:
        """What a peer names so that cannot be led is left out, and the rest of what it says holds."""
        sound = cluster(1).side
        for named in (
            ["10.96.0.0/12", "10.100.0.0/16"],
            ["10.201.7.0/24"],
            ["10.70.0.0/16"],
            ["10.96.0.1/12"],
            ["0.0.0.0/0"],
            ["127.0.0.0/8"],
            ["224.0.0.0/8"],
            ["10.96.0.0/12; flush ruleset"],
            [f"10.{number}.0.0/16" for number in range(5)],
        ):
            side = msgspec.structs.replace(sound, service_cidrs=named)
            self.assertEqual(usable_services(side), (), named)
            config = NetworkConfig(metadata=ObjectMeta(name="peer"), status=NetworkConfigStatus(remote=side))
            remap = allocation(cluster(0), config, [], [])
            self.assertEqual((remap.reason, remap.service_cidrs), ("", []))

    def test_unsound_answers(self) -> None:
        """A range of another size, inside another one of the peer's, or that is a real network's opens nothing."""
        config, _ = met(cluster(0), cluster(1))
        ack = config.status.ack
        self.assertEqual(len(ack.service_cidrs), 2)
        six = ack.service_cidrs[1]
        for ranges in (
            [ack.service_cidrs[0]],
            ["240.0.0.0/13", six],
            [six, ack.service_cidrs[0]],
            [ack.pod_cidrs[0], six],
            ["127.0.0.0/12", six],
            ["240.0.0.0/12 accept", six],
            ["255.0.0.0/4", six],
        ):
            changed = msgspec.structs.replace(
                config, status=msgspec.structs.replace(config.status, ack=_with(ack, ranges))
            )
            found = agree(cluster(0), changed, config.spec.remap, ())
            assert found is not None
            self.assertEqual(found[1].services, (), ranges)

    @given(st.lists(st.sampled_from(["10.96.0.0/12", "10.96.0.0/16", "172.30.0.0/16"]), min_size=1, max_size=12))
    def test_many_peers(self, networks: list[str]) -> None:
        """No two peers share a range, and what one was given it keeps, whatever others come."""
        own, given_before = cluster(0), list[Subnets]()
        for network in networks:
            side = msgspec.structs.replace(cluster(1).side, service_cidrs=[network])
            config = NetworkConfig(metadata=ObjectMeta(name="x"), status=NetworkConfigStatus(remote=side))
            remap = allocation(own, config, given_before, [])
            for one in assigned(remap):
                self.assertIsNone(overlaps(one, [net for other in given_before for net in assigned(other)]))
            kept = msgspec.structs.replace(config, spec=NetworkConfigSpec(remap=remap))
            self.assertEqual(allocation(own, kept, given_before, []), remap)
            given_before.append(remap)

    def test_pods_of_home_are_not_known_by_addresses_of_its_services(self) -> None:
        """A new choice avoids them, though they lie inside the pools."""
        side = msgspec.structs.replace(cluster(1).side, service_cidrs=["172.16.0.0/14"])
        config = NetworkConfig(metadata=ObjectMeta(name="x"), status=NetworkConfigStatus(remote=side))
        own = cluster(0, pools=nets("172.16.0.0/12"))
        remap = allocation(own, config, [], [])
        self.assertIsNone(overlaps(ipaddress.ip_network(remap.pod_cidrs[0]), nets("172.16.0.0/14")))
        self.assertEqual(len(remap.service_cidrs), 1)
        # What is used here by other than Services is not led, and the answer says so.
        for used in ("172.17.0.9/32", "172.16.0.0/12"):
            self.assertEqual(allocation(own, config, [], nets(used)).service_cidrs, [])
        for used in ("10.96.0.1/32", "10.111.0.0/16"):
            self.assertEqual(len(allocation(own, config, [], nets(used)).service_cidrs), 1)


def _with(ack: Subnets, ranges: list[str]) -> Subnets:
    return msgspec.structs.replace(ack, service_cidrs=ranges)


class CallableTests(SynchronousTestCase):
    """Which networks of Services are led, and which addresses are not."""

    def test_overlaps(self) -> None:
        """What is used here by other than Services keeps its meaning."""
        maps = service_maps(SERVICES, ["240.0.0.0/12", "fd4c:6971:7000::/112"])
        for used, count in ((("10.201.0.0/16",), 2), (("10.100.0.7/32",), 1), (("0.0.0.0/0", "::/0"), 0), ((), 2)):
            self.assertEqual(len(callable_services(maps, nets(*used))), count, used)

    def test_own_services(self) -> None:
        """Only addresses inside count, in the kernel's spelling; what is no address is left out."""
        maps = service_maps(SERVICES, ["240.0.0.0/12", "fd4c:6971:7000::/112"])
        texts = ["10.96.0.10", "10.95.0.10", "None", "", "fd00:96:0::7", "10.96.0.1 }; flush ruleset"]
        self.assertEqual(own_services(maps, texts), {"10.96.0.10", "fd00:96::7"})

    def test_lists_that_do_not_fit(self) -> None:
        """They give no pairs."""
        for seen in ([], ["240.0.0.0/12"], ["240.0.0.0/12", "240.16.0.0/12"], ["x", "y"]):
            self.assertEqual(service_maps(SERVICES, seen), ())


HOME = Link(
    peer=ClusterID("milan"),
    public_key=KEYS[0],
    endpoint="",
    remote=nets("10.64.0.0/16", "fd4c:6971:6f00::/48"),
    local=(),
    services=(ServiceMap(*nets("10.96.0.0/12", "240.16.0.0/12")), ServiceMap(*nets("fd00:96::/112", "fd00:1::/112"))),
    offloaded=frozenset({"10.64.0.9", "fd4c:6971:6f00::9"}),
)


class RuleTests(SynchronousTestCase):
    """Sets and rules at both ends; what they do is seen in ``tests.netns.test_fabric_services``."""

    def test_home(self) -> None:
        """Each rule names the tunnel and the set of our pods there, so that it holds for nobody else."""
        digest = peer_digest(ClusterID("milan"))
        self.assertEqual(
            service_sets([HOME]),
            {f"offloaded_{digest}_4": {"10.64.0.9"}, f"offloaded_{digest}_6": {"fd4c:6971:6f00::9"}},
        )
        (_, entering), (_, leaving) = service_chains("liqod", [HOME])
        self.assertEqual(
            entering[0],
            f'iifname "liqod" ip saddr @offloaded_{digest}_4 ip daddr 240.16.0.0/12 '
            "ip daddr set ip daddr & 0.15.255.255 | 10.96.0.0",
        )
        self.assertEqual(
            leaving[1],
            f'oifname "liqod" ip6 daddr @offloaded_{digest}_6 ip6 saddr fd00:96::/112 '
            "ip6 saddr set ip6 saddr & ::ffff | fd00:1::",
        )
        opening = [*guard_services("liqod", [HOME]), *input_services("liqod", [HOME])]
        opening += [rule for rule in forward_services("liqod", [HOME]) if rule.endswith("accept")]
        self.assertEqual(len(opening), 6)
        for rule in (*opening, *entering):
            self.assertTrue(rule.startswith('iifname "liqod" ip'), rule)
            self.assertIn(f"saddr @offloaded_{digest}_", rule)

    def test_without_services(self) -> None:
        """There are no chains, rules or sets where nothing is led."""
        bare = attrs.evolve(HOME, services=())
        self.assertEqual((service_chains("liqod", [bare]), dict(service_sets([bare]))), ([], {}))
        self.assertEqual(guard_services("liqod", [bare]) + forward_services("liqod", [bare]), [])

    def test_lender(self) -> None:
        """Only the peer's pods are led, and not to addresses that mean Services here."""
        guests = Guests(
            ClusterID("rome"), frozenset({"10.201.0.5"}), (), HOME.services, frozenset({"10.96.0.10", "fd00:96::1"})
        )
        digest = peer_digest(ClusterID("rome"))
        rule = to_guests([guests])[-1]
        self.assertEqual(
            rule,
            f"ip saddr @guests_{digest}_4 ip daddr 10.96.0.0/12 ip daddr != @own_{digest}_4 "
            "dnat ip prefix to 240.16.0.0/12",
        )
        self.assertEqual(guest_sets([guests])[f"own_{digest}_4"], {"10.96.0.10"})

    def test_hosts_do_the_same_as_the_gateway(self) -> None:
        """A host that is no gateway leads what control found callable, but for what the record says is used here."""
        one = record(gateway=Gateway(address="192.0.2.1", vni=18952, port=4790), own_services=["10.112.0.10", "x"])
        self.assertTrue(one.spec.remote.service_cidrs)
        found = node_desired("liqod", "192.0.2.9", 1500, [one])
        assert found is not None
        (guests,) = found.guests
        link = link_of(one, LIMITS, 1420)
        self.assertEqual((guests.services, guests.own_services), (link.peer_services, link.own_services))
        self.assertEqual(guests.own_services, {"10.112.0.10"})


class RefusalTests(SynchronousTestCase):
    """A record that was written by a thief of control's credential."""

    def test_attempts(self) -> None:
        """Ranges that are not this host's pools', and networks of Services that hold what it needs, are refused."""
        sound = record()
        seen, remote, local = sound.spec.remote_seen, sound.spec.remote, sound.spec.local
        attempts: tuple[dict[str, Any], ...] = (
            {"remote_seen": _with(seen, ["10.1.0.0/12"]), "remote": _with(remote, ["10.112.0.0/12"])},
            {"remote_seen": _with(seen, ["10.16.0.0/12"]), "remote": _with(remote, ["10.112.0.0/12"])},
            {"remote_seen": _with(seen, ["0.0.0.0/0"]), "remote": _with(remote, ["0.0.0.0/0"])},
            {"local": _with(local, ["192.0.2.0/24"])},
            {"local": _with(local, ["0.0.0.0/0"])},
        )
        for changes in attempts:
            with self.assertRaises(Refusal, msg=str(changes)):
                link_of(record(**changes), LIMITS, 1420)

    def test_offloaded_pods(self) -> None:
        """Only addresses of the peer's networks may call Services."""
        link = link_of(record(offloaded=["10.201.0.5", "8.8.8.8", "x", str(_inside())]), LIMITS, 1420)
        self.assertEqual(link.offloaded, {str(_inside())})


def _inside() -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_network(record().spec.remote_seen.pod_cidrs[0])[9]


class ReleaseTests(SynchronousTestCase):
    """With peers of an earlier release everything is as it was."""

    def test_nothing_is_announced(self) -> None:
        """No range, no rule, and the same networks as before."""
        side = msgspec.structs.replace(cluster(1).side, service_cidrs=[])
        config = NetworkConfig(metadata=ObjectMeta(name="x"), status=NetworkConfigStatus(remote=side))
        self.assertEqual(allocation(cluster(0), config, [], []).service_cidrs, [])
