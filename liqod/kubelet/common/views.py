"""Views of the objects that the virtual kubelet watches, small enough for ten thousand pods in the cache.

``spec`` and ``status`` of pods are kept as undecoded JSON, copied from the watch event, and decoded when a decision
about that pod needs them.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from liqod.kubelet.common.status_limits import LONGEST, limited
from liqod.model.objects.meta import Object, View, from_json

_EMPTY = msgspec.Raw(b"{}")
"""Phases of a pod that has ended."""


def decoded(raw: msgspec.Raw) -> dict[str, Any]:
    """Return a raw JSON object as a dict; an absent or null one is an empty dict."""
    return cast("dict[str, Any]", from_json(raw) or {})


class HomePod(Object, frozen=True):
    """A pod of the home cluster that was scheduled on the virtual node."""

    spec: msgspec.Raw = _EMPTY
    status: msgspec.Raw = _EMPTY

    def __post_init__(self) -> None:
        # A Raw keeps the buffer it was decoded from alive: copying releases the rest (above all managedFields).
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())
        msgspec.structs.force_setattr(self, "status", self.status.copy())


class RemotePod(Object, frozen=True):
    """The pod that the lender runs for a ShadowPod, without its spec.

    A status longer than ``status_limits.LONGEST`` is reduced to the fields that decisions need.
    """

    status: msgspec.Raw = _EMPTY

    def __post_init__(self) -> None:
        status = self.status.copy()
        if memoryview(status).nbytes > LONGEST:
            content = from_json(status)
            status = msgspec.Raw(msgspec.json.encode(limited(content if isinstance(content, dict) else {})))
        msgspec.structs.force_setattr(self, "status", status)


class ShadowStatus(View, frozen=True):
    """The status that the lender writes to a ShadowPod: a refusal, or the final phase of a pod that is gone."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class Shadow(Object, frozen=True):
    """A ShadowPod without its spec; the digest in its annotations shows whether it is up to date."""

    status: ShadowStatus = ShadowStatus()


class Taint(View, frozen=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: str = ""


class NodeSpec(View, frozen=True):
    """The part of a node's spec that the virtual kubelet maintains."""

    taints: list[Taint] = []
    unschedulable: bool = False
    provider_id: str = msgspec.field(name="providerID", default="")


class Node(Object, frozen=True):
    """A node; its status is compared as plain JSON."""

    spec: NodeSpec = NodeSpec()
    status: dict[str, Any] = {}


class Namespace(Object, frozen=True):
    """A namespace, of which only the metadata matters."""


class Secret(Object, frozen=True):
    """A Secret; ``data`` is base64 as in the API. ``repr`` never shows it."""

    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, {len(self.data)} keys)"


def is_started(pod: HomePod) -> bool:
    """Return whether the home status shows that a pod was started at the lender."""
    status = decoded(pod.status)
    return status.get("phase", "Pending") != "Pending" or bool(status.get("startTime"))


def is_waiting(pod: HomePod | None) -> bool:
    """Return whether a pod waits for its kubelet: to be started or deleted; the other ones run, and need a look."""
    return pod is None or pod.metadata.deleting or not is_started(pod)
