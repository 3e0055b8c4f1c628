"""Reflects one kind to one lender: a queue of names, a few workers, one decision per turn, one request per change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from liqod.flow.backoff import Backoff
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    Throttled,
    Unauthorized,
    Unreachable,
)
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.common.meta import is_ours
from liqod.kubelet.common.write_limiter import WriteLimiter
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.ports import Recorder
from liqod.kubelet.reflection.decide import Create, Decision, Delete, Keep, Patch, Skip, decide
from liqod.kubelet.reflection.forge.reflected import Desired, ForgeInputs, Withheld
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.namespace_pair import NamespacePair
from liqod.kubelet.reflection.shared_informers import NamespacedInformers
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.ids import Key
from liqod.model.names import REFLECTION_MANAGER
from liqod.model.records.network import Claims

FRESH: Final = 10.0
"""Seconds after a namespace was granted in which a refusal may only mean that the grant has not taken effect yet."""
EARLY: Final = 0.3
LATE: Final = Backoff(initial=5.0, factor=2.0, cap=300.0)
NAME_TAKEN_RETRY: Final = 60.0
INCOMPLETE: Final = 5.0
MOST_SAID: Final = 500
SOON: Final = 0.2
"""Seconds until it is asked again whether everything that is decided from is known."""


class Reflector(MultiService):
    """One kind, in the namespaces that are open; ``inputs`` gives what forging reads, by namespace.

    ``lost(namespace)`` is called when the lender says that a namespace it had granted is not there, ``claimed()`` when
    other addresses are claimed than before.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        kind: Kind,
        context: Context,
        informers: NamespacedInformers,
        health: LenderHealth,
        recorder: Recorder,
        workers: int,
        inputs: Callable[[str], ForgeInputs],
        lost: Callable[[str], None],
        claimed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self._reactor = reactor
        self._context = context
        self._informers = informers
        self._health = health
        self._recorder = recorder
        self._inputs_of = inputs
        self._lost = lost
        self._claimed = claimed
        self._pairs: dict[str, NamespacePair] = {}
        self._write_limiter = WriteLimiter(kind.pause)
        self._attempts: dict[Key, int] = {}
        self._postponed: set[Key] = set()
        what = f"{kind.home.plural} for {context.lender}"
        self._queue: WorkQueue[Key] = WorkQueue(reactor, what)
        self._workers: Workers[Key] = Workers(self._queue, workers, self._process, f"reflecting {what}:")
        self._tasks = Tasks()
        self._workers.setServiceParent(self)
        self._tasks.setServiceParent(self)
        self._unsubscribe: Callable[[], None] = lambda: None

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = self._health.state.subscribe(lambda _: self._retry_postponed())

    def stopService(self) -> Deferred[Any]:
        self._unsubscribe()
        self._queue.close()
        return maybeDeferred(super().stopService)

    @property
    def troubles(self) -> dict[Key, str]:
        """The objects whose last turn failed, with the reason."""
        return self._workers.troubles

    def open_namespace(self, local: str, remote: RemoteNamespace) -> None:
        """Reflect a namespace from now on."""
        self.close_namespace(local)
        pair = NamespacePair(
            self._reactor,
            self.kind,
            self._context,
            self._informers,
            local,
            remote,
            lambda name: self.enqueue(Key(local, name)),
        )
        self._pairs[local] = pair
        pair.setServiceParent(self)

    def close_namespace(self, local: str) -> None:
        """Reflect a namespace no longer; what is at the lender stays (it goes with the namespace there)."""
        pair = self._pairs.pop(local, None)
        if pair is not None:
            self._tasks.spawn(_stopped(pair), f"closing the watches of {self.kind.home.plural} in {local}")
            if any(pair.claims.values()):
                self._claimed()

    def pair(self, local: str) -> NamespacePair | None:
        """Return both sides of a namespace, if it is reflected."""
        return self._pairs.get(local)

    def claims(self, namespaces: Iterable[str]) -> Claims:
        """Return what is claimed; complete when all objects of these namespaces, which are to be served, had a turn."""
        pairs = [self._pairs.get(local) for local in namespaces]
        wanted = [claims for pair in self._pairs.values() for claims in pair.claims.values()]
        complete = all(pair is not None and pair.complete for pair in pairs)
        return Claims(frozenset().union(*wanted), complete)

    def enqueue(self, key: Key) -> None:
        """Have an object looked at again."""
        self._queue.add(key)

    def enqueue_all(
        self, keep: Callable[[Reflectable], bool] = lambda thing: True, namespaces: Iterable[str] = ()
    ) -> None:
        """Have those objects looked at again that are chosen, of all namespaces or of some."""
        for local in tuple(namespaces) or tuple(self._pairs):
            pair = self._pairs.get(local)
            for thing in pair.home.items() if pair is not None else ():
                if keep(thing):
                    self.enqueue(thing.metadata.key)

    def _retry_postponed(self) -> None:
        if self._health.ok:
            self._queue.hasten()
            postponed, self._postponed = self._postponed, set()
            for key in postponed:
                self.enqueue(key)

    async def _process(self, key: Key) -> float | None:
        pair = self._pairs.get(key.namespace)
        if pair is None or not pair.synced:
            return None
        inputs = self._inputs_of(key.namespace)
        if not inputs.complete:
            return SOON
        home, name = pair.at_home(key.name), self.kind.name_there(key.name, self._context)
        try:
            desired = None if home is None or home.metadata.deleting else self.kind.forge(home, inputs)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return self._unreadable(key, home, error)
        if self.kind.claiming:
            self._note_claims(pair, key.name, home, desired)
        self._note_objections(pair, key.name, home, desired)
        decision = decide(
            self.kind, desired, pair.at_lender(name), name=name, namespace=pair.namespace, context=self._context
        )
        again = INCOMPLETE if isinstance(desired, Desired) and desired.incomplete else None
        if home is None:
            self._attempts.pop(key, None)
        match decision:
            case Keep():
                return again
            case Skip(why):
                return self._name_taken(home, why)
        if not self._health.ok:
            self._postponed.add(key)
            return None
        left = self._write_limiter.wait(key, _telling(decision, desired), self._reactor.seconds())
        if left > 0.001:
            return left
        try:
            soon = await self._carry_out(pair, name, home, decision)
        except (ApiError, Unreachable) as error:
            delay = self._refused(key, pair, home, error)
            self._write_limiter.failed(key, delay, self._reactor.seconds())
            if isinstance(error, Throttled | ServerError):
                raise
            return delay
        self._write_limiter.written(key, _telling(decision, desired), self._reactor.seconds())
        self._health.request_succeeded()
        return again if soon is None else soon

    def _note_claims(
        self, pair: NamespacePair, name: str, home: Reflectable | None, desired: Desired | Withheld | None
    ) -> None:
        """Remember what an object claims."""
        claims = desired.claims if isinstance(desired, Desired) else frozenset()
        before = pair.claims.get(name, frozenset())
        if home is None:
            pair.claims.pop(name, None)
        else:
            pair.claims[name] = claims
        if claims != before:
            self._claimed()

    def _note_objections(
        self, pair: NamespacePair, name: str, home: Reflectable | None, desired: Desired | Withheld | None
    ) -> None:
        """Tell once what of an object, or that all of it, stays here for good."""
        reason, objections = "EndpointNotExported", desired.objections if isinstance(desired, Desired) else ()
        if isinstance(desired, Withheld) and desired.told:
            reason, objections = "NotReflected", (desired.why,)
        if home is None or not objections:
            pair.objections.pop(name, None)
        elif objections != pair.objections.get(name):
            pair.objections[name] = objections
            self._record_event(home, reason, "; ".join(objections)[:MOST_SAID])

    async def _carry_out(
        self, pair: NamespacePair, name: str, home: Reflectable | None, decision: Decision
    ) -> float | None:
        kind, client = self.kind, pair.client
        match decision:
            case Create(body):
                try:
                    made = await client.create(
                        kind.there, body, pair.namespace, view=kind.there_view, manager=REFLECTION_MANAGER
                    )
                except AlreadyExists:
                    return await self._found(pair, name, home)
                pair.answered(name, made)
            case Patch(patch):
                made = await client.patch(
                    kind.there, name, patch, pair.namespace, view=kind.there_view, manager=REFLECTION_MANAGER
                )
                pair.answered(name, made)
            case Delete(uid, again):
                await client.delete(kind.there, name, pair.namespace, uid=uid)
                pair.forget(name)
                if again:
                    # The watch tells when it is gone; then it is made anew.
                    return None
        if home is not None:
            self._attempts.pop(home.metadata.key, None)
        return None

    async def _found(self, pair: NamespacePair, name: str, home: Reflectable | None) -> float | None:
        """It is there, and the cache does not show it: not ours (the watch selects by label), or not seen yet."""
        there = await pair.client.get(self.kind.there, name, pair.namespace, view=self.kind.there_view)
        if is_ours(there.metadata, self._context) and self.kind.unless not in there.metadata.labels:
            pair.answered(name, there)
            return 0.0
        return self._name_taken(
            home, f"an object {name} that is not ours is in the remote namespace {pair.namespace}; it is left alone"
        )

    def _unreadable(self, key: Key, home: Reflectable | None, error: Exception) -> float:
        if home is not None:
            self._record_event(home, "UnreadableObject", f"what it holds cannot be read: {clean_message(str(error))}")
        return self._late(key)

    def _name_taken(self, home: Reflectable | None, why: str) -> float | None:
        if home is None:
            return None
        self._record_event(home, "RemoteNameTaken", f"{why} (rename this one, or ask the lender's administrator)")
        return NAME_TAKEN_RETRY

    def _refused(self, key: Key, pair: NamespacePair, home: Reflectable | None, error: ApiError | Unreachable) -> float:
        """Find out what a failed request means; returns when to try again."""
        if isinstance(error, Unreachable | Unauthorized):
            self._health.request_failed()
            self._postponed.add(key)
            # Should nothing come of the suspicion, it is tried again all the same.
            return LATE.delay(0)
        if isinstance(error, Conflict):
            pair.forget(self.kind.name_there(key.name, self._context))
            return EARLY
        if isinstance(error, Throttled | ServerError):
            return error.retry_after or EARLY
        if isinstance(error, NotFound) and error.details.get("kind") != "namespaces":
            # Somebody deleted it a moment ago: the watch tells.
            pair.forget(self.kind.name_there(key.name, self._context))
            return EARLY
        if isinstance(error, Forbidden | NotFound) and self._reactor.seconds() - pair.since < FRESH:
            return EARLY
        if isinstance(error, NotFound):
            self._lost(key.namespace)
        if home is not None and not _is_ending(error):
            what = f"the lender refuses it: {clean_message(error.message)}"
            self._record_event(home, f"Remote{type(error).__name__}", what)
        return self._late(key)

    def _late(self, key: Key) -> float:
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        return LATE.delay(attempt)

    def _record_event(self, home: Reflectable, reason: str, message: str) -> None:
        meta = home.metadata
        regarding: Mapping[str, Any] = {
            "apiVersion": self.kind.home.api_version,
            "kind": self.kind.home.kind,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        }
        self._recorder.emit(regarding, "Warning", reason, f"not reflected to {self._context.lender}: {message}")


def _is_ending(error: ApiError) -> bool:
    """Tell whether a request was refused because the namespace is being deleted: that concerns no single object."""
    causes = error.details.get("causes") or ()
    return any(isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes)


def _telling(decision: Decision, desired: Desired | Withheld | None) -> Any:
    """Return what tells one write of an object from another one."""
    if isinstance(desired, Desired) and not isinstance(decision, Delete):
        return [desired.labels, desired.annotations, desired.content]
    return type(decision).__name__


async def _stopped(service: MultiService) -> None:
    await maybeDeferred(service.disownServiceParent)
