"""Parses requests to a kubelet: their target, the required rights, and the path at the lender (pure).

Source: the routes of the kubelet's server (k8s.io/kubernetes pkg/kubelet/server), and the options of the subresources
of pods (core/v1 PodLogOptions, PodExecOptions, PodAttachOptions, PodPortForwardOptions).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode

from attrs import frozen

from liqod.kube.requests import item
from liqod.kube.resources import PODS
from liqod.model.ids import Key, is_dns_label

# apimachinery, pkg/util/validation: IsDNS1123Subdomain.
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_PARAMETERS: Final = 4096
"""Maximum number of query parameters: words of a command and options together."""

_LOG_OPTIONS: Final = frozenset(
    {"follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"}
)
_TRUE: Final = ("1", "t", "true")
"""How Go reads true (strconv, ParseBool), but for the case of letters."""
_STREAM_FLAGS: Final[Mapping[str, str]] = {"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"}
_KINDS: Final[Mapping[str, str]] = {"exec": "exec", "attach": "attach", "portForward": "portforward"}
_PAGES: Final[Mapping[str, str]] = {
    "pods": "pods",
    "runningpods": "pods",
    "healthz": "healthz",
    "stats/summary": "stats",
    "metrics/resource": "metrics",
}

Query = tuple[tuple[str, str], ...]


@frozen
class Logs:
    """The log of one container; ``query`` has the options of the pods/log subresource."""

    pod: Key
    query: Query

    @property
    def follows(self) -> bool:
        """Whether it is read as it grows, for as long as the container runs."""
        return any(key == "follow" and value.lower() in _TRUE for key, value in self.query)


@frozen
class Stream:
    """A connection into a pod: ``kind`` is the subresource (exec, attach, portforward), ``query`` its options."""

    kind: str
    pod: Key
    query: Query


@frozen
class Page:
    """An endpoint about the nodes as a whole: pods, healthz, stats/summary or metrics/resource."""

    name: str


Target = Logs | Stream | Page


def parse(uri: str) -> Target | None:
    """Return the target of a request's path and query; None for paths that a virtual node does not serve."""
    path, _, text = uri.partition("?")
    name = path.strip("/")
    if name in _PAGES:
        return Page("pods" if name == "runningpods" else name)
    parts = [unquote(part) for part in name.split("/")]
    try:
        query = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        return None
    if parts[0] == "containerLogs" and len(parts) == 4:
        pod, container = _pod(parts[1], parts[2]), parts[3]
        if pod is None or not is_dns_label(container):
            return None
        kept = [(key, value) for key, value in query if key in _LOG_OPTIONS]
        return Logs(pod, (("container", container), *kept))
    kind = _KINDS.get(parts[0])
    if kind == "portforward" and len(parts) in (3, 4):
        pod = _pod(parts[1], parts[2])
        ports = tuple(("ports", value) for key, value in query if key in ("port", "ports"))
        return None if pod is None else Stream(kind, pod, ports)
    # A fifth part makes the fourth the pod's UID: the home pod's, which the lender does not know.
    if kind is not None and kind != "portforward" and len(parts) in (4, 5):
        pod, container = _pod(parts[1], parts[2]), parts[-1]
        if pod is None or not is_dns_label(container):
            return None
        return Stream(kind, pod, (("container", container), *_stream_options(kind, query)))
    return None


def _pod(namespace: str, name: str) -> Key | None:
    if not is_dns_label(namespace) or _SUBDOMAIN.fullmatch(name) is None:
        return None
    return Key(namespace, name)


def _stream_options(kind: str, query: list[tuple[str, str]]) -> Query:
    flags = tuple(
        (_STREAM_FLAGS[key], "true") for key, value in query if key in _STREAM_FLAGS and value in ("1", "true")
    )
    words = tuple(("command", value) for key, value in query if kind == "exec" and key == "command")
    return (*flags, *words)


def lender_path(target: Logs | Stream, namespace: str) -> str:
    """Return the path of the same request at the lender's API server, in the remote namespace."""
    subresource = "log" if isinstance(target, Logs) else target.kind
    path = item(PODS, namespace, target.pod.name, subresource)
    return f"{path}?{urlencode(target.query)}" if target.query else path


@frozen
class NodeRight:
    """A verb on a subresource of nodes; the caller needs one of several."""

    verb: str
    subresource: str


def rights(target: Target | None, method: str) -> tuple[NodeRight, ...]:
    """Return the rights of which a caller needs one (Kubernetes, "Kubelet authentication/authorization").

    Streams need ``create`` even if they are opened by GET, as WebSockets are (RFC 6455): a caller with read-only rights
    must not run commands.
    """
    verb = "create" if isinstance(target, Stream) or method not in ("GET", "HEAD") else "get"
    if isinstance(target, Page):
        return (NodeRight(verb, _PAGES[target.name]), NodeRight(verb, "proxy"))
    return (NodeRight(verb, "proxy"),)
