"""Reflects events of the lender to the home objects that they are about.

Events that exist when the watch starts are skipped: repeating them after a restart would be worse than missing one.
Above the rate limit warnings are queued and normal events are dropped (``event_limiter``). Dropped ones are counted
by lender in the metrics (``liqod_events_dropped``), and logged when it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.tasks import Tasks, stopped
from liqod.flow.timer import Timer
from liqod.kube.cache.informer import Informer
from liqod.kube.events import EventSource, Recorder
from liqod.kube.resources import EVENTS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.reflection.event_limiter import EventLimiter, Urgency
from liqod.kubelet.reflection.forge import policy
from liqod.kubelet.reflection.forge.event import Event, HomeEvent, forge
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.reflector import Reflector
from liqod.model.ids import Key
from liqod.model.objects.meta import ObjectMeta, reference_to

KUBELET: Final = "kubelet"
LOG_INTERVAL: Final = 600.0
"""Seconds between two log lines about dropped events."""


class EventReflector(MultiService):
    """Reflects the events of one lender in the open namespaces."""

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        context: Context,
        listing: policy.Listing,
        *,
        pods: Informer[HomePod],
        reflectors: Mapping[Kind, Reflector],
        recorder: Recorder,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._context = context
        self._listing = listing
        self._pods = pods
        self._reflectors = {kind.home.kind: (kind, reflector) for kind, reflector in reflectors.items()}
        self._recorder = recorder
        self._watches: dict[str, Informer[Event]] = {}
        self._limiter: EventLimiter[tuple[str, HomeEvent]] = EventLimiter(clock.seconds())
        self._timer = Timer(clock)
        self._logged_at = float("-inf")
        self._logged_drops = 0
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def open_namespace(self, local: str, remote: RemoteNamespace) -> None:
        """Start reflecting events of a namespace."""
        self.close_namespace(local)
        watch: Informer[Event] = Informer(remote.client, EVENTS, Event, self._clock, namespace=remote.namespace)

        def changed(key: Key, old: Event | None, new: Event | None) -> None:
            is_news = old is None or new is None or (old.count, old.message) != (new.count, new.message)
            if watch.synced and new is not None and is_news:
                self._receive(local, new)

        self._watches[local] = watch
        watch.subscribe(changed)
        watch.setServiceParent(self)

    def close_namespace(self, local: str) -> None:
        """Stop reflecting events of a namespace."""
        watch = self._watches.pop(local, None)
        if watch is not None:
            self._tasks.spawn(stopped(watch), f"closing the watch of events in {local}")

    @property
    def dropped(self) -> int:
        """The number of events that the rate limit dropped."""
        return self._limiter.dropped

    def stopService(self) -> Deferred[None]:
        """Stop all watches and drop the queued events."""
        self._timer.cancel()
        stopped: Deferred[None] = super().stopService()
        return stopped

    def _receive(self, local: str, event: Event) -> None:
        if policy.objection(event.metadata.annotations, self._listing):
            return
        home_event = forge(event, self._context)
        if home_event is None or self._home(local, home_event) is None:
            return
        if self._limiter.add(
            (local, event.metadata.name), (local, home_event), _urgency(home_event), self._clock.seconds()
        ):
            self._record(local, home_event)
        self._log_drops()
        self._schedule()

    def _log_drops(self) -> None:
        """Log that events are dropped, when it begins and at most every ``LOG_INTERVAL`` seconds."""
        now = self._clock.seconds()
        if self.dropped > self._logged_drops and now - self._logged_at >= LOG_INTERVAL:
            self._log.warn(
                "{peer} makes more events than are recorded here: {count} were dropped so far",
                peer=str(self._context.lender),
                count=self.dropped,
            )
            self._logged_at, self._logged_drops = now, self.dropped

    def _schedule(self) -> None:
        wait = self._limiter.wait(self._clock.seconds())
        if wait is not None and self.running:
            self._timer.start_unless_running(wait, self._next)

    def _next(self) -> None:
        if (due := self._limiter.due(self._clock.seconds())) is not None:
            self._record(*due)
        self._schedule()

    def _record(self, local: str, home_event: HomeEvent) -> None:
        home = self._home(local, home_event)
        if home is None:
            return
        version, meta = home
        # What the lender's kubelet says of a pod, the virtual node's says at home: tools select its events by source.
        of_kubelet = home_event.kind == "Pod" and home_event.component == KUBELET
        self._recorder.record_event(
            reference_to(version, home_event.kind, meta),
            home_event.type,
            home_event.reason,
            home_event.message,
            EventSource(KUBELET, self._context.node_name) if of_kubelet else None,
        )

    def _home(self, local: str, home_event: HomeEvent) -> tuple[str, ObjectMeta] | None:
        """Return apiVersion and metadata of the home object of an event: a pod on the virtual node or a reflected one.

        None for other objects: a lender must not record events about arbitrary objects of the home cluster.
        """
        key = Key(local, home_event.name)
        if home_event.kind == "Pod":
            pod = self._pods.get(key)
            return None if pod is None else ("v1", pod.metadata)
        kind, reflector = self._reflectors.get(home_event.kind, (None, None))
        pair = reflector.pair(local) if reflector is not None else None
        if kind is None or pair is None:
            return None
        home = pair.at_home(home_event.name)
        there = pair.at_lender(kind.name_there(home_event.name, self._context))
        return None if home is None or there is None else (kind.home.api_version, home.metadata)


def _urgency(home_event: HomeEvent) -> Urgency:
    if home_event.type != "Warning":
        return Urgency.ORDINARY
    # Why the lender's liqod refuses a pod or does not update it.
    return Urgency.VERDICT if home_event.component == "liqod" else Urgency.WARNING
