"""Which addresses a tenant's endpoints may have."""

from __future__ import annotations

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.endpointslice_forge import refused_addresses, template_of
from liqod.hosting.tenants.networks import peer_networks
from liqod.model.foreign_address import objection
from liqod.model.records.network import TunnelEndpoint, parse_networks
from tests.hosting.test_slices import shadow

OWN = parse_networks(["10.96.0.0/12", "10.201.0.0/24", "192.168.1.5", "fd00:10::/64", "not a network"])
SPECIAL = ("127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1")
EMBEDDED = ("::10.96.0.1", "64:ff9b::a60:1", "2002:a60:1::1", "2001:0:a60:1::1")
"""Addresses of IPv6 that may lead to one of IPv4: compatible ones, NAT64, 6to4, Teredo."""


class AddressTests(SynchronousTestCase):
    """One address."""

    def test_where_others_connect_the_clusters(self) -> None:
        """Everything but this cluster: its services, pods, nodes, and what is of no cluster."""
        for address in (
            *SPECIAL,
            *EMBEDDED,
            "255.255.255.255",
            "fd00:ec2::254",
            "10.96.0.1",
            "10.201.0.7",
            "192.168.1.5",
            "fd00:10::7",
            "::ffff:10.96.0.1",
        ):
            self.assertTrue(objection(address, OWN, None), address)
        for address in ("10.202.0.7", "192.0.2.1", "192.168.1.6", "fd00:11::1"):
            self.assertEqual(objection(address, OWN, None), "", address)

    def test_where_liqod_connects_them(self) -> None:
        """The networks that were agreed on, and nothing else; none while there are none."""
        peer = parse_networks(["10.64.0.0/16", "10.70.0.0/20"])
        for address in ("10.64.3.4", "10.70.0.1"):
            self.assertEqual(objection(address, OWN, peer), "")
            self.assertTrue(objection(address, OWN, []))
        for address in (*SPECIAL, "10.96.0.1", "192.0.2.1", "10.65.0.1"):
            self.assertTrue(objection(address, OWN, peer), address)
        self.assertTrue(objection("127.0.0.1", OWN, parse_networks(["0.0.0.0/0"])))

    def test_names(self) -> None:
        """What is no address may be the name of a service of this cluster."""
        for name in ("vault.vault.svc.cluster.local", "", "10.96.0.1 ", "0x0a600001", "10.96.1"):
            self.assertTrue(objection(name, [], None), name)

    def test_networks_of_a_peer(self) -> None:
        """Its pods and its external networks as they are seen here, of both versions."""
        seen = {
            "podCIDRs": ["10.64.0.0/16", "fd64::/64"],
            "externalCIDR": "10.70.0.0/20",
            "externalCIDR6": "fd70::/112",
        }
        body = {"spec": {"remoteSeen": seen, "remote": {"podCIDRs": ["10.1.0.0/16"]}}}
        self.assertEqual(
            [str(one) for one in peer_networks(msgspec.convert(body, TunnelEndpoint))],
            ["10.64.0.0/16", "fd64::/64", "10.70.0.0/20", "fd70::/112"],
        )
        self.assertEqual(peer_networks(TunnelEndpoint()), [])


class SliceTests(SynchronousTestCase):
    """A whole slice."""

    def test_endpoints_with_a_refused_address(self) -> None:
        """They are left out, also where another address of theirs is fine; the rest stays."""
        good, bad = {"addresses": ["10.202.0.7"]}, {"addresses": ["10.202.0.8", "10.96.0.1"]}
        made = shadow(endpoints=[good, bad])
        refused = refused_addresses(made, lambda address: objection(address, OWN, None))
        self.assertEqual(list(refused), ["10.96.0.1"])
        kept = template_of(made, "home", refused).endpoints
        self.assertEqual([one.addresses for one in kept or ()], [["10.202.0.7"]])
