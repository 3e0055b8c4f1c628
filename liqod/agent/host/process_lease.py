"""The Lease by which others see this process: that it runs, what it does, and why it cannot work.

It is written by every process of the daemon but that of names, whose own Lease says as much: by those that lead, stand
by, or wait for something. What leads or serves tenants does not depend on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.clocks import WallClock, utc_now
from liqod.flow.errors import is_expected
from liqod.flow.tasks import Loop
from liqod.flow.timer import Timer
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import LEASES
from liqod.model.diagnosis.processes import DURATION, RENEW, ProcessState, lease_name
from liqod.model.names import PROCESS_ANNOTATION, PROCESS_LABEL
from liqod.model.timestamps import rfc3339_micro

SOON: Final = 1.0
"""Seconds from a change of the state until it is written."""
RELEASE: Final = 2.0
"""Seconds that the last write may take."""


class ProcessLease(Loop):
    """Renews the Lease of a process, at once when its state changes, and lets go of it in the end.

    ``connect`` makes a client, None while it is not known how to reach the API server, and may fail as long as the
    process cannot work; ``describe`` returns the state as it is now. ``identity`` returns the name of the process as a
    candidate. ``environ`` names the pod of the process, with which the Lease goes.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        connect: Callable[[], Client | None],
        *,
        namespace: str,
        identity: Callable[[], str],
        describe: Callable[[], ProcessState],
        wall: WallClock = utc_now,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._connect = connect
        self._namespace = namespace
        self._identity = identity
        self._describe = describe
        self._wall = wall
        self._owners = _owners(environ)
        self._client: Client | None = None
        self._name = ""
        self._timer = Timer(clock)
        self._clock = clock
        self._pausing: Deferred[None] | None = None
        self._is_changed = False
        self._trouble = ""

    def changed(self) -> None:
        """Write the state soon, as it is no longer the one that was written."""
        self._is_changed = True
        if self._pausing is not None:
            self._timer.start_if_earlier(SOON, self._go_on)

    def failed(self, failure: Failure) -> None:
        """Log what ended the renewals."""
        self._log.failure("the lease of this process is not renewed any more", failure)

    async def work(self) -> None:
        """Write the Lease now and again."""
        while self.running:
            self._is_changed = False
            await self._renew()
            pausing: Deferred[None] = Deferred()
            self._pausing = pausing
            self._timer.start(SOON if self._is_changed else RENEW, self._go_on)
            try:
                await pausing
            finally:
                self._pausing = None
                self._timer.cancel()

    def _go_on(self) -> None:
        pausing, self._pausing = self._pausing, None
        if pausing is not None:
            pausing.callback(None)

    async def _renew(self) -> None:
        try:
            state = self._describe()
            self._name = lease_name(state.role, state.host)
            await self._write(self._body(state, self._identity()))
            self._trouble = ""
        except CancelledError:
            raise
        except Exception as error:
            self._note(error)
            # The kubeconfig is read again: it may have been mended.
            await self._disconnect()

    def _note(self, error: Exception) -> None:
        """Log why the Lease was not written, once while it stays the same; it is tried again in any case."""
        what = str(error) if is_expected(error) else f"{type(error).__name__}: {error}"
        if what != self._trouble:
            self._trouble = what
            if is_expected(error):
                self._log.info("the lease {name}: {error}", name=self._name, error=what)
            else:
                self._log.failure("the lease {name} was not written", name=self._name)

    def _body(self, state: ProcessState, holder: str) -> dict[str, Any]:
        return {
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {PROCESS_LABEL: state.role},
                "annotations": {PROCESS_ANNOTATION: msgspec.json.encode(state).decode()},
                **self._owners,
            },
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION,
                "renewTime": rfc3339_micro(self._wall()),
            },
        }

    async def _write(self, body: dict[str, Any]) -> None:
        if self._client is None:
            self._client = self._connect()
        if self._client is None:
            return
        try:
            await self._client.patch(LEASES, self._name, body, self._namespace, view=None)
        except NotFound:
            await self._client.create(LEASES, body, self._namespace, view=None)

    async def end(self) -> None:
        """Say that this process ended in order: nobody misses it then."""
        if self._client is not None and self._name and not self._trouble:
            body = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": rfc3339_micro(self._wall())}}
            last = Deferred.fromCoroutine(self._client.patch(LEASES, self._name, body, self._namespace, view=None))
            last.addTimeout(RELEASE, self._clock)
            try:
                await last
            except Exception as error:
                self._log.info("the lease {name} runs out by itself: {error}", name=self._name, error=str(error))
        await self._disconnect()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _owners(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata by which the Lease goes with its pod: each pod has another name; nothing outside of one."""
    name, uid = environ.get("POD_NAME", ""), environ.get("POD_UID", "")
    if not name or not uid:
        return {}
    return {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]}
