"""Hosts that are granted to each tenant by its cluster ID."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.hosting.tenants.test_policies import BORROWERS, asked, granted, ingress


class IngressHostTests(SynchronousTestCase):
    """Ingress controllers merge the hosts of all namespaces."""

    def test_hosts_of_each_tenant(self) -> None:
        """A name with the tenant in it is its own alone; one without is for all."""
        contract = granted(ingress_hosts=["{tenant}.apps.example", "shared.example"])

        def passes(new: dict[str, Any]) -> bool:
            return not asked(BORROWERS[0], "ingresses", new, contract=contract)

        for host in ("rome.apps.example", "shop.rome.apps.example", "*.rome.apps.example", "shop.shared.example"):
            self.assertTrue(passes(ingress(host)), host)
            self.assertTrue(passes(ingress(host, tls=[{"hosts": [host]}])), host)
        for other in (
            "paris.apps.example",
            "shop.paris.apps.example",
            "rome.paris.apps.example",
            "notrome.apps.example",
            "*.apps.example",
            "apps.example",
            "{tenant}.apps.example",
        ):
            self.assertFalse(passes(ingress(other)), other)
            self.assertFalse(passes(ingress("rome.apps.example", tls=[{"hosts": [other]}])), other)
