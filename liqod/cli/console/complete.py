"""Completes names of peers, namespaces, pods and contexts in a shell, by way of ``kubectl``.

``kubectl`` starts five times as fast as the API client of liqod, and knows every way to authenticate. Where it is
missing, or does not answer in time, nothing is offered.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any, Final

import click

TIMEOUT: Final = 2.0
"""Seconds that a user who pressed TAB waits at most."""
MOST: Final = 500
"""Names that are offered at most."""
_PEERS: Final = "/apis/discovery.liqo.io/v1alpha1/foreignclusters"


def contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the contexts of the kubeconfig."""
    return _matching(_kubectl(context, "config", "get-contexts", "-o", "name").split(), incomplete)


def peers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the peers by name, or by ID where they have none."""
    found = _items(context, _PEERS)
    names = [(one.get("status") or {}).get("clusterName") or one["metadata"]["name"] for one in found]
    return _matching(names, incomplete)


def namespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the namespaces."""
    return _matching(_names(context, "/api/v1/namespaces"), incomplete)


def objects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return what ``explain`` explains: kinds, then names of the kind that was given."""
    return _matching(_of_kind(context, list(context.params.get("words") or ())), incomplete)


def _of_kind(context: click.Context, words: list[str]) -> list[str]:
    namespace = context.params.get("namespace") or "default"
    paths = {
        "pod": f"/api/v1/namespaces/{namespace}/pods",
        "service": f"/api/v1/namespaces/{namespace}/services",
        "claim": f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
        "secret": f"/api/v1/namespaces/{namespace}/secrets",
        "configmap": f"/api/v1/namespaces/{namespace}/configmaps",
        "ingress": f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses",
        "deployment": f"/apis/apps/v1/namespaces/{namespace}/deployments",
        "statefulset": f"/apis/apps/v1/namespaces/{namespace}/statefulsets",
        "namespace": "/api/v1/namespaces",
        "node": "/api/v1/nodes?labelSelector=liqo.io/type%3Dvirtual-node",
        "peer": _PEERS,
        "tenant": _PEERS,
        "slice": "/apis/sharing.liqo.io/v1alpha1/resourceslices",
    }
    if not words:
        return list(paths)
    return _names(context, paths[words[0]]) if words[0] in paths else []


def _names(context: click.Context, path: str) -> list[str]:
    return [str(item["metadata"]["name"]) for item in _items(context, path)]


def _items(context: click.Context, path: str) -> list[dict[str, Any]]:
    try:
        return list(json.loads(_kubectl(context, "get", "--raw", path)).get("items") or [])[:MOST]
    except (ValueError, AttributeError):
        return []


def _kubectl(context: click.Context, *arguments: str) -> str:
    command = ["kubectl", *arguments]
    at: click.Context | None = context
    while at is not None:
        for name in ("kubeconfig", "context"):
            value = at.params.get(name)
            if value and f"--{name}={value}" not in command and not (name == "context" and "get-contexts" in command):
                command.append(f"--{name}={value}")
        at = at.parent
    try:
        # Without input: a plugin that asks for a password would read what is typed on the command line.
        done = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _matching(names: list[str], incomplete: str) -> list[str]:
    # A name with other characters is not one that a shell may be given unquoted: peers choose their own names.
    plain = (name for name in names if name and all(one.isalnum() or one in "-._:@/" for one in name))
    return sorted({name for name in plain if name.startswith(incomplete)})[:MOST]
