"""The admission policies on a real API server: it refuses what the evaluator of the unit tests refuses.

Of each policy one copy without a rule is put in its place; what was refused is then taken. The requests are dry runs as
other users, who may do everything else; what they change or delete is made before by the administrator.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from twisted.internet.task import deferLater

from liqod.flow.clocks import installed_reactor
from liqod.hosting.tenants.grants import ENFORCE, ENFORCE_VERSION
from liqod.kube import manifests
from liqod.kube.errors import AlreadyExists, ApiError
from liqod.kube.resources import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    CRDS,
    GRPCROUTES,
    HTTPROUTES,
    NAMESPACES,
    SERVICEACCOUNTS,
    VALIDATINGPOLICIES,
    VALIDATINGPOLICYBINDINGS,
)
from liqod.model.names import REMOTE_CLUSTER_LABEL
from tests.real.sides import Asked
from tests.variations import kinds
from tests.waiting import becomes
from tests.weakened import of_tenants, of_the_daemon, on_the_wire, test_admission
from tests.weakened.attempt import AGENT, BORROWERS, DAEMON, NAMES, OWN, Attempt
from tests.weakened.copies import Suite, Weakened, copies

_DEVELOPER: Final = "developer"
_LARGE: Final = 200
"""Containers of an ordinary pod that is as large as one may be, each with variables: 240 KiB."""


class PoliciesOnRealApiServerTests(Asked):
    """All policies of tenants and of the daemon's accounts, without a daemon."""

    cluster_count = 1
    timeout = 1200

    async def prepare(self) -> None:
        """Install the policies, and let the users do everything that these do not refuse."""
        (self.admin,) = self.admins
        self.labels: dict[str, dict[str, str]] = {}
        await manifests.ensure(self.admin)
        self.policies = {one["metadata"]["name"]: one for one in test_admission.policies_of(test_admission.GRANTED)}
        self.made: dict[tuple[str, ...], dict[str, Any]] = {}
        # Creations first: for them nothing has to be there.
        every = [*of_tenants.attempts(), *of_the_daemon.attempts()]
        self.attempts = sorted(filter(_is_possible, every), key=lambda one: one.request.operation != "CREATE")
        for definition in kinds.definitions((HTTPROUTES, GRPCROUTES)):
            with contextlib.suppress(AlreadyExists):
                await self.admin.create(CRDS, definition)
        spaces = {one.request.namespace: _labels(one) for one in self.attempts}
        for name, labels in spaces.items():
            if name:
                with contextlib.suppress(AlreadyExists):
                    await self.admin.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        for name in ("liqod", "liqod-network", "liqod-names"):
            with contextlib.suppress(AlreadyExists):
                await self.admin.create(SERVICEACCOUNTS, {"metadata": {"name": name}}, OWN)
        rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["*"]}
        with contextlib.suppress(AlreadyExists):
            await self.admin.create(CLUSTERROLES, {"metadata": {"name": "spaces"}, "rules": [rule]})
        for role, users in (("cluster-admin", _strong()), ("spaces", (_DEVELOPER,))):
            subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": one} for one in users]
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
            bound = {"metadata": {"name": f"test-{role}"}, "roleRef": reference, "subjects": subjects}
            with contextlib.suppress(AlreadyExists):
                await self.admin.create(CLUSTERROLEBINDINGS, bound)
        for name, policy in self.policies.items():
            binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
            await self.admin.create(VALIDATINGPOLICIES, policy)
            self.addCleanup(self.admin.delete, VALIDATINGPOLICIES, name)
            await self.admin.create(VALIDATINGPOLICYBINDINGS, binding)
            self.addCleanup(self.admin.delete, VALIDATINGPOLICYBINDINGS, name)

    async def refusal(self, attempt: Attempt) -> str:
        """Return why something is not done; empty if it could be."""
        headers = {"Content-Type": "application/json", "Impersonate-User": attempt.request.user}
        await self.labelled(attempt)
        method = on_the_wire.METHODS[attempt.request.operation]
        sent = json.dumps(await self.sent(attempt)).encode()
        try:
            await self.admin.raw(method, on_the_wire.path(attempt), body=sent, headers=headers)
        except ApiError as error:
            return f"{error.code} {error.message}"
        return ""

    async def sent(self, attempt: Attempt) -> dict[str, Any]:
        """Return what is sent; what an attempt changes or deletes is made first."""
        if attempt.request.operation == "CREATE":
            return on_the_wire.created(attempt)
        kind, namespace = on_the_wire.kind_of(attempt), on_the_wire.namespace_of(attempt)
        wanted = on_the_wire.before(attempt)
        name = wanted["metadata"]["name"]
        if self.made.get((kind.plural, namespace, name)) != wanted:
            await self.admin.delete(kind, name, namespace, grace=0)
            await self.admin.create(kind, wanted, namespace)
            self.made[kind.plural, namespace, name] = wanted
        if attempt.request.operation == "DELETE":
            return on_the_wire.deleted(attempt)
        present = await self.admin.get(kind, name, namespace)
        # Somebody else may write in the meantime, such as a controller.
        present["metadata"].pop("resourceVersion")
        return on_the_wire.changed(attempt, present)

    async def labelled(self, attempt: Attempt) -> None:
        """Give the namespace of an attempt its labels; the administrator may."""
        namespace, labels = attempt.request.namespace, _labels(attempt)
        if self.labels.get(namespace) != labels and namespace:
            present = await self.admin.get(NAMESPACES, namespace)
            dropped = {key: None for key in present["metadata"]["labels"] if key != "kubernetes.io/metadata.name"}
            await self.admin.patch(NAMESPACES, namespace, {"metadata": {"labels": {**dropped, **labels}}})
            self.labels[namespace] = labels
            await deferLater(
                installed_reactor(), 2.0
            )  # Admission reads namespaces from a cache, and nothing says when.

    async def denied(self, attempt: Attempt, name: str) -> bool:
        """Return whether a policy refuses an attempt, or another one by the same request."""
        return f"'{name}'" in await self.refusal(attempt)

    async def test_each_policy(self) -> None:
        """A policy refuses here what it refuses there, and a copy of it without the rule does not."""
        await becomes(self.has_them, "the policies are in force", self.patience)
        suite = Suite(list(self.policies.values()), self.attempts)
        asked: list[str] = []
        left_out: list[str] = []
        for name, policy in self.policies.items():
            found = await self.weakened_of(suite, policy)
            (asked if found else left_out).append(name)
            if found is None:
                continue
            weakened, attempt = found
            await self.admin.patch(VALIDATINGPOLICIES, name, {"spec": weakened.policy["spec"]})

            async def passes(attempt: Attempt = attempt, name: str = name) -> bool:
                return not await self.denied(attempt, name)

            async def refused(attempt: Attempt = attempt, name: str = name) -> bool:
                return await self.denied(attempt, name)

            await becomes(passes, f"{weakened} lets by: {attempt}", self.patience)
            await self.admin.patch(VALIDATINGPOLICIES, name, {"spec": policy["spec"]})
            await becomes(refused, f"{name} refuses again: {attempt}", self.patience)
        self.assertEqual(left_out, [], f"asked were {asked}")

    async def weakened_of(self, suite: Suite, policy: Mapping[str, Any]) -> tuple[Weakened, Attempt] | None:
        """Return a copy of a policy without a rule, and what it alone refuses on this API server, too."""
        name = policy["metadata"]["name"]
        for weakened, attempt in _ways(suite, policy):
            # What has to be there before may be nothing that an API server takes.
            with contextlib.suppress(ApiError):
                if await self.denied(attempt, name):
                    return weakened, attempt
        return None

    async def has_them(self) -> bool:
        """Return whether the API server has read the last of the policies, and the definitions of records."""
        first, last = (
            next(one for one in self.attempts if one.request.resource == kind)
            for kind in ("shadowpods", "storageclasses")
        )
        return all(["ValidatingAdmissionPolicy" in await self.refusal(one) for one in (first, last)])

    async def test_large_pods(self) -> None:
        """An ordinary pod of the size that a pod may have at most costs less than an evaluation may."""
        await becomes(self.has_them, "the policies are in force", self.patience)
        wanted = next(one for one in self.attempts if one.request.resource == "shadowpods")
        large = {"containers": list(_containers()), "initContainers": None, "volumes": None, "affinity": None}
        self.assertGreater(len(json.dumps(large)), 200_000)
        for user in BORROWERS:
            metadata = {"name": "large", "labels": {"offloading.liqo.io/origin": "rome"}}
            version = {"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod"}
            made = {**version, "metadata": metadata, "spec": {"pod": large}}
            headers = {"Content-Type": "application/json", "Impersonate-User": user}
            await self.admin.raw("POST", on_the_wire.path(wanted), body=json.dumps(made).encode(), headers=headers)


def _is_possible(attempt: Attempt) -> bool:
    """Return whether an attempt can be made on an API server at all: a status is of what is there."""
    one = attempt.request
    return one.operation != "CREATE" or one.resource.partition("/")[2] in ("", "token")


def _ways(suite: Suite, policy: Mapping[str, Any]) -> Iterator[tuple[Weakened, Attempt]]:
    """Yield the copies of a policy without a rule, each with what it alone refuses."""
    rules = [one["message"] for one in policy["spec"]["validations"]]
    for weakened in (one for one in copies(policy) if one.without in rules):
        yield from ((weakened, attempt) for attempt in suite.ways(weakened))


def _labels(attempt: Attempt) -> dict[str, str]:
    """Return the labels of the namespace of an attempt; one of a tenant has a Pod Security level."""
    labels = dict(attempt.request.namespace_labels)
    if REMOTE_CLUSTER_LABEL not in labels:
        return labels
    return {**labels, ENFORCE: "baseline", ENFORCE_VERSION: "latest"}


def _strong() -> tuple[str, ...]:
    controllers = ("system:serviceaccount:kube-system:ephemeral-volume-controller", "system:kube-controller-manager")
    return (*BORROWERS, DAEMON, AGENT, NAMES, *controllers)


def _containers() -> Iterator[dict[str, Any]]:
    """Yield containers of which each has variables, mounts and probes."""
    for number in range(_LARGE):
        variables = [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(10)]
        probe = {"httpGet": {"path": "/", "port": 80, "httpHeaders": [{"name": "a", "value": "b"}]}}
        yield {
            "name": f"c{number}",
            "image": "registry.example/application:1",
            "env": variables,
            "livenessProbe": probe,
            "readinessProbe": probe,
            "ports": [{"containerPort": 8000 + number}],
        }
