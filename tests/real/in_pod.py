"""A tenant on a cluster with a real node, whose pods are probes, with things beside them that no tenant may have.

Import the module, not the class: trial runs what it finds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from twisted.internet.task import deferLater

from liqod.config.schema import Settings
from liqod.hosting.tenants.grants import security_labels
from liqod.kube.client import Client
from liqod.kube.connection.config import from_grant
from liqod.kube.errors import ApiError, NotFound
from liqod.kube.requests import item
from liqod.kube.resources import NAMESPACES, NETWORKPOLICIES, PODS, SECRETS, SHADOWPODS
from liqod.model.names import REMOTE_CLUSTER_LABEL
from tests.facts.stated import state_networks
from tests.hosting.networkpolicies.evaluator import Cluster as Policies
from tests.hosting.networkpolicies.evaluator import Endpoint
from tests.real.manifests import pod
from tests.testbed.cni import KUBE_ROUTER
from tests.testbed.image import BUSYBOX
from tests.variations import tenant
from tests.variations.inside import NAMESPACES_OF_NODE, Report, Surroundings, breaches, is_over, parse
from tests.variations.pods_seen import pod as judged
from tests.variations.probe import CANARY, WEB, with_probe
from tests.variations.variation import Variation

METADATA: Final = "169.254.169.254"
BATCH: Final = 16
"""Variations whose pods are there at a time."""
WITHIN: Final = 60.0
"""Seconds in which a pod ends, of a batch, that is going to."""
_SERVED: Final = "mkdir -p {web} && echo {word} > {web}/index.html"
_VOLUMES: Final = (
    "mountpoint -q /srv || mount -t tmpfs liqod-testbed /srv; "
    "for one in others private reserved; do mkdir -p /srv/$one && echo {word} > /srv/$one/canary; done"
)


class ProbedTenant(tenant.Tenant):
    """A tenant with a namespace, another tenant's pod, a pod of the lender's and a metadata service of a cloud.

    The network plugin is one that enforces NetworkPolicies: what pods reach is judged.
    """

    nodes = True
    plugin = KUBE_ROUTER
    kwok = 0
    timeout = 1450

    def settings(self) -> Settings:
        """Return settings by which the one image of the node may be used."""
        found = super().settings()
        hosting = msgspec.structs.replace(found.hosting, image_pull_policy="any")
        return msgspec.structs.replace(found, hosting=hosting)

    async def begin(self) -> None:
        """Begin with the networks that this cluster really has."""
        await super().begin()
        addresses = self.clusters[0].addresses
        await state_networks(self.admin, addresses.pod_cidr.split(","), addresses.service_cidr.split(","))

    async def prepare(self) -> None:
        """Put up what is not to be had, and see what an ordinary pod has."""
        await super().prepare()
        self.cluster = self.clusters[0]
        host = self.cluster.host
        self.file = str(self.cluster.directory / "canary")
        Path(self.file).write_text(f"{CANARY}\n")
        host.run(["sh", "-c", _VOLUMES.format(word=CANARY)])
        await self._serve_metadata()
        self.ends = await self._ends()
        self.targets = {name: f"{end.address}:{port}" for name, (end, port) in self.ends.items()}
        ids = {kind: host.run(["readlink", f"/proc/self/ns/{kind}"]) for kind in NAMESPACES_OF_NODE}
        self.node = {kind: "".join(filter(str.isdigit, text)) for kind, text in ids.items()}

    async def _serve_metadata(self) -> None:
        host, web = self.cluster.host, self.cluster.directory / "metadata"
        host.run(["sh", "-c", _SERVED.format(web=web, word=CANARY)])
        host.run(["ip", "address", "replace", f"{METADATA}/32", "dev", "lo"])
        server = host.spawn("metadata", ["busybox", "httpd", "-f", "-p", f"{METADATA}:80", "-h", str(web)])
        self.addCleanup(server.stop, 1.0)

    async def _ends(self) -> dict[str, tuple[Endpoint, int]]:
        """Return what is not to be reached, by names without spaces."""
        addresses = self.cluster.addresses
        node = Endpoint(address=addresses.host, node=True)
        other = await self.space("other", {REMOTE_CLUSTER_LABEL: f"other-{self.peer}", **security_labels("baseline")})
        lenders = await self.space("lenders", {})
        return {
            "kubelet": (node, 10250),
            "api-server": (node, 6443),
            "kubernetes-service": (Endpoint(address=addresses.first_service), 443),
            "metadata": (Endpoint(address=METADATA), 80),
            "lenders-pod": (await self._web(lenders), 8080),
            "other-tenants-pod": (await self._web(other), 8080),
        }

    async def space(self, name: str, labels: Mapping[str, str]) -> str:
        """Make a namespace beside the tenant's, until the end of the test."""
        full = f"{name}-{self.peer}"
        await self.admin.create(NAMESPACES, {"metadata": {"name": full, "labels": dict(labels)}})
        self.addCleanup(self.admin.delete, NAMESPACES, full)
        return full

    async def _web(self, namespace: str) -> Endpoint:
        labels = {"app": "web"}
        body = pod("web", WEB, namespace=namespace, labels=labels, automountServiceAccountToken=False)

        async def made() -> bool:
            # The account of a namespace is made a moment after it.
            await self.admin.create(PODS, body, namespace)
            return True

        await self.becomes(made, "a pod that serves")
        found = await self.runs(namespace)
        return Endpoint(address=found["status"]["podIP"], namespace=namespace, labels=labels)

    async def report(self, namespace: str, spec: Mapping[str, Any]) -> Report:
        """Run a pod of the administrator's as a probe, and return what it found out."""
        body = pod("probe", [], namespace=namespace)
        body["spec"] = with_probe({**body["spec"], **spec}, self.file, self.targets)
        await self._gone(namespace, "probe")

        async def made() -> bool:
            await self.admin.create(PODS, body, namespace)
            return True

        async def reported() -> list[Report]:
            return await self.reports(await self.admin.get(PODS, "probe", namespace))

        await self.becomes(made, "a probe")
        return (await self.becomes(reported, "a report"))[0]

    async def _gone(self, namespace: str, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self.admin.delete(PODS, name, namespace, grace=0)

        async def gone() -> bool:
            return all(one["metadata"]["name"] != name for one in (await self.admin.list(PODS, namespace)).items)

        await self.becomes(gone, f"no pod {name}")

    async def around(self) -> Surroundings:
        """Return what pods of this tenant are judged by, once its policies are there and are seen to count."""
        await self.becomes(self.all_closed, "policies that close everything of others")
        ordinary = await self.report(await self.space("ordinary", {}), {"automountServiceAccountToken": False})
        walled = await self.space("walled", {})
        spec: dict[str, Any] = {"podSelector": {}, "policyTypes": ["Egress"]}
        await self.admin.create(NETWORKPOLICIES, {"metadata": {"name": "wall"}, "spec": spec}, walled)
        await deferLater(self.clock(), 2.0)
        behind = await self.report(walled, {"automountServiceAccountToken": False})
        # Otherwise a tenant's pod would pass whatever the tenant's policies say.
        open_anyway = {"reached by nobody": set(self.targets) - {*ordinary.reached}, "not closed": {*behind.reached}}
        self.assertEqual({why: found for why, found in open_anyway.items() if found}, {}, "a policy has to count here")
        return Surroundings(ordinary=ordinary, node=self.node)

    async def all_closed(self) -> bool:
        """Return whether the policies of the tenant's namespace close each target."""
        return await self.closed() == frozenset(self.targets)

    async def closed(self) -> frozenset[str]:
        """Return the targets that the policies of the tenant's namespace close, as the API server has them."""
        found = (await self.admin.list(NETWORKPOLICIES, self.namespace)).items
        listed = (await self.admin.list(NAMESPACES)).items
        namespaces = {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in listed}
        policies = Policies(policies=found, namespaces=namespaces)
        pods = Endpoint(address="", namespace=self.namespace)
        return frozenset(
            name for name, (end, port) in self.ends.items() if not policies.allows("Egress", pods, end, ("TCP", port))
        )

    async def reports(self, body: Mapping[str, Any]) -> list[Report]:
        """Return what the containers of a pod found out so far."""
        metadata, spec = body["metadata"], body["spec"]
        found = []
        for kind in ("containers", "initContainers", "ephemeralContainers"):
            for one in spec.get(kind) or ():
                path = f"{item(PODS, metadata['namespace'], metadata['name'], 'log')}?container={one['name']}"
                with contextlib.suppress(ApiError):
                    log = await self.admin.raw("GET", path)
                    found.append(parse(log.decode(errors="replace")))
        return [one for one in found if one is not None]

    async def run_all(self, asked: Sequence[Variation], around: Surroundings) -> tuple[int, list[str]]:
        """Ask for pods, some at a time; return how many containers reported, and what is wrong with them."""
        known = {one.name: one for one in asked}
        count = 0
        found: list[str] = []
        for start in range(0, len(asked), BATCH):
            await self.ask_all(asked[start : start + BATCH])
            await self.ended()
            for body in (await self.admin.list(PODS, self.namespace)).items:
                name = body["metadata"]["name"].partition("-")[0]
                reports = await self.reports(body)
                count += len(reports)
                wrong = [f"{each.probe} has {words}" for each in reports for words in breaches(each, around)]
                tokens = {token for each in reports for token in each.tokens}
                wrong += [f"a token reads {await self.secrets_by(token)} secrets" for token in tokens]
                # The one image of the node may be used here without pulling it.
                wrong += [words for words in judged(body) if "pulled" not in words]
                found += [f"{known.get(name, name)}: {words}" for words in wrong]
            await self.clear()
        return count, found

    async def ended(self) -> None:
        """Wait until each ShadowPod has a pod of which nothing more comes, or a reason why not."""
        end = self.clock().seconds() + WITHIN
        while self.clock().seconds() < end and not await self._has_ended():
            await deferLater(self.clock(), 1.0)

    async def _has_ended(self) -> bool:
        bodies = {one["metadata"]["name"]: one for one in (await self.admin.list(PODS, self.namespace)).items}
        for shadow in (await self.admin.list(SHADOWPODS, self.namespace)).items:
            body = bodies.get(shadow["metadata"]["name"])
            if body is None and not shadow.get("status", {}).get("reason"):
                return False
            if body is not None and not is_over(body):
                return False
        return True

    async def clear(self) -> None:
        """Leave no pod in the tenant's namespace."""
        for shadow in (await self.admin.list(SHADOWPODS, self.namespace)).items:
            with contextlib.suppress(NotFound):
                await self.admin.delete(SHADOWPODS, shadow["metadata"]["name"], self.namespace)

        async def empty() -> bool:
            pods = (await self.admin.list(PODS, self.namespace)).items
            return not pods and not (await self.admin.list(SHADOWPODS, self.namespace)).items

        await self.becomes(empty, "an empty namespace")

    async def secrets_by(self, token: str) -> int:
        """Return how many secrets of the cluster a token reads."""
        config = self.admin.config
        client = Client(from_grant(config.server, config.ca_pem, lambda: token), self.clock())
        try:
            return len((await client.list(SECRETS)).items)
        except ApiError:
            return 0
        finally:
            await client.close()

    def spec(self, **fields: Any) -> dict[str, Any]:
        """Return the spec of an ordinary pod that is a probe."""
        container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never"}
        return with_probe({"containers": [container], **fields}, self.file, self.targets)
