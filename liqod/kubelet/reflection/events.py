"""Brings events of the lender back to the objects at home that they are about: few, and only news.

Events that are there when watching begins are old news: telling them again after every restart would be worse than
missing one. What exceeds the rate waits if something went wrong, and is dropped otherwise (``turns``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall

from liqod.flow.tasks import Tasks
from liqod.kube.cache.informer import Informer
from liqod.kube.resources import EVENTS
from liqod.kubelet.common.context import Place
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.ports import Recorder
from liqod.kubelet.reflection import policy
from liqod.kubelet.reflection.event_limiter import Turns, Urgency
from liqod.kubelet.reflection.forge.event import Event, Told, forge
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.reflector import Reflector
from liqod.model.ids import Key
from liqod.model.objects.meta import ObjectMeta, reference_to


class EventsBack(MultiService):
    """The events of one lender; ``begin`` and ``end`` say of which namespaces."""

    def __init__(
        self,
        reactor: Any,
        place: Place,
        listing: policy.Listing,
        pods: Informer[HomePod],
        reflectors: Mapping[Kind, Reflector],
        recorder: Recorder,
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._place = place
        self._listing = listing
        self._pods = pods
        self._reflectors = {kind.home.kind: (kind, reflector) for kind, reflector in reflectors.items()}
        self._recorder = recorder
        self._watches: dict[str, Informer[Event]] = {}
        self._turns: Turns[tuple[str, Told]] = Turns(reactor.seconds())
        self._turn: IDelayedCall | None = None
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def begin(self, local: str, remote: RemoteNamespace) -> None:
        """Bring events of a namespace back from now on."""
        self.end(local)
        watch: Informer[Event] = Informer(remote.client, EVENTS, Event, self._reactor, namespace=remote.namespace)

        def changed(key: Key, old: Event | None, new: Event | None) -> None:
            is_news = old is None or new is None or (old.count, old.message) != (new.count, new.message)
            if watch.synced and new is not None and is_news:
                self._told(local, new)

        self._watches[local] = watch
        watch.subscribe(changed)
        watch.setServiceParent(self)

    def end(self, local: str) -> None:
        """Bring events of a namespace back no longer."""
        watch = self._watches.pop(local, None)
        if watch is not None:
            self._tasks.spawn(_stopped(watch), f"closing the watch of events in {local}")

    @property
    def dropped(self) -> int:
        """How many events were not told at home for want of room."""
        return self._turns.dropped

    def stopService(self) -> Deferred[None]:
        """End all watches; what waits is not told."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        stopped: Deferred[None] = super().stopService()
        return stopped

    def _told(self, local: str, event: Event) -> None:
        if policy.objection(event.metadata.annotations, self._listing):
            return
        told = forge(event, self._place)
        if told is None or self._home(local, told) is None:
            return
        if self._turns.add((local, event.metadata.name), (local, told), _urgency(told), self._reactor.seconds()):
            self._tell(local, told)
        self._schedule()

    def _schedule(self) -> None:
        wait = self._turns.wait(self._reactor.seconds())
        if wait is not None and self._turn is None and self.running:
            self._turn = self._reactor.callLater(wait, self._next)

    def _next(self) -> None:
        self._turn = None
        if (due := self._turns.due(self._reactor.seconds())) is not None:
            self._tell(*due)
        self._schedule()

    def _tell(self, local: str, told: Told) -> None:
        found = self._home(local, told)
        if found is None:
            return
        version, meta = found
        self._recorder.emit(reference_to(version, told.kind, meta), told.type, told.reason, told.message)

    def _home(self, local: str, told: Told) -> tuple[str, ObjectMeta] | None:
        """Return the object at home that an event is about: a pod on the virtual node, or one that is reflected."""
        key = Key(local, told.name)
        if told.kind == "Pod":
            pod = self._pods.get(key)
            return None if pod is None else ("v1", pod.metadata)
        kind, reflector = self._reflectors.get(told.kind, (None, None))
        space = reflector.space(local) if reflector is not None else None
        if kind is None or space is None:
            return None
        home = space.at_home(told.name)
        there = space.at_lender(kind.name_there(told.name, self._place))
        return None if home is None or there is None else (kind.home.api_version, home.metadata)


async def _stopped(watch: Informer[Event]) -> None:
    await maybeDeferred(watch.disownServiceParent)


def _urgency(told: Told) -> Urgency:
    if told.type != "Warning":
        return Urgency.ORDINARY
    return Urgency.VERDICT if told.is_verdict else Urgency.WARNING
