"""Which namespaces were made for peers."""

from __future__ import annotations

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.names import ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL
from liqod.model.objects.granted_namespace import granted_to, home_name_of, is_tenant_namespace, tenant_of
from liqod.model.objects.meta import Object

OF_MILAN = {REMOTE_CLUSTER_LABEL: "milan"}
HOME = {ORIGINAL_NAME_ANNOTATION: "web"}


def namespace(labels: dict[str, str], annotations: dict[str, str]) -> Object:
    """Return a namespace with labels and annotations."""
    return msgspec.convert({"metadata": {"name": "a", "labels": labels, "annotations": annotations}}, Object)


class GrantedNamespaceTests(SynchronousTestCase):
    """A namespace of a peer's pods has the peer's label, its name at home, and not the label of a tenant namespace."""

    def test_tenants(self) -> None:
        """Whose a namespace is, and what it is at home."""
        for found, tenant, home, own in (
            (namespace(OF_MILAN, HOME), "milan", "web", False),
            (namespace(OF_MILAN, {}), "", "", False),
            (namespace({}, HOME), "", "", False),
            (namespace({REMOTE_CLUSTER_LABEL: ""}, HOME), "", "", False),
            (namespace({**OF_MILAN, TENANT_NAMESPACE_LABEL: ""}, HOME), "", "", True),
        ):
            self.assertEqual((tenant_of(found), home_name_of(found)), (tenant, home))
            self.assertEqual(is_tenant_namespace(found, "milan"), own)
            self.assertEqual(granted_to("milan", [found]), [found] if tenant else [])
            self.assertEqual(granted_to("rome", [found]), [])
        self.assertEqual(tenant_of(None), "")
