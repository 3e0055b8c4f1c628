"""What the specification says of namespaces and of what is reflected, sentence by sentence, on two real clusters.

``docs/conformance.md`` names the sentence that each step shows.
"""

from __future__ import annotations

import base64
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from liqod.model.names import tenant_namespace
from tests.real.counts import writes
from tests.real.manifests import pod
from tests.real.path import NAMESPACE, deployment, enabled_namespace, eventually, offloaded, peer_of, virtual_node
from tests.real.steps import SETTINGS, VIRTUAL, Steps

REFLECTED = "endpointslice.reflection.liqo.io"
KINDS = ("configmap", "secret", "service", "ingress")
# Changes one endpoint slice again and again: the arguments are the number of changes and what the last one sets.
STORM = """
import json, ssl, sys, http.client
server, ca, certificate, key, path, count = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(certificate, key)
connection = http.client.HTTPSConnection(server, 6443, context=context)
for number in range(1, int(count) + 1):
    body = {"endpoints": [{"addresses": [f"192.0.2.{number % 250 + 1}"], "conditions": {"ready": True}}]}
    headers = {"Content-Type": "application/merge-patch+json"}
    connection.request("PATCH", path, json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
"""


def made(kind: str, name: str, version: str = "v1", *, namespace: str = NAMESPACE, **fields: Any) -> dict[str, Any]:
    """Return an object; ``labels`` and ``annotations`` go to its metadata."""
    meta = {key: fields.pop(key) for key in ("labels", "annotations") if key in fields}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace, **meta}, **fields}


def slice_of(name: str, service: str, address: str, **fields: Any) -> dict[str, Any]:
    """Return an endpoint slice that a user makes for a service without selector."""
    labels = {"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "me"}
    return made(
        "EndpointSlice",
        name,
        "discovery.k8s.io/v1",
        labels=labels,
        addressType="IPv4",
        endpoints=[{"addresses": [address], "conditions": {"ready": True}}],
        ports=[{"name": "p", "port": 80, "protocol": "TCP"}],
        **fields,
    )


def ingress(name: str, **fields: Any) -> dict[str, Any]:
    """Return an ingress of a class that only the home cluster has."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    spec = {"ingressClassName": "mine", "rules": [{"host": "example.com", "http": {"paths": [path]}}]}
    return made("Ingress", name, "networking.k8s.io/v1", spec=spec, **fields)


class ReflectionTests(Steps):
    """One walk; the tests are its steps, in the order of their numbers."""

    def test_01_namespaces(self) -> None:
        """A namespace is translated when its first pod is scheduled, made at the lender, and then reflected."""
        self.peer_up()
        for name in (NAMESPACE, "other", "idle"):
            self.home.apply(enabled_namespace(name), made("ConfigMap", "conf", namespace=name, data={"n": name}))
        for name in (NAMESPACE, "other"):
            self.make("web", namespace=name, labels={"app": "web"})
        for name in (NAMESPACE, "other"):
            self.runs("web", name)
            self.assertEqual(self.lender.get("namespace", self.remote(name))["status"]["phase"], "Active")
            there = partial(self.there, "configmap", "conf", name)
            eventually("it is reflected", lambda there=there, name=name: there()["data"] == {"n": name})  # type: ignore[misc]
        (table,) = self.home.get("nnt")["items"]
        forward = {name: self.remote(name) for name in (NAMESPACE, "other")}
        self.assertEqual(table["metadata"]["name"], peer_of(self.home, "milan")["metadata"]["name"])
        self.assertEqual(table["spec"]["nattingTable"], forward)
        self.assertEqual(forward["other"], f"other-{peer_of(self.lender, 'rome')['metadata']['name']}")
        self.assertTrue(self.is_absent(self.lender, "namespace", self.remote("idle")))

    def test_02_verbatim(self) -> None:
        """Config maps and secrets of any type arrive as they are, follow changes, and go when they go."""
        text = base64.b64encode(b"\x00\xff").decode()
        config = made("ConfigMap", "data", data={"a": "1"}, binaryData={"b": text}, labels={"app": "x"})
        basic = {"username": "dQ==", "password": "cA=="}
        self.home.apply(
            config,
            made("Secret", "opaque", data={"k": text}),
            made("Secret", "basic", type="kubernetes.io/basic-auth", data=basic),
        )
        eventually("the config map", lambda: self.there("configmap", "data"))
        for kind, name in (("configmap", "data"), ("secret", "opaque"), ("secret", "basic")):
            there = eventually(name, lambda kind=kind, name=name: self.there(kind, name))  # type: ignore[misc]
            here = self.here(kind, name)
            for field in ("data", "binaryData", "type", "immutable"):
                self.assertEqual(there.get(field), here.get(field), (name, field))
        self.assertEqual(self.there("configmap", "data")["metadata"]["labels"]["app"], "x")
        self.home.apply({**config, "data": {"a": "2"}})
        eventually("the change", lambda: self.there("configmap", "data")["data"] == {"a": "2"})
        self.drop("secret/opaque")
        eventually("it goes", lambda: self.is_absent(self.lender, "secret", "opaque", self.remote()))

    def test_03_services(self) -> None:
        """Services arrive without addresses and node ports of home; a node port travels where it is annotated."""
        ports = [{"name": "http", "port": 80, "targetPort": 8080}]
        spec: dict[str, Any] = {"selector": {"app": "web"}, "ports": ports}
        outside = {"type": "NodePort", **spec}
        forced = {**outside, "ports": [{**ports[0], "nodePort": 31789}]}
        balanced = {**spec, "type": "LoadBalancer", "loadBalancerIP": "192.0.2.9", "sessionAffinity": "ClientIP"}
        force = {"liqo.io/force-remote-node-port": "true"}
        self.home.apply(
            made("Service", "web", spec=spec),
            made("Service", "outside", spec=outside),
            made("Service", "forced", spec=forced, annotations=force),
            made("Service", "balanced", spec=balanced),
            made("Service", "headless", spec={**spec, "clusterIP": "None"}),
            made("Service", "far", spec={"type": "ExternalName", "externalName": "example.com"}),
        )
        for name in ("web", "outside", "forced", "balanced", "headless", "far"):
            there = eventually(name, lambda name=name: self.there("service", name))["spec"]  # type: ignore[misc]
            here = self.here("service", name)["spec"]
            for field in ("type", "selector", "externalName", "sessionAffinity"):
                self.assertEqual(there.get(field), here.get(field), (name, field))
            for one, two in zip(there.get("ports", ()), here.get("ports", ()), strict=True):
                self.assertEqual(
                    [one[k] for k in ("name", "port", "targetPort")], [two[k] for k in ("name", "port", "targetPort")]
                )
            self.assertNotIn("loadBalancerIP", there)
            if name not in ("headless", "far"):
                self.assertNotEqual(there["clusterIP"], here["clusterIP"])
        self.assertEqual(self.there("service", "headless")["spec"]["clusterIP"], "None")
        node_port = {
            name: self.there("service", name)["spec"]["ports"][0]["nodePort"] for name in ("outside", "forced")
        }
        self.assertEqual(node_port["forced"], 31789)
        self.assertNotEqual(node_port["outside"], self.here("service", "outside")["spec"]["ports"][0]["nodePort"])

    def test_04_replicas_in_both(self) -> None:
        """With replicas in both clusters, each cluster's slices have every pod of the service exactly once."""
        here, there = deployment("both-here", 2), deployment("both-there", 2)
        here["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.home.node_name}
        for body in (here, there):
            body["spec"]["template"]["metadata"]["labels"]["set"] = "both"
        service = made("Service", "both", spec={"selector": {"set": "both"}, "ports": [{"port": 80}]})
        self.home.apply(here, there, service)
        eventually("two run there", lambda: offloaded(self.home, self.lender, "both-there", 2))

        def running() -> list[dict[str, Any]]:
            pods = self.home.get("pods", "-n", NAMESPACE, "-l", "set=both")["items"]
            return pods if len(pods) == 4 and all(one["status"].get("podIP") for one in pods) else []

        pods = eventually("all four have addresses", running)
        expected = sorted(one["status"]["podIP"] for one in pods)
        at_home = {one["status"]["podIP"] for one in pods if one["spec"]["nodeName"] == self.home.node_name}

        def endpoints(namespace: str, cluster: Any) -> list[tuple[str, bool]]:
            label = "kubernetes.io/service-name=both"
            return sorted(
                (address, each["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == REFLECTED)
                for each in cluster.get("endpointslices", "-n", namespace, "-l", label)["items"]
                for endpoint in each.get("endpoints") or ()
                for address in endpoint["addresses"]
            )

        local, remote = [(a, False) for a in expected], [(a, a in at_home) for a in expected]
        eventually("home has all by its own control plane", lambda: endpoints(NAMESPACE, self.home) == local)
        eventually("the lender has the others by reflection", lambda: endpoints(self.remote(), self.lender) == remote)
        self.drop("deployment/both-here", "deployment/both-there", "service/both")

    def test_05_ingresses(self) -> None:
        """The class at home counts for nothing: an ingress gets the lender's default one, or the first offered one that
        the namespace allows.
        """
        default = {"ingressclass.kubernetes.io/is-default-class": "true"}
        one = {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "spec": {"controller": "example.com/x"}}
        self.lender.apply({**one, "metadata": {"name": "theirs", "annotations": default}})
        self.home.apply({**one, "metadata": {"name": "mine"}}, ingress("entry"))
        there = eventually("the ingress", lambda: self.there("ingress", "entry"))
        here = self.here("ingress", "entry")
        self.assertEqual(there["spec"]["rules"], here["spec"]["rules"])
        self.assertEqual((here["spec"]["ingressClassName"], there["spec"]["ingressClassName"]), ("mine", "theirs"))
        self.lender.apply({**one, "metadata": {"name": "aside"}})
        spec = {"ingressClasses": ["aside"]}
        record = made("NamespaceOffloading", "offloading", "offloading.liqo.io/v1beta1", spec=spec)
        self.home.apply(record, ingress("side"))
        there = eventually("the ingress of another class", lambda: self.there("ingress", "side"))
        self.assertEqual(there["spec"]["ingressClassName"], "aside")
        self.assertEqual(self.there("ingress", "entry")["spec"]["ingressClassName"], "theirs")
        self.drop("ingress/side", "namespaceoffloading/offloading")

    def test_06_deny_list(self) -> None:
        """Without settings everything is reflected, but for what is annotated to be skipped."""
        skip = {"liqo.io/skip-reflection": "true"}
        self.home.apply(*self._one_of_each("skipped", skip), *self._one_of_each("plain", {}))
        for kind in KINDS:
            eventually(f"the {kind}", lambda kind=kind: self.there(kind, f"{kind}-plain"))  # type: ignore[misc]
        for kind in KINDS:
            self.stays("skipped", lambda kind=kind: self.is_there_not(kind, f"{kind}-skipped"), 1.0)  # type: ignore[misc]

    def is_there_not(self, kind: str, name: str) -> bool:
        """Tell whether an object is missing in the remote namespace."""
        return self.is_absent(self.lender, kind, name, self.remote())

    def _one_of_each(self, name: str, annotations: dict[str, str]) -> list[dict[str, Any]]:
        return [
            made("ConfigMap", f"configmap-{name}", annotations=annotations),
            made("Secret", f"secret-{name}", annotations=annotations),
            made("Service", f"service-{name}", spec={"ports": [{"port": 80}]}, annotations=annotations),
            ingress(f"ingress-{name}", annotations=annotations),
        ]

    def test_07_slices_follow_their_service(self) -> None:
        """A slice is reflected as its service is, unless it is annotated itself."""
        self.home.apply(
            slice_of("follows", "service-plain", "192.0.2.1"),
            slice_of("stays", "service-skipped", "192.0.2.2"),
        )
        skipped, allowed = (
            slice_of("skips", "service-plain", "192.0.2.3"),
            slice_of("goes", "service-skipped", "192.0.2.4"),
        )
        skipped["metadata"]["annotations"] = {"liqo.io/skip-reflection": "true"}
        allowed["metadata"]["annotations"] = {"liqo.io/allow-reflection": "true"}
        self.home.apply(skipped, allowed)
        for name in ("follows", "goes"):
            eventually(f"the slice {name}", lambda name=name: self.there("endpointslice", name))  # type: ignore[misc]
        for name in ("stays", "skips"):
            self.stays("kept back", lambda name=name: self.is_there_not("endpointslice", name), 1.0)  # type: ignore[misc]

    def test_08_storm(self) -> None:
        """However often a slice changes, it is written to the lender at most twice a second, and at last as it is."""
        resources = ("shadowendpointslices", "endpointslices")
        before, count = writes(self.lender, *resources), 300
        d = self.home.directory
        path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/follows"
        argv = [self.home.address, *(str(d / name) for name in ("ca.crt", "admin.crt", "admin.key")), path, str(count)]
        took = float(
            self.home.run(
                [
                    sys.executable,
                    "-c",
                    f"import time; t = time.monotonic()\n{STORM}\nprint(time.monotonic() - t)",
                    *argv,
                ]
            )
        )
        last = f"192.0.2.{count % 250 + 1}"

        def arrived() -> bool:
            return bool(self.there("endpointslice", "follows")["endpoints"][0]["addresses"] == [last])

        eventually("the last state", arrived)
        more = writes(self.lender, *resources) - before
        most = 2 * took + 3
        for resource in resources:
            written = sum(number for (_, each), number in more.items() if each == resource)
            self.assertLessEqual(written, most, (resource, took, more))

    def test_09_requests_follow_changes(self) -> None:
        """What is written to the lender is what changed, one request each; with nothing changed there is nothing."""
        kinds = ("configmaps", "secrets", "services", "ingresses", "shadowendpointslices", "shadowpods", "pods")

        def quiet() -> bool:
            before = writes(self.lender, *kinds)
            self.stays("", lambda: True, 3.0)
            return writes(self.lender, *kinds) == before

        eventually("nothing is written", quiet)
        before = writes(self.lender, *kinds)
        self.home.apply(
            *(made("ConfigMap", f"many-{n}", namespace=ns) for n in range(5) for ns in (NAMESPACE, "other"))
        )
        for name in (NAMESPACE, "other"):
            eventually("the last one", lambda name=name: self.there("configmap", "many-4", name))  # type: ignore[misc]
        eventually("all", lambda: len(self.lender.get("configmaps", "-n", self.remote("other"))["items"]) >= 6)
        self.assertEqual(writes(self.lender, *kinds) - before, {("POST", "configmaps"): 10})

    def test_10_events(self) -> None:
        """What happens to pods and reflected objects at the lender is reported at home, and nothing the other way."""

        def reported(kind: str, name: str, reason: str) -> bool:
            field = f"--field-selector=involvedObject.kind={kind},involvedObject.name={name},reason={reason}"
            events = self.home.get("events", "-n", NAMESPACE, field)["items"]
            return any("milan" in e["message"] or "at " in e["message"] for e in events)

        self.make("started")
        self.runs("started")
        eventually("its start is reported", lambda: reported("Pod", "started", "Started"))
        # As any kubelet's: tools select by this source.
        selected = "--field-selector=involvedObject.name=started,reason=Started,source=kubelet"
        (event,) = self.home.get("events", "-n", NAMESPACE, selected)["items"]
        node = virtual_node(self.home)["metadata"]["name"]
        self.assertEqual(event["source"], {"component": "kubelet", "host": node})
        for kind, name in (("ConfigMap", "data"), ("Secret", "basic"), ("Service", "web"), ("Ingress", "entry"),
                           ("EndpointSlice", "follows"), ("Deployment", "web")):  # fmt: skip
            about = {"kind": kind, "name": name, "namespace": self.remote()}
            event = {"reason": f"About{kind}", "message": "something", "type": "Warning", "involvedObject": about}
            self.lender.apply({"apiVersion": "v1", "kind": "Event", **event,
                               "metadata": {"name": f"{name}-{kind}".lower(), "namespace": self.remote()}})  # fmt: skip
        for kind, name in (("ConfigMap", "data"), ("Secret", "basic"), ("Service", "web"), ("Ingress", "entry"),
                           ("EndpointSlice", "follows")):  # fmt: skip
            eventually(f"about {kind}", lambda kind=kind, name=name: reported(kind, name, f"About{kind}"))  # type: ignore[misc]
        self.assertFalse(reported("Deployment", "web", "AboutDeployment"))
        about = {"kind": "ConfigMap", "name": "data", "namespace": NAMESPACE}
        local: dict[str, Any] = {
            "reason": "OnlyAtHome",
            "message": "something",
            "type": "Normal",
            "involvedObject": about,
        }
        self.home.apply(made("Event", "local", **local))
        events = "--field-selector=reason=OnlyAtHome"
        self.stays("not reported", lambda: not self.lender.get("events", "-A", events)["items"], 2.0)

    def test_11_labels_kept_back(self) -> None:
        """Labels and annotations of the settings are kept back, and those of a virtual node, also afterwards."""
        both = {"example.com/only-here": "1", "example.com/later": "2", "example.com/goes": "3"}
        self.home.apply(made("ConfigMap", "labelled", labels=both, annotations=both))

        def keys() -> tuple[set[str], set[str]]:
            meta = self.there("configmap", "labelled")["metadata"]
            found = [
                {key for key in meta[part] if key.startswith("example.com/")} for part in ("labels", "annotations")
            ]
            return found[0], found[1]

        usual = {"example.com/later", "example.com/goes"}
        eventually("those of the settings are kept back", lambda: keys() == (usual, usual))
        peer = peer_of(self.home, "milan")["metadata"]["name"]
        patch = partial(self.home.kubectl, "patch", "vn", peer, "-n", tenant_namespace(peer), "--type=merge", "-p")
        later = {"labelsNotReflected": ["example.com/later"], "annotationsNotReflected": ["example.com/goes"]}
        patch(json.dumps({"spec": {"offloadingPatch": later}}))
        eventually("the object that is there follows", lambda: keys() == ({"example.com/goes"}, {"example.com/later"}))
        patch(json.dumps({"spec": {"offloadingPatch": None}}))
        eventually("and back", lambda: keys() == (usual, usual))

    def test_12_allow_list(self) -> None:
        """Set to AllowList, a kind is reflected only where annotated, slices as their services, other kinds as before.

        Other labels to be kept back are applied to the objects that are there.
        """
        allowed = {"liqo.io/allow-reflection": "true"}
        other_labels = SETTINGS.replace("only-here", "goes")
        listed = ("secret", "service", "ingress")
        lists = "".join(f'[reflection.{kind}]\ntype = "AllowList"\n\n' for kind in listed)
        self.restart_with(f"{other_labels}\n{lists}")
        self.home.apply(*self._one_of_each("allowed", allowed), *self._one_of_each("new", {}))
        self.home.apply(
            slice_of("of-allowed", "service-allowed", "192.0.2.5"),
            slice_of("of-new", "service-new", "192.0.2.6"),
        )
        for kind in KINDS:
            eventually(f"the {kind}", lambda kind=kind: self.there(kind, f"{kind}-allowed"))  # type: ignore[misc]
        eventually("any config map", lambda: self.there("configmap", "configmap-new"))
        eventually("the slice of the allowed service", lambda: self.there("endpointslice", "of-allowed"))
        eventually("what is not allowed any more goes", lambda: self.is_there_not("secret", "secret-plain"))
        for kind, name in (*((kind, f"{kind}-new") for kind in listed), ("endpointslice", "of-new")):
            self.assertTrue(self.is_there_not(kind, name), name)
        labels = partial(self.there, "configmap", "labelled")
        eventually("the label of before goes", lambda: "example.com/only-here" in labels()["metadata"]["labels"])
        self.assertNotIn("example.com/goes", labels()["metadata"]["labels"])

    def test_13_workers(self) -> None:
        """A kind with no workers is not reflected, others with one are; with the usual settings everything goes."""
        self.restart_with(f"{SETTINGS}\n[reflection.secret]\nworkers = 0\n\n[reflection.configmap]\nworkers = 1\n")
        self.home.apply(*self._one_of_each("late", {}))
        for kind in ("configmap", "service", "ingress"):
            eventually(f"the {kind}", lambda kind=kind: self.there(kind, f"{kind}-late"))  # type: ignore[misc]
        self.stays("no secret goes", lambda: self.is_there_not("secret", "secret-late"), 2.0)
        self.restart_with(SETTINGS)
        for kind in ("secret", "service", "ingress"):
            eventually(f"the {kind}", lambda kind=kind: self.there(kind, f"{kind}-new"))  # type: ignore[misc]
        eventually("the late secret", lambda: self.there("secret", "secret-late"))

    def restart_with(self, extra: str) -> None:
        """Start rome's daemon again with other settings."""
        self.rome.stop()
        text = self.rome.config.read_text()
        head = text[: text.index("[sharing]")]
        self.rome.config.write_text(head + extra.lstrip())
        self.rome.start()

    def test_14_pods_have_no_policy(self) -> None:
        """Pods, claims and service accounts follow rules of their own: nothing gives them a policy."""
        problems = {
            "secret": "must be a table with the keys type, workers",
            "pod": "is not a setting",
            "persistentvolumeclaim": "must be a table with the keys workers",
            "serviceaccount": "must be a table with the keys workers",
        }
        for kind, problem in problems.items():
            said = self._refused(f'{self.rome.config.read_text()}\n[reflection.{kind}]\ntype = "No"\n')
            (line,) = [line for line in said.splitlines() if f"reflection.{kind}" in line]
            # What else is known here follows after a semicolon, and names every kind.
            self.assertTrue(line.partition(";")[0].endswith(problem), line)
        self.make("skipped", annotations={"liqo.io/skip-reflection": "true"})
        self.runs("skipped")
        self.assertEqual(self.there("pod", "skipped")["status"]["phase"], "Running")
        self.drop("pod/skipped")

    def _refused(self, settings: str) -> str:
        """Return what a daemon prints that has these settings, and ends for them."""
        wrong = Path(self.rome.directory / "wrong.toml")
        wrong.write_text(settings)
        twistd = str(Path(sys.executable).with_name("twistd"))
        argv = [
            twistd,
            "--nodaemon",
            "--pidfile=",
            "--reactor=asyncio",
            f"--rundir={self.rome.directory}",
            "liqod",
            f"--config={wrong}",
        ]
        said = self.home.run(["sh", "-c", '"$@" 2>&1; echo "ended with $?"', "sh", *argv])
        self.assertIn("ended with 2", said.splitlines())
        return said

    def test_15_namespace_ends(self) -> None:
        """A namespace that is not enabled any more loses its remote namespace and its translation; others stay."""
        self.drop("pod/web", namespace="other")
        self.home.kubectl("label", "namespace", "other", "liqo.io/enabled-")
        eventually("it is gone at the lender", lambda: self.is_absent(self.lender, "namespace", self.remote("other")))
        eventually(
            "it is not translated", lambda: set(self.home.get("nnt")["items"][0]["spec"]["nattingTable"]) == {NAMESPACE}
        )
        self.assertEqual(self.here("configmap", "conf", "other")["data"], {"n": "other"})
        self.assertEqual(self.there("configmap", "conf")["data"], {"n": NAMESPACE})

    def test_16_storage(self) -> None:
        """A claim goes to the lender with its first pod and gets storage there; its volume keeps later pods there."""
        self._disk(self.lender)
        claim = made("PersistentVolumeClaim", "data", spec=_claim_spec("liqo"), labels={"app": "x"})
        self.home.apply(claim)
        mount = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        body = self._using("writer", mount, "echo kept > /data/file; exec sleep 1000")
        body["spec"]["nodeSelector"] = VIRTUAL
        eventually("the class at home", lambda: self.home.get("storageclass", "liqo"))
        eventually("storage is offered", self._offered)
        self.home.apply(body)
        self.runs("writer")
        here, there = self.here("pvc", "data"), self.there("pvc", "data")
        self.assertEqual((here["spec"]["storageClassName"], there["spec"]["storageClassName"]), ("liqo", "disk"))
        for field in ("accessModes", "resources", "volumeMode"):
            self.assertEqual(there["spec"][field], here["spec"][field], field)
        self.assertEqual(there["metadata"]["labels"]["app"], "x")
        self.assertEqual((here["status"]["phase"], there["status"]["phase"]), ("Bound", "Bound"))
        self.assertEqual(there["spec"]["volumeName"], "disk-1")
        volume = self.home.get("pv", here["spec"]["volumeName"])
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (wanted,) = term["matchExpressions"]
        self.assertIn(virtual_node(self.home)["metadata"]["labels"][wanted["key"]], wanted["values"])

    def _disk(self, cluster: Any) -> None:
        """Give a cluster a class of storage and two volumes of it, directories of its node."""
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.node_name]}
        cluster.apply(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "disk", "annotations": default},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
            *(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": name},
                    "spec": {
                        "capacity": {"storage": size},
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "disk",
                        "persistentVolumeReclaimPolicy": "Retain",
                        "hostPath": {"path": str(cluster.directory / name), "type": "DirectoryOrCreate"},
                        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
                    },
                }
                for name, size in (("disk-1", "1Gi"), ("disk-2", "2Gi"))
            ),
        )

    def _offered(self) -> bool:
        peer = peer_of(self.home, "milan")["metadata"]["name"]
        return "disk" in json.dumps(self.home.get("adv", f"advertisement-{peer}")["spec"]["offer"])

    def _using(self, name: str, volume: dict[str, Any], script: str) -> dict[str, Any]:
        body = pod(name, ["sh", "-c", script], namespace=NAMESPACE, volumes=[volume])
        body["spec"]["containers"][0]["volumeMounts"] = [{"name": volume["name"], "mountPath": "/data"}]
        return body

    def test_17_later_pods(self) -> None:
        """A later pod with the claim is scheduled on the virtual node, without asking for it, and finds the data.

        A volume that lives as long as its pod is storage at the lender, too.
        """
        self.drop("pod/writer")
        spec = {**_claim_spec("liqo"), "resources": {"requests": {"storage": "2Gi"}}}
        scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
        passing = self._using("passing", scratch, "echo x > /data/file && exec sleep 1000")
        passing["spec"]["nodeSelector"] = VIRTUAL
        self.home.apply(passing)
        self.runs("passing")
        self.assertEqual(self.there("pvc", "passing-scratch")["spec"]["volumeName"], "disk-2")
        self.drop("pod/passing")
        eventually("its claim goes", lambda: self.is_absent(self.lender, "pvc", "passing-scratch", self.remote()))
        mount = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        self.home.apply(self._using("reader", mount, "exec sleep 1000"))
        self.assertEqual(self.runs("reader")["spec"]["nodeName"], "liqo-milan")
        said = self.home.kubectl("exec", "-n", NAMESPACE, "reader", "--", "cat", "/data/file")
        self.assertEqual(said, "kept\n")
        about = {"kind": "PersistentVolumeClaim", "name": "data", "namespace": self.remote()}
        event: dict[str, Any] = {"reason": "AboutClaim", "message": "x", "type": "Warning", "involvedObject": about}
        self.lender.apply(made("Event", "about-claim", namespace=self.remote(), **event))
        field = "--field-selector=involvedObject.kind=PersistentVolumeClaim,reason=AboutClaim"
        eventually("what happens to it is reported", lambda: self.home.get("events", "-n", NAMESPACE, field)["items"])
        self.drop("pod/reader", "pvc/data")
        eventually("the claim goes", lambda: self.is_absent(self.lender, "pvc", "data", self.remote()))


def _claim_spec(storage_class: str) -> dict[str, Any]:
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }
