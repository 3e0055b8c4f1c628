"""What ``gather`` takes from the daemons themselves: logs of their pods, and the pages that they serve."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferTimeout
from twisted.internet.error import ConnectError
from twisted.web.client import Agent, ResponseFailed, readBody

from liqod.cli.console.session import Session
from liqod.cli.setup.archive.redact import FIELDS, allowed, scrubbed
from liqod.cli.setup.surroundings.other_form import OURS
from liqod.config.schema import MetricsSettings
from liqod.kube.errors import KubeError
from liqod.kube.resources import PODS

Adding = Callable[[str, str], None]
"""Takes the path of a file and its text, of which the newest lines are kept."""
Noting = Callable[[str], None]

MOST_PODS: Final = 20
LINES: Final = 5000
"""Lines of a log that are asked for, as of the journal."""
WITHIN: Final = 10.0
"""Seconds that one log or page may take."""
PAGES: Final = ("metrics", "readyz")
METRICS_PORT: Final = "metrics"
"""The name of the port of the pods' pages."""


async def pods_of_ours(session: Session, note: Noting) -> list[dict[str, Any]]:
    """Return the pods that liqod itself runs in, none where it is a service of hosts."""
    try:
        found = await session.client.list(PODS, session.settings.kubernetes.namespace, labels=OURS)
    except KubeError as error:
        note(f"pods of liqod: {scrubbed(str(error))[:200]}")
        return []
    pods: list[dict[str, Any]] = found.items
    if len(pods) > MOST_PODS:
        note(f"pods of liqod: {len(pods) - MOST_PODS} of {len(pods)}")
    return pods[:MOST_PODS]


async def of_pods(session: Session, pods: list[dict[str, Any]], add: Adding, note: Noting) -> None:
    """Add the logs of pods, before their last restart as well, and the pages of those that serve some."""
    for pod in pods:
        name = pod["metadata"]["name"]
        base = f"/api/v1/namespaces/{quote(pod['metadata']['namespace'], safe='')}/pods"
        for container, is_previous in logs_of(pod):
            path = f"pods/{name}/{container}{'-before' if is_previous else ''}.log"
            query = f"container={quote(container, safe='')}&tailLines={LINES}{'&previous=true' if is_previous else ''}"
            await _add(session, path, session.client.raw("GET", f"{base}/{name}/log?{query}"), (add, note))
        if (port := page_port(pod)) is not None:
            for page in PAGES:
                reading = session.client.raw("GET", f"{base}/https:{name}:{port}/proxy/{page}")
                await _add(session, f"pods/{name}/{page}.txt", reading, (add, note))


async def of_this_host(session: Session, add: Adding, note: Noting) -> None:
    """Add the pages of a daemon on this host, where they are for everybody on it."""
    port = open_port(session.settings.metrics)
    if port is None:
        note("host/metrics: the pages are not served, or not to everybody on this host")
        return
    agent = Agent(session.reactor, connectTimeout=WITHIN)
    for page in PAGES:
        await _add(session, f"host/{page}.txt", _get(agent, f"http://127.0.0.1:{port}/{page}"), (add, note))


def logs_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the containers of a pod, and whether it is the log before a restart. Pure."""
    status = pod.get("status") or {}
    restarts = {one.get("name"): one.get("restartCount", 0) for one in status.get("containerStatuses") or ()}
    for container in (pod.get("spec") or {}).get("containers") or ():
        yield container["name"], False
        if restarts.get(container["name"]):
            yield container["name"], True


def page_port(pod: Mapping[str, Any]) -> int | None:
    """Return the port on which a pod serves its pages, None where it has none. Pure."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == METRICS_PORT:
                return int(port["containerPort"])
    return None


def open_port(settings: MetricsSettings) -> int | None:
    """Return the port of a host's pages, if they are served without TLS and to everybody on it. Pure."""
    found = re.match(r"tcp:(\d+)(:|\Z)", settings.listen)
    if found is None or settings.tls != "none" or settings.authentication != "none":
        return None
    return int(found[1])


def states_of(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return of pods what may be kept. Pure."""
    return [allowed(pod, FIELDS["Pod"]) for pod in pods]


async def _get(agent: Agent, url: str) -> bytes:
    response = await agent.request(b"GET", url.encode())
    body: bytes = await readBody(response)
    # The page of a daemon that is not ready says why: that is the answer.
    return b"%d\n%s" % (response.code, body) if response.code >= 300 else body


async def _add(session: Session, path: str, reading: Coroutine[Any, Any, bytes], to: tuple[Adding, Noting]) -> None:
    add, note = to
    asking = Deferred.fromCoroutine(reading)
    asking.addTimeout(WITHIN, session.reactor)
    try:
        data = await asking
    except DeferTimeout:
        note(f"{path}: no answer within {WITHIN:.0f} s")
    except (KubeError, ConnectError, ResponseFailed) as error:
        note(f"{path}: {scrubbed(str(error))[:200]}")
    else:
        add(path, scrubbed(data.decode("utf-8", "replace")))
