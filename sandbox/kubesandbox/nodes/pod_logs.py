"""Logs of simulated containers and their readers (``pods/log``, with ``follow``)."""

from __future__ import annotations

import datetime
from collections import deque
from typing import Final

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.web.server import Request

from kubesandbox.kinds import statuses
from kubesandbox.kinds.kinds import PODS, Json, Key
from kubesandbox.nodes.pod_status import Running
from kubesandbox.server.api import Api

MAX_LINES: Final = 1000
"""Maximum lines kept per container; older ones are dropped, as by log rotation."""


@attrs.define(eq=False)
class _Log:
    lines: deque[tuple[float, str]] = attrs.field(factory=lambda: deque(maxlen=MAX_LINES))
    readers: list[_Reader] = attrs.field(factory=list)
    over: bool = False


@attrs.define(eq=False)
class _Reader:
    request: Request
    timestamps: bool

    def send(self, at: float, text: str) -> None:
        self.request.write(_line(at, text, self.timestamps))


class PodLogs:
    """The logs of all simulated pods."""

    def __init__(self, api: Api, clock: IReactorTime) -> None:
        self._api = api
        self._clock = clock
        self._logs: dict[str, dict[str, _Log]] = {}
        self._due: dict[str, list[IDelayedCall]] = {}

    def started(self, pod: Json, node: str, running: Running, now: float) -> None:
        """Start (or continue) the logs of a pod that starts now."""
        uid = pod["metadata"]["uid"]
        for name, play in running.plays.items():
            log = self._logs.setdefault(uid, {}).setdefault(name, _Log())
            log.over = False
            if not play.lines:
                self.print(uid, name, f"{name} started on {node}", now)
            for delay, text in play.lines:
                if delay <= 0:
                    self.print(uid, name, text, now)
                else:
                    due = self._clock.callLater(delay, self.print, uid, name, text)
                    self._due.setdefault(uid, []).append(due)

    def print(self, uid: str, container: str, text: str, now: float | None = None) -> None:
        """Add a line to a container's log."""
        log = self._logs.get(uid, {}).get(container)
        if log is None or log.over:
            return
        at = self._api.wall() if now is None else now
        log.lines.append((at, text))
        for reader in log.readers:
            reader.send(at, text)

    def ended(self, uid: str) -> None:
        """End the logs of a pod and the responses that follow them."""
        self._cancel(uid)
        for log in self._logs.get(uid, {}).values():
            log.over = True
            readers, log.readers = log.readers, []
            for reader in readers:
                reader.request.finish()

    def stop(self) -> None:
        """Print nothing any more of what containers were to print later."""
        for uid in tuple(self._due):
            self._cancel(uid)

    def _cancel(self, uid: str) -> None:
        for call in self._due.pop(uid, ()):
            if call.active():
                call.cancel()

    def forget(self, uid: str) -> None:
        """Drop the logs of a deleted pod."""
        self.ended(uid)
        self._logs.pop(uid, None)

    def read(self, request: Request, key: Key, query: dict[str, str]) -> None:
        """Answer a request for a pod's log; raises ApiStatus."""
        found = self._api.store.get(PODS, key)
        if found is None:
            raise statuses.not_found(PODS, key.name)
        pod = found.object
        container = _container(pod, key, query.get("container", ""))
        log = self._logs.get(pod["metadata"]["uid"], {}).get(container)
        if log is None:
            if not pod["spec"].get("nodeName"):
                # Like kube-apiserver: without a node there is no kubelet to ask.
                request.setHeader("content-type", "text/plain")
                request.finish()
                return
            raise statuses.bad_request(
                f'container "{container}" in pod "{key.name}" is waiting to start: ContainerCreating'
            )
        timestamps = query.get("timestamps") in ("1", "true")
        lines = list(log.lines)
        if query.get("tailLines", "").isdigit():
            count = int(query["tailLines"])
            lines = lines[-count:] if count else []
        if query.get("sinceSeconds", "").isdigit():
            since = self._api.wall() - int(query["sinceSeconds"])
            lines = [each for each in lines if each[0] >= since]
        request.setResponseCode(200)
        request.setHeader("content-type", "text/plain")
        request.write(b"".join(_line(at, text, timestamps) for at, text in lines))
        if query.get("follow") not in ("1", "true") or log.over:
            request.finish()
            return
        reader = _Reader(request, timestamps)
        log.readers.append(reader)

        def gone(_: object) -> None:
            if reader in log.readers:
                log.readers.remove(reader)

        request.notifyFinish().addBoth(gone)


def _container(pod: Json, key: Key, asked: str) -> str:
    names = [each["name"] for each in pod["spec"]["containers"]]
    initial = [each["name"] for each in pod["spec"].get("initContainers") or ()]
    if asked and asked not in names:
        raise statuses.bad_request(f"container {asked} is not valid for pod {key.name}")
    if not asked and len(names) > 1:
        hint = f" or one of the init containers: [{' '.join(initial)}]" if initial else ""
        message = f"a container name must be specified for pod {key.name}, choose one of: [{' '.join(names)}]{hint}"
        raise statuses.bad_request(message)
    return asked or str(names[0])


def _line(at: float, text: str, timestamps: bool) -> bytes:
    prefix = ""
    if timestamps:
        prefix = datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z ")
    return f"{prefix}{text}\n".encode()
