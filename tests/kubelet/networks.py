"""Networks to lenders as tests want them to be."""

from __future__ import annotations

from collections.abc import Callable

from liqod.flow.observe import Latest
from liqod.kubelet.common.context import ApiServer, NoHomeServices
from liqod.kubelet.common.network import LenderNetwork, NoNetwork
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.reflection.forge.classes import Classes
from liqod.kubelet.reflection.forge.reflected import NoHomeObjects
from liqod.model.foreign_address import NetworkLookup, objection
from liqod.model.ids import ClusterID
from liqod.model.records.network import parse_networks

NO_CLASSES = Classes()


class HomeNetworks:
    """This cluster's own networks, as a test says."""

    def __init__(self, *networks: str) -> None:
        self.revision: Latest[int] = Latest(0)
        self.networks = networks

    def own_objection(self, address: str) -> str:
        return objection(address, NetworkLookup(parse_networks(self.networks)), None)

    def change(self, *networks: str) -> None:
        """Have other networks from now on."""
        self.networks = networks
        self.revision.set(self.revision.value + 1)


def unchanged(address: str) -> str:
    """Return an address as it is."""
    return address


class SimulatedNetwork(NoNetwork):
    """A network that translates addresses as the test says; ``changed`` tells the kubelet that it does otherwise
    now.
    """

    def __init__(
        self,
        *,
        to_home: Callable[[str], str] = unchanged,
        endpoint_to_lender: Callable[[str], str] = unchanged,
        families: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.translate_home = to_home
        self.translate_endpoint = endpoint_to_lender
        self.versions = families

    def to_home(self, address: str) -> str:
        return self.translate_home(address)

    def endpoint_to_lender(self, address: str) -> str:
        return self.translate_endpoint(address)

    def families(self) -> frozenset[str]:
        return self.versions

    def manage(self, status: Readiness) -> None:
        """Be a tunnel with a status of its own."""
        self.is_managed = True
        self.status.set(status)

    def leave(self) -> None:
        """Be no tunnel any more: it was decided that there is none."""
        self.is_managed = False
        self.changed()

    def changed(self) -> None:
        """Let the kubelet know that addresses are translated to others."""
        self.translation.set(self.translation.value + 1)


class OneNetwork:
    """The same network to every lender."""

    def __init__(self, network: LenderNetwork) -> None:
        self.network = network

    def to(self, lender: ClusterID) -> LenderNetwork:
        return self.network

    def export_requests_changed(self) -> None:
        """Nobody reads the requests."""


class Services(NoHomeServices):
    """What follows pods to a lender: an API server to speak to, and claims of some storage classes."""

    def __init__(self, server: ApiServer | None = None, classes: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.server = server
        self.classes = classes

    def api_server(self, namespace: str) -> ApiServer | None:
        return self.server

    def follows(self, storage_class: str) -> bool:
        return storage_class in self.classes


class LenderObjects(NoHomeObjects):
    """What the home cluster has of a lender: virtual nodes, volumes whose data is there, and classes."""

    def __init__(
        self,
        nodes: tuple[str, ...] = (),
        volumes: tuple[str, ...] = (),
        *,
        storage: Classes = NO_CLASSES,
        ingress: Classes = NO_CLASSES,
        load_balancers: Classes = NO_CLASSES,
        gateways: tuple[str, ...] | None = (),
    ) -> None:
        self.nodes = nodes
        self.volumes = volumes
        self.storage, self.ingress, self.load_balancers = storage, ingress, load_balancers
        self.offered_gateways = gateways

    def is_at_lender(self, node: str) -> bool:
        return node in self.nodes

    def holds(self, volume: str) -> bool:
        return volume in self.volumes

    def storage_classes(self) -> Classes:
        return self.storage

    def ingress_classes(self, namespace: str) -> Classes:
        return self.ingress

    def load_balancer_classes(self, namespace: str) -> Classes:
        return self.load_balancers

    def gateways(self) -> tuple[str, ...] | None:
        return self.offered_gateways
