"""Web servers as offloaded pods, and clients that count what they are answered."""

from __future__ import annotations

from typing import Any, Final

from tests.real.programs.workloads import VIRTUAL, bare_pod, client, pod_spec, workload

WEB: Final = "web"
PORT: Final = 8080
ECHO: Final = "echo"
ECHO_PORT: Final = 7000
SEEN: Final = "/tmp/seen"
LINGER: Final = 20
"""Seconds for which a server goes on after it was asked to end: until then all have learned that it is about to."""


def web(replicas: int, *, name: str = WEB, version: str = "1", **more: Any) -> dict[str, Any]:
    """Return a Deployment of web servers for virtual nodes; another ``version`` makes other pods of it."""
    probe = {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 2, "failureThreshold": 30}
    main = client("serve", f":{PORT}", str(LINGER), readinessProbe=probe, env=[{"name": "VERSION", "value": version}])
    spec = pod_spec(main, VIRTUAL, terminationGracePeriodSeconds=LINGER + 20)
    return workload("Deployment", name, spec, replicas=replicas, **more)


def load(name: str, url: str, selector: dict[str, str], *, host: str = "-", clients: int = 8) -> dict[str, Any]:
    """Return a pod that asks a URL all the time; ``SEEN`` has how often it was answered and how often not."""
    return bare_pod(name, pod_spec(client("load", url, host, str(clients), SEEN), selector))


def echo(selector: dict[str, str], name: str = ECHO) -> dict[str, Any]:
    """Return a pod that sends back what it is sent."""
    probe = {"tcpSocket": {"port": ECHO_PORT}, "periodSeconds": 2, "failureThreshold": 30}
    return bare_pod(name, pod_spec(client("echo", f":{ECHO_PORT}", readinessProbe=probe), selector))


def held(name: str, address: str, selector: dict[str, str]) -> dict[str, Any]:
    """Return a pod that keeps one connection for as long as it holds; ``SEEN`` says whether it broke."""
    return bare_pod(name, pod_spec(client("hold", f"{address}:{ECHO_PORT}", SEEN), selector))
