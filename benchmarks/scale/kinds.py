"""What a sweep makes more and more of, and when it is there: pods, peers, services with endpoints, Secrets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from benchmarks.offloading.latency import Caller
from benchmarks.offloading.offload import NAMESPACE, deployment
from benchmarks.peering.hub import until
from benchmarks.scale.stage import Stage
from liqod.kube.resources import SHADOWENDPOINTSLICES

PATIENCE: Final = 4 * 3600.0
"""Seconds that one size may take."""
EACH: Final = 100
"""Pods at each peer."""
SPACE: Final = "bench"
OPENER: Final = "opener"
_DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{SPACE}/deployments"


@frozen(kw_only=True)
class Kind:
    """One kind of sweep: its unit, the usual sizes, how many lenders and pods a size takes, and what is done.

    ``prepare`` is not measured; ``run`` returns the seconds from the first request until all is there.
    """

    unit: str
    sizes: Sequence[int]
    lenders: Callable[[int], int]
    pods: Callable[[int], int]
    prepare: Callable[[Stage], None]
    run: Callable[[Stage, int], float]


def namespace(stage: Stage) -> None:
    """Make the enabled namespace."""
    stage.home_caller().post("/api/v1/namespaces", NAMESPACE)


def opened(stage: Stage) -> None:
    """Make the enabled namespace, and have it at each lender, which takes a pod there."""
    namespace(stage)
    for number, node in enumerate(stage.nodes, 1):
        _deploy(stage, f"{OPENER}-{number}", 1, {"kubernetes.io/hostname": node}, app=OPENER)
    _wait_ready(stage, [(f"{OPENER}-{number}", 1) for number in range(1, len(stage.nodes) + 1)])


def pods(stage: Stage, size: int) -> float:
    """Offload a Deployment of so many pods."""
    begin = time.monotonic()
    _deploy(stage, "many", size, {"liqo.io/type": "virtual-node"})
    _wait_ready(stage, [("many", size)])
    return time.monotonic() - begin


def peers(stage: Stage, size: int) -> float:
    """Offload a Deployment to each peer."""
    begin = time.monotonic()
    for number, node in enumerate(stage.nodes, 1):
        _deploy(stage, f"at-{number}", EACH, {"kubernetes.io/hostname": node})
    _wait_ready(stage, [(f"at-{number}", EACH) for number in range(1, size + 1)])
    return time.monotonic() - begin


def services(stage: Stage, size: int) -> float:
    """Make so many Services of the pods that run at each lender; each lender needs the endpoints of the others."""
    slices = f"apis/{SHADOWENDPOINTSLICES.api_version}"

    def body(name: str) -> dict[str, Any]:
        spec = {"ports": [{"name": "http", "port": 80}], "selector": {"app": OPENER}}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}

    return _made(stage, size, body, {"services": "api/v1", SHADOWENDPOINTSLICES.plural: slices})


def secrets(stage: Stage, size: int) -> float:
    """Make so many Secrets in the namespace."""

    def body(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"key": "dmFsdWU="}}

    return _made(stage, size, body, {"secrets": "api/v1"})


KINDS: Final[Mapping[str, Kind]] = {
    "pods": Kind(
        unit="pods on one virtual node",
        sizes=(100, 300, 1000, 3000, 10000),
        lenders=lambda size: 1,
        pods=lambda size: size,
        prepare=namespace,
        run=pods,
    ),
    "peers": Kind(
        unit=f"peers with {EACH} pods each",
        sizes=(2, 5, 10, 25, 50, 100),
        lenders=lambda size: size,
        pods=lambda size: EACH,
        prepare=namespace,
        run=peers,
    ),
    "services": Kind(
        unit="services over three clusters",
        sizes=(50, 150, 500, 1500, 5000),
        lenders=lambda size: 2,
        pods=lambda size: 1,
        prepare=opened,
        run=services,
    ),
    "secrets": Kind(
        unit="Secrets of one namespace",
        sizes=(50, 150, 500, 1500, 5000),
        lenders=lambda size: 1,
        pods=lambda size: 1,
        prepare=opened,
        run=secrets,
    ),
}


def counted(caller: Caller, path: str) -> int:
    """Return how many objects there are at a path, of which one is read."""
    page = json.loads(caller.get(f"{path}?limit=1"))
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)


def _deploy(stage: Stage, name: str, replicas: int, selector: Mapping[str, str], app: str = "") -> None:
    body = deployment(name, replicas, selector, SPACE)
    if app:
        body["spec"]["template"]["metadata"]["labels"]["app"] = body["spec"]["selector"]["matchLabels"]["app"] = app
        # Two Deployments of one app would take each other's pods.
        for labels in (body["spec"]["template"]["metadata"]["labels"], body["spec"]["selector"]["matchLabels"]):
            labels["number"] = name
    stage.home_caller().post(_DEPLOYMENTS, body)


def _wait_ready(stage: Stage, wanted: Sequence[tuple[str, int]]) -> None:
    """Wait until each of some Deployments has as many pods that are Ready."""
    api = stage.home_caller()
    left = list(wanted)

    def ready() -> bool:
        while left:
            name, replicas = left[-1]
            status = json.loads(api.get(f"{_DEPLOYMENTS}/{name}")).get("status") or {}
            if status.get("readyReplicas", 0) < replicas:
                return False
            left.pop()
        return True

    until(f"the pods of {len(left)} deployments are Ready", ready, pause=0.25, patience=PATIENCE)


def _made(stage: Stage, size: int, body: Callable[[str], dict[str, Any]], seen: Mapping[str, str]) -> float:
    """Make so many objects at home, of the first kind of ``seen``; wait until each lender has as many more of each.

    ``seen`` has the path of the API group of each kind.
    """
    plural = next(iter(seen))
    places = [
        (caller, f"/{group}/namespaces/{space}/{kind}")
        for caller, space in ((Caller(path), _remote(path)) for _, path in stage.lenders)
        for kind, group in seen.items()
    ]
    wanted = [counted(caller, path) + size for caller, path in places]
    home = stage.home_caller()
    begin = time.monotonic()
    for number in range(size):
        home.post(f"/{seen[plural]}/namespaces/{SPACE}/{plural}", body(f"one-{number}"))

    def there() -> bool:
        return all(counted(caller, path) >= least for (caller, path), least in zip(places, wanted, strict=True))

    until(f"{size} {plural} are at each lender", there, pause=0.25, patience=PATIENCE)
    return time.monotonic() - begin


def _remote(kubeconfig: Path) -> str:
    """Return what the namespace is called at a lender."""
    found = json.loads(Caller(kubeconfig).get("/api/v1/namespaces"))["items"]
    names = (str(one["metadata"]["name"]) for one in found)
    return next(name for name in names if name == SPACE or name.startswith(f"{SPACE}-"))
