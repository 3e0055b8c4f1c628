"""Routes of the Gateway API between two real clusters, with definitions that judge and fill them in (``gateway_api``).

No gateway runs: what one would read is looked at.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from liqod.hosting.tenants.closing import NOWHERE
from liqod.model.ingress_path import GATEWAY_GROUP
from tests.real.counts import writes
from tests.real.gateway_api import definitions
from tests.real.manifests import service
from tests.real.path import NAMESPACE, advertisement, enabled_namespace, eventually, peer_of
from tests.real.steps import Steps

SHARED, OTHER = "public/shared", "public/other"
GRANTED: Final = f'gateways = ["{SHARED}", "{OTHER}"]\n'
NONE: Final = "gateways = []\n"
BACKEND: Final[dict[str, Any]] = {"name": "web", "port": 80}
RULE: Final[dict[str, Any]] = {"backendRefs": [BACKEND]}
COUNTED: Final = {f"count/{kind}.{GATEWAY_GROUP}" for kind in ("httproutes", "grpcroutes")}
AT_HOME: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "nameless": ({"hostnames": None}, "it names no host"),
    "lonely": ({"parentRefs": None}, "it is of no gateway"),
    "elsewhere": (
        {"rules": [{"backendRefs": [{**BACKEND, "namespace": "kube-system"}]}]},
        "it leads to a Service of the namespace 'kube-system'",
    ),
    "mirrored": (
        {"rules": [{**RULE, "filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": BACKEND}}]}]},
        "it has a filter 'RequestMirror'",
    ),
    "pattern": (
        {"rules": [{**RULE, "matches": [{"path": {"type": "RegularExpression", "value": "/(a+)+"}}]}]},
        "is of the type 'RegularExpression'",
    ),
    "timed": ({"rules": [{**RULE, "timeouts": {"request": "5s"}}]}, "a rule of it has 'timeouts'"),
}
"""What keeps an HTTPRoute at home: the fields that are other than usual, and what is said of it."""


def route(name: str, kind: str = "HTTPRoute", **fields: Any) -> dict[str, Any]:
    """Return a route of a gateway that only home has; a field that is None is left out."""
    spec = {"parentRefs": [{"name": "mine"}], "hostnames": [f"{name}.example.com"], "rules": [RULE], **fields}
    return {
        "apiVersion": f"{GATEWAY_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {field: value for field, value in spec.items() if value is not None},
    }


def parents(gateway: str) -> list[dict[str, str]]:
    """Return the gateways of a route that is of one."""
    namespace, _, name = gateway.partition("/")
    return [{"group": GATEWAY_GROUP, "kind": "Gateway", "namespace": namespace, "name": name}]


class GatewayRoutesTests(Steps):
    """One walk; rome's routes go to milan, which grants gateways from the third step on."""

    configuration = NONE + Steps.configuration
    start_daemons = False

    def is_counted(self) -> bool:
        """Tell whether a new quota of milan's counts routes; one from before is looked at after minutes only."""
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "probe", "namespace": "default"},
            "spec": {"hard": dict.fromkeys(sorted(COUNTED), "1000")},
        }
        self.lender.kubectl("delete", "resourcequota", "probe", "-n", "default", "--ignore-not-found")
        self.lender.apply(quota)
        found = partial(self.lender.get, "resourcequota", "probe", "-n", "default")
        eventually("they are counted", lambda: found().get("status", {}).get("used", {}).keys() >= COUNTED, 8.0)
        return True

    def grant(self, before: str, after: str) -> None:
        """Have milan grant other gateways, and wait until rome knows."""
        config = self.milan.config
        text = config.read_text()
        self.assertIn(before, text)
        config.write_text(text.replace(before, after))
        self.milan.stop()
        # The policies that judge routes name the gateways: they are an administrator's.
        self.milan.install()
        self.milan.start()
        wanted = json.loads(after.partition("=")[2])

        def offered() -> bool:
            offer = advertisement(self.home, peer_of(self.home, "milan")["metadata"]["name"])["spec"]["offer"]
            return bool(list(offer.get("gateways") or []) == wanted)

        eventually("the offer has the gateways", offered, 180)

    def is_said(self, name: str, reason: str, words: str) -> None:
        """Wait for an event about a route at home."""
        selector = f"--field-selector=involvedObject.name={name},reason={reason}"

        def said() -> bool:
            events = self.home.get("events", "-n", NAMESPACE, selector)["items"]
            return any(words in one["message"] for one in events)

        eventually(f"{name} has an event {reason}", said)

    def is_there(self, name: str, kind: str = "httproute", **fields: Any) -> bool:
        """Tell whether a route is at milan, with some fields of its spec."""
        spec = self.there(kind, name)["spec"]
        self.assertEqual({field: spec.get(field) for field in fields}, fields)
        return True

    def test_01_peers_that_serve_routes(self) -> None:
        """Both clusters know the kinds before the daemons begin; rome has a virtual node of milan."""
        for cluster in (self.home, self.lender):
            cluster.apply(*definitions())
            for kind in ("httproutes", "grpcroutes"):
                eventually(f"{kind} are served", partial(cluster.get, kind, "-A"))
        eventually("quotas count them", self.is_counted, 240)
        self.lender.kubectl("delete", "resourcequota", "probe", "-n", "default")
        self.rome.start()
        self.milan.start()
        self.peer_up()
        self.home.apply(enabled_namespace(), service("web", {"app": "web"}, 80, namespace=NAMESPACE))
        self.make("first")
        self.runs("first")

    def test_02_no_gateway_is_offered(self) -> None:
        """Routes stay at home, and an event says what milan's administrator would have to grant."""
        self.home.apply(route("web"), route("calls", "GRPCRoute"))
        for name in ("web", "calls"):
            self.is_said(name, "ClassNotOffered", "[hosting] gateways")
        for kind, name in (("httproute", "web"), ("grpcroute", "calls")):
            self.assertTrue(self.is_absent(self.lender, kind, name, self.remote()))

    def test_03_of_the_first_gateway(self) -> None:
        """Both kinds go as soon as gateways are offered: of the first, for their hosts, with defaults filled in."""
        self.grant(NONE, GRANTED)
        backend = {"group": "", "kind": "Service", "weight": 1, **BACKEND}
        # The tenant's quota learns of the two kinds by the grant.
        eventually("the HTTPRoute", partial(self.is_there, "web", hostnames=["web.example.com"]), 240)
        eventually("the GRPCRoute", partial(self.is_there, "calls", "grpcroute", hostnames=["calls.example.com"]))
        matches = [{"path": {"type": "PathPrefix", "value": "/"}}]
        self.is_there("web", parentRefs=parents(SHARED), rules=[{"matches": matches, "backendRefs": [backend]}])
        self.is_there("calls", "grpcroute", parentRefs=parents(SHARED), rules=[{"backendRefs": [backend]}])
        self.assertEqual(self.here("httproute", "web")["spec"]["parentRefs"][0]["name"], "mine")

    def test_04_defaults_are_no_difference(self) -> None:
        """What both API servers filled in is not written again and again."""
        before = writes(self.lender, "httproutes", "grpcroutes")
        self.stays("written once", lambda: writes(self.lender, "httproutes", "grpcroutes") == before, 8.0)

    def test_05_changes(self) -> None:
        """Changes at home are followed, with every filter and match that lenders take; those at milan are undone."""
        path = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v2"}
        filters = [
            {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "X-A", "value": "a"}]}},
            {"type": "URLRewrite", "urlRewrite": {"path": path}},
        ]
        compared = [{"name": "X-B", "value": "b", "type": "Exact"}]
        match = {"path": {"type": "PathPrefix", "value": "/v1"}, "headers": compared, "method": "GET"}
        moved = {"type": "RequestRedirect", "requestRedirect": {"hostname": "www.example.com"}}
        rules = [{**RULE, "filters": filters, "matches": [match]}, {"filters": [moved]}]
        self.home.apply(route("web", hostnames=["www.example.com"], rules=rules))
        eventually("the host follows", partial(self.is_there, "web", hostnames=["www.example.com"]))
        first, second = self.there("httproute", "web")["spec"]["rules"]
        self.assertEqual((first["filters"], first["matches"]), (filters, [match]))
        self.assertEqual(second["filters"][0]["requestRedirect"]["statusCode"], 302)
        patch = json.dumps({"spec": {"hostnames": ["milan.example.com"]}})
        self.lender.kubectl("patch", "httproute", "web", "-n", self.remote(), "--type=merge", "-p", patch)
        eventually("home's host again", partial(self.is_there, "web", hostnames=["www.example.com"]))
        self.lender.kubectl("delete", "grpcroute", "calls", "-n", self.remote())
        eventually("it is made again", partial(self.is_there, "calls", "grpcroute", parentRefs=parents(SHARED)))
        status = json.dumps({"status": {"parents": []}})
        words = ("-n", self.remote(), "--subresource=status", "--type=merge", "-p", status)
        self.lender.kubectl("patch", "httproute", "web", *words)
        self.stays("its status is milan's", lambda: "status" not in self.here("httproute", "web"), 2.0)

    def test_06_what_stays_at_home(self) -> None:
        """A route with what no lender takes stays as a whole, and an event says why; it goes when that is gone."""
        self.home.apply(*(route(name, **fields) for name, (fields, _) in AT_HOME.items()))
        for name, (_, words) in AT_HOME.items():
            self.is_said(name, "NotReflected", words)
            self.assertTrue(self.is_absent(self.lender, "httproute", name, self.remote()), name)
        method = {"type": "RegularExpression", "service": "a.*"}
        self.home.apply(route("many", "GRPCRoute", rules=[{**RULE, "matches": [{"method": method}]}]))
        self.is_said("many", "NotReflected", "is a pattern")
        self.assertTrue(self.is_absent(self.lender, "grpcroute", "many", self.remote()))
        self.home.apply(route("timed"))
        eventually("it goes", partial(self.is_there, "timed", parentRefs=parents(SHARED)))
        self.home.apply(route("timed", **AT_HOME["timed"][0]))
        eventually("it comes home", partial(self.is_absent, self.lender, "httproute", "timed", self.remote()))

    def test_07_a_host_that_is_not_granted(self) -> None:
        """Milan's API server refuses a route for a host of others; the event at home has its words."""
        self.home.apply(route("thief", hostnames=["www.lender.example"]))
        events = partial(self.home.kubectl, "get", "events", "-n", NAMESPACE, "-o", "json")
        eventually("the refusal is said", lambda: "route is for hosts under" in events())
        self.assertTrue(self.is_absent(self.lender, "httproute", "thief", self.remote()))
        self.drop("httproute/thief")

    def test_08_another_gateway(self) -> None:
        """A route keeps a gateway that is offered, also one that milan chose; of one that is not it goes to the first.

        Where none is offered any more it stays, and an event says so.
        """
        patch = json.dumps({"spec": {"parentRefs": parents(OTHER)}})
        self.lender.kubectl("patch", "httproute", "web", "-n", self.remote(), "--type=merge", "-p", patch)
        self.stays("it is of the other one", partial(self.is_there, "web", parentRefs=parents(OTHER)))
        self.is_there("calls", "grpcroute", parentRefs=parents(SHARED))
        only = f'gateways = ["{OTHER}"]\n'
        self.grant(GRANTED, only)
        eventually("it moves", partial(self.is_there, "calls", "grpcroute", parentRefs=parents(OTHER)), 180)
        self.grant(only, NONE)
        self.home.apply(route("later"))
        self.is_said("later", "ClassNotOffered", "[hosting] gateways")
        self.is_there("web", parentRefs=parents(OTHER))
        self.drop("httproute/later")
        self.grant(NONE, GRANTED)

    def test_09_removal(self) -> None:
        """A route that goes at home goes at milan."""
        self.drop("grpcroute/calls")
        eventually("it goes", partial(self.is_absent, self.lender, "grpcroute", "calls", self.remote()))

    def test_10_the_namespace_ends(self) -> None:
        """What is held at milan when its namespace ends takes no traffic: of no gateway, for no host, to no service."""
        hold = json.dumps({"metadata": {"finalizers": ["example.com/hold"]}})
        release = json.dumps({"metadata": {"finalizers": None}})
        held = ("httproute", "web", "-n", self.remote(), "--type=merge", "-p")
        self.lender.kubectl("patch", *held, hold)
        self.drop("pod/first")
        self.home.kubectl("label", "namespace", NAMESPACE, "liqo.io/enabled-")
        eventually("it is closed", partial(self.is_there, "web", parentRefs=None, hostnames=[NOWHERE]))
        rules = self.there("httproute", "web")["spec"].get("rules") or []
        self.assertFalse([one for one in rules if one.get("backendRefs")])
        self.lender.kubectl("patch", *held, release)
        eventually("it is gone", partial(self.is_absent, self.lender, "namespace", self.remote()))
        self.assertEqual(self.here("httproute", "web")["spec"]["hostnames"], ["www.example.com"])
