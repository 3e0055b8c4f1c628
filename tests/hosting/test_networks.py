"""Which addresses a tenant's endpoints may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import NetworkSettings
from liqod.hosting.endpointslice_forge import refused_addresses, template_of
from liqod.hosting.tenants import networks
from liqod.hosting.tenants.networks import TenantNetworks, peer_networks
from liqod.kube.manifests import definitions
from liqod.model.foreign_address import NetworkLookup, objection
from liqod.model.ids import Key
from liqod.model.objects.node import Node
from liqod.model.records.network import TunnelEndpoint, parse_networks
from tests.fuzz.cost import calls
from tests.hosting.test_slices import shadow


def lookup(*texts: str) -> NetworkLookup:
    return NetworkLookup(parse_networks(texts))


OWN = lookup("10.96.0.0/12", "10.201.0.0/24", "192.168.1.5", "fd00:10::/64", "not a network")
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
        peer = lookup("10.64.0.0/16", "10.70.0.0/20")
        for address in ("10.64.3.4", "10.70.0.1"):
            self.assertEqual(objection(address, OWN, peer), "")
            self.assertTrue(objection(address, OWN, lookup()))
        for address in (*SPECIAL, "10.96.0.1", "192.0.2.1", "10.65.0.1"):
            self.assertTrue(objection(address, OWN, peer), address)
        self.assertTrue(objection("127.0.0.1", OWN, lookup("0.0.0.0/0")))

    def test_names(self) -> None:
        """What is no address may be the name of a service of this cluster."""
        for name in ("vault.vault.svc.cluster.local", "", "10.96.0.1 ", "0x0a600001", "10.96.1"):
            self.assertTrue(objection(name, lookup(), None), name)

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


class Records:
    """The informer of one kind, with whom it calls at a change."""

    def __init__(self) -> None:
        self.known: dict[Key, Any] = {}
        self.subscribers: list[Callable[[Key, Any, Any], None]] = []

    def get(self, key: Key) -> Any:
        return self.known.get(key)

    def items(self) -> list[Any]:
        return list(self.known.values())

    def subscribe(self, subscriber: Callable[[Key, Any, Any], None]) -> Callable[[], None]:
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)

    def set(self, key: Key, new: Any) -> None:
        old = self.known.pop(key, None)
        if new is not None:
            self.known[key] = new
        for one in self.subscribers:
            one(key, old, new)


class Informers:
    """An informer for each kind."""

    def __init__(self) -> None:
        self.kinds: dict[object, Records] = {}

    def of(self, resource: object, view: type) -> Records:
        return self.kinds.setdefault(view, Records())


class CostTests(SynchronousTestCase):
    """What a slice of many addresses costs."""

    def setUp(self) -> None:
        self.parsed = 0

        def counted(texts: Iterable[str]) -> Any:
            self.parsed += 1
            return parse_networks(texts)

        self.patch(networks, "parse_networks", counted)
        self.informers = Informers()
        self.client: Any = type("Client", (), {"config": type("Config", (), {"server": "https://192.0.2.1:6443"})})
        for number in range(200):
            body = {
                "metadata": {"name": f"node-{number}"},
                "spec": {"podCIDRs": [f"10.201.{number}.0/24"]},
                "status": {"addresses": [{"type": "InternalIP", "address": f"192.168.1.{number}"}]},
            }
            self.informers.of(None, Node).set(Key("", f"node-{number}"), msgspec.convert(body, Node))

    def agree(self, *pods: str) -> None:
        body = {"metadata": {"name": "rome"}, "spec": {"remoteSeen": {"podCIDRs": list(pods)}}}
        tunnel = msgspec.convert(body, TunnelEndpoint) if pods else None
        self.informers.of(None, TunnelEndpoint).set(Key("", "rome"), tunnel)

    def test_networks_are_parsed_once(self) -> None:
        """Not for each address; a tunnel that changes or goes counts at once."""
        known = TenantNetworks(self.client, cast(Any, self.informers), NetworkSettings(mode="wireguard"))
        self.assertTrue(known.objection("rome", "10.64.0.1"))
        self.agree("10.64.0.0/16")
        self.parsed = 0
        for number in range(1000):
            self.assertEqual(known.objection("rome", f"10.64.{number // 250}.{number % 250}"), "")
        self.assertEqual([str(one) for one in known.around("rome").peer or ()], ["10.64.0.0/16"])
        self.assertLessEqual(self.parsed, 3)
        self.agree("10.65.0.0/16")
        self.assertTrue(known.objection("rome", "10.64.0.1"))
        self.assertEqual(known.objection("rome", "10.65.0.1"), "")
        self.agree()
        self.assertTrue(known.objection("rome", "10.65.0.1"))
        known.close()
        self.assertEqual([one.subscribers for one in self.informers.kinds.values() if one.subscribers], [])

    def test_addresses_of_an_endpoint(self) -> None:
        """The definition allows a few: the proxy of a node uses the first."""
        (slices,) = (one for one in definitions() if one["spec"]["names"]["kind"] == "ShadowEndpointSlice")
        spec = slices["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        endpoint = spec["properties"]["template"]["properties"]["endpoints"]["items"]
        self.assertEqual(endpoint["properties"]["addresses"]["maxItems"], 4)

    def test_own_networks_are_not_gone_through(self) -> None:
        """An address is looked up in networks of four lengths, not compared with each of four hundred."""
        settings = NetworkSettings(mode="none", pod_cidrs=["10.202.0.0/16"], service_cidrs=["10.96.0.0/12"])
        known = TenantNetworks(self.client, cast(Any, self.informers), settings)
        self.assertIn("own networks", known.objection("rome", "192.168.1.7"))
        self.assertIn("own networks", known.objection("rome", "10.201.199.7"))
        self.assertEqual(known.objection("rome", "192.168.2.7"), "")
        self.assertLess(calls(lambda _: known.objection("rome", "192.168.2.7"), b""), 200)
