"""What the daemon's own account may do where, as its admission policies have it, evaluated as an API server does."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.account.admission_policies import policies as account_policies
from liqod.config.load import parse
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.policies import policies as tenant_policies
from liqod.kubelet.common.readiness import READY
from liqod.kubelet.node.forge import NodeFacts, forge_lease, forge_node
from liqod.kubelet.reflection.forge.claim import PLACEHOLDER, SELECTED_NODE, forge_class
from liqod.webhook.configuration import NAME
from tests.hosting.shadowpods.admission import Request, refusals

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
OWN = "liqo"
DAEMON = "system:serviceaccount:liqo:liqod"
AGENT = "system:serviceaccount:liqo:liqod-network"
SETTINGS = parse(f'[kubernetes]\nnamespace = "{OWN}"', {})
POLICIES = [*account_policies(SETTINGS), *tenant_policies(Contract.of(SETTINGS))]
PEERS = frozenset({"patch foreignclusters.discovery.liqo.io"})
BASELINE = {
    "pod-security.kubernetes.io/enforce": "baseline",
    "pod-security.kubernetes.io/enforce-version": "latest",
}
TENANT = {"liqo.io/remote-cluster-id": "rome"}
OFFLOADED = {"liqo.io/enabled": "true"}
PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "own": (OWN, {}),
    "tenant": ("shop-rome", TENANT),
    "offloaded": ("shop", OFFLOADED),
    "other": ("kube-system", {}),
    "heartbeats": ("kube-node-lease", {"kubernetes.io/metadata.name": "kube-node-lease"}),
}
GROUPS = {
    "roles": "rbac.authorization.k8s.io",
    "rolebindings": "rbac.authorization.k8s.io",
    "endpointslices": "discovery.k8s.io",
    "ingresses": "networking.k8s.io",
    "httproutes": "gateway.networking.k8s.io",
    "grpcroutes": "gateway.networking.k8s.io",
    "leases": "coordination.k8s.io",
    "mutatingwebhookconfigurations": "admissionregistration.k8s.io",
    "storageclasses": "storage.k8s.io",
    "certificatesigningrequests/approval": "certificates.k8s.io",
}
OPERATIONS = ("CREATE", "UPDATE", "DELETE")
places = st.sampled_from(sorted(PLACES))


def may(resource: str, operation: str, place: str = "own", user: str = DAEMON, **objects: Any) -> bool:
    """Return whether a request is allowed; without ``new`` and ``old`` the objects say nothing."""
    space, labels = PLACES[place]
    thing: dict[str, Any] = {"metadata": {"name": "x"}}
    new = objects.get("new", thing) if operation != "DELETE" else None
    old = objects.get("old", thing) if operation != "CREATE" else None
    group = GROUPS.get(resource, "")
    asked = Request(user, operation, resource, new, old, group, space, labels, PEERS)
    return not refusals(POLICIES, asked)


def pod(image: str = "a:1", init: str | None = None, **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": image}, {"name": "side", "image": "b"}], **more}
    if init is not None:
        spec["initContainers"] = [{"name": "first", "image": init}]
    return {"metadata": {"name": "web"}, "spec": spec}


class EverywhereTests(SynchronousTestCase):
    """Objects that the account writes in its own namespace and for its tenants."""

    @given(
        st.sampled_from(["secrets", "serviceaccounts", "endpointslices", "services", "ingresses", "httproutes"]),
        st.sampled_from(OPERATIONS),
        places,
    )
    @STEADILY
    def test_objects_stay_at_home(self, resource: str, operation: str, place: str) -> None:
        """Nothing of the kind is made, changed or removed in any namespace but its own and its tenants'."""
        self.assertEqual(may(resource, operation, place), place in ("own", "tenant"))

    def test_routes_of_every_version(self) -> None:
        """Where a cluster serves routes in other versions than v1 alone, these are no way around it."""
        thing, group = {"metadata": {"name": "x"}}, GROUPS["grpcroutes"]
        for version in ("v1", "v1alpha2"):
            asked = Request(DAEMON, "UPDATE", "grpcroutes", thing, thing, group, "kube-system", version=version)
            self.assertTrue(refusals(POLICIES, asked), version)

    @given(st.sampled_from(["roles", "rolebindings"]), st.sampled_from(OPERATIONS), places)
    @STEADILY
    def test_rights_are_for_tenants(self, resource: str, operation: str, place: str) -> None:
        """No rights in its own namespace either: those of borrowers would lead into the pods of liqod itself."""
        self.assertEqual(may(resource, operation, place), place == "tenant")

    @given(st.sampled_from(["CREATE", "UPDATE"]), st.sampled_from(["own", "tenant"]), st.booleans(), st.booleans())
    @STEADILY
    def test_no_token_by_a_secret(self, operation: str, place: str, typed: bool, token: bool) -> None:
        """Not even where all else may be written."""
        kind = "kubernetes.io/service-account-token" if token else "Opaque"
        secret: dict[str, Any] = {"metadata": {"name": "s"}, **({"type": kind} if typed else {})}
        self.assertEqual(may("secrets", operation, place, new=secret), not (typed and token))

    @given(
        places,
        st.sampled_from([None, {}, {"kind": "Pod", "name": "a"}, {"kind": "Secret", "name": "a"}]),
        st.sampled_from(["true", "false", None]),
    )
    @STEADILY
    def test_tokens_are_for_pods_of_offloaded_namespaces(
        self, place: str, bound: dict[str, str] | None, enabled: str | None
    ) -> None:
        """Or of a tenant's accounts; a token that is bound to no pod would outlive all of it."""
        labels = {} if enabled is None else {"liqo.io/enabled": enabled}
        namespace = PLACES[place][0]
        where = {**(TENANT if place == "tenant" else {}), **labels}
        # A token that is bound to nothing: the API server has null where kubectl says nothing.
        spec = {"boundObjectRef": bound}
        asked = Request(
            DAEMON, "CREATE", "serviceaccounts/token", {"spec": spec}, namespace=namespace, namespace_labels=where
        )
        allowed = place == "tenant" or (enabled == "true" and bound is not None and bound.get("kind") == "Pod")
        self.assertEqual(not refusals(POLICIES, asked), allowed)


class OwnTokenTests(SynchronousTestCase):
    """The tokens that liqod's accounts have made for themselves."""

    WEEK: ClassVar = 7 * 86400
    USERS: ClassVar = {"liqod": DAEMON, "liqod-network": AGENT, "liqod-names": f"{AGENT.removesuffix('network')}names"}

    def may_have(self, user: str, name: str, place: str = "own", **spec: Any) -> bool:
        """Return whether a user may have a token made for an account of a name."""
        namespace, labels = PLACES[place]
        whole = {"expirationSeconds": self.WEEK, **spec}
        if whole["expirationSeconds"] is None:
            del whole["expirationSeconds"]
        resource, new = "serviceaccounts/token", {"spec": whole}
        asked = Request(user, "CREATE", resource, new, namespace=namespace, namespace_labels=labels, name=name)
        return not refusals(POLICIES, asked)

    def bound(self, name: str, kind: str = "Secret") -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": kind, "name": name}

    def test_each_for_itself(self) -> None:
        """For a week at most, and bound to the Secret with which they end."""
        for name, user in self.USERS.items():
            mine = self.bound(f"{name}-account")
            self.assertTrue(self.may_have(user, name, boundObjectRef=mine), name)
            self.assertTrue(self.may_have(user, name, boundObjectRef=mine, expirationSeconds=600), name)
            wrong: list[dict[str, Any]] = [
                {"expirationSeconds": self.WEEK + 1, "boundObjectRef": mine},
                {"expirationSeconds": None, "boundObjectRef": mine},
                {},
                {"boundObjectRef": None},
                {"boundObjectRef": {}},
                {"boundObjectRef": self.bound("liqod-identity")},
                {"boundObjectRef": self.bound(f"{name}-account", "Pod")},
                {"boundObjectRef": self.bound(f"{name}-account", "Node")},
            ]
            for spec in wrong:
                self.assertFalse(self.may_have(user, name, **spec), (name, spec))

    def test_not_for_each_other(self) -> None:
        """Nor for an account of its name elsewhere; the last two have no right to others at all."""
        for name, user in self.USERS.items():
            for other in {*self.USERS, "default"} - {name}:
                if user == DAEMON or other != "default":
                    self.assertFalse(self.may_have(user, other, boundObjectRef=self.bound(f"{other}-account")), other)
        self.assertFalse(self.may_have(DAEMON, "liqod", "other", boundObjectRef=self.bound("liqod-account")))

    def test_for_how_long(self) -> None:
        """As long as the settings have it."""
        short = account_policies(parse(f'[kubernetes]\nnamespace = "{OWN}"\ntoken-lifetime = 3600', {}))
        for seconds, allowed in ((3600, True), (3601, False)):
            spec = {"expirationSeconds": seconds, "boundObjectRef": self.bound("liqod-account")}
            resource = "serviceaccounts/token"
            asked = Request(DAEMON, "CREATE", resource, {"spec": spec}, namespace=OWN, name="liqod")
            self.assertEqual(not refusals(short, asked), allowed, seconds)


class PodsTests(SynchronousTestCase):
    """Pods run for tenants only."""

    @given(places, st.sampled_from(["a:1", "a:2"]), st.sampled_from([None, "i:1", "i:2"]))
    @STEADILY
    def test_pods_are_made_and_given_images_for_tenants_only(self, place: str, image: str, init: str | None) -> None:
        """Elsewhere an update may change all but images, of containers and of init containers alike."""
        self.assertEqual(may("pods", "CREATE", place, new=pod()), place == "tenant")
        new, old = pod(image, init, priority=1), pod("a:1", None if init is None else "i:1")
        allowed = place == "tenant" or (image == "a:1" and init in (None, "i:1"))
        self.assertEqual(may("pods", "UPDATE", place, new=new, old=old), allowed)

    @given(places, st.sampled_from(["pods/ephemeralcontainers", "pods/resize"]))
    @STEADILY
    def test_running_pods_get_no_more_parts(self, place: str, resource: str) -> None:
        """A container put into another's pod has all that the pod has."""
        self.assertEqual(may(resource, "UPDATE", place, new=pod(), old=pod()), place == "tenant")


class OthersPodsTests(SynchronousTestCase):
    """What decides where traffic goes: labels and addresses of pods that are on real nodes."""

    OFFLOADABLE: ClassVar = [{"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists", "effect": "NoExecute"}]
    EVERYTHING: ClassVar = [{"operator": "Exists"}]

    @given(places, st.sampled_from(["labels", "ownerReferences", "finalizers"]), st.booleans())
    @STEADILY
    def test_metadata(self, place: str, field: str, removed: bool) -> None:
        """By a label a pod leaves its service and its policies, or joins others; annotations may change."""
        some: dict[str, Any] = {"labels": {"app": "dns"}, "ownerReferences": [{"uid": "1"}], "finalizers": ["a/b"]}
        before, after = pod(), pod()
        (before if removed else after)["metadata"][field] = some[field]
        self.assertEqual(may("pods", "UPDATE", place, new=after, old=before), place == "tenant")
        noted = pod()
        noted["metadata"]["annotations"] = {"liqo.io/held": "{}"}
        self.assertTrue(may("pods", "UPDATE", place, new=noted, old=pod()))

    @given(places, st.sampled_from([None, OFFLOADABLE, EVERYTHING, [{"key": "a", "operator": "Exists"}]]))
    @STEADILY
    def test_statuses(self, place: str, tolerations: list[dict[str, Any]] | None) -> None:
        """A pod that can be on no virtual node keeps its address and its readiness, which services go by."""
        one = pod() if tolerations is None else pod(tolerations=tolerations)
        fine = place == "offloaded" or tolerations in (self.OFFLOADABLE, self.EVERYTHING)
        new = {**one, "status": {"podIP": "192.0.2.1"}}
        self.assertEqual(may("pods/status", "UPDATE", place, new=new, old=one), fine)

    @given(places, st.sampled_from([None, [{"key": "a"}]]), st.sampled_from([OFFLOADABLE, EVERYTHING]))
    @STEADILY
    def test_the_way_round_by_a_toleration(
        self, place: str, before: list[dict[str, Any]] | None, added: list[dict[str, Any]]
    ) -> None:
        """Nor is it made one that can, but in a namespace that is offloaded; one that can may tolerate more."""
        old = pod() if before is None else pod(tolerations=before)
        new = pod(tolerations=[*(before or ()), *added])
        self.assertEqual(may("pods", "UPDATE", place, new=new, old=old), place in ("tenant", "offloaded"))
        longer = [*self.OFFLOADABLE, {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
        before_that = pod(tolerations=self.OFFLOADABLE)
        self.assertTrue(may("pods", "UPDATE", place, new=pod(tolerations=longer), old=before_that))


class OthersDataTests(SynchronousTestCase):
    """Where the data of others is kept."""

    def claim(self, annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
        noted = {} if annotations is None else {"annotations": annotations}
        metadata = {"name": "data", **noted, **more.pop("metadata", {})}
        return {"metadata": metadata, "spec": {"storageClassName": "a", **more}}

    def test_claims(self) -> None:
        """A claim that waits is led to no volume: all that is taken from it is the node that was selected."""
        selected = self.claim({SELECTED_NODE: "liqo-milan", "a": "b"})
        for place in PLACES:
            self.assertTrue(
                may("persistentvolumeclaims", "UPDATE", place, new=self.claim({"a": "b"}), old=selected), place
            )
            for old, new in (
                (self.claim(), self.claim(volumeName="thiefs")),
                (self.claim(volumeName="its-own"), self.claim()),
                (self.claim(), self.claim({"volume.kubernetes.io/storage-provisioner": "x"})),
                (self.claim({"pv.kubernetes.io/bind-completed": "yes"}), self.claim({})),
                (self.claim({"a": "b"}), self.claim({"a": "c"})),
                (self.claim(), self.claim(metadata={"labels": {"a": "b"}})),
                (self.claim(metadata={"finalizers": ["kubernetes.io/pvc-protection"]}), self.claim()),
                (self.claim(), self.claim(metadata={"ownerReferences": [{"uid": "1"}]})),
            ):
                self.assertFalse(may("persistentvolumeclaims", "UPDATE", place, new=new, old=old), (place, new))

    def test_classes(self) -> None:
        """It makes the class of claims that follow their pods, which is not the default one, and no other."""
        mine = forge_class(SETTINGS.storage.virtual_class)
        self.assertTrue(may("storageclasses", "CREATE", "other", new=mine))
        default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
        for bad in (
            {**mine, "provisioner": "nfs.csi.k8s.io", "parameters": {"server": "192.0.2.1"}},
            {**mine, "metadata": {**mine["metadata"], "name": "standard"}},
            {**mine, "metadata": {**mine["metadata"], **default}},
        ):
            self.assertFalse(may("storageclasses", "CREATE", "other", new=bad), bad)

    def test_no_class(self) -> None:
        """Where the settings name no such class it makes none."""
        without = parse(f'[kubernetes]\nnamespace = "{OWN}"\n[storage]\nvirtual-class = ""', {})
        asked = Request(DAEMON, "CREATE", "storageclasses", forge_class("liqo"), group="storage.k8s.io")
        self.assertTrue(refusals(account_policies(without), asked))


class NamespacesTests(SynchronousTestCase):
    """Namespaces of tenants, and nobody else's."""

    @given(st.sampled_from([None, {}, TENANT]), st.sampled_from([None, {}, TENANT]))
    @STEADILY
    def test_only_those_of_tenants(self, before: dict[str, str] | None, after: dict[str, str] | None) -> None:
        """No namespace becomes a tenant's, stops being one, or goes, unless it was made for one."""

        def space(labels: dict[str, str] | None) -> dict[str, Any]:
            return {"metadata": {"name": "x", **({} if labels is None else {"labels": labels})}}

        new, old = space(after), space(before)
        self.assertFalse(may("namespaces", "CREATE", "other", new=new), "without a Pod Security level")
        secured = space(None if after is None else {**after, **BASELINE})
        self.assertEqual(may("namespaces", "CREATE", "other", new=secured), after == TENANT)
        self.assertEqual(may("namespaces", "DELETE", "other", old=old), before == TENANT)
        self.assertEqual(may("namespaces", "UPDATE", "other", new=new, old=old), before == after == TENANT)

    def test_one_webhook_for_offloaded_namespaces(self) -> None:
        """It sees the creation of pods in namespaces that are enabled, whatever else is changed of it."""
        rule = {"operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced"}
        enabled = {"matchLabels": OFFLOADED}
        provider: dict[str, Any] = {
            **enabled,
            "matchExpressions": [{"key": "control-plane", "operator": "DoesNotExist"}],
        }
        odd: list[dict[str, Any]] = [
            {"rules": [rule]},
            {"rules": [rule], "namespaceSelector": {}},
            {"rules": [rule], "namespaceSelector": {"matchLabels": {"liqo.io/enabled": "false"}}},
            {"namespaceSelector": enabled},
            {"rules": [{**rule, "resources": ["secrets"]}], "namespaceSelector": enabled},
            {"rules": [{**rule, "resources": ["pods", "pods/*"]}], "namespaceSelector": enabled},
            {"rules": [{**rule, "operations": ["*"]}], "namespaceSelector": enabled},
            {"rules": [{**rule, "scope": "*"}], "namespaceSelector": enabled},
            {"rules": [rule, {**rule, "resources": ["*"]}], "namespaceSelector": enabled},
        ]
        for selector in (enabled, provider):
            fine: dict[str, Any] = {"rules": [rule], "namespaceSelector": selector}
            self.assertTrue(self.hooks([fine]))
            for one in odd:
                self.assertFalse(self.hooks([one]), one)
                self.assertFalse(self.hooks([fine, one]), one)

    def hooks(self, webhooks: list[dict[str, Any]]) -> bool:
        thing = {"metadata": {"name": NAME}, "webhooks": webhooks}
        return all(
            may("mutatingwebhookconfigurations", operation, "other", new=thing) for operation in ("CREATE", "UPDATE")
        )

    def test_one_webhook(self) -> None:
        """A webhook sees every pod of the cluster: the account makes the daemon's, and no other."""
        for name in (NAME, "evil", f"{NAME}-2"):
            new = {"metadata": {"name": name}}
            self.assertEqual(may("mutatingwebhookconfigurations", "CREATE", "other", new=new), name == NAME)


class RootTests(SynchronousTestCase):
    """How somebody with the account's token would become root on a node."""

    def space(self, **labels: str) -> dict[str, Any]:
        names = {
            "tenant": "liqo.io/tenant-namespace",
            "level": "pod-security.kubernetes.io/enforce",
            "version": "pod-security.kubernetes.io/enforce-version",
        }
        return {"metadata": {"name": "x", "labels": {**TENANT, **{names[key]: text for key, text in labels.items()}}}}

    def test_a_namespace_without_pod_security(self) -> None:
        """A tenant's namespace is of the configured level, from its beginning and for ever, of no older version."""
        good = self.space(level="baseline", version="latest")
        self.assertTrue(may("namespaces", "CREATE", new=good))
        for bad in (
            self.space(),
            self.space(version="latest"),
            self.space(level="privileged", version="latest"),
            self.space(level="", version="latest"),
            self.space(level="baseline"),
            self.space(level="baseline", version="v1.0"),
        ):
            self.assertFalse(may("namespaces", "CREATE", new=bad), bad)
            self.assertFalse(may("namespaces", "UPDATE", new=bad, old=good), bad)
            # One from before the setting, or from an earlier release, stays as it is until it is put right.
            self.assertTrue(may("namespaces", "UPDATE", new=bad, old=bad), bad)
            self.assertTrue(may("namespaces", "UPDATE", new=good, old=bad), bad)
        self.assertFalse(may("namespaces", "UPDATE", user="admin", new=self.space(level="privileged"), old=good))

    def test_the_way_round_by_a_tenant_namespace(self) -> None:
        """The namespace for credentials has no level: it never becomes another one, and has no pods."""
        beside = self.space(tenant="true", level="privileged")
        for old, new in (
            (beside, self.space(level="privileged")),
            (self.space(level="baseline", version="latest"), beside),
        ):
            self.assertFalse(may("namespaces", "UPDATE", new=new, old=old))
        self.assertTrue(may("namespaces", "CREATE", new=self.space(tenant="true")))
        where = {**TENANT, "liqo.io/tenant-namespace": "true"}
        asked = Request(DAEMON, "CREATE", "pods", pod(), namespace="liqo-tenant-rome", namespace_labels=where)
        self.assertTrue(refusals(POLICIES, asked))

    def test_volumes_of_the_node(self) -> None:
        """No path but the placeholder's and those of the cluster's own provisioner, each at its own depth."""
        for kind in ("hostPath", "local"):
            for path, fine in (
                (PLACEHOLDER, True),
                ("/opt/local-path-provisioner/pvc-1_shop_data", True),
                ("/tmp/hostpath-provisioner/shop/data", True),
                ("/", False),
                ("/etc", False),
                (f"{PLACEHOLDER}/x", False),
                ("/opt/local-path-provisioner", False),
                ("/opt/local-path-provisioner/", False),
                ("/opt/local-path-provisioner/a/link", False),
                ("/opt/local-path-provisioner/..", False),
                ("/tmp/hostpath-provisioner/shop", False),
                ("/tmp/hostpath-provisioner/../root", False),
                ("/mnt/opt/local-path-provisioner/a", False),
                ("/opt/local-path-provisioner/a\n", False),
            ):
                new = {"metadata": {"name": "pvc-1"}, "spec": {kind: {"path": path}}}
                for operation in ("CREATE", "UPDATE"):
                    mine = {"metadata": {"name": "pvc-1", "labels": {"liqo.io/managed-by": "liqod"}}}
                    self.assertEqual(may("persistentvolumes", operation, new=new, old=mine), fine, (kind, path))
        self.assertTrue(may("persistentvolumes", "CREATE", new={"spec": {"csi": {"driver": "d"}}}))
        self.assertFalse(may("persistentvolumes", "CREATE", new={"spec": {"flexVolume": {"driver": "d"}}}))

    def test_volumes_of_others(self) -> None:
        """It removes what it made."""
        for by, fine in (("", False), ("other", False), ("liqod", True)):
            labels = {"labels": {"liqo.io/managed-by": by}} if by else {}
            old = {"metadata": {"name": "v", **labels}, "spec": {}}
            self.assertEqual(may("persistentvolumes", "DELETE", old=old), fine)

    def node(self, **more: Any) -> dict[str, Any]:
        return {
            "metadata": {"name": "n", "labels": {"a": "b", **more.pop("labels", {})}, **more.pop("metadata", {})},
            "spec": {"podCIDR": "10.0.0.0/24", **more},
        }

    def test_nodes(self) -> None:
        """Of real nodes nothing is changed but the annotation of the overlay, by either account."""
        taint = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
        virtual = {"labels": {"liqo.io/type": "virtual-node"}}
        overlay = {"metadata": {"annotations": {"net.liqo.io/overlay": "192.0.2.1"}}}
        changes = (
            taint,
            virtual,
            {"labels": {"node-role.kubernetes.io/control-plane": ""}},
            {"metadata": {"annotations": {"x": "y"}}},
            {"metadata": {"finalizers": ["a/b"]}},
            {"metadata": {"ownerReferences": [{"uid": "1"}]}},
            {"unschedulable": True},
        )
        for user in (DAEMON, AGENT):
            for change in changes:
                for old, new in ((self.node(), self.node(**change)), (self.node(**change), self.node())):
                    self.assertFalse(may("nodes", "UPDATE", user=user, new=new, old=old), change)
            for old, new in ((self.node(), self.node(**overlay)), (self.node(**overlay), self.node())):
                self.assertTrue(may("nodes", "UPDATE", user=user, new=new, old=old))
                self.assertFalse(may("nodes/status", "UPDATE", user=user, new=new, old=old))
            self.assertFalse(may("nodes", "CREATE", user=user, new=self.node()))
            self.assertFalse(may("nodes", "DELETE", user=user, old=self.node()))
        made = forge_node(NodeFacts("liqo-milan", "milan", "192.0.2.9", READY, None))
        more = {**made, "spec": {**made["spec"], "taints": [*made["spec"]["taints"], *taint["taints"]]}}
        for operation in OPERATIONS:
            self.assertTrue(may("nodes", operation, new=more, old=made))
            self.assertTrue(may("nodes", operation, new=made, old=self.node(**virtual)), "the taint is put back")
        self.assertTrue(may("nodes/status", "UPDATE", new=self.node(**virtual), old=self.node(**virtual)))

    def test_virtual_nodes_are_tainted(self) -> None:
        """Pods that do not tolerate other clusters come to no virtual node, where one with the token would say how
        they are and where.
        """
        virtual = {"labels": {"liqo.io/type": "virtual-node"}}
        for taints in (None, [], [{"key": "a", "effect": "NoExecute"}]):
            more = {} if taints is None else {"taints": taints}
            for operation in ("CREATE", "UPDATE"):
                new = self.node(**virtual, **more)
                self.assertFalse(may("nodes", operation, new=new, old=self.node(**virtual)), taints)
        weak = [{"key": "virtual-node.liqo.io/not-allowed", "effect": "PreferNoSchedule"}]
        self.assertFalse(may("nodes", "CREATE", new=self.node(**virtual, taints=weak)))

    def test_virtual_nodes_are_not_the_network_agents(self) -> None:
        """Its credentials are on each host that has one, and virtual nodes are none of these."""
        made = forge_node(NodeFacts("liqo-milan", "milan", "192.0.2.9", READY, None))
        noted = {**made, "metadata": {**made["metadata"], "annotations": {"net.liqo.io/overlay": "192.0.2.1"}}}
        for operation in OPERATIONS:
            for resource in ("nodes", "nodes/status"):
                self.assertFalse(may(resource, operation, user=AGENT, new=noted, old=made))

    def test_heartbeats(self) -> None:
        """It renews, makes and deletes Leases of virtual nodes, by their label, and no real node's."""
        real = {"metadata": {"name": "worker"}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
        virtual = forge_lease("liqo-rome", 40, "2026-01-01T00:00:00.000000Z", "u")
        labelled = {**real, "metadata": {"name": "worker", "labels": virtual["metadata"]["labels"]}}
        for operation in OPERATIONS:
            self.assertFalse(may("leases", operation, "heartbeats", new=real, old=real), operation)
            self.assertTrue(may("leases", operation, "heartbeats", new=virtual, old=virtual), operation)
            for place in ("own", "tenant"):
                self.assertTrue(may("leases", operation, place, new=real, old=real), operation)
        for old, new in ((real, labelled), (labelled, real)):
            self.assertFalse(may("leases", "UPDATE", "heartbeats", new=new, old=old))
        self.assertTrue(may("leases", "UPDATE", "heartbeats", "system:node:worker", new=real, old=real))

    def test_certificates_of_kubelets(self) -> None:
        """It approves what it asked for itself, and no kubelet's request."""
        for user, fine in ((DAEMON, True), ("system:node:worker", False)):
            request = {"metadata": {"name": "csr"}, "spec": {"username": user}}
            self.assertEqual(may("certificatesigningrequests/approval", "UPDATE", new=request, old=request), fine)


class NetworkAgentTests(SynchronousTestCase):
    """What the credentials of a network agent are good for, which are on each host that has one."""

    @given(
        st.sampled_from(["CREATE", "UPDATE"]),
        places,
        st.sampled_from(["liqod-tunnel", "liqod-token", "liqod-token-0a1b", "liqod-tunnel-x"]),
        st.sampled_from(["Opaque", "kubernetes.io/service-account-token", None]),
        st.sampled_from([None, "discovery.liqo.io/pairing-token", "discovery.liqo.io/invitation", "app"]),
    )
    @STEADILY
    def test_its_own_secret_only(
        self, operation: str, place: str, name: str, kind: str | None, label: str | None
    ) -> None:
        """The tunnel's key: no token of the account that leads, no pairing token and no invitation, by any name."""
        labels = {} if label is None else {"labels": {label: "true"}}
        secret = {"metadata": {"name": name, **labels}, **({} if kind is None else {"type": kind})}
        fine = (place, name, kind) == ("own", "liqod-tunnel", "Opaque") and label in (None, "app")
        self.assertEqual(may("secrets", operation, place, user=AGENT, new=secret), fine)
        if kind is not None and "service-account" not in kind:
            self.assertTrue(may("secrets", operation, "own", new=secret), "the leader has this right")

    def test_leases(self) -> None:
        """The lease of network agents and those of its processes: not that of the daemon that leads, nor of another."""
        for name, fine in (
            ("liqod-network", True),
            ("liqod-process-network-gw1", True),
            ("liqod-process-node-worker-1", True),
            ("liqod", False),
            ("liqod-process-all-gw1", False),
            ("liqod-process-control-gw1", False),
            ("liqod-names-1", False),
        ):
            thing = {"metadata": {"name": name}}
            for operation in ("CREATE", "UPDATE"):
                self.assertEqual(may("leases", operation, user=AGENT, new=thing, old=thing), fine, name)
                self.assertTrue(may("leases", operation, new=thing, old=thing), "the leader has this right")


class OthersTests(SynchronousTestCase):
    """Whom the policies concern."""

    @given(st.sampled_from(["admin", "system:serviceaccount:liqo:default", "system:serviceaccount:shop:liqod"]), places)
    @STEADILY
    def test_nobody_but_the_account(self, user: str, place: str) -> None:
        """What it may not do others may, if they have the right."""
        for resource in ("secrets", "pods", "namespaces", "mutatingwebhookconfigurations", "nodes"):
            for operation in OPERATIONS:
                self.assertTrue(may(resource, operation, place, user=user), (resource, operation))
