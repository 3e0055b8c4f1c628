"""What the daemon needs, and the roles that give it that."""

from __future__ import annotations

from typing import Any

from kubesandbox.auth.rbac import Access, rule_allows
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.account.names import ACCOUNT, NAMES_ACCOUNT, NETWORK_ACCOUNT
from liqod.agent.account.objects import roles, rules_of
from liqod.agent.account.rights import Right, required
from liqod.config.load import parse
from liqod.config.schema import Settings
from liqod.kube.resources import (
    CLUSTERFACTS,
    CONFIGMAPS,
    LEASES,
    NAMESPACES,
    NETWORKGATEWAYS,
    PODS,
    SECRETS,
    SERVICEACCOUNTS,
    SERVICES,
)


def access(right: Right) -> Access:
    resource = right.resource
    what = (resource.group, resource.plural, right.subresource)
    return Access(right.verb, *what, namespace=right.namespace, name=right.name)


def rules(settings: Settings, namespace: str = "") -> list[dict[str, Any]]:
    return [
        rule
        for _, body in roles(settings)
        if body["metadata"].get("namespace", "") == namespace
        for rule in body.get("rules", [])
    ]


class RightsTests(SynchronousTestCase):
    def test_the_roles_grant_every_right(self) -> None:
        """Each right that is required is granted by the rules of its own scope."""
        settings = parse('[network]\nmode = "wireguard"', {})
        for right in required(settings):
            granted = any(rule_allows(rule, access(right)) for rule in rules(settings, right.namespace))
            self.assertTrue(granted, right)

    def test_the_roles_grant_nothing_else(self) -> None:
        """Every combination that a rule grants is a right that is required; nothing is granted wholesale."""
        settings = Settings()
        for _, body in roles(settings):
            namespace = body["metadata"].get("namespace", "")
            wanted = {
                (right.resource.group, right.what, right.verb, right.name)
                for right in required(settings)
                if right.namespace == namespace
            }
            for rule in body.get("rules", []):
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            for name in rule.get("resourceNames", [""]):
                                self.assertIn((group, resource, verb, name), wanted)
                                self.assertNotIn("*", (group, resource, verb))

    def test_narrow(self) -> None:
        """What leads to every right in a cluster is given by name only, or not at all."""
        rights = required(parse("[kubelet]\nenable-apiserver-support = false", {}))
        for right in rights:
            what = f"{right.resource.plural}/{right.subresource}".rstrip("/")
            self.assertNotIn(right.verb, ("escalate", "deletecollection"))
            if right.verb == "impersonate":
                # Of users it cannot be limited to those of borrowers; of their accounts it can.
                self.assertEqual((right.what, right.name), ("serviceaccounts", "borrower"))
            if what in ("serviceaccounts/token", "clusterroles") or right.verb in ("bind", "approve"):
                self.assertTrue(right.name, right)
            if what in ("secrets", "configmaps") and right.verb in ("get", "update", "patch", "delete"):
                self.assertTrue(right.name or right.namespace == "liqo-system", right)
            self.assertNotIn(what, ("pods/exec", "pods/attach", "nodes/proxy", "clusterrolebindings"))

    def test_tokens_of_offloaded_pods(self) -> None:
        """Tokens of any account are the one thing more that pods need to speak to their API server from afar."""
        without = set(required(parse("[kubelet]\nenable-apiserver-support = false", {})))
        more = {str(right) for right in set(required(Settings())) - without}
        self.assertEqual(more, {"create serviceaccounts/token"})

    def test_features_that_are_off(self) -> None:
        """A feature that is switched off needs no rights: where no size of theirs is bounded, nobody reads all secrets
        without reflection.
        """
        read_all = Right("list", SECRETS)
        self.assertIn(read_all, required(Settings()))
        without = "[reflection]\nsecret = {workers = 0}\n[webhook]\nenabled = false\n"
        self.assertIn(read_all, required(parse(without, {})))
        settings = parse(f'{without}[hosting]\ntenant-contents = ""', {})
        self.assertNotIn(read_all, required(settings))
        self.assertFalse([right for right in required(settings) if "webhook" in right.resource.plural])

    def test_no_right_twice(self) -> None:
        """A right that is given everywhere is not given once more by name or in one namespace."""
        rights = required(Settings())
        self.assertEqual(len(rights), len(set(rights)))
        unnamed = {
            (right.resource, right.subresource, right.verb, right.namespace) for right in rights if not right.name
        }
        for right in rights:
            if right.name:
                self.assertNotIn((right.resource, right.subresource, right.verb, right.namespace), unnamed)
        everywhere = {
            (right.resource, right.subresource, right.verb) for right in rights if not right.name + right.namespace
        }
        for right in rights:
            if right.name or right.namespace:
                self.assertNotIn((right.resource, right.subresource, right.verb), everywhere)

    def test_words(self) -> None:
        """A right reads as part of a sentence."""
        self.assertEqual(str(Right("patch", PODS, "status")), "patch pods/status")
        self.assertEqual(
            str(Right("get", CONFIGMAPS, name="one", namespace="here")),
            "get configmaps named one in the namespace here",
        )

    def test_rules_are_few(self) -> None:
        """Resources with the same verbs and names share a rule."""
        made = rules_of([Right("list", PODS), Right("watch", PODS), Right("list", SECRETS), Right("watch", SECRETS)])
        self.assertEqual(made, [{"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["list", "watch"]}])


class OwnTokenTests(SynchronousTestCase):
    """The token of each process's own account."""

    def test_each_its_own(self) -> None:
        """Every process may have its own account's made, and without a right to those of all accounts nobody else's."""
        without = "[kubelet]\nenable-apiserver-support = false\n"
        accounts = {"all": ACCOUNT, "control": ACCOUNT, "network": NETWORK_ACCOUNT, "names": NAMES_ACCOUNT}
        for role, account in accounts.items():
            rights = required(parse(f'{without}[daemon]\nrole = "{role}"\n', {}))
            made = {(right.name, right.namespace) for right in rights if right.subresource == "token"}
            self.assertEqual(made - {("borrower", "")}, {(account, "liqo-system")}, role)


class SplitRightsTests(SynchronousTestCase):
    """The two accounts of a daemon that is split."""

    def test_the_network_agent_reads_specs_and_writes_status(self) -> None:
        """It may change nothing of a record but its status, no pod and no namespace, and read one Secret by name."""
        settings = parse('[daemon]\nrole = "network"\n[network]\nmode = "wireguard"', {})
        for right in required(settings):
            if right.resource == SECRETS and right.verb != "create":
                self.assertEqual((right.name, right.namespace), ("liqod-tunnel", "liqo-system"))
            if right.resource.group == "net.liqo.io" and right.verb == "patch":
                self.assertEqual(right.subresource, "status")
            self.assertNotIn(right.resource, (PODS, CONFIGMAPS))
            self.assertNotIn(right.verb, ("delete", "impersonate", "bind"))
        names = {body["metadata"]["name"] for _, body in roles(settings)}
        self.assertEqual(names, {"liqod-network"})

    def test_names_reads_and_writes_its_lease(self) -> None:
        """A process that answers for names follows namespaces, services and facts, and writes its Lease alone."""
        rights = required(parse('[daemon]\nrole = "names"', {}))
        followed = {NAMESPACES, SERVICES, CLUSTERFACTS}
        self.assertEqual({right.resource for right in rights}, {*followed, LEASES, SERVICEACCOUNTS})
        for right in rights:
            if right.resource == SERVICEACCOUNTS:
                own = "create serviceaccounts/token named liqod-names in the namespace liqo-system"
                self.assertEqual(str(right), own)
            elif right.resource == LEASES:
                self.assertEqual(right.namespace, "liqo-system")
                self.assertTrue(right.name.startswith("liqod-names-") or right.verb == "create")
            else:
                self.assertIn(right.verb, ("list", "watch"))

    def test_names_are_led_to_by_control(self) -> None:
        """Control needs rights for it unless it is disabled, on Services of these names, and to read Leases."""
        control = '[daemon]\nrole = "control"\n'
        more = set(required(parse(control, {}))) - set(required(parse(f"{control}[names]\nenabled = false", {})))
        self.assertEqual({right.resource for right in more}, {SERVICES, LEASES})
        self.assertEqual(required(parse(control, {})), required(parse(f"{control}[names]\nenabled = true", {})))
        for right in more:
            self.assertTrue(right.verb in ("list", "watch", "create") or right.name.startswith("liqod-names-"), right)

    def test_control_reads_the_gateways_record_besides(self) -> None:
        """It needs what the whole daemon needs, as it is all of it but the kernel's part, and the agent's report."""
        network = '[names]\nenabled = false\n[network]\nmode = "wireguard"'
        whole, control = (
            set(required(parse(network, {}))),
            set(required(parse(f'[daemon]\nrole="control"\n{network}', {}))),
        )
        self.assertEqual(whole - control, set())
        self.assertEqual({right.resource for right in control - whole}, {NETWORKGATEWAYS, LEASES})
        leases = {(right.verb, right.name) for right in control - whole if right.resource == LEASES}
        self.assertEqual(leases, {("list", "liqod-network"), ("watch", "liqod-network")})


class MetricsRightsTests(SynchronousTestCase):
    """What a daemon needs for the pages of metrics."""

    def more(self, metrics: str, others: str = "") -> set[str]:
        """Return the rights that settings of ``[metrics]`` add."""
        with_it = set(required(parse(f"[metrics]\n{metrics}\n{others}", {})))
        return {str(right) for right in with_it - set(required(parse(others, {})))}

    def test_who_reads_them(self) -> None:
        """To have callers reviewed, where the API of virtual nodes does not need that anyway; for every process."""
        asked = 'authentication = "kubernetes"'
        reviews = {
            "create tokenreviews.authentication.k8s.io",
            "create subjectaccessreviews.authorization.k8s.io",
        }
        self.assertEqual(self.more(asked), set())
        self.assertEqual(self.more(asked, '[kubelet]\nlisten = ""'), reviews)
        for role in ('[daemon]\nrole = "names"', '[daemon]\nrole = "network"', '[network]\nrole = "node"'):
            self.assertEqual(self.more(asked, role), reviews, role)
        self.assertEqual(self.more(f'listen = ""\n{asked}', '[kubelet]\nlisten = ""'), set())

    def test_the_certificate(self) -> None:
        """One Secret by name, for control alone."""
        self.assertEqual(self.more('tls = "own"'), {"update secrets named liqod-metrics in the namespace liqo-system"})
        for role in ('[daemon]\nrole = "names"', '[daemon]\nrole = "network"', '[network]\nrole = "node"'):
            self.assertEqual(self.more('tls = "own"', role), set(), role)
