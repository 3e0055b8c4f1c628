"""What the API needs to know about virtual nodes: which pods are theirs, and where those run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import frozen

from liqod.kube.client import Client
from liqod.kubelet.common.views import HomePod
from liqod.model.ids import Key


@frozen
class Route:
    """The way to a pod: its virtual node, a client of the lender's API server (None: no access), the namespace there
    ("": there is none), and the home pod's UID.
    """

    node: str
    client: Client | None
    namespace: str
    uid: str = ""


@frozen
class Lender:
    """A virtual node: its name, a client of the lender's API server (None: no access), and the namespaces there by
    their names here.
    """

    node: str
    client: Client | None
    namespaces: Mapping[str, str]


class Nodes(Protocol):
    """The virtual nodes of this daemon."""

    def route(self, pod: Key) -> Route | None:
        """Return the way to a pod; None when it is on none of our nodes."""
        ...

    def pods(self) -> Iterable[HomePod]:
        """Return all pods on our nodes."""
        ...

    def lenders(self) -> Iterable[Lender]:
        """Return all nodes."""
        ...
