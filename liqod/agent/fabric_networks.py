"""The fabric as virtual kubelets use it, a network to each lender; and what is known of lenders for names."""

from __future__ import annotations

from functools import partial

from attrs import frozen

from liqod.fabric.service import Fabric
from liqod.flow.observe import Latest
from liqod.kubelet.common.network import WITHOUT_TUNNEL, OwnNetworkCheck
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.service import Kubelets
from liqod.model.ids import ClusterID
from liqod.model.records.network import ExportRequests
from liqod.names.home_services import Way


class FabricNetworks:
    """The networks to all lenders."""

    def __init__(self, fabric: Fabric, own: OwnNetworkCheck) -> None:
        self._fabric = fabric
        self._own = own
        own.revision.subscribe(lambda _: self._own_changed())
        self._known: dict[ClusterID, FabricNetwork] = {}

    def to(self, lender: ClusterID) -> FabricNetwork:
        """Return the network to one lender; one is kept for each lender that there has been."""
        network = self._known.get(lender)
        if network is None:
            network = self._known[lender] = FabricNetwork(self._fabric, lender, self._own)
        return network

    def export_requests_changed(self) -> None:
        """Have the fabric read again which addresses are to be exported."""
        self._fabric.refresh()

    def network_changed(self) -> None:
        """Read the status of every network again, and note that addresses may be translated to others."""
        for network in self._known.values():
            network.refresh()

    def _own_changed(self) -> None:
        for network in self._known.values():
            network.own_changed()


@frozen
class FabricUser:
    """What the fabric needs of virtual kubelets (``NetworkUser``)."""

    kubelets: Kubelets
    networks: FabricNetworks

    def export_requests(self, peer: ClusterID) -> ExportRequests:
        """Return the single addresses that a lender's pods have to reach."""
        return self.kubelets.export_requests(peer)

    def network_changed(self) -> None:
        """Read the status of every network again."""
        self.networks.network_changed()


class FabricNetwork:
    """The network to one lender; where it was decided that there is no tunnel, addresses stay as they are.

    ``own`` judges the addresses of the lender's pods then.
    """

    def __init__(self, fabric: Fabric, lender: ClusterID, own: OwnNetworkCheck) -> None:
        self._fabric = fabric
        self._own = own
        self._lender = lender
        self.status: Latest[Readiness] = Latest(self._status())
        self.translation: Latest[int] = Latest(0)
        self.home_services: Latest[Readiness] = Latest(self._home_services())
        self._view = fabric.translation(lender)

    @property
    def is_managed(self) -> bool:
        """Whether there is a tunnel, or may be one."""
        return self._fabric.has_tunnel(self._lender)

    def refresh(self) -> None:
        """Read the status again, and note where addresses may be translated to others."""
        view = self._fabric.translation(self._lender)
        if view != self._view:
            self._view = view
            self.translation.set(self.translation.value + 1)
        self.status.set(self._status())
        self.home_services.set(self._home_services())

    def own_changed(self) -> None:
        """Note that another address may be refused where there is no tunnel."""
        if not self.is_managed:
            self.translation.set(self.translation.value + 1)

    def _home_services(self) -> Readiness:
        if not self.is_managed:
            return WITHOUT_TUNNEL
        are_led, reason, message = self._fabric.home_services(self._lender)
        return Readiness(ready=bool(are_led), reason=reason, message=message, known=are_led is not None)

    def _status(self) -> Readiness:
        is_up, message = self._fabric.status(self._lender)
        reason = "NetworkReady" if is_up else "NetworkDown" if is_up is False else "Unknown"
        return Readiness(ready=bool(is_up), reason=reason, message=message, known=is_up is not None)

    def to_home(self, address: str) -> str:
        """Return the address by which a pod of the lender is reached from here; empty while it is not known, and
        where it is refused.
        """
        if self.is_managed:
            return self._fabric.map_address(self._lender, address)
        return "" if self.refusal(address) else address

    def refusal(self, address: str) -> str:
        """Return why an address is not shown: without a tunnel it may be one of this cluster."""
        return "" if self.is_managed else self._own.own_objection(address)

    def to_lender(self, address: str) -> str:
        """Return the address by which the lender's pods reach a pod of this cluster; empty while it is not known."""
        return self._fabric.export_address(self._lender, address) if self.is_managed else address

    def endpoint_to_lender(self, address: str) -> str:
        """Return the address by which the lender's pods reach an endpoint of this cluster."""
        return self._fabric.exports.seen(self._lender, address) if self.is_managed else address

    def direct(self, address: str) -> tuple[ClusterID, str] | None:
        """Return which other lender has the pod of an address here, and its own address there; None if not direct."""
        return self._fabric.direct_address(self._lender, address) if self.is_managed else None

    def must_be_exported(self, address: str) -> bool:
        """Tell whether an address is reached only where reflection asks for it."""
        return self.is_managed and self._fabric.exports.is_single(self._lender, address)

    def objection(self, address: str) -> str:
        """Return why an address that must be exported will not be reached; or nothing."""
        return self._fabric.exports.objection(self._lender, address) if self.is_managed else ""

    def families(self) -> frozenset[str]:
        """Return the IP versions of the lender's pods; none while they are not known."""
        return self._fabric.families(self._lender)


@frozen
class LenderWays:
    """What is known of lenders where names are answered (``names.home_names.HomeView``)."""

    kubelets: Kubelets
    fabric: Fabric | None

    def offloaded(self, lender: ClusterID) -> frozenset[str]:
        """Return the namespaces whose pods may run at a lender."""
        running = self.kubelets.of_lender(lender)
        return frozenset(local for kubelet in running for local in kubelet.namespaces.mappings())

    def way(self, lender: ClusterID) -> Way:
        """Return how a lender's pods reach addresses of this cluster; without a tunnel none is known to be reached."""
        fabric = self.fabric
        if fabric is None or not fabric.has_tunnel(lender):
            return Way(_nowhere, _nowhere, "NoTunnel", "there is no tunnel by which your pods reach Services here")
        services = fabric.service_addresses(lender)
        return Way(services.seen, partial(fabric.exports.seen, lender))

    def original(self, lender: ClusterID, address: str) -> str:
        """Return the address of a Service here that a lender's pods call by another one; nothing where it is none."""
        fabric = self.fabric
        if fabric is None or not fabric.has_tunnel(lender):
            return ""
        return fabric.service_addresses(lender).original(address)


def _nowhere(address: str) -> str:
    return ""
