"""What binds the daemon's account beyond its role; that the policies hold is shown on a real API server."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.account import admission_policies
from liqod.agent.account.rights import required
from liqod.config.load import parse

SETTINGS = parse('[kubernetes]\nnamespace = "liqo"', {})
HARMLESS = {
    "events": "they only inform",
    "pods/eviction": "an eviction honours budgets, and ends nothing that its owner does not replace",
    "tokenreviews": "nothing is stored",
    "subjectaccessreviews": "nothing is stored",
    "selfsubjectaccessreviews": "nothing is stored",
    "certificatesigningrequests": "only its own may be approved, for the signer of kubelets' serving certificates",
    "storageclasses": "a claim has to name it",
}
"""Kinds that the account may create anywhere, and why nothing more has to be said about them."""


class BoundsTests(SynchronousTestCase):
    def test_whatever_it_creates_everywhere_is_bound(self) -> None:
        """A kind that the account may create in every namespace is bound by a policy, or there is a reason why not."""
        rules = [
            rule
            for policy in admission_policies.policies(SETTINGS)
            for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        ]
        bound = {(group, what) for rule in rules for group in rule["apiGroups"] for what in rule["resources"]}
        for right in required(parse('[network]\nmode = "wireguard"', {})):
            if right.verb != "create" or right.namespace or right.resource.group.endswith("liqo.io"):
                continue
            known = (right.resource.group, right.what) in bound or right.what in HARMLESS
            self.assertTrue(known, f"{right}: bind it in agent/bounds.py, or say why that is not needed")

    def test_whatever_changes_running_pods_is_bound(self) -> None:
        """Parts of pods that the account may change in every namespace are bound by a policy, but for the status."""
        policies = admission_policies.policies(SETTINGS)
        bound = {w for p in policies for r in p["spec"]["matchConstraints"]["resourceRules"] for w in r["resources"]}
        changed = {
            right.what
            for right in required(parse("", {}))
            if right.verb == "patch" and right.resource.plural == "pods" and not right.namespace
        }
        self.assertEqual(changed - {"pods/status"} - bound, set())
        self.assertIn("pods/ephemeralcontainers", changed)

    def test_names(self) -> None:
        """Policies and bindings go by the same names, and are about the account of the namespace in question."""
        policies, bindings = admission_policies.policies(SETTINGS), admission_policies.bindings(SETTINGS)
        names = [policy["metadata"]["name"] for policy in policies]
        self.assertEqual([binding["spec"]["policyName"] for binding in bindings], names)
        self.assertEqual(len(set(names)), len(names))
        for policy in policies:
            condition, *_ = policy["spec"]["matchConditions"]
            account = "liqod-network" if "network-" in policy["metadata"]["name"] else "liqod"
            self.assertIn(f"'system:serviceaccount:liqo:{account}'", condition["expression"])
            self.assertEqual(policy["spec"]["failurePolicy"], "Fail")

    def test_tenants(self) -> None:
        """In namespaces of tenants the account may do everything but have tokens made by secrets, or lose the label."""
        outside = {"matchExpressions": [{"key": "liqo.io/remote-cluster-id", "operator": "DoesNotExist"}]}
        selectors = {
            policy["metadata"]["name"].removeprefix(admission_policies.PREFIX): policy["spec"]["matchConstraints"][
                "namespaceSelector"
            ]
            for policy in admission_policies.policies(SETTINGS)
        }
        free = {name for name, selector in selectors.items() if selector == outside}
        self.assertEqual(free, {"objects", "roles", "tokens", "pods", "parts-of-pods"})
        there = {"matchExpressions": [{"key": "liqo.io/tenant-namespace", "operator": "Exists"}]}
        beside = {name for name, selector in selectors.items() if selector == there}
        self.assertEqual(beside, {"pods-beside-credentials"})
        self.assertIn("kube-node-lease", str(selectors["leases"]))
        offloaded = {"matchExpressions": [{"key": "liqo.io/enabled", "operator": "NotIn", "values": ["true"]}]}
        self.assertEqual(selectors["statuses-of-pods"], offloaded)
        everywhere = {name for name, selector in selectors.items() if not selector}
        self.assertEqual(everywhere, set(selectors) - free - beside - {"leases", "statuses-of-pods"})
