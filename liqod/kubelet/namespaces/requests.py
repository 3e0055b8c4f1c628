"""Requests the namespaces of one virtual node from its lender, releases them, and writes the answers down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.controller import After
from liqod.kube.errors import KubeError
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.messages import clean_message, clean_reason
from liqod.kubelet.common.naming import usable_answer
from liqod.kubelet.common.refusals import Attempts, Meaning
from liqod.kubelet.namespaces import plan
from liqod.kubelet.namespaces.natting_table import NattingTable
from liqod.kubelet.namespaces.watched import WatchedNamespaces
from liqod.kubelet.ports import NamespaceGrants
from liqod.model.records.offer import PeerUnreachable, Refusal
from liqod.model.records.views import MappingStatus

NOT_RELEASED: Final = "the virtual node was removed before the lender released the namespace"


class NamespaceRequests:
    """Requests and releases at one lender; ``wrote(local)`` is called after the status of a mapping was written."""

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        context: Context,
        *,
        grants: NamespaceGrants,
        table: NattingTable,
        watched: WatchedNamespaces,
        wrote: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._context = context
        self._grants = grants
        self._table = table
        self._watched = watched
        self._wrote = wrote

    async def request(self, local: str, remote: str) -> After | None:
        """Request a namespace of the lender and write the answer to the natting table.

        Raises PeerUnreachable, and KubeError.
        """
        tracked = self._watched.track(local)
        tracked.unanswered += 1
        try:
            answer = await self._grants.map_namespace(self._context.lender, local, remote)
        except Refusal as refusal:
            reason = clean_reason(refusal.reason, "Refused")
            return await self._refused(local, reason, clean_message(refusal.message))
        except PeerUnreachable as error:
            if tracked.remote is None:
                await self._write_status(local, plan.PENDING, "PeerUnreachable", clean_message(str(error)))
            raise
        if answer != remote:
            if not usable_answer(answer, local, self._table.reverse):
                message = f"the lender answered with the namespace {answer[:80]!r}, which cannot be used"
                return await self._refused(local, "BadNamespace", clean_message(message))
            await self._table.write(local, answer)
        if tracked.request_again and not (tracked.remote is not None and tracked.remote.is_watched):
            self._watched.unwatch(local)
        tracked.request_again, tracked.unanswered, tracked.attempts = False, 0, Attempts()
        tracked.release_at = 0.0
        await self._write_status(local, plan.READY, "", "")
        self._watched.watch(local, answer)
        return None

    async def release(self, local: str, remote: str) -> After | None:
        """Release a namespace and remove its mapping; return when to try again, None once it is released.

        Raises PeerUnreachable, and KubeError.
        """
        self._watched.unwatch(local)
        tracked = self._watched.track(local)
        if (left := tracked.release_at - self._clock.seconds()) > 0:
            # Writing the refusal into the table enqueued the namespace; the back-off still applies.
            return After(left)
        try:
            await self._ask_release(remote)
        except PeerUnreachable as error:
            await self._write_status(local, plan.RELEASING, "PeerUnreachable", clean_message(str(error)))
            raise
        except Refusal as refusal:
            delay = tracked.attempts.delay(Meaning.REFUSED)
            tracked.release_at = self._clock.seconds() + delay
            reason = clean_reason(refusal.reason, "Refused")
            await self._write_status(local, plan.RELEASING, reason, clean_message(refusal.message))
            return After(delay)
        await self._table.remove(local)
        return None

    async def release_all(self, deadline: float) -> bool:
        """Release all namespaces, best effort, until ``deadline`` (reactor's clock); return whether none is left."""
        for local, remote in dict(self._table.forward).items():
            self._watched.unwatch(local)
            left = deadline - self._clock.seconds()
            if left <= 0:
                break
            releasing = Deferred.fromCoroutine(self._ask_release(remote))
            try:
                await releasing.addTimeout(left, self._clock)
                await self._table.remove(local)
            except (Refusal, PeerUnreachable, KubeError, DeferredTimeout) as error:
                self._log.warn(
                    "the namespace {remote_namespace} was not released: {error}",
                    remote_namespace=remote,
                    error=str(error),
                )
        return not self._table.forward

    async def note_unreleased(self) -> None:
        """Write that all namespaces that are left are to be released; raises KubeError."""
        for local in dict(self._table.forward):
            status = self._table.status(local)
            if status is None or status.phase != plan.RELEASING:
                await self._write_status(local, plan.RELEASING, "PeerUnreachable", NOT_RELEASED)

    def pending_reasons(self) -> Iterator[str]:
        """Yield a message for each mapped namespace that is not ready."""
        for local in sorted(self._table.forward):
            status = self._table.status(local)
            if status is not None and status.phase != plan.READY:
                yield f"{local}: {status.message or status.phase}"

    async def _refused(self, local: str, reason: str, message: str) -> After:
        await self._write_status(local, plan.REFUSED, reason, message)
        return After(self._watched.track(local).attempts.delay(Meaning.REFUSED))

    async def _ask_release(self, remote: str) -> None:
        """Have the lender release a namespace; a refusal after which nothing of ours is left there is as good.

        Raises PeerUnreachable, and any other Refusal.
        """
        try:
            await self._grants.release_namespace(self._context.lender, remote)
        except Refusal as refusal:
            self._log.warn(
                "{peer} does not release the namespace {remote_namespace}: {error}",
                peer=str(self._context.lender),
                remote_namespace=remote,
                error=clean_message(str(refusal)),
            )
            if refusal.reason not in plan.FINAL:
                raise

    async def _write_status(self, local: str, phase: str, reason: str, message: str) -> None:
        await self._table.write_status(local, MappingStatus(phase=phase, reason=reason, message=message))
        self._wrote(local)
