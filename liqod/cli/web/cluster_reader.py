"""Reads the cluster for the page: once for everybody who looks, and only while somebody does."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Session
from liqod.cli.status.cluster_records import BoundedReading
from liqod.cli.status.first_screen import FirstScreen, first_screen
from liqod.cli.status.whoami import own_cluster
from liqod.cli.web.view import Snapshot
from liqod.flow.clocks import wall_clock
from liqod.flow.tasks import side_by_side
from liqod.kube.errors import Forbidden, KubeError
from liqod.kube.resources import EVENTS, PODS
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.diagnosis.problem import PEERINGS, WORKLOADS
from liqod.model.objects.pod import Pod
from liqod.model.timestamps import rfc3339

PACE: Final = 2.0
"""Seconds for which what was read is shown again, as ``status --watch`` waits."""
SHARE: Final = 4.0
"""A cluster that takes long to read is read less often: at most a fifth of the time goes to reading."""
TRIALS: Final = 30.0
"""Seconds for which it is shown what the API server gets through to, which takes it more than to be read."""


class ClusterReader:
    """The records as they were last read; ``read`` never runs twice at the same time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._records: Snapshot | None = None
        self._tried: FirstScreen | None = None
        self._try_at = float("-inf")
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
            self._records = await _snapshot(self._session, await self._screen())
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

    async def _screen(self) -> FirstScreen:
        """Return what ``status`` shows; what it tries is tried now and then, and shown until it is tried again."""
        before = self._tried
        if before is not None and self._session.reactor.seconds() < self._try_at:
            return (await first_screen(self._session, tries=False, counts=False)).with_trials_of(before)
        self._tried = await first_screen(self._session, counts=False)
        self._try_at = self._session.reactor.seconds() + TRIALS
        return self._tried


async def _snapshot(session: Session, screen: FirstScreen) -> Snapshot:
    """Return what the page shows; what the user may not read, and what is not given in time, is left out."""
    bounded = BoundedReading(session)

    async def within(about: tuple[str, str], reading: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await bounded.within(about, reading, raises=(Forbidden,))
        except Forbidden:
            return None  # Who may not see it need not read that each time.

    home, pods, events = await side_by_side(
        [
            within((PEERINGS, "the name of this cluster"), _home(session)),
            within((WORKLOADS, "the pods on virtual nodes"), _pods(session, screen.facts)),
            within((PEERINGS, "events"), _events(session)),
        ]
    )
    return Snapshot(
        home=home or "this cluster",
        facts=screen.facts,
        pods=pods or {},
        events=events or (),
        unread=(*screen.unread, *bounded.unread),
    )


async def _home(session: Session) -> str:
    return session.settings.cluster.name or (await own_cluster(session)).cluster_id


async def _pods(session: Session, facts: ClusterRecords) -> Mapping[str, Sequence[Pod]]:
    names = [node.metadata.name for node in facts.nodes]
    found = await side_by_side(session.client.list(PODS, view=Pod, fields=f"spec.nodeName={name}") for name in names)
    return {name: listing.items for name, listing in zip(names, found, strict=True)}


async def _events(session: Session) -> list[dict[str, Any]]:
    # Events about objects without a namespace are in "default" (Kubernetes, validation of events).
    fields = "involvedObject.kind=ForeignCluster"
    found: list[dict[str, Any]] = (await session.client.list(EVENTS, "default", fields=fields)).items
    return found
