"""The cases by which virtual kubelets are judged, on our virtual node: those of virtual-kubelet's own end-to-end suite.

Source: virtual-kubelet/virtual-kubelet, test/e2e: nine cases of pods, and one of the node. That suite's own provider
tells with events of its own that something referred to is missing; here, as on any node, the lender's kubelet tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.real import metrics
from tests.real.manifests import pod
from tests.real.path import NAMESPACE, enabled_namespace, eventually, virtual_node
from tests.real.steps import LOOP, VIRTUAL, Steps
from tests.testbed import versions
from tests.testbed.cluster import Cluster

NODE = "liqo-milan"


class ProviderTests(Steps):
    """The cases, in the order of their numbers; each has pods of its own."""

    configuration = ""

    def page(self, name: str) -> str:
        """Return a page of the node, by way of the API server's proxy."""
        return self.home.kubectl("get", f"--raw=/api/v1/nodes/{NODE}/proxy/{name}")

    def running(self) -> set[str]:
        """Return the UIDs of the pods that the node says it runs."""
        pods = json.loads(self.page("runningpods/"))["items"]
        return {one["metadata"]["uid"] for one in pods if one.get("status", {}).get("phase") == "Running"}

    def pod_of(self, name: str, containers: Sequence[str]) -> dict[str, Any]:
        """Make a pod with some containers, wait until it is ready, and return it."""
        body = pod(name, LOOP, namespace=NAMESPACE, nodeSelector={"kubernetes.io/hostname": NODE})
        (one,) = body["spec"]["containers"]
        body["spec"]["containers"] = [{**one, "name": container} for container in containers]
        self.home.apply(body)
        return self.runs(name)

    def referring(self, name: str, source: str, *, optional: bool) -> None:
        """Make a pod with an environment variable from a key of an object that is not there, and its file."""
        ref = {"name": "nowhere", "key": "k", "optional": optional}
        volume = {"secretName": "nowhere"} if source == "secret" else {"name": "nowhere"}
        from_ref = {"secretKeyRef" if source == "secret" else "configMapKeyRef": ref}
        for form in ("env", "volume"):
            body = pod(f"{name}-{form}", LOOP, namespace=NAMESPACE, nodeSelector=VIRTUAL)
            container = body["spec"]["containers"][0]
            if form == "env":
                container["env"] = [{"name": "MISSING", "valueFrom": from_ref}]
            else:
                kind = "secret" if source == "secret" else "configMap"
                body["spec"]["volumes"] = [{"name": "v", kind: {**volume, "optional": optional}}]
                container["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
            self.home.apply(body)

    def test_00_begin(self) -> None:
        """The node is there, and the lender has metrics."""
        self.metrics = metrics.start(self.lender)
        self.peer_up()
        self.home.apply(enabled_namespace())
        eventually(
            "metrics at the lender", lambda: "pods" in self.lender.kubectl("get", "--raw", f"/apis/{metrics.VERSION}")
        )

    def test_01_pods(self) -> None:
        """A pod becomes ready, and the node's pages of pods have it, and not the pod beside it that runs at home."""
        uid = self.pod_of("listed", ["one"])["metadata"]["uid"]
        self.home.apply(
            pod("at-home", LOOP, namespace=NAMESPACE, nodeSelector={"kubernetes.io/hostname": self.home.node_name})
        )
        at_home = self.runs("at-home")
        self.assertEqual(at_home["spec"]["nodeName"], self.home.node_name)

        def listed() -> bool:
            pods = json.loads(self.page("pods"))["items"]
            self.assertEqual({one["spec"]["nodeName"] for one in pods}, {NODE})
            self.assertNotIn(at_home["metadata"]["uid"], [one["metadata"]["uid"] for one in pods])
            return uid in [one["metadata"]["uid"] for one in pods]

        eventually("the page has it", listed)
        eventually("the node runs it", lambda: uid in self.running())
        self.assertNotIn(at_home["metadata"]["uid"], self.running())

    def test_02_stats_summary(self) -> None:
        """``/stats/summary`` has the node by its name, and the pod with each of its three containers."""
        uid = self.pod_of("measured", ["one", "two", "three"])["metadata"]["uid"]

        def whole() -> dict[str, Any] | None:
            summary = json.loads(self.page("stats/summary"))
            self.assertEqual(summary["node"]["nodeName"], NODE)
            found = [one for one in summary["pods"] if one["podRef"]["uid"] == uid]
            return found[0] if found and len(found[0]["containers"]) == 3 else None

        found = eventually("all containers are measured", whole, 90, 1.0)
        self.assertEqual({one["name"] for one in found["containers"]}, {"one", "two", "three"})
        self.assertGreater(found["memory"]["workingSetBytes"], 0)

    def test_03_metrics_resource(self) -> None:
        """``/metrics/resource`` has the pod's CPU once, and that of each of its containers."""

        def lines() -> dict[str, set[str]] | None:
            text = self.page("metrics/resource")
            found = {
                kind: {
                    re.sub(r".*container=\"(\w+)\".*", r"\1", line)
                    for line in text.splitlines()
                    if line.startswith(f"{kind}_cpu_usage_seconds_total{{") and 'pod="measured"' in line
                }
                for kind in ("pod", "container")
            }
            return found if len(found["container"]) == 3 else None

        found = eventually("all containers are measured", lines, 60, 1.0)
        self.assertEqual(found["container"], {"one", "two", "three"})
        self.assertEqual(len(found["pod"]), 1)

    def test_04_graceful_deletion(self) -> None:
        """A deleted pod is seen to be deleted with its time of grace, then it is gone from the node."""
        uid = self.pod_of("leaving", ["one"])["metadata"]["uid"]
        self.assertIn(uid, self.running())
        logs = [self.graces("leaving", side, ns) for side, ns in ((self.home, NAMESPACE), (self.lender, self.remote()))]
        words = ("delete", "pod", "-n", NAMESPACE, "leaving", "--grace-period=5", "--timeout=120s")
        self.home.kubectl(*words, timeout=130)
        eventually("it was seen to be deleted", lambda: "5" in logs[0].read_text().split())
        eventually("the node runs it no more", lambda: uid not in self.running())
        # The pod's own grace is another. Nobody shortens what was asked for, but the kubelet at the end.
        eventually("it ended at the lender", lambda: "5" in logs[1].read_text().split())
        self.assertLessEqual(set(logs[1].read_text().split()), {"5", "0"})
        eventually("it is gone at the lender", lambda: self.is_absent(self.lender, "pod", "leaving", self.remote()))

    def graces(self, name: str, cluster: Cluster, namespace: str) -> Path:
        """Return the file to which the seconds of grace of a pod are written whenever they may have changed."""
        shown = '{.metadata.deletionGracePeriodSeconds}{"\\n"}'
        kubectl = [str(versions.program("kubectl")), f"--kubeconfig={cluster.kubeconfig}"]
        log = cluster.directory / f"{name}.log"
        log.touch()
        watching = cluster.spawn(name, [*kubectl, "get", "pod", name, "-n", namespace, "-w", "-o", f"jsonpath={shown}"])
        self.addCleanup(watching.stop, 2.0)
        eventually("the watch began", lambda: log.read_text())
        return log

    def test_05_forced_deletion(self) -> None:
        """A pod that is deleted by force is gone at once at home, from the node, and soon at the lender."""
        uid = self.pod_of("forced", ["one"])["metadata"]["uid"]
        eventually("the node runs it", lambda: uid in self.running())
        self.home.kubectl("delete", "pod", "-n", NAMESPACE, "forced", "--grace-period=0", "--force")
        eventually("it is gone at home", lambda: self.is_absent(self.home, "pod", "forced", NAMESPACE))
        eventually("it is gone from the node", lambda: uid not in self.running())
        eventually("it is gone at the lender", lambda: self.is_absent(self.lender, "pod", "forced", self.remote()))

    def _optional(self, source: str) -> None:
        name = f"optional-{source}"
        self.referring(name, source, optional=True)
        for form in ("env", "volume"):
            uid = self.runs(f"{name}-{form}")["metadata"]["uid"]
            eventually("the node runs it", lambda uid=uid: uid in self.running())  # type: ignore[misc]
        said = self.home.kubectl("exec", "-n", NAMESPACE, f"{name}-env", "--", "sh", "-c", "echo ${MISSING-unset}")
        self.assertEqual(said, "unset\n")
        self.assertEqual(self.home.kubectl("exec", "-n", NAMESPACE, f"{name}-volume", "--", "ls", "/v"), "")

    def _mandatory(self, source: str, kind: str) -> None:
        name = f"mandatory-{source}"
        self.referring(name, source, optional=False)

        def reported(pod_name: str) -> bool:
            field = f"--field-selector=involvedObject.name={pod_name},type=Warning"
            events = self.home.get("events", "-n", NAMESPACE, field)["items"]
            return any(f'{kind} "nowhere" not found' in event["message"] for event in events)

        for form in ("env", "volume"):
            eventually(f"an event names the missing {source}", lambda form=form: reported(f"{name}-{form}"))  # type: ignore[misc]
            body = self.here("pod", f"{name}-{form}")
            self.assertEqual(body["status"]["phase"], "Pending")
            self.assertNotIn(body["metadata"]["uid"], self.running())
        self.drop(f"pod/{name}-env", f"pod/{name}-volume")

    def test_06_optional_secret(self) -> None:
        """A pod runs without an optional secret that does not exist, as environment and as volume."""
        self._optional("secret")

    def test_07_mandatory_secret(self) -> None:
        """A pod without a secret that it needs does not run, and an event says which one is missing."""
        self._mandatory("secret", "secret")

    def test_08_optional_config_map(self) -> None:
        """A pod runs without an optional config map that does not exist, as environment and as volume."""
        self._optional("configmap")

    def test_09_mandatory_config_map(self) -> None:
        """A pod without a config map that it needs does not run, and an event says which one is missing."""
        self._mandatory("configmap", "configmap")

    def test_10_deleted_node(self) -> None:
        """A node that is deleted is registered again; pods that it had are gone on both sides."""
        first = virtual_node(self.home)["metadata"]["uid"]
        self.drop("pod", "--all")
        self.home.kubectl("delete", "node", NODE, "--timeout=120s", timeout=130)
        eventually("another node of that name", lambda: virtual_node(self.home)["metadata"]["uid"] != first)
        uid = self.pod_of("after", ["one"])["metadata"]["uid"]
        eventually("the node runs it", lambda: uid in self.running())
