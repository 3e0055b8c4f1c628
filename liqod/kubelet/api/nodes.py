"""The interface of virtual nodes for their API: the pods on them, and where those run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import frozen

from liqod.kube.client import Client
from liqod.kubelet.common.views import HomePod
from liqod.model.ids import Key


@frozen
class Route:
    """The route to a pod.

    ``node``: its virtual node. ``client``: a client of the lender's API server (None: no access). ``namespace``: the
    remote one (empty: none). ``uid``: the home pod's.
    """

    node: str
    client: Client | None
    namespace: str
    uid: str = ""


@frozen
class Lender:
    """A virtual node: its name, a client of the lender's API server (None: no access), and the remote namespaces by
    local name.
    """

    node: str
    client: Client | None
    namespaces: Mapping[str, str]


class Nodes(Protocol):
    """The virtual nodes of this daemon."""

    def route(self, pod: Key) -> Route | None:
        """Return the route to a pod; None if it is on none of our nodes."""
        ...

    def pods(self) -> Iterable[HomePod]:
        """Return all pods on our nodes."""
        ...

    def lenders(self) -> Iterable[Lender]:
        """Return all virtual nodes with their lenders."""
        ...
