"""Keeps the record of this cluster's facts up to date: by its nodes as they change, by other objects now and then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

from liqod.config.schema import Settings
from liqod.facts.decide import decide
from liqod.facts.node_address import node_address_type
from liqod.facts.observed import ARGUMENTS, CIDRS, ObservedCluster
from liqod.facts.reading import read_places, read_server_names, read_service_ranges
from liqod.facts.software import FLANNEL_BACKEND, real_nodes
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always, watch
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists
from liqod.kube.resources import CLUSTERFACTS, NODES
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.refusals import RefusedWrites
from liqod.kube.writing.status_writer import StatusWriter, Written
from liqod.model.ids import Key
from liqod.model.objects.node import Node
from liqod.model.records.facts import FACTS_NAME, ClusterFacts, ClusterFactsStatus, values_of

REREAD: Final = 600.0
"""Seconds after which the objects of distributions and plugins are read again: they change when somebody works on the
cluster, and a watch of each would cost more than it tells."""
_KEY: Final = Key("", FACTS_NAME)


class FactsController(Controller[Key]):
    """Finds the facts of this cluster and writes them to its ClusterFacts."""

    name = "facts"

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        informers: Informers,
        settings: Settings,
        *,
        host: str,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._settings = settings
        self._host = host
        self._nodes: Informer[Node] = informers.of(NODES, Node)
        self._records = MutationCache(informers.of(CLUSTERFACTS, ClusterFacts), clock)
        self._status = StatusWriter(client, CLUSTERFACTS, ClusterFacts, self._records)
        self._refusals: RefusedWrites[Key] = RefusedWrites()
        self.node_address_type: Latest[str] = Latest("")
        """The type under which virtual nodes show their address; empty while nothing is known of the cluster yet."""
        self._seen: ObservedCluster | None = None
        self._seen_at = 0.0
        self._ranges: Sequence[str] | None = None

    def values(self, name: str) -> list[str]:
        """Return the values of a fact; none while it is not known."""
        return values_of(self._records.get(_KEY), name)

    def sources(self) -> Iterable[Source[Key]]:
        """Return what facts are concluded from and the record itself."""
        yield watch(self._nodes, _when_decisive)
        yield watch(self._records.informer, lambda key, old, new: (_KEY,))
        yield always(_KEY)

    async def reconcile(self, key: Key) -> After | None:
        """Find the facts, and write them where they changed."""
        record = self._records.get(_KEY)
        if record is None:
            record = await self._create()
            if record is None:
                return None  # another daemon made it: the watch shows it
        seen = await self._observe()
        facts = decide(seen, self._settings, record.status.facts)
        self.node_address_type.set(node_address_type(facts, self._settings))
        result = await self._status.write(record, ClusterFactsStatus(facts=facts))
        if isinstance(result, Written):
            self._refusals.forget(_KEY)
            return After(REREAD)
        self._log.warn("the facts of this cluster cannot be written: {error}", error=result.message)
        wait = self._refusals.refused(_KEY, result)
        return After(REREAD if wait is None else wait)

    async def _observe(self) -> ObservedCluster:
        """Return what is seen now; what is not watched is read again when that is due."""
        now = self.clock.seconds()
        seen = self._seen
        if seen is None or now - self._seen_at >= REREAD:
            objects = await read_places(self._client)
            if objects.get(CIDRS, {}) is None and self._ranges is None:
                # A flag of the API server: it changes with a restart of that, and hardly ever then.
                self._ranges = await read_service_ranges(self._client, self._settings.kubernetes.namespace)
            seen = self._seen = ObservedCluster(
                objects=objects,
                service_ranges=self._ranges or (),
                version=await self._client.version.ask(),
                server=self._client.config.server,
                server_names=await read_server_names(self._client),
                host=self._host,
            )
            self._seen_at = now
        return attrs.evolve(seen, nodes=real_nodes(self._nodes.items()))

    async def _create(self) -> ClusterFacts | None:
        body = {
            "apiVersion": CLUSTERFACTS.api_version,
            "kind": CLUSTERFACTS.kind,
            "metadata": {"name": FACTS_NAME},
        }
        try:
            made = await self._client.create(CLUSTERFACTS, body, view=ClusterFacts)
        except AlreadyExists:
            return None
        self._records.wrote(_KEY, None, made)
        return made


def _when_decisive(_: Key, old: Node | None, new: Node | None) -> tuple[Key, ...]:
    return (_KEY,) if _decisive(old) != _decisive(new) else ()


def _decisive(node: Node | None) -> object:
    """Return the parts of a node that facts are concluded from."""
    if node is None or node.virtual:
        return None
    shown = {key: node.metadata.annotations.get(key) for key in (FLANNEL_BACKEND, *ARGUMENTS)}
    return node.spec.pod_cidrs, node.spec.provider_id, node.status.node_info, node.metadata.labels, shown
