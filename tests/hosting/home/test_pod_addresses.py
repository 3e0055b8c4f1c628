"""Whose pod has an address: the one running pod that has it, and the tenant of its namespace."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, cast

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.home.pod_addresses import PlacedPod, PodAddresses
from liqod.model.ids import ClusterID

TENANTS = {"shop-rome": "rome", "db-milan": "milan", "kube-system": ""}


def pod(namespace: str, *addresses: str, phase: str = "Running", **spec: Any) -> PlacedPod:
    """Return a pod with addresses."""
    both = [{"ip": one} for one in addresses]
    status = {"phase": phase, "podIP": addresses[0] if addresses else None, "podIPs": both}
    body = {"metadata": {"name": "p", "namespace": namespace}, "spec": spec, "status": status}
    return msgspec.convert(body, PlacedPod)


class Pods:
    """The informer of pods, with its index."""

    synced = True

    def __init__(self, *pods: PlacedPod) -> None:
        self._pods = pods
        self._values: Callable[[PlacedPod], Iterable[Hashable]] = lambda _: ()

    def add_index(self, name: str, values: Callable[[PlacedPod], Iterable[Hashable]]) -> None:
        self._values = values

    def by_index(self, name: str, value: Hashable) -> list[PlacedPod]:
        return [one for one in self._pods if value in self._values(one)]


class Namespaces:
    """Which namespaces were granted; of others it is not known yet."""

    def known_tenant(self, namespace: str) -> str | None:
        return TENANTS.get(namespace)


def at(address: str, *pods: PlacedPod, synced: bool = True) -> ClusterID | None:
    """Return whose pod has an address among these."""
    informer = Pods(*pods)
    informer.synced = synced
    return PodAddresses(cast(Any, informer), cast(Any, Namespaces())).tenant_at(address)


class AddressTests(SynchronousTestCase):
    def test_table(self) -> None:
        """A running pod's addresses, of both versions, are its tenant's; everything else is nobody's."""
        rome = pod("shop-rome", "10.1.0.1", "fd00::1")
        for address, pods, whose in (
            ("10.1.0.1", [rome], "rome"),
            ("fd00::1", [rome], "rome"),
            ("fd00:0:0::1", [rome], "rome"),
            ("10.1.0.2", [rome], None),
            ("", [rome], None),
            ("not an address", [rome], None),
            ("10.1.0.1", [], None),
            ("10.1.0.1", [pod("kube-system", "10.1.0.1")], None),
            ("10.1.0.1", [pod("unknown", "10.1.0.1")], None),
            ("10.1.0.1", [pod("shop-rome")], None),
        ):
            self.assertEqual(at(address, *pods), whose, (address, pods))

    def test_a_pod_that_has_finished(self) -> None:
        """Its status names an address that another pod may have by now."""
        gone = pod("shop-rome", "10.1.0.1", phase="Succeeded")
        self.assertIsNone(at("10.1.0.1", gone))
        self.assertEqual(at("10.1.0.1", gone, pod("db-milan", "10.1.0.1")), "milan")

    def test_an_address_of_two(self) -> None:
        """While two tenants' pods claim one address it is nobody's; of two pods of one tenant it is that tenant's."""
        self.assertIsNone(at("10.1.0.1", pod("shop-rome", "10.1.0.1"), pod("db-milan", "10.1.0.1")))
        self.assertEqual(at("10.1.0.1", pod("shop-rome", "10.1.0.1"), pod("shop-rome", "10.1.0.1")), "rome")

    def test_a_pod_in_its_hosts_network(self) -> None:
        """The address is the host's, of all who run there."""
        self.assertIsNone(at("192.0.2.1", pod("shop-rome", "192.0.2.1", hostNetwork=True)))

    def test_before_pods_are_known(self) -> None:
        """Nobody's is taken for anybody's while the first list is not complete."""
        self.assertIsNone(at("10.1.0.1", pod("shop-rome", "10.1.0.1"), synced=False))
