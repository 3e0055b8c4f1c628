"""The interfaces that virtual kubelets need from other features."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from twisted.internet.interfaces import IStreamClientEndpoint

from liqod.model.ids import ClusterID


class NamespaceGrants(Protocol):
    """Requests and releases namespaces at a lender; both are idempotent and raise Refusal or PeerUnreachable."""

    def map_namespace(self, peer: ClusterID, local: str, remote: str) -> Coroutine[Any, Any, str]:
        """Request the namespace ``remote`` of a lender for our ``local``; return its name there."""
        ...

    def release_namespace(self, peer: ClusterID, remote: str) -> Coroutine[Any, Any, None]:
        """Release a namespace; the lender deletes it with all its objects."""
        ...


class Lenders(NamespaceGrants, Protocol):
    """The lenders, as implemented by ``peering.service.Peering``."""

    def relay_of(self, peer: ClusterID) -> IStreamClientEndpoint | None:
        """Return the endpoint of a lender's API relay; None without one."""
        ...

    def peer_answered(self, peer: ClusterID) -> None:
        """Notify that the API server of a lender answers, so that its daemon is dialled at once."""
        ...


class Recorder(Protocol):
    """Records Kubernetes Events (``kube.events.EventRecorder``)."""

    def emit(self, regarding: Mapping[str, Any], type: str, reason: str, message: str) -> None:
        """Record an event about an object; returns at once and never raises."""
        ...
