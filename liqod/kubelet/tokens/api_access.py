"""Gives each remote namespace a service that leads to the home API server (``api_service``), by tunnel or streams.

By streams it has no endpoints of ours: the lender leads it to its own daemon, which passes the bytes on to this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from twisted.application.service import MultiService
from twisted.internet.defer import DeferredList
from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.flow.observe import Latest
from liqod.flow.tasks import Tasks, stopped
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import AlreadyExists, ApiError, Invalid, Unreachable
from liqod.kube.resources import SERVICES, SHADOWENDPOINTSLICES, Resource
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import is_ours
from liqod.kubelet.common.readiness import Readiness, not_known
from liqod.kubelet.common.refusals import NAME_TAKEN_RETRY, Attempts, Meaning
from liqod.kubelet.common.write_limiter import WriteLimiter
from liqod.kubelet.lender.failed_writes import existing, failed_write
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.lender.home_api import HomeApi
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.tokens import api_service
from liqod.kubelet.tokens.api_service import NAME, ApiService, Reach
from liqod.model.ids import Key
from liqod.model.names import HOME_API_LABEL, REFLECTION_MANAGER
from liqod.model.objects.meta import Object, label_selector
from liqod.model.records.network import ExportRequests
from liqod.model.records.views import ShadowEndpointSlice

T = TypeVar("T", bound=Object)

PAUSE: Final = 0.5
"""Minimum seconds between two writes of one object."""
RELEASED_WITHIN: Final = 15.0
"""Seconds within which an API server releases the address of a deleted service, which happens after the deletion."""
LIST_DEADLINE: Final = 12.0
"""Seconds after which a namespace whose services cannot be listed goes without: its pods do not wait longer."""
_UNUSED: Final = not_known("no namespace is offloaded yet")


class _Watched(MultiService):
    """The service and its slice in one remote namespace."""

    def __init__(self, clock: IReactorTime, remote: RemoteNamespace, context: Context) -> None:
        super().__init__()
        self.remote = remote
        self.key = Key(remote.namespace, NAME)
        self.cluster_ip = ""
        """The address that pods call; kept when somebody deletes the service."""
        self.missing_since: float | None = None
        """Since when that address is refused (seconds of the reactor's clock)."""
        self.attempts = Attempts()
        self.postponed = False
        self.refused = ""
        """Why the lender refuses what pods of the namespace need; empty: it does not."""
        labels = label_selector(api_service.labels(context))
        services: Informer[ApiService] = Informer(
            remote.client, SERVICES, ApiService, clock, namespace=remote.namespace, labels=labels
        )
        slices: Informer[ShadowEndpointSlice] = Informer(
            remote.client, SHADOWENDPOINTSLICES, ShadowEndpointSlice, clock, namespace=remote.namespace, labels=labels
        )
        for informer in (services, slices):
            informer.setServiceParent(self)
        self.service_cache = MutationCache(services, clock)
        self.slice_cache = MutationCache(slices, clock)
        services.subscribe(_forgetting(self.service_cache))
        slices.subscribe(_forgetting(self.slice_cache))

    @property
    def synced(self) -> bool:
        return self.service_cache.informer.synced and self.slice_cache.informer.synced


def _forgetting(cache: MutationCache[T]) -> Callable[[Key, object, object], None]:
    """Return a subscriber that drops the pending write of an object that was deleted: it must be made again."""

    def changed(key: Key, old: object, new: object) -> None:
        if new is None:
            cache.forget(key)

    return changed


class HomeApiAccess(Controller[str]):
    """Reconciles the service and its slice in the remote namespace of each home namespace, by its local name.

    ``state``: whether pods at the lender reach the API server. ``exports`` changes with what must be exported for that.
    The addresses of the services are in ``context.services.api_addresses``. While there is neither nothing is made or
    watched: pods call the API server's own address. Whether there is one may be decided while this runs.
    """

    name = "home API services"

    def __init__(
        self,
        clock: IReactorTime,
        *,
        context: Context,
        home_api: HomeApi,
        namespaces: NamespaceController,
        health: LenderHealth,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, subject=f"at {context.lender}", metrics=metrics)
        self._streams = context.services.streams
        self._context = context
        self._has_way = self._is_led
        self.state: Latest[Readiness | None] = Latest(_UNUSED if self._has_way else self._without_tunnel())
        self.exports: Latest[ExportRequests] = Latest(ExportRequests())
        self._home_api = home_api
        self._namespaces = namespaces
        self._health = health
        self._remotes: dict[str, RemoteNamespace] = {}
        self._watched: dict[str, _Watched] = {}
        self._write_limiter = WriteLimiter(PAUSE)
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def sources(self) -> Iterable[Source[str]]:
        yield watch(self._home_api.slices, lambda key, old, new: self._way_changed())
        yield observe(self._context.network.translation, lambda _: self._way_changed())
        yield observe(self._streams, lambda _: self._way_changed())
        yield observe(self._health.state, lambda _: self._health_changed())

    def startService(self) -> None:
        super().startService()
        self._follow_way()
        self._unsubscribe.append(self._namespaces.subscribe(self._namespace_changed))

    def export_requests(self) -> ExportRequests:
        """Return the addresses of the home API server that the lender's pods must reach, as far as known."""
        if not (self._namespaces.table_synced and self._home_api.slices.synced):
            return ExportRequests()
        is_used = bool(self._namespaces.mappings())
        return ExportRequests(self._reach().exports if is_used else frozenset(), complete=True)

    @property
    def _is_led(self) -> bool:
        """Whether there is a tunnel, or may be one, or streams."""
        return self._context.network.is_managed or api_service.has_streams(self._streams.value)

    def _without_tunnel(self) -> Readiness:
        return api_service.readiness_of_streams(self._streams.value, {})

    def _reach(self) -> Reach:
        network = self._context.network
        return api_service.reach(self._home_api.own_server(), network) if network.is_managed else Reach()

    # What changed

    def _way_changed(self) -> Iterable[str]:
        self._follow_way()
        self._refresh()
        return list(self._watched)

    def _follow_way(self) -> None:
        """Watch all remote namespaces or none, by whether there is a tunnel, or may be one, or streams."""
        if self._is_led is self._has_way:
            return
        self._has_way = not self._has_way
        for local, remote in self._remotes.items():
            if self._has_way:
                self._watch(local, remote)
            else:
                self._unwatch(local)
        if self._has_way:
            self.state.set(_UNUSED)
        self._refresh()

    def _health_changed(self) -> Iterable[str]:
        if not self._health.ok:
            return
        self.retry_failed()
        for local, watched in self._watched.items():
            if watched.postponed:
                watched.postponed = False
                yield local

    def _namespace_changed(self, local: str, remote: RemoteNamespace | None) -> None:
        self._remotes.pop(local, None)
        self._unwatch(local)
        if remote is not None:
            self._remotes[local] = remote
            if self._has_way:
                self._watch(local, remote)
        self._refresh()

    def _unwatch(self, local: str) -> None:
        before = self._watched.get(local)
        if before is not None:
            self._note_address(local, before, None)
            del self._watched[local]
            self._tasks.spawn(stopped(before), f"closing the watches of the home API service for {local}")

    def _watch(self, local: str, remote: RemoteNamespace) -> None:
        watched = self._watched[local] = _Watched(self.clock, remote, self._context)

        def changed(key: Key, old: object, new: object) -> None:
            if watched.synced:
                self.enqueue(local)

        caches = (watched.service_cache, watched.slice_cache)
        for cache in caches:
            cache.informer.subscribe(changed)
        watched.setServiceParent(self)
        synced = DeferredList([cache.informer.when_synced() for cache in caches])
        synced.addCallback(lambda _: self.enqueue(local))
        self.enqueue(local, LIST_DEADLINE)

    def _note_address(self, local: str, watched: _Watched, address: str | None) -> None:
        """Note the address of a namespace's service; empty: it has none; None: that is not known."""
        # The namespace may have been left while the lender was asked.
        if self._watched.get(local) is not watched:
            return
        services = self._context.services
        known = {name: each for name, each in services.api_addresses.value.items() if name != local}
        services.api_addresses.set(known if address is None else {**known, local: address})

    def _note_refusal(self, watched: _Watched, why: str) -> None:
        watched.refused = why
        self._refresh()

    def _refresh(self) -> None:
        self.exports.set(self.export_requests())
        if not self._context.network.is_managed and not self._watched:
            self.state.set(self._without_tunnel())
        elif self._watched and self._home_api.slices.synced:
            refused = {local: watched.refused for local, watched in self._watched.items() if watched.refused}
            by_tunnel = api_service.readiness(self._home_api.own_server(), self._reach(), refused)
            by_streams = api_service.readiness_of_streams(self._streams.value, refused)
            self.state.set(by_tunnel if self._context.network.is_managed else by_streams)

    # One step

    async def reconcile(self, key: str) -> After | None:
        watched = self._watched.get(key)
        if watched is None:
            return None
        if not watched.synced:
            return self._unlisted(key, watched)
        service = watched.service_cache.get(watched.key)
        if service is not None:
            watched.cluster_ip = service.spec.cluster_ip
            self._note_address(key, watched, watched.cluster_ip)
        if not self._health.ok:
            watched.postponed = True
            return None
        found = self._reach()
        try:
            if service is None and (again := await self._create_service(key, watched, found)) is not None:
                return again
            return await self._write_slice(watched, found)
        except (ApiError, Unreachable) as error:
            return self._failed(key, watched, error, creating=service is None)

    def _unlisted(self, local: str, watched: _Watched) -> After:
        """Let pods go without the service where the lender does not let us list services."""
        left = watched.remote.since + LIST_DEADLINE - self.clock.seconds()
        if left > 0:
            return After(left)
        error = watched.service_cache.informer.error or watched.slice_cache.informer.error
        if self._health.ok and error and local not in self._context.services.api_addresses.value:
            self._note_address(local, watched, "")
            self._note_refusal(watched, error)
        return After(LIST_DEADLINE)

    async def _create_service(self, local: str, watched: _Watched, found: Reach) -> After | None:
        body = api_service.forge_service(watched.key.namespace, found, self._context, watched.cluster_ip)
        if (wait := self._wait(watched, SERVICES, "")) is not None:
            return wait
        try:
            created = await self._create(watched, watched.service_cache, SERVICES, body, ApiService)
        except Invalid:
            if not watched.cluster_ip:
                raise
            now = self.clock.seconds()
            watched.missing_since = now if watched.missing_since is None else watched.missing_since
            if now - watched.missing_since > RELEASED_WITHIN:
                # The address has another owner by now: the next step asks for any.
                watched.cluster_ip = ""
            return After(PAUSE)
        if created is None:
            self._note_address(local, watched, "")
            return self._name_taken(watched)
        self._write_limiter.written(Key(watched.key.namespace, SERVICES.plural), "", self.clock.seconds())
        watched.cluster_ip, watched.missing_since = created.spec.cluster_ip, None
        self._note_address(local, watched, watched.cluster_ip)
        return None

    async def _write_slice(self, watched: _Watched, found: Reach) -> After | None:
        cache, kind = watched.slice_cache, SHADOWENDPOINTSLICES
        present = cache.get(watched.key)
        if not found.addresses and found.is_waiting:
            # What is not known yet is no reason to take away what is there.
            return None
        body = api_service.forge_slice(watched.key.namespace, found, self._context)
        # Streams need no slice of ours.
        is_needed = present is not None or self._context.network.is_managed
        if is_needed and (present is None or not api_service.is_same_slice(present, body)):
            if (wait := self._wait(watched, kind, body)) is not None:
                return wait
            if present is None:
                if await self._create(watched, cache, kind, body, ShadowEndpointSlice) is None:
                    return self._name_taken(watched)
            else:
                patch = {"metadata": {**body["metadata"], "uid": present.metadata.uid}, "spec": body["spec"]}
                remote, manager = watched.remote, REFLECTION_MANAGER
                written = await remote.client.patch(
                    kind, NAME, patch, remote.namespace, view=ShadowEndpointSlice, manager=manager
                )
                cache.wrote(watched.key, present, written)
            self._write_limiter.written(Key(watched.key.namespace, kind.plural), body, self.clock.seconds())
            self._health.request_succeeded()
        watched.attempts = Attempts()
        self._note_refusal(watched, "")
        return None

    async def _create(
        self, watched: _Watched, cache: MutationCache[T], kind: Resource, body: dict[str, Any], view: type[T]
    ) -> T | None:
        """Create an object; None if an object that is not ours has its name."""
        remote = watched.remote
        try:
            made = await remote.client.create(kind, body, remote.namespace, view=view, manager=REFLECTION_MANAGER)
        except AlreadyExists as conflict:
            made = await existing(remote.client, kind, NAME, remote.namespace, view=view, conflict=conflict)
            if not (is_ours(made.metadata, self._context) and HOME_API_LABEL in made.metadata.labels):
                return None
        cache.wrote(watched.key, None, made)
        return made

    def _name_taken(self, watched: _Watched) -> After:
        self._note_refusal(watched, f"an object {NAME} that is not ours is there; it is left alone")
        return After(NAME_TAKEN_RETRY)

    def _wait(self, watched: _Watched, kind: Resource, body: object) -> After | None:
        """Return when a write may follow the last one of the same object: somebody may revert what is written."""
        left = self._write_limiter.wait(Key(watched.key.namespace, kind.plural), body, self.clock.seconds())
        return After(left) if left > 0.001 else None

    def _failed(self, local: str, watched: _Watched, error: ApiError | Unreachable, *, creating: bool) -> After:
        """Handle a failed write; return when to try again. Raises the error itself for 429 and 5xx."""
        granted_for = self.clock.seconds() - watched.remote.since
        failed = failed_write(error, watched.attempts, self._health, granted_for=granted_for, creating=creating)
        if failed.meaning is Meaning.NO_ANSWER:
            watched.postponed = True
        elif failed.meaning is Meaning.OUTDATED:
            watched.slice_cache.forget(watched.key)
        if failed.namespace_missing:
            self._namespaces.request_again(local)
        if failed.is_refused and not failed.namespace_terminating:
            self._note_address(local, watched, watched.cluster_ip)
            self._note_refusal(watched, failed.message)
        return After(failed.delay)
