"""The facts in an offer besides capacity: Kubernetes version, storage classes, ingress classes.

An offer waits a few seconds for them, is then sent without them, and a complete one follows. Classes come in the order
in which borrowers are to choose: the one that Kubernetes takes by default is the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.flow.backoff import Backoff
from liqod.flow.observe import Latest
from liqod.flow.tasks import Tasks, together
from liqod.flow.timer import Timer
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import KubeError
from liqod.kube.resources import INGRESSCLASSES, STORAGECLASSES
from liqod.model.names import PROVISIONER
from liqod.model.objects.meta import Object
from liqod.model.objects.storage_class import DEFAULT_INGRESS, StorageClass, default_class
from liqod.model.records.offer import MAX_CLASSES

PATIENCE: Final = 2.0
"""Seconds that the first offer waits for unknown facts."""
ASK_AGAIN: Final = Backoff(initial=5.0, cap=300.0)
"""Until the version is asked for again."""


@attrs.frozen
class OfferFacts:
    """The facts of an offer; empty where unknown."""

    version: str = ""
    storage_classes: tuple[str, ...] = ()
    ingress_classes: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()


class ClusterInfo:
    """Watches the classes and the version, for which it asks until it is known; ``state`` notifies of changes.

    ``granted`` are the storage classes that borrowers' claims may be of; empty: all that delete their volumes.
    ``granted_ingress`` are the classes that their ingresses may be of; empty: all.
    ``gateways`` are those that their routes may be of; empty: none.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: IReactorTime,
        tasks: Tasks,
        *,
        granted: Collection[str] = (),
        granted_ingress: Collection[str] = (),
        gateways: Collection[str] = (),
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._granted = granted
        self._granted_ingress = granted_ingress
        self._gateways = tuple(gateways)
        self.state: Latest[tuple[bool, OfferFacts]] = Latest((False, OfferFacts()))
        """``known`` and ``about()``, as of their last change."""
        self._storage: Informer[StorageClass] = informers.of(STORAGECLASSES, StorageClass)
        self._ingress: Informer[Object] = informers.of(INGRESSCLASSES, Object)
        self._version = client.version
        self._asked = False
        self._waited = False
        self._timer = Timer(clock)
        self._ends: list[Callable[[], None]] = []

    @property
    def known(self) -> bool:
        """Whether the first offer need not wait any longer."""
        return self._waited or (self._asked and self._storage.synced and self._ingress.synced)

    def about(self) -> OfferFacts:
        """Return the facts known now."""
        storage = _storage_classes(self._storage.items(), self._granted)
        ingress = _ingress_classes(self._ingress.items(), self._granted_ingress)
        return OfferFacts(self._version.known.value, storage, ingress, self._gateways)

    def start(self) -> None:
        """Subscribe to the informers, and request the version."""
        self._timer.start(PATIENCE, self._give_up_waiting)
        self._ends = [
            self._storage.subscribe(self._update),
            self._ingress.subscribe(self._update),
            self._version.known.subscribe(self._update),
        ]
        both = Deferred.fromCoroutine(together([self._storage.when_synced(), self._ingress.when_synced()]))
        both.addCallbacks(self._update, lambda _: None)
        self._tasks.spawn(self._ask(), "asking for the version of this cluster")

    def stop(self) -> None:
        """Unsubscribe."""
        for end in self._ends:
            end()
        self._ends = []
        self._timer.cancel()

    async def _ask(self) -> None:
        """Ask until the version is known; the first offer waits for the first answer only."""
        attempt = 0
        while not self._asked or not self._version.known.value:
            try:
                await self._version.get()
            except KubeError as error:
                if not attempt:
                    self._log.warn(
                        "the version of this cluster is not known, it is asked again: {error}", error=str(error)
                    )
            if self._version.known.value or not attempt:
                self._asked = True
                self._update()
            if not self._version.known.value:
                await deferLater(self._clock, ASK_AGAIN.delay(attempt))
                attempt += 1

    def _give_up_waiting(self) -> None:
        self._waited = True
        self._update()

    def _update(self, *_: object) -> None:
        self.state.set((self.known, self.about()))


def _storage_classes(classes: Iterable[StorageClass], granted: Collection[str]) -> tuple[str, ...]:
    """Return the names of the granted storage classes of this cluster itself, the default one first.

    One that keeps volumes is granted by its name only: they stay after their claims, and no quota counts them.
    """
    offered = [
        each
        for each in classes
        if each.provisioner != PROVISIONER
        and not each.metadata.deleting
        and (each.metadata.name in granted if granted else each.reclaim_policy != "Retain")
    ]
    return _ordered(offered, default_class(offered))


def _ingress_classes(classes: Iterable[Object], granted: Collection[str]) -> tuple[str, ...]:
    """Return the names of the granted ingress classes, the default one first."""
    offered = [
        each for each in classes if not each.metadata.deleting and (not granted or each.metadata.name in granted)
    ]
    return _ordered(offered, default_class(offered, DEFAULT_INGRESS))


def _ordered(offered: Iterable[Object], first: Object | None) -> tuple[str, ...]:
    names = sorted((each is not first, each.metadata.name) for each in offered)
    return tuple(name for _, name in names[:MAX_CLASSES])
