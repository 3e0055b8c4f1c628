"""Networks given to peers, and what a peer may say about its own: no overlap, no surprise, nothing unsound."""

from __future__ import annotations

import ipaddress
from typing import Any

import attrs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.control.agreement.agreement import LocalNetwork, agree, allocation, endpoint_networks
from liqod.fabric.control.agreement.agreement import assigned as given_to
from liqod.fabric.control.agreement.ipam import allocate
from liqod.fabric.state.network import first_of, overlaps
from liqod.fabric.state.validation import check_side, is_key
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.network import (
    AddressMap,
    Export,
    Network,
    NetworkConfig,
    NetworkConfigSpec,
    NetworkConfigStatus,
    Subnets,
    TunnelSide,
    exported_addresses,
    remote_addresses,
)
from liqod.model.records.offer import Refusal

KEY = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
OTHER_KEY = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0="
OWN_KEY = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw="

NO_ENTRIES = Subnets()


def net(text: str) -> Network:
    return ipaddress.ip_network(text)


def nets(*texts: str) -> tuple[Network, ...]:
    return tuple(map(net, texts))


relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
POOLS = nets("10.64.0.0/10", "172.16.0.0/12", "fd4c:6971:6f00::/40")


def own(
    pods: str = "10.201.0.0/16", *, key: str = OWN_KEY, reserved: tuple[str, ...] = ("10.96.0.0/12",)
) -> LocalNetwork:
    """Return a cluster's side."""
    return LocalNetwork(nets(pods), net("10.70.0.0/20"), nets(*reserved), POOLS, ("192.0.2.1:5871",), key, 1420)


def side(**changes: Any) -> TunnelSide:
    """Return what a sound peer says."""
    sound = TunnelSide(
        pod_cidrs=["10.201.0.0/16"],
        external_cidr="10.70.0.0/20",
        endpoints=["192.0.2.7:5871"],
        public_key=KEY,
        mtu=1420,
    )
    return msgspec.structs.replace(sound, **changes)


def config(name: str, remote: TunnelSide, remap: Subnets = NO_ENTRIES, ack: Subnets = NO_ENTRIES) -> NetworkConfig:
    """Return a record."""
    return NetworkConfig(
        metadata=ObjectMeta(name=name),
        spec=NetworkConfigSpec(cluster_id=name, remap=remap),
        status=NetworkConfigStatus(remote=remote, ack=ack),
    )


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Any IPv4 network of a size that clusters have, crowded so that overlaps are frequent."""
    prefix = draw(st.integers(12, 26))
    base = int(ipaddress.ip_address("10.64.0.0")) + draw(st.integers(0, 2**22 - 1))
    return ipaddress.ip_network((base, prefix), strict=False)


class AllocationTests(SynchronousTestCase):
    """Which network stands for a peer's."""

    def test_a_peer_does_not_choose_its_addresses_here(self) -> None:
        """A peer names as its pods' what this host reaches by its default route alone: it gets none of it.

        Not inside the pools either, where a name server of another network may be.
        """
        for text in ("10.1.0.0/16", "172.20.0.0/16", "100.64.0.0/16", "10.100.0.0/16", "8.8.0.0/16"):
            self.assertEqual(allocate(nets(text), [], [], [], POOLS), [net("10.64.0.0/16")], text)
        self.assertEqual(allocate(nets("fd00:9::/48"), [], [], [], POOLS), [net("fd4c:6971:6f00::/48")])

    def test_what_the_host_needs_is_never_given(self) -> None:
        """Name servers, next hops, API servers: the pools go past them."""
        needed = nets("10.64.0.53/32", "10.65.0.1/32")
        self.assertEqual(allocate(nets("10.1.0.0/16"), [], [], needed, POOLS), [net("10.66.0.0/16")])

    def test_accepted_networks_are_kept_as_they_are(self) -> None:
        """What the settings accept reads the same on both sides where nothing overlaps it, and stays so."""
        accepted = nets("10.0.0.0/12", "fd00::/16")
        for text, found in (
            ("10.1.0.0/16", "10.1.0.0/16"),
            ("10.2.0.0/16", "10.64.0.0/16"),
            ("10.3.0.0/16", "10.64.0.0/16"),
            ("10.32.0.0/16", "10.64.0.0/16"),
            ("fd00:9::/48", "fd00:9::/48"),
        ):
            wanted, taken, avoided = nets(text), nets("10.2.0.0/24"), nets("10.3.0.5/32")
            self.assertEqual(allocate(wanted, [], taken, avoided, POOLS, accepted=accepted), [net(found)], text)

    def test_what_was_agreed_before_stays(self) -> None:
        """A record from when a peer's free network was taken as it is keeps its peering as it was."""
        held = nets("10.1.0.0/16")
        self.assertEqual(allocate(held, held, nets("10.2.0.0/16"), [], POOLS), list(held))

    def test_overlaps_get_the_first_free_network_of_their_size(self) -> None:
        """The same pod network on both sides: the peer's becomes one from the pools, past what is taken there."""
        taken = nets("10.201.0.0/16", "10.64.0.0/15", "10.66.7.0/24")
        self.assertEqual(allocate(nets("10.201.0.0/16"), [], taken, [], POOLS), [net("10.67.0.0/16")])

    def test_ipv6_overlaps_as_well(self) -> None:
        """IPv6 networks come from the IPv6 pool."""
        found = allocate(nets("fd00:1::/48"), [], nets("fd00::/16"), [], POOLS)
        self.assertEqual(found, [net("fd4c:6971:6f00::/48")])

    def test_what_was_given_stays_though_a_route_of_the_host_appears(self) -> None:
        """An avoided network keeps a new choice away and leaves an old one alone."""
        wanted, held = nets("10.201.0.0/16"), nets("10.64.0.0/16")
        taken, route = nets("10.201.0.0/16"), nets("10.64.5.0/24")
        self.assertEqual(allocate(wanted, held, taken, route, POOLS), list(held))
        self.assertEqual(allocate(wanted, [], taken, route, POOLS), [net("10.65.0.0/16")])

    def test_used_up_pools_are_reported(self) -> None:
        """There is a reason and what to do."""
        caught = self.assertRaises(Refusal, allocate, nets("10.0.0.0/9"), [], nets("10.0.0.0/8"), [], POOLS)
        self.assertEqual(caught.reason, "PoolExhausted")
        self.assertIn("network.pools", caught.message)

    @relaxed
    @given(st.lists(networks(), max_size=8), st.lists(networks(), max_size=8), st.lists(networks(), max_size=4))
    def test_never_an_overlap_and_stable(
        self, wanted: list[Network], taken: list[Network], other: list[Network]
    ) -> None:
        """Nothing given overlaps anything; the same question has the same answer, also after it was recorded."""
        try:
            found = allocate(wanted, [], taken, other, POOLS)
        except Refusal:
            return
        self.assertEqual([one.prefixlen for one in found], [one.prefixlen for one in wanted])
        for index, one in enumerate(found):
            self.assertIsNone(overlaps(one, [*taken, *other, *found[:index]]))
        self.assertEqual(allocate(wanted, [], taken, other, POOLS), found)
        self.assertEqual(allocate(wanted, found, taken, [], POOLS), found)


SIXES = tuple(ipaddress.ip_network((int(ipaddress.ip_address("fd00::")) + (n << 80), 48)) for n in range(4))


class PeersOverTimeTests(SynchronousTestCase):
    """Peers that come, change and go, with networks that overlap everything; the records are the only memory."""

    @relaxed
    @given(
        st.lists(
            st.tuples(
                st.sampled_from("bcdef"),
                st.one_of(st.none(), st.lists(networks(), min_size=1, max_size=2)),
                st.sampled_from(SIXES),
            ),
            max_size=12,
        )
    )
    def test_no_overlap_ever_and_the_records_suffice(
        self, changes: list[tuple[str, list[Network] | None, Network]]
    ) -> None:
        """After every change nothing overlaps, a daemon started again gives the same, and what went is free again."""
        records: dict[str, NetworkConfig] = {}
        ours = own("10.64.0.0/12")
        for name, wanted, six in changes:
            if wanted is None:
                records.pop(name, None)
            else:
                before = records[name].spec.remap if name in records else NO_ENTRIES
                reported = side(pod_cidrs=[str(one) for one in (*wanted, six)])
                others = [one.spec.remap for peer, one in records.items() if peer != name]
                remap = allocation(ours, config(name, reported, before), others, [])
                records[name] = config(name, reported, remap)
            held = [one for record in records.values() for one in given_to(record.spec.remap)]
            taken = [*ours.pods, ours.external, *ours.reserved]
            for index, one in enumerate(held):
                self.assertIsNone(overlaps(one, [*taken, *held[:index]]))
            for peer, record in records.items():
                if not record.spec.remap.reason:
                    others = [one.spec.remap for other, one in records.items() if other != peer]
                    self.assertEqual(allocation(ours, record, others, []), record.spec.remap)
        if records:
            # The last one gone, its place is there for the next who asks for the same.
            name, record = records.popitem()
            if not record.spec.remap.reason:
                others = [one.spec.remap for one in records.values()]
                again = allocation(ours, config("g", record.status.remote, record.spec.remap), others, [])
                self.assertEqual(again, record.spec.remap)


class AgreementTests(SynchronousTestCase):
    """Several clusters with the same networks, as records."""

    def test_three_alike_get_three_places(self) -> None:
        """Every peer with our own pod network is seen at another place, whatever the order of asking."""
        records: dict[str, NetworkConfig] = {name: config(name, side()) for name in ("b", "c", "d")}
        for name in records:
            others = [one.spec.remap for peer, one in records.items() if peer != name]
            remap = allocation(own(), records[name], others, [])
            self.assertEqual(remap.reason, "")
            records[name] = config(name, side(), remap)
        places = [one for record in records.values() for one in given_to(record.spec.remap)]
        for index, place in enumerate(places):
            self.assertIsNone(overlaps(place, [*places[:index], *own().pods, own().external, *own().reserved]))

    def test_a_crash_after_recording_changes_nothing(self) -> None:
        """A daemon that starts again gives what the record says, though something else was free before it."""
        first = allocation(own(), config("b", side()), [], [])
        again = allocation(own(), config("b", side(), first), [], nets("10.64.0.0/12"))
        self.assertEqual(first, again)

    def test_release_makes_room(self) -> None:
        """What a peer had is given to the next one after its record is gone."""
        first = allocation(own(), config("b", side()), [], [])
        second = allocation(own(), config("c", side()), [first], [])
        self.assertNotEqual(first.pod_cidrs, second.pod_cidrs)
        self.assertEqual(allocation(own(), config("c", side()), [], []), first)

    def test_a_peers_endpoint_is_never_inside_its_network(self) -> None:
        """A node network equal to the peer's pod network: the pods move away, or the tunnel would carry itself."""
        remote = side(pod_cidrs=["192.0.2.0/24"])
        remap = allocation(own(), config("b", remote), [], [])
        self.assertNotEqual(remap.pod_cidrs, ["192.0.2.0/24"])

    def test_the_ends_of_other_tunnels_are_in_no_new_network(self) -> None:
        """A choice avoids them; one that was made earlier stays, and an endpoint in it is not called."""
        remote = side(pod_cidrs=["10.80.0.0/16"], external_cidr="10.81.0.0/20")
        earlier = allocation(own(), config("b", remote), [], [])
        ends = endpoint_networks(["10.64.3.4:5871", "10.65.0.1:5871"])
        self.assertEqual([overlaps(one, ends) is None for one in given_to(earlier)], [False, False])
        new = allocation(own(), config("b", remote), [], ends)
        self.assertEqual([overlaps(one, ends) is None for one in given_to(new)], [True, True])
        self.assertEqual(allocation(own(), config("b", remote, earlier), [], ends), earlier)

    def test_public_networks_are_never_taken_as_they_are(self) -> None:
        """Who names addresses of the world as its pods' does not get what this host says there, now or later."""
        for text in ("198.51.101.0/24", "8.8.8.0/24", "172.0.0.0/8", "2a00:1450::/32"):
            wanted = nets(text)
            (found,) = allocate(wanted, [], [], [], nets("10.0.0.0/8", "fc00::/8"))
            self.assertNotEqual(found, net(text))
            self.assertEqual(allocate(wanted, wanted, [], [], nets("10.0.0.0/8", "fc00::/8")), [found])
        # The settings may say that they are free here.
        public = nets("8.8.8.0/24")
        self.assertEqual(allocate(public, [], [], [], POOLS, accepted=nets("8.8.0.0/16")), list(public))
        self.assertEqual(allocate(public, public, [], [], POOLS, accepted=nets("8.8.0.0/16")), list(public))

    def test_an_endpoint_that_leads_back_is_never_called(self) -> None:
        """Neither our own nor one in another peer's network here: a tunnel would be led into itself, or into another's.

        It is no refusal, as the peer may be behind a NAT where those addresses are somebody else's.
        """
        other = Subnets(pod_cidrs=["10.90.0.0/16", "fd00:90::/48"], external_cidr="10.91.0.0/20")
        bad = ["192.0.2.1:5871", "10.90.3.4:5871", "[fd00:90::1]:5871", "10.91.0.1:5871"]
        ack = Subnets(pod_cidrs=["10.80.0.0/16"], external_cidr="10.81.0.0/20")
        for endpoints, called in ((bad, ""), ([*bad, "192.0.2.7:5871"], "192.0.2.7:5871")):
            remote = side(endpoints=endpoints)
            remap = allocation(own(), config("b", remote), [other], [])
            found = agree(own(), config("b", remote, remap, ack), remap, (), [other])
            assert found is not None
            self.assertEqual(found[1].endpoint, called)
            self.assertEqual([f"{one}:{port}" for one, port in found[0].endpoints], [called] if called else [])

    def test_an_endpoint_inside_the_peers_own_network_is_refused(self) -> None:
        """Whichever of the networks it has here: packets of the tunnel would be led into the tunnel."""
        ack = Subnets(pod_cidrs=["10.80.0.0/16"], external_cidr="10.81.0.0/20")
        remap = Subnets(pod_cidrs=["198.18.0.0/16"], external_cidr="198.19.0.0/20")
        for endpoints, inside in (
            (["198.18.3.4:5871"], True),
            (["192.0.2.7:5871", "198.18.3.4:5871"], True),
            (["198.19.0.1:5871"], True),
            (["198.19.16.1:5871"], False),
            (["192.0.2.7:5871"], False),
        ):
            record = config("b", side(endpoints=endpoints), remap, ack)
            if inside:
                caught = self.assertRaises(Refusal, agree, own(), record, remap, ())
                self.assertEqual(caught.reason, "BadEndpoint")
            else:
                self.assertIsNotNone(agree(own(), record, remap, ()))

    def test_the_key_that_ours_will_be_is_nobody_elses(self) -> None:
        """A peer gets our next key before we have it; it cannot have it first."""
        ours = attrs.evolve(own(), next_key=OTHER_KEY)
        for changes in ({"public_key": OTHER_KEY}, {"next_key": OTHER_KEY}):
            record = config("b", side(**changes), ack=Subnets(pod_cidrs=["10.80.0.0/16"]))
            caught = self.assertRaises(Refusal, agree, ours, record, NO_ENTRIES, ())
            self.assertEqual(caught.reason, "KeyInUse")

    def test_a_peer_that_names_anothers_networks_does_not_get_them(self) -> None:
        """Not at first, and not by changing what it names later: pods, external network, or a part of either."""
        ours = attrs.evolve(own(), accepted=nets("10.0.0.0/12"))
        first = allocation(ours, config("b", side(pod_cidrs=["10.5.0.0/16"], external_cidr="10.6.0.0/20")), [], [])
        self.assertEqual(first.pod_cidrs, ["10.5.0.0/16"])
        before = side(pod_cidrs=["10.7.0.0/16"], external_cidr="10.8.0.0/20")
        held = allocation(ours, config("c", before), [first], [])
        for pods, external in (("10.5.0.0/16", "10.6.0.0/20"), ("10.5.128.0/17", "10.9.0.0/20"), ("10.6.0.0/16", "")):
            after = side(pod_cidrs=[pods], external_cidr=external)
            moved = allocation(ours, config("c", after, held), [first], [])
            self.assertEqual(moved.reason, "")
            for one in given_to(moved):
                self.assertIsNone(overlaps(one, given_to(first)), moved)

    def test_both_sides_agree_on_a_link(self) -> None:
        """With both halves known there is a link; before that there is none, and no error either."""
        remap = allocation(own(), config("b", side()), [], [])
        self.assertIsNone(agree(own(), config("b", side(), remap), remap, ()))
        ack = Subnets(pod_cidrs=["10.80.0.0/16"], external_cidr="10.81.0.0/20")
        found = agree(own(), config("b", side(), remap, ack), remap, ())
        assert found is not None
        _, link = found
        self.assertEqual(list(link.remote), given_to(remap))
        self.assertEqual([(str(pair.ours), str(pair.seen)) for pair in link.local], [("10.201.0.0/16", "10.80.0.0/16")])
        assert link.gateway is not None
        self.assertEqual(link.gateway.seen, first_of(net("10.81.0.0/20")))

    def test_clusters_of_both_versions(self) -> None:
        """Two clusters alike in everything: each has pods and single addresses of both versions, none of them twice.

        A peer that says more of itself than before keeps what it has; one that answers only one version exports that.
        """
        ours = attrs.evolve(own(), pods=nets("10.201.0.0/16", "fd00:201::/48"), six=net("fd4c:6971:6e00::/112"))
        four = side(pod_cidrs=["10.201.0.0/16", "fd00:201::/48"])
        both = side(pod_cidrs=["10.201.0.0/16", "fd00:201::/48"], external_six="fd4c:6971:6e00::/112")
        first = allocation(ours, config("b", four), [], [])
        remap = allocation(ours, config("b", both, first), [], [])
        self.assertEqual(msgspec.structs.replace(remap, external_six=""), first)
        places = given_to(remap)
        self.assertEqual([one.prefixlen for one in places], [16, 48, 20, 112])
        for index, place in enumerate(places):
            self.assertIsNone(overlaps(place, [*places[:index], *ours.pods, *ours.externals, *ours.reserved]))
        ack = Subnets(
            pod_cidrs=["10.80.0.0/16", "fd00:80::/48"], external_cidr="10.81.0.0/20", external_six="fd00:81::/112"
        )
        exports = [
            Export(address="192.0.2.9", external="10.70.0.9", ports=["TCP/80"]),
            Export(address="2001:db8::9", external="fd4c:6971:6e00::9", ports=["TCP/80"]),
        ]
        for answer, seen in (
            (ack, {"10.81.0.9": "192.0.2.9", "fd00:81::9": "2001:db8::9"}),
            (msgspec.structs.replace(ack, external_six=""), {"10.81.0.9": "192.0.2.9"}),
        ):
            record = config("b", both, remap, answer)
            record = msgspec.structs.replace(
                record, spec=msgspec.structs.replace(record.spec, local=ours.side, exports=exports)
            )
            found = agree(ours, record, remap, ())
            assert found is not None
            link = found[1]
            self.assertEqual({one.seen: one.real for one in link.exports}, seen)
            self.assertEqual(exported_addresses(record), {real: at for at, real in seen.items()})
            self.assertEqual([pair.seen.version for pair in link.gateways], [4, 6][: len(seen)])
        wrong = msgspec.structs.replace(ack, external_six="fd00:81::/120")
        caught = self.assertRaises(Refusal, agree, ours, config("b", both, remap, wrong), remap, ())
        self.assertEqual(caught.reason, "BadAnswer")

    def test_an_answer_of_another_size_is_refused(self) -> None:
        """The peer must see each of our networks as one of the same size."""
        remap = allocation(own(), config("b", side()), [], [])
        for pods in (["10.80.0.0/17"], [], ["fd00:5::/48"], ["10.80.0.0/16", "10.81.0.0/16"]):
            record = config("b", side(), remap, Subnets(pod_cidrs=pods, external_cidr="10.82.0.0/20"))
            caught = self.assertRaises(Refusal, agree, own(), record, remap, ())
            self.assertEqual(caught.reason, "BadAnswer")


class CheckSideTests(SynchronousTestCase):
    """What a peer says of itself."""

    def test_sound(self) -> None:
        """A sound side is parsed."""
        remote = check_side(side(endpoints=["[2001:db8::1]:5871", "192.0.2.7:1"]), OWN_KEY, ())
        self.assertEqual(remote.endpoints, (("2001:db8::1", 5871), ("192.0.2.7", 1)))

    def test_unsound(self) -> None:
        """Everything that could harm this host or another peer is refused, with the reason."""
        for reason, changes in (
            ("NoPodNetwork", {"pod_cidrs": []}),
            ("TooMany", {"pod_cidrs": [f"10.{n}.0.0/16" for n in range(17)]}),
            ("BadCIDR", {"pod_cidrs": ["10.1.2.3/16"]}),
            ("BadCIDR", {"pod_cidrs": ["10.1.0.0/16; drop"]}),
            ("BadCIDR", {"external_cidr": "all"}),
            ("CIDRTooWide", {"pod_cidrs": ["0.0.0.0/0"]}),
            ("CIDRTooWide", {"pod_cidrs": ["::/0"]}),
            ("CIDRTooWide", {"pod_cidrs": ["10.0.0.0/7"]}),
            ("CIDRForbidden", {"pod_cidrs": ["127.0.0.0/8"]}),
            ("CIDRForbidden", {"pod_cidrs": ["169.254.0.0/16"]}),
            ("CIDRForbidden", {"pod_cidrs": ["224.0.0.0/8"]}),
            ("CIDRForbidden", {"pod_cidrs": ["240.0.0.0/8"]}),
            ("CIDRForbidden", {"pod_cidrs": ["0.0.0.0/8"]}),
            ("CIDRForbidden", {"pod_cidrs": ["fe80::/64"]}),
            ("CIDRForbidden", {"pod_cidrs": ["fec0::/64"]}),
            ("CIDRForbidden", {"pod_cidrs": ["ff05::/64"]}),
            ("CIDRForbidden", {"pod_cidrs": ["::1/128"]}),
            ("CIDRForbidden", {"pod_cidrs": ["10.1.0.0/16", "0.1.0.0/16"]}),
            ("CIDRForbidden", {"pod_cidrs": ["169.0.0.0/8"]}),  # link-local in its midst
            ("CIDRForbidden", {"external_cidr": "255.255.255.252/30"}),
            # What has an IPv4 address inside would pass by all that is checked about those.
            ("CIDRForbidden", {"pod_cidrs": ["::ffff:10.96.0.0/108"]}),
            ("CIDRForbidden", {"pod_cidrs": ["::ffff:127.0.0.0/104"]}),
            ("CIDRForbidden", {"pod_cidrs": ["::10.96.0.0/108"]}),
            ("CIDRForbidden", {"pod_cidrs": ["64:ff9b::/96"]}),
            ("CIDRForbidden", {"pod_cidrs": ["2002:7f00::/32"]}),
            ("CIDRForbidden", {"pod_cidrs": ["2001:0:7f00::/48"]}),
            ("BadCIDR", {"pod_cidrs": ["fd00::%eth0/64"]}),
            ("BadCIDR", {"pod_cidrs": [""]}),
            ("CIDRTooWide", {"pod_cidrs": ["fc00::/7"]}),
            ("CIDRTooNarrow", {"external_cidr": "10.70.0.0/31"}),
            ("CIDRTooNarrow", {"external_cidr": "fd00:70::1/128"}),
            ("BadCIDR", {"external_six": "10.71.0.0/20"}),
            ("BadCIDR", {"external_cidr": "fd00:70::/112", "external_six": "fd00:71::/112"}),
            ("CIDRForbidden", {"external_six": "::ffff:10.0.0.0/112"}),
            ("CIDRTooNarrow", {"external_six": "fd00:71::/127"}),
            ("CIDROverlap", {"pod_cidrs": ["fd00:71::/48"], "external_six": "fd00:71::/112"}),
            ("CIDROverlap", {"pod_cidrs": ["10.1.0.0/16", "10.1.2.0/24"]}),
            ("CIDROverlap", {"external_cidr": "10.201.0.0/20"}),
            ("BadKey", {"public_key": ""}),
            ("BadKey", {"public_key": KEY[:-2]}),
            ("BadKey", {"public_key": "A" * 43 + "="}),
            ("KeyInUse", {"public_key": OWN_KEY}),
            ("KeyInUse", {"public_key": OTHER_KEY}),
            ("KeyInUse", {"next_key": OWN_KEY}),
            ("KeyInUse", {"next_key": OTHER_KEY}),
            ("BadMTU", {"mtu": 0}),
            ("BadMTU", {"mtu": 1}),
            ("BadMTU", {"mtu": 1279}),
            ("BadMTU", {"mtu": -1420}),
            ("BadMTU", {"mtu": 70000}),
            ("BadEndpoint", {"endpoints": ["192.0.2.1"]}),
            ("BadEndpoint", {"endpoints": ["192.0.2.1:0"]}),
            ("BadEndpoint", {"endpoints": ["127.0.0.1:5871"]}),
            ("BadEndpoint", {"endpoints": ["example.org:5871"]}),
            ("BadEndpoint", {"endpoints": ["192.0.2.1:65536"]}),
            ("BadEndpoint", {"endpoints": ["0.0.0.1:5871"]}),
            ("BadEndpoint", {"endpoints": ["255.255.255.255:5871"]}),
            ("BadEndpoint", {"endpoints": ["169.254.169.254:80"]}),
            ("BadEndpoint", {"endpoints": ["[ff02::1]:5871"]}),
            ("BadEndpoint", {"endpoints": ["2001:db8::7:5871"]}),
            ("BadEndpoint", {"endpoints": ["[2001:db8::7:5871"]}),
            ("BadEndpoint", {"endpoints": ["2001:db8::7]:5871"]}),
            ("BadEndpoint", {"endpoints": ["[192.0.2.7]:5871"]}),
            ("BadEndpoint", {"endpoints": ["[::ffff:127.0.0.1]:5871"]}),
            ("BadEndpoint", {"endpoints": ["[::ffff:192.0.2.1]:5871"]}),
            ("BadEndpoint", {"endpoints": ["[2001:db8::1%eth0]:5871"]}),
            ("BadEndpoint", {"endpoints": ["[2001:db8::1%a\nListenPort = 1]:5871"]}),
        ):
            caught = self.assertRaises(Refusal, check_side, side(**changes), OWN_KEY, (OTHER_KEY,))
            self.assertEqual(caught.reason, reason, changes)

    def test_keys_have_one_spelling(self) -> None:
        """Another spelling of the same 32 bytes is no key: it would count as another one."""
        self.assertTrue(is_key(KEY))
        self.assertFalse(is_key(KEY[:-2] + "h="))


class AddressMapTests(SynchronousTestCase):
    """Addresses of one cluster in another."""

    def test_host_bits_are_kept(self) -> None:
        """An address moves with its network, there and back."""
        record = config("b", side(), Subnets(pod_cidrs=["10.64.0.0/16"], external_cidr="10.65.0.0/20"))
        addresses = remote_addresses(record)
        self.assertEqual(addresses.seen("10.201.3.4"), "10.64.3.4")
        self.assertEqual(addresses.original("10.64.3.4"), "10.201.3.4")
        self.assertEqual(addresses.seen("10.202.0.1"), "")
        self.assertEqual(addresses.seen("no address"), "")

    def test_lists_that_do_not_fit_translate_nothing(self) -> None:
        """Half an agreement is none."""
        self.assertEqual(remote_addresses(config("b", side())), AddressMap())

    @relaxed
    @given(st.integers(0, 2**16 - 1))
    def test_there_and_back(self, host: int) -> None:
        """Translation is a bijection."""
        addresses = AddressMap(((net("10.201.0.0/16"), net("10.64.0.0/16")),))
        address = str(net("10.201.0.0/16")[host])
        self.assertEqual(addresses.original(addresses.seen(address)), address)
