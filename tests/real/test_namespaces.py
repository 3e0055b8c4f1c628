"""Which pods of a namespace go where, on two real clusters: label, NamespaceOffloading, webhook, and the way back."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from liqod.model.names import remote_namespace, tenant_namespace
from tests.real.pair import PairTests
from tests.real.path import (
    condition,
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
)
from tests.real.refusals import name_every_refusal
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed
from tests.testbed.versions import program

TAINT = "virtual-node.liqo.io/not-allowed"
EU = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}]}
NODE = "liqo-milan"


def anywhere(name: str, replicas: int, namespace: str) -> dict[str, Any]:
    """Return a Deployment whose pods run wherever the scheduler puts them."""
    body = deployment(name, replicas, namespace=namespace)
    del body["spec"]["template"]["spec"]["nodeSelector"]
    return body


def record(namespace: str, name: str = "offloading", **spec: Any) -> dict[str, Any]:
    """Return a NamespaceOffloading."""
    return {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "NamespaceOffloading",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def tolerates(pod: dict[str, Any]) -> bool:
    """Tell whether a pod tolerates virtual nodes."""
    return any(one.get("key") == TAINT for one in pod["spec"].get("tolerations", []))


def exists(cluster: Cluster, namespace: str) -> bool:
    """Tell whether a namespace is there."""
    try:
        cluster.kubectl("get", "namespace", namespace)
    except CommandFailed as error:
        if "NotFound" not in error.output:
            raise
        return False
    return True


class NamespaceTests(PairTests):
    """One pair of clusters, and one namespace for each way to offload; the tests are steps."""

    configuration = 'namespace-names = ["market"]\n'

    def remote(self, namespace: str) -> str:
        """Return the default name of a namespace of rome's at milan."""
        return remote_namespace(namespace, peer_of(self.milan.cluster, "rome")["metadata"]["name"])

    def offloading(self, namespace: str) -> dict[str, Any]:
        return dict(self.rome.cluster.get("nsof", "offloading", "-n", namespace))

    def phase_is(self, namespace: str, phase: str, words: str = "") -> None:
        """Wait for a NamespaceOffloading to be looked at, and found so."""

        def reported() -> bool:
            found = self.offloading(namespace)
            status = found.get("status", {})
            return bool(
                status.get("observedGeneration") == found["metadata"]["generation"]
                and status.get("offloadingPhase") == phase
                and words in status.get("message", "")
            )

        eventually(f"{namespace} is {phase}", reported)

    def run_here(self, app: str, count: int) -> dict[str, dict[str, Any]]:
        """Wait until so many pods run on rome's own node, and return them."""

        def here() -> dict[str, dict[str, Any]] | None:
            pods = live_pods(self.rome.cluster, app)
            own = self.rome.cluster.node_name
            right = len(pods) == count and all(
                is_running(pod) and pod["spec"].get("nodeName") == own for pod in pods.values()
            )
            return pods if right else None

        found: dict[str, dict[str, Any]] = eventually(f"{count} of {app} run at home", here)
        return found

    def run_there(self, app: str, count: int) -> dict[str, dict[str, Any]]:
        """Wait until so many pods run at milan, and return the home ones."""
        found: dict[str, dict[str, Any]] = eventually(
            f"{count} of {app} run at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, app, count)
        )
        return found

    def refused(self, body: dict[str, Any]) -> str:
        """Return the API server's words against an object."""
        try:
            self.rome.cluster.apply(body)
        except CommandFailed as error:
            return error.output
        return ""

    def test_01_peering(self) -> None:
        """Two daemons with accounts of their own peer, and the virtual node is Ready."""
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))

    def test_02_label_alone(self) -> None:
        """A namespace with the label alone: the toleration, no affinity, the default name; a pod runs at milan."""
        self.rome.cluster.apply(enabled_namespace("plain"), deployment("plain", 1, namespace="plain"))
        (pod,) = self.run_there("plain", 1).values()
        self.assertTrue(tolerates(pod))
        self.assertNotIn("affinity", pod["spec"])
        self.assertTrue(exists(self.milan.cluster, self.remote("plain")))
        said = json.loads(self.rome.liqodctl("explain", pod["metadata"]["name"], "-n", "plain", "-o", "json"))
        self.assertEqual(said["answer"]["state"], "offloaded")
        self.assertIn(self.remote("plain"), said["answer"]["why"])

    def test_03_remote(self) -> None:
        """With Remote pods go to virtual nodes although the node here has room; what users ask of nodes stays."""
        self.rome.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "away"}})
        self.rome.liqodctl("offload", "namespace", "away", "--placement=Remote", "--wait", timeout=200)
        body = anywhere("away", 2, "away")
        mine = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [mine]}]}
        node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        body["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": node_affinity}
        self.rome.cluster.apply(body)
        for pod in self.run_there("away", 2).values():
            self.assertTrue(tolerates(pod))
            affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            virtual = {"key": "liqo.io/type", "operator": "In", "values": ["virtual-node"]}
            self.assertEqual(affinity, {"nodeSelectorTerms": [{"matchExpressions": [mine, virtual]}]})
        self.phase_is("away", "Ready", "offloaded to 1")
        self.assertEqual(self.offloading("away")["status"]["remoteNamespaceName"], self.remote("away"))

    def test_04_local(self) -> None:
        """With Local pods get no toleration and run here; nothing is made at milan."""
        self.rome.cluster.apply(enabled_namespace("home"), record("home", podOffloadingStrategy="Local"))
        self.phase_is("home", "NoClusterSelected", "Local")
        self.rome.cluster.apply(anywhere("home", 1, "home"))
        (pod,) = self.run_here("home", 1).values()
        self.assertFalse(tolerates(pod))
        self.assertFalse(exists(self.milan.cluster, self.remote("home")))

    def test_05_selector(self) -> None:
        """A selector goes by the labels of the virtual node: pods come with the label, and leave when it goes."""
        self.rome.cluster.apply(enabled_namespace("picky"), record("picky", clusterSelector=EU))
        self.phase_is("picky", "NoClusterSelected")
        self.rome.cluster.apply(deployment("picky", 1, namespace="picky"))

        def waits() -> bool:
            pods = list(live_pods(self.rome.cluster, "picky").values())
            return len(pods) == 1 and condition(pods[0], "PodScheduled") == "False" and tolerates(pods[0])

        eventually("no node will do", waits)
        self.rome.cluster.kubectl("label", "node", NODE, "region=eu")
        before = self.run_there("picky", 1)
        self.phase_is("picky", "Ready", "offloaded to 1")
        self.rome.cluster.kubectl("label", "node", NODE, "region-")
        eventually("the namespace is given back", lambda: not exists(self.milan.cluster, self.remote("picky")))
        eventually("its owner made another", lambda: live_pods(self.rome.cluster, "picky").keys() - before.keys())
        eventually("no node will do", waits)
        self.rome.cluster.kubectl("delete", "namespace", "picky", "--timeout=120s", timeout=130)

    def test_06_what_is_refused(self) -> None:
        """The API server itself refuses what makes no sense, also while no daemon runs, and says what to do."""
        self.rome.cluster.apply(enabled_namespace("odd"))
        empty: dict[str, Any] = {"nodeSelectorTerms": [{"matchExpressions": []}]}
        for body, words in (
            (record("odd", name="other"), 'its name is "offloading"'),
            (record("odd", namespaceMappingStrategy="SelectedName"), "remoteNamespaceName says the name"),
            (record("odd", remoteNamespaceName="x"), "SelectedName only"),
            (record("odd", podOffloadingStrategy="Elsewhere"), "LocalAndRemote"),
            (record("odd", clusterSelector=empty), "selects nothing"),
        ):
            self.assertIn(words, self.refused(body))
        self.assertEqual(self.refused(record("odd", namespaceMappingStrategy="EnforceSameName")), "")
        self.assertIn("cannot be changed", self.refused(record("odd", namespaceMappingStrategy="DefaultName")))
        other = record("odd", namespaceMappingStrategy="SelectedName", remoteNamespaceName="market")
        self.assertIn("cannot be changed", self.refused(other))
        (table,) = self.rome.cluster.get("nnt")["items"]
        table["spec"]["clusterID"] = "somebody-else"
        self.assertIn("the name of its peer", self.refused(table))
        (node,) = self.rome.cluster.get("vn", "-A")["items"]
        node["spec"]["clusterID"] = "somebody-else"
        self.assertIn("stands for one peer", self.refused(node))
        changed = record("odd", namespaceMappingStrategy="EnforceSameName", podOffloadingStrategy="Remote")
        self.assertEqual(self.refused(changed), "")

    def test_07_names(self) -> None:
        """A name of one's own choice is given where the lender allows it, and refused with its words elsewhere."""
        self.rome.cluster.apply(deployment("odd", 1, namespace="odd"))
        self.phase_is("odd", "AllFailed", "NameNotYours")
        self.assertFalse(exists(self.milan.cluster, "odd"))
        self.rome.cluster.apply(
            enabled_namespace("bazaar"),
            record("bazaar", namespaceMappingStrategy="SelectedName", remoteNamespaceName="market"),
            deployment("bazaar", 1, namespace="bazaar"),
        )
        self.run_there("bazaar", 1)
        (pod,) = live_pods(self.milan.cluster, "bazaar").values()
        self.assertEqual(pod["metadata"]["namespace"], "market")
        self.rome.cluster.kubectl("delete", "namespace", "bazaar", "odd", "--timeout=120s", timeout=130)
        eventually("market is given back", lambda: not exists(self.milan.cluster, "market"))

    def test_08_foreign_namespace(self) -> None:
        """A namespace of the lender's own with the wanted name is never used, changed or removed."""
        remote = self.remote("trap")
        own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": remote, "labels": {"mine": "yes"}}}
        self.milan.cluster.apply(own)
        before = self.milan.cluster.get("namespace", remote)["metadata"]["resourceVersion"]
        self.rome.cluster.apply(enabled_namespace("trap"), record("trap"), deployment("trap", 1, namespace="trap"))
        self.phase_is("trap", "AllFailed", "NamespaceTaken")
        (pod,) = eventually("its pod", lambda: live_pods(self.rome.cluster, "trap")).values()
        eventually(
            "the pod says so",
            lambda: (
                "NamespaceTaken" in self.rome.liqodctl("explain", pod["metadata"]["name"], "-n", "trap", "-o", "json")
            ),
        )
        self.rome.cluster.kubectl("delete", "namespace", "trap", "--timeout=120s", timeout=130)

        def forgotten() -> bool:
            (table,) = self.rome.cluster.get("nnt")["items"]
            return "trap" not in table["spec"].get("nattingTable", {})

        eventually("the translation is forgotten", forgotten)
        self.assertEqual(self.milan.cluster.get("namespace", remote)["metadata"]["resourceVersion"], before)

    def test_09_the_way_home(self) -> None:
        """unoffload evicts the pods, honouring a disruption budget; new ones run here, and what was there goes."""
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "all", "namespace": "away"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "away"}}},
        }
        before = self.run_there("away", 2)
        self.rome.cluster.apply(budget)
        eventually(
            "the budget counts two",
            lambda: self.rome.cluster.get("pdb", "all", "-n", "away").get("status", {}).get("currentHealthy") == 2,
        )
        self.rome.cluster.kubectl("label", "namespace", "away", "liqo.io/enabled-")
        self.phase_is("away", "NotEnabled")
        status = partial(self.offloading, "away")
        eventually("it drains", lambda: "Draining" in str(status()["status"]["remoteNamespacesConditions"]))
        self.assertEqual(live_pods(self.rome.cluster, "away").keys(), before.keys())
        self.rome.cluster.kubectl("delete", "pdb", "all", "-n", "away")
        self.rome.liqodctl("unoffload", "namespace", "away", "--wait", timeout=200)
        self.assertFalse(self.run_here("away", 2).keys() & before.keys())
        eventually("nothing is left there", lambda: not exists(self.milan.cluster, self.remote("away")))
        self.assertTrue(exists(self.milan.cluster, self.remote("plain")))
        self.run_there("plain", 1)

    def test_10_enabled_later(self) -> None:
        """Pods that were made before their namespace was enabled are offloaded once it is."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}}
        self.rome.cluster.apply(space, deployment("late", 1, namespace="late"))

        def waits() -> bool:
            pods = list(live_pods(self.rome.cluster, "late").values())
            return len(pods) == 1 and condition(pods[0], "PodScheduled") == "False"

        eventually("no node will do", waits)
        before = live_pods(self.rome.cluster, "late").keys()
        self.rome.liqodctl("offload", "namespace", "late")
        self.assertEqual(self.run_there("late", 1).keys(), before)

    def test_11_webhook_down(self) -> None:
        """While no daemon runs pods are made all the same: with the label alone they are offloadable; where a
        NamespaceOffloading says more they are not, and afterwards an event says what is wrong.
        """
        self.rome.cluster.apply(enabled_namespace("strict"), record("strict", podOffloadingStrategy="Remote"))
        self.phase_is("strict", "Ready")
        self.rome.stop()
        try:
            self.rome.cluster.kubectl("scale", "-n", "plain", "deployment/plain", "--replicas=2")
            self.rome.cluster.apply(anywhere("strict", 1, "strict"))
            (strict,) = self.run_here("strict", 1).values()
            self.assertFalse(tolerates(strict))
            eventually("a pod was made", lambda: len(live_pods(self.rome.cluster, "plain")) == 2)
            self.assertTrue(all(tolerates(pod) for pod in live_pods(self.rome.cluster, "plain").values()))
        finally:
            self.rome.start()
        self.run_there("plain", 2)
        name = strict["metadata"]["name"]
        eventually(
            "the pod that runs here has an event that says so",
            lambda: (
                "OffloadingNotAdmitted"
                in self.rome.cluster.kubectl(
                    "get", "events", "-n", "strict", f"--field-selector=involvedObject.name={name}"
                )
            ),
        )
        said = json.loads(self.rome.liqodctl("explain", name, "-n", "strict", "-o", "json"))
        self.assertIn("does not tolerate", said["answer"]["why"])
        self.rome.cluster.kubectl("delete", "pod", name, "-n", "strict")
        self.run_there("strict", 1)

    def test_12_a_stolen_account(self) -> None:
        """A thief who has the daemon's account writes to the namespaces of tenants and of liqod, and nowhere else."""
        name_every_refusal(self.rome.cluster)
        container = {"name": "main", "image": "localhost/busybox:1"}
        tenants = self.rome.cluster.kubectl("get", "namespace", "-l", "liqo.io/remote-cluster-id", "-o", "name").split()
        tokens = [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": "loot",
                    "namespace": where,
                    "annotations": {"kubernetes.io/service-account.name": "default"},
                },
                "type": "kubernetes.io/service-account-token",
            }
            for where in ("liqo-system", tenants[0].removeprefix("namespace/"))
        ]
        secret: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "loot", "namespace": "kube-system"},
        }
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "loot", "namespace": "kube-system"},
            "spec": {"containers": [container]},
        }
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "loot"}}
        hook = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "loot"},
            "webhooks": [],
        }
        privileged = {
            "liqo.io/remote-cluster-id": "me",
            "pod-security.kubernetes.io/enforce": "privileged",
            "pod-security.kubernetes.io/enforce-version": "latest",
        }
        unsafe = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "loot", "labels": privileged}}
        beside = tenant_namespace(peer_of(self.rome.cluster, "milan")["metadata"]["name"])
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "liqod-borrower", "namespace": "liqo-system"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "liqod-borrower"},
            "subjects": [{"kind": "ServiceAccount", "name": "liqod", "namespace": "liqo-system"}],
        }
        volume: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "loot"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/etc"},
            },
        }
        default = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "loot", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "loot.example",
        }
        for body, words in (
            *((token, "no tokens made for service accounts") for token in tokens),
            (unsafe, "of the Pod Security level baseline"),
            ({**pod, "metadata": {"name": "loot", "namespace": beside}}, "pods in namespaces that were granted"),
            (binding, "gives rights in namespaces of its tenants only"),
            (volume, "node-paths"),
            (secret, "in its own namespace and in those of its tenants only"),
            (pod, "pods in namespaces of its tenants only"),
            (space, "namespaces for its tenants only"),
            (hook, "one webhook configuration"),
            (default, "and no default one"),
        ):
            self.assertIn(words, self._as_daemon("create", "-f", "-", body=body))
        labels = '{"metadata": {"labels": {"liqo.io/remote-cluster-id": "me"}}}'
        self.assertIn("changes and removes", self._as_daemon("patch", "namespace", "kube-system", "-p", labels))
        self.assertIn("changes and removes", self._as_daemon("delete", "namespace", "plain"))
        real = self.rome.cluster.get("nodes", "-l", "liqo.io/type!=virtual-node")["items"][0]["metadata"]["name"]
        for change in ({"metadata": {"labels": {"liqo.io/type": "virtual-node"}}}, {"spec": {"unschedulable": True}}):
            self.assertIn("nothing else", self._as_daemon("patch", "node", real, "-p", json.dumps(change)))
        self.assertIn("virtual nodes only", self._as_daemon("delete", "node", real))
        virtual = self.rome.cluster.get("nodes", "-l", "liqo.io/type=virtual-node")["items"][0]["metadata"]["name"]
        untainted = self._as_daemon("patch", "node", virtual, "--type=merge", "-p", '{"spec": {"taints": []}}')
        self.assertIn("have the taint", untainted)
        widened = '[{"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {}}]'
        hooked = self._as_daemon("patch", "mutatingwebhookconfiguration", "liqod", "--type=json", "-p", widened)
        self.assertIn("in offloaded namespaces only", hooked)
        (name, *_) = live_pods(self.rome.cluster, "plain")
        image = '{"spec": {"containers": [{"name": "main", "image": "localhost/evil:1"}]}}'
        self.assertIn("changes no images", self._as_daemon("patch", "pod", name, "-n", "plain", "-p", image))
        label = '{"metadata": {"labels": {"loot": "x"}}}'
        self.assertIn("changes no labels", self._as_daemon("patch", "pod", name, "-n", "plain", "-p", label))
        debugged = self._as_daemon("debug", name, "-n", "plain", "--image=localhost/busybox:1", "--", "true")
        self.assertIn("adds containers to running pods", debugged)
        minted = self._as_daemon("create", "token", "default", "-n", "kube-system")
        self.assertIn("for tokens bound to pods", minted)
        own = ("create", "token", "liqod", "-n", "liqo-system", "--bound-object-kind=Secret")
        mine = "--bound-object-name=liqod-account"
        for asked, why in (
            (own[:5], "end with a Secret"),
            ((*own, "--bound-object-name=liqod-identity"), "end with a Secret"),
            ((*own, mine, "--duration=8760h"), "hold for 604800 seconds at most"),
            (("create", "token", "default", *own[3:], mine), "for its own, only"),
        ):
            self.assertIn(why, self._as_daemon(*asked))
        renewed = [str(program("kubectl")), f"--kubeconfig={self.rome.kubeconfig}", *own, mine, "--duration=1h"]
        self.rome.cluster.run(renewed)
        # What it may do is what all the steps before were done with.
        self.run_there("plain", 2)

    def test_13_runtime_class(self) -> None:
        """A pod with the RuntimeClass runs at milan, which never learns of it; where it may not, it says why."""
        self.rome.cluster.apply(enabled_namespace("single"), enabled_namespace("stay"))
        self.rome.cluster.apply(record("stay", podOffloadingStrategy="Local"))
        self.phase_is("stay", "NoClusterSelected", "Local")
        for namespace in ("single", "stay", "default"):
            body = anywhere(f"asks-{namespace}", 1, namespace)
            body["spec"]["template"]["spec"]["runtimeClassName"] = "liqo"
            self.rome.cluster.apply(body)
        (pod,) = self.run_there("asks-single", 1).values()
        self.assertEqual(pod["spec"]["nodeSelector"], {"liqo.io/type": "virtual-node"})
        self.assertNotIn("overhead", pod["spec"])
        (copy,) = live_pods(self.milan.cluster, "asks-single").values()
        self.assertFalse({"runtimeClassName", "nodeSelector"} & copy["spec"].keys())

        def waits(namespace: str) -> str:
            (found,) = live_pods(self.rome.cluster, f"asks-{namespace}").values()
            status = found["status"]
            said = [one["message"] for one in status.get("conditions", ()) if one["type"] == "liqo.io/Offloaded"]
            return str(*said) if (status.get("reason"), status["phase"]) == ("OffloadingBackOff", "Pending") else ""

        for namespace, why in (("stay", "podOffloadingStrategy is Local"), ("default", "liqo.io/enabled=true")):
            words = eventually(f"the pod in {namespace} says why", partial(waits, namespace))
            self.assertIn(why, words)
            self.assertIn("runtimeClassName liqo asks for virtual nodes", words)
            self.rome.cluster.kubectl("delete", "deployment", f"asks-{namespace}", "-n", namespace)
        metadata = {"name": "both", "namespace": "single"}
        containers = [{"name": "main", "image": "localhost/busybox:1"}]
        spec = {"containers": containers, "runtimeClassName": "liqo", "nodeSelector": {"liqo.io/type": "real"}}
        refused = self.refused({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        self.assertIn("conflict", refused)

    def test_14_offloading_patch(self) -> None:
        """A patch without a node leaves pods waiting, which run once it is mended; the definition refuses nonsense."""
        (record,) = self.rome.cluster.get("vn", "-A")["items"]
        there = ("vn", record["metadata"]["name"], "-n", record["metadata"]["namespace"])

        def patch(value: Any) -> str:
            changed = json.dumps({"spec": {"offloadingPatch": value}})
            try:
                return str(self.rome.cluster.kubectl("patch", *there, "--type=merge", "-p", changed))
            except CommandFailed as error:
                return error.output

        term = {"matchExpressions": [{"key": "disk", "operator": "In"}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        for value, words in (
            ({"tolerations": [{"key": TAINT, "operator": "Exists"}]}, "do not run on virtual nodes of the lender"),
            ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "Exists has no value"),
            ({"tolerations": [{"value": "b"}]}, "tolerates every taint"),
            ({"tolerations": [{"key": "a", "value": "b", "tolerationSeconds": 5}]}, "needs the effect NoExecute"),
            ({"affinity": {"nodeAffinity": required}}, "In and NotIn need values"),
        ):
            self.assertIn(words, patch(value))
        before = {name: pod["metadata"]["uid"] for name, pod in live_pods(self.milan.cluster, "plain").items()}
        patch({"nodeSelector": {"disk": "none"}})
        self.rome.cluster.apply(deployment("picked", 1, namespace="single"))

        def waits() -> dict[str, Any] | None:
            found = list(live_pods(self.rome.cluster, "picked").values())
            scheduled = [
                one for pod in found for one in pod["status"].get("conditions", ()) if one["status"] == "False"
            ]
            return found[0] if any("affinity/selector" in one.get("message", "") for one in scheduled) else None

        waiting = eventually("the words of milan's scheduler are at the pod", waits)
        patch({"nodeSelector": {"disk": None, "kubernetes.io/hostname": self.milan.cluster.node_name}})
        (pod,) = self.run_there("picked", 1).values()
        self.assertEqual(pod["metadata"]["uid"], waiting["metadata"]["uid"])
        (copy,) = live_pods(self.milan.cluster, "picked").values()
        self.assertEqual(copy["spec"]["nodeSelector"], {"kubernetes.io/hostname": self.milan.cluster.node_name})
        after = {name: pod["metadata"]["uid"] for name, pod in live_pods(self.milan.cluster, "plain").items()}
        self.assertEqual(after, before)
        patch(None)

    def _as_daemon(self, *args: str, body: dict[str, Any] | None = None) -> str:
        """Return what the API server says against a request with the daemon's account; fails when it takes it."""
        command = [str(program("kubectl")), f"--kubeconfig={self.rome.kubeconfig}", *args]
        try:
            done = self.rome.cluster.run(command, input=None if body is None else json.dumps(body))
        except CommandFailed as error:
            return error.output
        raise AssertionError(f"{' '.join(args)} was not refused: {done}")
