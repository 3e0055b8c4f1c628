"""An API server in memory that notes what it is asked for, in the form of the audit log of a real one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from tests.scenario.side import Quiet, asked

NAMED: Final = frozenset({"get", "update", "patch", "delete"})
_SPACE: Final = re.compile(r"/(?:api|apis/[^/]+)/[^/]+/namespaces/([^/]+)/")
"""The paths of what is in a namespace."""


class Noting(Resource):
    """Stands before an API server and appends a line of JSON for each request; the user is what the client says."""

    isLeaf = True

    def __init__(self, behind: Resource, file: Path) -> None:
        super().__init__()
        self._behind = behind
        self._file = file
        file.touch()

    def render(self, request: Request) -> Any:
        with self._file.open("a") as out:
            out.write(json.dumps(event(request, datetime.now(UTC))) + "\n")
        return self._behind.render(request)


def event(request: Request, now: datetime) -> dict[str, Any]:
    """Return a request in the form of ``Event`` of ``audit.k8s.io/v1``, as far as benchmarks read it."""
    verb, what = asked(request)
    path = request.path.decode().rstrip("/")
    last, space = path.split("/"), _SPACE.match(path)
    resource, _, subresource = what.partition("/")
    name = "" if verb not in NAMED else last[-2] if subresource else last[-1]
    return {
        "verb": verb,
        "requestURI": request.uri.decode(errors="replace"),
        "objectRef": {
            "resource": resource,
            "subresource": subresource,
            "namespace": space[1] if space else "",
            "name": name,
        },
        "user": {"username": request.getHeader("user-agent") or ""},
        "requestReceivedTimestamp": now.isoformat(),
    }


class NotedCluster(SandboxCluster):
    """A cluster whose API server notes its requests in a file."""

    def __init__(self, clock: Any, name: str, nodes: Sequence[SandboxNode], file: Path) -> None:
        self._file = file
        file.touch()
        super().__init__(clock, name, nodes)

    def _site(self) -> Site:
        site = Quiet(Noting(self.server, self._file))
        site.displayTracebacks = False
        return site


def cluster_of(clock: Any, name: str, nodes: Sequence[SandboxNode], file: str = "") -> SandboxCluster:
    """Return a cluster that notes its requests in a file, where one is named."""
    return NotedCluster(clock, name, nodes, Path(file)) if file else SandboxCluster(clock, name, nodes)


def events(file: Path, begin: int = 0) -> list[dict[str, Any]]:
    """Return what was noted from a length of the file on; a line that is being written is left out."""
    with file.open("rb") as log:
        log.seek(begin)
        lines = log.read().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith(b"\n")]
