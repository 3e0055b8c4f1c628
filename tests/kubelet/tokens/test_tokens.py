"""Tokens of offloaded pods: how a pod's spec comes to use them, and what is done about their secret."""

from __future__ import annotations

import copy
from typing import Any, cast

import attrs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kubelet.common.context import ApiServer, Context
from liqod.kubelet.common.egress import Egress, EgressRule
from liqod.kubelet.common.views import HomePod, Shadow
from liqod.kubelet.lender.home_api import HomeApi
from liqod.kubelet.pods.forge import forge_spec
from liqod.kubelet.tokens.projection import TokenSource, secret_name, sources_of
from liqod.kubelet.tokens.secret import (
    Mint,
    Minted,
    Remove,
    Rest,
    Step,
    Taken,
    due_in,
    forge,
    is_in_use,
    plan,
    pod_of,
    request,
)
from liqod.model.ids import ClusterID
from liqod.model.names import HOME_POD_UID_ANNOTATION
from liqod.model.objects.label_selector import parse
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.timestamps import from_epoch, rfc3339
from tests.kubelet.networks import Services

SERVER = ApiServer(("10.99.0.11", "10.99.0.12"), 6443)
CONTEXT = Context(ClusterID("home"), ClusterID("lender"), "liqo-lender", services=Services(SERVER))
NOW = 1_800_000_000.0
NAMESPACE_ITEM = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}


def volume(*more: dict[str, Any], seconds: int = 3607) -> dict[str, Any]:
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": seconds}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [NAMESPACE_ITEM]}},
    ]
    return {"name": "kube-api-access-x1", "projected": {"defaultMode": 420, "sources": [*sources, *more]}}


def spec(**more: Any) -> dict[str, Any]:
    mounts = [{"name": "kube-api-access-x1", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    container = {"name": "main", "image": "busybox", "volumeMounts": mounts}
    return {"serviceAccountName": "builder", "volumes": [volume()], "containers": [container], **more}


def pod(uid: str = "u1", phase: str = "Running", deleting: bool = False, **fields: Any) -> HomePod:
    metadata = {"name": "web", "namespace": "shop", "uid": uid, **fields.pop("metadata", {})}
    if deleting:
        metadata["deletionTimestamp"] = rfc3339(from_epoch(NOW))
    body = {"metadata": metadata, "spec": spec(**fields), "status": {"phase": phase}}
    return msgspec.json.decode(msgspec.json.encode(body), type=HomePod)


def secret(home: HomePod, expires: float = NOW + 3607, **changes: Any) -> Object:
    body = forge(home.metadata, "builder", Minted({"k": "t"}, from_epoch(expires)), CONTEXT)
    body["metadata"] |= {"uid": "s1", **changes}
    return msgspec.convert(body, Object)


class RequestTests(SynchronousTestCase):
    """What is asked of the API server at home."""

    def test_no_token_of_a_year(self) -> None:
        """With the lifetime of a pod's own volume an API server makes a token that is good for a year."""
        (own,) = sources_of(spec())
        self.assertEqual(own.seconds, 3607)
        for source, seconds in ((own, 3600), (TokenSource("k", "vault", 600), 600), (TokenSource("k", "", 7200), 7200)):
            asked = request(source, pod().metadata)["spec"]
            self.assertEqual((asked["expirationSeconds"], asked["boundObjectRef"]["uid"]), (seconds, "u1"))


class SpecTests(SynchronousTestCase):
    def forged(self, given: dict[str, Any], **meta: Any) -> dict[str, Any]:
        before = copy.deepcopy(given)
        result = forge_spec(ObjectMeta(name="web", namespace="shop", uid="u1", **meta), given, CONTEXT)
        self.assertEqual(given, before)
        return result

    def test_the_volume_of_the_api_server(self) -> None:
        """Token and namespace come from the pod's secret, the CA under its name there; mounts and mode stay."""
        forged = self.forged(spec())
        (found,) = forged["volumes"]
        (token,) = sources_of(spec())
        items = [{"key": token.key, "path": "token"}, {"key": "namespace", "path": "namespace"}]
        ca = {"name": "kube-root-ca.crt.home", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
        wanted = [{"configMap": ca}, {"secret": {"name": "web.liqo-token", "items": items}}]
        self.assertEqual(found["projected"], {"defaultMode": 420, "sources": wanted})
        self.assertEqual(forged["containers"][0]["volumeMounts"], spec()["containers"][0]["volumeMounts"])
        self.assertNotIn("serviceAccountName", forged)
        self.assertIs(forged["automountServiceAccountToken"], False)

    def test_tokens_that_may_not_leave(self) -> None:
        """By a rule for tokens, or for the pod itself, nothing of them leaves: no volume, no secret, and one that is
        there is removed.
        """
        for kind in ("serviceaccount", "pod"):
            rule = EgressRule(number=1, verdict="deny", kinds=frozenset({kind}), labels=parse("stay"))
            kept = attrs.evolve(CONTEXT, egress=Latest(Egress((rule,))))
            stays = pod(metadata={"labels": {"stay": ""}})
            self.assertEqual(plan(stays, None, kept, now=from_epoch(NOW)), Rest())
            self.assertEqual(plan(stays, secret(stays), kept, now=from_epoch(NOW), left=60.0), Remove("s1"))
            self.assertIsInstance(plan(pod(), None, kept, now=from_epoch(NOW)), Mint)
            forged = forge_spec(stays.metadata, spec(), kept)
            self.assertNotIn("volumes", forged)
            self.assertNotIn("hostAliases", forged)
            self.assertIn("volumes", forge_spec(pod().metadata, spec(), kept))

    def test_several_sources(self) -> None:
        """Several tokens have keys of their own; other sources, and other items of the downward API, stay."""
        label = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
        vault = {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 600}}
        certificate = {"podCertificate": {"signerName": "x/y"}}
        given = volume(vault, {"downwardAPI": {"items": [label]}}, {"secret": {"name": "s"}}, certificate)
        forged = self.forged(spec(volumes=[given]))
        sources = forged["volumes"][0]["projected"]["sources"]
        self.assertIn({"downwardAPI": {"items": [label]}}, sources)
        self.assertIn({"secret": {"name": "s"}}, sources)
        self.assertNotIn(certificate, sources)
        tokens = sources_of(spec(volumes=[given]))
        self.assertEqual([(t.audience, t.seconds) for t in tokens], [("", 3607), ("vault", 600)])
        items = sources[-1]["secret"]["items"]
        self.assertEqual([item["path"] for item in items], ["token", "vault", "namespace"])
        self.assertEqual(len({item["key"] for item in items}), 3)

    def test_the_namespace_stays_where_no_token_is(self) -> None:
        """A volume without tokens is filled by the lender, but for the CA of the home cluster."""
        sources = [{"downwardAPI": {"items": [NAMESPACE_ITEM]}}, {"configMap": {"name": "kube-root-ca.crt"}}]
        forged = self.forged(spec(volumes=[{"name": "mine", "projected": {"sources": sources}}]))
        wanted = [sources[0], {"configMap": {"name": "kube-root-ca.crt.home"}}]
        self.assertEqual(forged["volumes"][0]["projected"]["sources"], wanted)
        self.assertNotIn("hostAliases", forged)
        self.assertNotIn("env", forged["containers"][0])

    def test_the_environment(self) -> None:
        """The API server is the home's, by a name of its certificate; what the user sets stands, and may use it."""
        own = [{"name": "KUBERNETES_PORT", "value": "mine"}, {"name": "U", "value": "$(KUBERNETES_SERVICE_HOST)"}]
        account = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}}
        containers = [{"name": "main", "env": [*own, account]}]
        forged = self.forged(spec(containers=containers, initContainers=[{"name": "init"}]))
        env = forged["containers"][0]["env"]
        values = {each["name"]: each.get("value") for each in env}
        self.assertEqual(len(values), len(env))
        self.assertEqual(values["KUBERNETES_SERVICE_HOST"], "kubernetes.default")
        self.assertEqual(values["KUBERNETES_SERVICE_PORT"], "6443")
        self.assertEqual((values["KUBERNETES_PORT"], values["A"]), ("mine", "builder"))
        self.assertLess([e["name"] for e in env].index("KUBERNETES_SERVICE_HOST"), [e["name"] for e in env].index("U"))
        init = {each["name"]: each["value"] for each in forged["initContainers"][0]["env"]}
        self.assertEqual(init["KUBERNETES_PORT_6443_TCP_ADDR"], "kubernetes.default")
        names = ["kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "kubernetes"]
        self.assertEqual(forged["hostAliases"], [{"ip": ip, "hostnames": names} for ip in SERVER.addresses])

    def test_the_domain_of_home(self) -> None:
        """The longest name of the API server ends as the names of home's cluster do."""
        context = attrs.evolve(CONTEXT, domain="home.example")
        forged = forge_spec(ObjectMeta(name="web", namespace="shop"), spec(), context)
        names = forged["hostAliases"][0]["hostnames"]
        self.assertEqual([name for name in names if name.count(".") > 2], ["kubernetes.default.svc.home.example"])

    def test_a_server_with_a_name(self) -> None:
        """An API server that has a DNS name is spoken to by that name."""
        context = Context(
            ClusterID("home"), ClusterID("l"), "n", services=Services(ApiServer((), 443, "api.example.com"))
        )
        forged = forge_spec(ObjectMeta(name="web"), spec(), context)
        values = {each["name"]: each["value"] for each in forged["containers"][0]["env"]}
        self.assertEqual(values["KUBERNETES_SERVICE_HOST"], "api.example.com")
        self.assertNotIn("hostAliases", forged)

    def test_the_root_ca_elsewhere(self) -> None:
        """The home's CA has its other name wherever a pod refers to it."""
        name = {"name": "kube-root-ca.crt", "key": "ca.crt"}
        container = {
            "name": "main",
            "env": [{"name": "CA", "valueFrom": {"configMapKeyRef": name}}],
            "envFrom": [{"configMapRef": {"name": "kube-root-ca.crt"}}, {"configMapRef": {"name": "other"}}],
        }
        volumes = [{"name": "ca", "configMap": {"name": "kube-root-ca.crt"}}]
        forged = self.forged({"containers": [container], "volumes": volumes})
        found = forged["containers"][0]
        self.assertEqual(found["env"][0]["valueFrom"]["configMapKeyRef"], {**name, "name": "kube-root-ca.crt.home"})
        names = [each["configMapRef"]["name"] for each in found["envFrom"]]
        self.assertEqual(names, ["kube-root-ca.crt.home", "other"])
        self.assertEqual(forged["volumes"][0]["configMap"]["name"], "kube-root-ca.crt.home")

    def test_switched_off_for_a_pod(self) -> None:
        """A pod annotated so has neither tokens nor the home's API server, and asks for no account of the lender."""
        forged = self.forged(spec(), annotations={"liqo.io/api-server-support": "disabled"})
        self.assertNotIn("volumes", forged)
        self.assertNotIn("env", forged["containers"][0])
        self.assertIs(forged["automountServiceAccountToken"], False)
        self.assertNotIn("serviceAccountName", forged)

    def test_an_account_of_the_lender(self) -> None:
        """A pod annotated so is sent as an account there, of its own name or the annotated one, without tokens of home.

        The volume of its own admission stays at home, since the lender's adds one; what the user mounts goes along.
        """
        asked = {"serviceAccountToken": {"path": "v", "audience": "vault"}}
        mine = {"name": "vault", "projected": {"sources": [asked]}}
        certified = {"name": "tls", "projected": {"sources": [{"podCertificate": {"signerName": "x/y"}}]}}
        ca = {"name": "ca", "configMap": {"name": "kube-root-ca.crt"}}
        for more, name in (({}, "builder"), ({"liqo.io/remote-service-account-name": "reader"}, "reader")):
            annotations = {"liqo.io/api-server-support": "Remote", **more}
            forged = self.forged(spec(volumes=[volume(), mine, certified, ca]), annotations=annotations)
            self.assertEqual((forged["serviceAccountName"], forged["automountServiceAccountToken"]), (name, True))
            self.assertEqual(forged["volumes"], [mine, {"name": "tls", "projected": {"sources": []}}, ca])
            self.assertNotIn("volumeMounts", forged["containers"][0])
            self.assertNotIn("env", forged["containers"][0])
            self.assertNotIn("hostAliases", forged)
            home = pod(metadata={"annotations": annotations})
            self.assertEqual(plan(home, None, CONTEXT, now=from_epoch(NOW)), Rest())
        forged = self.forged({"containers": [{"name": "main"}]}, annotations={"liqo.io/api-server-support": "remote"})
        self.assertIs(forged["automountServiceAccountToken"], False)
        self.assertNotIn("serviceAccountName", forged)

    @given(st.text("abc-.", min_size=1, max_size=253), st.text("abc-.", min_size=1, max_size=253))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_names(self, one: str, two: str) -> None:
        """Names of secrets fit, and differ where pods do."""
        self.assertLessEqual(len(secret_name(one)), 253)
        self.assertEqual(one == two, secret_name(one) == secret_name(two))


class Slices:
    """The informers of a cluster that has these EndpointSlices."""

    def __init__(self, bodies: list[Any]) -> None:
        self.bodies = bodies

    def of(self, resource: object, kind: Any, **selection: str) -> Slices:
        self.kind = kind
        return self

    def items(self) -> list[Any]:
        return [msgspec.convert(body, self.kind) for body in self.bodies]


class HomeApiTests(SynchronousTestCase):
    def test_as_configured(self) -> None:
        """An address that is configured is used, translated for the lender; a name is used as it is."""
        nobody = Informers(cast("Client", None), Clock())
        server = HomeApi(nobody, "https://192.0.2.1:6443", "https://127.0.0.1:7443").server(lambda text: f"x{text}")
        self.assertEqual(server, ApiServer(("x192.0.2.1",), 6443))
        server = HomeApi(nobody, "https://192.0.2.1", "").server(lambda _: "")
        self.assertEqual(server, ApiServer(("192.0.2.1",), 443))
        server = HomeApi(nobody, "https://api.example.com/", "").server(lambda _: "")
        self.assertEqual(server, ApiServer((), 443, "api.example.com"))

    def test_as_published(self) -> None:
        """Without a configured address those count that API servers publish and that are ready, else the known one."""
        ready, other = (
            {"addresses": [one], "conditions": {"ready": two}} for one, two in (("::1", True), ("::2", False))
        )
        published = {"endpoints": [ready, other], "ports": [{"port": 6444}]}
        for slices, expected in (([published, {}], ApiServer(("x::1",), 6444)), ([], ApiServer(("x127.0.0.1",), 7443))):
            informers = cast("Informers", Slices(slices))
            server = HomeApi(informers, "", "https://127.0.0.1:7443").server(lambda text: f"x{text}")
            self.assertEqual(server, expected)


class PlanTests(SynchronousTestCase):
    def step(self, home: HomePod | None, there: Object | None, now: float = NOW) -> Step:
        return plan(home, there, CONTEXT, now=from_epoch(now))

    def test_table(self) -> None:
        """Minted where there is none, removed when nobody needs it, left alone when it is another's."""
        home = pod()
        mint = Mint("builder", tuple(sources_of(spec())))
        other = secret(home, labels={"offloading.liqo.io/origin": "home"})
        disabled = pod(metadata={"annotations": {"liqo.io/api-server-support": "disabled"}})
        for there, pods, wanted in (
            (None, home, mint),
            (None, None, Rest()),
            (None, pod(phase="Succeeded"), Rest()),
            (None, pod(deleting=True), Rest()),
            (None, pod(volumes=[]), Rest()),
            (None, disabled, Rest()),
            (secret(home), None, Remove("s1")),
            (secret(home), pod("u2"), Remove("s1")),
            (secret(home), pod(phase="Failed"), Remove("s1")),
            (secret(home), disabled, Remove("s1")),
            (secret(home, deletionTimestamp=rfc3339(from_epoch(NOW))), None, Rest()),
            (other, home, Taken()),
            (other, None, Rest()),
        ):
            self.assertEqual(self.step(pods, there), wanted)
        self.assertIsInstance(self.step(pod(deleting=True), secret(home)), Rest)

    def test_renewal(self) -> None:
        """Tokens are renewed at about four fifths of their life, not all at the same moment, and a day old at most."""
        home = pod()
        dues = [due_in(f"u{n}", sources_of(spec()), secret(home).metadata, from_epoch(NOW)) for n in range(200)]
        self.assertGreater(min(dues), 0.74 * 3607)
        self.assertLess(max(dues), 0.8001 * 3607)
        self.assertGreater(len({round(due) for due in dues}), 50)
        week = [TokenSource("k", "", 7 * 86400)]
        self.assertLess(due_in("u", week, secret(home, NOW + 7 * 86400).metadata, from_epoch(NOW)), 86401)
        self.assertIsInstance(self.step(home, secret(home), NOW + 0.7 * 3607), Rest)
        renewed = self.step(home, secret(home), NOW + 0.81 * 3607)
        assert isinstance(renewed, Mint)
        self.assertEqual(renewed.uid, "s1")

    @given(st.lists(st.integers(600, 3 * 86400), min_size=1, max_size=5), st.text(max_size=5))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_no_token_runs_out_before_it_is_renewed(self, lives: list[int], uid: str) -> None:
        """Of several in one secret the first that ends decides; the secret says when that is."""
        sources = [TokenSource(f"k{number}", "", life) for number, life in enumerate(lives)]
        there = secret(pod(), NOW + min(lives)).metadata
        due = due_in(uid, sources, there, from_epoch(NOW))
        self.assertLessEqual(due, 0.8 * min(lives))
        self.assertGreaterEqual(due, min(0.74 * min(lives), 0.84 * 86400))

    def test_the_clock_and_the_lender_cannot_stop_renewal(self) -> None:
        """What is written there illegibly is due at once, and a time in the past as well."""
        home = pod()
        for text in ("never", "", "2020-01-01T00:00:00Z"):
            note = {**secret(home).metadata.annotations, "offloading.liqo.io/service-account-expiration": text}
            self.assertIsInstance(self.step(home, secret(home, annotations=note)), Mint)

    def test_clocks_hours_apart(self) -> None:
        """What this daemon put there is renewed by its own clock, whatever time the API server's has."""
        home = pod()
        for hours in (-9, 9):
            there = secret(home, NOW + 3600 * hours + 3607)
            self.assertEqual(plan(home, there, CONTEXT, now=from_epoch(NOW), left=100), Rest(100))
            self.assertIsInstance(plan(home, there, CONTEXT, now=from_epoch(NOW), left=-1), Mint)

    def test_whose_a_secret_is(self) -> None:
        """A secret says truly which pod it is for, or nothing."""
        self.assertEqual(pod_of(secret(pod())), "web")
        self.assertEqual(pod_of(secret(pod(), name="other")), "")

    def test_what_uses_a_secret(self) -> None:
        """The ShadowPod of the Secret's own home pod uses it, and one that does not tell its pod."""
        for uid, wanted in (("u1", True), ("u2", False)):
            shadow = Shadow(metadata=ObjectMeta(name="web", annotations={HOME_POD_UID_ANNOTATION: uid}))
            self.assertIs(is_in_use(secret(pod()), shadow), wanted)
        self.assertTrue(is_in_use(secret(pod()), Shadow(metadata=ObjectMeta(name="web"))))
        self.assertFalse(is_in_use(secret(pod()), None))

    def test_tokens_do_not_show(self) -> None:
        """No ``repr`` shows a token."""
        self.assertNotIn("hush", repr(Minted({"k": "hush"}, from_epoch(0.0))))
