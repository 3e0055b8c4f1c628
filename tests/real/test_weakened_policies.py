"""The admission policies on a real API server: it refuses what the evaluator of the unit tests refuses.

Of each policy that is asked by creations one copy without a rule is put in its place; what was refused is then taken.
The requests are dry runs as other users, who may do everything else.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from twisted.internet.task import deferLater

from liqod.flow.clocks import installed_reactor
from liqod.hosting.tenants.grants import ENFORCE, ENFORCE_VERSION
from liqod.kube import manifests, resources
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
    Resource,
)
from liqod.model.names import REMOTE_CLUSTER_LABEL
from tests.real.sides import Asked
from tests.variations import kinds
from tests.waiting import becomes
from tests.weakened import of_tenants, of_the_daemon, test_admission
from tests.weakened.attempt import AGENT, BORROWERS, DAEMON, NAMES, OWN, Attempt
from tests.weakened.copies import Suite, Weakened, copies

_CLUSTER_SCOPED: Final = (
    "namespaces",
    "nodes",
    "persistentvolumes",
    "storageclasses",
    "mutatingwebhookconfigurations",
)
_KINDS: Final = {(one.group, one.plural): one.kind for one in vars(resources).values() if isinstance(one, Resource)}
_DEVELOPER: Final = "developer"
_LARGE: Final = 200
"""Containers of an ordinary pod that is as large as one may be, each with variables: 240 KiB."""


def path(attempt: Attempt) -> str:
    """Return where an object is created, as a dry run."""
    one = attempt.request
    resource, _, subresource = one.resource.partition("/")
    parts = ["/api/v1" if not one.group else f"/apis/{one.group}/{one.versions[0]}"]
    parts += [] if resource in _CLUSTER_SCOPED else ["namespaces", one.namespace]
    parts += [resource] + ([one.name, subresource] if subresource else [])
    return "/".join(parts) + "?dryRun=All"


def body(attempt: Attempt) -> dict[str, Any]:
    """Return the object of an attempt as it is sent."""
    one = attempt.request
    metadata = {**((one.new or {}).get("metadata") or {})}
    metadata.setdefault("name", "x")
    metadata.pop("namespace", None)
    kind = _KINDS.get((one.group, one.resource), "")
    made = {
        "apiVersion": f"{one.group}/{one.versions[0]}".strip("/"),
        "kind": kind,
        **(one.new or {}),
        "metadata": metadata,
    }
    if one.resource == "serviceaccounts/token":
        return {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [], **made["spec"]},
        }
    return made


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
        self.attempts = [
            one
            for one in (*of_tenants.attempts(), *of_the_daemon.attempts())
            if one.request.operation == "CREATE" and one.request.resource not in ("namespaces/status", "nodes/status")
        ]
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
        """Return why an object is not created; empty if it could be."""
        headers = {"Content-Type": "application/json", "Impersonate-User": attempt.request.user}
        await self.labelled(attempt)
        try:
            await self.admin.raw("POST", path(attempt), body=json.dumps(body(attempt)).encode(), headers=headers)
        except ApiError as error:
            return f"{error.code} {error.message}"
        return ""

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
        """A policy refuses here what it refuses there, and a copy of it without the rule does not.

        Those that are about changes, deletions or parts of objects alone are for the evaluator; so is what the API
        server's own validation refuses first.
        """
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
        of_changes = {name for name, policy in self.policies.items() if not any(_ways(suite, policy))}
        self.assertEqual(sorted({*left_out} - of_changes), sorted(_REFUSED_FIRST), f"asked were {asked}")
        self.assertGreater(len(asked), 20)

    async def weakened_of(self, suite: Suite, policy: Mapping[str, Any]) -> tuple[Weakened, Attempt] | None:
        """Return a copy of a policy without a rule, and what it alone refuses on this API server, too."""
        name = policy["metadata"]["name"]
        for weakened, attempt in _ways(suite, policy):
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
            await self.admin.raw("POST", path(wanted), body=json.dumps(made).encode(), headers=headers)


_REFUSED_FIRST: Final[frozenset[str]] = frozenset()
"""Policies whose attempts are all refused by the API server's own validation before it asks policies."""


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
