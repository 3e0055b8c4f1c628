"""What the admission policies let borrowers do with routes of the Gateway API."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.tenants.bounds import most_of_namespace, most_of_tenant
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.policies import policies
from liqod.hosting.tenants.rights import permits
from liqod.model.ids import ClusterID
from liqod.model.ingress_path import MAX_MATCHES, MAX_ROUTE_RULES, is_plain
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects.api_request import RequestAttributes
from tests.hosting.shadowpods.admission import Request, refusals
from tests.hosting.tenants.test_policies import BORROWERS, GROUPS, OTHERS, STEADILY, asked, granted, with_origin

GATEWAY = {"namespace": "public", "name": "shared"}
BACKEND = {"name": "web", "port": 80}
RULE: dict[str, Any] = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [BACKEND]}


def route(*rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    spec = {"parentRefs": [GATEWAY], "hostnames": ["shop.example"], "rules": list(rules or (RULE,)), **fields}
    return {
        "metadata": {"name": "r", "namespace": "shop-rome"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


def contract(**settings: Any) -> Contract:
    return granted(**{"ingress_hosts": ["shop.example"], "gateways": ["public/shared"], **settings})


def refused(new: dict[str, Any], resource: str = "httproutes", **settings: Any) -> list[str]:
    """Return why a route is refused to a borrower, the same at first and later."""
    reported = asked(BORROWERS[0], resource, new, contract=contract(**settings))
    later = asked(BORROWERS[0], resource, new, {**new, "spec": {}}, contract(**settings))
    assert reported == later, (reported, later)
    return reported


class GrantTests(SynchronousTestCase):
    """Gateways and hosts."""

    def test_without_a_grant(self) -> None:
        """Without a gateway, or without a host, there are no routes, and the reason names both settings."""
        less: tuple[dict[str, Any], ...] = ({"gateways": []}, {"ingress_hosts": []})
        for settings in less:
            for kind in ("httproutes", "grpcroutes"):
                (reported,) = refused(route(), kind, **settings)
                self.assertIn("[hosting] gateways", reported)
                self.assertIn("ingress-hosts", reported)

    def test_it_is_about_borrowers(self) -> None:
        """Nobody else's routes are looked at."""
        for user in OTHERS:
            self.assertEqual(asked(user, "httproutes", {"metadata": {"name": "r"}, "spec": {"parentRefs": []}}), [])

    def test_other_versions(self) -> None:
        """A route of a version that liqod does not know is refused, also where v1 is not served: then it is no other
        name of it.
        """
        made, labels = with_origin(route()), {REMOTE_CLUSTER_LABEL: "rome"}
        for kind, version in (("grpcroutes", "v1alpha2"), ("httproutes", "v1beta1"), ("httproutes", "v1")):
            group = GROUPS[kind]
            for user, foreign in (*((one, True) for one in BORROWERS), *((one, False) for one in OTHERS)):
                request = Request(user, "CREATE", kind, made, None, group, "shop-rome", labels, version=version)
                found = refusals(policies(contract()), request)
                self.assertEqual(bool(found), foreign and version != "v1", (kind, version, user, found))

    def test_gateways(self) -> None:
        """A route is of granted gateways alone, each with its namespace; of no service, and no part of a gateway."""
        for fine in ([GATEWAY], [{**GATEWAY, "group": "gateway.networking.k8s.io", "kind": "Gateway"}]):
            self.assertEqual(refused(route(parentRefs=fine)), [])
        for bad in (
            None,
            [],
            [{"name": "shared"}],
            [{**GATEWAY, "name": "internal"}],
            [{**GATEWAY, "namespace": "shop-rome"}],
            [GATEWAY, {**GATEWAY, "name": "internal"}],
            [{**GATEWAY, "kind": "Service"}],
            [{**GATEWAY, "group": ""}],
            [{**GATEWAY, "sectionName": "internal"}],
            [{**GATEWAY, "port": 8443}],
        ):
            self.assertEqual(len(refused(route(parentRefs=bad))), 1, bad)

    def test_hosts(self) -> None:
        """The hosts are those of ingresses, and a route names them: without, it takes what no other one takes."""
        hosts = ["{tenant}.apps.example", "shared.example"]
        for host in ("rome.apps.example", "a.rome.apps.example", "*.rome.apps.example", "x.shared.example"):
            self.assertEqual(refused(route(hostnames=[host]), ingress_hosts=hosts), [], host)
        for bad in (
            None,
            [],
            ["paris.apps.example"],
            ["notrome.apps.example"],
            ["*.apps.example"],
            ["rome.apps.example", "www.lender.example"],
            ["*"],
        ):
            self.assertEqual(len(refused(route(hostnames=bad), ingress_hosts=hosts)), 1, bad)

    def test_rights(self) -> None:
        """Over the relay a borrower asks for routes in its own namespaces, for no gateway and no grant."""
        for plural, namespace, fine in (
            ("httproutes", "shop-rome", True),
            ("grpcroutes", "shop-rome", True),
            ("gateways", "shop-rome", False),
            ("referencegrants", "shop-rome", False),
            ("tlsroutes", "shop-rome", False),
        ):
            ask = RequestAttributes("create", "gateway.networking.k8s.io", plural, namespace=namespace)
            self.assertEqual(permits(ClusterID("rome"), ask, "rome"), fine, plural)
            self.assertFalse(permits(ClusterID("rome"), ask, "paris"), plural)

    def test_metadata(self) -> None:
        """Labels, annotations, finalizers and owners are those of all kinds that others read."""
        for metadata in (
            {"annotations": {"cert-manager.io/cluster-issuer": "lender"}},
            {"labels": {"external-dns.alpha.kubernetes.io/hostname": "x"}},
            {"finalizers": ["x.example/never"]},
            {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}]},
        ):
            made = route()
            made["metadata"] |= metadata
            for kind in ("httproutes", "grpcroutes"):
                self.assertEqual(len(asked(BORROWERS[0], kind, made, contract=contract())), 1, metadata)

    def test_counts(self) -> None:
        """Routes are counted where gateways are granted: elsewhere their definitions may be missing."""
        name = "count/httproutes.gateway.networking.k8s.io"
        self.assertNotIn(name, most_of_namespace(granted(), None))
        self.assertNotIn(name, most_of_tenant(granted(), None))
        self.assertEqual(most_of_namespace(contract(), None)[name], 100)
        self.assertEqual(most_of_tenant(contract(), None)[name], 1000)


class RuleTests(SynchronousTestCase):
    """Where a route leads, and what it does on the way."""

    def test_backends(self) -> None:
        """Services of the same namespace alone: neither those of others, nor other kinds, nor filters of a backend."""
        for fine in (
            {**BACKEND, "group": "", "kind": "Service", "weight": 1},
            {**BACKEND, "namespace": "shop-rome"},
        ):
            self.assertEqual(refused(route({"backendRefs": [fine]})), [])
        for bad in (
            {**BACKEND, "namespace": "kube-system"},
            {**BACKEND, "kind": "ServiceImport", "group": "multicluster.x-k8s.io"},
            {**BACKEND, "kind": "Backend", "group": "gateway.envoyproxy.io"},
            {**BACKEND, "kind": "ConfigMap"},
            {**BACKEND, "filters": []},
        ):
            for kind in ("httproutes", "grpcroutes"):
                self.assertEqual(len(refused(route(RULE, {"backendRefs": [BACKEND, bad]}), kind)), 1, bad)

    def test_filters(self) -> None:
        """Four of them pass; a mirror, what an extension does, and what a later release does, do not."""
        for fine in (
            {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "X-A", "value": "b; c=d"}]}},
            {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"remove": ["Server"]}},
            {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}},
            {
                "type": "URLRewrite",
                "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v2"}},
            },
        ):
            self.assertEqual(refused(route({**RULE, "filters": [fine]})), [], fine)
        for bad in (
            {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "x", "namespace": "kube-system"}}},
            {"type": "ExtensionRef", "extensionRef": {"group": "x.example", "kind": "Snippet", "name": "s"}},
            {"type": "CORS", "cors": {}},
            {"type": "ExternalAuth", "externalAuth": {}},
            {"type": "URLRewrite", "urlRewrite": {}, "extensionRef": {}},
            {"type": "URLRewrite", "urlRewrite": {"body": "x"}},
        ):
            self.assertEqual(len(refused(route({**RULE, "filters": [bad]}))), 1, bad)

    def test_what_gateways_write_into_their_configuration(self) -> None:
        """Variables of a proxy, quotes and braces are in no header, path or parameter."""
        for text in ("%ENVIRONMENT(TOKEN)%", "$host", '"', "a\\b", "{{ x }}", "a\nb", "`id`", "'"):
            value = {"name": "X-A", "value": text}
            for filters in (
                [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": [value]}}],
                [{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [value]}}],
                [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": [text]}}],
                [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": text, "value": "a"}]}}],
                [{"type": "URLRewrite", "urlRewrite": {"path": {"replaceFullPath": f"/{text}"}}}],
                [{"type": "RequestRedirect", "requestRedirect": {"path": {"replacePrefixMatch": text}}}],
                [{"type": "RequestRedirect", "requestRedirect": {"hostname": text}}],
            ):
                self.assertEqual(len(refused(route({**RULE, "filters": filters}))), 1, filters)
            for match in ({"headers": [value]}, {"queryParams": [value]}, {"headers": [{"name": text, "value": "a"}]}):
                self.assertEqual(len(refused(route({**RULE, "matches": [match]}))), 1, match)

    @given(st.text(max_size=12), st.sampled_from(["Exact", "PathPrefix", "RegularExpression", "Later"]))
    @STEADILY
    def test_paths(self, path: str, kind: str) -> None:
        """Plain ones, of the types that each gateway has."""
        made = route({**RULE, "matches": [{"path": {"type": kind, "value": f"/{path}"}}]})
        fine = is_plain(f"/{path}") and kind in ("Exact", "PathPrefix")
        self.assertEqual(refused(made) == [], fine)

    def test_matches(self) -> None:
        """Headers, parameters and methods are compared as they are; of a gRPC call the service and the method too."""
        for fine in ({"method": "GET"}, {"headers": [{"name": "a", "value": "b"}]}, {}):
            self.assertEqual(refused(route({**RULE, "matches": [fine]})), [])
        for bad in (
            {"headers": [{"type": "RegularExpression", "name": "a", "value": "(a+)+"}]},
            {"queryParams": [{"type": "RegularExpression", "name": "a", "value": "(a+)+"}]},
            {"expression": "true"},
        ):
            self.assertEqual(len(refused(route({**RULE, "matches": [bad]}))), 1, bad)
        for call, passes in (
            ({"service": "shop.v1.Cart", "method": "Add"}, True),
            ({"type": "Exact", "service": "shop.v1.Cart"}, True),
            ({"type": "RegularExpression", "service": ".*"}, False),
            ({"service": "a;b"}, False),
            ({"service": "a", "package": "b"}, False),
        ):
            made = route({"backendRefs": [BACKEND], "matches": [{"method": call}]})
            self.assertEqual(refused(made, "grpcroutes") == [], passes, call)

    def test_numbers(self) -> None:
        """A gateway goes through the rules of all routes."""
        self.assertEqual(refused(route(*[RULE] * MAX_ROUTE_RULES)), [])
        self.assertEqual(len(refused(route(*[RULE] * (MAX_ROUTE_RULES + 1)))), 1)
        self.assertEqual(refused(route({"matches": [{"method": "GET"}] * MAX_MATCHES})), [])
        self.assertEqual(len(refused(route({"matches": [{"method": "GET"}] * (MAX_MATCHES + 1)}))), 1)

    def test_fields_of_tomorrow(self) -> None:
        """What nobody has judged is refused, in the route and in its rules."""
        self.assertEqual(len(refused(route(useDefaultGateways="All"))), 1)
        for field in ("timeouts", "retry", "sessionPersistence", "name"):
            self.assertEqual(len(refused(route({**RULE, field: {}}))), 1, field)
