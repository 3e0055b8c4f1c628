"""Records Events of the sandbox's controllers, scheduler and nodes; equal ones are counted."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kubesandbox.kinds.kinds import EVENTS, Json, Key
from kubesandbox.server.api import Api

MAX_EVENTS: Final = 5000
"""Maximum number of own events in the cluster; older ones are deleted (kube-apiserver: after ``--event-ttl``, 1 h)."""


class Recorder:
    """Writes core/v1 Events as one component."""

    def __init__(self, api: Api, component: str, host: str = "") -> None:
        self._api = api
        self._source = {"component": component, **({"host": host} if host else {})}
        self._known: OrderedDict[tuple[str, str, str], Key] = OrderedDict()

    def emit(self, about: Json, kind: str, reason: str, message: str) -> None:
        """Record an event about an object; ``kind`` is Normal or Warning."""
        metadata = about["metadata"]
        mark = (metadata["uid"], reason, message)
        now = self._api.now()
        key = self._known.get(mark)
        known = self._api.store.get(EVENTS, key) if key is not None else None
        if key is not None and known is not None:
            counted = {"count": known.object.get("count", 1) + 1, "lastTimestamp": now}
            self._api.store.put(EVENTS, key, known.object | counted)
            return
        namespace = metadata.get("namespace", "default")
        event = self._api.catalog.builtin(EVENTS)
        body = {
            "metadata": {},
            "involvedObject": {
                "kind": about["kind"],
                "namespace": metadata.get("namespace", ""),
                "name": metadata["name"],
                "uid": metadata["uid"],
                "apiVersion": about["apiVersion"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "reason": reason,
            "message": message,
            "source": self._source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": kind,
            "eventTime": None,
            "reportingComponent": self._source["component"],
            "reportingInstance": self._source.get("host", ""),
        }
        key = Key(namespace, f"{metadata['name']}.{self._api.suffix(16)}")
        self._api.put_system(event, key, body)
        self._known[mark] = key
        if len(self._known) > MAX_EVENTS:
            _, oldest = self._known.popitem(last=False)
            self._api.store.remove(EVENTS, oldest)
