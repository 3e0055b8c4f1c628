"""Pods: what is checked, filled in, bound, deleted; Pod Security."""

from __future__ import annotations

from liqod.kube.errors import ApiError
from tests.contract.base import JSON_PATCH, MERGE, Body, ContractCase, pod_spec


class PodCase(ContractCase):
    """Pods as the API server sees them."""

    async def test_defaults(self) -> None:
        """A pod gets its defaults, the tolerations, and a token of its account."""
        made = await self.pod("p", {"schedulerName": "nobody"})
        spec = made["spec"]
        expected = {
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "enableServiceLinks": True,
            "securityContext": {},
        }
        self.assertEqual({name: spec.get(name) for name in expected}, expected)
        container = spec["containers"][0]
        self.assertEqual(container["imagePullPolicy"], "IfNotPresent")
        self.assertEqual(container["terminationMessagePath"], "/dev/termination-log")
        self.assertEqual(container["volumeMounts"][0]["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount")
        self.assertRegex(spec["volumes"][0]["name"], "^kube-api-access-[a-z0-9]{5}$")
        seconds = {each["key"]: each["tolerationSeconds"] for each in spec["tolerations"]}
        self.assertEqual(seconds, {"node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 300})
        self.assertEqual(made["status"], {"phase": "Pending", "qosClass": "BestEffort"})

    async def test_without_token(self) -> None:
        """automountServiceAccountToken: false means no token volume."""
        made = await self.pod("p", {"schedulerName": "nobody", "automountServiceAccountToken": False})
        self.assertNotIn("volumes", made["spec"])

    async def test_quality_of_service(self) -> None:
        """Limits alone become requests; equal ones make the pod Guaranteed."""
        limits = {"cpu": "1", "memory": "1Gi"}
        made = await self.pod("p", {"schedulerName": "nobody", **pod_spec(resources={"limits": limits})})
        self.assertEqual(made["spec"]["containers"][0]["resources"]["requests"], limits)
        self.assertEqual(made["status"]["qosClass"], "Guaranteed")

    async def test_invalid_pods(self) -> None:
        """What is wrong with a pod is reported by field."""
        wrong: tuple[tuple[Body, str, str], ...] = (
            ({"containers": []}, "spec.containers", "FieldValueRequired"),
            (pod_spec(name="Bad_Name"), "spec.containers[0].name", "FieldValueInvalid"),
            (pod_spec(image=""), "spec.containers[0].image", "FieldValueRequired"),
            (pod_spec() | {"restartPolicy": "Perhaps"}, "spec.restartPolicy", "FieldValueNotSupported"),
            (
                pod_spec(ports=[{"containerPort": 70000}]),
                "spec.containers[0].ports[0].containerPort",
                "FieldValueInvalid",
            ),
            (
                pod_spec(volumeMounts=[{"name": "none", "mountPath": "/x"}]),
                "spec.containers[0].volumeMounts[0].name",
                "FieldValueNotFound",
            ),
            ({"containers": pod_spec()["containers"] * 2}, "spec.containers[1].name", "FieldValueDuplicate"),
        )
        for spec, field, reason in wrong:
            body = {"metadata": {"name": "p"}, "spec": spec}
            error = await self.refused(422, "Invalid", "POST", f"{self.space}/pods", body)
            found = [(each["field"], each["reason"]) for each in error.details["causes"]]
            self.assertIn((field, reason), found)

    async def test_spec_is_fixed(self) -> None:
        """A pod's specification does not change but for images and few other fields."""
        await self.pod("p", {"schedulerName": "nobody"})
        change = {"spec": {"terminationGracePeriodSeconds": 5}}
        error = await self.refused(422, "Invalid", "PATCH", f"{self.space}/pods/p", change, kind=MERGE)
        cause = error.details["causes"][0]
        self.assertEqual((cause["field"], cause["reason"]), ("spec", "FieldValueForbidden"))
        self.assertIn("pod updates may not change fields other than", error.message)

    async def test_seconds_of_tolerations(self) -> None:
        """The seconds of a pod's tolerations change, and go; the tolerations themselves can only be added to."""
        made = await self.pod("p", {"schedulerName": "nobody"})
        before = made["spec"]["tolerations"]
        forever = [{name: value for name, value in one.items() if name != "tolerationSeconds"} for one in before]
        path = f"{self.space}/pods/p"
        for wanted in ([{**one, "tolerationSeconds": 0} for one in forever], forever, [{"key": "x"}, *before]):
            change = [{"op": "replace", "path": "/spec/tolerations", "value": wanted}]
            answer = await self.call("PATCH", path, change, kind=JSON_PATCH)
            found = [one.get("tolerationSeconds") for one in answer["spec"]["tolerations"]]
            self.assertEqual(found, [one.get("tolerationSeconds") for one in wanted])
        for wrong in (before, [{"key": "x", "effect": "NoExecute"}, *before]):
            change = [{"op": "replace", "path": "/spec/tolerations", "value": wrong}]
            error = await self.refused(422, "Invalid", "PATCH", path, change, kind=JSON_PATCH)
            self.assertIn("existing toleration can not be modified except its tolerationSeconds", error.message)

    async def test_resizing(self) -> None:
        """CPU and memory change by the subresource made for it alone, and only to other amounts."""
        asked = {"requests": {"cpu": "100m", "memory": "64Mi"}}
        await self.pod("p", {"schedulerName": "nobody", **pod_spec(resources=asked)})
        path, cpu = f"{self.space}/pods/p", "/spec/containers/0/resources/requests/cpu"
        change = [{"op": "replace", "path": cpu, "value": "200m"}]
        await self.refused(422, "Invalid", "PATCH", path, change, kind=JSON_PATCH)
        answer = await self.call("PATCH", f"{path}/resize", change, kind=JSON_PATCH)
        self.assertEqual(answer["spec"]["containers"][0]["resources"]["requests"], {"cpu": "200m", "memory": "64Mi"})
        label = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
        answer = await self.call("PATCH", f"{path}/resize", label, kind=JSON_PATCH)
        self.assertNotIn("labels", answer["metadata"])
        gone = [{"op": "remove", "path": cpu}]
        error = await self.refused(422, "Invalid", "PATCH", f"{path}/resize", gone, kind=JSON_PATCH)
        self.assertIn("resource requests cannot be removed", error.message)
        limits = [
            {"op": "add", "path": "/spec/containers/0/resources/limits", "value": {"cpu": "200m", "memory": "64Mi"}}
        ]
        error = await self.refused(422, "Invalid", "PATCH", f"{path}/resize", limits, kind=JSON_PATCH)
        self.assertIn("Pod QOS Class may not change as a result of resizing", error.message)

    async def test_containers_for_debugging(self) -> None:
        """Ephemeral containers come by their own subresource, and stay as they came."""
        await self.pod("p", {"schedulerName": "nobody"})
        path, where = f"{self.space}/pods/p", "/spec/ephemeralContainers"
        one = {"name": "look", "image": "busybox", "terminationMessagePolicy": "File"}
        add = [{"op": "add", "path": where, "value": [one]}]
        await self.refused(422, "Invalid", "PATCH", path, add, kind=JSON_PATCH)
        answer = await self.call("PATCH", f"{path}/ephemeralcontainers", add, kind=JSON_PATCH)
        self.assertEqual([each["name"] for each in answer["spec"]["ephemeralContainers"]], ["look"])
        again = [{"op": "add", "path": f"{where}/-", "value": {**one, "name": "again"}}]
        answer = await self.call("PATCH", f"{path}/ephemeralcontainers", again, kind=JSON_PATCH)
        self.assertEqual([each["name"] for each in answer["spec"]["ephemeralContainers"]], ["look", "again"])
        other = [{"op": "replace", "path": f"{where}/0/image", "value": "other"}]
        error = await self.refused(422, "Invalid", "PATCH", f"{path}/ephemeralcontainers", other, kind=JSON_PATCH)
        self.assertIn('existing ephemeral containers "look" may not be changed', error.message)
        less = [{"op": "remove", "path": f"{where}/0"}]
        error = await self.refused(422, "Invalid", "PATCH", f"{path}/ephemeralcontainers", less, kind=JSON_PATCH)
        self.assertIn('existing ephemeral containers "look" may not be removed', error.message)

    async def test_missing_account(self) -> None:
        """A pod of an account that is not there is refused."""
        body = {"metadata": {"name": "p"}, "spec": pod_spec() | {"serviceAccountName": "none"}}
        error = await self.refused(403, "Forbidden", "POST", f"{self.space}/pods", body)
        self.assertIn(
            f'error looking up service account {self.namespace}/none: serviceaccount "none" not found', error.message
        )

    async def test_runtime_class(self) -> None:
        """A RuntimeClass gives its pods a node selector and tolerations, and refuses those that select otherwise."""
        name, base = self.unique("runtime"), "/apis/node.k8s.io/v1/runtimeclasses"
        self.leave(f"{base}/{name}")
        kept = {"key": "kept", "operator": "Exists", "effect": "NoExecute"}
        scheduling = {"nodeSelector": {"pool": "a"}, "tolerations": [kept, {"key": "wide", "operator": "Exists"}]}
        await self.call("POST", base, {"metadata": {"name": name}, "handler": "x", "scheduling": scheduling})
        own = [
            {"key": "own", "operator": "Exists"},
            {"key": "wide", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
            {"key": "kept", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
        ]
        asking = {"schedulerName": "nobody", "runtimeClassName": name}
        spec = (await self.pod("p", {**asking, "nodeSelector": {"disk": "b"}, "tolerations": own}))["spec"]
        self.assertEqual(spec["nodeSelector"], {"disk": "b", "pool": "a"})
        added = [each for each in spec["tolerations"] if not each["key"].startswith("node.kubernetes.io/")]
        self.assertEqual(added, [own[0], own[2], *scheduling["tolerations"]])
        for changed, words in (
            ({**asking, "nodeSelector": {"pool": "b"}}, "conflict: runtimeClass.scheduling.nodeSelector[pool] = a; "),
            ({**asking, "runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        ):
            body = {"metadata": {"name": "q"}, "spec": pod_spec() | changed}
            error = await self.refused(403, "Forbidden", "POST", f"{self.space}/pods", body)
            self.assertIn(words, error.message)

    async def test_status_is_apart(self) -> None:
        """A pod's status is written on its own path; the pod's path leaves it."""
        await self.pod("p", {"schedulerName": "nobody"})
        status = {"status": {"phase": "Running", "podIP": "10.1.2.3"}}
        answer = await self.call("PATCH", f"{self.space}/pods/p/status", status, kind=MERGE)
        self.assertEqual((answer["status"]["phase"], answer["status"]["podIP"]), ("Running", "10.1.2.3"))
        answer = await self.call("PATCH", f"{self.space}/pods/p", {"status": {"phase": "Failed"}}, kind=MERGE)
        self.assertEqual(answer["status"]["phase"], "Running")

    async def test_binding(self) -> None:
        """A binding assigns the node, once."""
        await self.pod("p", {"schedulerName": "nobody"})
        body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "somewhere"}}
        answer = await self.call("POST", f"{self.space}/pods/p/binding", body)
        self.assertEqual((answer["kind"], answer["status"]), ("Status", "Success"))
        pod = await self.call("GET", f"{self.space}/pods/p")
        self.assertEqual(pod["spec"]["nodeName"], "somewhere")
        condition = pod["status"]["conditions"][0]
        self.assertEqual((condition["type"], condition["status"]), ("PodScheduled", "True"))
        error = await self.refused(409, "Conflict", "POST", f"{self.space}/pods/p/binding", body)
        self.assertIn('pod p is already assigned to node "somewhere"', error.message)

    async def test_unbound_pod_goes_at_once(self) -> None:
        """A pod without a node needs no kubelet to be gone."""
        await self.pod("p", {"schedulerName": "nobody"})
        await self.call("DELETE", f"{self.space}/pods/p")
        self.assertTrue(await self.gone(f"{self.space}/pods/p"))

    async def test_bound_pod_goes_gracefully(self) -> None:
        """A bound pod gets a deletion time and stays until it is deleted without grace."""
        await self.pod("p", {"nodeName": "nowhere"})
        answer = await self.call("DELETE", f"{self.space}/pods/p")
        self.assertEqual(answer["metadata"]["deletionGracePeriodSeconds"], 30)
        self.assertIn("deletionTimestamp", answer["metadata"])
        shorter = await self.call("DELETE", f"{self.space}/pods/p", {"gracePeriodSeconds": 5})
        self.assertEqual(shorter["metadata"]["deletionGracePeriodSeconds"], 5)
        await self.call("DELETE", f"{self.space}/pods/p", {"gracePeriodSeconds": 0})
        self.assertTrue(await self.gone(f"{self.space}/pods/p"))

    async def test_own_grace_period(self) -> None:
        """The grace period is the pod's own where the deletion names none."""
        await self.pod("p", {"nodeName": "nowhere", "terminationGracePeriodSeconds": 7})
        answer = await self.call("DELETE", f"{self.space}/pods/p")
        self.assertEqual(answer["metadata"]["deletionGracePeriodSeconds"], 7)
        await self.call("DELETE", f"{self.space}/pods/p", {"gracePeriodSeconds": 0})

    async def test_finished_pod_goes_at_once(self) -> None:
        """A pod that has finished needs no grace."""
        await self.pod("p", {"nodeName": "nowhere"})
        await self.call("PATCH", f"{self.space}/pods/p/status", {"status": {"phase": "Succeeded"}}, kind=MERGE)
        await self.call("DELETE", f"{self.space}/pods/p")
        self.assertTrue(await self.gone(f"{self.space}/pods/p"))

    async def test_pod_that_finished_while_it_went(self) -> None:
        """A pod that is going stays until its kubelet deletes it without grace, also when it has finished."""
        await self.pod("p", {"nodeName": "nowhere"})
        await self.call("DELETE", f"{self.space}/pods/p")
        await self.call("PATCH", f"{self.space}/pods/p/status", {"status": {"phase": "Succeeded"}}, kind=MERGE)
        again = await self.call("DELETE", f"{self.space}/pods/p")
        longer = await self.call("DELETE", f"{self.space}/pods/p", {"gracePeriodSeconds": 60})
        for answer in (again, longer):
            self.assertEqual(answer["metadata"]["deletionGracePeriodSeconds"], 30)
        await self.call("DELETE", f"{self.space}/pods/p", {"gracePeriodSeconds": 0})
        self.assertTrue(await self.gone(f"{self.space}/pods/p"))

    async def test_negative_grace(self) -> None:
        """A negative grace period is one second."""
        await self.pod("p", {"nodeName": "nowhere"})
        answer = await self.call("DELETE", f"{self.space}/pods/p", {"gracePeriodSeconds": -1})
        self.assertEqual(answer["metadata"]["deletionGracePeriodSeconds"], 1)
        await self.call("DELETE", f"{self.space}/pods/p", {"gracePeriodSeconds": 0})

    async def test_eviction_that_is_only_tried(self) -> None:
        """An eviction whose deletion is a dry run leaves the pod."""
        await self.pod("p", {"schedulerName": "nobody"})
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": self.namespace}}
        await self.call("POST", f"{self.space}/pods/p/eviction", body | {"deleteOptions": {"dryRun": ["All"]}})
        self.assertFalse(await self.gone(f"{self.space}/pods/p"))

    async def test_eviction(self) -> None:
        """An eviction deletes the pod."""
        await self.pod("p", {"schedulerName": "nobody"})
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": self.namespace}}
        answer = await self.call("POST", f"{self.space}/pods/p/eviction", body)
        self.assertEqual(answer["status"], "Success")
        self.assertTrue(await self.gone(f"{self.space}/pods/p"))

    async def test_logs_of_an_unbound_pod(self) -> None:
        """A pod without a node has an empty log."""
        await self.pod("p", {"schedulerName": "nobody"})
        self.assertEqual(await self.call("GET", f"{self.space}/pods/p/log"), {"text": ""})

    async def test_logs_need_the_container_of_several(self) -> None:
        """With several containers a log request names one that is there."""
        containers = [{"name": "one", "image": "busybox:1"}, {"name": "two", "image": "busybox:1"}]
        await self.pod("p", {"schedulerName": "nobody", "containers": containers})
        error = await self.refused(400, "BadRequest", "GET", f"{self.space}/pods/p/log")
        self.assertIn("a container name must be specified for pod p, choose one of: [one two]", error.message)
        error = await self.refused(400, "BadRequest", "GET", f"{self.space}/pods/p/log", container="three")
        self.assertEqual(error.message, "container three is not valid for pod p")


class PodSecurityCase(ContractCase):
    """The levels of Pod Security that a namespace enforces."""

    async def enforce(self, level: str) -> None:
        labels = {"pod-security.kubernetes.io/enforce": level}
        await self.call("PATCH", self.space, {"metadata": {"labels": labels}}, kind=MERGE)
        # The admission plugin reads namespaces from a cache of its own.
        await self.eventually(self._is_enforced, f"the level {level} is enforced")

    async def _is_enforced(self) -> bool:
        body = {"metadata": {"name": "p"}, "spec": pod_spec() | {"hostNetwork": True}}
        try:
            await self.call("POST", f"{self.space}/pods", body, dryRun="All")
        except ApiError as error:
            return error.code == 403
        return False

    async def denied(self, spec: Body) -> str:
        body = {"metadata": {"name": "p"}, "spec": spec}
        error = await self.refused(403, "Forbidden", "POST", f"{self.space}/pods", body, dryRun="All")
        return error.message

    async def test_baseline(self) -> None:
        """Baseline forbids what reaches the host."""
        await self.enforce("baseline")
        for spec, text in (
            (pod_spec() | {"hostNetwork": True}, "host namespaces (hostNetwork=true)"),
            (pod_spec() | {"hostPID": True, "hostIPC": True}, "host namespaces (hostPID=true, hostIPC=true)"),
            (
                pod_spec(securityContext={"privileged": True}),
                'privileged (container "main" must not set securityContext.privileged=true)',
            ),
            (
                pod_spec() | {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
                'hostPath volumes (volume "v")',
            ),
            (
                pod_spec(securityContext={"capabilities": {"add": ["NET_ADMIN"]}}),
                'non-default capabilities (container "main" must not include "NET_ADMIN" in '
                "securityContext.capabilities.add)",
            ),
            (pod_spec(ports=[{"containerPort": 80, "hostPort": 80}]), 'hostPort (container "main" uses hostPort 80)'),
        ):
            message = await self.denied(spec)
            self.assertEqual(message, f'pods "p" is forbidden: violates PodSecurity "baseline:latest": {text}')
        await self.pod("fine", {"schedulerName": "nobody"})

    async def test_restricted(self) -> None:
        """Restricted demands what a careful pod says anyway."""
        await self.enforce("restricted")
        self.assertEqual(
            await self.denied(pod_spec()),
            'pods "p" is forbidden: violates PodSecurity "restricted:latest": '
            'allowPrivilegeEscalation != false (container "main" must set '
            "securityContext.allowPrivilegeEscalation=false), "
            'unrestricted capabilities (container "main" must set securityContext.capabilities.drop=["ALL"]), '
            'runAsNonRoot != true (pod or container "main" must set securityContext.runAsNonRoot=true), '
            'seccompProfile (pod or container "main" must set securityContext.seccompProfile.type to '
            '"RuntimeDefault" or "Localhost")',
        )
        context = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        await self.pod("fine", {"schedulerName": "nobody", **pod_spec(securityContext=context)})
