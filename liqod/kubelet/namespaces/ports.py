"""What the controller of namespaces needs from other parts of the kubelet, as interfaces."""

from __future__ import annotations

from typing import Protocol

from liqod.model.ids import Key


class PodQueue(Protocol):
    """The queue of the controller of these namespaces' pods (``pods.controller.PodController``)."""

    def enqueue(self, key: Key) -> None:
        """Enqueue a pod, because its namespace or its remote pod changed."""
        ...

    def retry_postponed(self) -> None:
        """Enqueue the pods that wait until the lender's objects are observed again."""
        ...


class NoPodQueue:
    """Null object: ignores all pods."""

    def enqueue(self, key: Key) -> None:
        """Do nothing."""

    def retry_postponed(self) -> None:
        """Do nothing."""


class OtherNodes(Protocol):
    """The other virtual nodes of the same lender, which use the same natting table and remote namespaces."""

    def exist(self) -> bool:
        """Return whether there is another virtual node that does not leave."""
        ...

    def use(self, local: str) -> bool:
        """Return whether another one offloads a namespace or has pods in it; True while this is not known."""
        ...

    def leave(self) -> None:
        """Note that this node is removed and leaves to the others what they share: they count it no more."""
        ...
