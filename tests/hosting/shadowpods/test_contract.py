"""What a borrower may write of a pod: attacks with a ShadowPod written by hand, and what ordinary pods have."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings, Settings, StorageSettings
from liqod.hosting.shadowpods import forge
from liqod.hosting.shadowpods.pod_contract import restrict
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.views import FORGED_ANNOTATION
from liqod.model.records.views import ShadowPodSpec
from tests.hosting.shadowpods.test_forge import shadow

MAIN: dict[str, Any] = {"name": "main", "image": "app:1"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod(spec: dict[str, Any], contract: Contract | None = None, **metadata: dict[str, str]) -> dict[str, Any]:
    """Return the pod that is created for a ShadowPod."""
    made = shadow({"containers": [MAIN], **spec}, **metadata)
    terms = contract or Contract()
    return forge.pod(restrict(made, terms), accounts=terms.granted.service_accounts)


def granted(**settings: Any) -> Contract:
    return Contract(HostingSettings(**settings))


class RefusedTests(SynchronousTestCase):
    """What is not on the list is refused, with its path."""

    def refused(self, spec: dict[str, Any], word: str, **metadata: dict[str, str]) -> None:
        with self.assertRaises(ValueError, msg=repr(spec)) as caught:
            pod(spec, None, **metadata)
        self.assertIn(word, str(caught.exception))

    def test_fields_of_the_pod(self) -> None:
        """Claims of devices, gangs of pods, a weaker sandbox, and what a later Kubernetes adds."""
        for field, value in (
            ("resourceClaims", [{"name": "gpu", "resourceClaimName": "of-others"}]),
            ("workloadRef", {"name": "w"}),
            ("schedulingGroup", {"podGroupName": "g"}),
            ("runtimeClassName", "unsandboxed"),
            ("addedTomorrow", True),
        ):
            self.refused({field: value}, f"spec.{field}")

    def test_fields_of_containers(self) -> None:
        """In each kind of container, at any depth."""
        for kind in ("containers", "initContainers", "ephemeralContainers"):
            for fields, word in (
                ({"addedTomorrow": 1}, "addedTomorrow"),
                ({"resources": {"claims": [{"name": "gpu"}]}}, "resources.claims"),
                ({"securityContext": {"addedTomorrow": True}}, "securityContext.addedTomorrow"),
                (
                    {"securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "payroll"}}},
                    "securityContext.windowsOptions.gmsaCredentialSpecName",
                ),
                ({"env": [{"name": "A", "valueFrom": {"nodeRef": {}}}]}, "env[0].valueFrom.nodeRef"),
            ):
                self.refused({kind: [MAIN, {**MAIN, "name": "b", **fields}]}, f"spec.{kind}[1].{word}")

    def test_fields_of_affinity(self) -> None:
        """What a later release adds to a rule about nodes or pods is refused until it is listed, at every level."""
        preferred = REQUIRED.replace("required", "preferred")
        for rules in (
            {"nodeAffinity": {"addedTomorrow": 1}},
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"addedTomorrow": 1}]}}},
            {"nodeAffinity": {preferred: [{"weight": 1, "preference": {"addedTomorrow": 1}}]}},
            {"podAffinity": {"addedTomorrow": [{"topologyKey": "zone", "namespaces": ["kube-system"]}]}},
            {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "addedTomorrow": 1}]}},
            {"podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": {"addedTomorrow": 1}}]}},
        ):
            self.refused({"affinity": rules}, "addedTomorrow")

    def test_the_kubelet_calls_nobody_else(self) -> None:
        """Probes and hooks are sent from the node's network: 127.0.0.1 and the metadata service are in reach there."""
        for handler in (
            {"httpGet": {"host": "169.254.169.254", "port": 80}},
            {"tcpSocket": {"host": "::1", "port": 1}},
        ):
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                self.refused({"containers": [{**MAIN, probe: handler}]}, ".host")
            for hook in ("preStop", "postStart"):
                self.refused({"containers": [{**MAIN, "lifecycle": {hook: handler}}]}, ".host")

    def test_kinds_of_volumes(self) -> None:
        """Disks of others by ID, paths of the node, drivers, a repository that git runs hooks of."""
        for kind in (
            "awsElasticBlockStore",
            "azureDisk",
            "azureFile",
            "cephfs",
            "cinder",
            "csi",
            "fc",
            "flexVolume",
            "flocker",
            "gcePersistentDisk",
            "gitRepo",
            "glusterfs",
            "hostPath",
            "iscsi",
            "nfs",
            "photonPersistentDisk",
            "portworxVolume",
            "quobyte",
            "rbd",
            "scaleIO",
            "storageos",
            "vsphereVolume",
            "addedTomorrow",
        ):
            self.refused({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "x", kind: {}}]}, f"kind {kind}")

    def test_parts_of_volumes(self) -> None:
        """Also inside an allowed kind, where a claim could choose whose data it gets."""
        template: dict[str, Any] = {"spec": {"selector": {}}}
        for volume, word in (
            ({"projected": {"sources": [{"clusterTrustBundle": {"name": "x"}}]}}, "clusterTrustBundle"),
            ({"ephemeral": {"volumeClaimTemplate": template}}, "selector"),
            ({"ephemeral": {"volumeClaimTemplate": {"metadata": {"finalizers": ["a/b"]}}}}, "finalizers"),
            ({"emptyDir": {"addedTomorrow": 1}}, "addedTomorrow"),
        ):
            self.refused({"volumes": [{"name": "v", **volume}]}, word)

    def test_levels(self) -> None:
        """Counted are levels with something in them, of mappings and lists alike."""
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            for leaf, most in (("1", 31), ("[]", 31), ("{}", 31), ("[1]", 30)):
                for depth in (most - 1, most, most + 1):
                    inner = opening * (depth - 1) + leaf + closing * (depth - 1)
                    text = f'{{"containers":[{{}}],"topologySpreadConstraints":[{inner}]}}'.encode()
                    made = msgspec.structs.replace(shadow({}), spec=ShadowPodSpec(pod=msgspec.Raw(text)))
                    found = None
                    try:
                        restrict(made, Contract())
                    except ValueError as error:
                        found = str(error)
                    self.assertEqual(found is not None, depth >= most, (opening, leaf, depth, found))

    def test_depth(self) -> None:
        """A spec that could be decoded and not be encoded is refused before, however deep exactly it is."""
        for depth in (40, 500, *range(900, 1000, 7)):
            text = b'{"containers":[{}],"topologySpreadConstraints":%s}' % (b"[" * depth + b"]" * depth)
            made = msgspec.structs.replace(shadow(), spec=ShadowPodSpec(pod=msgspec.Raw(text)))
            with self.assertRaises(ValueError):
                restrict(made, Contract())

    def test_labels_by_which_controllers_act(self) -> None:
        """A label that services may select is not dropped in silence: the pod is refused."""
        for label in ("azure.workload.identity/use", "sidecar.istio.io/inject", "xliqo.io/a", "aadpodidbinding"):
            self.refused({}, label, labels={label: "true"})
        made = pod({}, granted(labels=["aadpodidbinding"]), labels={"aadpodidbinding": "own"})
        self.assertEqual(made["metadata"]["labels"]["aadpodidbinding"], "own")

    def test_wrong_shapes(self) -> None:
        """A value of the wrong type is a value error that names the field, never anything else."""
        template = "volumes[v].ephemeral.volumeClaimTemplate"
        shapes: tuple[tuple[dict[str, Any], str], ...] = (
            ({"containers": 3}, "containers"),
            ({"containers": [3]}, "containers[0]"),
            ({"containers": [{**MAIN, "env": {"A": "b"}}]}, "containers[0].env"),
            ({"volumes": [3]}, "volumes"),
            ({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": 3}}]}, template),
            ({"volumes": [{"name": "v", "image": "x"}]}, "volumes[v].image"),
            ({"tolerations": "all"}, "tolerations"),
            ({"terminationGracePeriodSeconds": [99999]}, "terminationGracePeriodSeconds"),
            ({"tolerations": [{"key": ["a"]}]}, "tolerations has a key that"),
            ({"tolerations": [{"key": []}]}, "tolerations has a key that"),
            (
                {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": []}}}}]},
                f"{template}.spec.storageClassName",
            ),
            ({"affinity": {"nodeAffinity": {REQUIRED: 3}}}, f"affinity.nodeAffinity.{REQUIRED}"),
        )
        for spec, field in shapes:
            self.refused(spec, f"spec.{field} is not a")


class WithoutTests(SynchronousTestCase):
    """What is dropped or overruled in silence: the pod runs without it."""

    def test_tolerations(self) -> None:
        """No taint of this cluster's is tolerated but those that every pod tolerates for a time."""
        ordinary = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}
        hostile = [{"operator": "Exists"}, {"key": "", "operator": "Exists"}, {"key": "gpu"}, ordinary]
        self.assertEqual(pod({"tolerations": hostile})["spec"]["tolerations"], [ordinary])
        self.assertEqual(
            pod({"tolerations": hostile}, granted(tolerations=["gpu"]))["spec"]["tolerations"],
            [{"key": "gpu"}, ordinary],
        )

    def test_never_on_the_control_plane(self) -> None:
        """Every term by which the pod may be placed excludes it, whatever is selected; unless it may be used."""
        role = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
        wanted = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [role]}]}}}
        for affinity in ({}, {"affinity": wanted}):
            terms = pod(affinity)["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
            (term,) = terms
            for name in ("control-plane", "master"):
                out = {"key": f"node-role.kubernetes.io/{name}", "operator": "DoesNotExist"}
                self.assertIn(out, term["matchExpressions"])
        free = restrict(shadow({"containers": [MAIN]}), Contract(), off_control_plane=False)
        self.assertNotIn("control-plane", json.dumps(forge.pod(free)["spec"]["affinity"]["nodeAffinity"]))

    def test_images_of_the_node(self) -> None:
        """Each image is pulled with the pod's own credentials, also one that is a volume."""
        image = {"name": "v", "image": {"reference": "of-others:1", "pullPolicy": "Never"}}
        never = {**MAIN, "imagePullPolicy": "Never"}
        made = pod({"containers": [MAIN], "initContainers": [never], "volumes": [image]})["spec"]
        found = [one["imagePullPolicy"] for one in (*made["containers"], *made["initContainers"])]
        self.assertEqual(found, ["Always", "Always"])
        self.assertEqual(made["volumes"][0]["image"]["pullPolicy"], "Always")
        as_asked = pod({"initContainers": [never], "volumes": [image]}, granted(image_pull_policy="any"))["spec"]
        self.assertEqual(as_asked["initContainers"][0]["imagePullPolicy"], "Never")
        self.assertEqual(as_asked["volumes"][0]["image"]["pullPolicy"], "Never")

    def test_annotations(self) -> None:
        """None that the network plugin, the autoscaler or the runtime acts on; keys without a domain are the user's."""
        hostile = {
            "k8s.v1.cni.cncf.io/networks": "kube-system/host",
            "iam.amazonaws.com/role": "admin",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            "io.katacontainers.config.hypervisor.path": "/bin/sh",
            "org.systemd.property.CollectMode": "'inactive-or-failed'",
            "liqo.io.example.com/x": "y",
        }
        kept = {"note": "n", "checksum/config": "1", "liqo.io/x": "y"}
        found = pod({}, annotations={**hostile, **kept})["metadata"]["annotations"]
        self.assertEqual({key for key in found if key != FORGED_ANNOTATION}, set(kept))
        contract = granted(annotations=["iam.amazonaws.com/", "k8s.v1.cni.cncf.io/network"])
        found = pod({}, contract, annotations=hostile)["metadata"]["annotations"]
        self.assertEqual(set(found), {"iam.amazonaws.com/role", FORGED_ANNOTATION})

    def test_labels_of_another_cluster(self) -> None:
        """What Kubernetes at home said of the pod's place there is not said here; the workload's own labels are."""
        labels = {"app": "web", "app.kubernetes.io/name": "web", "batch.kubernetes.io/job-name": "j"}
        place = {"topology.kubernetes.io/zone": "a", "node-restriction.kubernetes.io/x": "y"}
        found = pod({}, labels={**labels, **place})["metadata"]["labels"]
        self.assertEqual({key: found.get(key) for key in labels}, labels)
        self.assertFalse(found.keys() & place.keys())
        self.assertIn(
            "cnpg.io/cluster",
            pod({}, granted(labels=["cnpg.io/"]), labels={"cnpg.io/cluster": "c"})["metadata"]["labels"],
        )

    def test_the_class_of_an_ephemeral_claim(self) -> None:
        """The old annotation for the class, which Kubernetes reads before the field, does not get into a template."""
        metadata = {"annotations": {"volume.beta.kubernetes.io/storage-class": "", "note": "n"}}
        volume = {"ephemeral": {"volumeClaimTemplate": {"metadata": metadata, "spec": {"storageClassName": "fast"}}}}
        made = pod({"volumes": [{"name": "v", **volume}]})["spec"]["volumes"][0]
        self.assertEqual(made["ephemeral"]["volumeClaimTemplate"]["metadata"]["annotations"], {"note": "n"})
        with self.assertRaisesRegex(ValueError, "storage class fast"):
            pod({"volumes": [{"name": "v", **volume}]}, granted(storage_classes=["slow"]))
        with self.assertRaisesRegex(ValueError, "storage class fast"):
            pod(
                {"volumes": [{"name": "v", **volume}]},
                Contract.of(Settings(storage=StorageSettings(virtual_class="fast"))),
            )


class GrantedTests(SynchronousTestCase):
    """What settings grant, and what every pod may have."""

    def test_granted(self) -> None:
        """A runtime class and a kind of volume by name."""
        contract = granted(runtime_classes=["gvisor"], volumes=["nfs"])
        made = pod({"runtimeClassName": "gvisor", "volumes": [{"name": "v", "nfs": {"server": "a"}}]}, contract)["spec"]
        self.assertEqual((made["runtimeClassName"], made["volumes"][0]["nfs"]), ("gvisor", {"server": "a"}))

    def test_service_accounts(self) -> None:
        """A token is for pods that ask for one of a granted account; others are refused, and a mere name is dropped."""
        contract = granted(service_accounts=["default", "reader"])
        source = {"serviceAccountToken": {"path": "t", "audience": "vault"}}
        token = {"name": "t", "projected": {"sources": [source]}}
        ways: tuple[tuple[dict[str, Any], str], ...] = (
            ({}, "default"),
            ({"serviceAccountName": "reader"}, "reader"),
            ({"serviceAccount": "reader"}, "reader"),
        )
        for asked, name in ways:
            spec = {**asked, "automountServiceAccountToken": True, "volumes": [token]}
            made = pod(spec, contract)["spec"]
            self.assertEqual((made["serviceAccountName"], made["automountServiceAccountToken"]), (name, True))
            self.assertEqual(made["volumes"], [token])
            self.assertNotIn("serviceAccount", made)
            with self.assertRaises(ValueError) as caught:
                pod(spec)
            said = f"service account {name}, which is not granted here ([hosting] service-accounts"
            self.assertIn(said, str(caught.exception))
            plain = pod(asked, contract)["spec"]
            self.assertIs(plain["automountServiceAccountToken"], False)
            self.assertNotIn("serviceAccountName", plain)
        certified = {"name": "c", "projected": {"sources": [{"podCertificate": {"signerName": "x/y"}}]}}
        wanted: tuple[dict[str, Any], ...] = (
            {"automountServiceAccountToken": True, "serviceAccountName": "admin"},
            {"automountServiceAccountToken": True, "serviceAccountName": ["reader"]},
            {"automountServiceAccountToken": True, "volumes": [certified]},
            {"volumes": [token]},
            {"automountServiceAccountToken": 1, "volumes": [token]},
        )
        for spec in wanted:
            with self.assertRaises(ValueError, msg=repr(spec)):
                pod(spec, contract)

    def test_an_ordinary_pod(self) -> None:
        """A pod as the API server stores it arrives whole, but for the pull policy."""
        probe = {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10}
        container = {
            **MAIN,
            "command": ["sh"],
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
            "envFrom": [{"secretRef": {"name": "s"}}],
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
            "livenessProbe": probe,
            "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }
        volumes = [
            {"name": "v", "configMap": {"name": "c", "defaultMode": 420}},
            {"name": "k", "projected": {"sources": [{"secret": {"name": "t", "items": [{"key": "a", "path": "a"}]}}]}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "d"}},
        ]
        spec = {
            "containers": [container],
            "volumes": volumes,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {"fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "enableServiceLinks": True,
            "imagePullSecrets": [{"name": "r"}],
            "topologySpreadConstraints": [{"maxSkew": 1}],
        }
        made = pod(spec)["spec"]
        wanted = {**spec, "containers": [{**container, "imagePullPolicy": "Always"}]}
        self.assertEqual({key: made[key] for key in wanted}, wanted)

    @given(
        st.dictionaries(
            st.sampled_from(["containers", "volumes", "tolerations", "affinity", "hostUsers", "os"]),
            st.recursive(
                st.none() | st.booleans() | st.text(max_size=3),
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(st.sampled_from(["name", "env", "image", "emptyDir", "key"]), inner, max_size=3)
                ),
                max_leaves=8,
            ),
        )
    )
    def test_any_spec(self, spec: dict[str, Any]) -> None:
        """Whatever is written is restricted, and the same way twice, or a value error."""
        try:
            once = restrict(shadow(spec), Contract())
        except ValueError:
            return
        self.assertEqual(msgspec.json.decode(restrict(once, Contract()).spec.pod), msgspec.json.decode(once.spec.pod))
