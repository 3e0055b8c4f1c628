"""What the virtual kubelet sees of the objects it watches: views that stay small with ten thousand pods in the cache.

``spec`` and ``status`` of pods are kept as the bytes that came, cut out of the watch line they arrived in, and decoded
when something must be decided about that pod.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from liqod.kubelet.common.status_limits import LONGEST, limited
from liqod.model.objects.meta import Object, View

_EMPTY = msgspec.Raw(b"{}")
FINISHED: Final = ("Succeeded", "Failed")
"""Phases of a pod that has ended."""


def decoded(raw: msgspec.Raw) -> dict[str, Any]:
    """Return a raw JSON object as a dict; an absent or null one is an empty dict."""
    return cast("dict[str, Any]", msgspec.json.decode(raw) or {})


class HomePod(Object, frozen=True):
    """A pod of the home cluster that was scheduled on the virtual node."""

    spec: msgspec.Raw = _EMPTY
    status: msgspec.Raw = _EMPTY

    def __post_init__(self) -> None:
        # A Raw refers to the buffer it was decoded from: copying lets go of the rest (managedFields above all).
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())
        msgspec.structs.force_setattr(self, "status", self.status.copy())


class RemotePod(Object, frozen=True):
    """The pod that the lender runs for a ShadowPod; its spec is the lender's business.

    Of a status that is longer than any kubelet's only the short parts are kept.
    """

    status: msgspec.Raw = _EMPTY

    def __post_init__(self) -> None:
        status = self.status.copy()
        if memoryview(status).nbytes > LONGEST:
            said = msgspec.json.decode(status)
            status = msgspec.Raw(msgspec.json.encode(limited(said if isinstance(said, dict) else {})))
        msgspec.structs.force_setattr(self, "status", status)


class ShadowStatus(View, frozen=True):
    """What the lender said to a ShadowPod: a refusal, or how a pod that is gone ended."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class Shadow(Object, frozen=True):
    """A ShadowPod without its spec: a digest in its annotations tells whether it is up to date."""

    status: ShadowStatus = ShadowStatus()


class Taint(View, frozen=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: str = ""


class NodeSpec(View, frozen=True):
    """The part of a node's spec that the virtual kubelet keeps."""

    taints: list[Taint] = []
    unschedulable: bool = False


class Node(Object, frozen=True):
    """A node; its status is compared as plain JSON."""

    spec: NodeSpec = NodeSpec()
    status: dict[str, Any] = {}


class Namespace(Object, frozen=True):
    """A namespace, of which only the metadata matters."""


class Secret(Object, frozen=True):
    """A secret; ``data`` is base64 as it travels. It never shows in ``repr``."""

    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, {len(self.data)} keys)"
