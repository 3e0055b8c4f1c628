"""Base class of the sandbox's controllers: enqueued keys are reconciled on the next turn, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from kubesandbox.kinds.kinds import GroupResource, Key, Kind
from kubesandbox.kinds.statuses import ApiStatus
from kubesandbox.server.api import Api
from kubesandbox.server.requests import Caller, system_caller
from kubesandbox.store.state import Change

RETRY_SECONDS: Final = 0.2
_MAX_RETRY: Final = 10.0
BATCH: Final = 20
"""Maximum keys per turn of the reactor, so that a thousand pods do not block it."""

_KEPT: Final = ("NotFound", "Conflict", "AlreadyExists", "Forbidden", "Invalid")


class Reconciler(Service):
    """Level-triggered reconciler: decides from the current state of a key, not from events.

    Subclasses start watches in ``startService`` and implement ``reconcile``; a number as its result is the seconds
    after which the key is reconciled again.
    """

    log = Logger()

    def __init__(self, name: str, api: Api, clock: IReactorTime) -> None:
        self.setName(name)
        self.api = api
        self.store = api.store
        self.clock = clock
        self.caller: Caller = system_caller(name)
        self._touched: dict[Key, None] = {}
        self._busy: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._drain: IDelayedCall | None = None
        self._later: dict[Key, IDelayedCall] = {}
        self._ends: list[Callable[[], None]] = []

    def watch(self, resource: GroupResource, keys: Callable[[Change], list[Key]] | None = None) -> None:
        """Enqueue keys on every change of a kind (by default the changed object's), and for existing objects."""

        def changed(change: Change) -> None:
            for key in keys(change) if keys is not None else [change.key]:
                self.touch(key)

        self._ends.append(self.store.subscribe(resource, changed))
        for stored in self.store.items(resource):
            metadata = stored.object["metadata"]
            changed(Change(stored.version, Key(metadata.get("namespace", ""), metadata["name"]), None, stored))

    def kind(self, resource: GroupResource) -> Kind:
        """Return a built-in kind."""
        return self.api.catalog.builtin(resource)

    def touch(self, key: Key) -> None:
        """Enqueue a key."""
        self._touched[key] = None
        if self._drain is None and self.running:
            self._drain = self.clock.callLater(0, self._work)

    def touch_after(self, key: Key, seconds: float) -> None:
        """Enqueue a key after ``seconds``; of several pending times the earliest counts."""
        pending = self._later.get(key)
        due = self.clock.seconds() + seconds
        if pending is not None and pending.active():
            if pending.getTime() <= due:
                return
            pending.cancel()
        self._later[key] = self.clock.callLater(seconds, self._due, key)

    def reconcile(self, key: Key) -> Coroutine[Any, Any, float | None]:
        """Bring the objects of a key to their desired state."""
        raise AssertionError(f"{type(self).__name__} does not say what to do")

    def stopService(self) -> None:
        super().stopService()
        for end in self._ends:
            end()
        self._ends = []
        for call in (self._drain, *self._later.values()):
            if call is not None and call.active():
                call.cancel()
        self._drain = None
        self._later = {}

    def _due(self, key: Key) -> None:
        self._later.pop(key, None)
        self.touch(key)

    def _work(self) -> None:
        self._drain = None
        for key in list(islice(self._touched, BATCH)):
            if key in self._busy:
                continue
            del self._touched[key]
            self._busy.add(key)
            done = Deferred.fromCoroutine(self.reconcile(key))
            done.addCallbacks(self._settled, self._failed, callbackArgs=(key,), errbackArgs=(key,))
            done.addErrback(lambda failure: self.log.failure("a controller is broken", failure))
        if self.running and self._drain is None and any(key not in self._busy for key in self._touched):
            self._drain = self.clock.callLater(0, self._work)

    def _settled(self, again: float | None, key: Key) -> None:
        self._failures.pop(key, None)
        self._free(key)
        if again is not None and self.running:
            self.touch_after(key, again)

    def _failed(self, failure: Failure, key: Key) -> None:
        self._free(key)
        attempt = self._failures[key] = self._failures.get(key, 0) + 1
        if not (isinstance(failure.value, ApiStatus) and failure.value.reason in _KEPT):
            self.log.failure("{name} could not settle {key}", failure, name=self.name, key=str(key))
        if self.running:
            self.touch_after(key, min(RETRY_SECONDS * 2 ** (attempt - 1), _MAX_RETRY))

    def _free(self, key: Key) -> None:
        self._busy.discard(key)
        if key in self._touched:
            self.touch(key)
