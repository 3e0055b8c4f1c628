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
from liqod.kubelet.common.context import Place
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.common.meta import is_ours
from liqod.kubelet.common.write_limiter import Pace
from liqod.kubelet.lender.health import Reach
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.ports import Recorder
from liqod.kubelet.reflection.decide import Create, Decision, Delete, Keep, Patch, Skip, decide
from liqod.kubelet.reflection.forge.reflected import Context, Wanted, Withheld
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.namespace_pair import Space
from liqod.kubelet.reflection.shared_informers import Homes
from liqod.kubelet.reflection.views import Thing
from liqod.model.ids import Key
from liqod.model.names import REFLECTION_MANAGER
from liqod.model.records.network import Claims

FRESH: Final = 10.0
"""Seconds after a namespace was granted in which a refusal may only mean that the grant has not taken effect yet."""
EARLY: Final = 0.3
LATE: Final = Backoff(initial=5.0, factor=2.0, cap=300.0)
IN_THE_WAY: Final = 60.0
INCOMPLETE: Final = 5.0
MOST_SAID: Final = 500
SOON: Final = 0.2
"""Seconds until it is asked again whether everything that is decided from is known."""


class Reflector(MultiService):
    """One kind; ``begin`` and ``end`` say which namespaces. ``context`` gives what forging looks at, by namespace.

    ``lost(namespace)`` is called when the lender says that a namespace it had granted is not there, ``claimed()`` when
    other addresses are claimed than before.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        kind: Kind,
        place: Place,
        homes: Homes,
        reach: Reach,
        recorder: Recorder,
        workers: int,
        context: Callable[[str], Context],
        lost: Callable[[str], None],
        claimed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self._reactor = reactor
        self._place = place
        self._homes = homes
        self._reach = reach
        self._recorder = recorder
        self._context = context
        self._lost = lost
        self._claimed = claimed
        self._spaces: dict[str, Space] = {}
        self._pace = Pace(kind.pause)
        self._attempts: dict[Key, int] = {}
        self._parked: set[Key] = set()
        what = f"{kind.home.plural} for {place.lender}"
        self._queue: WorkQueue[Key] = WorkQueue(reactor, what)
        self._workers: Workers[Key] = Workers(self._queue, workers, self._process, f"reflecting {what}:")
        self._tasks = Tasks()
        self._workers.setServiceParent(self)
        self._tasks.setServiceParent(self)
        self._unsubscribe: Callable[[], None] = lambda: None

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = self._reach.state.subscribe(lambda _: self._unpark())

    def stopService(self) -> Deferred[Any]:
        self._unsubscribe()
        self._queue.close()
        return maybeDeferred(super().stopService)

    @property
    def troubles(self) -> dict[Key, str]:
        """The objects whose last turn failed, with the reason."""
        return self._workers.troubles

    def begin(self, local: str, remote: RemoteNamespace) -> None:
        """Reflect a namespace from now on."""
        self.end(local)
        space = Space(
            self._reactor, self.kind, self._place, self._homes, local, remote, lambda name: self.look(Key(local, name))
        )
        self._spaces[local] = space
        space.setServiceParent(self)

    def end(self, local: str) -> None:
        """Reflect a namespace no longer; what is at the lender stays (it goes with the namespace there)."""
        space = self._spaces.pop(local, None)
        if space is not None:
            self._tasks.spawn(_stopped(space), f"closing the watches of {self.kind.home.plural} in {local}")
            if any(space.claims.values()):
                self._claimed()

    def space(self, local: str) -> Space | None:
        """Return both sides of a namespace, if it is reflected."""
        return self._spaces.get(local)

    def claims(self, namespaces: Iterable[str]) -> Claims:
        """Return what is claimed; complete when all objects of these namespaces, which are to be served, had a turn."""
        spaces = [self._spaces.get(local) for local in namespaces]
        wanted = [claims for space in self._spaces.values() for claims in space.claims.values()]
        complete = all(space is not None and space.complete for space in spaces)
        return Claims(frozenset().union(*wanted), complete)

    def look(self, key: Key) -> None:
        """Have an object looked at again."""
        self._queue.add(key)

    def look_all(self, keep: Callable[[Thing], bool] = lambda thing: True, namespaces: Iterable[str] = ()) -> None:
        """Have those objects looked at again that are chosen, of all namespaces or of some."""
        for local in tuple(namespaces) or tuple(self._spaces):
            space = self._spaces.get(local)
            for thing in space.home.items() if space is not None else ():
                if keep(thing):
                    self.look(thing.metadata.key)

    def _unpark(self) -> None:
        if self._reach.ok:
            self._queue.hasten()
            parked, self._parked = self._parked, set()
            for key in parked:
                self.look(key)

    async def _process(self, key: Key) -> float | None:
        space = self._spaces.get(key.namespace)
        if space is None or not space.synced:
            return None
        context = self._context(key.namespace)
        if not context.complete:
            return SOON
        home, name = space.at_home(key.name), self.kind.name_there(key.name, self._place)
        try:
            goal = None if home is None or home.metadata.deleting else self.kind.forge(home, context)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return self._unreadable(key, home, error)
        if self.kind.claiming:
            self._note_claims(space, key.name, home, goal)
        self._note_objections(space, key.name, home, goal)
        decision = decide(
            self.kind, goal, space.at_lender(name), name=name, namespace=space.namespace, place=self._place
        )
        again = INCOMPLETE if isinstance(goal, Wanted) and goal.incomplete else None
        if home is None:
            self._attempts.pop(key, None)
        match decision:
            case Keep():
                return again
            case Skip(why):
                return self._in_the_way(home, why)
        if not self._reach.ok:
            self._parked.add(key)
            return None
        left = self._pace.wait(key, _telling(decision, goal), self._reactor.seconds())
        if left > 0.001:
            return left
        try:
            soon = await self._carry_out(space, name, home, decision)
        except (ApiError, Unreachable) as error:
            delay = self._refused(key, space, home, error)
            self._pace.failed(key, delay, self._reactor.seconds())
            if isinstance(error, Throttled | ServerError):
                raise
            return delay
        self._pace.written(key, _telling(decision, goal), self._reactor.seconds())
        self._reach.heard()
        return again if soon is None else soon

    def _note_claims(self, space: Space, name: str, home: Thing | None, goal: Wanted | Withheld | None) -> None:
        """Remember what an object claims."""
        claims = goal.claims if isinstance(goal, Wanted) else frozenset()
        before = space.claims.get(name, frozenset())
        if home is None:
            space.claims.pop(name, None)
        else:
            space.claims[name] = claims
        if claims != before:
            self._claimed()

    def _note_objections(self, space: Space, name: str, home: Thing | None, goal: Wanted | Withheld | None) -> None:
        """Tell once what of an object, or that all of it, stays here for good."""
        reason, objections = "EndpointNotExported", goal.objections if isinstance(goal, Wanted) else ()
        if isinstance(goal, Withheld) and goal.told:
            reason, objections = "NotReflected", (goal.why,)
        if home is None or not objections:
            space.objections.pop(name, None)
        elif objections != space.objections.get(name):
            space.objections[name] = objections
            self._tell(home, reason, "; ".join(objections)[:MOST_SAID])

    async def _carry_out(self, space: Space, name: str, home: Thing | None, decision: Decision) -> float | None:
        kind, client = self.kind, space.client
        match decision:
            case Create(body):
                try:
                    made = await client.create(
                        kind.there, body, space.namespace, view=kind.there_view, manager=REFLECTION_MANAGER
                    )
                except AlreadyExists:
                    return await self._found(space, name, home)
                space.answered(name, made)
            case Patch(patch):
                made = await client.patch(
                    kind.there, name, patch, space.namespace, view=kind.there_view, manager=REFLECTION_MANAGER
                )
                space.answered(name, made)
            case Delete(uid, again):
                await client.delete(kind.there, name, space.namespace, uid=uid)
                space.forget(name)
                if again:
                    # The watch tells when it is gone; then it is made anew.
                    return None
        if home is not None:
            self._attempts.pop(home.metadata.key, None)
        return None

    async def _found(self, space: Space, name: str, home: Thing | None) -> float | None:
        """It is there, and the cache does not show it: not ours (the watch selects by label), or not seen yet."""
        there = await space.client.get(self.kind.there, name, space.namespace, view=self.kind.there_view)
        if is_ours(there.metadata, self._place) and self.kind.unless not in there.metadata.labels:
            space.answered(name, there)
            return 0.0
        return self._in_the_way(
            home, f"an object {name} that is not ours is in the remote namespace {space.namespace}; it is left alone"
        )

    def _unreadable(self, key: Key, home: Thing | None, error: Exception) -> float:
        if home is not None:
            self._tell(home, "UnreadableObject", f"what it holds cannot be read: {clean_message(str(error))}")
        return self._late(key)

    def _in_the_way(self, home: Thing | None, why: str) -> float | None:
        if home is None:
            return None
        self._tell(home, "RemoteNameTaken", f"{why} (rename this one, or ask the lender's administrator)")
        return IN_THE_WAY

    def _refused(self, key: Key, space: Space, home: Thing | None, error: ApiError | Unreachable) -> float:
        """Find out what a failed request means; returns when to try again."""
        if isinstance(error, Unreachable | Unauthorized):
            self._reach.suspect()
            self._parked.add(key)
            # Should nothing come of the suspicion, it is tried again all the same.
            return LATE.delay(0)
        if isinstance(error, Conflict):
            space.forget(self.kind.name_there(key.name, self._place))
            return EARLY
        if isinstance(error, Throttled | ServerError):
            return error.retry_after or EARLY
        if isinstance(error, NotFound) and error.details.get("kind") != "namespaces":
            # Somebody deleted it a moment ago: the watch tells.
            space.forget(self.kind.name_there(key.name, self._place))
            return EARLY
        if isinstance(error, Forbidden | NotFound) and self._reactor.seconds() - space.since < FRESH:
            return EARLY
        if isinstance(error, NotFound):
            self._lost(key.namespace)
        if home is not None and not _is_ending(error):
            what = f"the lender refuses it: {clean_message(error.message)}"
            self._tell(home, f"Remote{type(error).__name__}", what)
        return self._late(key)

    def _late(self, key: Key) -> float:
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        return LATE.delay(attempt)

    def _tell(self, home: Thing, reason: str, message: str) -> None:
        meta = home.metadata
        regarding: Mapping[str, Any] = {
            "apiVersion": self.kind.home.api_version,
            "kind": self.kind.home.kind,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        }
        self._recorder.emit(regarding, "Warning", reason, f"not reflected to {self._place.lender}: {message}")


def _is_ending(error: ApiError) -> bool:
    """Tell whether a request was refused because the namespace is being deleted: that concerns no single object."""
    causes = error.details.get("causes") or ()
    return any(isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes)


def _telling(decision: Decision, goal: Wanted | Withheld | None) -> Any:
    """Return what tells one write of an object from another one."""
    if isinstance(goal, Wanted) and not isinstance(decision, Delete):
        return [goal.labels, goal.annotations, goal.content]
    return type(decision).__name__


async def _stopped(service: MultiService) -> None:
    await maybeDeferred(service.disownServiceParent)
