"""Which routes of the Gateway API go to a lender, and as what."""

from __future__ import annotations

from typing import Any

import msgspec
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.decide import Create, Keep, Patch, decide
from liqod.kubelet.reflection.forge.reflected import DesiredObject, Withheld
from liqod.kubelet.reflection.forge.route import NO_GATEWAY
from liqod.kubelet.reflection.kinds import GRPCROUTE, HTTPROUTE, Kind
from liqod.kubelet.reflection.views import WithSpec
from tests.hosting.tenants.test_policies import STEADILY
from tests.hosting.tenants.test_route_policies import refused
from tests.kubelet.networks import LenderObjects
from tests.kubelet.reflection.test_service_forge import CONTEXT

GATEWAY = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "public", "name": "shared"}
BACKEND = {"name": "web", "port": 80}
SERVICE = {"group": "", "kind": "Service", "name": "web", "weight": 1, "port": 80}
ROOT = {"path": {"type": "PathPrefix", "value": "/"}}


def at_home(*rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    spec = {"parentRefs": [{"name": "mine", "sectionName": "web"}], "hostnames": ["shop.example"], **fields}
    return {**spec, "rules": list(rules)} if rules else spec


def view(spec: dict[str, Any], namespace: str = "shop", **metadata: Any) -> WithSpec:
    body = {"metadata": {"name": "web", "namespace": namespace, **metadata}, "spec": spec}
    return msgspec.json.decode(msgspec.json.encode(body), type=WithSpec)


def forged(
    spec: dict[str, Any], gateways: tuple[str, ...] | None = ("public/shared",), kind: Kind = HTTPROUTE
) -> DesiredObject | Withheld:
    inputs = evolve(CONTEXT, home=LenderObjects(gateways=gateways))
    return kind.forge(view(spec), inputs)


def made(spec: dict[str, Any], gateways: tuple[str, ...] | None = ("public/shared",), kind: Kind = HTTPROUTE) -> Any:
    desired = forged(spec, gateways, kind)
    assert isinstance(desired, DesiredObject), desired
    return desired


def stays(spec: dict[str, Any], kind: Kind = HTTPROUTE) -> str:
    found = forged(spec, kind=kind)
    assert isinstance(found, Withheld), found
    assert found.recorded
    return found.why


class RouteTests(SynchronousTestCase):
    """A route as home has it."""

    def test_the_gateway_is_the_lenders(self) -> None:
        """It is of the first that is offered, whatever gateways it has at home; hosts and rules go along."""
        desired = made(at_home({"backendRefs": [BACKEND]}), ("public/shared", "public/other"))
        self.assertEqual(
            desired.content["spec"],
            {
                "parentRefs": [GATEWAY],
                "hostnames": ["shop.example"],
                "rules": [{"matches": [ROOT], "backendRefs": [SERVICE]}],
            },
        )
        self.assertEqual((desired.idle, desired.incomplete, desired.objections), (False, False, ()))

    def test_without_a_gateway_there(self) -> None:
        """It is not made, and an event says so; while the offer is not known it waits without one."""
        none, unknown = made(at_home(), ()), made(at_home(), None)
        self.assertEqual((none.idle, none.incomplete, none.objections), (True, False, (NO_GATEWAY,)))
        self.assertEqual((unknown.idle, unknown.incomplete, unknown.objections), (True, True, ()))
        for desired in (none, unknown):
            self.assertNotIn("parentRefs", desired.content["spec"])

    def test_calls(self) -> None:
        """A GRPCRoute has methods in place of paths, and no match by itself."""
        call = {"service": "shop.v1.Cart", "method": "Add"}
        rules = made(
            at_home({"matches": [{"method": call}], "backendRefs": [BACKEND]}, {"backendRefs": [BACKEND]}),
            kind=GRPCROUTE,
        ).content["spec"]["rules"]
        self.assertEqual(
            rules,
            [
                {"matches": [{"method": {"type": "Exact", **call}}], "backendRefs": [SERVICE]},
                {"backendRefs": [SERVICE]},
            ],
        )
        self.assertIn("pattern", stays(at_home({"matches": [{"method": {"type": "RegularExpression"}}]}), GRPCROUTE))

    def test_what_stays_at_home(self) -> None:
        """Each with what it is that no lender takes."""
        other = {"type": "RequestMirror", "requestMirror": {}}
        value = {"name": "X-A", "value": "%ENVIRONMENT(A)%"}
        header = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [value]}}
        for spec, word in (
            (at_home(parentRefs=[]), "gateway"),
            (at_home(parentRefs=[{"kind": "Service", "group": "", "name": "web"}]), "gateway"),
            (at_home(hostnames=[]), "host"),
            (at_home(*[{}] * 17), "17 rules"),
            (at_home({"matches": [{}] * 9}), "9 matches"),
            (at_home({"timeouts": {"request": "1s"}}), "timeouts"),
            (at_home({"backendRefs": [{**BACKEND, "namespace": "db"}]}), "namespace 'db'"),
            (at_home({"backendRefs": [{**BACKEND, "kind": "ServiceImport"}]}), "ServiceImport"),
            (at_home({"backendRefs": [{**BACKEND, "filters": [other]}]}), "filters"),
            (at_home({"filters": [other]}), "RequestMirror"),
            (at_home({"filters": [header]}), "X-A"),
            (at_home({"filters": [{"type": "URLRewrite", "urlRewrite": {"hostname": "a;b"}}]}), "a;b"),
            (at_home({"matches": [{"path": {"type": "RegularExpression", "value": "/.*"}}]}), "RegularExpression"),
            (at_home({"matches": [{"path": {"type": "Exact", "value": "/;} x"}}]}), "/;} x"),
            (at_home({"matches": [{"headers": [{"type": "RegularExpression", "name": "a", "value": "b"}]}]}), "'a'"),
            (at_home({"matches": [{"queryParams": [value]}]}), "X-A"),
        ):
            self.assertIn(word, stays(spec))

    def test_a_backend_that_names_its_own_namespace(self) -> None:
        """It goes without: the namespace has another name there."""
        desired = made(at_home({"backendRefs": [{**BACKEND, "namespace": "shop"}]}))
        self.assertEqual(desired.content["spec"]["rules"][0]["backendRefs"], [SERVICE])

    def test_annotated(self) -> None:
        """As every kind."""
        home = view(at_home(), annotations={"liqo.io/skip-reflection": "true"})
        self.assertIsInstance(HTTPROUTE.forge(home, CONTEXT), Withheld)


class LenderTests(SynchronousTestCase):
    """The route at the lender."""

    def step(self, spec: dict[str, Any] | None, gateways: tuple[str, ...] | None = ("public/shared",)) -> Any:
        """Return the step for a route that the lender has with a spec."""
        desired = made(at_home({"backendRefs": [BACKEND]}), gateways)
        there = None
        if spec is not None:
            there = view(spec, "shop-home", uid="u", labels=desired.labels, annotations=desired.annotations)
        return decide(HTTPROUTE, desired, there, name="web", namespace="shop-home", context=CONTEXT.context)

    def there(self, **fields: Any) -> dict[str, Any]:
        spec: dict[str, Any] = made(at_home({"backendRefs": [BACKEND]})).content["spec"]
        return {**spec, **fields}

    def test_made(self) -> None:
        """Only where a gateway is offered."""
        self.assertIsInstance(self.step(None), Create)
        self.assertIsInstance(self.step(None, ()), Keep)

    def test_defaults_of_another_release(self) -> None:
        """What the API server there fills in is no difference, and nothing is written again."""
        rule = {"matches": [ROOT], "backendRefs": [SERVICE], "name": "filled-in"}
        parents = [{"namespace": "public", "name": "shared"}]
        for spec in (self.there(), self.there(rules=[rule]), self.there(parentRefs=parents)):
            self.assertIsInstance(self.step(spec), Keep, str(spec))

    def test_a_gateway_that_is_offered_is_kept(self) -> None:
        """Also when another one is the first; one that is not offered any more makes way, but not for none."""
        self.assertIsInstance(self.step(self.there(), ("public/new", "public/shared")), Keep)
        moved = self.step(self.there(), ("public/new",))
        assert isinstance(moved, Patch)
        self.assertEqual(moved.patch["spec"], {"parentRefs": [{**GATEWAY, "name": "new"}]})
        for gateways in ((), None):
            self.assertIsInstance(self.step(self.there(), gateways), Keep)

    def test_what_somebody_added_there(self) -> None:
        """It is taken back: a gateway beside ours, and what forging knows nothing of."""
        for fields in ({"parentRefs": [GATEWAY, {**GATEWAY, "name": "x"}]}, {"hostnames": ["other.example"]}):
            step = self.step(self.there(**fields))
            assert isinstance(step, Patch), step
            self.assertEqual(set(step.patch["spec"]), set(fields))


TEXTS = st.text(alphabet="aZ0-_. ;$%\"'{}/\n", max_size=6)


class AgreementTests(SynchronousTestCase):
    """Both sides."""

    @given(TEXTS, TEXTS, st.sampled_from(["Exact", "PathPrefix", "RegularExpression"]), st.integers(1, 10))
    @STEADILY
    def test_what_goes_is_not_refused(self, name: str, value: str, kind: str, count: int) -> None:
        """What home sends passes the policy of a lender that grants its gateway and its hosts."""
        header = {"name": name, "value": value}
        rule = {
            "matches": [{"path": {"type": kind, "value": f"/{value}"}, "headers": [header]}] * count,
            "filters": [
                {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [header], "remove": [name]}},
                {"type": "URLRewrite", "urlRewrite": {"hostname": name, "path": {"replaceFullPath": value}}},
            ],
            "backendRefs": [BACKEND],
        }
        desired = forged(at_home(rule))
        if isinstance(desired, DesiredObject):
            self.assertEqual(refused({"metadata": {"name": "r", "namespace": "shop-rome"}, **desired.content}), [])
