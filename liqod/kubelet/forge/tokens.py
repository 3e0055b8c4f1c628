"""Service-account tokens in a pod spec: what a pod at the lender may not have.

A token source that travelled verbatim would make the lender's API server mint a token of one of *its* service accounts
for our pod. So the projected volume that the API server adds by itself goes, with its mounts, and token sources vanish
from the user's own projected volumes. Reflecting tokens of the home cluster means replacing ``without_tokens``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

API_ACCESS_PREFIX: Final = "kube-api-access-"
_TOKEN_SOURCES: Final = ("serviceAccountToken", "podCertificate")
_CONTAINERS: Final = ("containers", "initContainers")


def without_tokens(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod spec without tokens of the API server; the spec given is left as it is."""
    forged = dict(spec)
    volumes = spec.get("volumes") or []
    removed = {volume.get("name") for volume in volumes if _is_api_access(volume)}
    kept = [_without_token_sources(volume) for volume in volumes if volume.get("name") not in removed]
    if kept:
        forged["volumes"] = kept
    else:
        forged.pop("volumes", None)
    for kind in _CONTAINERS:
        if spec.get(kind):
            forged[kind] = [_without_mounts(container, removed) for container in spec[kind]]
    forged.pop("serviceAccountName", None)
    forged.pop("serviceAccount", None)
    forged["automountServiceAccountToken"] = False
    return forged


def _is_api_access(volume: Mapping[str, Any]) -> bool:
    sources = (volume.get("projected") or {}).get("sources") or []
    return str(volume.get("name", "")).startswith(API_ACCESS_PREFIX) and any(
        "serviceAccountToken" in s for s in sources
    )


def _without_token_sources(volume: dict[str, Any]) -> dict[str, Any]:
    projected = volume.get("projected")
    if not projected:
        return volume
    sources = projected.get("sources") or []
    kept = [source for source in sources if not any(kind in source for kind in _TOKEN_SOURCES)]
    if len(kept) == len(sources):
        return volume
    return {**volume, "projected": {**projected, "sources": kept}}


def _without_mounts(container: dict[str, Any], removed: set[Any]) -> dict[str, Any]:
    mounts = container.get("volumeMounts")
    if not mounts or not removed:
        return container
    kept = [mount for mount in mounts if mount.get("name") not in removed]
    if len(kept) == len(mounts):
        return container
    forged = {key: value for key, value in container.items() if key != "volumeMounts"}
    if kept:
        forged["volumeMounts"] = kept
    return forged
