"""Writes the NetworkPolicies of each granted namespace, and the label by which they tell isolated pods from others.

They are made of the lender's bounds and of home's policies (``networkpolicies.compiler``). Where more is isolated than
before labels are written before policies, where less is after them, so that no pod is open further than home says; and
no pod is created in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec
from twisted.internet.defer import DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThread

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.flow.observe import Latest, Subscribers
from liqod.hosting.isolation.views import NetworkPolicy, digest_of, is_of_home, is_ours
from liqod.hosting.isolation.writing import NamespaceIsolation, PolicyWriter
from liqod.hosting.networkpolicies.compiler import CLOSED, Compiled, compiled
from liqod.hosting.networkpolicies.enforcement import enforcement, without_effect
from liqod.hosting.networkpolicies.facts import Bounds, HomeFacts
from liqod.hosting.networkpolicies.record import UNREADABLE, TenantContext, read
from liqod.hosting.tenants import bounds
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.name_servers import NameServers
from liqod.hosting.tenants.networks import TenantNetworks, direct_changes
from liqod.hosting.views import Pod
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import NotFound, Undecodable
from liqod.kube.events import Recorder
from liqod.kube.resources import SHADOWNETWORKPOLICYSETS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.digests import long_digest
from liqod.model.ids import Key
from liqod.model.names import ISOLATED_LABEL
from liqod.model.objects.granted_namespace import granted_to, home_name_of, tenant_of
from liqod.model.objects.meta import Object, reference_to
from liqod.model.objects.node import Node
from liqod.model.records.facts import FACTS_NAME, ClusterFacts
from liqod.model.records.home_policies import NAME, ShadowNetworkPolicySet, WholePolicySet
from liqod.model.records.network import NetworkConfig, TunnelEndpoint

AGAIN: Final = 600.0
"""Seconds until a namespace is looked at again without a cause."""
PUT_RIGHT: Final = 5.0
"""Seconds until what somebody else changed is written again: two writers would go on for ever."""
SMALL: Final = 8192
"""Bytes of record and bounds that are compiled at once, in milliseconds; larger ones go to a thread."""
SHARE: Final = 20.0
"""How many times as long as a compilation took its tenant waits for the next one, which bounds its share of a core."""
LONGEST_PAUSE: Final = 60.0
UNBOUNDED: Final = "EgressNotBounded"
"""The event of a granted namespace in a cluster whose network plugin is not known to enforce NetworkPolicies."""
EACH: Final = 0.02
"""Seconds for each write that its tenant waits for the next compilation, of small records too: one change of a record
may be a hundred labels and policies, and others need the API server as well."""


class TenantIsolation(Controller[Key]):
    """Reconciles each granted namespace with its NetworkPolicies; tenants take turns.

    Implements ``shadowpods.isolation.Isolation``.
    """

    name = "tenant-network-policies"
    workers = 2

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        namespaces: Informer[Object],
        records: Informer[ShadowNetworkPolicySet],
        policies: Informer[NetworkPolicy],
        pods: Informer[Pod],
        facts: Informer[ClusterFacts],
        networks: TenantNetworks,
        contract: Contract,
        name_servers: NameServers | None = None,
        streams: Latest[tuple[str, int] | None] | None = None,
        recorder: Recorder | None = None,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._namespaces = namespaces
        self._records = records
        self._policies = MutationCache(policies, clock)
        self._pods = MutationCache(pods, clock)
        self._facts = facts
        self._networks = networks
        self._writer = PolicyWriter(client, self._policies, self._pods, networks)
        self._contract = contract
        self._name_servers = name_servers
        self._streams: Latest[tuple[str, int] | None] = streams or Latest(None)
        self._recorder = recorder
        self._reported: dict[str, str] = {}
        self._known: dict[str, NamespaceIsolation] = {}
        self._thread = DeferredSemaphore(1)
        self._due: dict[str, float] = {}
        self._subscribers: Subscribers[Callable[[str], None]] = Subscribers()

    def sources(self) -> Iterable[Source[Key]]:
        """Namespaces, what homes sent, policies and pods here, and all that bounds are made of."""
        yield watch(self._namespaces, self._namespace_changed)
        yield watch(self._records, lambda key, old, new: (Key("", key.namespace),))
        yield watch(self._policies.informer, self._policy_changed)
        yield watch(self._pods.informer, self._pod_changed)
        yield watch(self._facts, self._facts_changed)
        yield watch(self._networks.nodes, self._node_changed)
        yield observe(self._streams, lambda _: [Key("", one.metadata.name) for one in self._namespaces.items()])
        if self._name_servers is not None:
            yield observe(self._name_servers, self._of_tenant)
        if self._networks.tunnels is not None:
            yield watch(self._networks.tunnels, self._tunnel_changed)
        if self._networks.decisions is not None:
            yield watch(self._networks.decisions, self._decision_changed)

    async def prepare(self) -> None:
        """Await what policies are made of, and what is there: what is missing from an unsynced cache may exist."""
        await self._networks.prepare()
        for informer in (self._namespaces, self._records, self._policies.informer, self._pods.informer, self._facts):
            await informer.when_synced()
        if self._name_servers is not None:
            await self._name_servers.when_synced()

    def fair_by(self, key: Key) -> Hashable:
        """Return the tenant of a namespace."""
        return tenant_of(self._namespaces.get(key))

    async def reconcile(self, key: Key) -> After | None:
        """Write what differs in one namespace."""
        found = self._namespaces.get(key)
        if found is None or found.metadata.deleting or not (tenant := tenant_of(found)):
            self._drop(key.name)
            return None
        return await self._alone(key.name, lambda known: self._bring(tenant, found, known))

    async def apply(self, tenant: str, namespace: str) -> None:
        """Bound what pods of a namespace reach, before anything is created in it. Raises KubeError."""
        await self.prepare()
        found = self._namespaces.get(Key("", namespace))
        if found is None or not tenant_of(found):  # just created: the watch has not shown it
            policy = bounds.network_policy(tenant, namespace, self._contract, self._around(tenant))
            try:
                await self._writer.write(self._of(namespace), [policy] if policy is not None else [])
            finally:
                self._drop_empty(namespace)
            return
        await self._alone(namespace, lambda known: self._bring(tenant, found, known))

    async def _alone(
        self, namespace: str, step: Callable[[NamespaceIsolation], Awaitable[After | None]]
    ) -> After | None:
        """Take a step in a namespace, none other at the same time."""
        known = self._of(namespace)
        await known.lock.acquire()
        try:
            return await step(known)
        finally:
            known.lock.release()

    def _of(self, namespace: str) -> NamespaceIsolation:
        return self._known.setdefault(namespace, NamespaceIsolation())

    def _drop(self, namespace: str) -> None:
        """Drop what is known of a namespace that is no tenant's, but for what is still in it."""
        known = self._known.pop(namespace, None)
        if known is not None and (known.pods or known.policies):
            self._known[namespace] = NamespaceIsolation(pods=known.pods, policies=known.policies)

    def _drop_empty(self, namespace: str) -> None:
        """Drop a namespace that is gone, with the last object in it."""
        known = self._of(namespace)
        if not known.pods and not known.policies and self._namespaces.get(Key("", namespace)) is None:
            del self._known[namespace]
            self._reported.pop(namespace, None)

    def _report(self, namespace: Object) -> None:
        """Record once, as an event of a namespace, that nothing may enforce what its pods may reach."""
        record = self._facts.get(Key("", FACTS_NAME))
        # Without a record the cluster has yet to be looked at.
        why = "" if record is None else without_effect(self._contract.granted.egress, record)
        name = namespace.metadata.name
        if why and self._recorder is not None and self._reported.get(name) != why:
            self._recorder.record_event(reference_to("v1", "Namespace", namespace.metadata), "Warning", UNBOUNDED, why)
        self._reported[name] = why

    # Isolation

    def of(self, namespace: str, labels: Mapping[str, str], *, awaited: bool) -> str | None:
        """Return the value of the label of a pod; None while that is not known (``Isolation``)."""
        known, record = self._known.get(namespace), self._records.get(Key(namespace, NAME))
        if known is not None and known.current is not None:
            is_old = record is not None and record.digest != known.record
            return known.current.isolated(labels) if known.settled and not is_old else None
        if record is not None or awaited:
            return None
        # Policies of an earlier time are in force, and what they were made of is gone: the strictest of all.
        return "both" if self._has_home_policies(namespace) else ""

    def refused_of(self, namespace: str, labels: Mapping[str, str]) -> Sequence[str]:
        """Return what is closed for a pod though home may allow it (``Isolation``)."""
        known = self._known.get(namespace)
        if known is None or known.current is None:
            return ()
        return [f"{one.reason}: {one}" for one in known.current.refused_of(labels)]

    def unenforced(self) -> str:
        """Return why nothing here enforces policies, as far as is known (``Isolation``)."""
        found = enforcement(self._facts.get(Key("", FACTS_NAME)))
        return "" if found.enforced else found.message

    def subscribe(self, subscriber: Callable[[str], None]) -> Callable[[], None]:
        """Call ``subscriber`` with the namespace of which more is known (``Isolation``)."""
        return self._subscribers.add(subscriber)

    # One namespace

    async def _bring(self, tenant: str, namespace: Object, known: NamespaceIsolation) -> After | None:
        """Write what differs in a namespace; its tenant waits the longer for what comes next, the more that is."""
        before = known.writes
        try:
            return await self._follow_record(tenant, namespace, known)
        finally:
            if made := known.writes - before:
                self._pause(tenant, EACH * made)

    async def _follow_record(self, tenant: str, namespace: Object, known: NamespaceIsolation) -> After | None:
        name, record = namespace.metadata.name, self._records.get(Key(namespace.metadata.name, NAME))
        self._report(namespace)
        egress = bounds.network_policy(tenant, name, self._contract, self._around(tenant))
        limits = Bounds(tenant=tenant, namespace=name, egress=egress, labels=self._contract.labels)
        if record is None:
            return await self._without_record(name, known, limits)
        seen = self._seen(tenant, namespace)
        cause = _digest(record.digest, egress, seen)
        if cause != known.cause or not self._writer.is_written(known):
            if (wait := self._due.pop(tenant, 0.0) - self.clock.seconds()) > 0:
                self._due[tenant] = self.clock.seconds() + wait
                return After(wait)
            try:
                whole = await self._client.get(SHADOWNETWORKPOLICYSETS, NAME, name, view=WholePolicySet)
                text = bytes(whole.spec)
            except NotFound:
                return After(AGAIN)  # the watch will show that it is gone
            except Undecodable:
                text = b""
            made = await self._compiled(tenant, text, seen, limits)
            await self._writer.follow(known, made)
            # What was read may be newer: then the watch has yet to show it, and it is compiled once more.
            known.record, known.cause, known.settled = record.digest, cause, True
            for subscriber in self._subscribers:
                subscriber(name)
        await self._writer.label(known, widen=False)
        return After(AGAIN)

    async def _without_record(self, namespace: str, known: NamespaceIsolation, limits: Bounds) -> After:
        """Keep to the bounds of a namespace of which home says nothing. Unknown is not empty: its policies stay.

        Where bounds changed since these were compiled, nobody knows what is left of them: every pod is isolated.
        """
        nothing = HomeFacts(namespace="")
        if not self._has_home_policies(namespace) and (known.current is None or not known.current.home):
            await self._writer.write(known, compiled({}, nothing, limits).policies)
            return After(AGAIN)
        closed = compiled({UNREADABLE: None}, nothing, limits)
        for one in closed.policies:
            name = one["metadata"]["name"]
            present = self._policies.get(Key(namespace, name))
            if name != CLOSED and (present is None or present.digest != digest_of(one["spec"])):
                await self._writer.follow(known, closed)
                known.record, known.cause, known.settled = "", "", True
                await self._writer.label(known, widen=False)
                break
        return After(AGAIN)

    async def _compiled(self, tenant: str, text: bytes, seen: TenantContext, limits: Bounds) -> Compiled:
        def work() -> Compiled:
            sent = read(text, seen)
            return compiled(sent.specs, sent.facts, attrs.evolve(limits, withheld=sent.withheld))

        if len(text) + len(msgspec.json.encode(limits.egress)) <= SMALL:
            return work()
        # One thread: the interpreter runs one at a time anyhow. A tenant that writes a record that takes long, over and
        # over, gets its share, and others wait for one compilation.
        await self._thread.acquire()
        try:
            begun = self.clock.seconds()
            made: Compiled = await deferToThread(work)
            ended = self.clock.seconds()
        finally:
            self._thread.release()
        self._pause(tenant, SHARE * (ended - begun))
        return made

    def _pause(self, tenant: str, seconds: float) -> None:
        now = self.clock.seconds()
        self._due = {other: due for other, due in self._due.items() if due > now}
        self._due[tenant] = max(self._due.get(tenant, 0.0), now + min(LONGEST_PAUSE, seconds))

    def _has_home_policies(self, namespace: str) -> bool:
        known = self._known.get(namespace)
        keys = () if known is None else known.policies
        return any(is_of_home(key.name) and self._policies.get(key) is not None for key in keys)

    def _around(self, tenant: str) -> bounds.KnownNetworks:
        around = self._networks.around(tenant)
        streams = None if self._networks.has_tunnel(tenant) else self._streams.value
        if self._name_servers is None:
            return around if streams is None else attrs.evolve(around, streams=streams)
        return attrs.evolve(around, name_servers=self._name_servers.places(tenant), streams=streams)

    def _seen(self, tenant: str, namespace: Object) -> TenantContext:
        granted = granted_to(tenant, self._namespaces.items())
        here = {home_name_of(one): one.metadata.name for one in granted if not one.metadata.deleting}
        tunnel = None if self._networks.tunnels is None else self._networks.tunnels.get(Key("", tenant))
        spec = None if tunnel is None else tunnel.spec
        return TenantContext(
            home=home_name_of(namespace),
            here=here,
            tunnel=spec,
            around=self._around(tenant),
            direct=self._networks.direct(tenant),
        )

    # What changed

    def _of_tenant(self, tenant: str) -> Iterable[Key]:
        return [one.metadata.key for one in granted_to(tenant, self._namespaces.items())]

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[Key]:
        yield key
        before, after = (tenant_of(one) if one is not None and not one.metadata.deleting else "" for one in (old, new))
        if before != after and self.started:
            # What a rule of another namespace names may be here now, or no longer.
            for tenant in {before, after} - {""}:
                yield from (one for one in self._of_tenant(tenant) if self._records.get(Key(one.name, NAME)))

    def _policy_changed(self, key: Key, old: NetworkPolicy | None, new: NetworkPolicy | None) -> Iterable[Key]:
        known = self._of(key.namespace)
        if new is None:
            self._policies.forget(key)
            known.policies.discard(key)
            self._drop_empty(key.namespace)
        else:
            known.policies.add(key)
        wanted = known.wanted.get(key.name)
        if self.started and is_ours(key.name) and (new is None or new.digest != wanted):
            self.enqueue(Key("", key.namespace), PUT_RIGHT)
        return ()

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> Iterable[Key]:
        known = self._of(key.namespace)
        if new is None:
            self._pods.forget(key)
            known.pods.discard(key)
            self._drop_empty(key.namespace)
            return ()
        known.pods.add(key)
        if old is not None and old.metadata.labels == new.metadata.labels:
            return ()
        if known.current is None:
            return ()
        labels = new.metadata.labels
        if known.current.isolated(labels) == labels.get(ISOLATED_LABEL, ""):
            return ()
        if old is None:  # it was created when policies were others
            return (Key("", key.namespace),)
        self.enqueue(Key("", key.namespace), PUT_RIGHT)
        return ()

    def _facts_changed(self, key: Key, old: ClusterFacts | None, new: ClusterFacts | None) -> Iterable[Key]:
        if self.started and enforcement(old) != enforcement(new):
            for namespace in self._known:
                for subscriber in self._subscribers:
                    subscriber(namespace)
            return self._of_all()
        return () if self._networks.is_same_facts(old, new) else self._of_all()

    def _tunnel_changed(self, key: Key, old: TunnelEndpoint | None, new: TunnelEndpoint | None) -> Iterable[Key]:
        same = old is not None and new is not None and _networks_of(old) == _networks_of(new)
        if not same:
            yield from self._of_tenant(key.name)
        for tenant in direct_changes(old, new):
            yield from self._of_tenant(tenant)

    def _decision_changed(self, key: Key, old: NetworkConfig | None, new: NetworkConfig | None) -> Iterable[Key]:
        return () if self._networks.is_same_decision(old, new) else self._of_tenant(key.name)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        return () if self._networks.is_same(old, new) else self._of_all()

    def _of_all(self) -> Iterable[Key]:
        return [one.metadata.key for one in self._namespaces.items() if tenant_of(one)]


def _networks_of(tunnel: TunnelEndpoint) -> tuple[object, ...]:
    spec = tunnel.spec
    return spec.local, spec.local_seen, spec.remote, spec.remote_seen


def _digest(record: str, egress: Mapping[str, Any] | None, seen: TenantContext) -> str:
    tunnel = seen.tunnel
    networks = () if tunnel is None else (tunnel.local, tunnel.local_seen, tunnel.remote, tunnel.remote_seen)
    return long_digest([record, egress, seen.home, dict(seen.here), networks, *_places(seen)])


def _places(seen: TenantContext) -> list[object]:
    """Return where pods are let by addresses; without streams and direct connections the same as before there were."""
    found: list[object] = [seen.around.name_servers]
    if seen.around.streams is not None:
        found.append(seen.around.streams)
    if seen.direct:
        found.append({lender: str(one.pairs) for lender, one in sorted(seen.direct.items())})
    return found
