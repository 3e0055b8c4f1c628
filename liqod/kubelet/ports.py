"""What virtual kubelets need from other features, as protocols."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from twisted.internet.interfaces import IStreamClientEndpoint

from liqod.model.ids import ClusterID


class NamespaceGrants(Protocol):
    """Where namespaces at a lender come from; both raise Refusal or PeerUnreachable, and may be repeated."""

    def map_namespace(self, peer: ClusterID, local: str, remote: str) -> Coroutine[Any, Any, str]:
        """Request the namespace ``remote`` of a lender for our ``local``; returns its name there."""
        ...

    def release_namespace(self, peer: ClusterID, remote: str) -> Coroutine[Any, Any, None]:
        """Release a namespace; the lender deletes it with all that is in it."""
        ...


class Lenders(NamespaceGrants, Protocol):
    """The lenders as peering knows them (``peering.service.Peering``)."""

    def relay_of(self, peer: ClusterID) -> IStreamClientEndpoint | None:
        """Return what connects to the API relay of a lender; None where there is none."""
        ...

    def peer_answered(self, peer: ClusterID) -> None:
        """Note that the API server of a lender answers: its daemon is worth dialling."""
        ...


class Recorder(Protocol):
    """Where events go (``kube.events.EventRecorder``)."""

    def emit(self, regarding: Mapping[str, Any], type: str, reason: str, message: str) -> None:
        """Record that something happened to an object; returns at once and never fails."""
        ...
