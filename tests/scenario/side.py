"""One side of a scenario: an API server with its cluster, a machine for the daemon, the eyes of its administrator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final, cast

import attrs
import msgspec
from kubesandbox.auth.tokens import ADMIN
from kubesandbox.cluster import SandboxCluster
from kubesandbox.kinds.kinds import GroupResource, Json
from kubesandbox.nodes.node import SandboxNode
from kubesandbox.server.apiserver import send
from twisted.internet import ssl
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.web.resource import Resource as WebResource
from twisted.web.server import NOT_DONE_YET, Request, Site

from liqod.agent.service import Agent
from liqod.config import schema
from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor
from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from tests.scenario.network import Network, Port, Process

API_PORT: Final = 6443
PLAIN_PORT: Final = 8080
PEER_PORT: Final = 5872
_WRITES: Final = {b"POST": "create", b"PUT": "update", b"PATCH": "patch", b"DELETE": "delete"}


@attrs.frozen
class Fault:
    """What the API server answers instead of working: a status code, its reason, and what it tells about waiting."""

    code: int
    reason: str
    retry_after: str = ""
    only_watches: bool = False


class Door(WebResource):
    """Stands before an API server: writes down who asks for what, and answers with a fault while there is one.

    ``asked_by`` counts the same by the address of the machine; there a watch that begins with all objects is a list,
    and a list of a few of them, by a selector, is a "selected list".
    """

    isLeaf = True

    def __init__(self, behind: WebResource) -> None:
        super().__init__()
        self._behind = behind
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.asked_by: Counter[tuple[str, str, str]] = Counter()
        self.fault: Fault | None = None

    def render(self, request: Request) -> Any:
        agent = request.getHeader("user-agent") or ""
        verb, what = asked(request)
        self.requests[agent, verb, what] += 1
        is_list = request.args.get(b"sendInitialEvents", [b""])[0] == b"true"
        is_selected = any(request.args.get(name, [b""])[0] for name in (b"fieldSelector", b"labelSelector"))
        way = "list" if is_list else "selected list" if verb == "list" and is_selected else verb
        self.asked_by[request.getClientAddress().host, way, what] += 1
        fault = self.fault
        if fault is not None and agent != "admin" and (verb == "watch" or not fault.only_watches):
            body = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":"%s","message":"no"}'
            if fault.retry_after:
                request.setHeader("Retry-After", fault.retry_after)
            send(request, fault.code, body % (fault.code, fault.reason.encode()))
            return NOT_DONE_YET
        return self._behind.render(request)

    def writes(self, agent: str = "liqod") -> Counter[tuple[str, str]]:
        """Return how often what was written, by verb and plural (with subresource)."""
        found: Counter[tuple[str, str]] = Counter()
        for (who, verb, what), count in self.requests.items():
            if who.startswith(agent) and verb in _WRITES.values():
                found[verb, what] += count
        return found


def asked(request: Request) -> tuple[str, str]:
    """Return verb and plural (with subresource) of a request, or its path where that is none of a resource."""
    parts = [part for part in request.path.decode().split("/") if part]
    rest = parts[2:] if parts[:1] == ["api"] else parts[3:] if parts[:1] == ["apis"] else []
    if not rest:
        return "get", request.path.decode()
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    what = f"{rest[0]}/{rest[2]}" if len(rest) > 2 else rest[0]
    verb = _WRITES.get(request.method)
    if verb is None:
        watching = request.args.get(b"watch", [b""])[0] in (b"true", b"1")
        verb = "watch" if watching else "get" if len(rest) > 1 else "list"
    return verb, what


class Quiet(Site):
    """A site without an access log."""

    def log(self, request: object) -> None: ...


class Side:
    """A cluster called ``name``; ``number`` gives its machines their addresses, and its ID its place in the order.

    The API server, its controllers and nodes are one process, the daemon another on a machine of its own, which may be
    killed and started again. ``peers`` are the numbers of sides that its settings name.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        number: int,
        *,
        nodes: tuple[SandboxNode, ...],
        peers: tuple[int, ...] = (),
        change: Callable[[Settings], Settings] = lambda settings: settings,
    ) -> None:
        self.network = network
        self.name = name
        self.id = f"cluster-{number}"
        self.api_address = f"10.0.{number}.1"
        self.address = daemon_address(number)
        self.settings = change(
            Settings(
                cluster=schema.ClusterSettings(id=self.id, name=name),
                discovery=schema.DiscoverySettings(
                    mdns=False, peers=[schema.PeerSettings(f"{daemon_address(peer)}:{PEER_PORT}") for peer in peers]
                ),
                kubernetes=schema.KubernetesSettings(api_server_url=f"https://{self.api_address}:{API_PORT}"),
                peering=schema.PeeringSettings(listen=f"tcp:{PEER_PORT}", advertise_addresses=[self.address]),
                kubelet=schema.KubeletSettings(listen="", node_address=self.address),
                webhook=schema.WebhookSettings(listen="tcp:5873"),
                metrics=schema.MetricsSettings(listen=""),
                network=schema.NetworkSettings(mode="none", service_cidrs=["10.96.0.0/16"]),
                # There is no UDP here, and no DNS.
                names=schema.NamesSettings(enabled=False),
            )
        )
        self.api = Process(network, self.api_address, f"{name}-api")
        self.cluster = SandboxCluster(
            self.api,
            name,
            nodes,
            epoch=network.world.now,
            wall=lambda: self.api.wall().timestamp(),
            random=Random(number),
        )
        self.cluster.add_user("admin", ADMIN)
        self.cluster.url = f"http://{self.api_address}:{PLAIN_PORT}"
        self.door = Door(self.cluster.server)
        self._site = Quiet(self.door, reactor=self.api)
        self._site.displayTracebacks = False
        self._secure = TLSMemoryBIOFactory(serving(self.cluster, self.api_address), False, self._site, self.api)
        self._listening: list[Port] = []
        self.start_api()
        self.cluster.startService()
        # TLS costs computing time; so it is used only where the product insists on it, between clusters.
        self.config = ClientConfig(self.cluster.url, self.cluster.authority.pem, None, None, token=lambda: "admin")
        self.desk = Process(network, f"10.0.{number}.3", f"{name}-admin")
        self.client = Client(self.config, self.desk, user_agent="admin")
        self.starts = 0
        self.process: Process | None = None
        self.agent: Agent | None = None
        self.ended: list[Agent] = []

    # The daemon.

    def start(self) -> None:
        """Start the daemon."""
        self.process, self.agent = self._started(self.address)

    def join(self, address: str) -> tuple[Process, Agent]:
        """Start a second daemon, on a machine with an address: one that stands by."""
        process, agent = self._started(address)
        # As those of a daemon that was killed, its coroutines must not be collected.
        self.ended.append(agent)
        return process, agent

    def _started(self, address: str) -> tuple[Process, Agent]:
        self.starts += 1
        process = Process(self.network, address, f"{self.name}-{self.starts}")
        process.skew = self.api.skew
        identity = schema.LeaderSettings(identity=f"{self.name}-{self.starts}")
        settings = msgspec.structs.replace(self.settings, leader=identity)
        # It has no UDP, threads or programs; in mode "none" the daemon uses none of them.
        reactor = cast(Reactor, process)
        agent = Agent(reactor, settings, client_config=self.config, hostname=self.name, wall=process.wall)
        agent.startService()
        return process, agent

    def kill(self, *, power: bool = False) -> None:
        """End the daemon in the middle of what it does; with its machine if that loses ``power``."""
        if self.process is not None and self.agent is not None:
            self.process.kill(power=power)
            # Coroutines that are collected run what they have in ``finally``: those of a killed daemon must not.
            self.ended.append(self.agent)
        self.process = self.agent = None

    @property
    def daemon(self) -> Agent:
        """The running daemon."""
        assert self.agent is not None
        return self.agent

    # The API server.

    def stop_api(self) -> None:
        """Take the API server from the network: nobody reaches it, all connections are closed."""
        for port in self._listening:
            port.stopListening()
        for end in list(self.api.ends):
            end.abortConnection()

    def start_api(self) -> None:
        """Let the API server be reached again."""
        self._listening = [self.api.listenTCP(API_PORT, self._secure), self.api.listenTCP(PLAIN_PORT, self._site)]

    # What the administrator sees.

    def object(self, resource: GroupResource, name: str, namespace: str = "") -> Json | None:
        """Return an object as it is stored, or None."""
        return self.cluster.object(resource, name, namespace)

    def objects(self, resource: GroupResource, namespace: str = "") -> list[Json]:
        """Return all objects of a kind."""
        return [stored.object for stored in self.cluster.store.items(resource, namespace)]


def serving(cluster: SandboxCluster, address: str) -> Any:
    """Return what makes the server's side of TLS for a cluster's API server."""
    leaf = cluster.authority.serving("kube-apiserver", [address])
    certificate = ssl.PrivateCertificate.loadPEM(leaf.key_pem + leaf.certificate_pem)
    return ssl.CertificateOptions(privateKey=certificate.privateKey.original, certificate=certificate.original)


def daemon_address(number: int) -> str:
    """Return the address of the machine that a side's daemon runs on."""
    return f"10.0.{number}.2"
