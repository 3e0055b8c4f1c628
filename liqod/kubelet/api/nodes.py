"""The interface of virtual nodes for their API: the pods on them, and where those run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import field, frozen

from liqod.kube.client import Client
from liqod.kubelet.common.meta import home_uid
from liqod.kubelet.common.views import HomePod, RemotePod
from liqod.model.ids import Key


@frozen
class PodRoute:
    """The route to a pod.

    ``node``: its virtual node. ``client``: a client of the lender's API server (None: no access). ``namespace``: the
    remote one (empty: none). ``uid``: the home pod's. ``there``: whether the lender's pod of that name is this one's
    (``is_there``).
    """

    node: str
    client: Client | None
    namespace: str
    uid: str = ""
    there: bool | None = field(kw_only=True)


def is_there(uid: str, namesake: RemotePod | None, *, known: bool) -> bool | None:
    """Return whether the lender runs the home pod with a UID, and not a predecessor or a stranger of its name; pure.

    ``namesake``: our pod of that name at the lender, as last seen. None while it is not ``known`` what the lender has.
    """
    if namesake is not None and home_uid(namesake.metadata) in ("", uid):
        return True
    return False if known else None


@frozen
class NodeAccess:
    """The way to the pods of one virtual node.

    ``node``: its name. ``client``: a client of the lender's API server (None: no access). ``namespaces``: the remote
    ones by local name.
    """

    node: str
    client: Client | None
    namespaces: Mapping[str, str]


class Ports(Protocol):
    """The ports of virtual nodes (``api.node_ports.NodePorts``)."""

    def node_at(self, port: int) -> str:
        """Return the node that a port belongs to; empty if it is no node's own."""
        ...


class NoPorts:
    """Null object: no node has a port of its own."""

    def node_at(self, port: int) -> str:
        """Return an empty string."""
        return ""


class Nodes(Protocol):
    """The virtual nodes of this daemon."""

    def route(self, pod: Key) -> PodRoute | None:
        """Return the route to a pod; None if it is on none of our nodes."""
        ...

    def pods(self, node: str = "") -> Iterable[HomePod]:
        """Return the pods on a node; empty: on all our nodes."""
        ...

    def accesses(self) -> Iterable[NodeAccess]:
        """Return the ways to the pods of all virtual nodes."""
        ...
