"""Runs the reflectors of one virtual kubelet and connects them: kinds, namespaces, and inputs from other caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

from attrs import evolve, frozen
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from liqod.config.schema import ReflectionSettings
from liqod.flow.controller import NO_METRICS, ReconcileMetrics
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.events import Recorder
from liqod.kube.resources import Resource
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.informers import NamespacedInformers
from liqod.kubelet.common.reflection_counts import ReflectionCounts
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.lender.served_kinds import ServedKinds
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.deletion_gate import DeletionGate
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.reflection.decide import CONTENTS
from liqod.kubelet.reflection.events import EventReflector
from liqod.kubelet.reflection.forge.claim import Volume, lender_of
from liqod.kubelet.reflection.forge.classes import Classes
from liqod.kubelet.reflection.forge.reflected import ForgeInputs
from liqod.kubelet.reflection.kinds import CLAIM, ENDPOINTSLICE, SERVICE, Kind, listing_of, reflected_kinds
from liqod.kubelet.reflection.lender_classes import LenderClasses
from liqod.kubelet.reflection.named import NamedContents
from liqod.kubelet.reflection.namespace_pair import FirstServices
from liqod.kubelet.reflection.reflector import Reflector
from liqod.kubelet.reflection.views import Reflectable
from liqod.kubelet.reflection.writer_election import WriterElection
from liqod.model.ids import ClusterID, Key
from liqod.model.names import REMOTE_CLUSTER_LABEL, SERVICE_NAME_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.network import ExportRequests

_CALLED: Final = (SERVICE, ENDPOINTSLICE)
"""What pods call."""


class Storage(Protocol):
    """The volumes of claims that follow their pods (``volume_provisioner``)."""

    volumes: Informer[Volume]

    def follows(self, name: str) -> bool:
        """Return whether claims of a storage class (empty: the default one) follow their pods."""
        ...


@frozen
class VolumeLocations:
    """The clusters that hold the data of claims."""

    storage: Storage

    @property
    def volumes(self) -> Informer[Volume]:
        """The volumes that name a lender."""
        return self.storage.volumes

    def follows(self, storage_class: str) -> bool:
        """Return whether claims of a storage class (empty: the default one) follow their pods."""
        return self.storage.follows(storage_class)

    def holds(self, volume: str, lender: ClusterID) -> bool:
        """Return whether the data of a volume is at a lender."""
        known = self.volumes.get(Key("", volume))
        return known is not None and lender_of(known) == str(lender)


@frozen
class Named:
    """What pods at a lender name, and the names of its virtual nodes now."""

    contents: NamedContents
    nodes: Callable[[], Iterable[str]]

    def names(self, kind: str, key: Key) -> bool | None:
        """Return whether a pod there names a config map or secret; None while that is not known."""
        return self.contents.names(kind, key, self.nodes())


class Reflection(MultiService):
    """The reflectors of one virtual kubelet, by kind; a kind without workers has none.

    Objects of a namespace are reflected by the elected one of the lender's virtual kubelets, events of pods by each
    for its own. ``nodes`` are the virtual nodes of the home cluster, ``pods`` those on the virtual node.
    ``export_requests_revision`` changes whenever the set of requested addresses changes. With ``named`` config maps and
    secrets go only if pods there name them. ``home`` is the client of the home cluster: kinds that not every API server
    has are reflected where both serve them.
    """

    def __init__(
        self,
        clock: IReactorTime,
        settings: ReflectionSettings,
        context: Context,
        *,
        informers: NamespacedInformers,
        election: WriterElection,
        nodes: Informer[Object],
        pods: Informer[HomePod],
        namespaces: NamespaceController,
        health: LenderHealth,
        gate: DeletionGate,
        recorder: Recorder,
        classes: LenderClasses,
        home: Client,
        locations: VolumeLocations | None = None,
        named: Named | None = None,
        counts: ReflectionCounts | None = None,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__()
        self.export_requests_revision: Latest[int] = Latest(0)
        self._locations = locations
        self._classes = classes
        self._named = named
        self._pods = pods
        self._context = context
        self._object_context = context
        self.labels_withheld: Latest[frozenset[str]] = Latest(context.labels_not_reflected)
        """The labels that objects at the lender do not have, or the pods of one of its virtual nodes."""
        self._election = election
        self._leave: dict[str, Callable[[], None]] = {}
        self._first = FirstServices(clock, context.settled)
        self._nodes = nodes
        self._namespaces = namespaces
        self._settings = settings
        self.reflectors: dict[Kind, Reflector] = {}
        for kind in reflected_kinds(settings, storage=locations is not None):
            reflector = self.reflectors[kind] = Reflector(
                clock,
                kind,
                context=context,
                surroundings=self,
                informers=informers,
                health=health,
                gate=gate,
                recorder=recorder,
                workers=getattr(settings, kind.setting).workers,
                counts=counts,
                metrics=metrics,
            )
            reflector.setServiceParent(self)
        optional = [kind.home for kind in self.reflectors if kind.may_be_absent]
        self._served = ServedKinds(clock, home, optional, health=health, lender=str(context.lender), metrics=metrics)
        self._served.setServiceParent(self)
        self.events: EventReflector | None = None
        if settings.event.workers:
            self.events = EventReflector(
                clock,
                context,
                settings.event.type,
                pods=pods,
                reflectors=self.reflectors,
                recorder=recorder,
            )
            self.events.setServiceParent(self)
        self._services: dict[str, Callable[[], None]] = {}
        self._families = context.network.families()
        self._unsubscribe: list[Callable[[], None]] = []

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._namespaces.subscribe(self._namespace_changed),
            self._nodes.subscribe(self._node_changed),
            self._context.network.translation.subscribe(lambda _: self._addresses_changed()),
            self._classes.subscribe(self._classes_changed),
            self._context.egress.subscribe(lambda _: self._egress_changed()),
        ]
        if self._named is not None:
            named = self._named.contents
            self._unsubscribe += [
                named.subscribe(self._named_changed),
                named.revision.subscribe(lambda _: self._contents_changed()),
                named.join(self._context.node_name, self._pods, self._context.egress),
            ]
        if self._locations is not None and CLAIM in self.reflectors:
            self._unsubscribe.append(self._locations.volumes.subscribe(self._volume_changed))

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in (*self._unsubscribe, *self._services.values()):
            unsubscribe()
        self._unsubscribe = []
        self._services.clear()
        self._first.close()
        stopping = maybeDeferred(super().stopService)
        leaves, self._leave = list(self._leave.values()), {}
        for leave in leaves:
            leave()
        return stopping

    def export_requests(self) -> dict[str, ExportRequests]:
        """Return the single addresses that the lender's pods must reach, by home namespace of the natting table."""
        namespaces = self._namespaces.mappings()
        if ENDPOINTSLICE not in self.reflectors:
            return dict.fromkeys(namespaces, ExportRequests(complete=True))
        return {local: self._export_requests_in(local) for local in namespaces}

    def _export_requests_in(self, local: str) -> ExportRequests:
        slices = self.reflectors[ENDPOINTSLICE]
        if slices.pair(local) is None and self._namespaces.is_name_refused(local):
            # It is not reflected, and without pods it is never asked for again.
            return ExportRequests(complete=True)
        return slices.export_requests([local])

    @property
    def table_synced(self) -> bool:
        """Whether ``export_requests`` has all namespaces."""
        return self._namespaces.table_synced

    def _addresses_changed(self) -> None:
        """Enqueue all slices, because the translation of addresses may have changed.

        The services too, if the IP families of the lender changed.
        """
        families = self._context.network.families()
        if families != self._families and SERVICE in self.reflectors:
            self.reflectors[SERVICE].enqueue_all()
        self._families = families
        if ENDPOINTSLICE in self.reflectors:
            self.reflectors[ENDPOINTSLICE].enqueue_all()

    def _namespace_changed(self, local: str, remote: RemoteNamespace | None) -> None:
        """Start reflecting a namespace, or stop it if ``remote`` is None."""
        self._close_objects(local)
        if remote is not None:
            take = partial(self._open_objects, local, remote)
            self._leave[local] = self._election.join(self._context.lender, local, take)
        if self.events is not None:
            if remote is None:
                self.events.close_namespace(local)
            else:
                self.events.open_namespace(local, remote)

    def _open_objects(self, local: str, remote: RemoteNamespace) -> None:
        self._first.await_in(local)
        for kind, reflector in self.reflectors.items():
            if not kind.may_be_absent:
                reflector.open_namespace(local, remote)
        self._served.follow(local, remote.client, remote.namespace, partial(self._open_kind, local, remote))
        services = self._home_informer(SERVICE, local)
        if services is not None and ENDPOINTSLICE in self.reflectors:
            self._services[local] = services.subscribe(self._service_changed)
        self.settled(local)

    def _open_kind(self, local: str, remote: RemoteNamespace, resource: Resource) -> None:
        """Start reflecting a kind in a namespace that both sides serve."""
        for kind, reflector in self.reflectors.items():
            if kind.home == resource:
                reflector.open_namespace(local, remote)

    def _close_objects(self, local: str) -> None:
        """Stop reflecting the objects of a namespace here, and let another virtual node of the lender go on."""
        unsubscribe = self._services.pop(local, None)
        if unsubscribe is not None:
            unsubscribe()
        self._first.forget(local)
        self._served.forget(local)
        for reflector in self.reflectors.values():
            reflector.close_namespace(local)
        leave = self._leave.pop(local, None)
        if leave is not None:
            leave()

    def withhold(self, labels: frozenset[str], annotations: frozenset[str]) -> None:
        """Leave these keys out of objects too: another virtual node of the lender does not reflect them.

        An object at the lender is there for the pods of all nodes, so it has what none of them withholds.
        """
        own = self._context
        context = evolve(
            own,
            labels_not_reflected=own.labels_not_reflected | labels,
            annotations_not_reflected=own.annotations_not_reflected | annotations,
        )
        if context != self._object_context:
            self._object_context = context
            for reflector in self.reflectors.values():
                reflector.enqueue_all()
            self.labels_withheld.set(context.labels_not_reflected)

    def _home_informer(self, kind: Kind, local: str) -> Informer[Reflectable] | None:
        reflector = self.reflectors.get(kind)
        pair = reflector.pair(local) if reflector is not None else None
        return pair.home if pair is not None else None

    # Interface for forging (``HomeObjects``)

    def service(self, key: Key) -> Reflectable | None:
        """Return a service of an open namespace; None if there is none."""
        services = self._home_informer(SERVICE, key.namespace)
        return None if services is None else services.get(key)

    def is_at_lender(self, node: str) -> bool:
        """Return whether a node of the home cluster is a virtual node of the lender."""
        if node == self._context.node_name:
            return True
        known = self._nodes.get(Key("", node))
        return known is not None and known.metadata.labels.get(REMOTE_CLUSTER_LABEL) == str(self._context.lender)

    def holds(self, volume: str) -> bool:
        """Return whether the lender holds the data of a volume."""
        return self._locations is not None and self._locations.holds(volume, self._context.lender)

    def storage_classes(self) -> Classes:
        """Return the storage classes for claims at the lender."""
        return self._classes.storage()

    def ingress_classes(self, namespace: str) -> Classes:
        """Return the classes for ingresses of a namespace at the lender."""
        return self._classes.ingress(namespace)

    def load_balancer_classes(self, namespace: str) -> Classes:
        """Return the classes for services of a namespace with a load balancer at the lender."""
        return self._classes.load_balancers(namespace)

    def gateways(self) -> tuple[str, ...] | None:
        """Return the gateways that the lender offers to routes; None while its offer is not known."""
        return self._classes.gateways()

    # Interface for the reflectors (``ReflectorContext``)

    def inputs(self, kind: Kind, local: str) -> ForgeInputs:
        """Return the inputs for forging objects of a kind in a namespace."""
        caches: list[Informer[Any] | None] = [self._nodes, self._home_informer(SERVICE, local)]
        if self._locations is not None:
            caches.append(self._locations.volumes)
        return ForgeInputs(
            context=self._object_context,
            listing=listing_of(kind, self._settings),
            home=self,
            complete=self._classes.synced and all(cache.synced for cache in caches if cache is not None),
            has_services=self._home_informer(SERVICE, local) is not None,
            named=None if self._named is None else self._named.names,
        )

    def namespace_missing(self, local: str) -> None:
        """Request a namespace again that the lender granted and no longer has."""
        self._namespaces.request_again(local)

    def settled(self, local: str) -> None:
        """Have the pods of a namespace wait no longer if all that they call is at the lender."""
        pairs = [self.reflectors[kind].pair(local) for kind in _CALLED if kind in self.reflectors]
        if all(pair is not None and pair.is_settled for pair in pairs):
            self._first.settle(local)

    def export_requests_changed(self) -> None:
        """Increase ``export_requests_revision``: the set of requested addresses changed."""
        self.export_requests_revision.set(self.export_requests_revision.value + 1)

    def _classes_changed(self, namespace: str) -> None:
        """Enqueue what has a class, in one namespace or, without its name, in all."""
        for kind, reflector in self.reflectors.items():
            if kind.class_field or kind.by_offer:
                reflector.enqueue_all(namespaces=[namespace] if namespace else ())

    def _service_changed(self, key: Key, old: Reflectable | None, new: Reflectable | None) -> None:
        """Enqueue the slices of a service whose annotations or labels changed, which apply to its slices too."""
        seen = [(one.metadata.annotations, one.metadata.labels) for one in (old, new) if one is not None]
        if len(seen) == 2 and seen[0] == seen[1]:
            return
        self.reflectors[ENDPOINTSLICE].enqueue_all(
            lambda thing: thing.metadata.labels.get(SERVICE_NAME_LABEL) == key.name, [key.namespace]
        )

    def _egress_changed(self) -> None:
        """Enqueue everything: other objects may leave home, or have to return."""
        for reflector in self.reflectors.values():
            reflector.enqueue_all()

    def _contents_changed(self) -> None:
        for kind in CONTENTS:
            if kind in self.reflectors:
                self.reflectors[kind].enqueue_all()

    def _named_changed(self, setting: str, key: Key) -> None:
        for kind in CONTENTS:
            if kind.setting == setting and kind in self.reflectors:
                self.reflectors[kind].enqueue(key)

    def _volume_changed(self, key: Key, old: Volume | None, new: Volume | None) -> None:
        if new is not None:
            claim = new.spec.claim_ref
            self.reflectors[CLAIM].enqueue(Key(claim.namespace, claim.name))

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        label = None if old is None else old.metadata.labels.get(REMOTE_CLUSTER_LABEL)
        now = None if new is None else new.metadata.labels.get(REMOTE_CLUSTER_LABEL)
        if label != now:
            self._addresses_changed()
