"""The numbers of peers, read from what a daemon holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.metrics.peers import PeerNumbers, register
from liqod.fabric.state.report import NetworkReport, ProbeResult, TunnelReport
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, TUNNELENDPOINTS
from liqod.kubelet.common.views import HomePod
from liqod.metrics.registry import Registry
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.quantity import parse_all
from liqod.model.records.network import TunnelEndpoint, TunnelEndpointSpec, TunnelEndpointStatus
from liqod.model.records.offer import Offer
from liqod.model.records.views import (
    Advertisement,
    AdvertisementSpec,
    AdvertisementStatus,
    ForeignCluster,
    ForeignClusterStatus,
    Lent,
)


@attrs.frozen
class Session:
    """A session with a peer."""

    peer: str
    missed_pings: int


@attrs.frozen
class Held:
    """What a leading daemon holds: one connected lender, and one stranger."""

    records: dict[Any, list[Any]]

    webhook = None

    @property
    def peering(self) -> Held:
        return self

    informers = hosting = fabric = kubelets = peering

    def sessions(self) -> list[Session]:
        return [Session("milan", 2)]

    def of(self, resource: Any, view: type) -> Any:
        return self.records[resource]

    def used_by(self, peer: str) -> dict[str, Any]:
        return parse_all({"cpu": "1500m"}) if peer == "milan" else {}

    def report(self) -> NetworkReport:
        tunnels = {"KEY": TunnelReport("192.0.2.7:5871", 1000.0, 77, sent=88), "OTHER": TunnelReport("", 0.0, 5)}
        return NetworkReport(tunnels=tunnels, probes={"milan": ProbeResult(0.0, 1.0, 0.025, 0.5, 1380)})

    def all(self) -> list[Any]:
        return []


class Records(list[Any]):
    """A cache of one kind."""

    def items(self) -> list[Any]:
        return list(self)


class PeerNumbersTests(SynchronousTestCase):
    """What ``/metrics`` shows of peers."""

    def test_each_peer_has_its_numbers(self) -> None:
        """Sessions, offers both ways and tunnels by cluster ID; a handshake that never was is left out, not zero. So
        are quantities that cannot be read, and a reason that a peer made up is no series.
        """
        lent = Lent(resources={"cpu": "2", "example.com/any": "7", "memory": "much"})
        milan = ForeignClusterStatus(cluster_name="Milan", phase="Suspect", reason="MadeUp1", lent=lent)
        offer = AdvertisementSpec(cluster_id="milan", offer=Offer(resources={"cpu": "many", "memory": "1Gi"}))
        tunnels = [
            TunnelEndpoint(
                spec=TunnelEndpointSpec(cluster_id=name, public_key=key),
                status=TunnelEndpointStatus(phase="Connected" if name == "milan" else "Error"),
            )
            for name, key in (("milan", "KEY"), ("oslo", "OTHER"))
        ]
        held: Any = Held(
            {
                FOREIGNCLUSTERS: Records(
                    [
                        ForeignCluster(metadata=ObjectMeta(name="milan"), status=milan),
                        ForeignCluster(metadata=ObjectMeta(name="oslo")),
                    ]
                ),
                ADVERTISEMENTS: Records([Advertisement(spec=offer, status=AdvertisementStatus(phase="Accepted"))]),
                TUNNELENDPOINTS: Records(tunnels),
            }
        )
        numbers = PeerNumbers(lambda: [held])
        read = {
            "connected": [(("milan", "Milan"), 1.0), (("oslo", ""), 0.0)],
            "phases": [(("milan", "Suspect", "Other"), 1.0), (("oslo", "Unknown", ""), 1.0)],
            "missed_pings": [(("milan",), 2.0)],
            "lent": [(("milan", "cpu"), 2.0)],
            "used": [(("milan", "cpu"), 1.5)],
            "borrowed": [(("milan", "memory"), 2.0**30)],
            "tunnels": [(("milan",), 1.0), (("oslo",), 0.0)],
            "handshakes": [(("milan",), 1000.0)],
            "received": [(("milan",), 77.0), (("oslo",), 5.0)],
            "sent": [(("milan",), 88.0), (("oslo",), 0.0)],
            "round_trips": [(("milan",), 0.025)],
            "losses": [(("milan",), 0.5)],
            "path_mtus": [(("milan",), 1380.0)],
        }
        for name, expected in read.items():
            self.assertEqual(list(getattr(numbers, name)()), expected, name)

    def test_a_standby_shows_none(self) -> None:
        """Without running features they are absent: zero would say that the peers are gone."""
        registry = Registry()
        register(registry, PeerNumbers(list))
        lines = [line for line in registry.text().decode().splitlines() if line.startswith("liqod_peer")]
        self.assertEqual(lines, [])

    def test_pods_that_are_to_run(self) -> None:
        """Those that have ended, or are being deleted, are not wanted; a lender without any is 0, not absent."""

        def pod(phase: str, *, deleting: bool = False) -> HomePod:
            meta = ObjectMeta(name="a", deletion_timestamp="2026-11-27T12:00:00Z" if deleting else None)
            return HomePod(metadata=meta, status=msgspec.Raw(msgspec.json.encode({"phase": phase} if phase else {})))

        pods = [pod("Running"), pod("Pending"), pod(""), pod("Succeeded"), pod("Failed"), pod("Running", deleting=True)]
        kubelets = [
            SimpleNamespace(context=SimpleNamespace(lender=lender), home_pods=lambda its=its: its)
            for lender, its in (("milan", pods[:3]), ("milan", pods[3:]), ("oslo", []))
        ]
        features: Any = SimpleNamespace(kubelets=SimpleNamespace(all=lambda: kubelets))
        numbers = PeerNumbers(lambda: [features])
        self.assertEqual(list(numbers.wanted()), [(("milan",), 3.0), (("oslo",), 0.0)])
        self.assertEqual(dict(numbers.pods())["milan", "Pending"], 2.0)

    def test_a_process_that_is_the_gateway(self) -> None:
        """It knows what its tunnels count; control, which does not, shows no zeros in its place."""
        tunnel = TunnelEndpoint(spec=TunnelEndpointSpec(cluster_id="milan", public_key="KEY"))
        counted = NetworkReport(tunnels={"KEY": TunnelReport("192.0.2.7:5871", 1000.0, 0, sent=88)})
        gateway: Any = SimpleNamespace(tunnels=lambda: [tunnel], report=lambda: counted)
        numbers = PeerNumbers(list, lambda: gateway)
        self.assertEqual(list(numbers.sent()), [(("milan",), 88.0)])
        self.assertEqual(list(numbers.received()), [(("milan",), 0.0)])
        self.assertEqual(list(numbers.handshakes()), [(("milan",), 1000.0)])
        unknown = NetworkReport(tunnels={"KEY": TunnelReport("192.0.2.7:5871", 1000.0)})
        control: Any = SimpleNamespace(
            fabric=SimpleNamespace(report=lambda: unknown),
            informers=SimpleNamespace(of=lambda *_: SimpleNamespace(items=lambda: [tunnel])),
        )
        numbers = PeerNumbers(lambda: [control])
        self.assertEqual((list(numbers.sent()), list(numbers.received())), ([], []))
