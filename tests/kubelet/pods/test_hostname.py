"""Pods whose hostname is their full name, which is another one at the lender."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.context import Context
from liqod.kubelet.pods.forge import forge_shadow
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta

CONTEXT = Context(home=ClusterID("home"), lender=ClusterID("lender"), node_name="liqo-lender")


def forged(namespace: str, name: str = "web", **spec: Any) -> dict[str, Any]:
    """Return the pod that the lender is asked for, in a namespace there."""
    body = {"containers": [{"name": "main"}], "setHostnameAsFQDN": True, **spec}
    return dict(
        forge_shadow(ObjectMeta(name=name, namespace="shop", uid="u1"), body, namespace, CONTEXT)["spec"]["pod"]
    )


class HostnameTests(SynchronousTestCase):
    """A node starts no pod whose full name is to be its hostname and has more than 64 characters."""

    def test_full_name(self) -> None:
        """Where the full name is too long at the lender, the pod has its short name; else as it was asked for."""
        # a.b. and .svc.cluster.local are 22 characters.
        rows: list[tuple[str, dict[str, Any], bool]] = [
            ("n" * 42, {"hostname": "a", "subdomain": "b"}, True),
            ("n" * 43, {"hostname": "a", "subdomain": "b"}, False),
            ("n" * 42, {"name": "a", "subdomain": "b"}, True),
            ("n" * 43, {"name": "a", "subdomain": "b"}, False),
            ("n" * 63, {"hostname": "a"}, True),
        ]
        for namespace, spec, kept in rows:
            self.assertEqual(forged(namespace, **spec).get("setHostnameAsFQDN"), True if kept else None, spec)
        short = forged("n" * 63, hostname="a", subdomain="b")
        self.assertEqual((short["hostname"], short["subdomain"]), ("a", "b"))
        self.assertIs(
            forged("n" * 63, hostname="a", subdomain="b", setHostnameAsFQDN=False)["setHostnameAsFQDN"], False
        )
