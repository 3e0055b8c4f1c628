"""What virtual kubelets need from other features, as protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from liqod.model.ids import ClusterID


class NamespaceGrants(Protocol):
    """Where namespaces at a lender come from; both raise Refusal or PeerUnreachable."""

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> str:
        """Have the lender make the namespace ``remote`` for our ``local``; returns its name there. Idempotent."""
        ...

    async def release_namespace(self, peer: ClusterID, remote: str) -> None:
        """Give a namespace back; what is in it goes. Idempotent."""
        ...


class Recorder(Protocol):
    """Where events go (``kube.events.EventRecorder``)."""

    def emit(self, regarding: Mapping[str, Any], type: str, reason: str, message: str) -> None:
        """Record that something happened to an object; returns at once and never fails."""
        ...
