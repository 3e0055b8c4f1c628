"""Forging pods and statuses for the other side."""

from __future__ import annotations

import copy
from typing import Any

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kube.writing.merge_patch import apply_merge_patch, merge_patch
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import FORGED_ANNOTATION, is_internal, is_ours, remote_labels
from liqod.kubelet.common.naming import choose_remote, label_value
from liqod.kubelet.common.network import NoNetwork
from liqod.kubelet.pods.forge import HOST_NAMESPACES, REMOVED, digest_of, forge_patch, forge_shadow, forge_spec
from liqod.kubelet.pods.restarts import Tally, tally
from liqod.kubelet.pods.status import (
    forge_status,
    not_offloaded_status,
    not_ready_status,
    refused_addresses,
    refused_status,
)
from liqod.model.ids import ClusterID, is_dns_label
from liqod.model.names import TAINT_KEY, remote_namespace
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.name_service import DOMAIN_ANNOTATION
from tests.kubelet.networks import HomeNetworks, Services, SimulatedNetwork

CONTEXT = Context(home=ClusterID("home"), lender=ClusterID("lender"), node_name="liqo-lender", node_address="10.0.0.1")
NOW = "2026-01-01T00:00:00Z"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcd", max_size=2), inner, max_size=3),
    max_leaves=8,
)
VERBATIM = (
    "activeDeadlineSeconds",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "hostname",
    "imagePullSecrets",
    "readinessGates",
    "restartPolicy",
    "securityContext",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
    "terminationGracePeriodSeconds",
    "somethingNewerThanThisDaemon",
)


def api_access() -> dict[str, Any]:
    sources = [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "kube-root-ca.crt"}}]
    return {"name": "kube-api-access-x1", "projected": {"sources": sources}}


def container(name: str = "main", **more: Any) -> dict[str, Any]:
    mounts = [{"name": "kube-api-access-x1", "mountPath": "/var/run/secrets"}, {"name": "data", "mountPath": "/data"}]
    return {"name": name, "image": "busybox", "volumeMounts": mounts, **more}


def meta(**more: Any) -> ObjectMeta:
    return ObjectMeta(**{"name": "web", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}, **more})


class SpecTests(SynchronousTestCase):
    @given(st.dictionaries(st.sampled_from([*VERBATIM, *sorted(REMOVED), *HOST_NAMESPACES]), JSON))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_verbatim_but_for_local_fields(self, fields: dict[str, Any]) -> None:
        """Every field travels as it is, except those that speak of the home cluster or of hosts."""
        spec = {key: value for key, value in fields.items() if key != "affinity"}
        before = copy.deepcopy(spec)
        forged = forge_spec(meta(), spec, CONTEXT)
        self.assertEqual(spec, before)
        for key in VERBATIM:
            self.assertEqual(forged.get(key, "absent"), spec.get(key, "absent"))
        for key in REMOVED - {"runtimeClassName"}:
            self.assertNotIn(key, forged)
        for key in HOST_NAMESPACES:
            self.assertIs(forged[key], False)

    def test_tokens_stay_at_home(self) -> None:
        """The token volume of the API server goes with its mounts; other volumes and mounts stay."""
        data = {"name": "data", "emptyDir": {}}
        own = {"name": "mine", "projected": {"sources": [{"serviceAccountToken": {}}, {"secret": {"name": "s"}}]}}
        spec = {
            "containers": [container()],
            "initContainers": [container("init")],
            "volumes": [api_access(), data, own],
            "serviceAccountName": "builder",
            "serviceAccount": "builder",
        }
        forged = forge_spec(meta(), spec, CONTEXT)
        self.assertEqual(
            forged["volumes"], [data, {"name": "mine", "projected": {"sources": [{"secret": {"name": "s"}}]}}]
        )
        for kind in ("containers", "initContainers"):
            self.assertEqual(forged[kind][0]["volumeMounts"], [{"name": "data", "mountPath": "/data"}])
        self.assertNotIn("serviceAccountName", forged)
        self.assertNotIn("serviceAccount", forged)
        self.assertIs(forged["automountServiceAccountToken"], False)

    def test_a_volume_that_only_looks_like_it_stays(self) -> None:
        """A user's own volume named like the token volume, without a token in it, is the user's."""
        volume = {"name": "kube-api-access-x1", "emptyDir": {}}
        forged = forge_spec(meta(), {"containers": [container()], "volumes": [volume]}, CONTEXT)
        self.assertEqual(forged["volumes"], [volume])
        self.assertEqual(len(forged["containers"][0]["volumeMounts"]), 2)

    def test_tolerations(self) -> None:
        """Only the toleration of virtual nodes is left out."""
        others = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}]
        spec = {"tolerations": [{"key": TAINT_KEY, "operator": "Exists"}, *others]}
        self.assertEqual(forge_spec(meta(), spec, CONTEXT)["tolerations"], others)

    def test_host_ports_of_the_host_network(self) -> None:
        """Host ports that came with the host's network go with it; a host port asked for without it stays."""
        spec = {"hostNetwork": True, "containers": [container(ports=[{"containerPort": 80, "hostPort": 80}])]}
        self.assertEqual(forge_spec(meta(), spec, CONTEXT)["containers"][0]["ports"], [{"containerPort": 80}])
        spec["hostNetwork"] = False
        kept = forge_spec(meta(), spec, CONTEXT)["containers"][0]["ports"]
        self.assertEqual(kept, [{"containerPort": 80, "hostPort": 80}])

    def test_presets(self) -> None:
        """Each preset gives the anti-affinity it promises, and nothing else of the pod's affinity travels."""
        own = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
        spec = {"affinity": {"nodeAffinity": {"x": 1}, "podAntiAffinity": own}}
        labels = {"app": "web", "tier": "front", "pod-template-hash": "abc"}

        def preset(value: str, keys: str = "") -> Any:
            annotations = {"liqo.io/anti-affinity-preset": value}
            if keys:
                annotations["liqo.io/anti-affinity-labels"] = keys
            return forge_spec(meta(labels=labels, annotations=annotations), spec, CONTEXT).get("affinity")

        self.assertEqual(preset("propagate"), {"podAntiAffinity": own})
        term = {
            "labelSelector": {"matchLabels": {"app": "web", "tier": "front"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        self.assertEqual(
            preset("hard"), {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        )
        soft = preset("soft", "app, nothing")["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(soft[0]["podAffinityTerm"]["labelSelector"], {"matchLabels": {"app": "web"}})
        self.assertIsNone(preset("soft", "nothing"))
        self.assertIsNone(preset("sideways"))

    def test_extended_resources(self) -> None:
        """One that the lender does not offer is counted at home alone; while its offer is not known all stay."""
        amounts = {"cpu": "1", "nvidia.com/gpu": "1", "example.com/dongle": "1", "hugepages-2Mi": "2Mi"}
        lent = {name: one for name, one in amounts.items() if name != "example.com/dongle"}
        container = {"name": "main", "resources": {"requests": amounts, "limits": amounts, "claims": [{"name": "x"}]}}
        for offered, wanted in ((frozenset({"cpu", "nvidia.com/gpu"}), lent), (None, amounts)):
            context = attrs.evolve(CONTEXT, offered=Latest(offered))
            for kind in ("containers", "initContainers"):
                spec = {"containers": [{"name": "other"}], kind: [container]}
                (found,) = forge_spec(ObjectMeta(name="web"), spec, context)[kind]
                self.assertEqual(found["resources"], {"requests": wanted, "limits": wanted})

    def test_volumes_that_live_as_long_as_the_pod(self) -> None:
        """Where claims of its class follow their pods, such a volume is the claim that follows; others are verbatim."""

        def volume(**spec: str) -> dict[str, Any]:
            return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}

        context = attrs.evolve(CONTEXT, services=Services(classes=("", "liqo")))
        claim = {"name": "scratch", "persistentVolumeClaim": {"claimName": "web-scratch"}}
        for before, wanted in (
            (volume(storageClassName="liqo"), claim),
            (volume(), claim),
            (volume(storageClassName="disk"), volume(storageClassName="disk")),
            ({"name": "scratch", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}),
        ):
            self.assertEqual(forge_spec(meta(), {"volumes": [before]}, context)["volumes"], [wanted])
        self.assertEqual(forge_spec(meta(), {"volumes": [volume()]}, CONTEXT)["volumes"], [volume()])

    def test_spread(self) -> None:
        """What pods must be spread over is a preference at the lender, unless it is to be propagated."""
        must = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, "minDomains": 2}
        may = {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 3}
        softened = {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1}
        other = {**must, "topologyKey": "rack"}

        def forged(*constraints: dict[str, Any], preset: str = "") -> Any:
            annotations = {"liqo.io/anti-affinity-preset": preset}
            spec = {"topologySpreadConstraints": list(constraints)}
            return forge_spec(meta(annotations=annotations), spec, CONTEXT)["topologySpreadConstraints"]

        self.assertEqual(forged(may), [may])
        self.assertEqual(forged(must), [softened])
        self.assertEqual(forged(must, preset="hard"), [softened])
        self.assertEqual(forged(must, other), [softened, {**softened, "topologyKey": "rack"}])
        # The API server refuses two preferences for the same domains.
        self.assertEqual(forged(must, may), [may])
        self.assertEqual(forged(must, may, preset="propagate"), [must, may])

    def test_merged_keys(self) -> None:
        """Keys of labels that the home API server has put into a selector are not put there once more."""
        rev = {"key": "rev", "operator": "In", "values": ["1"]}
        term = {"topologyKey": "host", "labelSelector": {"matchExpressions": [rev]}}
        given = {**term, "matchLabelKeys": ["rev", "not-merged"], "mismatchLabelKeys": ["rev"]}
        wanted = {**term, "matchLabelKeys": ["not-merged"]}
        required, preferred = (f"{what}DuringSchedulingIgnoredDuringExecution" for what in ("required", "preferred"))
        spec = {
            "affinity": {"podAntiAffinity": {required: [given], preferred: [{"weight": 2, "podAffinityTerm": given}]}},
            "topologySpreadConstraints": [{**given, "whenUnsatisfiable": "ScheduleAnyway"}],
        }
        before = copy.deepcopy(spec)
        forged = forge_spec(meta(annotations={"liqo.io/anti-affinity-preset": "propagate"}), spec, CONTEXT)
        self.assertEqual(spec, before)
        own = forged["affinity"]["podAntiAffinity"]
        self.assertEqual(own, {required: [wanted], preferred: [{"weight": 2, "podAffinityTerm": wanted}]})
        self.assertEqual(forged["topologySpreadConstraints"], [{**wanted, "whenUnsatisfiable": "ScheduleAnyway"}])

    def test_runtime_class(self) -> None:
        """The annotation decides over the pod's own runtime class, and the one named liqo means none."""
        self.assertEqual(forge_spec(meta(), {"runtimeClassName": "gvisor"}, CONTEXT)["runtimeClassName"], "gvisor")
        self.assertNotIn("runtimeClassName", forge_spec(meta(), {"runtimeClassName": "liqo"}, CONTEXT))
        annotated = meta(annotations={"liqo.io/remote-runtime-class-name": "kata"})
        self.assertEqual(forge_spec(annotated, {"runtimeClassName": "gvisor"}, CONTEXT)["runtimeClassName"], "kata")

    def test_metadata(self) -> None:
        """Internal keys and last-applied stay at home; ownership and the pod's UID are added."""
        pod = meta(
            labels={"app": "web", "liqo.io/shadowPod": "true", "offloading.liqo.io/origin": "forged"},
            annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "x", "liqo.io/a": "b"},
        )
        shadow = forge_shadow(pod, {}, "shop-home", CONTEXT)["metadata"]
        self.assertEqual(shadow["labels"], remote_labels({"app": "web"}, CONTEXT))
        self.assertEqual(shadow["labels"]["offloading.liqo.io/origin"], "home")
        ours = {"offloading.liqo.io/home-pod-uid", "offloading.liqo.io/home-spec", FORGED_ANNOTATION, DOMAIN_ANNOTATION}
        self.assertEqual(set(shadow["annotations"]), {"note", *ours})
        self.assertEqual(shadow["annotations"][DOMAIN_ANNOTATION], "cluster.local")
        self.assertTrue(is_internal("virtual-node.liqo.io/not-allowed"))
        self.assertFalse(is_internal("notliqo.io/key"))

    def test_patch_brings_up_to_date(self) -> None:
        """Applying the patch gives the ShadowPod that would have been forged again; the digest notices the change."""
        spec = {"containers": [container()], "initContainers": [container("init")], "activeDeadlineSeconds": 60}
        old = forge_shadow(meta(labels={"app": "web", "old": "1"}), spec, "ns", CONTEXT)
        changed = {**spec, "containers": [container(image="busybox:2")], "tolerations": [{"key": "a"}]}
        pod = meta(labels={"app": "shop"})
        self.assertNotEqual(old["metadata"]["annotations"][FORGED_ANNOTATION], digest_of(pod, changed, CONTEXT))
        shadow = ObjectMeta(
            name="web", uid="s1", labels=old["metadata"]["labels"], annotations=old["metadata"]["annotations"]
        )
        patch = forge_patch(pod, changed, shadow, CONTEXT)
        self.assertEqual(patch["metadata"].pop("uid"), "s1")
        self.assertEqual(apply_merge_patch(old, patch), forge_shadow(pod, changed, "ns", CONTEXT))
        self.assertTrue(is_ours(shadow, CONTEXT))

    def test_what_does_not_matter_keeps_the_digest(self) -> None:
        """Changes that do not travel (a bound node, internal labels) change no digest."""
        spec: dict[str, Any] = {"containers": [container()]}
        same = digest_of(meta(labels={"app": "web", "liqo.io/x": "1"}), {**spec, "nodeName": "n"}, CONTEXT)
        self.assertEqual(digest_of(meta(), spec, CONTEXT), same)


def remote_status(**more: Any) -> dict[str, Any]:
    return {
        "phase": "Running",
        "podIP": "10.1.0.9",
        "podIPs": [{"ip": "10.1.0.9"}],
        "hostIP": "192.168.7.7",
        "hostIPs": [{"ip": "192.168.7.7"}],
        "qosClass": "Burstable",
        "startTime": NOW,
        "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": NOW, "observedGeneration": 3}],
        "containerStatuses": [{"name": "main", "ready": True, "restartCount": 1, "state": {"running": {}}}],
        **more,
    }


HOME_PENDING: dict[str, Any] = {
    "phase": "Pending",
    "qosClass": "BestEffort",
    "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}],
}


class StatusTests(SynchronousTestCase):
    def forge(
        self, home: dict[str, Any], remote: dict[str, Any], spec: dict[str, Any] | None = None, context: Any = CONTEXT
    ) -> dict[str, Any]:
        counted = tally(None, home, "r1", remote)
        return forge_status(home, remote, tally=counted, context=context, now=NOW, spec=spec or {})

    def test_defaults_of_the_lender(self) -> None:
        """Of resources home sees those that its own container names, and those of what else it does not know of."""
        requests, limits = {"cpu": "20m", "memory": "64Mi"}, {"cpu": "2", "memory": "24Gi"}
        given = {"allocatedResources": requests, "resources": {"requests": requests, "limits": limits, "claims": [1]}}
        for own, allocated, kept in (
            ({}, None, {"claims": [1]}),
            ({"requests": {"cpu": "20m"}}, {"cpu": "20m"}, {"requests": {"cpu": "20m"}, "claims": [1]}),
            (
                {"requests": requests, "limits": {"memory": "1Gi"}},
                requests,
                {"requests": requests, "limits": {"memory": "1Gi"}, "claims": [1]},
            ),
        ):
            remote = {**remote_status(), "containerStatuses": [{"name": "main", "restartCount": 0, **given}]}
            spec = {"containers": [{"name": "main", "resources": own}]}
            (found,) = self.forge(HOME_PENDING, remote, spec=spec)["containerStatuses"]
            self.assertEqual((found.get("allocatedResources"), found["resources"]), (allocated, kept))

    def test_addresses_and_classes(self) -> None:
        """Pod addresses are mapped, the host is the virtual node, and the class stays the home pod's."""
        context = Context(
            home=CONTEXT.home,
            lender=CONTEXT.lender,
            node_name="n",
            node_address="10.0.0.1",
            network=SimulatedNetwork(to_home=lambda address: address.replace("10.1.", "10.71.")),
        )
        remote = remote_status()
        forged = self.forge(HOME_PENDING, remote, context=context)
        self.assertEqual((forged["podIP"], forged["podIPs"]), ("10.71.0.9", [{"ip": "10.71.0.9"}]))
        self.assertEqual((forged["hostIP"], forged["hostIPs"]), ("10.0.0.1", [{"ip": "10.0.0.1"}]))
        self.assertEqual(forged["qosClass"], "BestEffort")
        self.assertNotIn("observedGeneration", str(forged))

    def test_addresses_of_both_versions(self) -> None:
        """All are mapped; that of the version that nodes have at home comes first, whatever is first at the lender."""
        four, six = {"ip": "10.71.0.9"}, {"ip": "fd00:71::9"}
        for node_address, there, wanted in (
            ("10.0.0.1", ["10.1.0.9", "fd00:1::9"], [four, six]),
            ("10.0.0.1", ["fd00:1::9", "10.1.0.9"], [four, six]),
            ("fd00::1", ["10.1.0.9", "fd00:1::9"], [six, four]),
            ("fd00::1", ["10.1.0.9"], [four]),
            ("", ["fd00:1::9", "10.1.0.9"], [six, four]),
        ):
            context = Context(
                home=CONTEXT.home,
                lender=CONTEXT.lender,
                node_name="n",
                node_address=node_address,
                network=SimulatedNetwork(
                    to_home=lambda address: address.replace("10.1.", "10.71.").replace("fd00:1:", "fd00:71:")
                ),
            )
            remote = remote_status(podIP=there[0], podIPs=[{"ip": address} for address in there])
            forged = self.forge(HOME_PENDING, remote, context=context)
            self.assertEqual((forged["podIP"], forged["podIPs"]), (wanted[0]["ip"], wanted), (node_address, there))

    def test_addresses_of_this_cluster(self) -> None:
        """Without a tunnel none is shown that is this cluster's own or of no cluster: its Services would lead there."""
        own = HomeNetworks("10.96.0.0/12", "10.201.0.0/16", "192.168.1.5/32")
        network = NoNetwork(own)
        context = Context(home=CONTEXT.home, lender=CONTEXT.lender, node_name="n", network=network)
        for address in ("10.96.0.1", "10.201.0.7", "192.168.1.5", "127.0.0.1", "169.254.169.254", "::1", "no address"):
            remote = remote_status(podIP=address, podIPs=[{"ip": address}])
            forged = self.forge(HOME_PENDING, remote, context=context)
            self.assertNotIn("podIP", forged, address)
            self.assertNotIn("podIPs", forged, address)
            self.assertIn(address, refused_addresses(remote, context))
        fine = remote_status(podIP="10.202.0.9", podIPs=[{"ip": "10.202.0.9"}])
        self.assertEqual(self.forge(HOME_PENDING, fine, context=context)["podIP"], "10.202.0.9")
        self.assertEqual(refused_addresses(fine, context), "")
        own.change("10.202.0.0/16")
        self.assertEqual(network.translation.value, 1)
        self.assertNotIn("podIP", self.forge(HOME_PENDING, fine, context=context))

    def test_a_pending_remote_pod_is_no_news(self) -> None:
        """A remote pod that was only scheduled leaves the home pod's status equal, so nothing is written."""
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": NOW, "observedGeneration": 1}
        remote = {"phase": "Pending", "qosClass": "Burstable", "conditions": [scheduled]}
        self.assertEqual(self.forge(HOME_PENDING, remote), HOME_PENDING)
        self.assertEqual(self.forge(HOME_PENDING, {"phase": "Pending"}), HOME_PENDING)

    def test_forging_again_changes_nothing(self) -> None:
        """A forged status forged once more is equal."""
        once = self.forge(HOME_PENDING, remote_status())
        self.assertEqual(self.forge(once, remote_status()), once)

    def test_conditions_of_others_stay(self) -> None:
        """Conditions that no kubelet writes survive; readiness that the remote pod does not confirm does not."""
        disruption = {"type": "DisruptionTarget", "status": "True"}
        home = {
            "conditions": [disruption, {"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}]
        }
        forged = self.forge(home, {"phase": "Pending"})["conditions"]
        self.assertIn(disruption, forged)
        self.assertEqual([c["status"] for c in forged if c["type"] == "Ready"], ["False"])
        self.assertNotIn("Initialized", str(forged))

    def test_readiness_gates(self) -> None:
        """Gates are opened and closed by conditions of the home pod, which the lender does not know."""
        spec = {"readinessGates": [{"conditionType": "example.com/lb"}]}
        closed = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": "there: no"}
        remote = remote_status(conditions=[closed, {"type": "ContainersReady", "status": "True"}])

        def ready(status: dict[str, Any]) -> dict[str, Any]:
            return next(dict(one) for one in status["conditions"] if one["type"] == "Ready")

        once = self.forge(HOME_PENDING, remote, spec)
        self.assertEqual((ready(once)["status"], ready(once)["reason"]), ("False", "ReadinessGatesNotReady"))
        self.assertIn('"example.com/lb" does not exist', ready(once)["message"])
        self.assertEqual(self.forge(once, remote, spec), once)

        def said(value: str) -> dict[str, Any]:
            gate = {"type": "example.com/lb", "status": value}
            return {**once, "conditions": [*once["conditions"], gate]}

        opened = self.forge(said("True"), remote, spec)
        self.assertEqual(ready(opened), {"type": "Ready", "status": "True", "lastTransitionTime": NOW})
        self.assertEqual(self.forge(opened, remote, spec), opened)
        self.assertIn('is not "True", but False', ready(self.forge(said("False"), remote, spec))["message"])
        # What keeps the remote pod's own containers from being ready is not overruled.
        failing = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
        self.assertEqual(ready(self.forge(said("True"), remote_status(conditions=[failing]), spec))["status"], "False")
        # A lender that knows the gate may open it as well.
        both = [{"type": "example.com/lb", "status": "True"}, {"type": "Ready", "status": "True"}]
        self.assertEqual(ready(self.forge(once, remote_status(conditions=both), spec))["status"], "True")

    def test_terminated_containers_stay_terminated(self) -> None:
        """What the API refuses to un-terminate keeps its status, by restart policy and exit code."""
        ended = {"name": "main", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}
        home, remote = {"containerStatuses": [ended]}, remote_status()
        for policy, kept in (("Never", True), ("OnFailure", True), ("Always", False)):
            forged = self.forge(home, remote, {"restartPolicy": policy})
            self.assertEqual("terminated" in forged["containerStatuses"][0]["state"], kept, policy)

    def test_the_lenders_disruptions_are_its_own(self) -> None:
        """That a remote pod is about to be evicted is no condition of the home pod, which goes on."""
        disruption = {"type": "DisruptionTarget", "status": "True"}
        remote = {"phase": "Running", "conditions": [disruption, {"type": "Ready", "status": "True"}]}
        kinds = [condition["type"] for condition in self.forge(HOME_PENDING, remote)["conditions"]]
        self.assertIn("Ready", kinds)
        self.assertNotIn("DisruptionTarget", kinds)

    def test_containers_for_debugging(self) -> None:
        """Those of the home pod are shown; after a new remote pod they have ended; those of the lender are its own."""
        spec = {"ephemeralContainers": [{"name": "look"}, {"name": "again"}]}
        running: dict[str, Any] = {"running": {}}
        done: dict[str, Any] = {"terminated": {"exitCode": 3}}

        def shown(home: list[Any], remote: list[Any]) -> list[Any]:
            before = {"phase": "Running", "ephemeralContainerStatuses": home}
            after = {"phase": "Running", "ephemeralContainerStatuses": remote}
            statuses = self.forge(before, after, spec).get("ephemeralContainerStatuses") or []
            return [(one["name"], one["state"]) for one in statuses]

        look, again, theirs = ({"name": name, "state": running} for name in ("look", "again", "theirs"))
        ended = {"name": "look", "state": done}
        lost = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}
        self.assertEqual(shown([], [look, theirs]), [("look", running)])
        self.assertEqual(shown([look], [ended]), [("look", done)])
        self.assertEqual(shown([ended], [look]), [("look", done)])
        self.assertEqual(shown([look], []), [("look", lost)])
        self.assertEqual(shown([ended], [again]), [("again", running), ("look", done)])
        self.assertEqual(shown([], [theirs]), [])

    def test_absent_and_refused(self) -> None:
        """A remote pod that vanished makes the home pod not ready; a refusal adds its reason; both are idempotent."""
        home = self.forge(HOME_PENDING, remote_status())
        gone = not_ready_status(home, "RemotePodMissing", "gone", NOW)
        self.assertEqual(gone["conditions"][0]["status"], "False")
        self.assertFalse(gone["containerStatuses"][0]["ready"])
        self.assertEqual(gone["phase"], "Running")
        self.assertEqual(not_ready_status(gone, "RemotePodMissing", "gone", "later"), gone)
        refused = refused_status(HOME_PENDING, "QuotaExceeded", "no room", NOW)
        self.assertEqual(refused["conditions"][-1]["type"], "liqo.io/Offloaded")
        self.assertEqual(refused_status(refused, "QuotaExceeded", "no room", "later"), refused)
        self.assertNotIn("liqo.io/Offloaded", str(self.forge(refused, remote_status())))

    def test_a_refusal_replaces_an_earlier_reason(self) -> None:
        """A pod that is refused at the lender no longer shows that its namespace was not offloaded."""
        waiting = not_offloaded_status(HOME_PENDING, "why", NOW)
        refused = refused_status(waiting, "QuotaExceeded", "no room", NOW)
        self.assertEqual(refused, refused_status(HOME_PENDING, "QuotaExceeded", "no room", NOW))
        for absent in ("reason", "message"):
            self.assertNotIn(absent, refused)
        self.assertEqual(not_offloaded_status(refused, "why", NOW), waiting)

    def test_outside(self) -> None:
        """A pod that never ran backs off; one that ran is aborted with all its containers ended."""
        waiting = not_offloaded_status(HOME_PENDING, "why", NOW)
        self.assertEqual((waiting["phase"], waiting["reason"]), ("Pending", "OffloadingBackOff"))
        self.assertEqual(not_offloaded_status(waiting, "why", "later"), waiting)
        aborted = not_offloaded_status(remote_status(), "why", NOW)
        self.assertEqual((aborted["phase"], aborted["reason"]), ("Failed", "OffloadingAborted"))
        self.assertEqual(aborted["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137)

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.booleans()), max_size=12))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_restarts_never_decrease(self, seen: list[tuple[str, int, bool]]) -> None:
        """Whatever remote pods come, go and count, and whenever the daemon restarts, the count at home only grows."""
        known: Tally | None = None
        home: dict[str, Any] = {}
        shown = 0
        for uid, count, restarted in seen:
            remote = {"containerStatuses": [{"name": "main", "restartCount": count}]}
            known = tally(None if restarted else known, home, uid, remote)
            home = forge_status(home, remote, tally=known, context=CONTEXT, now=NOW, spec={})
            now = home["containerStatuses"][0]["restartCount"]
            self.assertGreaterEqual(now, shown)
            shown = now

    def test_recreation_counts_one(self) -> None:
        """A new remote UID adds one to what was shown, also when it was replaced while the daemon was down."""
        first = {"startTime": "a", "containerStatuses": [{"name": "main", "restartCount": 2}]}
        fresh = {"startTime": "b", "containerStatuses": [{"name": "main", "restartCount": 0}]}
        known = tally(None, {}, "r1", first)
        self.assertEqual(known.count("main", 2), 2)
        self.assertEqual(tally(known, first, "r2", fresh).count("main", 0), 3)
        self.assertEqual(tally(None, first, "r2", fresh).count("main", 0), 3)
        augmented = {"startTime": "b", "containerStatuses": [{"name": "main", "restartCount": 3}]}
        self.assertEqual(tally(None, augmented, "r2", fresh).count("main", 1), 4)


class PatchTests(SynchronousTestCase):
    @given(st.dictionaries(st.text("abc", max_size=2), JSON), st.dictionaries(st.text("abc", max_size=2), JSON))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_diff_then_merge(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        """Applying the difference gives the new object, up to nulls, which JSON merge patch cannot say."""
        old, new = strip(old), strip(new)
        self.assertEqual(apply_merge_patch(old, merge_patch(old, new)), new)
        self.assertEqual(merge_patch(new, new), {})


def strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: strip(inner) for key, inner in value.items() if inner is not None}
    return value


class NameTests(SynchronousTestCase):
    def test_label_values_fit(self) -> None:
        """A long node name becomes a label value that fits and still differs from a similar one."""
        long = "liqo-" + "x" * 70
        self.assertEqual(label_value("liqo-c2"), "liqo-c2")
        self.assertLessEqual(len(label_value(long)), 63)
        self.assertNotEqual(label_value(long + "1"), label_value(long + "2"))
        self.assertEqual(label_value(long[:63]), long[:63])
        self.assertEqual(len(label_value(long[:64])), 63)

    def test_a_taken_name_is_avoided(self) -> None:
        """The rule's name is used and kept, unless another local namespace has it."""
        home = ClusterID("c1")
        self.assertEqual(choose_remote("shop", home, {}), "shop-c1")
        self.assertEqual(choose_remote("shop", home, {"shop-c1": "shop"}), "shop-c1")
        other = choose_remote("shop", home, {"shop-c1": "other"})
        assert other is not None
        self.assertNotEqual(other, "shop-c1")
        self.assertLessEqual(len(other), 63)
        for length in (1, 21, 22, 23, 63):
            local = "x" * length
            other = choose_remote(local, home, {remote_namespace(local, home): "other"})
            assert other is not None
            self.assertTrue(is_dns_label(other), (length, other))
