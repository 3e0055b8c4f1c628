"""Endpoints that are no pods of home: requested with their ports, waited for, released; what never goes is reported."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.manifests import definitions
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.network import NoNetwork
from liqod.kubelet.reflection.forge.endpointslice import MAX_ADDRESSES, forge
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld
from liqod.kubelet.reflection.kinds import ENDPOINTSLICE
from liqod.kubelet.reflection.views import EndpointSlice
from liqod.model.names import ALLOW_REFLECTION
from tests.kubelet.networks import LenderObjects
from tests.kubelet.reflection.sides import CONTEXT, Sides

SQL = {"name": "sql", "port": 5432, "protocol": "TCP"}


def slice_of(*addresses: str, ports: Any = (SQL,), name: str = "db-1", **more: Any) -> dict[str, Any]:
    """Return a slice of the home cluster."""
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], **more} for address in addresses],
        "ports": list(ports),
    }


class Network(NoNetwork):
    """What the fabric would say: pods are 10.1.*, single addresses have one once they are given one."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.unnamed: set[str] = set()

    def objection(self, address: str) -> str:
        """Return why an address is never reached."""
        if address in self.unnamed:
            return "is no pod, and its slice names no port"
        return "has a meaning on its own host or link alone" if address.startswith("169") else ""

    def context(self) -> Context:
        """Return the pair of clusters with this network between them."""
        return attrs.evolve(CONTEXT, network=self)

    def endpoint_to_lender(self, address: str) -> str:
        return address if address.startswith("10.1.") else self.given.get(address, "")

    def must_be_exported(self, address: str) -> bool:
        return not address.startswith("10.1.")


def wanted(body: dict[str, Any], network: Network) -> DesiredObject:
    """Return what the lender should have of a slice."""
    inputs = ForgeInputs(network.context(), home=LenderObjects(nodes=("liqo-lender",)))
    desired = forge(msgspec.json.decode(msgspec.json.encode(body), type=EndpointSlice), inputs)
    assert isinstance(desired, DesiredObject)
    return desired


class ForgeTests(SynchronousTestCase):
    """What one slice asks for."""

    def test_the_table(self) -> None:
        """Single addresses are requested with the slice's ports, all where it names none; pods and names are not."""
        udp = {"port": 53, "protocol": "UDP"}
        for body, requests, incomplete in (
            (slice_of("10.1.0.5"), set(), False),
            (slice_of("192.0.2.9"), {("192.0.2.9", "TCP/5432")}, True),
            (slice_of("192.0.2.9", ports=(SQL, udp)), {("192.0.2.9", "TCP/5432"), ("192.0.2.9", "UDP/53")}, True),
            (slice_of("192.0.2.9", ports=({"port": 80},)), {("192.0.2.9", "TCP/80")}, True),
            (slice_of("192.0.2.9", ports=()), {("192.0.2.9", "")}, True),
            (slice_of("192.0.2.9", ports=({"name": "any"},)), {("192.0.2.9", "")}, True),
            (slice_of("192.0.2.9", ports=(SQL, {"name": "any"})), {("192.0.2.9", ""), ("192.0.2.9", "TCP/5432")}, True),
            (slice_of("192.0.2.9", nodeName="liqo-lender"), set(), False),
            (slice_of("10.1.0.5", "169.254.169.254"), set(), False),
            ({**slice_of("db.example.com"), "addressType": "FQDN"}, set(), False),
        ):
            desired = wanted(body, Network())
            self.assertEqual((set(desired.exports), desired.incomplete), (requests, incomplete), body)

    def test_a_service_that_is_not_known(self) -> None:
        """Its slices wait for it, as its annotations decide; one that says so itself goes, or that has no service."""
        inputs = ForgeInputs(CONTEXT, has_services=True)
        labelled = slice_of("10.20.0.1")
        loose, allowed = deepcopy(labelled), deepcopy(labelled)
        del loose["metadata"]["labels"]
        allowed["metadata"]["annotations"] = {ALLOW_REFLECTION: "true"}
        for body, waits in ((labelled, True), (loose, False), (allowed, False)):
            seen = msgspec.json.decode(msgspec.json.encode(body), type=EndpointSlice)
            self.assertEqual(isinstance(forge(seen, inputs), Withheld), waits, body)
            self.assertIsInstance(forge(seen, ForgeInputs(CONTEXT)), DesiredObject)

    def test_what_never_goes_is_reported_and_the_rest_goes(self) -> None:
        """One endpoint that may not be exported does not keep the others back."""
        desired = wanted(slice_of("10.1.0.5", "169.254.169.254"), Network())
        self.assertEqual(
            desired.objections, ("the endpoint 169.254.169.254 has a meaning on its own host or link alone",)
        )
        self.assertEqual([one["addresses"] for one in desired.content["spec"]["template"]["endpoints"]], [["10.1.0.5"]])

    def test_an_endpoint_of_many_addresses(self) -> None:
        """It goes with the first ones, as many as a lender takes; for the others nothing is requested."""
        many = [f"10.1.0.{number}" for number in range(1, MAX_ADDRESSES)]
        body = slice_of("10.1.0.9")
        body["endpoints"][0]["addresses"] = [*many, "192.0.2.8", "192.0.2.9"]
        network = Network()
        network.given = {"192.0.2.8": "10.70.0.8"}
        desired = wanted(body, network)
        self.assertEqual((set(desired.exports), desired.incomplete), ({("192.0.2.8", "TCP/5432")}, False))
        (endpoint,) = desired.content["spec"]["template"]["endpoints"]
        self.assertEqual(endpoint["addresses"], [*many, "10.70.0.8"])
        (record,) = (one for one in definitions() if one["spec"]["names"]["kind"] == "ShadowEndpointSlice")
        schema = record["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        endpoints = schema["template"]["properties"]["endpoints"]["items"]["properties"]
        self.assertEqual(endpoints["addresses"]["maxItems"], MAX_ADDRESSES)

    def test_what_names_no_port_is_reported_where_ports_have_to_be_named(self) -> None:
        """Such an endpoint is not waited for, and requested all the same: that is how the network knows what to say."""
        network = Network()
        network.unnamed = {"192.0.2.9"}
        desired = wanted(slice_of("10.1.0.5", "192.0.2.9", ports=()), network)
        self.assertEqual((set(desired.exports), desired.incomplete), ({("192.0.2.9", "")}, False))
        self.assertEqual(desired.objections, ("the endpoint 192.0.2.9 is no pod, and its slice names no port",))
        self.assertEqual([one["addresses"] for one in desired.content["spec"]["template"]["endpoints"]], [["10.1.0.5"]])


class Events:
    """Remembers events."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def record_event(self, regarding: Any, type: str, reason: str, message: str, source: Any = None) -> None:
        self.seen.append((reason, message))


class ReflectorTests(SynchronousTestCase):
    """A reflector of slices between two servers in memory."""

    def setUp(self) -> None:
        self.network = Network()
        self.sides = Sides(ENDPOINTSLICE)
        self.sides.inputs = attrs.evolve(self.sides.inputs, context=self.network.context())

    def export_requests(self) -> tuple[set[tuple[str, str]], bool]:
        """Return what is requested, and whether that is all."""
        found = self.sides.reflector.export_requests(["shop"])
        return set(found.wanted), found.complete

    def sent(self) -> list[str]:
        """Return the addresses that the lender was asked about."""
        there = self.sides.lender.objects.get("db-1", {"spec": {"template": {}}})
        return [one["addresses"][0] for one in there["spec"]["template"].get("endpoints", [])]

    def test_an_address_is_requested_waited_for_and_released(self) -> None:
        """The slice goes once the address has one that the lender reaches; the request ends with the endpoint."""
        self.assertEqual(self.export_requests(), (set(), False))
        self.sides.home.put("db-1", slice_of("192.0.2.9"))
        self.sides.pass_time(0.1)
        self.assertEqual(self.export_requests(), ({("192.0.2.9", "TCP/5432")}, True))
        self.assertEqual((len(self.sides.requested), self.sent()), (1, []))
        self.network.given["192.0.2.9"] = "10.70.3.4"
        self.sides.reflector.enqueue_all()
        self.sides.pass_time(0.1)
        self.assertEqual((self.sent(), len(self.sides.requested)), (["10.70.3.4"], 1))
        self.sides.home.put("db-1", slice_of("10.1.0.5"))
        self.sides.pass_time(1.0)
        self.assertEqual((self.sent(), self.export_requests()), (["10.1.0.5"], (set(), True)))
        self.assertEqual(len(self.sides.requested), 2)

    def test_a_deleted_slice_requests_nothing(self) -> None:
        """Its requests go, those of others stay."""
        for name, address in (("db-1", "192.0.2.9"), ("db-2", "192.0.2.7")):
            self.sides.home.put(name, slice_of(address, name=name))
        self.sides.pass_time(0.1)
        self.sides.home.remove("db-1")
        self.sides.pass_time(0.1)
        self.assertEqual(self.export_requests(), ({("192.0.2.7", "TCP/5432")}, True))

    def test_a_namespace_that_is_reflected_no_longer_asks_for_nothing(self) -> None:
        """All its requests end at once, and that is reported; while one is to be served and is not, nothing is
        complete.
        """
        self.sides.home.put("db-1", slice_of("192.0.2.9"))
        self.sides.pass_time(0.1)
        self.sides.reflector.close_namespace("shop")
        self.assertEqual((len(self.sides.requested), self.export_requests()), (2, (set(), False)))
        self.assertTrue(self.sides.reflector.export_requests([]).complete)

    def test_after_a_restart_nothing_is_complete_before_every_slice_had_its_turn(self) -> None:
        """Otherwise what the lender still uses would be released."""
        self.sides.home.put("db-1", slice_of("192.0.2.9"))
        self.sides.pass_time(0.1)
        self.sides.crash()
        self.sides.begin()
        self.assertEqual(self.export_requests(), (set(), False))
        self.sides.pass_time(0.1)
        self.assertEqual(self.export_requests(), ({("192.0.2.9", "TCP/5432")}, True))

    def test_what_never_goes_is_reported_once(self) -> None:
        """With its reason, and again only when it is another one; no turn is wasted on waiting for it."""
        reported = Events()
        sides = self.sides = Sides(ENDPOINTSLICE, recorder=reported)
        sides.inputs = attrs.evolve(sides.inputs, context=self.network.context())
        sides.home.put("db-1", slice_of("10.1.0.5", "169.254.169.254"))
        sides.pass_time(0.1)
        sides.reflector.enqueue_all()
        sides.pass_time(0.1)
        self.assertEqual([reason for reason, _ in reported.seen], ["EndpointNotExported"])
        self.assertIn("the endpoint 169.254.169.254 has a meaning", reported.seen[0][1])
        self.assertEqual(self.sent(), ["10.1.0.5"])
        sides.home.put("db-1", slice_of("10.1.0.5", "169.254.1.1"))
        sides.pass_time(1.0)
        self.assertEqual(len(reported.seen), 2)
