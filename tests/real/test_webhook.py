"""The admission webhook, asked by a real API server, and the policies that stand in for it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.internet.task import deferLater

from liqod.agent.host.address import own_address
from liqod.flow.clocks import installed_reactor
from liqod.kube import manifests
from liqod.kube.errors import Invalid, NotFound
from liqod.kube.resources import (
    MUTATINGPOLICIES,
    MUTATINGPOLICYBINDINGS,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    PODS,
)
from liqod.webhook import mutating_policies, placement
from tests.real.sides import Asked
from tests.webhook import cases

ENABLED: Final = {"liqo.io/enabled": "true"}


class WebhookOnRealClustersTests(Asked, cases.WebhookCase):
    """The cases of the webhook, each with namespaces of its own."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        self.host = own_address("", self.admin.config.server)
        await self.begin()


class PoliciesOnRealClustersTests(Asked):
    """The admission policies that stand in for the webhook, evaluated by a real API server."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        await manifests.ensure(self.admin)
        tag = secrets.token_hex(3)
        self.space, self.refined, self.plain = f"shop-{tag}", f"refined-{tag}", f"plain-{tag}"
        for name, labels in ((self.space, ENABLED), (self.refined, ENABLED), (self.plain, {})):
            await self.admin.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})

    async def install(self, prefix: str = "") -> None:
        """Install the policies under names of one order or another."""
        for resource, bodies in (
            (MUTATINGPOLICIES, mutating_policies.policies()),
            (MUTATINGPOLICYBINDINGS, mutating_policies.bindings()),
        ):
            for body in bodies:
                name = body["metadata"]["name"]
                if name == mutating_policies.OFFLOADABLE:
                    body["metadata"]["name"] = name = prefix + name
                    if "policyName" in body["spec"]:
                        body["spec"]["policyName"] = name
                await self.admin.create(resource, body)
                self.addCleanup(self.admin.delete, resource, name)

    async def pod(self, namespace: str, *tolerations: dict[str, Any]) -> list[dict[str, Any]]:
        """Create a pod and delete it; return the tolerations that it had but for the API server's own."""
        spec = {
            "containers": [{"name": "main", "image": "localhost/busybox:1"}],
            "automountServiceAccountToken": False,
            "nodeSelector": {"no": "where"},
            "tolerations": list(tolerations),
        }
        made = await self.admin.create(PODS, {"metadata": {"generateName": "web-"}, "spec": spec}, namespace)
        # The webhook of other cases looks for pods that it missed, in the whole cluster.
        await self.admin.delete(PODS, made["metadata"]["name"], namespace)
        return [one for one in made["spec"].get("tolerations", []) if not one.get("key", "").startswith("node.")]

    async def eventually(self, look: Callable[[], Awaitable[bool]]) -> None:
        """Return when ``look`` returns True: an API server takes a moment to see what was written."""
        deadline = installed_reactor().seconds() + self.patience
        while not await look():
            self.assertLess(installed_reactor().seconds(), deadline, "it did not become true in time")
            await deferLater(installed_reactor(), 0.1)

    async def in_force(self) -> None:
        """Wait until pods of an enabled namespace are made tolerant, and those of the refined one are not."""

        async def look() -> bool:
            return await self.pod(self.space) == [mutating_policies.TOLERATION] and await self.pod(self.refined) == []

        await self.eventually(look)

    async def refine(self, strategy: str) -> None:
        """Make the NamespaceOffloading, or change it."""
        body = {"metadata": {"name": "offloading"}, "spec": {"podOffloadingStrategy": strategy}}
        with contextlib.suppress(NotFound):
            await self.admin.patch(NAMESPACEOFFLOADINGS, "offloading", {"spec": body["spec"]}, self.refined)
            return
        await self.admin.create(NAMESPACEOFFLOADINGS, body, self.refined)

    async def test_the_same_as_the_webhook(self) -> None:
        """For any tolerations of a pod, policy and webhook add one or none alike, and either has nothing to add to what
        the other made.
        """
        await self.refine("Local")
        await self.install()
        await self.in_force()
        key = placement.TOLERATION["key"]
        table: list[list[dict[str, Any]]] = [
            [],
            [{"key": "gpu", "operator": "Exists"}],
            [{"operator": "Exists"}],
            [{"operator": "Exists", "effect": "NoSchedule"}],
            [{"key": key, "operator": "Exists"}],
            [{"key": key, "operator": "Exists", "effect": "NoExecute"}],
            [{"key": key, "operator": "Exists", "effect": "NoSchedule"}],
            [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
            [{"key": key, "value": "true"}],
            [{"key": key, "operator": "Equal", "value": "true", "effect": "NoExecute"}],
            [{"key": key, "operator": "Equal", "value": "false"}],
            [{"key": "gpu", "operator": "Exists"}, {"key": key, "operator": "Exists"}],
        ]
        for given in table:
            got = await self.pod(self.space, *given)
            wanted = placement.mutations({"spec": {"tolerations": given}})
            self.assertEqual(got[: len(given)], await self.pod(self.plain, *given), "what the user wrote stays")
            self.assertEqual(got[len(given) :], [mutating_policies.TOLERATION] * len(wanted), given)
            self.assertEqual(placement.mutations({"spec": {"tolerations": got}}), [], given)
            self.assertEqual(await self.pod(self.space, *got), got, given)
            if wanted:
                mended = [*got[: len(given)], dict(placement.TOLERATION)]
                self.assertEqual(await self.pod(self.space, *mended), mended, given)

    async def test_an_update_that_leaves_it_out(self) -> None:
        """Who writes the whole list of tolerations is not refused for ours, which stays, in either form; nothing is
        added to a pod that had none.
        """
        await self.refine("Local")
        await self.install()
        await self.in_force()
        mine = {"key": "gpu", "operator": "Exists"}
        for there in (dict(mutating_policies.TOLERATION), dict(placement.TOLERATION), None):
            spec = {
                "containers": [{"name": "main", "image": "localhost/busybox:1"}],
                "automountServiceAccountToken": False,
                "nodeSelector": {"no": "where"},
                "tolerations": [there] if there else [],
            }
            body = {"metadata": {"generateName": "web-"}, "spec": spec}
            made = await self.admin.create(PODS, body, self.refined if not there else self.space)
            meta = made["metadata"]
            self.addCleanup(self.admin.delete, PODS, meta["name"], meta["namespace"])

            async def kept(meta: Any = meta, there: Any = there) -> bool:
                change = {"spec": {"tolerations": [mine]}}
                try:
                    after = await self.admin.patch(PODS, meta["name"], change, meta["namespace"])
                except Invalid:
                    return False  # the policy for updates is seen later than those for new pods
                left = [one for one in after["spec"]["tolerations"] if not one["key"].startswith("node.")]
                self.assertEqual(left, [mine, there] if there else [mine])
                return True

            await self.eventually(kept)

    async def test_a_namespace_that_says_more(self) -> None:
        """Where a NamespaceOffloading refines the label, the webhook alone decides."""
        await self.refined_in_order("")

    async def test_a_namespace_that_says_more_first(self) -> None:
        """The same with names in the other order."""
        await self.refined_in_order("z-")

    async def refined_in_order(self, prefix: str) -> None:
        """Refine a namespace in each way; with ``prefix`` before its name the policy that adds is the later one."""
        await self.refine("Local")
        await self.install(prefix)
        await self.in_force()
        mine = {"key": "gpu", "operator": "Exists"}
        for strategy in ("Local", "Remote", "LocalAndRemote"):
            await self.refine(strategy)
            self.assertEqual(await self.pod(self.refined, mine), await self.pod(self.plain, mine))
            self.assertEqual(await self.pod(self.refined, dict(placement.TOLERATION)), [placement.TOLERATION])
        await self.admin.delete(NAMESPACEOFFLOADINGS, "offloading", self.refined)

        async def label_alone() -> bool:
            return await self.pod(self.refined) == [mutating_policies.TOLERATION]

        await self.eventually(label_alone)
