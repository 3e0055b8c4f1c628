"""What the virtual kubelets of a leader read, watched by a daemon that stands by, which answers for them from it.

It writes nothing and has no sessions. The caches are made as the leader's are, so that those begin with what these hold
when this daemon leads (``kube.connection.kept_caches``). A lender that the leader reaches over the relay, which belongs
to its session, is not watched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from attrs import frozen
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor
from liqod.flow.tasks import Tasks, stopped
from liqod.flow.timer import Timer
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kubelet.api.nodes import NodeAccess, PodRoute, is_there
from liqod.kubelet.api.service import NodeAPI
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.informers import NamespacedInformers
from liqod.kubelet.common.views import HomePod, Namespace
from liqod.kubelet.lender.access import LenderAccess
from liqod.kubelet.namespaces.plan import READY
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.ports import HomeRecords
from liqod.kubelet.reflection.kinds import reflected_kinds
from liqod.kubelet.reflection.namespace_pair import NamespacePair
from liqod.kubelet.tokens.controller import token_secrets
from liqod.kubelet.virtual_kubelet import has_tokens, pods_on
from liqod.model.ids import ClusterID, Key
from liqod.model.records.views import VirtualNode

SETTLE: Final = 0.1
"""Seconds for which changes of records are gathered before they are followed."""
RELAY: Final = "relay"
"""How a VirtualNode says that its lender is reached over the relay."""


class NoRelays:
    """Null object: without sessions no lender has a relay."""

    def relay_of(self, peer: ClusterID) -> None:
        """Return None."""


@frozen(kw_only=True)
class _Shared:
    """What the caches of all lenders share."""

    reactor: Reactor
    home: Client
    informers: NamespacedInformers
    settings: Settings
    cluster_id: ClusterID


class _NamespaceCaches(MultiService):
    """The caches of one offloaded namespace, at home and at a lender."""

    def __init__(self, shared: _Shared, context: Context, local: str, remote: RemoteNamespace) -> None:
        super().__init__()
        self.remote = remote
        remote.setServiceParent(self)
        settings = shared.settings
        for kind in reflected_kinds(settings.reflection, storage=settings.storage.enabled):
            if kind.may_be_absent:
                continue  # Where there is none its list would be asked for again and again; there are few of them.
            NamespacePair(
                shared.reactor,
                kind,
                context,
                informers=shared.informers,
                local=local,
                remote=remote,
                changed=_ignore,
                deleted=_ignore,
            ).setServiceParent(self)
        if has_tokens(settings):
            token_secrets(shared.reactor, remote, context).setServiceParent(self)


def _ignore(_: object) -> None:
    """Do nothing about a change."""


class _LenderCaches(MultiService):
    """The caches of one lender, in the namespaces that it granted."""

    def __init__(self, shared: _Shared, lender: ClusterID) -> None:
        super().__init__()
        self._shared = shared
        # Of the context nothing else counts here: objects at the lender are selected by the two clusters.
        self._context = Context(home=shared.cluster_id, lender=lender, node_name="")
        self._granted: Mapping[str, str] = {}
        self._watched: dict[str, _NamespaceCaches] = {}
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        setting = shared.settings.peering.api
        self.access = LenderAccess(shared.reactor, shared.home, lender, setting=setting, relays=NoRelays())
        self.access.setServiceParent(self)
        self.access.client.subscribe(lambda _: self.follow(self._granted))

    def remote(self, local: str) -> RemoteNamespace | None:
        """Return the remote namespace of a local one; None while it is not watched."""
        known = self._watched.get(local)
        return None if known is None else known.remote

    def follow(self, granted: Mapping[str, str]) -> None:
        """Watch these namespaces, local to remote, through the client of now, and no others."""
        self._granted = granted
        client = self.access.client.value
        for local, known in list(self._watched.items()):
            if known.remote.client is not client or known.remote.namespace != granted.get(local):
                del self._watched[local]
                self._tasks.spawn(stopped(known), f"closing the watches of {known.remote.namespace}")
        if client is None:
            return
        for local, name in granted.items():
            if local not in self._watched:
                remote = RemoteNamespace(self._shared.reactor, client, name, self._context)
                caches = self._watched[local] = _NamespaceCaches(self._shared, self._context, local, remote)
                caches.setServiceParent(self)

    def stopService(self) -> Deferred[Any]:
        return maybeDeferred(super().stopService).addBoth(self._close)

    def _close(self, result: Any) -> Any:
        return Deferred.fromCoroutine(self.access.close()).addBoth(lambda _: result)


class StandbyKubelets(MultiService):
    """The caches of all virtual nodes, and their API (``api.nodes.Nodes``) as far as these caches lead.

    ``address`` is that of the nodes on this host.
    """

    def __init__(
        self,
        *,
        reactor: Reactor,
        home: Client,
        informers: Informers,
        settings: Settings,
        cluster_id: ClusterID,
        address: str,
    ) -> None:
        super().__init__()
        self._records = HomeRecords.watched_by(informers)
        self._shared = _Shared(
            reactor=reactor,
            home=home,
            informers=NamespacedInformers(informers),
            settings=settings,
            cluster_id=cluster_id,
        )
        self._pods: dict[str, Informer[HomePod]] = {}
        self._lenders: dict[ClusterID, _LenderCaches] = {}
        self._lender_of: dict[str, ClusterID] = {}
        self._ports: dict[Key, int] = {}
        self._due = Timer(reactor)
        self._unsubscribe: list[Callable[[], None]] = []
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        self.api: NodeAPI | None = None
        kubelet = settings.kubelet
        if kubelet.listen:
            self.api = NodeAPI(
                reactor,
                home,
                self,
                settings=settings,
                address=kubelet.node_address or address,
                stands_by=True,
            )
            self.api.setServiceParent(self)

    @property
    def enabled(self) -> Informer[Namespace]:
        """The namespaces with the label liqo.io/enabled=true."""
        return self._records.enabled

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._records.virtual_nodes.subscribe(self._changed),
            self._records.tables.subscribe(self._changed),
        ]

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._due.cancel()
        return maybeDeferred(super().stopService)

    # Following the records

    def _changed(self, key: Key, old: object, new: object) -> None:
        self._due.start_unless_running(SETTLE, self._follow)

    def _follow(self) -> None:
        # Of several records for one node the one that is served counts.
        records = sorted(self._records.virtual_nodes.items(), key=lambda record: bool(record.status.kubelet_port))
        self._lender_of = {record.spec.node_name: ClusterID(record.spec.cluster_id) for record in records}
        self._follow_pods(set(self._lender_of))
        self._follow_lenders({ClusterID(one.spec.cluster_id) for one in records if one.status.api != RELAY})
        self._follow_ports(records)

    def _follow_pods(self, nodes: set[str]) -> None:
        for node in self._pods.keys() - nodes:
            self._tasks.spawn(stopped(self._pods.pop(node)), f"closing the watch of the pods on {node}")
        for node in nodes - self._pods.keys():
            pods = self._pods[node] = pods_on(self._shared.home, self._shared.reactor, node)
            pods.setServiceParent(self)

    def _follow_lenders(self, lenders: set[ClusterID]) -> None:
        for lender in self._lenders.keys() - lenders:
            self._tasks.spawn(stopped(self._lenders.pop(lender)), f"closing the watches of {lender}")
        for lender in lenders:
            caches = self._lenders.get(lender)
            if caches is None:
                caches = self._lenders[lender] = _LenderCaches(self._shared, lender)
                caches.setServiceParent(self)
            caches.follow(self._granted(lender))

    def _granted(self, lender: ClusterID) -> dict[str, str]:
        """Return the namespaces that a lender granted, local to remote."""
        table = self._records.tables.get(Key("", lender))
        if table is None:
            return {}
        granted = {local for local, status in table.status.mappings.items() if status.phase == READY}
        return {local: remote for local, remote in table.spec.natting_table.items() if local in granted}

    def _follow_ports(self, records: Collection[VirtualNode]) -> None:
        if self.api is None:
            return
        wanted = {one.metadata.key: one for one in records if one.status.kubelet_port}
        for key, port in list(self._ports.items()):
            if key not in wanted or wanted[key].status.kubelet_port != port:
                del self._ports[key]
                self._tasks.spawn(self.api.ports.release(key), f"closing the port {port}")
        for key, one in wanted.items():
            if key not in self._ports:
                port = self._ports[key] = one.status.kubelet_port
                taken = {other.status.kubelet_port for other in records if other is not one}
                self.api.ports.acquire(key, one.spec.node_name, recorded=port, taken=taken)

    # What the API of virtual nodes is answered from

    def route(self, pod: Key) -> PodRoute | None:
        """Return the route to a pod; None if it is on none of our nodes."""
        for node, pods in self._pods.items():
            known = pods.get(pod)
            if known is not None:
                return self._route(node, known)
        return None

    def _route(self, node: str, pod: HomePod) -> PodRoute:
        lender, key, uid = self._lender_of[node], pod.metadata.key, pod.metadata.uid
        caches = self._lenders.get(lender)
        remote = None if caches is None else caches.remote(key.namespace)
        there = is_there(
            uid,
            None if remote is None else remote.pod(key.name),
            known=remote is not None and remote.synced and remote.live,
        )
        client = None if caches is None else caches.access.client.value
        return PodRoute(node, client, self._granted(lender).get(key.namespace, ""), uid, there=there)

    def pods(self, node: str = "") -> Iterator[HomePod]:
        """Return the pods on a node; empty: on all our nodes."""
        return (pod for name, pods in self._pods.items() if not node or name == node for pod in pods.items())

    def accesses(self) -> list[NodeAccess]:
        """Return the ways to the pods of all virtual nodes."""
        found = []
        for node in self._pods:
            lender = self._lender_of[node]
            caches = self._lenders.get(lender)
            client = None if caches is None else caches.access.client.value
            found.append(NodeAccess(node, client, self._granted(lender)))
        return found
