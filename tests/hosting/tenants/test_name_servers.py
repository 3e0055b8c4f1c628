"""Which name servers a tenant has, and whether it lacks one."""

from __future__ import annotations

from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from liqod.config.load import parse
from liqod.hosting.context import name_servers_of
from liqod.hosting.tenants.name_servers import NameServers
from liqod.kube.cache.shared_informers import Informers
from liqod.model.ids import Key
from liqod.model.names import REMOTE_CLUSTER_LABEL, tenant_namespace
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.name_service import NameService, NameSlice, ServiceSpec, object_name
from liqod.model.records.views import EndpointConditions, SliceEndpoint

TENANT = "rome"
KEY = Key(tenant_namespace(TENANT), object_name(1))
META = ObjectMeta(name=KEY.name, namespace=KEY.namespace, labels={REMOTE_CLUSTER_LABEL: TENANT})
SERVICE = NameService(metadata=META, spec=ServiceSpec(cluster_ip="10.96.7.53"))


def slice_of(*, ready: bool) -> NameSlice:
    """Return the slice of the Service, with a process that answers or not."""
    conditions = EndpointConditions(ready=ready)
    return NameSlice(metadata=META, endpoints=[SliceEndpoint(addresses=["192.0.2.1"], conditions=conditions)])


class Known:
    """The informers of a lender, by what they hold."""

    def __init__(self, *held: Any) -> None:
        self._held = {(type(one), one.metadata.key): one for one in held}

    def of(self, resource: Any, view: type, **_: Any) -> dict[Key, Any]:
        """Return what is held of a kind."""
        return {key: one for (kind, key), one in self._held.items() if kind is view}


class LackingTests(SynchronousTestCase):
    """Whether it is worth a word that a pod has no name server."""

    def servers(self, enabled: str, *held: Any) -> NameServers:
        """Return the name servers of a lender with a setting."""
        found = name_servers_of(parse(f"[names]\nenabled = {enabled}", {}), cast(Informers, Known(*held)))
        assert found is not None
        return found

    def test_as_it_comes(self) -> None:
        """Where nobody ever answered nothing is lacking; once there is a Service somebody has to answer there."""
        ready, silent = slice_of(ready=True), slice_of(ready=False)
        for held, expected in (((), False), ((SERVICE,), True), ((SERVICE, silent), True), ((SERVICE, ready), False)):
            with self.subTest(held=held):
                self.assertEqual(self.servers('"auto"', *held).is_lacking(TENANT), expected)

    def test_switched_on(self) -> None:
        """Who switched names on has to learn that nobody answers."""
        self.assertTrue(self.servers("true").is_lacking(TENANT))
        self.assertFalse(self.servers("true", SERVICE, slice_of(ready=True)).is_lacking(TENANT))

    def test_switched_off(self) -> None:
        """Without names there are no servers of names."""
        self.assertIsNone(name_servers_of(parse("[names]\nenabled = false", {}), cast(Informers, Known())))
