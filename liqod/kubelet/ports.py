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


class Exports(Protocol):
    """By which addresses the pods of a lender reach endpoints of this cluster (``fabric.exporting``)."""

    def seen(self, peer: ClusterID, address: str) -> str:
        """Return how the lender's pods reach an address; empty while (or because) they do not."""
        ...

    def is_single(self, peer: ClusterID, address: str) -> bool:
        """Tell whether an address is reached only where reflection claims it (``Kubelets.claims``)."""
        ...

    def objection(self, peer: ClusterID, address: str) -> str:
        """Return why an address that has to be claimed will not be reached, as the rest of a sentence; or nothing."""
        ...


class Unmapped:
    """Endpoints while nothing translates addresses: each is reached by its own."""

    def seen(self, peer: ClusterID, address: str) -> str:
        return address

    def is_single(self, peer: ClusterID, address: str) -> bool:
        return False

    def objection(self, peer: ClusterID, address: str) -> str:
        return ""


class Recorder(Protocol):
    """Where events go (``kube.events.EventRecorder``)."""

    def emit(self, regarding: Mapping[str, Any], type: str, reason: str, message: str) -> None:
        """Record that something happened to an object; returns at once and never fails."""
        ...
