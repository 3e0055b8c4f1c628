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
from tests.testbed.process import CommandFailed

APP = "web"


def namespaced(kind: str, name: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    """Return an object of the offloaded namespace."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **fields}


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

        def told() -> bool:
            field = "--field-selector=involvedObject.name=too-much"
            return "exceeded quota" in self.rome.cluster.kubectl("get", "events", "-n", NAMESPACE, field)

        eventually("the event has the lender's words", told)
        self.milan.cluster.kubectl("delete", "resourcequota", "-n", self.remote, "few")
        eventually("it goes when there is room", lambda: self.at_milan("configmap", "too-much"), 90)
