"""Finds out which kinds both clusters serve, of those that not every API server has, for each offloaded namespace.

An API server answers 404 to a list of a kind that it does not serve, in whatever namespace, and 403 where it may not
be listed: a lender of an older release grants no right to it. A definition may come later, so that what is lacking is
asked for again. One that goes later is no matter here: its cache says so, and what is not seen is not deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from attrs import Factory, define
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe
from liqod.kube.client import Client
from liqod.kube.errors import Forbidden, KubeError, NotFound
from liqod.kube.resources import Resource
from liqod.kubelet.common.refusals import SETTLING_TIME
from liqod.kubelet.lender.health import LenderHealth
from liqod.model.objects.meta import Object

LOOKED_AT: Final = 300.0
"""Seconds until a kind is asked for again that was not served."""
UNANSWERED: Final = 15.0
"""Seconds until it is asked for again where there was no answer."""

Answer = Literal["", "not served", "not granted", "unknown"]
"""What an API server says of a kind; empty: it serves it."""


@define
class _Namespace:
    """A namespace at the lender, and the kinds of which ``found`` was notified."""

    there: Client
    remote: str
    found: Callable[[Resource], None]
    since: float
    """Since when it is followed, which is soon after it was granted (seconds of the reactor's clock)."""
    known: set[Resource] = Factory(set)


class ServedKinds(Controller[str]):
    """Reconciles each namespace, by its name at home, with the kinds that both sides serve.

    An absence that one namespace found out holds for all of them until it is asked for again. What is lacking is logged
    once for a kind and a side. A lender that does not answer is asked nothing: its health says when it does.
    """

    name = "served kinds"
    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        home: Client,
        kinds: Sequence[Resource],
        *,
        health: LenderHealth,
        lender: str,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, subject=f"of {lender}", metrics=metrics)
        self._home = home
        self._kinds = tuple(kinds)
        self._health = health
        self._lender = lender
        self._namespaces: dict[str, _Namespace] = {}
        self._absent: dict[tuple[str, Resource], float] = {}
        self._said: dict[Resource, str] = {}

    def sources(self) -> Iterable[Source[str]]:
        yield observe(self._health.state, lambda _: list(self._namespaces) if self._health.ok else [])

    def follow(self, local: str, there: Client, remote: str, found: Callable[[Resource], None]) -> None:
        """Call ``found`` with each kind that this cluster serves in a namespace and the lender in another, once."""
        if self._kinds:
            self._namespaces[local] = _Namespace(there, remote, found, self.clock.seconds())
            self.enqueue(local)

    def forget(self, local: str) -> None:
        """Do not follow a namespace any longer."""
        self._namespaces.pop(local, None)

    async def reconcile(self, key: str) -> After | None:
        """Ask both sides for what is not known to be served in a namespace."""
        followed = self._namespaces.get(key)
        if followed is None or not self._health.ok:
            return None
        again: list[float] = []
        for kind in self._kinds:
            if kind in followed.known:
                continue
            lacks = await self._lacks(kind, key, followed)
            if self._namespaces.get(key) is not followed:
                return None
            if lacks == "unknown":
                again.append(UNANSWERED)
            elif lacks:
                self._say(kind, lacks)
                again.append(LOOKED_AT)
            else:
                self._said.pop(kind, None)
                followed.known.add(kind)
                followed.found(kind)
        return After(min(again)) if again else None

    async def _lacks(self, kind: Resource, local: str, followed: _Namespace) -> str:
        """Return which side lacks a kind and why; empty where both serve it, ``unknown`` where one has no answer."""
        for side, client, namespace in (("home", self._home, local), ("lender", followed.there, followed.remote)):
            answer = await self._ask(side, client, kind, namespace)
            if side == "lender" and answer == "not granted" and self.clock.seconds() - followed.since < SETTLING_TIME:
                # The grant of the namespace may have had no effect yet (``common.refusals``).
                return "unknown"
            if answer == "unknown":
                return answer
            if answer:
                where = "this cluster" if side == "home" else "the lender"
                return f"by {where} it is {answer}"
        return ""

    async def _ask(self, side: str, client: Client, kind: Resource, namespace: str) -> Answer:
        since = self._absent.get((side, kind))
        if since is not None and self.clock.seconds() - since < LOOKED_AT:
            return "not served"
        try:
            await client.page(kind, namespace, Object, limit=1)
        except NotFound:
            self._absent[side, kind] = self.clock.seconds()
            return "not served"
        except Forbidden:
            return "not granted"
        except KubeError:
            return "unknown"
        self._absent.pop((side, kind), None)
        return ""

    def _say(self, kind: Resource, why: str) -> None:
        if self._said.get(kind) != why:
            self._said[kind] = why
            self._log.info(
                "{kind} are not reflected to {peer}: {detail}", kind=str(kind), peer=self._lender, detail=why
            )
