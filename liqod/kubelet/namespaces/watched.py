"""The remote namespaces that a virtual node watches, and what is remembered of each between two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import Factory, define
from twisted.application.service import MultiService
from twisted.internet.interfaces import IReactorTime

from liqod.flow.tasks import Tasks, stopped
from liqod.kube.client import Client
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.refusals import Attempts
from liqod.kubelet.namespaces.remote_namespace import PodListener, RemoteNamespace
from liqod.model.ids import Key

RemoteListener = Callable[[str, RemoteNamespace | None], None]


@define
class TrackedNamespace:
    """The record of a namespace between reconciles; after a restart it is rebuilt from the natting table."""

    remote: RemoteNamespace | None = None
    """The watched remote namespace."""
    request_again: bool = False
    """The lender refused a write in it: its grant must be requested again."""
    drained: bool = False
    """Its pods were evicted since it was last offloaded."""
    left: bool = False
    """Not used by this virtual node any more, but by others of the lender."""
    unanswered: int = 0
    """Requests for it since the last usable answer."""
    attempts: Attempts = Factory(Attempts)
    """Consecutive refusals of the lender."""
    release_at: float = 0.0
    """Until then the lender, which failed to release it, is not asked for that again (reactor's clock)."""


class WatchedNamespaces(MultiService):
    """By their local names; ``listener_of`` returns who is notified of the changes in one."""

    def __init__(self, clock: IReactorTime, context: Context, listener_of: Callable[[str], PodListener]) -> None:
        super().__init__()
        self.lender: Client | None = None
        self._clock = clock
        self._context = context
        self._listener_of = listener_of
        self._tracked: dict[str, TrackedNamespace] = {}
        self._listeners: list[RemoteListener] = []
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def get(self, local: str) -> TrackedNamespace:
        """Return what is remembered of a namespace; of an unknown one nothing, and nothing is kept."""
        return self._tracked.get(local) or TrackedNamespace()

    def track(self, local: str) -> TrackedNamespace:
        """Return what is remembered of a namespace, to be changed."""
        return self._tracked.setdefault(local, TrackedNamespace())

    def use_client(self, lender: Client | None) -> bool:
        """End all watches if the lender is watched through another client now (None: none); return whether it is."""
        if lender is self.lender:
            return False
        self.lender = lender
        for local in list(self._tracked):
            self.unwatch(local)
        return True

    def watch(self, local: str, name: str) -> None:
        """Watch the remote namespace of that name, unless it is watched or there is no client."""
        tracked = self.track(local)
        if self.lender is None or (tracked.remote is not None and tracked.remote.namespace == name):
            return
        self.unwatch(local)
        tracked.remote = RemoteNamespace(self._clock, self.lender, name, self._context, self._listener_of(local))
        tracked.remote.setServiceParent(self)
        tracked.left = False
        self._notify(local, tracked.remote)

    def unwatch(self, local: str) -> None:
        """End the watches of a namespace."""
        tracked = self._tracked.get(local)
        if tracked is None or tracked.remote is None:
            return
        remote, tracked.remote = tracked.remote, None
        self._notify(local, None)
        self._tasks.spawn(stopped(remote), f"closing the watches of {remote.namespace}")

    def forget(self, local: str) -> None:
        """End the watches of a namespace, and remember nothing of it."""
        self.unwatch(local)
        self._tracked.pop(local, None)

    def subscribe(self, listener: RemoteListener) -> Callable[[], None]:
        """Call ``listener(local, remote)`` for each namespace that is or becomes watched, with None when that ends.

        Return a function that unsubscribes.
        """
        for local, tracked in self._tracked.items():
            if tracked.remote is not None:
                listener(local, tracked.remote)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def count_shadows(self) -> int:
        """Return the number of our ShadowPods."""
        return sum(tracked.remote.shadows for tracked in self._tracked.values() if tracked.remote is not None)

    def pods(self) -> Iterator[Key]:
        """Yield the home keys of all that is ours: ShadowPods and pods of any node."""
        for local, tracked in self._tracked.items():
            if tracked.remote is not None and tracked.remote.synced:
                yield from (Key(local, name) for name in tracked.remote.names())

    def _notify(self, local: str, remote: RemoteNamespace | None) -> None:
        for listener in tuple(self._listeners):
            listener(local, remote)
