"""Addresses that are of no other cluster, wherever one is asked for."""

from __future__ import annotations

import ipaddress

from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.control.agreement.exports import ExportPolicy, export_refusal
from liqod.hosting.tenants.bounds import KnownNetworks, network_policy
from liqod.hosting.tenants.contract import Contract
from liqod.model.api_url import OwnAddresses, api_url_problem
from liqod.model.foreign_address import NetworkLookup, objection
from tests.hosting.tenants.test_bounds import reaches

SPECIAL = (
    *(
        "0.1.2.3",
        "127.0.0.1",
        "127.8.8.8",
        "169.254.169.254",
        "169.254.170.23",
        "192.0.0.192",
        "224.0.0.1",
        "240.0.0.1",
    ),
    *("255.255.255.255", "168.63.129.16", "100.100.100.200"),
    *("::", "::1", "::a9fe:a9fe", "64:ff9b::a9fe:a9fe", "64:ff9b::10.96.0.1", "64:ff9b:1::a60:1", "100::1"),
    *("2001:0:a60:1::1", "2002:a60:1::1", "fe80::1", "fec0::1", "ff02::1"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"),
)
PRIVATE = ("10.1.2.3", "100.100.100.201", "fd00:ec2::255")
"""Ordinary ones that the bounds of a tenant open only where they are the peer's."""
ORDINARY = ("8.8.8.8", "192.0.2.1", "10.1.2.3", "100.100.100.201", "2606:4700::1", "2001:db8::7", "fd00:ec2::255")


class SpecialNetworksTests(SynchronousTestCase):
    """Everything that judges an address refuses the same ones."""

    def judges(self, text: str) -> dict[str, bool]:
        """Return who takes an address."""
        six = ":" in text
        external = ipaddress.ip_network("fd70::/112" if six else "10.70.0.0/20")
        url = f"https://[{text}]:6443" if six else f"https://{text}:6443"
        bounds = network_policy(
            "rome", "shop-rome", Contract(), KnownNetworks(peer=[*map(ipaddress.ip_network, PRIVATE)])
        )
        assert bounds is not None
        return {
            "bounds": reaches(bounds, text),
            "endpoints": not objection(text, NetworkLookup(), None),
            "exports": not export_refusal(text, ExportPolicy((), (), (external,))),
            "API server": not (api_url_problem(url) or OwnAddresses().problem(url)),
        }

    def test_special_addresses(self) -> None:
        """None takes loopback, a neighbour, a metadata service, or an address with one of IPv4 inside."""
        for text in SPECIAL:
            self.assertEqual([who for who, takes in self.judges(text).items() if takes], [], text)

    def test_mapped_addresses(self) -> None:
        """An address of IPv4 in the clothes of IPv6 is refused as well."""
        for text in ("::ffff:169.254.169.254", "::ffff:168.63.129.16"):
            self.assertEqual([who for who, takes in self.judges(text).items() if takes], [], text)

    def test_ordinary_addresses(self) -> None:
        """All take what may be another cluster's."""
        for text in ORDINARY:
            self.assertEqual([who for who, takes in self.judges(text).items() if not takes], [], text)
