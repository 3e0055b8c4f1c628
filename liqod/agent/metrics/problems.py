"""Metrics of what is wrong: the diagnosis that ``liqodctl status`` shows, from what the leading daemon holds."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import attrs

from liqod.agent.metrics.source import MetricsSource, leading
from liqod.agent.wiring import Features
from liqod.kube.cache.informer import Informer
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NAMESPACEOFFLOADINGS,
    NATTINGTABLES,
    NETWORKCONFIGS,
    NODES,
    TUNNELENDPOINTS,
    VIRTUALNODES,
)
from liqod.metrics.registry import Registry, Samples
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts
from liqod.model.diagnosis.codes import shown_code
from liqod.model.diagnosis.examination import Evidence, examine
from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.node import Node
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
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
            unmet = [fact.otherwise for fact in features.requirements() if not fact.holds]
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
    networks: Informer[NetworkConfig] | None = None
    tunnels: Informer[TunnelEndpoint] | None = None
    if features.fabric is not None:
        # Without a network of ours there are no such records, and maybe no right to read them.
        networks = informers.of(NETWORKCONFIGS, NetworkConfig)
        tunnels = informers.of(TUNNELENDPOINTS, TunnelEndpoint)
    followed: list[Informer[Any] | None] = [peers, offers, virtual_nodes, nodes, tables, offloadings]
    followed += [networks, tunnels]
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
    )
