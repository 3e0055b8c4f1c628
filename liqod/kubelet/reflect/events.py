"""Brings events of the lender back to the objects at home that they are about: few, and only news.

Events that are there when watching begins are old news: telling them again after every restart would be worse than
missing one. What exceeds the rate is dropped, ordinary events first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import maybeDeferred

from liqod.flow.tasks import Tasks
from liqod.kube.informer import Informer
from liqod.kube.resources import EVENTS
from liqod.kubelet.forge.event import Event, Told, forge
from liqod.kubelet.forge.place import Place
from liqod.kubelet.ports import Recorder
from liqod.kubelet.reflect import policy
from liqod.kubelet.reflect.kinds import Kind
from liqod.kubelet.reflect.reflector import Reflector
from liqod.kubelet.remote import RemoteNamespace
from liqod.kubelet.views import HomePod
from liqod.model.ids import Key
from liqod.model.meta import ObjectMeta

BURST: Final = 20.0
PER_SECOND: Final = 1.0
RESERVE: Final = 5.0
"""Of the burst, what is kept for warnings."""


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
        self.dropped = 0
        self._reactor = reactor
        self._place = place
        self._listing = listing
        self._pods = pods
        self._reflectors = {kind.home.kind: (kind, reflector) for kind, reflector in reflectors.items()}
        self._recorder = recorder
        self._watches: dict[str, Informer[Event]] = {}
        self._room = BURST
        self._filled_at = float(reactor.seconds())
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

    def _told(self, local: str, event: Event) -> None:
        if policy.objection(event.metadata.annotations, self._listing):
            return
        told = forge(event, self._place)
        found = self._home(local, told) if told is not None else None
        if told is None or found is None:
            return
        if not self._has_room(told.type):
            self.dropped += 1
            return
        version, meta = found
        regarding = {
            "apiVersion": version,
            "kind": told.kind,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        }
        self._recorder.emit(regarding, told.type, told.reason, told.message)

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

    def _has_room(self, type: str) -> bool:
        now = self._reactor.seconds()
        self._room = min(BURST, self._room + (now - self._filled_at) * PER_SECOND)
        self._filled_at = now
        if self._room < (1.0 if type == "Warning" else 1.0 + RESERVE):
            return False
        self._room -= 1.0
        return True


async def _stopped(watch: Informer[Event]) -> None:
    await maybeDeferred(watch.disownServiceParent)
