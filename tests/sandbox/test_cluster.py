"""The sandbox cluster on a fake clock: nodes that fall silent, pods that end, tokens that expire."""

from __future__ import annotations

from typing import Any

from kubesandbox.cluster import SandboxCluster
from kubesandbox.kinds.kinds import NODES, PODS, GroupResource, Json, Key
from kubesandbox.nodes.node import SandboxNode
from kubesandbox.nodes.script import EXIT_CODE, RUN_SECONDS
from kubesandbox.server import subresources
from kubesandbox.server.requests import DeleteOptions, system_caller
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

EPOCH = 1_800_000_000.0


class ClusterCase(SynchronousTestCase):
    """A cluster of two nodes whose time the test turns."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = SandboxCluster(self.clock, "test", [SandboxNode("one"), SandboxNode("two")], epoch=EPOCH)
        self.cluster.startService()
        self.addCleanup(self.cluster.stopService)
        self.run_for(1)

    def run_for(self, seconds: float, step: float = 0.5) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)
            for _ in range(20):
                self.clock.advance(0)

    def result(self, work: Any) -> Any:
        return self.successResultOf(Deferred.fromCoroutine(work))

    def create(self, resource: GroupResource, body: Json, namespace: str = "default") -> Json:
        kind = self.cluster.catalog.builtin(resource)
        created: Json = self.result(self.cluster.api.create(system_caller("test"), kind, namespace, body)).object
        return created

    def pod(self, name: str, *, node: str = "", annotations: dict[str, str] | None = None, **spec: Any) -> None:
        selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
        containers = [{"name": "c", "image": "x:1", **spec.pop("container", {})}]
        metadata = {"name": name, "annotations": annotations or {}}
        self.create(PODS, {"metadata": metadata, "spec": {"containers": containers, **selector, **spec}})

    def found(self, name: str, resource: GroupResource = PODS) -> Json:
        found = self.cluster.object(resource, name, "default" if resource == PODS else "")
        assert found is not None, f"{name} is not there"
        return found


class NodeTests(ClusterCase):
    """Nodes that fall silent and come back."""

    def ready(self, name: str) -> str:
        conditions = self.found(name, NODES)["status"]["conditions"]
        return next(str(each["status"]) for each in conditions if each["type"] == "Ready")

    def taints(self, name: str) -> set[tuple[str, str]]:
        return {(each["key"], each["effect"]) for each in self.found(name, NODES)["spec"].get("taints", [])}

    def test_silent_node_loses_its_pods(self) -> None:
        """A node that is silent is Unknown after the grace period, tainted, and its pods go in time."""
        tolerations = [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
            for key in ("not-ready", "unreachable")
        ]
        self.pod("p", node="one", tolerations=tolerations)
        self.run_for(2)
        self.assertEqual(self.found("p")["status"]["phase"], "Running")
        self.cluster.nodes.silence("one")
        self.run_for(45)
        self.assertEqual(self.ready("one"), "True")
        self.run_for(25)
        self.assertEqual(self.ready("one"), "Unknown")
        key = "node.kubernetes.io/unreachable"
        self.assertEqual(self.taints("one"), {(key, "NoSchedule"), (key, "NoExecute")})
        conditions = {each["type"]: each["status"] for each in self.found("p")["status"]["conditions"]}
        self.assertEqual(conditions["Ready"], "False")
        self.assertNotIn("deletionTimestamp", self.found("p")["metadata"])
        self.run_for(70)
        # Nobody confirms the deletion: the kubelet is away.
        self.assertIn("deletionTimestamp", self.found("p")["metadata"])
        self.assertEqual(self.ready("two"), "True")
        self.cluster.nodes.resume("one")
        self.run_for(12)
        self.assertEqual((self.ready("one"), self.taints("one")), ("True", set()))
        self.assertIsNone(self.cluster.object(PODS, "p", "default"))

    def test_short_silence_is_nothing(self) -> None:
        """A node whose lease is renewed again in time keeps its pods and its condition."""
        self.pod("p", node="one")
        self.run_for(2)
        self.cluster.nodes.silence("one")
        self.run_for(40)
        self.cluster.nodes.resume("one")
        self.run_for(30)
        self.assertEqual((self.ready("one"), self.taints("one")), ("True", set()))
        self.assertEqual(self.found("p")["status"]["phase"], "Running")

    def test_pods_of_a_removed_node_go(self) -> None:
        """Pods of a node that is gone are deleted after a while."""
        self.pod("p", node="one")
        self.run_for(2)
        self.cluster.nodes.remove("one")
        self.run_for(60)
        self.assertIsNone(self.cluster.object(PODS, "p", "default"))

    def test_idle_cluster_writes_only_leases(self) -> None:
        """Where nothing happens, nothing is written but the nodes' leases."""
        self.run_for(10)
        before = self.cluster.store.version
        self.run_for(30)
        self.assertEqual(self.cluster.store.version - before, 2 * 3)


class PodTests(ClusterCase):
    """Pods that end."""

    def test_resized_pod_takes_its_room(self) -> None:
        """What a pod grows to is not there for the next one, and what it gives up is."""
        self.pod("p", node="one", container={"resources": {"requests": {"cpu": "1"}}})
        self.run_for(2)
        kind = self.cluster.catalog.builtin(PODS)

        def resize(cpu: str) -> None:
            def resized(body: Json) -> Json:
                containers = [each | {"resources": {"requests": {"cpu": cpu}}} for each in body["spec"]["containers"]]
                return body | {"spec": body["spec"] | {"containers": containers}}

            self.result(self.cluster.api.change(system_caller("test"), kind, Key("default", "p"), resized, "resize"))

        resize("7")
        self.pod("q", node="one", container={"resources": {"requests": {"cpu": "2"}}})
        self.run_for(2)
        self.assertNotIn("nodeName", self.found("q")["spec"])
        resize("2")
        self.run_for(2)
        self.assertEqual(self.found("q")["spec"]["nodeName"], "one")

    def due(self) -> list[int]:
        """Return the minutes at which something is due between the fifth and the fifteenth."""
        return sorted(int(call.getTime() / 60) for call in self.clock.getDelayedCalls() if 300 < call.getTime() < 900)

    def test_lines_that_are_not_printed_any_more(self) -> None:
        """What a pod was to print later is dropped with the pod, and with the cluster."""
        for name, seconds in (("p", 490), ("q", 610)):
            self.pod(name, container={"command": ["sh", "-c", f"sleep {seconds}; echo late; sleep 900"]})
        self.run_for(2)
        self.assertEqual(self.due(), [8, 10])
        kind = self.cluster.catalog.builtin(PODS)
        self.result(self.cluster.api.delete(system_caller("test"), kind, Key("default", "p"), DeleteOptions()))
        self.run_for(2)
        self.assertEqual(self.due(), [10])
        self.cluster.stopService()
        self.assertEqual(self.due(), [])
        self.cluster.startService()

    def test_finished_pod(self) -> None:
        """A container that exits for good leaves its pod Succeeded or Failed, by its code."""
        command = ["sh", "-c", "echo hi; sleep 5; exit 3"]
        self.pod("bad", restartPolicy="Never", container={"command": command})
        self.pod("good", restartPolicy="OnFailure", annotations={RUN_SECONDS: "5"})
        self.run_for(3)
        self.assertEqual(self.found("bad")["status"]["phase"], "Running")
        self.run_for(4)
        bad, good = self.found("bad")["status"], self.found("good")["status"]
        self.assertEqual((bad["phase"], good["phase"]), ("Failed", "Succeeded"))
        self.assertEqual(bad["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3)

    def test_restarts_are_counted(self) -> None:
        """A container that always restarts is counted up and never ends its pod."""
        self.pod("p", annotations={RUN_SECONDS: "2", EXIT_CODE: "1"})
        self.run_for(9)
        status = self.found("p")["status"]
        self.assertEqual(status["phase"], "Running")
        self.assertGreaterEqual(status["containerStatuses"][0]["restartCount"], 2)

    def test_resources_are_counted(self) -> None:
        """What pods ask for together fits on the nodes; the rest waits until there is room."""
        for number in range(5):
            self.pod(f"p{number}", container={"resources": {"requests": {"cpu": "4"}}})
        self.run_for(3)
        phases = sorted(self.found(f"p{number}")["status"]["phase"] for number in range(5))
        self.assertEqual(phases, ["Pending"] + ["Running"] * 4)
        running = next(f"p{n}" for n in range(5) if self.found(f"p{n}")["status"]["phase"] == "Running")
        kind = self.cluster.catalog.builtin(PODS)
        options = subresources.delete_options({"gracePeriodSeconds": 0}, {})
        self.result(self.cluster.api.delete(system_caller("test"), kind, Key("default", running), options))
        self.run_for(3)
        phases = [stored.object["status"]["phase"] for stored in self.cluster.store.items(PODS, "default")]
        self.assertEqual(phases, ["Running"] * 4)

    def test_toleration_given_later(self) -> None:
        """A pod that waits is looked at again when it gets a toleration."""
        taint = {"key": "reserved", "value": "true", "effect": "NoSchedule"}
        self.cluster.nodes.add(SandboxNode("three", labels={"for": "few"}, taints=(taint,)))
        self.pod("p", nodeSelector={"for": "few"})
        self.run_for(2)
        self.assertNotIn("nodeName", self.found("p")["spec"])
        pod = self.found("p")
        tolerations = [*pod["spec"].get("tolerations", []), {"key": "reserved", "operator": "Exists"}]
        changed = pod | {"spec": pod["spec"] | {"tolerations": tolerations}}
        self.cluster.store.put(PODS, Key("default", "p"), changed)
        self.run_for(2)
        self.assertEqual(self.found("p")["spec"].get("nodeName"), "three")

    def test_extended_resources(self) -> None:
        """A resource that no node has keeps a pod waiting until a node brings it."""
        resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
        self.pod("p", container={"resources": resources})
        self.run_for(2)
        self.assertEqual(self.found("p")["status"]["phase"], "Pending")
        self.cluster.nodes.add(SandboxNode("three", extended={"example.com/gpu": "2"}))
        self.run_for(3)
        self.assertEqual(self.found("p")["spec"]["nodeName"], "three")


class TokenTests(ClusterCase):
    """Tokens of service accounts."""

    def test_token_expires(self) -> None:
        """A token is valid until its time is over, and not when it was altered."""
        secret = self.cluster.server._secret
        answer = self.result(
            subresources.request_token(
                self.cluster.api, secret, Key("default", "default"), {"spec": {"expirationSeconds": 600}}
            )
        )
        token = answer["status"]["token"]
        user = self.cluster.authenticator.user_of_token(token)
        assert user is not None
        self.assertEqual(user.name, "system:serviceaccount:default:default")
        self.assertIsNone(self.cluster.authenticator.user_of_token(token[:-4] + "AAAA"))
        self.clock.advance(599)
        self.assertIsNotNone(self.cluster.authenticator.user_of_token(token))
        self.clock.advance(2)
        self.assertIsNone(self.cluster.authenticator.user_of_token(token))
