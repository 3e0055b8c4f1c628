"""What the admission policies let borrowers do, and that they concern nobody else."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings, Settings, StorageSettings
from liqod.hosting.tenants.admission.namespace_admission import namespace_policy
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.policies import bindings, policies
from liqod.hosting.tenants.rights import borrower_role, user_of
from liqod.model.ids import ClusterID
from liqod.model.ingress_path import is_plain
from liqod.model.names import ORIGIN_LABEL, REMOTE_CLUSTER_LABEL
from liqod.model.objects.portable_metadata import is_allowed
from liqod.model.records.name_service import LABEL as NAME_SERVICE
from tests.hosting.shadowpods.admission import Request, refusals

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROME = ClusterID("rome")
BORROWERS = (user_of(ROME), "liqo:cluster:rome")
OTHERS = (
    "admin",
    "system:serviceaccount:liqo-tenant-rome:default",
    "system:serviceaccount:shop:borrower",
    "system:serviceaccount:liqo-system:liqod",
    "somebody:liqo:cluster:rome",
)
TYPES = ("ClusterIP", "NodePort", "LoadBalancer")
GROUPS = {
    "ingresses": "networking.k8s.io",
    "httproutes": "gateway.networking.k8s.io",
    "grpcroutes": "gateway.networking.k8s.io",
    "shadowpods": "offloading.liqo.io",
    "shadowendpointslices": "offloading.liqo.io",
    "shadownetworkpolicysets": "offloading.liqo.io",
}
TOKEN = "kubernetes.io/service-account-token"


def asked(
    user: str,
    resource: str,
    new: dict[str, Any],
    old: dict[str, Any] | None = None,
    contract: Contract | None = None,
) -> list[str]:
    """Return why a request is refused; what is no record has the label of all that borrowers write."""
    operation = "CREATE" if old is None else "UPDATE"
    group = GROUPS.get(resource, "")
    if not resource.startswith("shadow"):
        new, old = with_origin(new), with_origin(old) if old is not None else None
    labels = {REMOTE_CLUSTER_LABEL: "rome"}
    request = Request(user, operation, resource, new, old, group=group, namespace="shop-rome", namespace_labels=labels)
    return refusals(policies(contract or Contract()), request)


def with_origin(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "labels": {ORIGIN_LABEL: "rome", **(metadata.get("labels") or {})}}}


def granted(*classes: str, **settings: Any) -> Contract:
    return Contract(HostingSettings(**settings), classes)


def ingress(host: str | None = "shop.example", **fields: Any) -> dict[str, Any]:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rule: dict[str, Any] = {"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    return {"metadata": {"name": "i"}, "spec": {"rules": [rule if host is None else {"host": host, **rule}], **fields}}


def service(kind: str = "ClusterIP", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "db", "namespace": "shop-rome"}, "spec": {"type": kind, **fields}}


def claim(**fields: Any) -> dict[str, Any]:
    spec = {"storageClassName": "fast", **fields}
    return {
        "metadata": {"name": "data", "namespace": "shop-rome"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


class ServicePolicyTests(SynchronousTestCase):
    """Services of borrowers."""

    @given(st.sampled_from(BORROWERS), st.sampled_from(TYPES), st.sampled_from(TYPES))
    @STEADILY
    def test_the_type_stays_as_it_was_made(self, user: str, before: str, after: str) -> None:
        """A borrower may make a service of any type, and change anything of it but the type."""
        self.assertEqual(asked(user, "services", service(before)), [])
        reported = asked(user, "services", service(after, selector={"a": "b"}), service(before))
        self.assertEqual(bool(reported), before != after)
        self.assertTrue(all("may not change the type" in message for message in reported))

    def test_no_name_service(self) -> None:
        """What the name service of this cluster is known by, no service of a borrower has."""
        labelled = service()
        labelled["metadata"]["labels"] = {NAME_SERVICE: "1", REMOTE_CLUSTER_LABEL: "paris"}
        for user in BORROWERS:
            self.assertEqual(len(asked(user, "services", labelled)), 1)
            self.assertEqual(len(asked(user, "services", labelled, service())), 1)

    @given(st.sampled_from(BORROWERS), st.booleans(), st.sampled_from([None, [], ["192.0.2.1"]]))
    @STEADILY
    def test_no_address_of_its_choice(self, user: str, update: bool, external: list[str] | None) -> None:
        """Neither external addresses nor a load balancer's, at first or later; their absence is no fault."""
        for field, value in (("externalIPs", external), ("loadBalancerIP", external and external[0])):
            given: dict[str, Any] = {field: value if value != [] or field[0] == "e" else ""}
            new = service() if value is None else service(**given)
            reported = asked(user, "services", new, service() if update else None)
            self.assertEqual(bool(reported), bool(value), (field, reported))
            self.assertTrue(all(field in message for message in reported))

    def test_number_of_ports(self) -> None:
        """Each port is rules on every node."""
        for count, refused in ((0, False), (64, False), (65, True)):
            made = service(ports=[{"port": port} for port in range(1, count + 1)])
            reported = asked(BORROWERS[0], "services", made)
            self.assertEqual([message for message in reported if "64 ports" in message], reported)
            self.assertEqual(bool(reported), refused, count)
            self.assertEqual(bool(asked(BORROWERS[0], "services", made, service())), refused, count)


class ServiceContractTests(SynchronousTestCase):
    """What a service could lead to, or take."""

    def test_names_of_other_services(self) -> None:
        """An ExternalName would publish this cluster's own services; where it is granted it is granted."""
        vault = service("ExternalName", externalName="vault.vault.svc.cluster.local")
        self.assertIn("types", asked(BORROWERS[0], "services", vault)[0])
        every = granted(service_types=["ClusterIP", "ExternalName"])
        self.assertEqual(asked(BORROWERS[0], "services", vault, contract=every), [])
        self.assertTrue(asked(BORROWERS[0], "services", service("LoadBalancer"), contract=every))
        self.assertTrue(asked(BORROWERS[0], "services", service("AddedTomorrow")))

    def test_load_balancers(self) -> None:
        """Only a class that is offered may be named."""
        for name in ("internal", "tailscale"):
            balanced = service("LoadBalancer", loadBalancerClass=name)
            self.assertTrue(asked(BORROWERS[0], "services", balanced))
            self.assertEqual(
                not asked(BORROWERS[0], "services", balanced, contract=granted("internal")), name == "internal"
            )


class IngressPolicyTests(SynchronousTestCase):
    """Hosts are the lender's to give: controllers merge those of all namespaces."""

    def refused(self, new: dict[str, Any], **settings: Any) -> list[str]:
        contract = granted(ingress_hosts=["shop.example"], **settings)
        return asked(BORROWERS[0], "ingresses", new, contract=contract)

    def test_none_by_default(self) -> None:
        """Without a granted host there are no ingresses, and the reason says what to do."""
        (reported,) = asked(BORROWERS[0], "ingresses", ingress())
        self.assertIn("ingress-hosts", reported)

    def test_hosts(self) -> None:
        """Only the granted names and those under them, never all hosts."""
        for host in ("shop.example", "a.shop.example", "*.shop.example"):
            self.assertEqual(self.refused(ingress(host)), [], host)
        for other in ("www.lender.example", "example", "badshop.example", "shop.example.evil.example", "*", "", None):
            self.assertTrue(self.refused(ingress(other)), other)

    def test_other_ways_to_a_host(self) -> None:
        """Certificates, a default backend, another resource as the backend."""
        for fields in (
            {"tls": [{"hosts": ["www.lender.example"], "secretName": "s"}]},
            {"tls": [{"secretName": "s"}]},
            {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}},
            {"rules": [{"host": "shop.example", "http": {"paths": [{"backend": {"resource": {"kind": "X"}}}]}}]},
        ):
            self.assertTrue(self.refused(ingress(**fields)), fields)
        self.assertEqual(self.refused(ingress(tls=[{"hosts": ["a.shop.example"], "secretName": "s"}])), [])

    def test_paths(self) -> None:
        """A controller writes paths into its configuration: plain ones alone pass, with a type that has a meaning."""
        for path, kind in (
            ("/;}} location /x { root /; ", "Prefix"),
            ("/x\nroot /etc;", "ImplementationSpecific"),
            ("/", "ImplementationSpecific"),
            ("/\n", "Prefix"),
            ("/a{1}", "Exact"),
            ("/a$uri", "Prefix"),
            ("/a b", "Prefix"),
            ("/`a`", "Prefix"),
            ("a", "Exact"),
            ("", "Prefix"),
            (None, "Prefix"),
            ("/", None),
        ):
            made = ingress()
            one = made["spec"]["rules"][0]["http"]["paths"][0]
            one.update(path=path, pathType=kind)
            for field in ("path", "pathType"):
                if one[field] is None:
                    del one[field]
            self.assertIn("paths of letters", "".join(self.refused(made)), (path, kind))
        for path in ("/", "/a/B-9_.~/", "/v1/x.html"):
            for kind in ("Prefix", "Exact"):
                made = ingress()
                made["spec"]["rules"][0]["http"]["paths"][0].update(path=path, pathType=kind)
                self.assertEqual(self.refused(made), [], (path, kind))

    @given(st.text(max_size=8))
    @STEADILY
    def test_paths_as_home_has_them(self, path: str) -> None:
        """The policy and the borrower's daemon agree about every path."""
        made = ingress()
        made["spec"]["rules"][0]["http"]["paths"][0]["path"] = path
        self.assertEqual(not self.refused(made), is_plain(path))

    def test_classes(self) -> None:
        """Where classes are granted, only those."""
        for name, fine in (("public", True), ("internal", False), (None, False)):
            fields = {} if name is None else {"ingressClassName": name}
            self.assertEqual(not self.refused(ingress(**fields), ingress_classes=["public"]), fine, name)


class MetadataPolicyTests(SynchronousTestCase):
    """What controllers of this cluster act on by annotation, label or finalizer."""

    KINDS = ("services", "configmaps", "secrets", "persistentvolumeclaims", "ingresses")
    HOSTILE = (
        "metallb.io/loadBalancerIPs",
        "kube-vip.io/loadbalancerIPs",
        "external-dns.alpha.kubernetes.io/hostname",
        "cert-manager.io/cluster-issuer",
        "nginx.ingress.kubernetes.io/configuration-snippet",
        "service.beta.kubernetes.io/aws-load-balancer-internal",
        "replicator.v1.mittwald.de/replicate-to",
        "reflector.v1.k8s.emberstack.com/reflection-auto-enabled",
        "volume.beta.kubernetes.io/storage-class",
        "kubernetes.io/ingress.class",
        "io.example.runtime",
        "liqo.io.evil.example/x",
        "aadpodidbinding",
        "grafana_datasource",
    )

    def body(self, kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
        body = {"services": service(), "persistentvolumeclaims": claim(), "ingresses": ingress()}.get(kind, {})
        return {**body, "metadata": {"name": "x", "namespace": "shop-rome", **metadata}}

    def refused(self, kind: str, metadata: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> list[str]:
        contract = granted(ingress_hosts=["shop.example"], **more)
        before = None if old is None else self.body(kind, old)
        return asked(BORROWERS[0], kind, self.body(kind, metadata), before, contract)

    def test_hostile_keys(self) -> None:
        """None of them passes, as an annotation or label, on any kind that others read."""
        for kind in self.KINDS:
            for key in self.HOSTILE:
                for field in ("annotations", "labels"):
                    self.assertTrue(self.refused(kind, {field: {"note": "n", key: "x"}}), (kind, key, field))
                    self.assertTrue(self.refused(kind, {field: {key: "x"}}, {field: {key: "y"}}), (kind, key))

    def test_ordinary_keys(self) -> None:
        """Plain ones, those of Helm, our own, and what this cluster's controllers wrote."""
        for kind in self.KINDS:
            mine = {"note": "n", "checksum/config": "1", "offloading.liqo.io/reflected-keys": "{}"}
            self.assertEqual(self.refused(kind, {"annotations": mine}), [], kind)
            bound = {"pv.kubernetes.io/bind-completed": "yes"}
            self.assertEqual(self.refused(kind, {"annotations": {**mine, **bound}}, {"annotations": bound}), [], kind)
            labels = {"app": "web", "app.kubernetes.io/name": "web", "offloading.liqo.io/origin": "rome"}
            self.assertEqual(self.refused(kind, {"labels": labels}), [], kind)

    def test_granted_keys(self) -> None:
        """A domain, a key, and nothing beside them."""
        more: dict[str, Any] = {"annotations": ["cert-manager.io/", "prometheus.io/scrape"]}
        for key, fine in (("cert-manager.io/issuer", True), ("prometheus.io/scrape", True), ("prometheus.io/x", False)):
            self.assertEqual(not self.refused("services", {"annotations": {key: "1"}}, None, **more), fine, key)

    @given(
        st.from_regex(r"[a-z./\-]{1,12}", fullmatch=True) | st.just("aadpodidbinding"),
        st.lists(st.sampled_from(["a/", "a.b/", "a", "b."])),
    )
    @STEADILY
    def test_the_same_as_the_daemon(self, key: str, allowed: list[str]) -> None:
        """The policy and the daemon agree about every key."""
        contract = granted(annotations=allowed)
        reported = asked(
            BORROWERS[0], "configmaps", {"metadata": {"name": "x", "annotations": {key: "v"}}}, None, contract
        )
        self.assertEqual(not reported, is_allowed(key, contract.annotations))

    def test_how_many_and_how_long(self) -> None:
        """64 of each, and annotations of 65,536 characters together; what was more already may stay and get less."""

        def keys(field: str, *sizes: int) -> dict[str, Any]:
            return {field: {f"k{number}": "x" * size for number, size in enumerate(sizes)}}

        few, many, long = keys("annotations", *[1] * 64), keys("annotations", *[1] * 65), keys("annotations", 65_537)
        for new, old, refused in (
            (few, None, False),
            (many, None, True),
            (many, few, True),
            (many, many, False),
            (keys("labels", *[1] * 64), None, True),  # and that of its origin
            (keys("annotations", 40_000, 25_536), None, False),
            (long, None, True),
            (long, keys("annotations", 40_000, 40_000), False),
        ):
            self.assertEqual(bool(self.refused("services", new, old)), refused)

    def test_owners(self) -> None:
        """None is added or changed by a borrower."""
        own = {"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": "1"}
        for kind in ("services", "shadowpods"):
            for new, old, refused in (
                ([own], None, True),
                ([own], [], True),
                ([own], [own], False),
                ([], [own], False),
                ([{**own, "controller": True}], [own], True),
                ([own, {**own, "uid": "2"}], [own], True),
            ):
                metadata: dict[str, Any] = {"name": "home", "ownerReferences": new}
                before = None if old is None else self.body(kind, {"name": "home", "ownerReferences": old})
                body = self.body(kind, metadata)
                if kind.startswith("shadow"):
                    body = {**body, "spec": {}}
                    before = before and {**before, "spec": {}}
                reported = asked(BORROWERS[0], kind, body, before, granted(ingress_hosts=["shop.example"]))
                self.assertEqual(["owner" in message for message in reported], [True] * refused, (kind, new, old))

    def test_finalizers(self) -> None:
        """None is added by a borrower, on any kind; what this cluster added may stay, and go."""
        protection, own = "kubernetes.io/pvc-protection", "x.example/never"
        for kind in (*self.KINDS, "shadowpods", "shadowendpointslices", "shadownetworkpolicysets"):
            if kind.startswith("shadow"):
                body: dict[str, Any] = {"spec": {}}
                new = {**body, "metadata": {"name": "x", "finalizers": [own]}}
                self.assertTrue(asked(BORROWERS[0], kind, new), kind)
                self.assertTrue(asked(BORROWERS[0], kind, new, {**body, "metadata": {"name": "x"}}), kind)
                continue
            self.assertTrue(self.refused(kind, {"finalizers": [own]}), kind)
            self.assertEqual(self.refused(kind, {"finalizers": [protection]}), [], kind)
            self.assertEqual(self.refused(kind, {"finalizers": [own]}, {"finalizers": [own, "b/c"]}), [], kind)

    def test_slices_of_names(self) -> None:
        """A slice holds addresses."""
        for kind, fine in (("IPv4", True), ("IPv6", True), ("FQDN", False)):
            made = {"metadata": {"name": "s"}, "spec": {"template": {"addressType": kind}}}
            self.assertEqual(not asked(BORROWERS[0], "shadowendpointslices", made), fine, kind)

    def test_slices_of_many(self) -> None:
        """Endpoints and ports are multiplied on every node."""
        for endpoints, ports, refused in (
            (1000, 10, False),
            (100, 100, False),
            (101, 100, True),
            (1000, 11, True),
            (1000, None, False),
            (None, 100, False),
        ):
            template: dict[str, Any] = {"addressType": "IPv4"}
            if endpoints is not None:
                template["endpoints"] = [{"addresses": ["192.0.2.1"]}] * endpoints
            if ports is not None:
                template["ports"] = [{"port": 80}] * ports
            made = {"metadata": {"name": "s"}, "spec": {"template": template}}
            self.assertEqual(bool(asked(BORROWERS[0], "shadowendpointslices", made)), refused, (endpoints, ports))

    def test_records_of_policies(self) -> None:
        """A borrower has one in a namespace, by its name; others have what they like."""
        for user in (*BORROWERS, *OTHERS):
            for name in ("home", "x"):
                made = {"metadata": {"name": name}, "spec": {}}
                fine = name == "home" or user in OTHERS
                self.assertEqual(not asked(user, "shadownetworkpolicysets", made), fine, (user, name))


class SecretAndClaimPolicyTests(SynchronousTestCase):
    """What would hold tokens or data of others."""

    @given(st.sampled_from(BORROWERS), st.booleans(), st.sampled_from(["Opaque", "kubernetes.io/tls", TOKEN, None]))
    @STEADILY
    def test_no_secret_that_is_filled_with_a_token(self, user: str, update: bool, kind: str | None) -> None:
        """Every other type passes, and one that names none."""
        secret: dict[str, Any] = (
            {"metadata": {"name": "s"}} if kind is None else {"metadata": {"name": "s"}, "type": kind}
        )
        self.assertEqual(bool(asked(user, "secrets", secret, secret if update else None)), kind == TOKEN)

    @given(st.sampled_from([None, "", "pv-1"]), st.sampled_from([None, "", "pv-1", "pv-2"]))
    @STEADILY
    def test_a_volume_is_not_chosen(self, before: str | None, after: str | None) -> None:
        """A claim is made without a volume, and a borrower's update leaves the one that was bound."""
        for user in BORROWERS:
            self.assertEqual(bool(asked(user, "persistentvolumeclaims", claim(volumeName=after))), bool(after))
            reported = asked(user, "persistentvolumeclaims", claim(volumeName=after), claim(volumeName=before))
            self.assertEqual(bool(reported), (before or "") != (after or ""))

    @given(st.booleans(), st.sampled_from([None, "", "fast"]), st.sampled_from([None, "shop-rome", "kube-system"]))
    @STEADILY
    def test_data_comes_from_nowhere_else(self, update: bool, storage_class: str | None, source: str | None) -> None:
        """A class is named, since volumes without one may be anybody's; a source is of the claim's own namespace."""
        reference = {"kind": "VolumeSnapshot", "name": "x", **({} if source is None else {"namespace": source})}
        for fields in ({}, {"dataSourceRef": reference}):
            new = claim(storageClassName=storage_class, **fields)
            reported = asked(BORROWERS[0], "persistentvolumeclaims", new, claim() if update else None)
            allowed = bool(storage_class) and (not fields or source in (None, "shop-rome"))
            self.assertEqual(not reported, allowed, (new, reported))


class ClaimContractTests(SynchronousTestCase):
    """Whose volume a claim gets."""

    def test_ways_to_a_volume_of_others(self) -> None:
        """A selector, another class of attributes, a class that is not lent, the annotation that is read first."""
        ways: tuple[dict[str, Any], ...] = ({"selector": {}}, {"volumeAttributesClassName": "gold"})
        for fields in ways:
            self.assertTrue(asked(BORROWERS[0], "persistentvolumeclaims", claim(**fields)), fields)
        beta = claim()
        beta["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": ""}
        allowed = granted(annotations=["volume.beta.kubernetes.io/"])
        self.assertTrue(asked(BORROWERS[0], "persistentvolumeclaims", beta, contract=allowed))
        for name, fine in (("fast", True), ("manual", False)):
            reported = asked(
                BORROWERS[0],
                "persistentvolumeclaims",
                claim(storageClassName=name),
                contract=granted(storage_classes=["fast"]),
            )
            self.assertEqual(not reported, fine)

    def test_the_class_of_this_cluster_itself(self) -> None:
        """The class whose volumes are made by claims that no tenant's quota counts, also where no class is named."""
        contract = Contract.of(Settings(storage=StorageSettings(virtual_class="follows")))
        kind, labels = "persistentvolumeclaims", {REMOTE_CLUSTER_LABEL: "rome"}
        for name, fine in (("fast", True), ("liqo", True), ("follows", False)):
            new = claim(storageClassName=name)
            self.assertEqual(not asked(BORROWERS[0], kind, new, contract=contract), fine, name)
            new["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]
            user = "system:kube-controller-manager"
            made = Request(user, "CREATE", kind, new, namespace="shop-rome", namespace_labels=labels)
            self.assertEqual(not refusals(policies(contract), made), fine, name)

    def test_claims_of_ephemeral_volumes(self) -> None:
        """Those that the controller makes for a tenant's pod are judged alike; no others of it, and not elsewhere."""
        controllers = (
            "system:serviceaccount:kube-system:ephemeral-volume-controller",
            "system:kube-controller-manager",
        )
        for pod, labels, refused in (
            (True, {"liqo.io/remote-cluster-id": "rome"}, True),
            (False, {"liqo.io/remote-cluster-id": "rome"}, False),
            (True, {}, False),
        ):
            for user in controllers:
                for klass, fine in ((None, False), ("", False), ("private", False), ("fast", True)):
                    new = claim(storageClassName=klass)
                    if pod:
                        new["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]
                    request = Request(
                        user, "CREATE", "persistentvolumeclaims", new, namespace="shop-rome", namespace_labels=labels
                    )
                    reported = refusals(policies(granted(storage_classes=["fast"])), request)
                    self.assertEqual(bool(reported), refused and not fine, (user, klass, labels))


class DeletionPolicyTests(SynchronousTestCase):
    """What a deletion leaves behind."""

    BODY: Final = {"metadata": {"name": "x", "namespace": "shop-rome", "labels": {ORIGIN_LABEL: "rome"}}}

    def refused(self, user: str, resource: str, options: dict[str, Any] | None) -> list[str]:
        group = GROUPS.get(resource, "")
        request = Request(
            user, "DELETE", resource, None, self.BODY, group=group, namespace="shop-rome", options=options
        )
        return refusals(policies(), request)

    def test_nothing_is_left_behind(self) -> None:
        """No deletion of a borrower's leaves dependents, of any kind that it may delete; others may do so."""
        deletable = [
            name
            for rule in borrower_role(services=True)["rules"]
            if "delete" in rule["verbs"]
            for name in rule["resources"]
        ]
        self.assertEqual(len(deletable), 10)
        for resource in deletable:
            for options in (
                {"propagationPolicy": "Orphan"},
                {"orphanDependents": True},
                {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "AddedTomorrow"},
            ):
                for user in BORROWERS:
                    (reported,) = self.refused(user, resource, options)
                    self.assertIn("dependents", reported)
                for user in OTHERS:
                    self.assertEqual(self.refused(user, resource, options), [], (user, resource))

    def test_other_deletions(self) -> None:
        """A deletion with other options, with none, or that lacks them altogether is nobody's business."""
        for options in (
            None,
            {},
            {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "preconditions": {"uid": "1"}},
            {"propagationPolicy": "Background", "gracePeriodSeconds": 0},
            {"propagationPolicy": "Foreground"},
            {"orphanDependents": False},
        ):
            for user in (*BORROWERS, *OTHERS):
                for resource in ("shadowpods", "services", "secrets"):
                    self.assertEqual(self.refused(user, resource, options), [], (user, resource, options))


class PolicyScopeTests(SynchronousTestCase):
    """Whom the policies concern."""

    def test_nobody_but_borrowers(self) -> None:
        """What is refused to a borrower is allowed to everybody else that has the right."""
        bad = [
            ("services", service(externalIPs=["192.0.2.1"])),
            ("secrets", {"metadata": {"name": "s"}, "type": TOKEN}),
            ("persistentvolumeclaims", claim(storageClassName=None)),
        ]
        for resource, new in bad:
            for user in BORROWERS:
                self.assertNotEqual(asked(user, resource, new), [], (user, resource))
            for user in OTHERS:
                self.assertEqual(asked(user, resource, new), [], (user, resource))

    def test_each_is_bound_and_denies(self) -> None:
        """By a binding of its name; what cannot be evaluated is refused."""
        names = [policy["metadata"]["name"] for policy in policies()]
        self.assertEqual([binding["metadata"]["name"] for binding in bindings()], names)
        for binding in bindings():
            wanted = {"policyName": binding["metadata"]["name"], "validationActions": ["Deny"]}
            self.assertEqual(binding["spec"], wanted)
        self.assertEqual({policy["spec"]["failurePolicy"] for policy in policies()}, {"Fail"})


class TenantNamespacesTests(SynchronousTestCase):
    """Whose word it is that a namespace is a tenant's: the daemon's, and of those who may decide about peers."""

    PEERS = frozenset({"patch foreignclusters.discovery.liqo.io"})
    KEYS = ("liqo.io/remote-cluster-id", "liqo.io/tenant-namespace")

    def tried(
        self,
        labels: dict[str, str] | None,
        old: dict[str, str] | None = None,
        *,
        name: str = "own",
        rights: frozenset[str] = frozenset(),
        resource: str = "namespaces",
        update: bool = False,
    ) -> bool:
        """Return whether a namespace may be made, or changed, like this."""

        def space(given: dict[str, str] | None) -> dict[str, Any]:
            return {"metadata": {"name": name, **({} if given is None else {"labels": given})}}

        operation = "UPDATE" if update else "CREATE"
        before = space(old) if update else None
        request = Request("somebody", operation, resource, space(labels), before, rights=rights)
        return not refusals([namespace_policy()], request)

    def test_nobody_prepares_a_namespace(self) -> None:
        """Neither label is set by who may only make namespaces, whatever its value, nor is the name taken."""
        for key in self.KEYS:
            for value in ("rome", "true", ""):
                self.assertFalse(self.tried({key: value}), (key, value))
                self.assertTrue(self.tried({key: value}, rights=self.PEERS), (key, value))
        for labels in (None, {}, {"a": "b"}):
            self.assertFalse(self.tried(labels, name="liqo-tenant-rome"))
            self.assertTrue(self.tried(labels, name="liqo-tenant-rome", rights=self.PEERS))
            self.assertTrue(self.tried(labels, name="shop"))

    def test_nobody_labels_what_exists(self) -> None:
        """No label is added, changed or taken away later, by any of the ways in which labels are written."""
        for resource in ("namespaces", "namespaces/status", "namespaces/finalize"):
            for key in self.KEYS:
                for old, new in (({}, "a"), (None, ""), ({key: "a"}, "b"), ({key: "a"}, None), ({key: ""}, None)):
                    labels = None if new is None else {key: new}
                    case = {"resource": resource, "update": True}
                    self.assertFalse(self.tried(labels, old, **case), (resource, old, labels))  # type: ignore[arg-type]
                    allowed = self.tried(labels, old, rights=self.PEERS, **case)  # type: ignore[arg-type]
                    self.assertTrue(allowed, (resource, old, labels))

    @given(st.dictionaries(st.sampled_from([*KEYS, "a", "b"]), st.sampled_from(["", "x"])), st.booleans())
    @STEADILY
    def test_all_else_is_free(self, labels: dict[str, str], other: bool) -> None:
        """A namespace of a tenant is changed by those who have the right, but for these labels."""
        changed = {**labels, **({"c": "d"} if other else {})}
        self.assertTrue(self.tried(changed, labels, update=True, name="liqo-tenant-rome"))
