"""Namespaces that are given back to a lender, or are not yet, between two sandboxes."""

from __future__ import annotations

from typing import Any

from kubesandbox.kinds.kinds import Key

from liqod.flow.tasks import Tasks
from liqod.kube.client import Client
from liqod.kube.errors import Throttled
from liqod.kube.resources import DAEMONSETS, NAMESPACES, NATTINGTABLES, PODS, SECRETS, SHADOWPODS
from liqod.kubelet.namespaces import plan
from liqod.model.ids import ClusterID
from liqod.model.names import tenant_namespace
from liqod.model.records.offer import Refusal
from tests.kubelet import cases
from tests.kubelet.reflection import sandboxes


class ReleaseTests(sandboxes.Sandboxes, cases.KubeletSides):
    """What becomes of a namespace at the lender that home needs no more."""

    patience = 25.0

    def refuse(self, *reasons: str) -> list[str]:
        """Let the lender refuse the next releases, each for a reason; return the list of releases to come."""
        left, asked, release = list(reasons), list[str](), self.session.release_namespace

        async def release_namespace(peer: ClusterID, remote: str) -> None:
            asked.append(remote)
            if left:
                raise Refusal(left.pop(0), "as it is")
            await release(peer, remote)

        self.patch(self.session, "release_namespace", release_namespace)
        return asked

    async def disable(self) -> None:
        await self.home.patch(NAMESPACES, self.space, {"metadata": {"labels": {"liqo.io/enabled": None}}})

    async def mappings(self) -> dict[str, str]:
        table = await self.home.get(NATTINGTABLES, str(self.peer))
        return dict(table["spec"].get("nattingTable") or {})

    async def forgotten(self) -> bool:
        return not await self.mappings()

    async def test_a_lender_that_fails_is_asked_again(self) -> None:
        """A release that failed at the lender is on record until it is done, and is asked for again after a pause."""
        await self.pod("web")
        await self.runs("web")
        asked = self.refuse("Internal")
        await self.disable()

        async def noted() -> bool:
            table = await self.home.get(NATTINGTABLES, str(self.peer))
            self.assertEqual(table["spec"]["nattingTable"], {self.space: self.remote})
            status = table["status"]["mappings"][self.space]
            return bool((status["phase"], status["reason"]) == ("Releasing", "Internal"))

        await self.eventually(noted)
        await self.pause(1)
        self.assertEqual(asked, [self.remote])
        await self.gone(self.lender, NAMESPACES, self.remote)
        await self.eventually(self.forgotten)
        self.assertEqual(asked, [self.remote] * 2)

    async def test_a_final_refusal_ends_it(self) -> None:
        """A namespace that the lender did not grant is forgotten: it is not asked for again."""
        for reason in sorted(plan.FINAL):
            await self.pod("web")
            await self.runs("web")
            asked = self.refuse(reason)
            await self.disable()
            await self.eventually(self.forgotten)
            await self.pause(0.5)
            self.assertEqual(asked, [self.remote])
            await self.home.patch(NAMESPACES, self.space, {"metadata": {"labels": {"liqo.io/enabled": "true"}}})

    async def lose_home(self) -> list[str]:
        """Let home forget the namespace while no daemon runs, and have no client of the lender after that."""
        await self.stop()
        store = self.clusters["home"].store
        for resource, stored in list(store):
            meta = stored.object["metadata"]
            namespace, name = meta.get("namespace", ""), meta["name"]
            if self.space in (namespace, name if resource.plural == "namespaces" else ""):
                store.remove(resource, Key(namespace, name))
        await self.home.delete(SECRETS, "liqo-credential", tenant_namespace(self.peer))
        return self.refuse()

    async def stays_until_seen(self, asked: list[str]) -> None:
        """The namespace is there until a client of the lender shows what is in it."""
        await self.start()
        await self.node_is("False")
        await self.pause(4)
        self.assertEqual(asked, [])
        await self.lender.get(SHADOWPODS, "web", self.remote)
        await self.credential(self.grant.token)
        await self.gone(self.lender, NAMESPACES, self.remote)
        self.assertEqual(asked, [self.remote])

    async def test_nothing_is_released_unseen(self) -> None:
        """A namespace that is merely missing at home stays while no client of the lender can tell what is in it."""
        await self.pod("web")
        await self.runs("web")
        await self.stays_until_seen(await self.lose_home())

    async def test_a_refusal_that_passes(self) -> None:
        """So does one that was granted and then refused for another reason than its name: pods may be in it."""
        await self.pod("web")
        await self.runs("web")
        asked = await self.lose_home()
        refused = {"phase": plan.REFUSED, "reason": "NotLending", "message": "we lend nothing to you now"}
        patch = {"status": {"mappings": {self.space: refused}}}
        await self.home.patch(NATTINGTABLES, str(self.peer), patch, subresource="status")
        await self.stays_until_seen(asked)

    async def test_a_deletion_that_was_seen_needs_no_client(self) -> None:
        """A namespace that somebody disabled is released although its contents at the lender cannot be read."""
        await self.pod("web")
        await self.runs("web")
        asked = self.refuse("Internal")
        await self.disable()
        await self.home.delete(SECRETS, "liqo-credential", tenant_namespace(self.peer))
        await self.gone(self.lender, NAMESPACES, self.remote)
        await self.eventually(self.forgotten)
        self.assertGreaterEqual(len(asked), 1)

    async def daemon_set(self) -> list[str]:
        """Make a DaemonSet and a pod of it whenever there is none; return the names of the pods to come."""
        labels, container = {"app": "log"}, {"name": "main", "image": "localhost/busybox:1"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        body = {"metadata": {"name": "log"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
        uid = (await self.home.create(DAEMONSETS, body, self.space))["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "log", "uid": uid, "controller": True}
        made: list[str] = []

        async def keep() -> None:
            while True:
                if not (await self.home.list(PODS, self.space)).items:
                    made.append(f"log-{len(made)}")
                    await self.pod(made[-1], ownerReferences=[owner])
                await self.pause(0.1)

        tasks = Tasks()
        tasks.startService()
        self.addCleanup(tasks.stopService)
        tasks.spawn(keep(), "making pods")
        return made

    async def test_a_daemon_set(self) -> None:
        """A DaemonSet makes a pod for each that is evicted: one that was never started is left alone, and says why."""
        made = await self.daemon_set()
        await self.runs("log-0")
        self.session.connected = False
        await self.disable()
        await self.pause(6)
        self.assertLessEqual(len(made), 3)
        status = (await self.home.get(PODS, made[-1], self.space))["status"]
        self.assertEqual((status["phase"], status["reason"]), ("Pending", "OffloadingBackOff"))
        self.session.connected = True
        await self.gone(self.lender, NAMESPACES, self.remote)
        await self.eventually(self.forgotten)

    async def test_offloaded_again_while_it_drains(self) -> None:
        """A pod that a budget kept from leaving, and that the lender lost meanwhile, is created there again."""
        create, refused = Client.create, list[str]()

        async def protects(
            client: Client, resource: Any, body: Any, *more: Any, subresource: str = "", **most: Any
        ) -> Any:
            if subresource == "eviction":
                refused.append(most["name"])
                raise Throttled(429, "TooManyRequests", "it would violate the pod's disruption budget")
            return await create(client, resource, body, *more, subresource=subresource, **most)

        await self.pod("web")
        await self.runs("web")
        # What is written because of a lender goes through a client of its own, which counts.
        self.patch(Client, "create", protects)
        await self.disable()

        async def drains() -> bool:
            return bool(refused)

        await self.eventually(drains)
        await self.lender.delete(SHADOWPODS, "web", self.remote)
        await self.gone(self.lender, PODS, "web", self.remote)
        await self.pause(1)
        await self.gone(self.lender, SHADOWPODS, "web", self.remote)
        await self.home.patch(NAMESPACES, self.space, {"metadata": {"labels": {"liqo.io/enabled": "true"}}})
        await self.run_remote("web")
