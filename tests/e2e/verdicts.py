"""What the results of the end-to-end tests say of the virtual node. Pure.

A spec counts when a pod of it was bound to the virtual node. Such a spec passes, or fails for one of the reasons
below, or fails; a reason is found in what the spec did, never in its name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from tests.e2e.suite import SpecResult

HOST: Final = "uses the host"
"""The pod, or one that the test made beside it, uses a namespace, a port or a path of the host."""
LENDER: Final = "fails on the lender"
"""The spec fails on the lender itself, each time that it was run there."""
CONTROL_RUNS: Final = 3


@frozen
class Traces:
    """What a cluster's audit log says of one spec: the pods that it made, and the nodes that they were bound to."""

    pods: list[Mapping[str, Any]] = field(factory=list)
    nodes: set[str] = field(factory=set)


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
                    found[spec].pods.append(event.get("requestObject", {}))
            case "pods", "binding":
                if spec := spec_of.get(reference.get("namespace", "")):
                    found[spec].nodes.add(event.get("requestObject", {}).get("target", {}).get("name", ""))
    return dict(found)


def rows(
    results: Sequence[SpecResult],
    seen: Mapping[str, Traces],
    control: Mapping[str, Sequence[SpecResult]],
    node: str,
) -> list[Row]:
    """Return a row for each spec that had a pod on ``node``, in the order of their names.

    ``control``: what came of the specs that failed on the lender itself, as often as they were run there.
    """
    return [
        Row(result.name, result.group, _verdict(result, seen[result.name], control), result.seconds, result.text)
        for result in sorted(results, key=lambda one: one.name)
        if result.name in seen and node in seen[result.name].nodes
    ]


def uses_host(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod asks for something of the machine that it runs on."""
    spec = pod.get("spec", {})
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        return True
    if any("hostPath" in volume for volume in spec.get("volumes", [])):
        return True
    containers = [*spec.get("containers", []), *spec.get("initContainers", [])]
    return any(port.get("hostPort") for container in containers for port in container.get("ports", []))


def _verdict(result: SpecResult, seen: Traces, control: Mapping[str, Sequence[SpecResult]]) -> str:
    if result.verdict != "failed":
        return result.verdict
    if any(map(uses_host, seen.pods)):
        return HOST
    tried = control.get(result.name, ())
    if len(tried) >= CONTROL_RUNS and all(one.verdict == "failed" for one in tried):
        return LENDER
    return "failed"
