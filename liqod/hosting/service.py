"""The lender's side as one service: what peering asks for (``Lender``), and the pods of borrowers.

Everything it knows is in the API: namespaces say whose they are, ForeignClusters what is lent, pods what is used. A
restart begins by listing these; until then nothing is created, counted or deleted.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Mapping

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.backoff import Backoff
from liqod.flow.tasks import Tasks
from liqod.hosting.endpointslice_forge import LABELS, EndpointSlice
from liqod.hosting.endpointslices import ShadowSlices
from liqod.hosting.shadowpods.controller import ShadowPods
from liqod.hosting.shadowpods.status import Recorder
from liqod.hosting.tenants import authorizer
from liqod.hosting.tenants.access import Access, ApiAccess
from liqod.hosting.tenants.namespaces import Namespaces, selector
from liqod.hosting.views import Pod
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import KubeError
from liqod.kube.resources import ENDPOINTSLICES, FOREIGNCLUSTERS, NAMESPACES, PODS, SHADOWENDPOINTSLICES, SHADOWPODS
from liqod.model.ids import ClusterID, Key, parse_cluster_id
from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD
from liqod.model.objects import quantity
from liqod.model.objects.api_request import Ask
from liqod.model.objects.meta import Object, label_selector
from liqod.model.objects.quantity import Resources
from liqod.model.records.offer import AccessGrant, Refusal
from liqod.model.records.views import ForeignCluster, ShadowEndpointSlice, ShadowPod


def _same_address(tenant: str, address: str) -> str:
    """Return an address as it is: the mapping while no network fabric translates addresses."""
    return address


class Hosting(MultiService):
    """Tenants of this cluster: their access, their namespaces, their pods, their use of what was lent.

    ``access`` is what borrowers are told about this cluster's API server. ``map_address(tenant, address)`` is where an
    endpoint of a borrower is reached from here (empty: not known yet). Implements ``Lender``.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: IReactorTime,
        settings: Settings,
        cluster_id: ClusterID,
        access: ApiAccess,
        recorder: Recorder,
        *,
        random: Callable[[], float] = _random.random,
        map_address: Callable[[str, str], str] = _same_address,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._cluster_id = cluster_id
        self._random = random
        self._foreign = informers.of(FOREIGNCLUSTERS, ForeignCluster)
        watched = informers.of(NAMESPACES, Object, labels=selector())
        shadows = informers.of(SHADOWPODS, ShadowPod)
        pods = informers.of(PODS, Pod, labels=f"{MANAGED_BY_LABEL}={MANAGED_BY_SHADOWPOD}")
        shadow_slices = informers.of(SHADOWENDPOINTSLICES, ShadowEndpointSlice)
        slices = informers.of(ENDPOINTSLICES, EndpointSlice, labels=label_selector(LABELS))
        self._synced = (self._foreign, watched, shadows, pods)
        self._slices_synced = (watched, shadow_slices, slices)
        self._offers: dict[str, Resources] = {}
        self._namespaces = Namespaces(client, watched, settings.hosting.pod_security, settings.hosting.namespace_names)
        self._access = Access(client, self._namespaces, access, settings.hosting.token_lifetime)
        self._pods = ShadowPods(
            client,
            clock,
            shadows,
            pods,
            self._namespaces,
            self._offers.get,
            recorder,
            settings.hosting.workers,
            random,
        )
        self._pods.setServiceParent(self)
        self.slices = ShadowSlices(
            client,
            clock,
            shadow_slices,
            slices,
            self._namespaces,
            recorder,
            settings.hosting.workers,
            map_address,
        )
        self.slices.setServiceParent(self)
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        self._unsubscribe = self._foreign.subscribe(self._foreign_changed)

    def startService(self) -> None:
        super().startService()
        self._tasks.spawn(self._prepare(), "making the role of borrowers")
        self._tasks.spawn(self._begin(), "starting to host")
        self._tasks.spawn(self._begin_slices(), "starting to host endpoint slices")

    def stopService(self) -> Deferred[None]:
        self._unsubscribe()
        self._namespaces.close()
        stopped: Deferred[None] = super().stopService()
        return stopped

    async def admit(self, peer: ClusterID, offered: Mapping[str, str]) -> AccessGrant:
        """Give a borrower that accepted our offer its access; called again to renew the token.

        What counts as lent is ``status.lent`` of its ForeignCluster; ``offered`` fills in until the watch shows that.
        Raises Refusal and KubeError.
        """
        self._check(peer)
        grant = await self._access.admit(peer)
        if peer not in self._offers:
            self._lend(peer, _readable(offered))
        return grant

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> str:
        """Grant a namespace to a borrower; returns its name. Raises Refusal and KubeError."""
        self._check(peer)
        await self._access.ensure_role()
        return await self._namespaces.grant(peer, local, remote)

    async def release_namespace(self, peer: ClusterID, remote: str) -> None:
        """Delete a granted namespace with all that is in it. Raises Refusal and KubeError."""
        self._check(peer)
        await self._namespaces.release(peer, remote)

    async def dismiss(self, peer: ClusterID) -> None:
        """End a borrower's access, then remove everything it has here. Raises Refusal and KubeError."""
        self._check(peer)
        await self._access.dismiss(peer)

    def permits(self, peer: ClusterID, ask: Ask) -> bool:
        """Tell whether a borrower may ask this of the API server, as far as is known; the API server judges again."""
        return authorizer.permits(peer, ask, self._namespaces.known_tenant(ask.namespace) or "")

    def account_of(self, peer: ClusterID) -> str:
        """Return the user that a borrower is to the API server."""
        return authorizer.user_of(peer)

    def used_by(self, peer: ClusterID) -> Resources:
        """Return what the unfinished pods of a borrower ask for (``pods`` is their number), as far as is known."""
        return dict(self._pods.ledger.used(peer))

    def _check(self, peer: str) -> None:
        try:
            parse_cluster_id(peer)
        except ValueError as error:
            raise Refusal("InvalidClusterID", str(error)) from None
        if peer == self._cluster_id:
            raise Refusal("InvalidClusterID", f"{peer} is the ID of this cluster itself; it lends nothing to itself")

    async def _prepare(self) -> None:
        backoff, attempt = Backoff(random=self._random), 0
        while True:
            try:
                return await self._access.ensure_role()
            except KubeError as error:
                if attempt == 0:
                    self._log.warn("cannot make the role of borrowers yet: {error}", error=str(error))
                await _pause(self._clock, backoff.delay(attempt))
                attempt += 1

    async def _begin(self) -> None:
        await gatherResults([informer.when_synced() for informer in self._synced], consumeErrors=True)
        self._pods.begin()

    async def _begin_slices(self) -> None:
        await gatherResults([informer.when_synced() for informer in self._slices_synced], consumeErrors=True)
        self.slices.begin()

    def _foreign_changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> None:
        lent = None if new is None else new.status.lent
        if new is None or (lent is None and old is not None and old.status.lent is not None):
            self._offers.pop(key.name, None)
        elif lent is not None and (old is None or old.status.lent != lent):
            self._lend(key.name, _readable(lent.resources))

    def _lend(self, peer: str, resources: Resources) -> None:
        if not resources:
            self._offers.pop(peer, None)
        elif self._offers.get(peer) != resources:
            self._offers[peer] = resources
            self._pods.room(peer)


def _readable(resources: Mapping[str, str]) -> Resources:
    """Return the quantities that can be read and are not negative; what cannot be read is not lent."""
    found = {}
    for name, text in resources.items():
        try:
            value = quantity.parse(text)
        except ValueError:
            continue
        if value >= 0:
            found[name] = value
    return found


def _pause(clock: IReactorTime, seconds: float) -> Deferred[None]:
    waiting: Deferred[None] = Deferred(lambda _: call.cancel())
    call = clock.callLater(seconds, waiting.callback, None)
    return waiting
