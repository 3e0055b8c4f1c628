"""A lender and its borrowers, on which the cases of hosting are played."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from liqod.config.schema import HostingSettings, NetworkSettings, Settings
from liqod.flow.clocks import installed_reactor
from liqod.hosting.service import Hosting
from liqod.hosting.tenants.access import ApiAccess
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.connection.config import from_grant
from liqod.kube.errors import NotFound
from liqod.kube.resources import (
    FOREIGNCLUSTERS,
    NAMESPACES,
    PODS,
    SHADOWPODS,
)
from liqod.model.ids import ClusterID
from liqod.model.names import remote_namespace, tenant_namespace
from liqod.model.records.offer import AccessGrant
from tests.facts.stated import state_networks
from tests.waiting import becomes

T = TypeVar("T")


class Events:
    """Keeps the events that were emitted."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def record_event(
        self, regarding: Mapping[str, str], type: str, reason: str, message: str, source: Any = None
    ) -> None:
        self.seen.append((f"{type} {regarding['namespace']}/{regarding['name']} {reason}", message))

    @property
    def warnings(self) -> list[str]:
        """The warnings, each with its object and reason."""
        return [what for what, _ in self.seen if what.startswith("Warning")]


def pod_spec(cpu: str = "100m", **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "localhost/busybox:1", "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container], **fields}


class HostingSide(TestCase):
    """A lender and its borrowers, without cases; a subclass provides the cluster."""

    admin: Client
    patience = 20.0
    known_plugin = "calico"  # what is known of the network plugin; empty: nothing
    timeout = 180

    def borrower(self, grant: AccessGrant) -> Client:
        """Return a client with a borrower's token."""
        from twisted.internet import reactor

        return Client(from_grant(grant.api_url, grant.ca.encode(), lambda: grant.token), reactor)

    async def begin(self) -> None:
        """To be called by the subclass when ``self.admin`` works."""
        await manifests.ensure(self.admin)
        self.peer = ClusterID(f"peer-{secrets.token_hex(4)}")
        self.events = Events()
        await state_networks(self.admin, plugin=self.known_plugin)
        self.hosting, self.requests = await self.start_hosting()

    def settings(self) -> Settings:
        """Return the settings of the lender."""
        # Few enough for a case to have them all.
        few = HostingSettings(tenant_records={"shadowpods": "40"}, tenant_contents="1Mi")
        return Settings(network=NetworkSettings(mode="none"), hosting=few)

    async def start_hosting(self) -> tuple[Hosting, Client]:
        from twisted.internet import reactor

        client = Client(self.admin.config, reactor)
        informers = Informers(client, reactor)
        access = ApiAccess(self.admin.config.server, (self.admin.config.ca_pem or b"").decode())
        hosting = Hosting(
            client,
            informers,
            installed_reactor(),
            settings=self.settings(),
            cluster_id=ClusterID("lender"),
            access=access,
            recorder=self.events,
        )
        informers.startService()
        hosting.startService()
        await informers.when_synced()

        async def end() -> None:
            if hosting.running:
                await self.clean_up(hosting)
                await hosting.stopService()
            await informers.stopService()
            await client.close()

        self.addCleanup(end)
        return hosting, client

    async def clean_up(self, hosting: Hosting) -> None:
        """Leave nothing to the other cases of the same cluster."""
        for peer in (self.peer, ClusterID(f"{self.peer}x")):
            await self.admin.delete(FOREIGNCLUSTERS, peer)
            await hosting.dismiss(peer)
            await self.admin.delete(NAMESPACES, tenant_namespace(peer))

    async def becomes(self, check: Callable[[], Awaitable[T]], what: str) -> T:
        """Wait until the answer is true."""
        return await becomes(check, what, self.patience)

    async def settle(self) -> None:
        """Wait until nothing has been written for a second."""
        before = None
        while before != (before := self.writes(self.requests)):
            await deferLater(installed_reactor(), 1.0)

    async def lend(self, peer: str = "", **resources: str) -> None:
        name = peer or self.peer
        try:
            await self.admin.get(FOREIGNCLUSTERS, name)
        except NotFound:
            await self.admin.create(FOREIGNCLUSTERS, {"metadata": {"name": name}, "spec": {"clusterID": name}})
        status = {"status": {"lent": {"resources": resources or {"cpu": "10"}}}}
        await self.admin.patch(FOREIGNCLUSTERS, name, status, subresource="status")

    async def tenant(self, local: str = "shop", peer: str = "", **lent: str) -> tuple[Client, str]:
        """Lend to a peer, admit it and grant it a namespace; returns its client and the namespace's name."""
        name = ClusterID(peer) if peer else self.peer
        await self.lend(name, **lent)
        grant = await self.hosting.admit(name, {"cpu": "10"})
        namespace = remote_namespace(local, name)
        await self.hosting.map_namespace(name, local, namespace)
        borrower = self.borrower(grant)
        self.addCleanup(borrower.close)

        async def works() -> bool:
            await borrower.list(SHADOWPODS, namespace)
            return True

        await self.becomes(works, "the rights of the borrower")
        return borrower, namespace

    async def shadow(self, client: Client, namespace: str, name: str = "web", **fields: Any) -> dict[str, Any]:
        labels = {"offloading.liqo.io/origin": fields.pop("origin", self.peer), **fields.pop("labels", {})}
        spec = fields.pop("spec", None) or pod_spec(**fields)
        return await client.create(
            SHADOWPODS, {"metadata": {"name": name, "labels": labels}, "spec": {"pod": spec}}, namespace
        )

    async def pod(self, namespace: str, name: str = "web") -> dict[str, Any]:
        return await self.admin.get(PODS, name, namespace)

    async def runs(self, namespace: str, name: str = "web", beside: str = "") -> dict[str, Any]:
        """Wait for a running pod (of another uid than ``beside``)."""

        async def check() -> dict[str, Any] | None:
            pod = await self.pod(namespace, name)
            alive = pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            return pod if alive and pod["metadata"]["uid"] != beside else None

        found = await self.becomes(check, f"pod {name} runs")
        assert found is not None
        return found

    async def status_becomes(self, namespace: str, name: str, **status: str) -> dict[str, Any]:
        """Wait for a status of a ShadowPod."""

        async def check() -> list[dict[str, Any]]:
            seen: dict[str, Any] = (await self.admin.get(SHADOWPODS, name, namespace)).get("status", {})
            return [seen] if all(seen.get(key, "") == value for key, value in status.items()) else []

        return (await self.becomes(check, f"the status of {name} is {status}"))[0]

    async def is_reported(self, event: str) -> None:
        """Wait for an event; the daemon records it after the write that another client sees already."""

        async def seen() -> bool:
            return event in [what for what, _ in self.events.seen]

        await self.becomes(seen, f"the event {event}")

    async def has_no_pod(self, namespace: str, name: str = "web") -> None:
        await self.settle()
        with self.assertRaises(NotFound):
            await self.pod(namespace, name)

    async def pod_goes(self, namespace: str) -> None:
        """Wait until a namespace has no pod ``web`` any more."""

        async def gone() -> bool:
            try:
                await self.pod(namespace)
            except NotFound:
                return True
            return False

        await self.becomes(gone, "the pod is gone")

    def writes(self, client: Client) -> dict[tuple[str, str], int]:
        return {key: n for key, n in client.requests.items() if key[0] not in ("get", "list", "watch")}

    def made(self, before: Counter[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Return the requests since, but for looks into namespaces of other cases that are still being deleted."""
        looks = {("list", kind) for kind in ("services", "ingresses", "httproutes", "grpcroutes")}
        return {key: n for key, n in (self.requests.requests - before).items() if key not in looks}

    async def end_pod(
        self, namespace: str, name: str, phase: str, reason: str = "", *, disrupted: bool = False
    ) -> None:
        conditions = [{"type": "DisruptionTarget", "status": "True"}] if disrupted else None
        status = {"status": {"phase": phase, "reason": reason or None, "conditions": conditions}}
        await self.admin.patch(PODS, name, status, namespace, subresource="status")
