"""Granted namespaces follow the settings that were changed after they were granted."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.grants import ENFORCE, ENFORCE_VERSION, body
from liqod.hosting.tenants.namespace_bounds import NamespaceBounds
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.kube.errors import from_status
from liqod.kube.resources import NAMESPACES, Resource
from liqod.model.ids import Key
from liqod.model.names import REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL, tenant_namespace
from liqod.model.objects.meta import Object
from tests.hosting.shadowpods.test_controller import Cache


class Server:
    """Patches namespaces, and shows them to a watch."""

    def __init__(self, namespaces: Cache) -> None:
        self.namespaces = namespaces
        self.patched: list[str] = []
        self.refusing = False

    async def patch(self, resource: Resource, name: str, patch: dict[str, Any], **options: Any) -> None:
        assert resource is NAMESPACES
        if self.refusing:
            raise from_status(403, b'{"reason": "Forbidden", "message": "the policy has another level"}')
        self.patched.append(name)
        found = self.namespaces.get(Key("", name))
        assert patch["metadata"]["uid"] == found.metadata.uid
        labels = {**found.metadata.labels, **patch["metadata"]["labels"]}
        self.namespaces.put(
            msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels=labels))
        )


class PodSecurityTests(SynchronousTestCase):
    """The level of Pod Security of ``[hosting] pod-security``."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.namespaces, foreign = Cache(), Cache()
        for name in ("shop-rome", "web-rome"):
            made = body("rome", name.removesuffix("-rome"), name, "privileged")
            self.namespaces.put(msgspec.convert({**made, "metadata": {**made["metadata"], "uid": name}}, Object))
        labels = {REMOTE_CLUSTER_LABEL: "rome", TENANT_NAMESPACE_LABEL: "true"}
        self.of_tenant = msgspec.convert({"metadata": {"name": tenant_namespace("rome"), "labels": labels}}, Object)
        self.namespaces.put(self.of_tenant)
        self.server = Server(self.namespaces)
        caches: list[Any] = [self.namespaces, foreign]
        client: Any = self.server
        self.bounds = NamespaceBounds(
            client,
            self.clock,
            namespaces=caches[0],
            offers=TenantOffers(caches[1]),
            contracts=Contracts(Contract(HostingSettings(pod_security="restricted")), caches[0]),
        )
        self.addCleanup(self.bounds.stopService)

    def start(self) -> None:
        self.bounds.startService()
        self.clock.pump([0.1] * 20)

    def levels(self) -> set[tuple[str, str]]:
        found = [self.namespaces.get(Key("", name)).metadata.labels for name in ("shop-rome", "web-rome")]
        return {(labels[ENFORCE], labels[ENFORCE_VERSION]) for labels in found}

    def test_a_changed_level(self) -> None:
        """Namespaces that were granted at another one get it, one write each; a tenant namespace has none."""
        self.start()
        self.assertEqual(self.levels(), {("restricted", "latest")})
        self.assertEqual(sorted(self.server.patched), ["shop-rome", "web-rome"])
        self.assertIs(self.namespaces.get(self.of_tenant.metadata.key), self.of_tenant)

    def test_a_policy_of_before(self) -> None:
        """Where the admission policy still has the other level it is tried again until that is renewed."""
        self.server.refusing = True
        self.start()
        self.assertEqual(self.levels(), {("privileged", "latest")})
        self.server.refusing = False
        self.clock.pump([1.0] * 600)
        self.assertEqual(self.levels(), {("restricted", "latest")})
