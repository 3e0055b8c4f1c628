"""What the results of the end-to-end tests say of the virtual node. Pure.

A spec counts when a pod of it was bound to a virtual node. Such a spec passes, or fails for one of the reasons
below, or fails; a reason is found in what the spec did, never in its name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from liqod.model.records.facts import PROXY
from tests.e2e.suite import SpecResult

HOST: Final = "uses the host"
"""The pod, or one that the test made beside it, uses a namespace, a port or a path of the host."""
LENDER: Final = "fails on the lender"
"""The spec fails on the lender itself, each time that it was run there."""
EBPF: Final = "services by eBPF"
"""The test made a Service, and in one of the clusters programs in the kernel carry out Services, before any rule."""
REASONS: Final = (HOST, LENDER, EBPF)
_IN_KERNEL: Final = frozenset({"cilium"})
"""What carries out Services by eBPF, as ClusterFacts name it."""
CONTROL_RUNS: Final = 3


@define
class Traces:
    """What a cluster's audit log says of one spec: its pods, the nodes that they were bound to, and its Services."""

    pods: list[Mapping[str, Any]] = field(factory=list)
    nodes: set[str] = field(factory=set)
    services: int = 0


@frozen
class Row:
    """The verdict on one spec: ``passed``, ``failed``, ``skipped``, or the reason why it may fail."""

    name: str
    group: str
    verdict: str
    seconds: float
    text: str = ""


def traces(events: Iterable[Mapping[str, Any]]) -> dict[str, Traces]:
    """Return what an audit log says of each spec, by the spec's name.

    The tests' user agent ends with " -- " and the name of the spec that runs; their namespaces are found by it, and
    what controllers make in these is theirs as well.
    """
    spec_of: dict[str, str] = {}
    found: defaultdict[str, Traces] = defaultdict(Traces)
    for event in events:
        if event.get("verb") != "create":
            continue
        reference = event.get("objectRef", {})
        match reference.get("resource"), reference.get("subresource", ""):
            case "namespaces", "":
                _, _, spec = event.get("userAgent", "").partition(" -- ")
                if spec:
                    spec_of[reference.get("name", "")] = spec.strip()
            case "pods", "":
                if spec := spec_of.get(reference.get("namespace", "")):
                    pod = event.get("requestObject", {})
                    found[spec].pods.append(pod)
                    # A pod that names its node passes by the scheduler, and nobody binds it.
                    if named := pod.get("spec", {}).get("nodeName"):
                        found[spec].nodes.add(named)
            case "pods", "binding":
                if spec := spec_of.get(reference.get("namespace", "")):
                    found[spec].nodes.add(event.get("requestObject", {}).get("target", {}).get("name", ""))
            case "services", "":
                if spec := spec_of.get(reference.get("namespace", "")):
                    found[spec].services += 1
    return dict(found)


@frozen
class Control:
    """What came of the specs that failed on the lender itself, as often as they were run there, by their names.

    ``unfinished`` is why they were not run as often as wanted, or empty.
    """

    results: Mapping[str, Sequence[SpecResult]] = field(factory=dict)
    unfinished: str = ""


NO_CONTROL: Final = Control()


def rows(
    results: Sequence[SpecResult],
    seen: Mapping[str, Traces],
    control: Control,
    nodes: Collection[str],
    *,
    ebpf: bool = False,
) -> list[Row]:
    """Return a row for each spec that had a pod on one of the ``nodes``, in the order of their names.

    ``ebpf``: whether Services are carried out by eBPF at home or at a lender.
    """
    found = []
    for result in sorted(results, key=lambda one: one.name):
        traces_of = seen.get(result.name, Traces())
        if traces_of.nodes.isdisjoint(nodes):
            continue
        verdict, text = _verdict(result, traces_of, control.results.get(result.name, ()), ebpf), result.text
        if verdict == "failed" and control.unfinished:
            text = f"{control.unfinished}: {text}"
        found.append(Row(result.name, result.group, verdict, result.seconds, text))
    return found


def ebpf_services(facts: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether one of these ClusterFacts says that Services are carried out by eBPF."""
    return any(
        fact.get("name") == PROXY and not _IN_KERNEL.isdisjoint(fact.get("values", ()))
        for record in facts
        for fact in record.get("status", {}).get("facts", ())
    )


def uses_host(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod asks for something of the machine that it runs on."""
    spec = pod.get("spec", {})
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        return True
    if any("hostPath" in volume for volume in spec.get("volumes", [])):
        return True
    containers = [*spec.get("containers", []), *spec.get("initContainers", [])]
    return any(port.get("hostPort") for container in containers for port in container.get("ports", []))


def _verdict(result: SpecResult, seen: Traces, tried: Sequence[SpecResult], ebpf: bool) -> str:
    if result.verdict != "failed":
        return result.verdict
    if any(map(uses_host, seen.pods)):
        return HOST
    if len(tried) >= CONTROL_RUNS and all(one.verdict == "failed" for one in tried):
        return LENDER
    return EBPF if ebpf and seen.services else "failed"
