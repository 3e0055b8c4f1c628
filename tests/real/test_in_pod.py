"""What the pods of generated variations have and reach, found out by probes inside of them on a real node.

The oracle is ``tests.variations.inside``; that it sees what there is to see is a test of its own, with pods of the
administrator's that have it.
"""

from __future__ import annotations

from random import Random
from typing import Any

from attrs import evolve
from twisted.internet.task import deferLater

from liqod.kube.resources import PERSISTENTVOLUMECLAIMS, PODS, SERVICES, SHADOWENDPOINTSLICES, SHADOWPODS
from liqod.model.names import ORIGIN_LABEL, SERVICE_NAME_LABEL
from tests.real import in_pod
from tests.testbed.cni import BRIDGE
from tests.testbed.image import BUSYBOX
from tests.variations.families import FAMILIES, SEED
from tests.variations.inside import breaches
from tests.variations.pods import forbidden_objects
from tests.variations.probe import WEB, probing, with_probe
from tests.variations.variation import AT_ONCE, varied, with_origin

OPEN = {"pod-security.kubernetes.io/enforce": "privileged"}
COUNT = 300
"""Variations whose pods are probed."""


class InPodTests(in_pod.ProbedTenant):
    """Each test has a tenant of its own on the same node."""

    maxDiff = None

    async def test_the_probe_sees(self) -> None:
        """A pod that has something of the node, or a token, reports it; so does one that nothing keeps from others."""
        around = await self.around()
        space = await self.space("open", OPEN)
        table: tuple[tuple[dict[str, Any], str], ...] = (
            ({}, "a way to kubelet"),
            ({}, "a way to metadata"),
            ({}, "a way to other-tenants-pod"),
            ({"hostNetwork": True}, "net namespace"),
            ({"hostPID": True}, "pid namespace"),
            ({"hostIPC": True}, "ipc namespace"),
            ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "the file"),
            ({"volumes": [{"name": "v", "hostPath": {"path": "/srv/others"}}]}, "the file"),
            ({"volumes": [{"name": "v", "hostPath": {"path": "/run/containerd/containerd.sock"}}]}, "the socket"),
            ({"automountServiceAccountToken": True}, "tokens of this cluster"),
            ({"containers": [self.container(privileged=True)]}, "the capability SYS_ADMIN"),
            ({"containers": [self.container(capabilities={"add": ["NET_ADMIN"]})]}, "the capability NET_ADMIN"),
        )
        for fields, words in table:
            report = await self.report(space, {"automountServiceAccountToken": False, **fields})
            self.assertIn(words, "\n".join(breaches(report, around)), fields)

    async def test_policies(self) -> None:
        """The policies of a tenant's namespace, as the API server has them, close each target."""
        await self.becomes(self.all_closed, "policies that close everything of others")

    async def test_pods(self) -> None:
        """Whatever a pod asks for, its containers have what an ordinary pod has, and reach nothing of others."""
        forbidden = [probing(one, self.file, self.targets) for one in forbidden_objects()]
        made = varied(Random(SEED), SHADOWPODS, forbidden, COUNT, strategic=False)
        # How it is asked is the subject of test_variations; here a container has one life.
        asked = [with_origin(evolve(one, how=one.how if one.how in AT_ONCE else "create"), self.peer) for one in made]
        count, found = await self.run_all(asked, await self.around())
        print(f"{count} containers of {len(asked)} variations reported")
        self.assertEqual("\n".join(found), "")
        self.assertGreater(count, 20, "ordinary parts of what was asked run")

    async def test_claims(self) -> None:
        """No pod reads a volume of others by a claim, whatever the claim asked for."""
        _, wrong = await self.asked_for(FAMILIES["claims"])
        self.assertEqual("\n".join(wrong), "")
        around = await self.around()
        claims = (await self.admin.list(PERSISTENTVOLUMECLAIMS, self.namespace)).items
        names = [one["metadata"]["name"] for one in claims]
        for number, name in enumerate(names):
            volume = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
            await self.shadow(self.client, self.namespace, f"c{number}", spec=self.spec(volumes=[volume]))
        # Without a claim: a pod that reports, whatever becomes of the others.
        await self.shadow(self.client, self.namespace, "plain", spec=self.spec())
        await self.ended()
        count = 0
        found: list[str] = []
        for body in (await self.admin.list(PODS, self.namespace)).items:
            for report in await self.reports(body):
                count += 1
                found += [f"{body['metadata']['name']}: {words}" for words in breaches(report, around)]
        self.assertEqual(found, [])
        self.assertGreater(count, 0, "a pod reports")
        await self.clear()

    def container(self, **context: Any) -> dict[str, Any]:
        """Return a container with a security context."""
        image = {"image": BUSYBOX, "imagePullPolicy": "Never"}
        return {"name": "main", **image, "securityContext": context}


class WaysTests(in_pod.ProbedTenant):
    """A tenant of a cluster where nothing enforces NetworkPolicies, so that these keep no way closed."""

    plugin = BRIDGE

    async def test_ways_by_services(self) -> None:
        """A Service of the tenant's with slices of its own leads to its own pod, and to nothing of others."""
        web = {"containers": [{"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": WEB}]}
        await self.shadow(self.client, self.namespace, "own", spec=web, labels={"app": "own"})
        await self.runs(self.namespace, "own")
        ways = {"own": await self.service("own", 8080, {"selector": {"app": "own"}})}
        for name, (end, port) in self.ends.items():
            ways[name] = await self.service(name, port, {})
            template = {
                "addressType": "IPv4",
                "endpoints": [{"addresses": [end.address], "conditions": {"ready": True}}],
                "ports": [{"port": port, "protocol": "TCP"}],
            }
            metadata = {"name": f"{name}-1", "labels": {SERVICE_NAME_LABEL: name, ORIGIN_LABEL: str(self.peer)}}
            body = {"metadata": metadata, "spec": {"template": template}}
            await self.client.create(SHADOWENDPOINTSLICES, body, self.namespace)
        await deferLater(self.clock(), 5.0)  # The daemon has made slices, and kube-proxy its rules.
        container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never"}
        await self.shadow(
            self.client, self.namespace, "asks", spec=with_probe({"containers": [container]}, self.file, ways)
        )

        async def reported() -> Any:
            return await self.reports(await self.admin.get(PODS, "asks", self.namespace))

        (report,) = await self.becomes(reported, "a report")
        self.assertEqual(report.reached, ("own",))
        await self.clear()

    async def service(self, name: str, port: int, more: dict[str, Any]) -> str:
        """Make a Service of the tenant's; return its address and port."""
        metadata = {"name": name, "labels": {ORIGIN_LABEL: str(self.peer)}}
        body = {"metadata": metadata, "spec": {"ports": [{"port": port}], **more}}
        made = await self.client.create(SERVICES, body, self.namespace)
        return f"{made['spec']['clusterIP']}:{port}"
