"""Writes the NetworkPolicies of a granted namespace and the labels of its pods, in the order that opens nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from twisted.internet.defer import DeferredLock

from liqod.hosting.isolation.views import NetworkPolicy, digest_of, in_turn, is_of_home, is_ours, spec_of
from liqod.hosting.networkpolicies.compiler import Compiled
from liqod.hosting.shadowpods.isolation import widened
from liqod.hosting.tenants.networks import TenantNetworks
from liqod.hosting.views import Pod
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, Conflict, NotFound
from liqod.kube.resources import NETWORKPOLICIES, PODS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import Key
from liqod.model.names import ISOLATED_LABEL


@attrs.define(kw_only=True)
class NamespaceIsolation:
    """The pods and policies in one namespace, and what is known of home's; ``current`` None: nothing yet.

    ``record`` is the digest of the record that it is from, ``cause`` that of everything, ``wanted`` are the digests of
    the policies by name. ``settled``: they are written, and pods may be created. ``lock`` is held by one step;
    ``writes`` counts labels and policies that were written.
    """

    pods: set[Key] = attrs.Factory(set)
    policies: set[Key] = attrs.Factory(set)
    lock: DeferredLock = attrs.Factory(DeferredLock)
    current: Compiled | None = None
    record: str = ""
    cause: str = ""
    wanted: dict[str, str] = attrs.Factory(dict)
    settled: bool = False
    writes: int = 0


class PolicyWriter:
    """Brings policies and labels to what was compiled, and notes in the namespace what was written."""

    def __init__(
        self,
        client: Client,
        policies: MutationCache[NetworkPolicy],
        pods: MutationCache[Pod],
        networks: TenantNetworks,
    ) -> None:
        self._client = client
        self._policies = policies
        self._pods = pods
        self._networks = networks

    async def follow(self, known: NamespaceIsolation, made: Compiled) -> None:
        """Write labels and policies, in the order in which no pod is open further than before or after."""
        known.settled = False
        known.wanted = {str(one["metadata"]["name"]): digest_of(one["spec"]) for one in made.policies}
        known.current = attrs.evolve(made, policies=())
        await self.label(known, widen=True)
        await self.write(known, made.policies)

    async def label(self, known: NamespaceIsolation, *, widen: bool) -> None:
        """Set the label of the pods of a namespace; with ``widen`` none loses what it is isolated by now."""
        for key in sorted(known.pods):
            pod = self._pods.get(key)
            if pod is None or pod.finished or known.current is None:
                continue
            before, wanted = pod.metadata.labels.get(ISOLATED_LABEL, ""), known.current.isolated(pod.metadata.labels)
            if widen:
                wanted = widened(before, wanted)
            if wanted == before:
                continue
            patch = {"metadata": {"uid": pod.metadata.uid, "labels": {ISOLATED_LABEL: wanted or None}}}
            known.writes += 1
            try:
                written = await self._client.patch(PODS, key.name, patch, key.namespace, view=Pod)
            except (NotFound, Conflict):
                continue  # gone, or another one by now, which was created with its label
            self._pods.wrote(key, pod, written)

    async def write(self, known: NamespaceIsolation, wanted: Sequence[Mapping[str, Any]]) -> None:
        """Create or update policies in their order, and remove all others of ours in the reverse one."""
        for body in wanted:
            await self._ensure(known, body)
        names = {str(one["metadata"]["name"]) for one in wanted}
        for key in sorted(known.policies, key=lambda one: in_turn(one.name), reverse=True):
            if is_ours(key.name) and key.name not in names and self._policies.get(key) is not None:
                known.writes += 1
                await self._client.delete(NETWORKPOLICIES, key.name, key.namespace)
                self._policies.forget(key)

    async def _ensure(self, known: NamespaceIsolation, body: Mapping[str, Any]) -> None:
        meta, spec = body["metadata"], spec_of(body)
        key = Key(meta["namespace"], meta["name"])
        present = self._policies.get(key)
        if present is not None and present.digest == digest_of(spec):
            return
        if present is not None and self._networks.is_awaited and not is_of_home(key.name):
            return  # it stays while the networks of this cluster are not known yet; one that is made is narrow
        known.writes += 1
        if present is None:
            try:
                made = await self._client.create(
                    NETWORKPOLICIES, {**body, "spec": spec}, key.namespace, view=NetworkPolicy
                )
            except AlreadyExists:
                pass  # without our label, or the watch is behind
            else:
                known.policies.add(key)
                self._policies.wrote(key, None, made)
                return
        # Not a merge patch: it would leave in a selector what the wanted one does not name (RFC 7396).
        patch = [
            {"op": "add", "path": "/metadata/labels", "value": meta["labels"]},
            {"op": "replace", "path": "/spec", "value": spec},
        ]
        written = await self._client.patch(
            NETWORKPOLICIES, key.name, patch, key.namespace, kind="json", view=NetworkPolicy
        )
        known.policies.add(key)
        self._policies.wrote(key, present, written)

    def is_written(self, known: NamespaceIsolation) -> bool:
        """Return whether the policies of a namespace are there as they were compiled, and nothing else of ours."""
        present = {
            key.name: found.digest
            for key in known.policies
            if is_ours(key.name) and (found := self._policies.get(key)) is not None
        }
        return known.settled and present == known.wanted
