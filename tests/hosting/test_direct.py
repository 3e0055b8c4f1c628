"""Endpoints of a tenant at another lender: their addresses here, while the two are connected directly, and after."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.endpointslice_forge import direct_ways, directly, template_of, unready
from liqod.hosting.networkpolicies.record import TenantContext, read
from liqod.hosting.tenants.networks import direct_changes, direct_map
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.home_policies import MAX_ADDRESSES, DirectAddress, HomePoliciesSpec, PodKind
from liqod.model.records.network import (
    AddressMap,
    DirectPods,
    Subnets,
    TunnelEndpoint,
    TunnelEndpointSpec,
    TunnelEndpointStatus,
)
from liqod.model.records.views import ShadowEndpointSlice

SPEC = TunnelEndpointSpec(
    cluster_id="turin",
    remote=Subnets(pod_cidrs=["10.201.0.0/16", "fd00:201::/48"]),
    remote_seen=Subnets(pod_cidrs=["10.65.0.0/16", "fd00:65::/48"]),
    direct=[DirectPods(home="rome", networks=["10.65.0.0/17"])],
)
UP = TunnelEndpointStatus(phase="Connected", direct=["rome"])


def tunnel(status: TunnelEndpointStatus = UP, spec: TunnelEndpointSpec = SPEC) -> TunnelEndpoint:
    return TunnelEndpoint(metadata=ObjectMeta(name="turin"), spec=spec, status=status)


def shadow(*direct: dict[str, str]) -> ShadowEndpointSlice:
    """Return a slice with an endpoint at home and one at another lender, as home exports it."""
    endpoints = [{"addresses": [one], "conditions": {"ready": True}} for one in ("10.64.0.3", "10.70.0.9")]
    spec: dict[str, Any] = {"template": {"addressType": "IPv4", "endpoints": endpoints}, "direct": list(direct)}
    return msgspec.convert({"metadata": {"name": "db"}, "spec": spec}, ShadowEndpointSlice)


AT_TURIN = {"address": "10.70.0.9", "lender": "turin", "original": "10.201.0.7"}


class MapTests(SynchronousTestCase):
    """Which addresses are translated."""

    def test_only_while_packets_cross(self) -> None:
        """The tunnel is up, and its gateway says that it lets this tenant's pods through."""
        self.assertEqual(direct_map(tunnel(), "rome").seen("10.201.0.7"), "10.65.0.7")
        for status in (
            TunnelEndpointStatus(phase="Error", direct=["rome"]),
            TunnelEndpointStatus(phase="Connecting", direct=["rome"]),
            TunnelEndpointStatus(phase="Connected"),
            TunnelEndpointStatus(phase="Connected", direct=["oslo"]),
        ):
            self.assertEqual(direct_map(tunnel(status), "rome"), AddressMap(), status)

    def test_only_what_was_agreed(self) -> None:
        """Neither other networks of the lender, nor for another tenant."""
        known = direct_map(tunnel(), "rome")
        for address in ("10.201.200.7", "fd00:201::7", "10.65.0.7", "10.96.0.1"):
            self.assertEqual(known.seen(address), "", address)
        self.assertEqual(direct_map(tunnel(), "oslo"), AddressMap())

    def test_changes(self) -> None:
        """Measurements change nothing; that it is up or down, or ends, does."""
        slower = TunnelEndpointStatus(phase="Connected", direct=["rome"], rtt="under 50 ms")
        down = TunnelEndpointStatus(phase="Error", direct=["rome"])
        self.assertEqual(direct_changes(tunnel(), tunnel(slower)), [])
        self.assertEqual(direct_changes(tunnel(), tunnel(down)), ["rome"])
        self.assertEqual(direct_changes(tunnel(), None), ["rome"])
        self.assertEqual(direct_changes(tunnel(), tunnel(spec=msgspec.structs.replace(SPEC, direct=[]))), ["rome"])


class SliceTests(SynchronousTestCase):
    """What the EndpointSlice holds."""

    def ways(self, record: ShadowEndpointSlice, status: TunnelEndpointStatus = UP) -> dict[str, str]:
        return direct_ways(record, {"turin": direct_map(tunnel(status), "rome")})

    def test_the_direct_way_and_back(self) -> None:
        """The endpoint at the other lender has its address here; when the tunnel fails, the one by way of home."""
        record = shadow(AT_TURIN)
        made = directly(template_of(record, "rome"), self.ways(record))
        self.assertEqual([one.addresses for one in made.endpoints or ()], [["10.64.0.3"], ["10.65.0.7"]])
        ways = self.ways(record, TunnelEndpointStatus(phase="Error", direct=["rome"]))
        self.assertEqual(directly(template_of(record, "rome"), ways), template_of(record, "rome"))

    def test_what_a_tenant_makes_up(self) -> None:
        """Of another lender, another network, no address, the other IP version: the address stays as it is."""
        for changes in (
            {"lender": "oslo"},
            {"original": "10.202.0.7"},
            {"original": "127.0.0.1"},
            {"original": "x"},
            {"address": "fd00::9"},
        ):
            self.assertEqual(self.ways(shadow({**AT_TURIN, **changes})), {}, changes)

    def test_when_the_path_to_home_is_lost(self) -> None:
        """What is reached without home stays ready."""
        record = shadow(AT_TURIN)
        ways = self.ways(record)
        made = directly(unready(template_of(record, "rome"), besides=ways), ways)
        self.assertEqual([one.conditions.ready for one in made.endpoints or ()], [False, True])


class PolicyTests(SynchronousTestCase):
    """Home's NetworkPolicies name a pod at another lender by both of its addresses."""

    def test_both_addresses(self) -> None:
        """Each address is mapped as the tunnel to its own lender maps it; what lies outside its networks is dropped."""
        kind = PodKind(
            namespace="shop",
            addresses=["10.70.0.9"],
            direct=[
                DirectAddress(lender="turin", address="10.201.0.7"),
                DirectAddress(lender="oslo", address="10.201.0.8"),
                DirectAddress(lender="turin", address="192.0.2.1"),
            ],
        )
        text = msgspec.json.encode(HomePoliciesSpec(pods=[kind]))
        seen = TenantContext(home="shop", direct={"turin": direct_map(tunnel(), "rome")})
        found = [str(address) for pod in read(text, seen).facts.pods for address in pod.addresses]
        self.assertEqual(found, ["10.70.0.9", "10.65.0.7"])

    def test_both_count(self) -> None:
        """However many a borrower names, of both kinds together no more are read than the bound."""
        there = DirectAddress(lender="turin", address="10.201.0.7")
        kind = PodKind(namespace="shop", addresses=["10.70.0.9"] * (MAX_ADDRESSES - 1), direct=[there] * 3)
        text = msgspec.json.encode(HomePoliciesSpec(pods=[kind, PodKind(namespace="shop", direct=[there])]))
        seen = TenantContext(home="shop", direct={"turin": direct_map(tunnel(), "rome")})
        self.assertEqual(len(read(text, seen).facts.pods), MAX_ADDRESSES)
