"""The context of forging: the two clusters, the virtual node, and the translation of addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from attrs import Factory, field, frozen

from liqod.flow.observe import Latest
from liqod.kubelet.common.egress import Egress
from liqod.kubelet.common.network import LenderNetwork, NoNetwork
from liqod.model.ids import ClusterID
from liqod.model.records.name_service import DEFAULT_DOMAIN
from liqod.model.records.offer import HomeStreamsGrant
from liqod.model.records.views import OffloadingPatch

ROOT_CA: Final = "kube-root-ca.crt"


@frozen
class ApiServer:
    """How the lender's pods reach the home API server: by addresses or a DNS name (``name``), and the port."""

    addresses: tuple[str, ...]
    port: int
    name: str = ""


class HomeServices(Protocol):
    """The services of the home cluster that offloaded pods use at a lender."""

    @property
    def api_addresses(self) -> Latest[Mapping[str, str]]:
        """The addresses at the lender, by home namespace, that lead to the home API server; empty: none there."""
        ...

    @property
    def streams(self) -> Latest[HomeStreamsGrant | None]:
        """The streams that lead there without a tunnel; None: there are none."""
        ...

    def knows_api_server(self, namespace: str) -> bool:
        """Return whether it is known where pods of a home namespace reach the home API server."""
        ...

    def api_server(self, namespace: str) -> ApiServer | None:
        """Return where pods of a home namespace reach the home API server; None if they get no tokens for it."""
        ...

    def follows(self, storage_class: str) -> bool:
        """Return whether claims of a storage class (empty: the default one) follow their pods to the lender."""
        ...


class NoHomeServices:
    """Null object: offloaded pods get neither tokens nor claims."""

    def __init__(self) -> None:
        self.api_addresses: Latest[Mapping[str, str]] = Latest({})
        self.streams: Latest[HomeStreamsGrant | None] = Latest(None)

    def knows_api_server(self, namespace: str) -> bool:
        """Return True: there is nothing to find out."""
        return True

    def api_server(self, namespace: str) -> ApiServer | None:
        """Return None."""
        return None

    def follows(self, storage_class: str) -> bool:
        """Return False."""
        return False


@frozen
class Context:
    """The home cluster, the lender, the virtual node, and the labels and annotations excluded from reflection.

    ``node_address`` becomes the host IP of offloaded pods; ``domain`` is the home cluster's own in DNS; ``patch`` is
    what the virtual node adds to its pods, and changes while it runs. ``neighbours`` are the names of the other virtual
    nodes of the lender, as label values; None while they are not known. ``policies`` says of a namespace at home
    whether the lender has its NetworkPolicies; a namespace is not in it while that is not known. ``settled`` are those
    whose Services and slices are at the lender. Both are the same for all virtual nodes of the lender. ``egress`` is
    what may leave home for the lender, ``offered`` the names of the resources in its offer; None while that is unknown.
    """

    home: ClusterID
    lender: ClusterID
    node_name: str
    node_address: str = ""
    domain: str = DEFAULT_DOMAIN
    labels_not_reflected: frozenset[str] = frozenset()
    annotations_not_reflected: frozenset[str] = frozenset()
    patch: Latest[OffloadingPatch] = field(factory=lambda: Latest(OffloadingPatch()), eq=False)
    neighbours: Latest[frozenset[str] | None] = field(factory=lambda: Latest(None), eq=False)
    policies: Latest[Mapping[str, bool]] = field(factory=lambda: Latest({}), eq=False)
    settled: Latest[frozenset[str]] = field(factory=lambda: Latest(frozenset()), eq=False)
    egress: Latest[Egress] = field(factory=lambda: Latest(Egress()), eq=False)
    offered: Latest[frozenset[str] | None] = field(factory=lambda: Latest(None), eq=False)
    network: LenderNetwork = field(default=Factory(NoNetwork), eq=False)
    services: HomeServices = field(default=Factory(NoHomeServices), eq=False)


def remote_root_ca(context: Context) -> str:
    """Return the name of our ``kube-root-ca.crt`` at the lender.

    In every namespace kube-controller-manager (root-ca-certificate-publisher) maintains a ConfigMap of the original
    name with the CA of its own cluster, so ours needs another name.
    """
    short = str(context.home)[:5]
    return f"{ROOT_CA}.{short if short[-1:].isalnum() else short + 'a'}"
