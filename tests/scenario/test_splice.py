"""Offloaded pods and their home's API server without a tunnel: a service at the lender, and streams of the daemons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from kubesandbox.kinds.kinds import PODS, SERVICES, GroupResource
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.python.failure import Failure

from liqod.config.schema import Settings
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.ids import ClusterID
from tests.scenario.case import SMALL, ScenarioCase, Scene, node_ready, offloaded
from tests.scenario.network import Process
from tests.scenario.side import Side

PORT = 5869
SLICES = GroupResource("discovery.k8s.io", "endpointslices")
HELLO = b"\x16\x03\x01\x00\x05hello"
"""A record of TLS with nothing in it that a server understands: it answers by an alert."""
ALERT = 0x15


def takes_streams(settings: Settings) -> Settings:
    """Return settings of a lender that leads pods to streams."""
    return msgspec.structs.replace(settings, hosting=msgspec.structs.replace(settings.hosting, home_api=f"tcp:{PORT}"))


def without_streams(settings: Settings) -> Settings:
    """Return settings of a home that keeps none."""
    return msgspec.structs.replace(settings, peering=msgspec.structs.replace(settings.peering, api_streams=0))


def unchanged(settings: Settings) -> Settings:
    """Return settings as they are."""
    return settings


class Pod(Protocol):
    """What a pod sends to the API server, and what comes back."""

    def __init__(self) -> None:
        self.got = b""
        self.is_closed = False

    def connectionMade(self) -> None:
        transport: Any = self.transport
        transport.write(HELLO)

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_closed = True


class _Calls(ClientFactory):
    noisy = False

    def __init__(self, pod: Pod) -> None:
        self.pod = pod

    def buildProtocol(self, addr: Any) -> Pod:
        return self.pod

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        self.pod.is_closed = True


def called(scene: Scene, lender: Side, address: str) -> Pod:
    """Let a machine with an address call the port of streams."""
    pod = Pod()
    Process(scene.network, address, f"pod-{address}").connectTCP(lender.address, PORT, _Calls(pod))
    return pod


def addresses_of_pods(side: Side) -> list[str]:
    """Return the addresses of a side's running pods."""
    return [
        str(one["status"]["podIP"])
        for one in side.objects(PODS)
        if one.get("status", {}).get("podIP") and one["status"].get("phase") == "Running"
    ]


def led(side: Side) -> list[Any]:
    """Return the slices that lead to streams."""
    return [one for one in side.objects(SLICES) if one["metadata"]["name"] == "liqod-home-api-streams"]


class SpliceTests(ScenarioCase):
    def pair(
        self,
        scene: Scene,
        *,
        home_dials: bool = True,
        home: Callable[[Settings], Settings] = unchanged,
        lender: Callable[[Settings], Settings] = takes_streams,
    ) -> tuple[Side, Side]:
        """Return a home and a lender that are peered; only one of the two knows where the other is."""
        rome = scene.side("rome", nodes=(SMALL,), peers=(2,) if home_dials else (), change=home)
        milan = scene.side("milan", peers=() if home_dials else (1,), change=lender)
        rome.start()
        milan.start()
        scene.acquaint((rome, milan))
        scene.becomes("the node is ready", lambda: node_ready(rome, milan))
        scene.enable(rome)
        return rome, milan

    def running(self, scene: Scene, rome: Side, milan: Side) -> str:
        """Wait until streams are kept, run a pod, and return its address at the lender."""
        scene.becomes("streams are kept", lambda: self.kept(rome, milan) > 0, 120.0)
        scene.deploy(rome, "web", 1)
        scene.becomes("it runs", lambda: offloaded(rome, milan, "web", 1))
        scene.becomes("the service leads to the daemon", lambda: led(milan), 60.0)
        return addresses_of_pods(milan)[0]

    def kept(self, rome: Side, milan: Side) -> int:
        assert rome.daemon.features is not None
        return rome.daemon.features.peering.streams.home.open_streams(ClusterID(milan.id))

    def test_home_dials(self) -> None:
        """A home behind NAT is reached by the streams that it keeps ready: its API server answers the pod."""
        scene = self.scene()
        rome, milan = self.pair(scene)
        # Nothing from the lender's machines reaches home but what home dialled.
        scene.network.block(milan.address, rome.api_address)
        address = self.running(scene, rome, milan)
        endpoint = led(milan)[0]
        self.assertEqual(endpoint["endpoints"][0]["addresses"], [milan.address])
        self.assertEqual(endpoint["ports"][0]["port"], PORT)
        names = {one["metadata"]["name"] for one in milan.objects(SERVICES)}
        self.assertIn("liqod-home-api", names)
        pod = called(scene, milan, address)
        scene.becomes("the API server answers", lambda: pod.got, 30.0)
        self.assertEqual(pod.got[0], ALERT)

    def test_the_lender_dials(self) -> None:
        """Where the lender dialled the session, it dials the streams as well."""
        scene = self.scene()
        rome, milan = self.pair(scene, home_dials=False)
        pod = called(scene, milan, self.running(scene, rome, milan))
        scene.becomes("the API server answers", lambda: pod.got, 30.0)
        self.assertEqual(pod.got[0], ALERT)

    def test_a_stranger_is_turned_away(self) -> None:
        """Machines that are no pods of the tenant get no byte through, and home sees no connection."""
        scene = self.scene()
        rome, milan = self.pair(scene)
        self.running(scene, rome, milan)
        for address in ("203.0.113.9", milan.api_address):
            pod = called(scene, milan, address)
            scene.becomes("it is closed", lambda pod=pod: pod.is_closed, 30.0)  # type: ignore[misc]
            self.assertEqual(pod.got, b"")

    def test_it_ends_with_the_trust(self) -> None:
        """A pod's connection is cut when home does not trust the lender any more."""
        scene = self.scene()
        rome, milan = self.pair(scene)
        self.running(scene, rome, milan)
        scene.do(rome.client.patch(FOREIGNCLUSTERS, milan.id, {"spec": {"fingerprint": ""}}, view=None))
        took = scene.becomes("no stream is open", lambda: self.kept(rome, milan) == 0, 5.0)
        self.assertLess(took, 1.0)

    def test_home_keeps_none(self) -> None:
        """With api-streams = 0 a home is asked for none, and pods are as without streams."""
        scene = self.scene()
        rome, milan = self.pair(scene, home=without_streams)
        scene.deploy(rome, "web", 1)
        scene.becomes("it runs", lambda: offloaded(rome, milan, "web", 1))
        scene.world.until(lambda: False, 60.0)
        self.assertEqual((self.kept(rome, milan), led(milan)), (0, []))
