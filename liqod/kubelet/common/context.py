"""Where pods go: what every forge needs to know about the pair of clusters and the virtual node between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import field, frozen

from liqod.model.ids import ClusterID

ROOT_CA: Final = "kube-root-ca.crt"


def identity(address: str) -> str:
    """Return an address as it is: the mapping while no network fabric translates addresses."""
    return address


def never(address: str) -> bool:
    """Return that no address has to be claimed: while no network fabric translates addresses."""
    return False


def nothing(address: str) -> str:
    """Return that nothing is said against an address."""
    return ""


def no_families() -> frozenset[str]:
    """Return nothing: which IP versions the lender's pods have is not known."""
    return frozenset()


@frozen
class ApiServer:
    """Where the lender's pods reach the API server of the home cluster: addresses, or a DNS name; and the port."""

    addresses: tuple[str, ...]
    port: int
    name: str = ""


def no_api_server() -> ApiServer | None:
    """Return nothing: offloaded pods do not speak to the home cluster's API server."""
    return None


@frozen
class Context:
    """The home cluster, the lender, the virtual node, and what users excluded from reflection.

    ``node_address`` becomes the host IP of offloaded pods. ``map_address`` turns a pod's address at the lender into the
    one it is reached by from home, ``export_address`` an address at home into the one that it is reached by from the
    lender's pods; an empty answer means that it is not known yet. ``is_single`` tells of an address at home that it has
    to be claimed for that, ``objection`` why it will have none all the same. ``follows`` tells whether claims of a
    storage class (empty: the default one) follow their pods to the lender. ``api_server`` tells where offloaded pods
    reach the home cluster's API server; None where they are not to. ``families`` tells the IP versions of the lender's
    pods ("IPv4", "IPv6"), none while they are not known.
    """

    home: ClusterID
    lender: ClusterID
    node_name: str
    node_address: str = ""
    labels_not_reflected: frozenset[str] = frozenset()
    annotations_not_reflected: frozenset[str] = frozenset()
    map_address: Callable[[str], str] = field(default=identity, eq=False)
    export_address: Callable[[str], str] = field(default=identity, eq=False)
    is_single: Callable[[str], bool] = field(default=never, eq=False)
    objection: Callable[[str], str] = field(default=nothing, eq=False)
    follows: Callable[[str], bool] = field(default=never, eq=False)
    api_server: Callable[[], ApiServer | None] = field(default=no_api_server, eq=False)
    families: Callable[[], frozenset[str]] = field(default=no_families, eq=False)


def remote_root_ca(context: Context) -> str:
    """Return the name of our ``kube-root-ca.crt`` at the lender, which has one of its own."""
    short = str(context.home)[:5]
    return f"{ROOT_CA}.{short if short[-1:].isalnum() else short + 'a'}"
