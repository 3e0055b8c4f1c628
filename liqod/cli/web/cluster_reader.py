"""Reads the cluster for the page: once for everybody who looks, and only while somebody does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Session
from liqod.cli.status.first_screen import first_screen
from liqod.cli.status.whoami import own_cluster
from liqod.cli.web.view import Snapshot
from liqod.flow.clocks import wall_clock
from liqod.kube.errors import Forbidden, KubeError
from liqod.kube.resources import EVENTS, PODS
from liqod.model.objects.pod import Pod
from liqod.model.timestamps import rfc3339

PACE: Final = 2.0
"""Seconds for which what was read is shown again, as ``status --watch`` waits."""
SHARE: Final = 4.0
"""A cluster that takes long to read is read less often: at most a fifth of the time goes to reading."""


class ClusterReader:
    """The records as they were last read; ``read`` never runs twice at the same time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._records: Snapshot | None = None
        self._seen = ""
        self._trouble: CliError | None = None
        self._due = float("-inf")
        self._reading: list[Deferred[None]] | None = None

    async def read(self) -> tuple[Snapshot, str]:
        """Return the records, and why they are out of date (empty: they are not).

        Raises CliError while they could never be read.
        """
        if self._reading is not None:
            waiting: Deferred[None] = Deferred()
            self._reading.append(waiting)
            await waiting
        elif self._session.reactor.seconds() >= self._due:
            await self._read()
        if self._records is None:
            raise self._trouble or CliError(errors.DEFECT, "nothing was read")
        if self._trouble is None:
            return self._records, ""
        why = f"{self._trouble.code}: {self._trouble.message}; {self._trouble.hint}"
        return self._records, f"This is the state of {self._seen}. {why}"

    async def _read(self) -> None:
        self._reading = []
        begun = self._session.reactor.seconds()
        try:
            self._records = await _records(self._session)
            self._seen = rfc3339(wall_clock(self._session.reactor)())
            self._trouble = None
        except KubeError as error:
            self._trouble = errors.from_kube(error, self._session.client.config.server)
        finally:
            now = self._session.reactor.seconds()
            # The time after which an API server counts as silent costs it nothing.
            self._due = now + (PACE if self._trouble is not None else max(PACE, SHARE * (now - begun)))
            waiting, self._reading = self._reading, None
            for one in waiting:
                one.callback(None)


async def _records(session: Session) -> Snapshot:
    facts = (await first_screen(session, tries=False, counts=False)).facts
    pods: dict[str, Sequence[Pod]] = {}
    for node in facts.nodes:
        name = node.metadata.name
        pods[name] = (await session.client.list(PODS, view=Pod, fields=f"spec.nodeName={name}")).items
    return Snapshot(home=await _home(session), facts=facts, pods=pods, events=await _events(session))


async def _home(session: Session) -> str:
    if session.settings.cluster.name:
        return session.settings.cluster.name
    try:
        return (await own_cluster(session)).cluster_id
    except Forbidden:
        return "this cluster"


async def _events(session: Session) -> list[dict[str, Any]]:
    # Events about objects without a namespace are in "default" (Kubernetes, validation of events).
    try:
        fields = "involvedObject.kind=ForeignCluster"
        found: list[dict[str, Any]] = (await session.client.list(EVENTS, "default", fields=fields)).items
    except Forbidden:
        return []
    return found
