"""What clients see around the objects: discovery, health, tables, webhooks, kubectl."""

from __future__ import annotations

import base64
import datetime
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from kubesandbox.auth.pki import Authority
from twisted.internet import ssl
from twisted.internet.utils import getProcessOutputAndValue
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from tests.contract.base import MERGE, TABLE, Body, ContractCase, Events, pod_spec, reactor
from tests.contract.cases_objects import deployment
from tests.environment import require
from tests.testbed import versions

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
AWAY = "https://127.0.0.1:1/review"


class DiscoveryCase(ContractCase):
    """What the server says about itself."""

    async def test_health(self) -> None:
        """The health pages say ok, to anybody."""
        for path in ("/healthz", "/livez", "/readyz"):
            self.assertEqual((await self.call("GET", path, client=self.client_of("somebody")))["text"], "ok")

    async def test_version(self) -> None:
        """The version has its numbers."""
        found = await self.call("GET", "/version")
        self.assertEqual((found["major"], found["minor"]), ("1", "36"))
        self.assertTrue(found["gitVersion"].startswith("v1.36"))

    async def test_core_resources(self) -> None:
        """The core group lists its kinds with verbs, scopes and short names."""
        found = await self.call("GET", "/api/v1")
        self.assertEqual((found["kind"], found["groupVersion"]), ("APIResourceList", "v1"))
        named = {each["name"]: each for each in found["resources"]}
        self.assertEqual(
            (named["pods"]["kind"], named["pods"]["namespaced"], named["pods"]["shortNames"]), ("Pod", True, ["po"])
        )
        self.assertEqual(
            named["pods"]["verbs"], ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        )
        self.assertEqual(named["pods"]["categories"], ["all"])
        self.assertFalse(named["nodes"]["namespaced"])
        self.assertLessEqual({"pods/log", "pods/status", "pods/binding", "pods/eviction", "nodes/status"}, set(named))

    async def test_groups(self) -> None:
        """The groups are listed with their versions."""
        groups = {each["name"]: each for each in (await self.call("GET", "/apis"))["groups"]}
        self.assertEqual(groups["apps"]["preferredVersion"], {"groupVersion": "apps/v1", "version": "v1"})
        names = {"coordination.k8s.io", "discovery.k8s.io", "rbac.authorization.k8s.io", "apiextensions.k8s.io"}
        self.assertLessEqual(names, set(groups))
        self.assertEqual((await self.call("GET", "/apis/apps"))["kind"], "APIGroup")

    async def test_aggregated_discovery(self) -> None:
        """All kinds of all groups can be had in one answer."""
        found = await self.call("GET", "/apis", accept=AGGREGATED)
        self.assertEqual(found["kind"], "APIGroupDiscoveryList")
        apps = next(each for each in found["items"] if each["metadata"]["name"] == "apps")
        resource = next(each for each in apps["versions"][0]["resources"] if each["resource"] == "deployments")
        self.assertEqual((resource["scope"], resource["singularResource"]), ("Namespaced", "deployment"))
        self.assertEqual(resource["responseKind"]["kind"], "Deployment")
        self.assertIn("status", [each["subresource"] for each in resource["subresources"]])

    async def test_unknown_page(self) -> None:
        """A path that means nothing is 404."""
        for path in ("/nothing", "/apis/none.example.com", "/apis/apps/v9"):
            await self.refused_anyhow(404, path)

    async def refused_anyhow(self, code: int, path: str) -> None:
        try:
            await self.call("GET", path)
        except Exception as error:
            self.assertEqual(getattr(error, "code", 0), code)
            return
        raise self.failureException(f"{path} is there")

    async def test_wrong_method(self) -> None:
        """A method a path does not know is 405."""
        await self.refused(405, "MethodNotAllowed", "PUT", f"{self.space}/configmaps", {"metadata": {"name": "a"}})

    async def test_body_that_is_not_json(self) -> None:
        """A body that cannot be read is 400."""
        with self.assertRaises(Exception) as caught:
            headers = {"Content-Type": "application/json"}
            await self.client.raw("POST", f"{self.space}/configmaps", body=b"{not json", headers=headers)
        self.assertEqual(getattr(caught.exception, "code", 0), 400)

    async def test_wrong_kind(self) -> None:
        """A body of another kind is 400."""
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
        await self.refused(400, "BadRequest", "POST", f"{self.space}/configmaps", body)


class TableCase(ContractCase):
    """Tables as kubectl shows them."""

    async def table(self, path: str, **query: Any) -> tuple[list[str], list[list[Any]]]:
        found = await self.call("GET", path, accept=TABLE, **query)
        self.assertEqual((found["kind"], found["apiVersion"]), ("Table", "meta.k8s.io/v1"))
        columns = [f"{each['name']}{'*' if each['priority'] else ''}" for each in found["columnDefinitions"]]
        return columns, [each["cells"] for each in found["rows"] or []]

    async def test_pods(self) -> None:
        """Pods show how many containers are ready, status, restarts and, wide, where they are."""
        await self.pod("p", {"nodeName": "nowhere"})
        columns, rows = await self.table(f"{self.space}/pods")
        self.assertEqual(
            columns,
            ["Name", "Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*", "Readiness Gates*"],
        )
        self.assertEqual(rows[0][:4], ["p", "0/1", "Pending", "0"])
        self.assertRegex(rows[0][4], r"^\d+s$")
        self.assertEqual(rows[0][5:], ["<none>", "nowhere", "<none>", "<none>"])
        status = {
            "phase": "Running",
            "podIP": "10.0.0.9",
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "busybox:1",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                }
            ],
        }
        await self.call("PATCH", f"{self.space}/pods/p/status", {"status": status}, kind=MERGE)
        _, rows = await self.table(f"{self.space}/pods")
        self.assertEqual(rows[0][:4] + rows[0][5:6], ["p", "0/1", "CrashLoopBackOff", "3", "10.0.0.9"])
        await self.call("DELETE", f"{self.space}/pods/p")
        _, rows = await self.table(f"{self.space}/pods")
        self.assertEqual(rows[0][2], "Terminating")

    async def test_nodes(self) -> None:
        """Nodes show readiness, roles, version and, wide, addresses and system."""
        node = await self.node(spec={"unschedulable": True})
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v9", "osImage": "OS", "kernelVersion": "K", "containerRuntimeVersion": "R"},
        }
        label = {"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}}
        await self.call("PATCH", f"/api/v1/nodes/{node}", label, kind=MERGE)
        await self.call("PATCH", f"/api/v1/nodes/{node}/status", {"status": status}, kind=MERGE)
        columns, rows = await self.table("/api/v1/nodes", fieldSelector=f"metadata.name={node}")
        self.assertEqual(columns[:5], ["Name", "Status", "Roles", "Age", "Version"])
        self.assertEqual(rows[0][:3] + rows[0][4:6], [node, "Ready,SchedulingDisabled", "worker", "v9", "10.0.0.1"])
        self.assertEqual(rows[0][7:], ["OS", "K", "R"])

    async def test_other_kinds(self) -> None:
        """The columns of the kinds that people look at are those of the reference."""
        for path, wanted in (
            ("/api/v1/namespaces", ["Name", "Status", "Age"]),
            ("/api/v1/services", ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector*"]),
            ("/api/v1/configmaps", ["Name", "Data", "Age"]),
            ("/api/v1/secrets", ["Name", "Type", "Data", "Age"]),
            (
                "/apis/apps/v1/deployments",
                ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers*", "Images*", "Selector*"],
            ),
            (
                "/apis/apps/v1/replicasets",
                ["Name", "Desired", "Current", "Ready", "Age", "Containers*", "Images*", "Selector*"],
            ),
            ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
            ("/apis/discovery.k8s.io/v1/endpointslices", ["Name", "AddressType", "Ports", "Endpoints", "Age"]),
            ("/apis/rbac.authorization.k8s.io/v1/roles", ["Name", "Created At"]),
            (
                "/api/v1/events",
                [
                    "Last Seen",
                    "Type",
                    "Reason",
                    "Object",
                    "Subobject*",
                    "Source*",
                    "Message",
                    "First Seen*",
                    "Count*",
                    "Name*",
                ],
            ),
        ):
            self.assertEqual((await self.table(path))[0], wanted, path)

    async def test_deployment_row(self) -> None:
        """A deployment's row counts replicas and names containers, images and selector."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        await self.call("POST", path, deployment("d", 0))
        _, rows = await self.table(path)
        self.assertEqual(rows[0][:4] + rows[0][5:], ["d", "0/0", 0, 0, "main", "busybox:1", "app=d"])


class _Hook(Resource):
    """A webhook that answers every review by what the case says, and remembers what it was asked."""

    isLeaf = True

    def __init__(self, answer: Body) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[Body] = []

    def render_POST(self, request: Request) -> bytes:
        assert request.content is not None
        review = json.loads(request.content.read())
        self.asked.append(review["request"])
        request.setHeader("content-type", "application/json")
        # The reference would keep the connection for later, and the case ends now.
        request.setHeader("connection", "close")
        response = {"uid": review["request"]["uid"], **self.answer}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return json.dumps(body).encode()


class AdmissionCase(ContractCase):
    """Admission webhooks."""

    async def hook(
        self,
        answer: Body,
        *,
        kind: str = "Mutating",
        port: int | None = None,
        with_one_away: bool = False,
        **more: Any,
    ) -> _Hook:
        """Serve a webhook and configure it for the pods and config maps of the namespace.

        ``with_one_away``: beside it one is configured that nobody serves, with failurePolicy Ignore.
        """
        authority = Authority.create("hook-ca", datetime.datetime.now(datetime.UTC))
        leaf = authority.serving("hook", ["127.0.0.1"])
        hook = _Hook(answer)
        options = ssl.PrivateCertificate.loadPEM(leaf.key_pem + leaf.certificate_pem).options()
        site = Site(hook)
        site.displayTracebacks = False
        listening = reactor.listenSSL(0, site, options, interface="127.0.0.1")
        self.addCleanup(listening.stopListening)
        number = port or listening.getHost().port
        name = self.unique("hook")
        where = {
            "url": f"https://127.0.0.1:{number}/review",
            "caBundle": base64.b64encode(authority.pem).decode(),
        }
        rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "pods"]}
        webhook = {
            "name": "hook.example.com",
            "clientConfig": where,
            "rules": [rule],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            **more,
        }
        # Both take effect at once: that the one that is served is asked shows it of the other.
        away = {
            **webhook,
            "name": "away.example.com",
            "clientConfig": {**where, "url": AWAY},
            "failurePolicy": "Ignore",
        }
        path = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}webhookconfigurations"
        self.leave(f"{path}/{name}")
        body = {"metadata": {"name": name}, "webhooks": [away, webhook] if with_one_away else [webhook]}
        made = await self.call("POST", path, body)
        self.assertEqual(made["webhooks"][-1]["failurePolicy"], more.get("failurePolicy", "Fail"))
        return hook

    async def test_mutation(self) -> None:
        """A webhook's JSON patch is in the object that is stored."""
        change = [{"op": "add", "path": "/data", "value": {"by": "hook"}}]
        patch = base64.b64encode(json.dumps(change).encode()).decode()
        hook = await self.hook({"allowed": True, "patchType": "JSONPatch", "patch": patch})

        async def changed() -> Body | None:
            made = await self.call("POST", f"{self.space}/configmaps", {"metadata": {"generateName": "a-"}})
            return made if made.get("data") == {"by": "hook"} else None

        await self.eventually(changed, "the webhook's change")
        asked = hook.asked[-1]
        self.assertEqual((asked["operation"], asked["namespace"], asked["dryRun"]), ("CREATE", self.namespace, False))
        self.assertEqual(asked["kind"], {"group": "", "version": "v1", "kind": "ConfigMap"})
        self.assertEqual(asked["resource"], {"group": "", "version": "v1", "resource": "configmaps"})
        self.assertEqual(asked["userInfo"]["username"], "admin")
        self.assertEqual((asked["object"]["kind"], asked["oldObject"]), ("ConfigMap", None))

    async def refusal(self, status: Body) -> Any:
        """Have a webhook refuse a config map with this status; return the refusal."""
        await self.hook({"allowed": False, "status": status}, kind="Validating")
        body = {"metadata": {"generateName": "a-"}}

        async def refused() -> Any:
            try:
                await self.call("POST", f"{self.space}/configmaps", body)
            except Exception as error:
                return error
            return None

        return await self.eventually(refused, "the refusal")

    async def test_refusal(self) -> None:
        """A webhook that refuses is named with its words."""
        error = await self.refusal({"message": "not today", "code": 403})
        self.assertEqual(error.code, 403)
        self.assertEqual(error.message, 'admission webhook "hook.example.com" denied the request: not today')

    async def test_refusal_without_a_code(self) -> None:
        """A webhook that refuses without a code is one of 400, without a reason."""
        error = await self.refusal({})
        self.assertEqual((error.code, error.reason), (400, ""))
        self.assertEqual(error.message, 'admission webhook "hook.example.com" denied the request without explanation')

    async def test_selectors_limit_a_webhook(self) -> None:
        """Objects that the selectors do not choose are not shown to a webhook."""
        hook = await self.hook({"allowed": True}, objectSelector={"matchLabels": {"show": "yes"}})

        async def shown() -> bool:
            body = {"metadata": {"generateName": "a-", "labels": {"show": "yes"}}}
            await self.call("POST", f"{self.space}/configmaps", body)
            return bool(hook.asked)

        await self.eventually(shown, "the webhook to be asked")
        hook.asked.clear()
        await self.call("POST", f"{self.space}/configmaps", {"metadata": {"name": "b", "labels": {"show": "no"}}})
        await self.call("POST", f"{self.space}/secrets", {"metadata": {"name": "c", "labels": {"show": "yes"}}})
        self.assertEqual(hook.asked, [])

    async def test_unreachable_webhook_fails_the_request(self) -> None:
        """With failurePolicy Fail nothing is written while the webhook is away."""
        await self.hook({"allowed": True}, port=1)

        async def refused() -> Any:
            try:
                await self.call("POST", f"{self.space}/configmaps", {"metadata": {"generateName": "a-"}})
            except Exception as error:
                return error
            return None

        error = await self.eventually(refused, "the failure")
        self.assertEqual((error.code, error.reason), (500, "InternalError"))
        self.assertIn('failed calling webhook "hook.example.com": failed to call webhook:', error.message)

    async def test_unreachable_webhook_may_be_ignored(self) -> None:
        """With failurePolicy Ignore the request goes on without it."""
        hook = await self.hook({"allowed": True}, with_one_away=True)

        async def asked() -> bool:
            await self.call("POST", f"{self.space}/configmaps", {"metadata": {"generateName": "a-"}})
            return bool(hook.asked)

        await self.eventually(asked, "the webhooks to be in effect")
        await self.call("POST", f"{self.space}/configmaps", {"metadata": {"name": "b"}})
        self.assertEqual(hook.asked[-1]["name"], "b")


class KubectlCase(ContractCase):
    """The real kubectl, against both."""

    async def setUp(self) -> None:  # type: ignore[override]
        require(versions.lacking(["kubectl"]))
        await super().setUp()

    async def kubectl(self, *arguments: str, code: int = 0) -> str:
        """Run kubectl in the namespace; return what it says."""
        directory = Path(tempfile.mkdtemp(prefix="kubectl-"))
        self.addCleanup(shutil.rmtree, directory, True)
        config = directory / "config.json"
        config.write_text(self.server.kubeconfig())
        flags = [f"--kubeconfig={config}", f"--cache-dir={directory}/cache", f"--namespace={self.namespace}"]
        environment = {"HOME": str(directory), "PATH": os.environ["PATH"]}
        out, err, status = await getProcessOutputAndValue(
            str(versions.program("kubectl")), [*flags, *arguments], environment
        )
        self.assertEqual(status, code, (out + err).decode())
        return str((out + err).decode())

    async def manifest(self, *bodies: Body) -> str:
        """Return a file with these objects."""
        path = Path(tempfile.mkdtemp(prefix="manifest-")) / "all.json"
        whole = bodies[0] if len(bodies) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
        path.write_text(json.dumps(whole))
        return str(path)

    def kubectl_pod(self, name: str, node: str) -> Body:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec() | self.on(node)}

    async def test_apply_get_describe_delete(self) -> None:
        """Objects are applied, changed, shown, described and deleted by kubectl."""
        node = await self.ready_node()
        body = deployment("web", 2)
        body["spec"]["template"]["spec"] |= self.on(node)
        settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"k": "1"}}
        file = await self.manifest(body, settings)
        said = await self.kubectl("apply", "-f", file)
        self.assertIn("deployment.apps/web created", said)
        self.assertIn("configmap/settings created", said)
        said = await self.kubectl("apply", "-f", file)
        self.assertIn("deployment.apps/web unchanged", said)
        said = await self.kubectl("apply", "-f", await self.manifest(body, settings | {"data": {"k": "2", "n": "3"}}))
        self.assertIn("configmap/settings configured", said)
        await self.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
        lines = (await self.kubectl("get", "pods", "-o", "wide")).splitlines()
        self.assertEqual(lines[0].split()[:6], ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"])
        self.assertEqual(len(lines), 3)
        for line in lines[1:]:
            self.assertEqual(line.split()[1:4], ["1/1", "Running", "0"])
            self.assertIn(node, line)
        self.assertIn("2/2", await self.kubectl("get", "deploy", "web"))
        described = await self.kubectl("describe", "deployment", "web")
        self.assertIn("2 desired | 2 updated | 2 total | 2 available | 0 unavailable", described)
        self.assertIn("ScalingReplicaSet", described)
        self.assertIn("deployment.apps/web scaled", await self.kubectl("scale", "deployment/web", "--replicas=1"))
        said = await self.kubectl("delete", "-f", file)
        self.assertIn('deployment.apps "web" deleted', said)

    async def test_get_nodes_and_describe_pod(self) -> None:
        """Nodes are shown, and a pod is described with its events."""
        node = await self.ready_node()
        lines = (await self.kubectl("get", "node", node, "-o", "wide")).splitlines()
        self.assertEqual(lines[0].split()[:5], ["NAME", "STATUS", "ROLES", "AGE", "VERSION"])
        self.assertEqual(lines[1].split()[:3], [node, "Ready", "<none>"])
        await self.kubectl("apply", "-f", await self.manifest(self.kubectl_pod("p", node)))
        await self.phase("p", "Running")
        await self.kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=120s")
        described = await self.kubectl("describe", "pod", "p")
        self.assertIn(f"Successfully assigned {self.namespace}/p to {node}", described)
        self.assertIn("Status:           Running", described)
        self.assertIn('pod "p" deleted', await self.kubectl("delete", "pod", "p", "--timeout=120s"))
        self.assertIn('pods "p" not found', await self.kubectl("get", "pod", "p", code=1))

    async def test_logs(self) -> None:
        """A running pod's log is read."""
        node = await self.ready_node()
        await self.kubectl("apply", "-f", await self.manifest(self.kubectl_pod("p", node)))
        await self.phase("p", "Running")
        self.assertIn("started", await self.kubectl("logs", "p"))
        self.assertEqual(len((await self.kubectl("logs", "p", "--tail=1")).splitlines()), 1)

    async def test_follow(self) -> None:
        """A log that is followed arrives while the pod runs."""
        node = await self.ready_node()
        await self.pod("p", self.on(node))
        await self.phase("p", "Running")

        class Text(Events):
            text = b""

            def dataReceived(self, data: bytes) -> None:
                self.text += data

        reader = Text()
        abort = await self.client.stream(f"{self.space}/pods/p/log?follow=true", reader)
        await self.eventually(lambda: b"started" in reader.text, "the log")
        self.assertFalse(reader.ended)
        abort()

    async def test_server_side_apply(self) -> None:
        """kubectl apply --server-side, and its conflict."""
        settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"k": "1"}}
        file = await self.manifest(settings)
        self.assertIn("serverside-applied", await self.kubectl("apply", "--server-side", "-f", file))
        other = await self.manifest(settings | {"data": {"k": "2"}})
        said = await self.kubectl("apply", "--server-side", "--field-manager=other", "-f", other, code=1)
        self.assertIn('conflict with "kubectl"', said)

    async def test_custom_kind(self) -> None:
        """A custom kind is applied, validated and listed by its short name."""
        columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
        _, group = await self.definition(additionalPrinterColumns=columns)

        async def discovered() -> bool:
            groups = (await self.call("GET", "/apis", accept=AGGREGATED))["items"]
            served = [each for one in groups if one["metadata"]["name"] == group for each in one["versions"]]
            return any(each["resources"] for each in served)

        # kubectl looks for the kind there, and a server lists it a moment after it serves it.
        await self.eventually(discovered, "the kind to be discovered")
        body = self.thing(group, "one", {"size": 4})
        self.assertIn("created", await self.kubectl("apply", "-f", await self.manifest(body)))
        lines = (await self.kubectl("get", f"things.{group}")).splitlines()
        self.assertEqual([line.split() for line in lines], [["NAME", "SIZE"], ["one", "4"]])
        wrong = await self.manifest(self.thing(group, "two", {"size": 4, "shape": "round"}))
        self.assertIn('unknown field "spec.shape"', await self.kubectl("apply", "-f", wrong, code=1))

    async def test_create(self) -> None:
        """What kubectl creates from its command line is created, whatever encoding it chooses."""
        name = self.unique("made")
        self.leave(f"/api/v1/namespaces/{name}")
        for words, said in (
            (f"namespace {name}", f"namespace/{name} created"),
            ("configmap c --from-literal=k=v", "configmap/c created"),
            ("secret generic s --from-literal=k=v", "secret/s created"),
            ("serviceaccount robot", "serviceaccount/robot created"),
            ("deployment d --image=busybox:1 --replicas=0 --port=80", "deployment.apps/d created"),
            ("role r --verb=get,list --resource=pods", "role.rbac.authorization.k8s.io/r created"),
            ("rolebinding b --role=r --user=somebody", "rolebinding.rbac.authorization.k8s.io/b created"),
        ):
            self.assertIn(said, await self.kubectl("create", *words.split()))
        self.assertEqual((await self.call("GET", f"{self.space}/secrets/s"))["data"], {"k": "dg=="})
        made = await self.call("GET", f"/apis/apps/v1/namespaces/{self.namespace}/deployments/d")
        self.assertEqual(made["spec"]["replicas"], 0)
        self.assertEqual(made["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"], 80)
        token = (await self.kubectl("create", "token", "robot")).strip()
        self.assertEqual(token.count("."), 2)

    async def test_auth_can_i(self) -> None:
        """Rights are asked for."""
        self.assertIn("yes", await self.kubectl("auth", "can-i", "create", "pods"))
        self.assertIn("no", await self.kubectl("auth", "can-i", "create", "pods", "--as=somebody", code=1))

    async def test_label_annotate_cordon(self) -> None:
        """Labels and cordons are set by kubectl."""
        await self.config_map("a")
        self.assertIn("labeled", await self.kubectl("label", "configmap", "a", "x=y"))
        self.assertIn("a ", await self.kubectl("get", "configmap", "-l", "x=y"))
        node = await self.node()
        self.assertIn("cordoned", await self.kubectl("cordon", node))
        self.assertIn("SchedulingDisabled", await self.kubectl("get", "node", node))
