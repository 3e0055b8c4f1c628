"""What the cluster does by itself: namespaces, owners, scheduling, replicas, slices, taints."""

from __future__ import annotations

from functools import partial

from tests.contract.base import MERGE, Body, ContractCase, pod_spec
from tests.contract.cases_objects import deployment


class NamespaceCase(ContractCase):
    """Namespaces from beginning to end."""

    async def test_new_namespace(self) -> None:
        """A namespace is active, labelled by its name, and gets an account and the cluster's CA."""
        found = await self.call("GET", self.space)
        self.assertEqual(found["status"]["phase"], "Active")
        self.assertEqual(found["metadata"]["labels"]["kubernetes.io/metadata.name"], self.namespace)
        self.assertEqual(found["spec"]["finalizers"], ["kubernetes"])
        root = await self.eventually(lambda: self.found(f"{self.space}/configmaps/kube-root-ca.crt"))
        self.assertIn("BEGIN CERTIFICATE", root["data"]["ca.crt"])

    async def test_system_namespaces(self) -> None:
        """The namespaces every cluster has are there, and so is the kubernetes service."""
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.assertTrue(await self.found(f"/api/v1/namespaces/{name}"), name)
        self.assertTrue(await self.found("/api/v1/namespaces/default/services/kubernetes"))

    async def test_deletion_takes_everything(self) -> None:
        """A deleted namespace is Terminating, takes nothing new, and goes with all that is in it."""
        name = self.unique("doomed")
        path = self.leave(f"/api/v1/namespaces/{name}")
        await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        body = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
        await self.call("POST", f"{path}/configmaps", body)
        answer = await self.call("DELETE", path)
        self.assertEqual(answer["status"]["phase"], "Terminating")
        error = await self.refused(403, "Forbidden", "POST", f"{path}/configmaps", {"metadata": {"name": "late"}})
        self.assertIn(f"unable to create new content in namespace {name} because it is being terminated", error.message)
        self.assertEqual(error.details["causes"][0]["reason"], "NamespaceTerminating")
        await self.eventually(lambda: self.gone(f"{path}/configmaps/kube-root-ca.crt"), "the content to go")
        self.assertFalse(await self.gone(path))
        await self.call("PATCH", f"{path}/configmaps/held", {"metadata": {"finalizers": None}}, kind=MERGE)
        await self.eventually(lambda: self.gone(path), "the namespace to go")


class OwnerCase(ContractCase):
    """What happens to the dependents of deleted owners."""

    async def owned(self, name: str, owner: Body, **more: bool) -> None:
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        await self.config_map(name, ownerReferences=[reference | more])

    async def test_dependents_go_with_their_owner(self) -> None:
        """A deleted owner takes what it owned, over several steps."""
        owner = await self.config_map("owner")
        await self.owned("child", owner)
        child = await self.call("GET", f"{self.space}/configmaps/child")
        await self.owned("grandchild", child)
        await self.call("DELETE", f"{self.space}/configmaps/owner", {"propagationPolicy": "Background"})
        await self.eventually(lambda: self.gone(f"{self.space}/configmaps/child"), "the child to go")
        await self.eventually(lambda: self.gone(f"{self.space}/configmaps/grandchild"), "the grandchild to go")

    async def test_leases_go_with_their_owner(self) -> None:
        """A lease is a dependent as any other object."""
        owner = await self.config_map("owner")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        await self.call("POST", path, {"metadata": {"name": "child", "ownerReferences": [reference]}})
        await self.call("DELETE", f"{self.space}/configmaps/owner", {"propagationPolicy": "Background"})
        await self.eventually(lambda: self.gone(f"{path}/child"), "the lease to go")

    async def test_owner_of_another_name_is_none(self) -> None:
        """An owner is one by its UID, its kind, its name and its namespace; a dependent of anything else goes."""
        owner = await self.config_map("owner")
        other = self.unique("other")
        self.leave(f"/api/v1/namespaces/{other}")
        await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        for place, wrong in (
            (self.space, {"name": "another"}),
            (self.space, {"kind": "Secret"}),
            (f"/api/v1/namespaces/{other}", {}),
        ):
            body = {"metadata": {"name": "child", "ownerReferences": [reference | wrong]}}
            await self.call("POST", f"{place}/configmaps", body)
            await self.eventually(partial(self.gone, f"{place}/configmaps/child"), f"the child of {wrong} to go")
        self.assertFalse(await self.gone(f"{self.space}/configmaps/owner"))

    async def test_second_owner_keeps_a_dependent(self) -> None:
        """Who has another owner stays, without the reference to the deleted one."""
        one, two = await self.config_map("one"), await self.config_map("two")
        references = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
            for each in (one, two)
        ]
        await self.config_map("child", ownerReferences=references)
        await self.call("DELETE", f"{self.space}/configmaps/one", {"propagationPolicy": "Background"})

        async def left() -> bool:
            child = await self.call("GET", f"{self.space}/configmaps/child")
            return [each["name"] for each in child["metadata"]["ownerReferences"]] == ["two"]

        await self.eventually(left, "the reference to go")

    async def test_orphans_stay(self) -> None:
        """With the Orphan policy dependents stay and lose the reference."""
        owner = await self.config_map("owner")
        await self.owned("child", owner)
        await self.call("DELETE", f"{self.space}/configmaps/owner", {"propagationPolicy": "Orphan"})
        await self.eventually(lambda: self.gone(f"{self.space}/configmaps/owner"), "the owner to go")
        child = await self.call("GET", f"{self.space}/configmaps/child")
        self.assertNotIn("ownerReferences", child["metadata"])

    async def test_foreground(self) -> None:
        """With the Foreground policy the owner goes after what blocks it."""
        owner = await self.config_map("owner")
        await self.owned("child", owner, blockOwnerDeletion=True)
        answer = await self.call("DELETE", f"{self.space}/configmaps/owner", {"propagationPolicy": "Foreground"})
        self.assertIn("foregroundDeletion", answer["metadata"]["finalizers"])
        await self.eventually(lambda: self.gone(f"{self.space}/configmaps/owner"), "the owner to go")
        self.assertTrue(await self.gone(f"{self.space}/configmaps/child"))


class WorkloadCase(ContractCase):
    """Scheduling, nodes, replicas."""

    async def test_pod_runs(self) -> None:
        """A pod is bound to the node it selects, runs, is ready, has an address; its deletion is confirmed."""
        node = await self.ready_node()
        await self.pod("p", self.on(node))
        pod = await self.phase("p", "Running")
        self.assertEqual(pod["spec"]["nodeName"], node)
        conditions = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
        self.assertEqual((conditions["PodScheduled"], conditions["Ready"]), ("True", "True"))
        self.assertTrue(pod["status"]["podIP"])
        self.assertTrue(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])
        await self.call("DELETE", f"{self.space}/pods/p")
        await self.eventually(lambda: self.gone(f"{self.space}/pods/p"), "the pod to go")

    async def unschedulable(self, name: str) -> str:
        async def reported() -> str:
            pod = await self.call("GET", f"{self.space}/pods/{name}")
            for each in pod["status"].get("conditions", []):
                if (each["type"], each["status"], each.get("reason")) == ("PodScheduled", "False", "Unschedulable"):
                    return str(each["message"])
            return ""

        return str(await self.eventually(reported, f"pod {name} to be unschedulable"))

    async def test_too_large_pod_waits(self) -> None:
        """A pod that asks for more than there is stays pending, with the reason."""
        node = await self.ready_node()
        spec = pod_spec(resources={"requests": {"cpu": "64"}})
        await self.pod("p", self.on(node) | spec)
        self.assertIn("Insufficient cpu", await self.unschedulable("p"))

        async def reported() -> bool:
            events = await self.call("GET", f"{self.space}/events", fieldSelector="involvedObject.name=p")
            return any(each["reason"] == "FailedScheduling" for each in events["items"])

        await self.eventually(reported, "the event")

    async def test_taint_keeps_pods_away(self) -> None:
        """A pod goes to a tainted node only when it tolerates the taint."""
        node = await self.ready_node(spec={"taints": [{"key": "only", "value": "mine", "effect": "NoSchedule"}]})
        await self.pod("p", self.on(node))
        self.assertIn("untolerated taint", await self.unschedulable("p"))
        toleration = {"key": "only", "operator": "Equal", "value": "mine", "effect": "NoSchedule"}
        await self.pod("q", self.on(node) | {"tolerations": [toleration]})
        await self.phase("q", "Running")

    async def test_cordon(self) -> None:
        """A cordoned node takes no new pods; uncordoned, it takes those that wait."""
        node = await self.ready_node()
        await self.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, kind=MERGE)

        async def tainted() -> bool:
            found = await self.call("GET", f"/api/v1/nodes/{node}")
            return any(each["key"] == "node.kubernetes.io/unschedulable" for each in found["spec"].get("taints", []))

        await self.eventually(tainted, "the taint")
        await self.pod("p", self.on(node))
        await self.unschedulable("p")
        await self.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}}, kind=MERGE)
        await self.phase("p", "Running")

    async def test_node_affinity(self) -> None:
        """Required node affinity chooses among nodes by label expressions."""
        one = await self.ready_node("one")
        two = await self.ready_node("two")
        expression = {"key": "contract", "operator": "In", "values": [one, two]}
        other = {"key": "contract", "operator": "NotIn", "values": [one]}
        terms = [{"matchExpressions": [expression, other]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        await self.pod("p", {"affinity": affinity, "terminationGracePeriodSeconds": 1})
        self.assertEqual((await self.phase("p", "Running"))["spec"]["nodeName"], two)

    async def test_no_execute_taint_evicts(self) -> None:
        """A NoExecute taint removes the pods that do not tolerate it and leaves those that do."""
        node = await self.ready_node()
        toleration = {"key": "away", "operator": "Exists", "effect": "NoExecute"}
        await self.pod("stays", self.on(node) | {"tolerations": [toleration]})
        await self.pod("goes", self.on(node))
        await self.phase("stays", "Running")
        await self.phase("goes", "Running")
        change = {"spec": {"taints": [{"key": "away", "effect": "NoExecute"}]}}
        await self.call("PATCH", f"/api/v1/nodes/{node}", change, kind=MERGE)
        await self.eventually(lambda: self.gone(f"{self.space}/pods/goes"), "the eviction")
        self.assertFalse(await self.gone(f"{self.space}/pods/stays"))

    async def test_new_node_is_tainted(self) -> None:
        """A node that has not said that it is ready is tainted from its first moment."""
        name = self.unique("fresh")
        self.leave(f"/api/v1/nodes/{name}")
        made = await self.call("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        self.assertEqual(made["spec"]["taints"], [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])

    async def test_not_ready_node_is_tainted(self) -> None:
        """A node that says it is not ready gets the taints that keep pods away and drive them off."""
        # With all nodes ill the reference suspects itself and taints none.
        await self.ready_node("well")
        name = await self.node("ill")
        condition = {"type": "Ready", "status": "False", "reason": "Test", "message": "m"}
        await self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [condition]}}, kind=MERGE)

        async def tainted() -> bool:
            node = await self.call("GET", f"/api/v1/nodes/{name}")
            found = {(each["key"], each["effect"]) for each in node["spec"].get("taints", [])}
            key = "node.kubernetes.io/not-ready"
            return found == {(key, "NoSchedule"), (key, "NoExecute")}

        await self.eventually(tainted, "the taints")

    async def test_deployment(self) -> None:
        """A deployment has its pods run through a replica set, replaces lost ones, follows its scale, ends them."""
        node = await self.ready_node()
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        body = deployment("d", 2)
        body["spec"]["template"]["spec"] |= self.on(node)
        await self.call("POST", path, body)

        async def available(count: int) -> list[Body] | None:
            status = (await self.call("GET", f"{path}/d")).get("status", {})
            pods = (await self.call("GET", f"{self.space}/pods", labelSelector="app=d"))["items"]
            fine = status.get("availableReplicas", 0) == count == len(pods) == status.get("replicas", 0)
            return pods if fine else None

        pods = await self.eventually(lambda: available(2), "two replicas")
        sets = (await self.call("GET", f"/apis/apps/v1/namespaces/{self.namespace}/replicasets"))["items"]
        self.assertEqual(len(sets), 1)
        owner = pods[0]["metadata"]["ownerReferences"][0]
        self.assertEqual(
            (owner["kind"], owner["uid"], owner["controller"]), ("ReplicaSet", sets[0]["metadata"]["uid"], True)
        )
        self.assertIn("pod-template-hash", pods[0]["metadata"]["labels"])
        await self.call("DELETE", f"{self.space}/pods/{pods[0]['metadata']['name']}", {"gracePeriodSeconds": 0})
        await self.eventually(lambda: available(2), "the replacement")
        scale = await self.call("PATCH", f"{path}/d/scale", {"spec": {"replicas": 3}}, kind=MERGE)
        self.assertEqual((scale["kind"], scale["spec"]["replicas"]), ("Scale", 3))
        await self.eventually(lambda: available(3), "three replicas")
        conditions = (await self.call("GET", f"{path}/d"))["status"]["conditions"]
        self.assertIn(("Available", "True"), [(each["type"], each["status"]) for each in conditions])
        await self.call("DELETE", f"{path}/d", {"propagationPolicy": "Background"})

        async def none() -> bool:
            return not (await self.call("GET", f"{self.space}/pods", labelSelector="app=d"))["items"]

        await self.eventually(none, "the pods to go")

    async def test_rollout(self) -> None:
        """A changed template brings a second replica set, to which all replicas move."""
        node = await self.ready_node()
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        body = deployment("d", 2)
        body["spec"]["template"]["spec"] |= self.on(node)
        await self.call("POST", path, body)

        async def rolled(image: str) -> bool:
            status = (await self.call("GET", f"{path}/d")).get("status", {})
            pods = (await self.call("GET", f"{self.space}/pods", labelSelector="app=d"))["items"]
            images = [each["spec"]["containers"][0]["image"] for each in pods]
            return images == [image] * 2 and status.get("availableReplicas") == 2

        await self.eventually(lambda: rolled("busybox:1"), "the first image")
        template = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
        kind = "application/strategic-merge-patch+json"
        await self.call("PATCH", f"{path}/d", {"spec": {"template": template}}, kind=kind)
        await self.eventually(lambda: rolled("busybox:2"), "the second image")
        sets = (await self.call("GET", f"/apis/apps/v1/namespaces/{self.namespace}/replicasets"))["items"]
        self.assertEqual(sorted(each["spec"]["replicas"] for each in sets), [0, 2])

    async def test_endpoint_slice(self) -> None:
        """A service that selects pods gets a slice with the addresses of those that are ready."""
        node = await self.ready_node()
        service = {
            "metadata": {"name": "s"},
            "spec": {"selector": {"app": "s"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }
        made = await self.call("POST", f"{self.space}/services", service)
        self.assertTrue(made["spec"]["clusterIP"])
        await self.pod("p", self.on(node), labels={"app": "s"})
        pod = await self.phase("p", "Running")
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"

        async def published() -> Body | None:
            slices = (await self.call("GET", path, labelSelector="kubernetes.io/service-name=s"))["items"]
            ready = [each for item in slices for each in item.get("endpoints") or [] if each["conditions"]["ready"]]
            return slices[0] if ready else None

        found = await self.eventually(published, "the endpoint")
        endpoint = found["endpoints"][0]
        self.assertEqual(endpoint["addresses"], [pod["status"]["podIP"]])
        self.assertEqual((endpoint["nodeName"], endpoint["targetRef"]["name"]), (node, "p"))
        self.assertEqual((found["ports"][0]["port"], found["addressType"]), (8080, "IPv4"))
