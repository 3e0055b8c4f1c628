"""All reflection of one virtual kubelet: which kinds, which namespaces, and what they need to know of each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred

from liqod.config.schema import Reflection as Settings
from liqod.kube.cache.informer import Informer
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.ports import Recorder
from liqod.kubelet.reflection import policy
from liqod.kubelet.reflection.events import EventReflector
from liqod.kubelet.reflection.forge.claim import Volume, lender_of
from liqod.kubelet.reflection.forge.reflected import ForgeInputs
from liqod.kubelet.reflection.kinds import CLAIM, CONFIGMAP, ENDPOINTSLICE, INGRESS, KINDS, SECRET, SERVICE, Kind
from liqod.kubelet.reflection.reflector import Reflector
from liqod.kubelet.reflection.shared_informers import NamespacedInformers
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.ids import ClusterID, Key
from liqod.model.names import REMOTE_CLUSTER_LABEL, SERVICE_NAME_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.network import Claims


@frozen
class VolumeLocations:
    """Where data is: the volumes that tell, the storage classes that lenders offer, the best first, and whether claims
    of a class of home follow their pods.
    """

    volumes: Informer[Volume]
    offered: Callable[[str], list[str]]
    follows: Callable[[str], bool]

    def holds(self, volume: str, lender: ClusterID) -> bool:
        """Tell whether the data of a volume is at a lender."""
        known = self.volumes.get(Key("", volume))
        return known is not None and lender_of(known) == str(lender)

    def storage_class(self, lender: ClusterID) -> str:
        """Return the class for claims at a lender; empty: its default."""
        return next(iter(self.offered(str(lender))), "")


class Reflection(MultiService):
    """The reflectors of one virtual kubelet, by kind; a kind without workers has none.

    ``nodes`` are the virtual nodes of the home cluster, ``pods`` those on the virtual node.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        context: Context,
        informers: NamespacedInformers,
        nodes: Informer[Object],
        pods: Informer[HomePod],
        namespaces: NamespaceController,
        health: LenderHealth,
        recorder: Recorder,
        holdings: VolumeLocations | None = None,
        claimed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._holdings = holdings
        self._context = context
        self._nodes = nodes
        self._namespaces = namespaces
        self._listings: Mapping[Kind, policy.Listing] = {
            CONFIGMAP: settings.configmap.type,
            SECRET: settings.secret.type,
            SERVICE: settings.service.type,
            ENDPOINTSLICE: settings.service.type,
            INGRESS: settings.ingress.type,
            CLAIM: "DenyList",
        }
        self.reflectors: dict[Kind, Reflector] = {}
        for kind in KINDS:
            workers = getattr(settings, kind.setting).workers
            if workers and (kind is not CLAIM or holdings is not None):
                reflector = Reflector(
                    reactor,
                    kind,
                    context,
                    informers,
                    health,
                    recorder,
                    workers,
                    self._inputs_of(kind),
                    namespaces.request_again,
                    claimed,
                )
                self.reflectors[kind] = reflector
                reflector.setServiceParent(self)
        self.events: EventReflector | None = None
        if settings.event.workers:
            self.events = EventReflector(reactor, context, settings.event.type, pods, self.reflectors, recorder)
            self.events.setServiceParent(self)
        self._services: dict[str, Callable[[], None]] = {}
        self._families = context.families()
        self._unsubscribe: list[Callable[[], None]] = []

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._namespaces.subscribe(self._served),
            self._nodes.subscribe(self._node_changed),
        ]
        if self._holdings is not None and CLAIM in self.reflectors:
            self._unsubscribe.append(self._holdings.volumes.subscribe(self._volume_changed))

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in (*self._unsubscribe, *self._services.values()):
            unsubscribe()
        self._unsubscribe = []
        self._services.clear()
        return maybeDeferred(super().stopService)

    @property
    def troubles(self) -> dict[Key, str]:
        """The objects whose last turn failed, with the reason."""
        return {key: why for reflector in self.reflectors.values() for key, why in reflector.troubles.items()}

    def claims(self) -> Claims:
        """Return the single addresses that the lender's pods have to reach."""
        if not self._namespaces.known:
            return Claims()
        if ENDPOINTSLICE not in self.reflectors:
            return Claims(complete=True)
        return self.reflectors[ENDPOINTSLICE].claims(self._namespaces.mapped())

    def addresses_changed(self) -> None:
        """Have the slices looked at again, because addresses may be reached by others from the lender now.

        Services only where the lender has other IP versions than before.
        """
        families = self._context.families()
        if families != self._families and SERVICE in self.reflectors:
            self.reflectors[SERVICE].enqueue_all()
        self._families = families
        if ENDPOINTSLICE in self.reflectors:
            self.reflectors[ENDPOINTSLICE].enqueue_all()

    def _served(self, local: str, remote: RemoteNamespace | None) -> None:
        """A namespace is served by the lender from now on, or (None) no longer."""
        unsubscribe = self._services.pop(local, None)
        if unsubscribe is not None:
            unsubscribe()
        for reflector in self.reflectors.values():
            if remote is None:
                reflector.close_namespace(local)
            else:
                reflector.open_namespace(local, remote)
        if self.events is not None:
            if remote is None:
                self.events.close_namespace(local)
            else:
                self.events.open_namespace(local, remote)
        services = self._home_informer(SERVICE, local)
        if services is not None and ENDPOINTSLICE in self.reflectors:
            self._services[local] = services.subscribe(self._service_changed)

    def _home_informer(self, kind: Kind, local: str) -> Informer[Reflectable] | None:
        reflector = self.reflectors.get(kind)
        pair = reflector.pair(local) if reflector is not None else None
        return pair.home if pair is not None else None

    def _inputs_of(self, kind: Kind) -> Callable[[str], ForgeInputs]:
        def objection(annotations: Mapping[str, str]) -> str:
            return policy.objection(annotations, self._listings[kind])

        held = self._holdings
        volumes = None if held is None else held.volumes

        def inputs(local: str) -> ForgeInputs:
            services = self._home_informer(SERVICE, local)
            return ForgeInputs(
                context=self._context,
                objection=objection,
                service=lambda name: services.get(Key(local, name)) if services is not None else None,
                is_there=self._is_there,
                holds=lambda volume: held is not None and held.holds(volume, self._context.lender),
                storage_class=lambda: "" if held is None else held.storage_class(self._context.lender),
                complete=self._nodes.synced and all(c.synced for c in (services, volumes) if c is not None),
            )

        return inputs

    def _is_there(self, node: str) -> bool:
        """Tell whether a node of the home cluster stands for the lender: it knows the pods on it by itself."""
        if node == self._context.node_name:
            return True
        known = self._nodes.get(Key("", node))
        return known is not None and known.metadata.labels.get(REMOTE_CLUSTER_LABEL) == str(self._context.lender)

    def _service_changed(self, key: Key, old: Reflectable | None, new: Reflectable | None) -> None:
        """What a service is annotated with decides about its slices."""
        if old is not None and new is not None and old.metadata.annotations == new.metadata.annotations:
            return
        self.reflectors[ENDPOINTSLICE].enqueue_all(
            lambda thing: thing.metadata.labels.get(SERVICE_NAME_LABEL) == key.name, [key.namespace]
        )

    def _volume_changed(self, key: Key, old: Volume | None, new: Volume | None) -> None:
        if new is not None:
            claim = new.spec.claim_ref
            self.reflectors[CLAIM].enqueue(Key(claim.namespace, claim.name))

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        label = None if old is None else old.metadata.labels.get(REMOTE_CLUSTER_LABEL)
        now = None if new is None else new.metadata.labels.get(REMOTE_CLUSTER_LABEL)
        if label != now:
            self.addresses_changed()
