"""Each admission policy, with one thing taken away, lets an attempt by that the whole one refuses."""

from __future__ import annotations

from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.account.admission_policies import PREFIX
from liqod.agent.account.admission_policies import policies as account_policies
from liqod.config.load import parse
from liqod.hosting.tenants.admission import pod_shape
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.policies import INGRESS_POLICY, ROUTE_POLICY
from liqod.hosting.tenants.policies import policies as tenant_policies
from tests.weakened import of_tenants, of_the_daemon
from tests.weakened.attempt import OWN, asked, owned
from tests.weakened.copies import Suite

GRANTED: Final = f"""
[kubernetes]
namespace = "{OWN}"
[hosting]
ingress-hosts = ["apps.example"]
ingress-classes = ["public"]
gateways = ["public/shared"]
storage-classes = ["disks", "liqo"]
annotations = ["volume.beta.kubernetes.io/storage-class", "kubernetes.io/service-account.name"]
"""


def policies_of(text: str) -> list[dict[str, Any]]:
    """Return all policies of a configuration."""
    settings = parse(text, {})
    return [*account_policies(settings), *tenant_policies(Contract.of(settings))]


class WeakenedPoliciesTests(SynchronousTestCase):
    """The policies of tenants and those of the daemon's accounts."""

    def test_of_tenants(self) -> None:
        """No rule, operation, kind or user of a policy can go without something getting by."""
        self.patch(pod_shape, "MAX_CONTAINERS", of_tenants.MOST_CONTAINERS)
        suite = Suite(policies_of(GRANTED), of_tenants.attempts())
        self.assertEqual(suite.accepted(), [], "attempts that nothing refuses")
        own = [one for one in suite.policies if not one["metadata"]["name"].startswith(PREFIX)]
        self.assertEqual(suite.unseen(own), [], "copies that no attempt gets by")

    def test_of_the_daemon(self) -> None:
        """Nor of those of its accounts."""
        suite = Suite(policies_of(GRANTED), of_the_daemon.attempts())
        self.assertEqual(suite.accepted(), [], "attempts that nothing refuses")
        own = [one for one in suite.policies if one["metadata"]["name"].startswith(PREFIX)]
        self.assertEqual(suite.unseen(own), [], "copies that no attempt gets by")

    def test_what_is_granted_to_nobody(self) -> None:
        """Where neither hosts nor gateways are granted, each of those policies is one rule, and is seen."""
        granted_first = [
            one
            for one in policies_of(f'[kubernetes]\nnamespace = "{OWN}"')
            if one["metadata"]["name"] in (INGRESS_POLICY, ROUTE_POLICY)
        ]
        suite = Suite(granted_first, of_tenants.of_hosts())
        self.assertEqual(suite.accepted(), [], "attempts that nothing refuses")
        self.assertEqual(suite.unseen(), [], "copies that no attempt gets by")

    def test_a_policy_without_attempts(self) -> None:
        """A policy that is added without an attempt that it alone refuses is reported, with all that it has."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["podtemplates"]}
        added = {
            "metadata": {"name": "added"},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [],
                "validations": [{"expression": "false", "message": "not here"}],
            },
        }
        harmless = asked("a config map", "configmaps", owned({}))
        suite = Suite([added], [harmless])
        self.assertEqual(suite.accepted(), [str(harmless)])
        self.assertEqual(suite.unseen(), [f"added without {one!r}" for one in ("not here", "CREATE", "podtemplates")])
        suite = Suite([added], [asked("a template", "podtemplates", owned({}))])
        self.assertEqual((suite.accepted(), suite.unseen()), ([], []))
