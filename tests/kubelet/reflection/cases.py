"""What is reflected between two API servers, as cases for sandboxes and for real clusters alike.

The borrower's side is the real virtual kubelet, the lender's the real hosting. Import the module, not the class.
"""

from __future__ import annotations

import base64
from typing import Any

from liqod.config.schema import Inherited, Reflected, ReflectionSettings
from liqod.kube.errors import NotFound
from liqod.kube.events import EventSource
from liqod.kube.resources import (
    CONFIGMAPS,
    ENDPOINTSLICES,
    EVENTS,
    INGRESSES,
    NODES,
    SECRETS,
    SERVICES,
    SHADOWENDPOINTSLICES,
    VIRTUALNODES,
    Resource,
)
from liqod.model.names import tenant_namespace
from tests.kubelet.cases import KubeletSides


def annotated(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "name": name,
        "annotations": {f"liqo.io/{key.replace('_', '-')}": value for key, value in annotations.items()},
    }


class ReflectionCase(KubeletSides):
    """The cases; each begins with a pod that has the namespace offloaded."""

    async def served(self) -> None:
        """Have the namespace offloaded, by a pod."""
        await self.pod("first")
        await self.runs("first")
        await self.settled()

    async def there(self, resource: Resource, name: str) -> dict[str, Any]:
        """Return an object of the lender once it is there."""
        return await self.eventually(lambda: self.lender.get(resource, name, self.remote))

    async def absent(self, resource: Resource, name: str) -> None:
        """Check that an object is not at the lender, after something made later is."""
        marker = f"marker-{name}"
        await self.home.create(CONFIGMAPS, {"metadata": {"name": marker}}, self.space)
        await self.there(CONFIGMAPS, marker)
        await self.pause(0.3)
        with self.assertRaises(NotFound):
            await self.lender.get(resource, name, self.remote)

    def reported(self, name: str) -> list[str]:
        return [reason for about, reason, _ in self.events.seen if about == name]

    # The cases

    async def test_config_maps(self) -> None:
        """A config map goes with its data, follows changes and removals of keys, and goes when it goes at home."""
        data = {"a": "1", "b": "2"}
        metadata = {
            "name": "conf",
            "labels": {"app": "x", "old": "1", "liqo.io/own": "y"},
            "annotations": {"note": "n"},
        }
        await self.home.create(CONFIGMAPS, {"metadata": metadata, "data": data}, self.space)
        await self.served()
        found = await self.there(CONFIGMAPS, "conf")
        self.assertEqual(found["data"], data)
        labels = found["metadata"]["labels"]
        self.assertEqual(labels["offloading.liqo.io/origin"], str(self.me))
        self.assertEqual(labels["offloading.liqo.io/destination"], str(self.peer))
        self.assertEqual((labels["app"], "liqo.io/own" in labels), ("x", False))
        managers = {entry["manager"] for entry in found["metadata"].get("managedFields", ())}
        self.assertEqual(managers, {"reflection.liqo.io"})
        await self.lender.patch(CONFIGMAPS, "conf", {"metadata": {"labels": {"theirs": "z"}}}, self.remote)
        patch = {"metadata": {"labels": {"old": None, "app": "y"}}, "data": {"a": None, "c": "3"}}
        await self.home.patch(CONFIGMAPS, "conf", patch, self.space)

        async def followed() -> bool:
            now = await self.lender.get(CONFIGMAPS, "conf", self.remote)
            self.assertEqual(now["data"], {"b": "2", "c": "3"})
            labels = now["metadata"]["labels"]
            self.assertEqual((labels["app"], labels["theirs"], "old" in labels), ("y", "z", False))
            return True

        await self.eventually(followed)
        await self.home.delete(CONFIGMAPS, "conf", self.space)
        await self.gone(self.lender, CONFIGMAPS, "conf", self.remote)

    async def test_secrets(self) -> None:
        """Secrets of any type go, those with tokens of service accounts do not; a changed type makes a new one."""
        await self.served()
        for name, kind, data in (
            ("plain", "Opaque", {"k": "dg=="}),
            ("auth", "kubernetes.io/basic-auth", {"username": "dQ==", "password": "cA=="}),
        ):
            await self.home.create(SECRETS, {"metadata": {"name": name}, "type": kind, "data": data}, self.space)
            found = await self.there(SECRETS, name)
            self.assertEqual((found["type"], found["data"]), (kind, data))
        first = await self.lender.get(SECRETS, "plain", self.remote)
        await self.home.delete(SECRETS, "plain", self.space)
        await self.home.create(SECRETS, {"metadata": {"name": "plain"}, "type": "example.com/x"}, self.space)

        async def replaced() -> bool:
            now = await self.lender.get(SECRETS, "plain", self.remote)
            return bool(now["type"] == "example.com/x" and now["metadata"]["uid"] != first["metadata"]["uid"])

        await self.eventually(replaced)
        token = {
            "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}},
            "type": "kubernetes.io/service-account-token",
        }
        await self.home.create(SECRETS, token, self.space)
        await self.absent(SECRETS, "token")

    async def test_immutable(self) -> None:
        """An immutable config map that was replaced at home is replaced at the lender."""
        await self.served()
        body = {"metadata": {"name": "fixed"}, "data": {"a": "1"}, "immutable": True}
        await self.home.create(CONFIGMAPS, body, self.space)
        self.assertTrue((await self.there(CONFIGMAPS, "fixed"))["immutable"])
        await self.home.delete(CONFIGMAPS, "fixed", self.space)
        await self.home.create(CONFIGMAPS, {**body, "data": {"a": "2"}}, self.space)

        async def replaced() -> bool:
            return bool((await self.lender.get(CONFIGMAPS, "fixed", self.remote))["data"] == {"a": "2"})

        await self.eventually(replaced)

    async def test_root_ca(self) -> None:
        """The CA of the home cluster goes by another name, because the lender's has that one."""
        await self.served()
        mine = await self.eventually(lambda: self.home.get(CONFIGMAPS, "kube-root-ca.crt", self.space))
        self.assertEqual((await self.there(CONFIGMAPS, self.root_ca()))["data"], mine["data"])

    def root_ca(self) -> str:
        """Return the name at the lender of what every namespace has."""
        short = str(self.me)[:5]
        return f"kube-root-ca.crt.{short if short[-1].isalnum() else short + 'a'}"

    async def test_skipped(self) -> None:
        """An object annotated to be skipped does not go; annotated later, its copy goes; un-annotated, it is back."""
        await self.served()
        await self.home.create(CONFIGMAPS, {"metadata": annotated("no", skip_reflection="true")}, self.space)
        await self.home.create(CONFIGMAPS, {"metadata": annotated("yes", skip_reflection="false")}, self.space)
        await self.there(CONFIGMAPS, "yes")
        await self.absent(CONFIGMAPS, "no")
        await self.home.patch(CONFIGMAPS, "yes", {"metadata": annotated("yes", skip_reflection="true")}, self.space)
        await self.gone(self.lender, CONFIGMAPS, "yes", self.remote)
        note = {"metadata": {"annotations": {"liqo.io/skip-reflection": None}}}
        await self.home.patch(CONFIGMAPS, "yes", note, self.space)
        await self.there(CONFIGMAPS, "yes")

    async def test_allow_list(self) -> None:
        """With an AllowList only what is annotated goes; a changed setting reaches what is there already."""
        await self.served()
        for body in ({"name": "plain"}, annotated("asked", allow_reflection="true")):
            await self.home.create(CONFIGMAPS, {"metadata": body}, self.space)
            await self.there(CONFIGMAPS, body["name"])
        await self.stop()
        self.reflection = ReflectionSettings(configmap=Reflected(type="AllowList"))
        await self.start()
        await self.gone(self.lender, CONFIGMAPS, "plain", self.remote)
        await self.there(CONFIGMAPS, "asked")
        await self.there(CONFIGMAPS, self.root_ca())
        note = {"metadata": {"annotations": {"liqo.io/allow-reflection": "yes"}}}
        await self.home.patch(CONFIGMAPS, "plain", note, self.space)
        await self.there(CONFIGMAPS, "plain")
        await self.home.patch(
            CONFIGMAPS, "asked", {"metadata": {"annotations": {"liqo.io/allow-reflection": "false"}}}, self.space
        )
        await self.gone(self.lender, CONFIGMAPS, "asked", self.remote)

    async def test_kinds_that_are_off(self) -> None:
        """A kind without workers is not reflected at all, and not watched; the others are."""
        await self.stop()
        off = Reflected(workers=0)
        self.reflection = ReflectionSettings(secret=off, service=off, ingress=off, endpointslice=Inherited(workers=0))
        await self.start()
        await self.served()
        await self.home.create(SECRETS, {"metadata": {"name": "key"}}, self.space)
        await self.home.create(SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}, self.space)
        await self.slice_of("db-1", {"addresses": ["10.20.0.1"]})
        for resource, name in ((SECRETS, "key"), (SERVICES, "web"), (SHADOWENDPOINTSLICES, "db-1")):
            await self.absent(resource, name)
        (kubelet,) = self.kubelets.of_lender(self.peer)
        assert kubelet.access.client.value is not None
        watched = {what for verb, what in kubelet.access.client.value.requests if verb in ("watch", "list")}
        self.assertEqual(watched & {"services", "ingresses", "shadowendpointslices"}, set())

    async def test_globally_skipped_keys(self) -> None:
        """Keys that the settings leave out vanish from objects that are there already; others stay."""
        await self.served()
        metadata = {"name": "conf", "labels": {"app": "x", "bad": "1"}, "annotations": {"worse": "2", "fine": "3"}}
        await self.home.create(CONFIGMAPS, {"metadata": metadata}, self.space)
        await self.there(CONFIGMAPS, "conf")
        await self.stop()
        self.reflection = ReflectionSettings(skip_labels=["bad"], skip_annotations=["worse"])
        await self.start()

        async def gone() -> bool:
            now = (await self.lender.get(CONFIGMAPS, "conf", self.remote))["metadata"]
            self.assertEqual((now["labels"].get("app"), now["annotations"].get("fine")), ("x", "3"))
            return "bad" not in now["labels"] and "worse" not in now["annotations"]

        await self.eventually(gone)

    async def test_load_balancer(self) -> None:
        """A service with a load balancer goes as one, without the address and the class of its own cluster."""
        await self.served()
        spec = {
            "type": "LoadBalancer",
            "selector": {"app": "web"},
            "ports": [{"port": 80}],
            "loadBalancerClass": "example.com/mine",
            "loadBalancerIP": "192.0.2.10",
            "loadBalancerSourceRanges": ["198.51.100.0/24"],
        }
        await self.home.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec}, self.space)
        found = (await self.there(SERVICES, "web"))["spec"]
        self.assertEqual((found["type"], found["loadBalancerSourceRanges"]), ("LoadBalancer", ["198.51.100.0/24"]))
        self.assertEqual({"loadBalancerClass", "loadBalancerIP"} & set(found), set())

    async def test_the_largest(self) -> None:
        """The largest config map and secret that the API takes go whole."""
        await self.served()
        text = "x" * (1 << 19)
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "big"}, "data": {"a": text, "b": text}}, self.space)
        data = {key: base64.b64encode(text.encode()).decode() for key in "ab"}
        await self.home.create(SECRETS, {"metadata": {"name": "big"}, "data": data}, self.space)
        self.assertEqual((await self.there(CONFIGMAPS, "big"))["data"], {"a": text, "b": text})
        self.assertEqual((await self.there(SECRETS, "big"))["data"], data)

    async def test_not_ours(self) -> None:
        """An object of the lender's own is never taken over, changed or deleted; the home object says so."""
        await self.served()
        foreign = {"metadata": {"name": "taken"}, "data": {"theirs": "1"}}
        await self.lender.create(CONFIGMAPS, foreign, self.remote)
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "taken"}, "data": {"ours": "1"}}, self.space)

        async def said() -> bool:
            return "RemoteNameTaken" in self.reported("taken")

        await self.eventually(said)
        await self.home.delete(CONFIGMAPS, "taken", self.space)
        await self.absent(CONFIGMAPS, "other")
        self.assertEqual((await self.lender.get(CONFIGMAPS, "taken", self.remote))["data"], {"theirs": "1"})

    async def test_undone(self) -> None:
        """What somebody at the lender deletes or changes of ours comes back as it was."""
        await self.served()
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "conf"}, "data": {"a": "1"}}, self.space)
        await self.there(CONFIGMAPS, "conf")
        await self.lender.patch(CONFIGMAPS, "conf", {"data": {"a": "2", "b": "3"}}, self.remote)

        async def as_it_was() -> bool:
            return bool((await self.lender.get(CONFIGMAPS, "conf", self.remote))["data"] == {"a": "1"})

        await self.eventually(as_it_was)
        await self.lender.delete(CONFIGMAPS, "conf", self.remote)
        await self.eventually(as_it_was)

    async def test_services(self) -> None:
        """A service goes without addresses and node ports of its cluster, and without external addresses."""
        await self.served()
        spec = {
            "type": "NodePort",
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
            "externalIPs": ["192.0.2.1"],
        }
        await self.home.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec}, self.space)
        found = await self.there(SERVICES, "web")
        self.assertEqual(found["spec"]["selector"], {"app": "web"})
        self.assertEqual((found["spec"]["ports"][0]["port"], found["spec"]["ports"][0]["targetPort"]), (80, 8080))
        self.assertNotIn("externalIPs", found["spec"])
        change = {"spec": {"selector": {"app": "other"}}}
        await self.home.patch(SERVICES, "web", change, self.space)

        async def followed() -> bool:
            now = await self.lender.get(SERVICES, "web", self.remote)
            self.assertEqual(now["spec"]["selector"], {"app": "other"})
            self.assertEqual(now["spec"]["clusterIP"], found["spec"]["clusterIP"])
            self.assertEqual(now["spec"]["ports"], found["spec"]["ports"])
            return True

        await self.eventually(followed)
        await self.home.create(
            SERVICES, {"metadata": {"name": "alone"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}, self.space
        )
        self.assertEqual((await self.there(SERVICES, "alone"))["spec"]["clusterIP"], "None")
        name = {"metadata": {"name": "far"}, "spec": {"type": "ExternalName", "externalName": "example.com"}}
        await self.home.create(SERVICES, name, self.space)
        self.assertEqual((await self.there(SERVICES, "far"))["spec"]["externalName"], "example.com")
        await self.home.patch(SERVICES, "web", {"spec": {"type": "ClusterIP"}}, self.space)

        async def other_type() -> bool:
            return bool((await self.lender.get(SERVICES, "web", self.remote))["spec"]["type"] == "ClusterIP")

        await self.eventually(other_type)

    async def test_forced_node_port(self) -> None:
        """A node port goes only where the service is annotated so."""
        await self.served()
        spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31777}]}
        metadata = {"name": "web", "annotations": {"liqo.io/force-remote-node-port": "true"}}
        await self.home.create(SERVICES, {"metadata": metadata, "spec": spec}, self.space)
        self.assertEqual((await self.there(SERVICES, "web"))["spec"]["ports"][0]["nodePort"], 31777)

    async def test_ingresses(self) -> None:
        """An ingress goes without its class."""
        await self.served()
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        rule = {"host": "example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
        spec = {"ingressClassName": "mine", "rules": [rule]}
        await self.home.create(INGRESSES, {"metadata": {"name": "web"}, "spec": spec}, self.space)
        found = await self.there(INGRESSES, "web")
        self.assertEqual(found["spec"]["rules"], [rule])
        self.assertNotEqual(found["spec"].get("ingressClassName"), "mine")

    async def service(self) -> None:
        """Make the service of ``slice_of``, without which none is reflected."""
        await self.home.create(SERVICES, {"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}}, self.space)

    async def slice_of(self, name: str, *endpoints: dict[str, Any], **meta: Any) -> dict[str, Any]:
        labels = {
            "kubernetes.io/service-name": "db",
            "endpointslice.kubernetes.io/managed-by": "me",
            **meta.pop("labels", {}),
        }
        body = {
            "metadata": {"name": name, "labels": labels, **meta},
            "addressType": "IPv4",
            "endpoints": list(endpoints),
            "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
        }
        made: dict[str, Any] = await self.home.create(ENDPOINTSLICES, body, self.space)
        return made

    async def test_endpoint_slices(self) -> None:
        """Endpoints that the lender does not have itself are in a slice of its own, kept as they are at home."""
        await self.served()
        await self.service()
        here = {"addresses": ["10.20.0.1"], "conditions": {"ready": True}, "nodeName": "some-node", "zone": "z1"}
        with_them = {"addresses": ["10.30.0.1"], "conditions": {"ready": True}, "nodeName": self.node}
        await self.slice_of("db-1", here, with_them)
        found = await self.there(ENDPOINTSLICES, "db-1")
        self.assertEqual([e["addresses"] for e in found["endpoints"]], [["10.20.0.1"]])
        self.assertEqual((found["endpoints"][0]["nodeName"], found["endpoints"][0]["zone"]), (str(self.me), "z1"))
        self.assertEqual((found["ports"][0]["port"], found["addressType"]), (5432, "IPv4"))
        labels = found["metadata"]["labels"]
        self.assertEqual(labels["kubernetes.io/service-name"], "db")
        self.assertEqual(labels["endpointslice.kubernetes.io/managed-by"], "endpointslice.reflection.liqo.io")
        change = {"endpoints": [{**here, "conditions": {"ready": False}}, {**here, "addresses": ["10.20.0.2"]}]}
        await self.home.patch(ENDPOINTSLICES, "db-1", change, self.space)

        async def followed() -> bool:
            now = await self.lender.get(ENDPOINTSLICES, "db-1", self.remote)
            self.assertEqual([e["conditions"]["ready"] for e in now["endpoints"]], [False, True])
            return True

        await self.eventually(followed)
        await self.lender.delete(ENDPOINTSLICES, "db-1", self.remote)
        await self.eventually(followed)
        await self.home.delete(ENDPOINTSLICES, "db-1", self.space)
        await self.gone(self.lender, SHADOWENDPOINTSLICES, "db-1", self.remote)
        await self.gone(self.lender, ENDPOINTSLICES, "db-1", self.remote)

    async def test_slices_go_as_their_service(self) -> None:
        """A slice goes when its service does, unless it is annotated itself; a change of the service is enough."""
        await self.served()
        await self.home.create(
            SERVICES, {"metadata": annotated("db", skip_reflection=""), "spec": {"ports": [{"port": 1}]}}, self.space
        )
        one = {"addresses": ["10.20.0.1"], "conditions": {"ready": True}}
        await self.slice_of("db-1", one)
        await self.slice_of("db-2", one, annotations={"liqo.io/allow-reflection": "true"})
        await self.slice_of("db-3", one, annotations={"liqo.io/skip-reflection": "true"})
        await self.there(ENDPOINTSLICES, "db-2")
        await self.absent(SHADOWENDPOINTSLICES, "db-1")
        note = {"metadata": {"annotations": {"liqo.io/skip-reflection": None}}}
        await self.home.patch(SERVICES, "db", note, self.space)
        await self.there(ENDPOINTSLICES, "db-1")
        await self.absent(SHADOWENDPOINTSLICES, "db-3")

    async def test_slices_and_other_virtual_nodes(self) -> None:
        """Endpoints on any virtual node of the lender are left out, those on virtual nodes of others are not."""
        await self.served()
        for name, cluster in (("again", str(self.peer)), ("third", "third")):
            labels = {"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": cluster}
            node = f"{name}-{self.peer}"
            await self.home.create(NODES, {"metadata": {"name": node, "labels": labels}})
            self.addCleanup(self.home.delete, NODES, node)
        await self.pause(0.3)
        await self.service()
        one, two = (
            {"addresses": [a], "nodeName": f"{n}-{self.peer}"}
            for a, n in (("10.1.0.1", "again"), ("10.1.0.2", "third"))
        )
        await self.slice_of("db-1", one, two)
        found = await self.there(ENDPOINTSLICES, "db-1")
        self.assertEqual([e["addresses"] for e in found["endpoints"]], [["10.1.0.2"]])

    async def test_addresses_follow_the_network(self) -> None:
        """An endpoint waits for its address at the lender, and gets another one when that changes."""
        await self.served()
        known: dict[str, str] = {}
        self.network.translate_endpoint = lambda address: known.get(address, "")
        await self.service()
        await self.slice_of("db-1", {"addresses": ["10.20.0.1"]})
        await self.absent(ENDPOINTSLICES, "db-1")

        async def reached_by(address: str) -> bool:
            now = await self.lender.get(ENDPOINTSLICES, "db-1", self.remote)
            return bool([e["addresses"] for e in now["endpoints"]] == [[address]])

        for address in ("10.64.0.1", "10.65.0.1"):
            known["10.20.0.1"] = address
            self.network.changed()
            await self.eventually(lambda address=address: reached_by(address))  # type: ignore[misc]

    async def test_labels_not_reflected(self) -> None:
        """Labels that a virtual node excludes vanish from objects that are there already, and come back."""
        await self.served()
        metadata = {"name": "conf", "labels": {"app": "x", "bad": "1"}, "annotations": {"worse": "2"}}
        await self.home.create(CONFIGMAPS, {"metadata": metadata}, self.space)
        await self.there(CONFIGMAPS, "conf")
        patch = {"labelsNotReflected": ["bad"], "annotationsNotReflected": ["worse"]}
        tenant = tenant_namespace(self.peer)

        async def is_there(expected: bool) -> bool:
            now = (await self.lender.get(CONFIGMAPS, "conf", self.remote))["metadata"]
            self.assertEqual("bad" in now["labels"], expected)
            self.assertEqual("worse" in (now.get("annotations") or {}), expected)
            return bool(now["labels"]["app"] == "x")

        await self.home.patch(VIRTUALNODES, str(self.peer), {"spec": {"offloadingPatch": patch}}, tenant)
        await self.eventually(lambda: is_there(False))
        await self.home.patch(VIRTUALNODES, str(self.peer), {"spec": {"offloadingPatch": None}}, tenant)
        await self.eventually(lambda: is_there(True))

    async def test_restart(self) -> None:
        """A restart writes nothing, and what changed or went meanwhile is caught up with."""
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "conf"}, "data": {"a": "1"}}, self.space)
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "late"}, "data": {"a": "1"}}, self.space)
        await self.home.create(SECRETS, {"metadata": {"name": "key"}, "data": {"a": "MQ=="}}, self.space)
        spec = {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"app": "db"}}
        await self.home.create(SERVICES, {"metadata": {"name": "db"}, "spec": spec}, self.space)
        await self.served()
        await self.slice_of("db-1", {"addresses": ["10.20.0.1"], "targetRef": {"kind": "Pod", "name": "p"}})
        own = annotated("own", skip_reflection="true")
        await self.home.create(SERVICES, {"metadata": own, "spec": {"ports": [{"port": 1}]}}, self.space)
        labels = {"kubernetes.io/service-name": "own"}
        await self.slice_of("own-1", {"addresses": ["10.20.0.3"]}, labels=labels)
        await self.there(ENDPOINTSLICES, "db-1")
        await self.there(CONFIGMAPS, self.root_ca())
        before = {}
        for resource in (CONFIGMAPS, SECRETS, SERVICES, SHADOWENDPOINTSLICES, ENDPOINTSLICES):
            for each in (await self.lender.list(resource, self.remote)).items:
                before[resource.plural, each["metadata"]["name"]] = each["metadata"]["resourceVersion"]
        self.assertIn(("configmaps", "late"), before)
        await self.stop()
        await self.home.delete(CONFIGMAPS, "late", self.space)
        await self.start()
        await self.gone(self.lender, CONFIGMAPS, "late", self.remote)
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "new"}}, self.space)
        await self.there(CONFIGMAPS, "new")
        await self.pause(1)
        (kubelet,) = self.kubelets.of_lender(self.peer)
        assert kubelet.access.client.value is not None
        writes = {
            key: count
            for key, count in kubelet.access.client.value.requests.items()
            if key[0] not in ("get", "list", "watch")
        }
        self.assertEqual(writes, {("delete", "configmaps"): 1, ("create", "configmaps"): 1})
        for (plural, name), version in before.items():
            resource = next(
                r for r in (CONFIGMAPS, SECRETS, SERVICES, SHADOWENDPOINTSLICES, ENDPOINTSLICES) if r.plural == plural
            )
            if name != "late":
                now = await self.lender.get(resource, name, self.remote)
                self.assertEqual(now["metadata"]["resourceVersion"], version, (plural, name))

    async def test_many(self) -> None:
        """A hundred config maps take a request each, and no more watches than one."""
        await self.served()
        await self.there(CONFIGMAPS, self.root_ca())
        (kubelet,) = self.kubelets.of_lender(self.peer)
        assert kubelet.access.client.value is not None
        there = kubelet.access.client.value
        before, before_home = there.requests.copy(), self.client.requests.copy()
        for number in range(100):
            await self.home.create(
                CONFIGMAPS, {"metadata": {"name": f"c{number}"}, "data": {"n": str(number)}}, self.space
            )

        async def all_there() -> bool:
            names = {each["metadata"]["name"] for each in (await self.lender.list(CONFIGMAPS, self.remote)).items}
            return {f"c{number}" for number in range(100)} <= names

        await self.eventually(all_there)
        await self.pause(0.5)
        more = {key: count for key, count in (there.requests - before).items() if key[1] != "/readyz"}
        self.assertEqual(more, {("create", "configmaps"): 100})
        apart = ("leases", "events")
        self.assertFalse({key for key in (self.client.requests - before_home) if key[1] not in apart})

    async def test_events_come_back(self) -> None:
        """An event about a pod or a reflected object at the lender is reported about the object at home, once."""
        await self.served()
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "conf"}}, self.space)
        await self.there(CONFIGMAPS, "conf")
        for kind, name in (("Pod", "first"), ("ConfigMap", "conf"), ("ConfigMap", "unknown"), ("Deployment", "conf")):
            event = {
                "metadata": {"name": f"{name}-{kind}".lower()},
                "involvedObject": {"kind": kind, "name": name, "namespace": self.remote},
                "reason": f"About{kind}",
                "message": "something happened",
                "type": "Warning",
                "source": {"component": "kubelet", "host": "their-node"},
            }
            await self.lender.create(EVENTS, event, self.remote)

        async def said() -> bool:
            return "AboutPod" in self.reported("first") and "AboutConfigMap" in self.reported("conf")

        await self.eventually(said)
        await self.pause(0.3)
        self.assertEqual(self.reported("unknown"), [])
        self.assertEqual([r for r in self.reported("conf") if r.startswith("About")], ["AboutConfigMap"])
        # Of a pod it is the virtual node's kubelet that speaks; of other objects no kubelet does.
        self.assertEqual(self.events.sources["AboutPod"], EventSource("kubelet", self.node))
        self.assertIsNone(self.events.sources["AboutConfigMap"])

    async def test_a_verdict_among_noise(self) -> None:
        """Why the lender refuses something is reported at home in the midst of more warnings than there is room for."""
        await self.served()
        event: dict[str, Any] = {
            "involvedObject": {"kind": "Pod", "name": "first", "namespace": self.remote},
            "type": "Warning",
        }
        for number in range(40):
            noise = {"metadata": {"name": f"noise-{number}"}, "reason": "Noise", "message": f"that is {number}"}
            await self.lender.create(EVENTS, event | noise, self.remote)
        verdict = {"metadata": {"name": "verdict"}, "reason": "UpdateRefused", "message": "the pod goes on as it was"}
        await self.lender.create(EVENTS, event | verdict | {"source": {"component": "liqod"}}, self.remote)

        async def said() -> bool:
            return "UpdateRefused" in self.reported("first")

        await self.eventually(said)
        self.assertLess(self.reported("first").count("Noise"), 40)
        self.assertIsNone(self.events.sources["UpdateRefused"])
