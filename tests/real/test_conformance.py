"""What the specification says of virtual nodes and pods, sentence by sentence, on two real clusters.

``docs/conformance.md`` names the sentence that each step shows.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

from liqod.model.names import TAINT_KEY
from liqod.model.objects import quantity
from tests.real.counts import requests
from tests.real.manifests import pod
from tests.real.path import (
    NAMESPACE,
    condition,
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    offloaded,
    peer_of,
    virtual_node,
)
from tests.real.steps import LOOP, VIRTUAL, Steps
from tests.testbed import versions
from tests.testbed.cluster import Cluster

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# What the specification has removed or changed on the way, and what no two clusters have in common.
CHANGED = {
    "affinity", "nodeName", "nodeSelector", "preemptionPolicy", "priority", "priorityClassName", "schedulerName",
    "tolerations", "topologySpreadConstraints", "serviceAccount", "serviceAccountName", "hostNetwork", "hostPID",
    "hostIPC",
}  # fmt: skip


class NodeAndPodsTests(Steps):
    """One walk; the tests are its steps, in the order of their numbers."""

    # At the level of new tenants a lender adds limits and requests, as it adds a pull policy.
    configuration = 'quota = "soft"\n' + Steps.configuration

    def test_01_the_node_begins_empty(self) -> None:
        """The node is made without resources, and then gets those of the advertisement."""
        shown = '{.metadata.name} cpu={.status.allocatable.cpu}{"\\n"}'
        log = self.home.directory / "nodes.log"
        log.touch()
        argv = ["get", "nodes", "-w", "-o", f"jsonpath={shown}"]
        kubectl = str(versions.program("kubectl"))
        watching = self.home.spawn("nodes", [kubectl, f"--kubeconfig={self.home.kubeconfig}", *argv])
        self.addCleanup(watching.stop, 2.0)
        eventually("the watch began", lambda: self.home.node_name in log.read_text())
        self.peer_up()
        peer = peer_of(self.home, "milan")["metadata"]["name"]

        def offered() -> str:
            return str(self.home.get("adv", f"advertisement-{peer}")["spec"]["offer"]["resources"]["cpu"])

        def filled() -> bool:
            cpu = virtual_node(self.home)["status"]["allocatable"]["cpu"]
            self.assertEqual(cpu, offered())
            return f"liqo-milan cpu={cpu}" in log.read_text()

        eventually("it has what is offered, and the watch saw that", filled)
        seen = [line for line in log.read_text().splitlines() if line.startswith("liqo-milan")]
        self.assertEqual(seen[0], "liqo-milan cpu=")

    def test_02_the_taint_keeps_pods_away(self) -> None:
        """A pod that does not tolerate the taint is not scheduled there; in an enabled namespace it is given that."""
        self.home.apply(enabled_namespace())
        self.make("plain", namespace="default")
        self.make("web", labels={"app": "web"})
        self.runs("web")

        def unscheduled() -> dict[str, Any]:
            waiting = self.here("pod", "plain", "default")
            (said,) = (c for c in waiting["status"].get("conditions", ()) if c["type"] == "PodScheduled")
            self.assertEqual((said["status"], said["reason"]), ("False", "Unschedulable"))
            self.assertIn("taint", said["message"])
            return waiting

        waiting = eventually("the other one waits", unscheduled)
        self.assertNotIn("nodeName", waiting["spec"])
        given = {"key": TAINT_KEY, "operator": "Exists", "effect": "NoExecute"}
        self.assertIn(given, self.here("pod", "web")["spec"]["tolerations"])
        self.assertNotIn(given, waiting["spec"]["tolerations"])
        self.drop("pod/plain", namespace="default")

    def test_03_the_lender_schedules_and_runs(self) -> None:
        """The lender's scheduler chooses one of its own nodes, and that node's kubelet runs the containers."""
        there = self.there("pod", "web")
        self.assertEqual(there["spec"]["nodeName"], self.lender.node_name)
        self.assertEqual(condition(there, "PodScheduled"), "True")
        self.assertEqual(self.here("pod", "web")["spec"]["nodeName"], "liqo-milan")
        field = "--field-selector=involvedObject.name=web"

        def reported() -> tuple[dict[str, Any], dict[str, Any]]:
            events = self.lender.get("events", "-n", self.remote(), field)["items"]
            said = {event["reason"]: event for event in events}
            return said["Scheduled"], said["Started"]

        scheduler, kubelet = eventually("its scheduler and its kubelet tell", reported)
        self.assertEqual(scheduler.get("reportingComponent") or scheduler["source"]["component"], "default-scheduler")
        self.assertEqual(kubelet["source"], {"component": "kubelet", "host": self.lender.node_name})
        self.assertTrue(there["status"]["containerStatuses"][0]["containerID"].startswith("containerd://"))

    def test_04_by_one_post(self) -> None:
        """A pod reaches the lender by one POST, and becomes a pod there by one more."""
        before = requests(self.lender, "shadowpods", "pods")
        self.make("posted")
        self.runs("posted")
        after = requests(self.lender, "shadowpods", "pods")
        self.assertEqual(after["POST", "shadowpods"] - before["POST", "shadowpods"], 1)
        self.assertEqual(after["POST", "pods"] - before["POST", "pods"], 1)
        self.drop("pod/posted")

    def test_05_verbatim(self) -> None:
        """The specification travels as it is, without scheduling constraints and without the namespaces of hosts."""
        urgent = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
            "preemptionPolicy": "Never",
        }
        at_home = {"matchExpressions": [{"key": "liqo.io/type", "operator": "Exists"}]}
        required = {"nodeSelectorTerms": [at_home]}
        self.home.apply(urgent)
        # By a label that no node of the lender has, and with a key that each API server puts into the selector itself.
        insisting = {
            "topologyKey": "liqo.io/type",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            "matchLabelKeys": ["tier"],
        }
        body = pod(
            "whole",
            LOOP,
            namespace=NAMESPACE,
            nodeName="liqo-milan",
            schedulerName="somebody-else",
            priorityClassName="urgent",
            nodeSelector=VIRTUAL,
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            topologySpreadConstraints=[insisting],
            tolerations=[{"key": "mine", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
            hostNetwork=True,
            hostPID=True,
            hostIPC=True,
            automountServiceAccountToken=False,
            activeDeadlineSeconds=3000,
            dnsPolicy="None",
            dnsConfig={"nameservers": ["192.0.2.53"], "options": [{"name": "ndots", "value": "2"}]},
            hostAliases=[{"ip": "192.0.2.1", "hostnames": ["far"]}],
            securityContext={"runAsUser": 1000, "runAsNonRoot": True, "fsGroup": 2000},
            enableServiceLinks=False,
            terminationGracePeriodSeconds=3,
            volumes=[
                {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {
                    "name": "about",
                    "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]},
                },
            ],
            initContainers=[
                self._busy("first", ["true"]),
                {**self._busy("beside", LOOP), "restartPolicy": "Always"},
            ],
        )
        body["metadata"] |= {"labels": {"app": "whole", "tier": "back"}, "annotations": {"example.com/note": "n"}}
        body["spec"]["containers"][0] |= {
            "env": [
                {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
            "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
            "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
            "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}, {"name": "about", "mountPath": "/about"}],
            "workingDir": "/scratch",
        }
        self.home.apply(body)
        here = self.runs("whole")
        there = self.there("pod", "whole")
        for field, value in here["spec"].items():
            if field not in CHANGED:
                self.assertEqual(there["spec"].get(field), value, field)
        for field in ("hostNetwork", "hostPID", "hostIPC", "nodeSelector"):
            self.assertTrue(here["spec"].get(field), field)
            self.assertFalse(there["spec"].get(field), field)
        self.assertEqual(affinity(there), {})
        (spread,) = there["spec"]["topologySpreadConstraints"]
        self.assertEqual((spread["topologyKey"], spread["whenUnsatisfiable"]), ("liqo.io/type", "ScheduleAnyway"))
        self.assertEqual(there["spec"]["schedulerName"], "default-scheduler")
        # The lender's own class for what it runs for others, below its own work.
        self.assertEqual(here["spec"]["priorityClassName"], "urgent")
        self.assertEqual(there["spec"]["priorityClassName"], "liqod-tenant")
        self.assertEqual((there["spec"]["priority"], there["spec"]["preemptionPolicy"]), (-1, "Never"))
        self.assertIn("mine", [toleration.get("key") for toleration in there["spec"]["tolerations"]])
        self.assertNotIn(TAINT_KEY, [toleration.get("key") for toleration in there["spec"]["tolerations"]])
        self.assertEqual(there["metadata"]["labels"]["app"], "whole")
        self.assertEqual(there["metadata"]["annotations"]["example.com/note"], "n")
        said = self.home.kubectl(
            "exec", "-n", NAMESPACE, "whole", "-c", "main", "--", "sh", "-c", "echo $WHO; pwd; id -u"
        )
        self.assertEqual(said.split(), ["whole", "/scratch", "1000"])

    def _busy(self, name: str, command: list[str]) -> dict[str, Any]:
        (container,) = pod(name, command)["spec"]["containers"]
        return {**container, "name": name}

    def test_06_status_comes_back(self) -> None:
        """Phase, conditions and containers are the remote pod's; the host's address is the virtual node's.

        Gates of readiness are opened at home, by those who write the conditions of the home pod.
        """

        def same() -> tuple[dict[str, Any], dict[str, Any]]:
            here, there = self.here("pod", "whole")["status"], self.there("pod", "whole")["status"]
            for field in ("phase", "startTime", "podIP", "podIPs", "containerStatuses", "initContainerStatuses"):
                self.assertEqual(here[field], there[field], field)
            for kind in ("Initialized", "Ready", "ContainersReady"):
                self.assertEqual(condition({"status": here}, kind), condition({"status": there}, kind), kind)
            return here, there

        here, there = eventually("the status is the remote pod's", same)
        self.assertEqual(here["hostIP"], virtual_node(self.home)["status"]["addresses"][0]["address"])
        self.assertEqual((here["hostIP"], there["hostIP"]), (self.home.address, self.lender.address))
        self.drop("pod/whole")
        self.home.kubectl("delete", "priorityclass", "urgent")
        self.make("gated", readinessGates=[{"conditionType": "example.com/open"}])
        gated = partial(self.here, "pod", "gated")
        eventually("its containers are ready", lambda: condition(gated(), "ContainersReady") == "True")
        self.assertEqual(condition(gated(), "Ready"), "False")
        opened = {"status": {"conditions": [{"type": "example.com/open", "status": "True"}]}}
        self.home.kubectl(
            "patch",
            "pod",
            "gated",
            "-n",
            NAMESPACE,
            "--subresource=status",
            "--type=strategic",
            "-p",
            json.dumps(opened),
        )
        self.runs("gated")
        self.drop("pod/gated")

    def test_07_changes_follow(self) -> None:
        """What changes of a pod at home, changes at the lender, in the same running pod."""
        uid = self.there("pod", "web")["metadata"]["uid"]
        self.home.kubectl("label", "pod", "web", "-n", NAMESPACE, "tier=front", "app-")
        self.home.kubectl("annotate", "pod", "web", "-n", NAMESPACE, "example.com/note=new")

        def followed() -> bool:
            meta = self.there("pod", "web")["metadata"]
            self.assertEqual((meta["uid"], meta["labels"].get("tier")), (uid, "front"))
            self.assertNotIn("app", meta["labels"])
            return bool(meta["annotations"].get("example.com/note") == "new")

        eventually("the changes are there", followed)

    def test_08_anti_affinity_presets(self) -> None:
        """``propagate`` keeps the pod's own terms, ``soft`` prefers and ``hard`` requires to be spread."""
        term = {"labelSelector": {"matchLabels": {"never": "there"}}, "topologyKey": "kubernetes.io/hostname"}
        own = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        self.make("own", affinity=own, annotations={"liqo.io/anti-affinity-preset": "propagate"})
        self.make("none", affinity=own)
        for preset in ("soft", "hard"):
            for number in (1, 2):
                labels = {"set": preset, "number": str(number)}
                notes = {"liqo.io/anti-affinity-preset": preset, "liqo.io/anti-affinity-labels": "set"}
                self.make(f"{preset}-{number}", labels=labels, annotations=notes)
        for name in ("own", "none", "soft-1", "soft-2"):
            self.runs(name)
        self.assertEqual(affinity(self.there("pod", "own")), own)
        self.assertEqual(affinity(self.there("pod", "none")), {})
        by_set = {**term, "labelSelector": {"matchLabels": {"set": "soft"}}}
        preferred = [{"weight": 1, "podAffinityTerm": by_set}]
        self.assertEqual(
            affinity(self.there("pod", "soft-1")),
            {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        )

        def one_of_two() -> bool:
            pods = [self.there("pod", f"hard-{number}") for number in (1, 2)]
            placed = sorted(condition(one, "PodScheduled") for one in pods)
            by_hard = {**term, "labelSelector": {"matchLabels": {"set": "hard"}}}
            for one in pods:
                required = affinity(one)["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                self.assertEqual(required, [by_hard])
            return placed == ["False", "True"]

        eventually("the lender's one node takes one of the two", one_of_two)

        def phases() -> list[str]:
            return sorted(self.here("pod", f"hard-{number}")["status"]["phase"] for number in (1, 2))

        eventually("at home, one of the two waits", lambda: phases() == ["Pending", "Running"])

    def test_09_presets_are_for_new_pods(self) -> None:
        """An annotation that is added to a pod, or taken off, changes nothing of the pod that is there."""
        uids = {name: self.there("pod", name)["metadata"]["uid"] for name in ("none", "soft-1")}
        before = {name: self.there("pod", name)["spec"].get("affinity") for name in uids}
        annotate = partial(self.home.kubectl, "annotate", "pod", "-n", NAMESPACE)
        annotate("none", "liqo.io/anti-affinity-preset=hard", "example.com/after=1")
        annotate("soft-1", "liqo.io/anti-affinity-preset-", "example.com/after=1")

        def after() -> bool:
            return all("example.com/after" in self.there("pod", name)["metadata"]["annotations"] for name in uids)

        eventually("later changes are there", after)
        for name, uid in uids.items():
            body = self.there("pod", name)
            self.assertEqual((body["metadata"]["uid"], body["spec"].get("affinity")), (uid, before[name]))
        self.drop(*(f"pod/{name}" for name in ("own", "none", "soft-1", "soft-2", "hard-1", "hard-2")))

    def test_10_connection_lost(self) -> None:
        """While the clusters do not reach each other, the lender keeps the pod; afterwards restarts are added up."""
        first, remote = self.here("pod", "web"), self.remote()
        there = self.lender.address
        lines = ["table ip cut {"]
        for name, word in (("input", "saddr"), ("output", "daddr")):
            lines += [f"chain {name} {{", f"type filter hook {name} priority 0", f"ip {word} {there} drop", "}"]
        self.home.run(["nft", "-f", "-"], input="\n".join([*lines, "}", ""]))
        try:
            uid = self.lender.get("pod", "web", "-n", remote)["metadata"]["uid"]
            self.lender.kubectl("delete", "pod", "-n", remote, "web", "--grace-period=1")

            def again() -> bool:
                body = self.lender.get("pod", "web", "-n", remote)
                return bool(body["metadata"]["uid"] != uid and is_running(body))

            eventually("the lender runs it again by itself", again)
            self.assertEqual(self.lender.get("shadowpod", "web", "-n", remote)["metadata"]["name"], "web")
        finally:
            self.home.run(["nft", "delete table ip cut"])

        def counted() -> bool:
            body = self.here("pod", "web")
            self.assertEqual(body["metadata"]["uid"], first["metadata"]["uid"])
            return is_running(body) and body["status"]["containerStatuses"][0]["restartCount"] == 1

        eventually("home sees the same pod with one restart", counted, 120)

    def test_11_jobs_run_once(self) -> None:
        """A Job runs to its end at the lender; its pod is not run again when somebody deletes it there."""
        template = pod("once", ["sh", "-c", "echo done"], nodeSelector=VIRTUAL, restartPolicy="Never")
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "once", "namespace": NAMESPACE},
            "spec": {"backoffLimit": 0, "template": {"metadata": {}, "spec": template["spec"]}},
        }
        self.home.apply(job)
        eventually("the job is complete", lambda: condition(self.here("job", "once"), "Complete") == "True")
        (name,) = live_pods_of(self.home, "job-name=once")
        self.assertEqual(self.home.kubectl("logs", "-n", NAMESPACE, name), "done\n")
        ended = partial(self.there, "shadowpod", name)
        eventually("the end is recorded", lambda: ended().get("status", {}).get("phase") == "Succeeded")
        self.lender.kubectl("delete", "pod", "-n", self.remote(), name)
        self.stays("it does not run again", lambda: not live_pods_of(self.lender, "job-name=once"))
        self.assertEqual(self.here("pod", name)["status"]["phase"], "Succeeded")
        self.drop("job/once")

    def test_12_daemon_sets(self) -> None:
        """A DaemonSet's pod outside of offloaded namespaces waits as OffloadingBackOff, until affinity excludes it."""
        spec = pod("everywhere", LOOP, tolerations=[{"operator": "Exists"}])["spec"]
        body: dict[str, Any] = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "everywhere", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"app": "everywhere"}},
                "template": {"metadata": {"labels": {"app": "everywhere"}}, "spec": spec},
            },
        }
        self.home.apply(body)

        def on(node: str) -> list[dict[str, Any]]:
            pods = live_pods_of(self.home, "app=everywhere").values()
            return [one for one in pods if one["spec"].get("nodeName") == node]

        def backs_off() -> bool:
            (one,) = on("liqo-milan")
            status = one["status"]
            return (status.get("phase"), status.get("reason")) == ("Pending", "OffloadingBackOff")

        eventually("its pod on the virtual node waits", backs_off)
        self.assertEqual(live_pods_of(self.lender, "app=everywhere"), {})
        wanted = {"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        self.home.apply(body)
        eventually("no pod of it is on the virtual node", lambda: not on("liqo-milan"))
        eventually("one is on the real node", lambda: [one for one in on(self.home.node_name) if is_running(one)])
        self.drop("daemonset/everywhere", namespace="default")

    def test_13_many_nodes_make_one(self) -> None:
        """The node sums up what all nodes of the lender offer, and the scheduler prefers it where it has the most."""

        def cpus() -> int:
            return int(_milli(virtual_node(self.home)["status"]["allocatable"]["cpu"]))

        before = cpus()
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        taint = {"key": "made-up", "value": "yes", "effect": "NoSchedule"}
        more = {"metadata": {"name": "second"}, "spec": {"taints": [taint]}, "apiVersion": "v1", "kind": "Node"}
        self.lender.apply(more)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "made up"}

        def grown() -> bool:
            # Nobody else says that it lives.
            ready["lastHeartbeatTime"] = ready["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status = {"status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}}
            self.lender.kubectl("patch", "node", "second", "--subresource=status", "-p", json.dumps(status))
            self.assertEqual(cpus(), before + 64000)
            return True

        eventually("the virtual node has grown by the second node", grown)
        # Pods with an owner would be spread over the nodes, whatever these have.
        bodies = [pod(f"any-{number}", LOOP, namespace=NAMESPACE) for number in (1, 2)]
        for body in bodies:
            body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "400m", "memory": "128Mi"}}
        self.home.apply(*bodies)
        for number in (1, 2):
            self.assertEqual(self.runs(f"any-{number}")["spec"]["nodeName"], "liqo-milan")
        self.drop("pod/any-1", "pod/any-2")
        self.lender.kubectl("delete", "node", "second")
        eventually("the virtual node has shrunk again", lambda: cpus() < 64000)

    def test_14_one_application_in_both(self) -> None:
        """Controllers at home steer pods on both clusters alike: one Deployment has pods in both, and scales."""
        body = deployment("spread", 2)
        del body["spec"]["template"]["spec"]["nodeSelector"]
        scale = partial(self.home.kubectl, "scale", "-n", NAMESPACE, "deployment/spread")
        self.home.kubectl("cordon", self.home.node_name)
        try:
            self.home.apply(body)
            eventually("two pods run at the lender", lambda: offloaded(self.home, self.lender, "spread", 2))
        finally:
            self.home.kubectl("uncordon", self.home.node_name)
        self.home.kubectl("cordon", "liqo-milan")
        try:
            scale("--replicas=4")
            nodes = [self.home.node_name] * 2 + ["liqo-milan"] * 2

            def spread() -> bool:
                pods = [one for one in live_pods(self.home, "spread").values() if is_running(one)]
                self.assertEqual(sorted(one["spec"]["nodeName"] for one in pods), sorted(nodes))
                return True

            eventually("two pods run in each cluster", spread)
            self.assertEqual(len(live_pods(self.lender, "spread")), 2)
        finally:
            self.home.kubectl("uncordon", "liqo-milan")
        scale("--replicas=0")
        eventually("nothing is left at the lender", lambda: not live_pods(self.lender, "spread"))
        self.drop("deployment/spread")

    def test_15_home_api_server(self) -> None:
        """An offloaded pod speaks to the API server of its home, as its own service account, by a token in a secret."""
        self.home.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": NAMESPACE}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "book", "namespace": NAMESPACE}},
        )
        account = f"--serviceaccount={NAMESPACE}:reader"
        self.home.kubectl("create", "role", "-n", NAMESPACE, "read", "--verb=get", "--resource=configmaps")
        self.home.kubectl("create", "rolebinding", "-n", NAMESPACE, "read", "--role=read", account)
        self.make("speaker", serviceAccountName="reader")
        self.runs("speaker")
        place = self.within("speaker", "echo $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT").split()
        self.assertEqual(place, ["kubernetes.default", "6443"])
        hosts = [line.split() for line in self.within("speaker", "cat /etc/hosts").splitlines()]
        names = ["kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "kubernetes"]
        self.assertIn([self.home.address, *names], hosts)
        self.assertEqual(self.within("speaker", f"cat {ACCOUNT}/namespace"), NAMESPACE)
        authority = (self.home.directory / "ca.crt").read_text()
        self.assertEqual(self.within("speaker", f"cat {ACCOUNT}/ca.crt").strip(), authority.strip())
        token = self.within("speaker", f"cat {ACCOUNT}/token")
        secrets = self.lender.get("secrets", "-n", self.remote())["items"]
        held = [one["metadata"]["name"] for one in secrets if _b64(token) in (one.get("data") or {}).values()]
        self.assertEqual(len(held), 1)
        self.assertEqual(self.ask(token, "configmaps/book"), "200")
        self.assertEqual(self.ask(token, "secrets"), "403")
        who = f"system:serviceaccount:{NAMESPACE}:reader"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        said = [self._review(cluster, review) for cluster in (self.home, self.lender)]
        self.assertEqual([one.get("user", {}).get("username") for one in said], [who, None])
        self.drop("pod/speaker")
        eventually(
            "the secret goes with the pod", lambda: self.is_absent(self.lender, "secret", held[0], self.remote())
        )

    def within(self, name: str, script: str) -> str:
        """Run a script of the shell in an offloaded pod."""
        return self.home.kubectl("exec", "-n", NAMESPACE, name, "--", "sh", "-c", script)

    def ask(self, token: str, what: str) -> str:
        """Ask the home's API server from the lender's side, and return the status of the answer."""
        url = f"https://{self.home.address}:6443/api/v1/namespaces/{NAMESPACE}/{what}"
        argv = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", str(self.home.directory / "ca.crt")]
        return self.lender.run([*argv, "-H", f"Authorization: Bearer {token}", url])

    def _review(self, cluster: Cluster, review: dict[str, Any]) -> dict[str, Any]:
        said = cluster.kubectl("create", "-f", "-", "-o", "json", input=json.dumps(review))
        return dict(json.loads(said)["status"])

    def test_16_no_api_server(self) -> None:
        """Where the settings say so, pods get no tokens, and no secret holds any."""
        self.rome.stop()
        self.rome.config.write_text(f"{self.rome.config.read_text()}\n[kubelet]\nenable-apiserver-support = false\n")
        self.rome.start()
        self.make("mute", serviceAccountName="reader")
        self.runs("mute")
        self.assertEqual(self.within("mute", f"ls {ACCOUNT} 2>/dev/null || echo nothing"), "nothing\n")
        self.assertNotEqual(self.within("mute", "echo $KUBERNETES_SERVICE_HOST"), "kubernetes.default\n")
        self.assertNotIn(self.home.address, self.within("mute", "cat /etc/hosts"))
        names = [one["metadata"]["name"] for one in self.lender.get("secrets", "-n", self.remote())["items"]]
        self.assertEqual([name for name in names if name.startswith("mute")], [])
        self.drop("pod/mute")


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def live_pods_of(cluster: Cluster, selector: str) -> dict[str, dict[str, Any]]:
    """Return the pods that a selector finds in all namespaces, but for those being deleted, by name."""
    pods = cluster.get("pods", "-A", "-l", selector)["items"]
    return {one["metadata"]["name"]: one for one in pods if not one["metadata"].get("deletionTimestamp")}


def affinity(body: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's affinity, but for the rule that keeps guests off the control plane and virtual nodes."""
    found = dict(body["spec"].get("affinity") or {})
    away = [
        {"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]},
        {"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"},
        {"key": "node-role.kubernetes.io/master", "operator": "DoesNotExist"},
    ]
    terms = (
        found.get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [])
    )
    if [sorted(term["matchExpressions"], key=lambda one: one["key"]) for term in terms] == [away]:
        del found["nodeAffinity"]
    return found


def _milli(text: str) -> int:
    return int(quantity.parse(text) * 1000)
