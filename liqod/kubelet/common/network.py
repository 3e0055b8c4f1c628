"""What a virtual kubelet needs from the network between this cluster and its lender."""

from __future__ import annotations

from typing import Protocol

from liqod.flow.observe import Latest
from liqod.kubelet.common.readiness import READY, Readiness
from liqod.model.ids import ClusterID


class LenderNetwork(Protocol):
    """The network to one lender; addresses are texts, empty where one is not known (yet)."""

    @property
    def status(self) -> Latest[Readiness]:
        """Whether packets reach the lender's pods."""
        ...

    @property
    def translation(self) -> Latest[int]:
        """Changes whenever an address may be translated to another one than before."""
        ...

    @property
    def is_managed(self) -> bool:
        """Whether there is a tunnel, of which the virtual node shows the NetworkUnavailable condition."""
        ...

    def to_home(self, address: str) -> str:
        """Return the address by which a pod of the lender is reached from here."""
        ...

    def to_lender(self, address: str) -> str:
        """Return the address by which the lender's pods reach a pod of this cluster."""
        ...

    def endpoint_to_lender(self, address: str) -> str:
        """Return the address by which the lender's pods reach an endpoint of this cluster, pod or not."""
        ...

    def must_be_claimed(self, address: str) -> bool:
        """Tell whether an endpoint's address is reached only where reflection claims it (``Kubelets.claims``)."""
        ...

    def objection(self, address: str) -> str:
        """Return why an address that must be claimed will not be reached, as the rest of a sentence; or nothing."""
        ...

    def families(self) -> frozenset[str]:
        """Return the IP versions of the lender's pods ("IPv4", "IPv6"); none while they are not known."""
        ...


class Networks(Protocol):
    """The networks to all lenders."""

    def to(self, lender: ClusterID) -> LenderNetwork:
        """Return the network to one lender."""
        ...

    def claims_changed(self) -> None:
        """Other addresses are claimed than before (``Kubelets.claims``)."""
        ...


class NoNetwork:
    """No tunnel ([network] mode = "none"): pods reach one another by their own addresses, as far as they do."""

    def __init__(self) -> None:
        self.status: Latest[Readiness] = Latest(READY)
        self.translation: Latest[int] = Latest(0)

    is_managed = False

    def to_home(self, address: str) -> str:
        """Return the address unchanged."""
        return address

    def to_lender(self, address: str) -> str:
        """Return the address unchanged."""
        return address

    def endpoint_to_lender(self, address: str) -> str:
        """Return the address unchanged."""
        return address

    def must_be_claimed(self, address: str) -> bool:
        """Return False: nothing translates addresses."""
        return False

    def objection(self, address: str) -> str:
        """Return nothing."""
        return ""

    def families(self) -> frozenset[str]:
        """Return nothing: they are not known."""
        return frozenset()


class NoNetworks:
    """No tunnel to any lender."""

    def to(self, lender: ClusterID) -> LenderNetwork:
        """Return the network without a tunnel."""
        return NoNetwork()

    def claims_changed(self) -> None:
        """Ignore it: no address has to be claimed."""
