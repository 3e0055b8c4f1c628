"""Home's policies and what becomes of them, as a real API server reads them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from liqod.kube.errors import ApiError
from liqod.kube.manifests import covers
from liqod.kube.resources import NAMESPACES, NETWORKPOLICIES
from tests.hosting.isolation import cases
from tests.hosting.networkpolicies.test_refusals import BAD_PEERS, BAD_PORTS
from tests.hosting.networkpolicies.test_table import HOME
from tests.hosting.networkpolicies.world import ENDS, LEVELS, compile_all, facts
from tests.kubelet.reflection.isolation import cases as ways
from tests.real.sides import Asked, Pair


class NetworkPoliciesOnRealClustersTests(Asked):
    """What is compiled is taken; what is refused is no policy."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        self.namespace = f"policies-{secrets.token_hex(3)}"
        await self.admin.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        self.addCleanup(self.admin.delete, NAMESPACES, self.namespace)

    async def taken(self, spec: Mapping[str, Any]) -> Any:
        """Create a policy and delete it; return its spec as the API server has it. Raises ApiError."""
        name = f"x-{secrets.token_hex(6)}"
        body = {"metadata": {"name": name, "namespace": self.namespace}, "spec": spec}
        found = await self.admin.create(NETWORKPOLICIES, body, self.namespace)
        await self.admin.delete(NETWORKPOLICIES, name, self.namespace)
        return found["spec"]

    async def test_what_is_compiled(self) -> None:
        """The API server takes home's policies of the truth table, and all that is made of them, as it is."""
        for name, policies in HOME.items():
            for one in policies:
                await self.taken(one["spec"])
            for level in LEVELS:
                for made in compile_all(policies, level, facts(ENDS.values())).policies:
                    found, wanted = await self.taken(made["spec"]), made["spec"]
                    self.assertTrue(covers(found, wanted) and covers(wanted, found), f"{name}, {level}: {found}")

    async def test_what_is_refused(self) -> None:
        """The API server refuses what is refused here as no policy."""
        everybody: list[dict[str, Any]] = [{"podSelector": {}}]
        rules = [*({"to": [one]} for one in BAD_PEERS), *({"to": everybody, "ports": [one]} for one in BAD_PORTS)]
        for rule in rules:
            try:
                await self.taken({"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule]})
            except ApiError:
                continue
            self.fail(f"the API server takes {rule}")


class HomePoliciesOnRealClustersTests(Asked, cases.HomePoliciesCase):
    """What a lender makes of records, each with a tenant of its own on one cluster."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        await self.begin()


class PoliciesBetweenRealClustersTests(Pair, ways.PolicyCase):
    """From a namespace at home to the pods at a lender."""
