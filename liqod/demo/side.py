"""One side of the demonstration: a simulated cluster, its real daemon, and its administrator's client."""

from __future__ import annotations

import secrets

from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode
from twisted.internet.defer import maybeDeferred

from liqod.agent.service import Agent
from liqod.config import schema
from liqod.config.schema import Settings
from liqod.demo.access import client_config
from liqod.flow.clocks import Reactor
from liqod.identity.fingerprint_words import words
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import ADVERTISEMENTS, DEPLOYMENTS, FOREIGNCLUSTERS, NODES, PODS
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import Condition, Object, View, is_true
from liqod.model.records.views import Advertisement, ForeignCluster

HERE = "127.0.0.1"


class PodSpec(View, frozen=True):
    """Where a pod runs."""

    node_name: str = ""


class PodStatus(View, frozen=True):
    """The phase and conditions of a pod."""

    phase: str = ""
    conditions: list[Condition] = []


class Pod(Object, frozen=True):
    """A pod as the demonstration shows it."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_running(self) -> bool:
        """Return whether it is running and ready."""
        return self.status.phase == "Running" and is_true(self.status.conditions, "Ready")


class NodeStatus(View, frozen=True):
    """The resources and conditions of a node."""

    allocatable: dict[str, str] = {}
    conditions: list[Condition] = []


class Node(Object, frozen=True):
    """A node as the demonstration shows it."""

    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Return whether it is Ready and has CPU."""
        return is_true(self.status.conditions, "Ready") and bool(self.status.allocatable.get("cpu"))


def settings(name: str, cluster_id: str) -> Settings:
    """Return the settings of a daemon that listens on loopback only."""
    return Settings(
        cluster=schema.ClusterSettings(id=cluster_id, name=name),
        discovery=schema.DiscoverySettings(interfaces=[HERE]),
        peering=schema.PeeringSettings(listen=f"tcp:0:interface={HERE}", advertise_addresses=[HERE]),
        kubelet=schema.KubeletSettings(listen=f"tcp:0:interface={HERE}", node_address=HERE),
        webhook=schema.WebhookSettings(listen=f"tcp:0:interface={HERE}"),
        metrics=schema.MetricsSettings(listen=""),
        # Both daemons have the same address, and no pod of the demonstration asks for names.
        names=schema.NamesSettings(enabled=False),
        # The pods of the demonstration have no network, and this host's is left alone.
        network=schema.NetworkSettings(mode="none", service_cidrs=["10.96.0.0/16"]),
    )


class DemoCluster:
    """A cluster with its daemon; ``client`` and the caches are its administrator's, not the daemon's."""

    def __init__(self, reactor: Reactor, name: str, nodes: tuple[SandboxNode, ...]) -> None:
        self.name = name
        # A unique ID: mDNS on the loopback interface reaches every demonstration on this host.
        self.cluster_id = ClusterID(f"{name}-{secrets.token_hex(2)}")
        self.settings = settings(name, self.cluster_id)
        self.cluster = SandboxCluster(reactor, name, nodes)
        self.cluster.listen(reactor)
        self.agent = Agent(reactor, self.settings, client_config=client_config(self.cluster), hostname=name)
        self.client = Client(client_config(self.cluster), reactor, user_agent="demo")
        self.caches = Informers(self.client, reactor)
        self.pods = self.caches.of(PODS, Pod)
        self.nodes = self.caches.of(NODES, Node)

    async def start(self) -> None:
        """Start the cluster and its daemon; returns when the daemon is ready."""
        self.cluster.startService()
        self.caches.startService()
        self.agent.startService()
        await self.agent.ready.wait()
        # The daemon installs the CRDs; before that the API server knows no such kinds.
        self.peers = self.caches.of(FOREIGNCLUSTERS, ForeignCluster)
        self.offers = self.caches.of(ADVERTISEMENTS, Advertisement)

    async def stop(self) -> None:
        """Stop both."""
        await self.agent.stopService()
        await maybeDeferred(self.caches.stopService)
        await self.client.close()
        await self.cluster.stop()

    @property
    def words(self) -> str:
        """Return the words of this side's own key, as its administrator would read them aloud."""
        return words(self.agent.home.keypair.fingerprint) if self.agent.home is not None else ""

    @property
    def address(self) -> str:
        """Return where this side's daemon listens."""
        features = self.agent.features
        return f"{HERE}:{features.peering.port}" if features is not None else ""

    def peer(self, other: DemoCluster) -> ForeignCluster | None:
        """Return what this side knows of the other."""
        return next((known for known in self.peers.items() if known.metadata.name == other.cluster_id), None)

    async def trust(self, other: DemoCluster) -> None:
        """Pin the key that the other side presented."""
        record = self.peer(other)
        seen = record.status.seen_fingerprint if record is not None else ""
        await self.client.patch(FOREIGNCLUSTERS, other.cluster_id, {"spec": {"fingerprint": seen}}, view=None)

    async def add_peer(self, other: DemoCluster) -> None:
        """Create the other side's ForeignCluster with its address."""
        body = {
            "metadata": {"name": other.cluster_id},
            "spec": {"clusterID": other.cluster_id, "endpoints": [{"address": other.address}]},
        }
        await self.client.create(FOREIGNCLUSTERS, body, view=None)

    async def scale(self, namespace: str, name: str, replicas: int) -> None:
        """Change the number of a deployment's replicas."""
        await self.client.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, namespace, view=None)
