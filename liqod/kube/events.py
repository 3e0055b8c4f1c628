"""Records Kubernetes Events about the daemon's decisions: rate-limited, aggregated, non-blocking."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.clocks import WallClock, utc_now
from liqod.flow.connections.admission import Bucket
from liqod.flow.tasks import Tasks
from liqod.flow.timer import Timer
from liqod.kube.client import Client
from liqod.kube.errors import KubeError, NotFound
from liqod.kube.resources import EVENTS
from liqod.model.timestamps import rfc3339

REMEMBERED: Final = 1024
"""Maximum number of distinct events that are aggregated by count; the least recently used is dropped first."""
PATCH_INTERVAL: Final = 10.0
"""Minimum seconds between two writes of one event's count."""
BURST: Final = 50
"""New events at once, and then:"""
PER_SECOND: Final = 5.0
"""New events about objects of all namespaces, and as many about those that are in none. Events above it are dropped."""
SHARE: Final = 0.5
"""The part of both that one namespace may have: tenants and lenders choose how often something happens in theirs."""
MAX_NAMESPACES: Final = 1024
"""Namespaces whose events are counted; those of others count for all of them."""
IN_FLIGHT: Final = 16
"""Requests at a time that are about objects in namespaces; those of others have as much room beside."""
_ROUNDING: Final = 1e-6
LONGEST_MESSAGE: Final = 1024
"""Maximum characters of a message: the limit of events.k8s.io/v1 (``NoteLengthLimit``)."""

Identity = tuple[str, str, str, str, str, str, str]


@attrs.define
class _Series:
    """One event as last written, with its pending count."""

    name: str
    namespace: str
    count: int
    written_at: float
    due: Timer


@attrs.frozen
class EventSource:
    """Who reports an event: a component and the name of its node."""

    component: str
    host: str


class Recorder(Protocol):
    """Destination of events: ``EventRecorder``, or a null object."""

    def record_event(
        self, regarding: Mapping[str, Any], type: str, reason: str, message: str, source: EventSource | None = None
    ) -> None:
        """Record an event about an object; returns at once and never raises."""
        ...


class EventRecorder:
    """Writes core/v1 Events from one component of one host.

    ``record_event`` returns at once and never raises. An event equal to an earlier one (object, type, reason, message)
    increments its count, written at most every 10 s. Events above the rate are dropped and counted in ``dropped``.
    """

    _log = Logger()

    def __init__(
        self, client: Client, clock: IReactorTime, component: str, host: str, wall: WallClock = utc_now
    ) -> None:
        self.dropped = 0
        self._client = client
        self._clock = clock
        self._source = EventSource(component, host)
        self._wall = wall
        self._series: OrderedDict[Identity, _Series] = OrderedDict()
        self._pace = Bucket(PER_SECOND, BURST)
        self._paces: dict[str, Bucket] = {}
        self._tasks = Tasks()
        self._trouble = ""

    def record_event(
        self, regarding: Mapping[str, Any], type: str, reason: str, message: str, source: EventSource | None = None
    ) -> None:
        """Record an event about an object.

        ``regarding`` has apiVersion, kind, name, namespace and uid; ``type`` is Normal or Warning. ``source`` is who
        reports it, if it is not the recorder's own component.
        """
        message = message[:LONGEST_MESSAGE]
        about = {key: str(regarding.get(key) or "") for key in ("apiVersion", "kind", "namespace", "name", "uid")}
        identity = (about["kind"], about["namespace"], about["name"], about["uid"], type, reason, message)
        series = self._series.get(identity)
        if series is not None:
            self._series.move_to_end(identity)
            series.count += 1
            wait = max(0.0, series.written_at + PATCH_INTERVAL - self._clock.seconds())
            series.due.start_unless_running(wait, self._recount, identity)
            return
        if not self._allowed(about["namespace"]):
            self.dropped += 1
            return
        # An Event about an object without a namespace belongs to "default": validation takes hardly another
        # (pkg/apis/core/validation, events.go).
        namespace = about["namespace"] or "default"
        name = f"{about['name'][:200]}.{secrets.token_hex(8)}"
        self._series[identity] = _Series(name, namespace, 1, self._clock.seconds(), Timer(self._clock))
        if len(self._series) > REMEMBERED:
            _, oldest = self._series.popitem(last=False)
            oldest.due.cancel()
        stamp, source = self._stamp(), source or self._source
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {key: value for key, value in about.items() if value},
            "type": type,
            "reason": reason,
            "message": message,
            "source": attrs.asdict(source),
            "reportingComponent": source.component,
            "reportingInstance": source.host,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        self._tasks.spawn(self._create(identity, event), f"recording the event {reason}")

    def stop(self) -> Deferred[None]:
        """Drop unwritten events; the Deferred fires when no request is in progress."""
        for series in self._series.values():
            series.due.cancel()
        self._series.clear()
        return self._tasks.stopService()

    def _allowed(self, namespace: str) -> bool:
        now = self._clock.seconds()
        own = self._paces.get(namespace)
        if own is None:
            if len(self._paces) >= MAX_NAMESPACES:
                self._paces = {known: pace for known, pace in self._paces.items() if not pace.is_idle(now)}
            share = SHARE if namespace else 1.0
            own = Bucket(PER_SECOND * share, int(BURST * share))
            if len(self._paces) < MAX_NAMESPACES or not namespace:
                self._paces[namespace] = own
        paces = (own, self._pace) if namespace else (own,)
        room = IN_FLIGHT if namespace else 2 * IN_FLIGHT
        if any(pace.delay(now) > _ROUNDING for pace in paces) or len(self._tasks) >= room:
            return False
        for pace in paces:
            pace.take(now)
        return True

    def _recount(self, identity: Identity) -> None:
        series = self._series.get(identity)
        if series is None:
            return
        series.written_at = self._clock.seconds()
        self._tasks.spawn(self._patch(identity, series), f"counting the event {identity[5]}")

    async def _create(self, identity: Identity, event: dict[str, Any]) -> None:
        try:
            await self._client.create(EVENTS, event, view=None)
        except KubeError as error:
            # The next occurrence is written as a new event.
            self._forget(identity)
            self._failed(error)
        else:
            self._trouble = ""

    async def _patch(self, identity: Identity, series: _Series) -> None:
        patch = {"count": series.count, "lastTimestamp": self._stamp()}
        try:
            await self._client.patch(EVENTS, series.name, patch, series.namespace, view=None)
        except NotFound:
            # Events expire after an hour by default (kube-apiserver --event-ttl); 404 means a new one is needed.
            self._forget(identity)
        except KubeError as error:
            self._failed(error)

    def _forget(self, identity: Identity) -> None:
        series = self._series.pop(identity, None)
        if series is not None:
            series.due.cancel()

    def _failed(self, error: KubeError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._log.warn("an event was not recorded: {error}", error=str(error))

    def _stamp(self) -> str:
        return rfc3339(self._wall())
