"""Metrics of what is wrong: the diagnosis that ``liqodctl status`` shows, as far as the leading daemon's caches go.

It reads nothing for it. Of other processes, of accounts, and of what only the API server can try it knows nothing;
docs/metrics.md says what is left out.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, Final

import attrs

from liqod.agent.metrics.source import MetricsSource, leading
from liqod.agent.wiring import Features
from liqod.flow.clocks import wall_clock
from liqod.kube.cache.informer import Informer
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    NATTINGTABLES,
    NETWORKCONFIGS,
    NETWORKGATEWAYS,
    NODES,
    TUNNELENDPOINTS,
    VIRTUALNODES,
)
from liqod.metrics.registry import Registry, Samples
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts
from liqod.model.diagnosis.codes import shown_code
from liqod.model.diagnosis.examination import Evidence, examine
from liqod.model.diagnosis.workloads import WaitingPod, full_tenants, pending_pod, waiting_pod
from liqod.model.names import REMOTE_CLUSTER_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node
from liqod.model.records.network import NetworkConfig, NetworkGateway, TunnelEndpoint
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode

SELF: Final = LeaderFacts(holder="this daemon", alive=True, age=0.0)


def register(registry: Registry, read: Problems) -> None:
    """Have a registry serve the number of problems."""
    registry.gauge(
        "liqod_problems",
        "What is wrong with this cluster's peerings, as `liqodctl status` says it, by code.",
        ("code", "severity"),
        read.problems,
    )


@attrs.frozen
class Problems:
    """Counts the problems of one cluster; who stands by knows none, and neither does who has not read all records."""

    _agent: MetricsSource

    def problems(self) -> Samples:
        """Return how many problems there are of which code; a code that nobody explains is ``Other``."""
        for features in leading(self._agent):
            records = _records_of(features)
            if records is None:
                continue
            unmet = [fact.otherwise for fact in features.requirements() if not fact.holds] + features.failures()
            found = examine(Evidence(records=records, unmet=unmet)).problems
            counts = Counter((shown_code(one.code), one.severity) for one in found)
            for labels, count in sorted(counts.items()):
                yield labels, float(count)


def _records_of(features: Features) -> ClusterRecords | None:
    """Return the records that this daemon holds; None while one kind was not read: unknown is not empty."""
    informers = features.informers
    peers = informers.of(FOREIGNCLUSTERS, ForeignCluster)
    offers = informers.of(ADVERTISEMENTS, Advertisement)
    virtual_nodes = informers.of(VIRTUALNODES, VirtualNode)
    nodes = informers.of(NODES, Node)
    tables = informers.of(NATTINGTABLES, NamespaceNattingTable)
    offloadings = informers.of(NAMESPACEOFFLOADINGS, NamespaceOffloading)
    # That of the controllers for tenants.
    hosted = informers.of(NAMESPACES, Object, labels=REMOTE_CLUSTER_LABEL)
    networks: Informer[NetworkConfig] | None = None
    tunnels: Informer[TunnelEndpoint] | None = None
    # Where the network agent is another process; the daemon has no right to read it otherwise.
    gateways: Informer[NetworkGateway] | None = None
    if features.fabric is not None:
        # Without a network of ours there are no such records, and maybe no right to read them.
        networks = informers.of(NETWORKCONFIGS, NetworkConfig)
        tunnels = informers.of(TUNNELENDPOINTS, TunnelEndpoint)
        gateways = informers.known(NETWORKGATEWAYS, NetworkGateway)
    followed: list[Informer[Any] | None] = [peers, offers, virtual_nodes, nodes, tables, offloadings, hosted]
    followed += [networks, tunnels, gateways]
    if not all(informer.synced for informer in followed if informer is not None):
        return None
    return ClusterRecords(
        leader=SELF,
        peers=peers.items(),
        offers=offers.items(),
        virtual_nodes=virtual_nodes.items(),
        nodes=[node for node in nodes.items() if node.metadata.labels.get(TYPE_LABEL) == VIRTUAL_NODE_TYPE],
        networks=[] if networks is None else networks.items(),
        tunnels=[] if tunnels is None else tunnels.items(),
        tables=tables.items(),
        offloadings=offloadings.items(),
        gateways=[] if gateways is None else gateways.items(),
        waiting=_waiting(features, wall_clock(informers.clock)()),
        tenants=full_tenants(hosted.items()),
    )


def _waiting(features: Features, now: datetime) -> list[WaitingPod]:
    """Return the pods on virtual nodes that do not run, as far as their virtual kubelets have read them."""
    found = []
    for kubelet in features.kubelets.all():
        for pod in kubelet.home_pods():
            pending = pending_pod(pod.metadata, kubelet.context.node_name, pod.status)
            waits = waiting_pod(pending, now) if pending is not None else None
            if waits is not None:
                found.append(waits)
    return found
