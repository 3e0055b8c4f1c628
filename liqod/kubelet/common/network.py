"""The interface of the network between this cluster and a lender, as virtual kubelets use it."""

from __future__ import annotations

from typing import Final, Protocol

from liqod.flow.observe import Latest
from liqod.kubelet.common.readiness import READY, Readiness, not_ready
from liqod.model.ids import ClusterID


class LenderNetwork(Protocol):
    """The network to one lender; addresses are strings, empty while an address is not known."""

    @property
    def status(self) -> Latest[Readiness]:
        """Whether packets reach the lender's pods."""
        ...

    @property
    def translation(self) -> Latest[int]:
        """A revision that changes whenever the translation of an address may have changed."""
        ...

    @property
    def home_services(self) -> Latest[Readiness]:
        """Whether pods at the lender call Services of this cluster by their own addresses."""
        ...

    @property
    def is_managed(self) -> bool:
        """Whether liqod runs a tunnel; the virtual node then has the NetworkUnavailable condition."""
        ...

    def to_home(self, address: str) -> str:
        """Return the address by which a pod of the lender is reached from here."""
        ...

    def refusal(self, address: str) -> str:
        """Return why the address of a pod of the lender is not shown here, as the rest of a sentence.

        Empty if it is shown, or while it is not known here.
        """
        ...

    def to_lender(self, address: str) -> str:
        """Return the address by which the lender's pods reach a pod of this cluster."""
        ...

    def endpoint_to_lender(self, address: str) -> str:
        """Return the address by which the lender's pods reach an endpoint of this cluster (a pod or another host)."""
        ...

    def direct(self, address: str) -> tuple[ClusterID, str] | None:
        """Return which other lender has the pod of an address here, and its own address there; None if not direct."""
        ...

    def must_be_exported(self, address: str) -> bool:
        """Return whether an endpoint's address is reachable only once it is exported (``Kubelets.export_requests``)."""
        ...

    def objection(self, address: str) -> str:
        """Return why a requested address will not be reachable, as the rest of a sentence; empty if it will be."""
        ...

    def families(self) -> frozenset[str]:
        """Return the IP families of the lender's pods ("IPv4", "IPv6"); empty while they are not known."""
        ...


class OwnNetworkCheck(Protocol):
    """This cluster's own networks: where no tunnel translates addresses, a lender could name theirs."""

    @property
    def revision(self) -> Latest[int]:
        """A revision that changes with them."""
        ...

    def own_objection(self, address: str) -> str:
        """Return why an address is none of another cluster, as the rest of a sentence; empty if it may be one."""
        ...


class LenderNetworks(Protocol):
    """The networks to all lenders."""

    def to(self, lender: ClusterID) -> LenderNetwork:
        """Return the network to one lender."""
        ...

    def export_requests_changed(self) -> None:
        """Notify that the set of requested addresses changed (``Kubelets.export_requests``)."""
        ...


WITHOUT_TUNNEL: Final = not_ready(
    "NoTunnel",
    "without a tunnel ([network] mode) liqod leads no calls of this cluster's Services by their addresses: offloaded "
    "pods call them by name",
)
"""What becomes of calls of Services by their addresses where liqod runs no tunnel."""


class NoNetwork:
    """Null object for [network] mode = "none": no tunnel and no translation of addresses.

    ``own`` judges the addresses of the lender's pods; without it none is refused.
    """

    def __init__(self, own: OwnNetworkCheck | None = None) -> None:
        self._own = own
        self.status: Latest[Readiness] = Latest(READY)
        self.translation: Latest[int] = Latest(0) if own is None else own.revision
        self.home_services: Latest[Readiness] = Latest(WITHOUT_TUNNEL)

    is_managed = False

    def to_home(self, address: str) -> str:
        """Return the address unchanged; empty where it is refused."""
        return "" if self.refusal(address) else address

    def refusal(self, address: str) -> str:
        """Return why it is none of another cluster."""
        return "" if self._own is None else self._own.own_objection(address)

    def to_lender(self, address: str) -> str:
        """Return the address unchanged."""
        return address

    def endpoint_to_lender(self, address: str) -> str:
        """Return the address unchanged."""
        return address

    def direct(self, address: str) -> tuple[ClusterID, str] | None:
        """Return None: no other lender is known to be connected with this one."""

    def must_be_exported(self, address: str) -> bool:
        """Return False: nothing translates addresses."""
        return False

    def objection(self, address: str) -> str:
        """Return an empty string."""
        return ""

    def families(self) -> frozenset[str]:
        """Return an empty set: the families are not known."""
        return frozenset()


class NoNetworks:
    """Null object: no tunnel to any lender."""

    def __init__(self, own: OwnNetworkCheck) -> None:
        self._own = own

    def to(self, lender: ClusterID) -> LenderNetwork:
        """Return the network without a tunnel."""
        return NoNetwork(self._own)

    def export_requests_changed(self) -> None:
        """Do nothing: no address must be exported."""
