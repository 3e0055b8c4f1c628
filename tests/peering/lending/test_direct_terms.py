"""As a lender: what a home is answered that asks to be connected directly, and what is on record for it."""

from __future__ import annotations

import ipaddress
from typing import Any

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.network import (
    DirectGrant,
    NetworkConfig,
    NetworkConfigSpec,
    NetworkConfigStatus,
    Subnets,
    TunnelEndpoint,
    TunnelEndpointStatus,
    TunnelSide,
)
from liqod.model.records.offer import Refusal
from liqod.peering.lending.direct_terms import CONFIRM_WITHIN, PairFacts, Terms, decide, meant_by, offer_to, seen_here
from liqod.wire.events import DirectAsk, DirectOffer

KEY = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
NEXT = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw="
ROME, MILAN, TURIN, OSLO = map(ClusterID, ("rome", "milan", "turin", "oslo"))
"""A home, this cluster, the other lender, another home."""

SIDE = TunnelSide(pod_cidrs=["10.201.0.0/16"], endpoints=["192.0.2.7:5871"], public_key=KEY, mtu=1400, next_key=NEXT)
HOME = NetworkConfig(
    metadata=ObjectMeta(name=ROME),
    spec=NetworkConfigSpec(local=SIDE, remap=Subnets(pod_cidrs=["10.64.0.0/16"])),
    status=NetworkConfigStatus(
        phase="Agreed",
        remote=TunnelSide(pod_cidrs=["10.201.0.0/16"], service_cidrs=["10.96.0.0/12"]),
        ack=Subnets(pod_cidrs=["10.80.0.0/16"]),
    ),
)
OTHER = NetworkConfig(
    metadata=ObjectMeta(name=TURIN),
    spec=NetworkConfigSpec(remap=Subnets(pod_cidrs=["10.65.0.0/16"])),
    status=NetworkConfigStatus(phase="Agreed", remote=SIDE),
)
UP = TunnelEndpoint(metadata=ObjectMeta(name=TURIN), status=TunnelEndpointStatus(phase="Connected", direct=[ROME]))
ASK = DirectAsk(ROME, TURIN, 3, ["192.0.2.7:5871"], KEY, ["10.201.0.0/16"], 1400)
GRANT = DirectGrant(home=ROME, request=3, pod_cidrs=["10.201.0.0/16"], confirmed=True)
FACTS = PairFacts(
    own=MILAN,
    home=ROME,
    other=TURIN,
    willing=True,
    borrows=True,
    networks=HOME,
    config=OTHER,
    tunnel=UP,
    said=True,
    waited=0.0,
)


def granted(*grants: DirectGrant, config: NetworkConfig = OTHER) -> NetworkConfig:
    """Return the exchange with the other lender, with grants on record."""
    return msgspec.structs.replace(config, status=msgspec.structs.replace(config.status, direct=list(grants)))


def ask(**changes: Any) -> DirectAsk:
    return msgspec.structs.replace(ASK, **changes)


class TermsTests(SynchronousTestCase):
    """Requests, one by one."""

    def test_agreed_only_when_all_is_set_up(self) -> None:
        """First it is on record, then the other lender says it too, then the gateway has it, then home is answered."""
        silent = attrs.evolve(FACTS, said=None)
        open_grant = msgspec.structs.replace(GRANT, confirmed=False)
        self.assertEqual(decide(silent, ASK), Terms(grant=open_grant))
        self.assertEqual(decide(FACTS, ASK), Terms(grant=GRANT))
        known = attrs.evolve(FACTS, config=granted(GRANT))
        for status, agreed in (
            (TunnelEndpointStatus(phase="Connected", direct=[ROME]), True),
            (TunnelEndpointStatus(phase="Connected"), False),
            (TunnelEndpointStatus(phase="Connected", direct=[OSLO]), False),
            (TunnelEndpointStatus(phase="Connecting", direct=[ROME]), False),
        ):
            tunnel = TunnelEndpoint(metadata=ObjectMeta(name=TURIN), status=status)
            self.assertEqual(decide(attrs.evolve(known, tunnel=tunnel), ASK), Terms(grant=GRANT, agreed=agreed), status)
        self.assertEqual(decide(attrs.evolve(known, tunnel=None), ASK), Terms(grant=GRANT))

    def test_refusals(self) -> None:
        """Each reason, and nothing on record with any of them."""
        down = TunnelEndpoint(status=TunnelEndpointStatus(phase="Error", reason="NoHandshake"))
        pending = msgspec.structs.replace(OTHER, status=NetworkConfigStatus(phase="Pending", remote=SIDE))
        theirs = DirectGrant(home=OSLO, request=1, pod_cidrs=["10.201.0.0/16"], confirmed=True)
        cases: tuple[tuple[dict[str, Any], DirectAsk, str], ...] = (
            ({"willing": False}, ASK, "DirectOff"),
            ({"borrows": False}, ASK, "NotABorrower"),
            ({"other": MILAN}, ASK, "NotAPair"),
            ({"other": ROME}, ASK, "NotAPair"),
            ({"networks": None}, ASK, "NoTunnelToHome"),
            ({"config": None}, ASK, "NotAPeer"),
            ({"config": pending}, ASK, "NotAPeer"),
            ({"tunnel": down}, ASK, "TunnelDown"),
            ({"config": granted(theirs)}, ASK, "PairInUse"),
            ({"config": granted(GRANT), "said": False}, ASK, "EndedThere"),
            ({"said": None, "waited": CONFIRM_WITHIN}, ASK, "NotConfirmed"),
            ({}, ask(public_key="TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0="), "OtherKey"),
            ({}, ask(pod_cidrs=[]), "NotItsNetworks"),
            ({}, ask(pod_cidrs=["10.202.0.0/16"]), "NotItsNetworks"),
            ({}, ask(pod_cidrs=["10.200.0.0/15"]), "NotItsNetworks"),
            ({}, ask(pod_cidrs=["0.0.0.0/0"]), "NotItsNetworks"),
            ({}, ask(pod_cidrs=["fd00::/64"]), "NotItsNetworks"),
            ({}, ask(pod_cidrs=["10.201.0.0/17", "10.201.0.0/24"]), "CIDROverlap"),
        )
        for changes, asked, reason in cases:
            terms = decide(attrs.evolve(FACTS, **changes), asked)
            self.assertIsNone(terms.grant, reason)
            self.assertEqual(terms.refusal.reason if terms.refusal else "", reason)

    def test_addresses_that_mean_something_of_homes(self) -> None:
        """Where the other lender's pods are seen as what home's pods here call at home, it is refused."""
        for seen in ("10.80.0.0/16", "10.64.0.0/16", "10.96.0.0/16"):
            config = msgspec.structs.replace(OTHER, spec=NetworkConfigSpec(remap=Subnets(pod_cidrs=[seen])))
            terms = decide(attrs.evolve(FACTS, config=config), ASK)
            self.assertEqual(terms.refusal.reason if terms.refusal else "", "CIDROverlap", seen)

    def test_the_next_key_is_the_other_lenders_as_well(self) -> None:
        """Home may name the key that the other end is about to have."""
        self.assertEqual(decide(FACTS, ask(public_key=NEXT)).grant, GRANT)

    def test_what_is_not_known_changes_nothing(self) -> None:
        """Without a request, a word or a loaded record, what is on record stays as it is."""
        known = attrs.evolve(FACTS, config=granted(GRANT))
        for facts in (attrs.evolve(known, said=None, waited=CONFIRM_WITHIN), attrs.evolve(known, borrows=None)):
            self.assertEqual(decide(facts, None).grant, GRANT)
        self.assertEqual(decide(FACTS, None), Terms())

    def test_on_record_and_over(self) -> None:
        """What was agreed ends with the tunnel, with the borrowing, with the setting."""
        known = attrs.evolve(FACTS, config=granted(GRANT))
        down = TunnelEndpoint(status=TunnelEndpointStatus(phase="Error", reason="NoHandshake"))
        cases: tuple[tuple[dict[str, Any], str], ...] = (
            ({"tunnel": down}, "TunnelDown"),
            ({"borrows": False}, "NotABorrower"),
            ({"willing": False}, "DirectOff"),
        )
        for changes, reason in cases:
            terms = decide(attrs.evolve(known, **changes), None)
            self.assertEqual((terms.grant, terms.refusal.reason if terms.refusal else ""), (None, reason))

    def test_offers(self) -> None:
        """Home learns of this cluster's end; where there is none, or no will, the offer is empty."""
        self.assertEqual(
            offer_to(ROME, HOME, willing=True),
            DirectOffer(ROME, ["192.0.2.7:5871"], KEY, ["10.201.0.0/16"], 1400),
        )
        nothing = DirectOffer(ROME, [], "", [], 0)
        self.assertEqual(offer_to(ROME, HOME, willing=False), nothing)
        self.assertEqual(offer_to(ROME, None, willing=True), nothing)


def networks(low: int = 0, high: int = 2**32 - 1) -> st.SearchStrategy[str]:
    """Return networks of IPv4 as texts."""
    return st.builds(
        lambda address, length: str(ipaddress.ip_network(f"{ipaddress.IPv4Address(address)}/{length}", strict=False)),
        st.integers(low, high),
        st.integers(8, 32),
    )


FIRST, LAST = (int(ipaddress.ip_address(one)) for one in ("10.201.0.0", "10.202.255.255"))


class OverlapTests(SynchronousTestCase):
    """Whatever a home names, and whatever it says of its networks."""

    @given(st.lists(networks(FIRST, LAST), max_size=4))
    def test_only_the_other_lenders_networks(self, asked: list[str]) -> None:
        """What comes out lies in its network as it is seen here, one for one, apart from each other."""
        pair = ipaddress.ip_network("10.201.0.0/16"), ipaddress.ip_network("10.65.0.0/16")
        try:
            found = seen_here(asked, [pair])
        except Refusal:
            return
        self.assertEqual([one.prefixlen for one in found], [ipaddress.ip_network(one).prefixlen for one in asked])
        self.assertTrue(all(one.network_address in pair[1] and one.prefixlen >= pair[1].prefixlen for one in found))
        for index, one in enumerate(found):
            self.assertFalse(any(one.overlaps(two) for two in found[index + 1 :]))

    @given(networks(), networks(), st.lists(networks(), max_size=2), networks())
    def test_no_grant_overlaps_what_is_homes(self, ack: str, remap: str, services: list[str], seen: str) -> None:
        """A grant is never about addresses that home's pods here use for something of home's."""
        size = ipaddress.ip_network(seen).prefixlen
        own = str(ipaddress.ip_network(f"10.201.0.0/{max(size, 16)}"))
        seen = str(ipaddress.ip_network(f"{ipaddress.ip_network(seen).network_address}/{max(size, 16)}"))
        status = NetworkConfigStatus(
            phase="Agreed", remote=TunnelSide(service_cidrs=services), ack=Subnets(pod_cidrs=[ack])
        )
        home = NetworkConfig(spec=NetworkConfigSpec(remap=Subnets(pod_cidrs=[remap])), status=status)
        config = NetworkConfig(
            spec=NetworkConfigSpec(remap=Subnets(pod_cidrs=[seen])),
            status=NetworkConfigStatus(phase="Agreed", remote=msgspec.structs.replace(SIDE, pod_cidrs=[own])),
        )
        terms = decide(attrs.evolve(FACTS, networks=home, config=config), ask(pod_cidrs=[own]))
        overlapping = any(one.overlaps(ipaddress.ip_network(seen)) for one in meant_by(home))
        self.assertEqual(terms.grant is None, overlapping)
