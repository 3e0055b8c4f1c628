"""Direct connections in the kernel: whose pods use the tunnel of two lenders, and what records of it are refused."""

from __future__ import annotations

import ipaddress

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.desired import link_of
from liqod.fabric.agent.kernel.rules import nftables
from liqod.fabric.agent.kernel.rules.gateway_rules import gateway_sets
from liqod.fabric.control.agreed import detailed, tunnel_spec
from liqod.fabric.state.direct import check_meaning, networks_here
from liqod.fabric.state.network import DirectLink, Link, Netmap, ServiceMap
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.network import DirectPods, Network, TunnelEndpoint
from liqod.model.records.offer import Refusal
from liqod.peering.lending.direct_terms import seen_here
from tests.fabric.agent.test_plan import DESIRED, LINK
from tests.fabric.control.test_desired import LIMITS, agreed, record

ROME, OSLO = ClusterID("rome"), ClusterID("oslo")


def net(text: str) -> Network:
    return ipaddress.ip_network(text)


DIRECT = DirectLink(ROME, (net("10.72.0.0/16"),), frozenset({"10.201.0.5", "10.201.0.6"}))
CLOSED = attrs.evolve(LINK, pods=frozenset({"10.201.0.9"}), direct=(DIRECT,))
PAIR = (net("10.201.0.0/16"), net("10.72.0.0/16"))


class NetworkTests(SynchronousTestCase):
    """Which networks a direct connection is about."""

    def test_as_seen_here(self) -> None:
        """A network of the other lender, or a part of one, keeps its place."""
        self.assertEqual(networks_here(["10.201.0.0/16"], [PAIR]), (net("10.72.0.0/16"),))
        self.assertEqual(networks_here(["10.201.7.0/24"], [PAIR]), (net("10.72.7.0/24"),))

    def test_what_is_refused(self) -> None:
        """Networks that are not the other lender's, that overlap each other, that are none, or none at all."""
        for asked, reason in (
            ([], "TooMany"),
            (["10.202.0.0/16"], "NotItsNetworks"),
            (["10.200.0.0/15"], "NotItsNetworks"),
            (["10.201.0.0/17", "10.201.0.0/24"], "CIDROverlap"),
            (["10.201.0.1/16"], "BadCIDR"),
            (["rome"], "BadCIDR"),
        ):
            with self.assertRaises(Refusal) as caught:
                networks_here(asked, [PAIR])
            self.assertEqual(caught.exception.reason, reason, asked)

    def test_what_means_something_else(self) -> None:
        """Home's view of our pods, home's own pods and its Services: packets there never reach the other lender."""
        home = Link(
            peer=ROME,
            public_key="",
            endpoint="",
            remote=(net("10.90.0.0/16"),),
            local=(Netmap(net("10.201.0.0/16"), net("10.91.0.0/16")),),
            peer_services=(ServiceMap(net("10.96.0.0/12"), net("240.16.0.0/12")),),
        )
        check_meaning((net("10.72.0.0/16"),), home)
        for one in ("10.90.4.0/24", "10.91.0.0/17", "10.100.0.0/16"):
            with self.assertRaises(Refusal) as caught:
                check_meaning((net(one),), home)
            self.assertEqual(caught.exception.reason, "CIDROverlap")

    @given(st.lists(st.tuples(st.integers(0, 2**17 - 1), st.integers(16, 32)), min_size=1, max_size=4))
    def test_both_halves_agree(self, drawn: list[tuple[int, int]]) -> None:
        """What peering agrees to is what the fabric makes, or nothing: never another network."""
        asked = [
            str(ipaddress.ip_network((int(PAIR[0].network_address) + offset, length), strict=False))
            for offset, length in drawn
        ]
        try:
            terms = seen_here(asked, [PAIR])
        except Refusal:
            with self.assertRaises(Refusal):
                networks_here(asked, [PAIR])
            return
        self.assertEqual(networks_here(asked, [PAIR]), tuple(terms))


class RuleTests(SynchronousTestCase):
    """The rules of a gateway."""

    def test_only_that_homes_pods_pass(self) -> None:
        """Both ways, before what drops everything else of that peer; pods are elements of a set."""
        desired = attrs.evolve(DESIRED, links=(CLOSED,))
        chain = nftables.render(desired).split("chain forward {")[1].split("}\n\tchain")[0]
        for way, theirs, ours in (("iif", "saddr", "daddr"), ("oif", "daddr", "saddr")):
            passed = rf'{way}name "liqod" ip {theirs} \{{ 10\.72\.0\.0/16 \}} ip {ours} @direct_[0-9a-f]{{64}}_4 accept'
            dropped = rf'{way}name "liqod" ip {theirs} \{{ 10\.72\.0\.0/16, 10\.73\.0\.0/20 \}} drop'
            self.assertRegex(chain, rf"(?s){passed}\n.*{dropped}\n")
        (name,) = [one for one in gateway_sets(desired) if one.startswith("direct_")]
        self.assertEqual(gateway_sets(desired)[name], DIRECT.pods)

    def test_nothing_without_it(self) -> None:
        """Neither where it ended, nor under the open policy, where all pods talk with all."""
        for link in (attrs.evolve(CLOSED, direct=()), attrs.evolve(CLOSED, pods=None)):
            self.assertNotIn("direct_", nftables.render(attrs.evolve(DESIRED, links=(link,))))

    def test_each_pair_has_sets_of_its_own(self) -> None:
        """Neither another home nor another lender shares one."""
        names = set()
        for peer, home in (("milan", ROME), ("milan", OSLO), ("turin", ROME)):
            link = attrs.evolve(CLOSED, peer=ClusterID(peer), direct=(attrs.evolve(DIRECT, home=home),))
            names |= {one for one in gateway_sets(attrs.evolve(DESIRED, links=(link,))) if one.startswith("direct_")}
        self.assertEqual(len(names), 3)


class RecordTests(SynchronousTestCase):
    """What the network agent takes out of records."""

    def test_nothing_is_lost_on_the_way(self) -> None:
        """Control's link is the agent's, by way of JSON."""
        config, peer = agreed()
        direct = DirectLink(ROME, (peer.link.remote[0],), frozenset({"10.201.0.6"}))
        peer = attrs.evolve(peer, link=attrs.evolve(peer.link, direct=(direct,)))
        spec = detailed(tunnel_spec(config, peer), peer, [])
        one = TunnelEndpoint(metadata=ObjectMeta(name="milan"), spec=spec)
        stored = msgspec.json.decode(msgspec.json.encode(one), type=TunnelEndpoint)
        self.assertEqual(link_of(stored, LIMITS, 1420).direct, (direct,))

    def test_refusals(self) -> None:
        """Two homes by one tunnel, the peer itself, and networks that are not the peer's."""
        inside = record().spec.remote_seen.pod_cidrs[0]
        for direct, reason in (
            ([DirectPods(home="rome", networks=[inside]), DirectPods(home="oslo", networks=[inside])], "TooMany"),
            ([DirectPods(home="milan", networks=[inside])], "BadRecord"),
            ([DirectPods(home="rome", networks=["10.99.0.0/16"])], "CIDRForbidden"),
            ([DirectPods(home="rome", networks=["all"])], "BadCIDR"),
        ):
            with self.assertRaises(Refusal) as caught:
                link_of(record(direct=direct), LIMITS, 1420)
            self.assertEqual(caught.exception.reason, reason)

    def test_pods_that_are_none_of_ours(self) -> None:
        """An address outside of this cluster's pods is in no set."""
        inside = record().spec.remote_seen.pod_cidrs[0]
        direct = [DirectPods(home="rome", networks=[inside], pods=["10.201.0.6", "192.0.2.9", "10.64.0.53", "x"])]
        self.assertEqual(link_of(record(direct=direct), LIMITS, 1420).direct[0].pods, frozenset({"10.201.0.6"}))
