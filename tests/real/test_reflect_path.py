"""Reflection by whole daemons, on two real clusters with real containers: what an offloaded pod finds where it runs."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

from liqod.model.names import remote_namespace
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
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
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed

APP = "web"


def namespaced(kind: str, name: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    """Return an object of the offloaded namespace."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **fields}


def _none_of(cluster: Cluster, kind: str, namespace: str) -> bool:
    return not cluster.get(kind, "-n", namespace)["items"]


class ReflectionPathTests(PairTests):
    """One walk; the tests are its steps, in the order of their numbers."""

    @property
    def remote(self) -> str:
        """The namespace at milan."""
        return remote_namespace(NAMESPACE, peer_of(self.milan.cluster, "rome")["metadata"]["name"])

    def at_milan(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object of the remote namespace."""
        return dict(self.milan.cluster.get(kind, name, "-n", self.remote))

    def test_1_configuration(self) -> None:
        """An offloaded container has its config maps and secrets, as environment and as files, also optional ones."""
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        body = deployment(APP, 2)
        (container,) = body["spec"]["template"]["spec"]["containers"]
        container["command"] = ["sh", "-c", "echo got $A $B $(cat /conf/c) $(cat /keys/d); while :; do sleep 1; done"]
        container["env"] = [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "key", "key": "b"}}},
            {"name": "Z", "valueFrom": {"secretKeyRef": {"name": "nowhere", "key": "z", "optional": True}}},
        ]
        container["volumeMounts"] = [{"name": "conf", "mountPath": "/conf"}, {"name": "keys", "mountPath": "/keys"}]
        body["spec"]["template"]["spec"]["volumes"] = [
            {"name": "conf", "configMap": {"name": "conf"}},
            {"name": "keys", "secret": {"secretName": "key"}},
        ]
        secret = {key: base64.b64encode(value.encode()).decode() for key, value in (("b", "bravo"), ("d", "delta"))}
        self.rome.cluster.apply(
            enabled_namespace(),
            namespaced("ConfigMap", "conf", data={"a": "alpha", "c": "charlie"}),
            namespaced("Secret", "key", data=secret),
            body,
        )
        eventually("two pods run", lambda: offloaded(self.rome.cluster, self.milan.cluster, APP, 2), 120)
        for name in live_pods(self.milan.cluster, APP):
            said = self.milan.cluster.kubectl("logs", "-n", self.remote, name)
            self.assertIn("got alpha bravo charlie delta", said)

    def test_2_service(self) -> None:
        """A service has its offloaded pods from its own cluster there, and those at home by a reflected slice."""
        at_home = namespaced(
            "Pod",
            "at-home",
            spec={
                "nodeName": self.rome.cluster.node_name,
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "main",
                        "image": "localhost/busybox:1",
                        "imagePullPolicy": "Never",
                        "command": ["sh", "-c", "while :; do sleep 1; done"],
                    }
                ],
            },
        )
        at_home["metadata"]["labels"] = {"app": APP}
        service = namespaced("Service", APP, spec={"selector": {"app": APP}, "ports": [{"port": 80}]})
        self.rome.cluster.apply(service, at_home)
        pod = eventually(
            "the pod at home runs",
            lambda: next((p for p in live_pods(self.rome.cluster, APP).values() if is_running(p)
                          and p["metadata"]["name"] == "at-home"), None),
        )  # fmt: skip
        remote_pods = live_pods(self.milan.cluster, APP).values()
        wanted = {pod["status"]["podIP"]: "home", **{p["status"]["podIP"]: "there" for p in remote_pods}}
        self.assertEqual(len(wanted), 3)

        def endpoints() -> dict[str, str]:
            found = {}
            slices = self.milan.cluster.get(
                "endpointslices", "-n", self.remote, "-l", f"kubernetes.io/service-name={APP}"
            )
            for each in slices["items"]:
                by = each["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
                for endpoint in each.get("endpoints") or ():
                    (address,) = endpoint["addresses"]
                    found[address] = "home" if by == "endpointslice.reflection.liqo.io" else "there"
            return found

        eventually("all three are endpoints at milan, each once", lambda: endpoints() == wanted)
        self.rome.cluster.kubectl("delete", "pod", "-n", NAMESPACE, "at-home")
        eventually("the pod at home is no endpoint any more", lambda: "home" not in endpoints().values())
        self.assertNotEqual(
            self.at_milan("service", APP)["spec"]["clusterIP"],
            self.rome.cluster.get("service", APP, "-n", NAMESPACE)["spec"]["clusterIP"],
        )

    def test_3_daemons_away(self) -> None:
        """What the borrower reflected stays while its daemon is away, and is brought up to date when it is back."""
        before = self.at_milan("configmap", "conf")
        self.rome.kill()
        changed = namespaced("ConfigMap", "conf", data={"a": "another"})
        self.rome.cluster.apply(changed, namespaced("ConfigMap", "new", data={"n": "1"}))
        self.rome.cluster.kubectl("delete", "secret", "-n", NAMESPACE, "key")
        self.assertEqual(self.at_milan("configmap", "conf"), before)
        self.rome.start()
        eventually("the change is there", lambda: self.at_milan("configmap", "conf")["data"] == {"a": "another"})
        eventually("the new one is there", lambda: self.at_milan("configmap", "new")["data"] == {"n": "1"})

        def key_is_gone() -> bool:
            try:
                self.at_milan("secret", "key")
            except CommandFailed as error:
                return "NotFound" in error.output
            return False

        eventually("the deleted one is gone", key_is_gone)

    def test_4_refused(self) -> None:
        """An object that the lender refuses says so at home, with the lender's words; others go on."""
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": self.remote}}
        count = len(self.milan.cluster.get("configmaps", "-n", self.remote)["items"])
        self.milan.cluster.apply({**quota, "spec": {"hard": {"count/configmaps": str(count)}}})
        eventually("the quota counts", lambda: self.at_milan("resourcequota", "few")["status"].get("used"))
        self.rome.cluster.apply(namespaced("ConfigMap", "too-much"), namespaced("Secret", "fine"))
        eventually("others go on", lambda: self.at_milan("secret", "fine"))

        def reported() -> bool:
            field = "--field-selector=involvedObject.name=too-much"
            return "exceeded quota" in self.rome.cluster.kubectl("get", "events", "-n", NAMESPACE, field)

        eventually("the event has the lender's words", reported)
        self.milan.cluster.kubectl("delete", "resourcequota", "-n", self.remote, "few")
        eventually("it goes when there is room", lambda: self.at_milan("configmap", "too-much"))

    def test_5_tokens(self) -> None:
        """An offloaded pod speaks to its own cluster's API server, with its account's rights, until it is gone."""
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
        group = "rbac.authorization.k8s.io"
        body = deployment("caller", 1)
        body["spec"]["template"]["spec"]["serviceAccountName"] = "caller"
        self.rome.cluster.apply(
            namespaced("ServiceAccount", "caller"),
            namespaced("Role", "caller", f"{group}/v1", rules=rules),
            namespaced(
                "RoleBinding",
                "caller",
                f"{group}/v1",
                roleRef={"apiGroup": group, "kind": "Role", "name": "caller"},
                subjects=[{"kind": "ServiceAccount", "name": "caller", "namespace": NAMESPACE}],
            ),
            body,
        )
        pods = eventually("it runs", lambda: offloaded(self.rome.cluster, self.milan.cluster, "caller", 1), 120)
        (pod,) = pods

        def inside(script: str) -> str:
            return self.milan.cluster.kubectl("exec", "-n", self.remote, pod, "--", "sh", "-c", script).strip()

        place = "/var/run/secrets/kubernetes.io/serviceaccount"
        token, port = inside(f"cat {place}/token"), inside("echo $KUBERNETES_SERVICE_PORT")
        self.assertEqual(inside(f"cat {place}/namespace"), NAMESPACE)
        self.assertEqual(inside("echo $KUBERNETES_SERVICE_HOST"), "kubernetes.default")
        address = inside("grep kubernetes.default /etc/hosts").split()[0]
        self.assertEqual(inside(f"nc -w 5 {address} {port} </dev/null && echo reached"), "reached")
        authority = self.milan.cluster.directory / "home-ca.crt"
        authority.write_text(inside(f"cat {place}/ca.crt"))

        def ask(path: str) -> str:
            """Ask rome's API server as the pod does, from milan's network."""
            url = f"https://kubernetes.default:{port}/api/v1/namespaces/{NAMESPACE}/{path}"
            way = ["--cacert", str(authority), "--resolve", f"kubernetes.default:{port}:{address}"]
            head = f"Authorization: Bearer {token}"
            return self.milan.cluster.run(["curl", "-s", "-w", "%{http_code}", *way, "-H", head, url])

        answer = ask("configmaps/conf")
        self.assertIn('"another"', answer)
        self.assertTrue(answer.endswith("200"))
        self.assertTrue(ask("secrets").endswith("403"))
        for daemon in (self.rome, self.milan):
            self.assertNotIn(token, daemon.log.read_text())
        self.rome.cluster.kubectl("delete", "deployment", "-n", NAMESPACE, "caller")

        def no_secret() -> bool:
            held = self.milan.cluster.get("secrets", "-n", self.remote)["items"]
            return all("caller" not in each["metadata"]["name"] for each in held)

        eventually("its tokens are gone at milan", no_secret)
        eventually("its token is worth nothing", lambda: ask("configmaps/conf").endswith("401"))

    def test_6_storage(self) -> None:
        """Data is made where the first pod runs; a later pod with the claim finds it there; it goes with the claim."""
        for daemon in (self.rome, self.milan):
            note = {"storageclass.kubernetes.io/is-default-class": "true"}
            directory = daemon.cluster.directory / "volume"
            daemon.cluster.apply(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": f"disks-{daemon.name}", "annotations": note},
                    "provisioner": "kubernetes.io/no-provisioner",
                },
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": "disk"},
                    "spec": {
                        "storageClassName": f"disks-{daemon.name}",
                        "capacity": {"storage": "1Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "persistentVolumeReclaimPolicy": "Retain",
                        "hostPath": {"path": str(directory), "type": "DirectoryOrCreate"},
                    },
                },
            )
        peer = peer_of(self.rome.cluster, "milan")["metadata"]["name"]

        def offered() -> bool:
            known = self.rome.cluster.get("adv", f"advertisement-{peer}")
            return bool(known["spec"]["offer"].get("storageClasses") == ["disks-milan"])

        eventually("milan offers its class, and not the virtual one", offered)
        for name, selector in (("lent", {"liqo.io/type": "virtual-node"}), ("local", {"kubernetes.io/os": "linux"})):
            body = deployment(name, 1)
            spec = body["spec"]["template"]["spec"]
            spec["nodeSelector"] = selector
            if name == "local":
                off = {"key": "liqo.io/type", "operator": "DoesNotExist"}
                term = {"nodeSelectorTerms": [{"matchExpressions": [off]}]}
                spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
            (container,) = spec["containers"]
            script = f"echo found $(cat /data/x); echo {name} > /data/x; while :; do sleep 1; done"
            container["command"] = ["sh", "-c", script]
            container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
            claim = {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "liqo",
                "resources": {"requests": {"storage": "1Gi"}},
            }
            self.rome.cluster.apply(namespaced("PersistentVolumeClaim", name, spec=claim), body)
        eventually("the one runs at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, "lent", 1), 120)
        at_home = partial(live_pods, self.rome.cluster, "local")
        eventually("the other runs at rome", lambda: [p for p in at_home().values() if is_running(p)], 120)
        self.assertEqual(live_pods(self.milan.cluster, "local"), {})
        there = self.at_milan("pvc", "lent")
        self.assertEqual((there["spec"]["storageClassName"], there["spec"]["volumeName"]), ("disks-milan", "disk"))
        self.assertEqual((self.milan.cluster.directory / "volume" / "x").read_text(), "lent\n")
        self.assertEqual((self.rome.cluster.directory / "volume" / "x").read_text(), "local\n")
        (first,) = live_pods(self.rome.cluster, "lent")
        self.rome.cluster.kubectl("delete", "pod", "-n", NAMESPACE, first)

        def again() -> bool:
            pods = offloaded(self.rome.cluster, self.milan.cluster, "lent", 1)
            if not pods or first in pods:
                return False
            said = self.milan.cluster.kubectl("logs", "-n", self.remote, *pods)
            return "found lent" in said

        eventually("the next pod finds the data", again, 120)
        for name in ("lent", "local"):
            self.rome.cluster.kubectl("delete", "deployment,pvc", "-n", NAMESPACE, name, "--wait=false")
        for cluster, where in ((self.milan.cluster, self.remote), (self.rome.cluster, "liqo-storage")):
            no_claims = partial(_none_of, cluster, "pvc", where)
            eventually(f"the claim is gone in {where}", no_claims)
        volumes = partial(self.rome.cluster.get, "pv")
        eventually("the volumes are gone", lambda: [v["metadata"]["name"] for v in volumes()["items"]] == ["disk"])
