"""Carries a run of ``test`` out: servers, then clients that call them, all in one namespace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred, DeferredSemaphore, maybeDeferred
from twisted.internet.defer import TimeoutError as DeferTimeout

from liqod.cli.console.progress import Progress
from liqod.cli.console.session import Session
from liqod.cli.console.wait import until
from liqod.cli.network.connectivity import objects, scripts
from liqod.cli.network.connectivity.cases import HOME, Case, TestedPeer, Way, clients, servers
from liqod.cli.network.connectivity.observations import (
    CaseOutcome,
    ProbeIngress,
    ProbePod,
    Stopped,
    is_over,
    is_refused,
    is_serving,
    observed,
    refusals,
    shown,
    why_stopped,
)
from liqod.cli.network.connectivity.verdicts import TestFindings
from liqod.flow.tasks import together
from liqod.kube.cache import wait
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import KubeError
from liqod.kube.resources import EVENTS, INGRESSES, NETWORKPOLICIES, PODS, SERVICES
from liqod.model.ids import Key
from liqod.model.records.network import NetworkConfig, own_addresses

LATE: Final = 15.0
"""Seconds beyond its own deadline after which a client is not waited for."""
INGRESS: Final = 30.0
"""Seconds in which an ingress has to get an address."""


@attrs.frozen(kw_only=True)
class TestPlan:
    """What is to be tried, and how; ``node`` is name and address of a node of this cluster, if one is known."""

    peers: Sequence[TestedPeer]
    wanted: Sequence[Case]
    networks: Mapping[str, NetworkConfig]
    withheld: Mapping[tuple[Way, str], str]
    image: str
    timeout: float
    parallel: int
    node: tuple[str, str] = ("", "")
    ingress_class: str = ""


@attrs.define
class TestRun:
    """One run in a namespace that is there: ``carry_out`` does it once, ``findings`` are what it found so far."""

    session: Session
    plan: TestPlan
    space: str
    progress: Progress
    _pods: Informer[ProbePod] = attrs.field(init=False)
    _slots: DeferredSemaphore = attrs.field(init=False)
    _seen: dict[Case, CaseOutcome] = attrs.field(init=False, factory=dict)
    _stopped: dict[str, Stopped] = attrs.field(init=False, factory=dict)
    _services: dict[str, dict[str, Any]] = attrs.field(init=False, factory=dict)
    _addresses: dict[str, str] = attrs.field(init=False, factory=dict)
    _ingresses: dict[str, str] = attrs.field(init=False, factory=dict)

    async def carry_out(self) -> None:
        """Start servers and clients, until all is known. Raises KubeError where little can be made."""
        session, plan = self.session, self.plan
        self._pods = Informer(session.client, PODS, ProbePod, session.reactor, namespace=self.space)
        self._slots = DeferredSemaphore(plan.parallel)
        self._pods.startService()
        try:
            wanted = servers(plan.peers, plan.wanted)
            # Before the pods: containers are given the addresses of the services that are there when they start.
            await self._prepare([name for name, _ in wanted])
            self.progress.note(f"{len(wanted)} servers to run")
            await self._together(partial(self._serve, *one) for one in wanted)
            if plan.ingress_class:
                await self._together(partial(self._ingress, one.there) for one in plan.peers)
            self._note()
            await self._together(partial(self._call, *one) for one in clients(plan.wanted).items())
        finally:
            await maybeDeferred(self._pods.stopService)

    async def findings(self) -> TestFindings:
        """Return what is known by now."""
        plan = self.plan
        return TestFindings(
            peers=plan.peers,
            seen=self._seen,
            stopped=self._stopped,
            refused=await self._refusals(),
            withheld=plan.withheld,
            node=plan.node[0],
            ingress_class=plan.ingress_class,
            no_ingress=f"the class {plan.ingress_class} gave the ingress no address within {INGRESS:g} s",
        )

    async def _together(self, works: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Do things side by side, no more than the user allows."""

        def started(work: Callable[[], Awaitable[None]]) -> Deferred[None]:
            async def once() -> None:
                await work()

            return Deferred.fromCoroutine(once())

        await together(self._slots.run(started, work) for work in works)

    async def _prepare(self, names: Sequence[str]) -> None:
        create = self.session.client.create
        for body in objects.policies(self.plan.wanted):
            await create(NETWORKPOLICIES, body, self.space)
        for name in names:
            for body in objects.services(name):
                self._services[body["metadata"]["name"]] = await create(SERVICES, body, self.space)
        if self.plan.ingress_class:
            for peer in self.plan.peers:
                await create(INGRESSES, objects.ingress(peer.there, self.space, self.plan.ingress_class), self.space)

    async def _serve(self, name: str, where: str) -> None:
        """Start a server and wait until it serves."""
        body = objects.server(name, self.plan.image, where, self._identity(name))
        pod = await self._run(name, body, where, lambda pod: is_serving(pod) or is_refused(pod), self.plan.timeout)
        if pod is not None and not is_serving(pod):
            self._stop(name, why_stopped(pod, name, self._called(where) if where else ""))
        elif pod is not None:
            self._addresses[name] = pod.status.pod_ips[0].ip
            self.progress.line(f"✓ {name} runs at {self._called(where)}, {self._addresses[name]}")

    async def _call(self, name: str, wanted: Sequence[Case]) -> None:
        """Start a client and note what its containers come to, one by one."""
        able = [one for one in wanted if self._is_able(one)]
        if not able:
            return
        identities = {one: self._identity(one.server) for one in able}
        written = {one.name: scripts.client(one, identities[one], self._place(one), self.space) for one in able}
        seconds = int(self.plan.timeout)
        body = objects.client(name, self.plan.image, able, written, seconds)

        def over(pod: ProbePod | None) -> bool:
            if pod is not None:
                self._take(observed(pod, able))
            return is_over(pod, able)

        await self._run(name, body, able[0].source, over, seconds + LATE)
        if any(one in self._seen for one in able):
            # Of a client of which anything was seen each container speaks for itself.
            self._stopped.pop(name, None)

    async def _run(
        self, name: str, body: Mapping[str, Any], where: str, holds: Callable[[ProbePod | None], bool], seconds: float
    ) -> ProbePod | None:
        """Create a pod and wait until something holds of it; else note why not, and return None."""
        key = Key(self.space, name)
        try:
            await self.session.client.create(PODS, body, self.space)
        except KubeError as error:
            self._stop(name, Stopped(shown(str(error)), "what the message names"))
            return None
        waiting = wait.until(self._pods, lambda: holds(self._pods.get(key)))
        waiting.addTimeout(seconds, self.session.reactor)
        try:
            await waiting
        except DeferTimeout:
            peer = self._called(where) if where else ""
            self._stop(name, why_stopped(self._pods.get(key), name, peer))
            return None
        return self._pods.get(key)

    def _stop(self, name: str, why: Stopped) -> None:
        self._stopped[name] = why
        self.progress.line(f"✗ {name}: {why.cause}")

    def _take(self, found: Mapping[Case, CaseOutcome]) -> None:
        """Note and show what containers came to."""
        for case, one in found.items():
            if case in self._seen:
                continue
            self._seen[case] = one
            mark = "?" if one.answered is None else "✓" if one.answered is not case.silence else "✗"
            where = f"{self._called(case.source)} to {self._called(case.target)}"
            self.progress.line(f"{mark} {case.way}: {where}: {one.said}")
        self._note()

    def _note(self) -> None:
        self.progress.note(f"{len(self.plan.wanted) - len(self._seen)} of {len(self.plan.wanted)} answers")

    def _is_able(self, case: Case) -> bool:
        """Return whether there is something to call; notes what is to be said otherwise."""
        if case in self._seen or (case.way, case.peer) in self.plan.withheld:
            return False
        at_peer = next((one.there for one in self.plan.peers if one.id == case.source), "")
        if any(name and name not in self._addresses for name in (case.server, at_peer)):
            return False
        if case.way == "ingress":
            return case.server in self._ingresses
        if case.by == "address" and not self._address(case):
            peer = self._called(case.peer)
            self._take(
                {case: CaseOutcome(False, f"{peer} has no address for pods here: the networks are not agreed on")}
            )
            return False
        return True

    def _place(self, case: Case) -> str:
        """Return the address that a case calls, as ``scripts.client`` takes it."""
        match case.by:
            case "address":
                return self._address(case)
            case "service" if case.source == HOME or case.way == "clusterip":
                return str(self._services[case.subject]["spec"].get("clusterIP", ""))
            case "node":
                port = self._services[case.subject]["spec"]["ports"][0].get("nodePort", "")
                return f"{self.plan.node[1] if case.source == HOME else ''} {port}"
            case "ingress":
                return f"{self._ingresses[case.server]} 80"
        return ""

    def _address(self, case: Case) -> str:
        """Return a server's address as it is seen where the case begins; empty where it has none."""
        address = self._addresses[case.server]
        if case.source == HOME or case.target != HOME:
            return address
        network = self.plan.networks.get(case.source)
        tunnel = next((one.tunnel for one in self.plan.peers if one.id == case.source), False)
        if not tunnel:
            return address
        return own_addresses(network).seen(address) if network is not None else ""

    async def _ingress(self, name: str) -> None:
        """Wait for the address of an ingress."""
        key = Key(self.space, name)
        made = until(
            self.session, INGRESSES, ProbeIngress, key, lambda found: found is not None and bool(found.address)
        )
        with suppress(DeferTimeout):
            if (found := await made.addTimeout(INGRESS, self.session.reactor)) is not None:
                self._ingresses[name] = found.address

    async def _refusals(self) -> dict[str, str]:
        try:
            return refusals((await self.session.client.list(EVENTS, self.space)).items)
        except KubeError:
            return {}

    def _identity(self, name: str) -> str:
        return f"{self.space} {name}."

    def _called(self, cluster: str) -> str:
        return next((one.name for one in self.plan.peers if one.id == cluster), "home")
