"""Serves resource usage of pods on virtual nodes to ``kubectl top`` and the autoscalers of the home cluster.

The pod metrics of each remote namespace are requested from its lender (metrics.k8s.io). Those are rates, while readers
of a kubelet's endpoints expect counters, so CPU is integrated here over the time between two requests. Pods of a lender
without metrics, or one that denies them to borrowers, are left out.

A lender is asked about the pods on its own nodes, and about containers that these have: what it says of others would
scale what runs elsewhere, and each name that it invents would be a time series at home.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec
from attrs import define, frozen
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from liqod.flow.clocks import wall_clock
from liqod.kube.connection.answers import MOST_PARTS
from liqod.kube.errors import KubeError
from liqod.kube.nesting import count_parts
from liqod.kube.requests import collection
from liqod.kube.resources import Resource
from liqod.kubelet.api.nodes import NodeAccess, Nodes
from liqod.kubelet.common.views import HomePod
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, View
from liqod.model.objects.quantity import parse
from liqod.model.timestamps import rfc3339

POD_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", True)
FRESH: Final = 10.0
"""Seconds that an answer serves all callers: less than the 15 s at which metrics-server reads each node."""
REQUEST_TIMEOUT: Final = 5.0
"""Seconds until a request to a lender times out: the caller waits for the slowest lender."""
LONGEST_GAP: Final = 120.0
"""Maximum seconds between two requests over which a rate is assumed to be constant."""


class ContainerMetrics(View, frozen=True):
    """The usage of a container, as Kubernetes quantities."""

    name: str = ""
    usage: dict[str, str] = {}


class PodMetrics(Object, frozen=True):
    """The usage of a pod."""

    containers: list[ContainerMetrics] = []


class _List(View, frozen=True):
    items: list[PodMetrics] = []


class _Named(View, frozen=True):
    name: str = ""


class _Containers(View, frozen=True):
    containers: list[_Named] = []
    init_containers: list[_Named] = []
    ephemeral_containers: list[_Named] = []


class _Running(View, frozen=True):
    started_at: str | None = None


class _State(View, frozen=True):
    running: _Running = _Running()


class _ContainerStatus(View, frozen=True):
    name: str = ""
    state: _State = _State()


class _Status(View, frozen=True):
    start_time: str | None = None
    container_statuses: list[_ContainerStatus] = []
    init_container_statuses: list[_ContainerStatus] = []
    ephemeral_container_statuses: list[_ContainerStatus] = []


@frozen
class Sample:
    """One container's usage: current cores, total core seconds, bytes of memory.

    ``started``, ``pod_started``: the dates at which it and its pod began; None where the status has none.
    """

    node: str
    pod: Key
    uid: str
    container: str
    cores: float
    seconds: float
    memory: int
    started: str | None
    pod_started: str | None


@define
class _Counter:
    seconds: float
    at: float


class Usage:
    """Requests metrics from lenders on demand, at most every ``FRESH`` seconds."""

    def __init__(self, clock: IReactorTime, nodes: Nodes) -> None:
        self._clock = clock
        self._nodes = nodes
        self._since = rfc3339(wall_clock(clock)())
        self._counters: dict[tuple[str, str], _Counter] = {}
        self._samples: list[Sample] = []
        self._requested_at = float("-inf")

    async def samples(self) -> list[Sample]:
        """Return the usage of all containers with known metrics."""
        if self._clock.seconds() - self._requested_at < FRESH:
            return self._samples
        counted: dict[tuple[str, str], Sample] = {}
        answers = await self._ask()
        pods = {node: {pod.metadata.key: pod for pod in self._nodes.pods(node)} for node, _, _ in answers}
        for node, local, answer in answers:
            for metrics in answer:
                # A lender may name a pod as often as it likes; it counts once.
                if (pod := pods[node].pop(Key(local, metrics.metadata.name), None)) is not None:
                    counted |= {(each.uid, each.container): each for each in self._count(metrics, pod, node)}
        found = list(counted.values())
        self._requested_at = self._clock.seconds()
        self._samples = found
        self._counters = {key: counter for key, counter in self._counters.items() if key in counted}
        return found

    async def _ask(self) -> list[tuple[str, str, list[PodMetrics]]]:
        """Return what was answered about each node and local namespace."""
        asking = [
            Deferred.fromCoroutine(_ask_about(access, local)).addTimeout(REQUEST_TIMEOUT, self._clock)
            for access in self._nodes.accesses()
            for local in access.namespaces
        ]
        answers = await DeferredList(asking, consumeErrors=True)
        return [answer for succeeded, answer in answers if succeeded]

    def _count(self, metrics: PodMetrics, pod: HomePod, node: str) -> Iterable[Sample]:
        key = pod.metadata.key
        route = self._nodes.route(key)
        if route is None or route.there is False:
            return
        now = self._clock.seconds()
        own = _containers_of(pod)
        pod_started, starts = _starts(pod)
        for container in metrics.containers:
            if container.name not in own:
                continue
            own.remove(container.name)
            cores, memory = _amount(container.usage, "cpu"), _amount(container.usage, "memory")
            counter = self._counters.setdefault((route.uid, container.name), _Counter(0.0, now))
            counter.seconds += float(cores) * min(now - counter.at, LONGEST_GAP)
            counter.at = now
            yield Sample(
                node=node,
                pod=key,
                uid=route.uid,
                container=container.name,
                cores=float(cores),
                seconds=counter.seconds,
                memory=int(memory),
                started=starts.get(container.name, pod_started),
                pod_started=pod_started,
            )

    async def summary(self, node_name: str) -> dict[str, Any]:
        """Return the body of /stats/summary of a node (k8s.io/kubelet/pkg/apis/stats/v1alpha1); empty: of all."""
        samples = _of_node(await self.samples(), node_name)
        now = rfc3339(wall_clock(self._clock)())
        pods: dict[Key, dict[str, Any]] = {}
        for sample in samples:
            ref = {"name": sample.pod.name, "namespace": sample.pod.namespace, "uid": sample.uid}
            pod = pods.setdefault(sample.pod, {"podRef": ref, "startTime": sample.pod_started, "containers": []})
            pod["containers"].append({"name": sample.container, "startTime": sample.started, **_stats([sample], now)})
        for key, pod in pods.items():
            pod.update(_stats([sample for sample in samples if sample.pod == key], now))
        # A virtual node is up since its kubelet is: this daemon.
        node = {"nodeName": node_name, "startTime": self._since, **_stats(samples, now)}
        return {"node": node, "pods": list(pods.values())}

    async def text(self, node_name: str) -> str:
        """Return the body of /metrics/resource of a node in the Prometheus text format (KEP-727).

        Without a node: of all, without the lines of a node.
        """
        samples = _of_node(await self.samples(), node_name)
        lines: list[str] = []
        whole = [("", samples)] if node_name else []
        by_pod: dict[Key, list[Sample]] = {}
        for sample in samples:
            by_pod.setdefault(sample.pod, []).append(sample)
        containers = [(_labels(s.pod, container=s.container), [s]) for s in samples]
        pods = [(_labels(key), group) for key, group in by_pod.items()]
        for prefix, groups in (("container", containers), ("node", whole), ("pod", pods)):
            lines += _family(f"{prefix}_cpu_usage_seconds_total", "counter", groups, lambda s: s.seconds)
            lines += _family(f"{prefix}_memory_working_set_bytes", "gauge", groups, lambda s: s.memory)
        lines += ["# TYPE resource_scrape_error gauge", "resource_scrape_error 0"]
        return "\n".join(lines) + "\n"


def _of_node(samples: list[Sample], node: str) -> list[Sample]:
    return [sample for sample in samples if not node or sample.node == node]


async def _ask_about(access: NodeAccess, local: str) -> tuple[str, str, list[PodMetrics]]:
    if access.client is None:
        return access.node, local, []
    try:
        answer = await access.client.raw("GET", collection(POD_METRICS, access.namespaces[local]))
        # One that is small in JSON and huge once decoded is none.
        found = msgspec.json.decode(answer, type=_List).items if count_parts(answer) <= MOST_PARTS else []
    except (KubeError, msgspec.MsgspecError):
        found = []
    return access.node, local, found


def _containers_of(pod: HomePod) -> set[str]:
    """Return the names of a pod's own containers."""
    spec = msgspec.json.decode(pod.spec, type=_Containers)
    return {one.name for one in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)}


def _starts(pod: HomePod) -> tuple[str | None, dict[str, str]]:
    """Return when a pod began, by its status or else its creation, and by name when its running containers did."""
    status = msgspec.json.decode(pod.status, type=_Status)
    listed = (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses)
    began = {one.name: one.state.running.started_at for one in listed if one.state.running.started_at}
    return status.start_time or pod.metadata.creation_timestamp, began


def _family(name: str, kind: str, groups: list[tuple[str, list[Sample]]], value: Any) -> list[str]:
    lines = [f"{name}{labels} {sum(value(sample) for sample in group):.9g}" for labels, group in groups]
    return [f"# TYPE {name} {kind}", *lines] if lines else []


def _labels(pod: Key, **more: str) -> str:
    labels = {**more, "namespace": pod.namespace, "pod": pod.name}
    # All are names of Kubernetes, from objects of home: none needs to be escaped.
    return "{" + ",".join(f'{key}="{text}"' for key, text in sorted(labels.items())) + "}"


def _stats(samples: list[Sample], now: str) -> dict[str, Any]:
    cores, seconds = sum(s.cores for s in samples), sum(s.seconds for s in samples)
    return {
        "cpu": {"time": now, "usageNanoCores": int(cores * 1e9), "usageCoreNanoSeconds": int(seconds * 1e9)},
        "memory": {"time": now, "workingSetBytes": sum(s.memory for s in samples)},
    }


def _amount(usage: Mapping[str, str], name: str) -> Fraction:
    try:
        return max(parse(usage.get(name, "0")), Fraction(0))
    except ValueError:
        return Fraction(0)
