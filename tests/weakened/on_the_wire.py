"""An attempt as an API server is asked for it, as a dry run: method, path and body. Pure."""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping
from typing import Any, Final

from liqod.identity import serving
from liqod.kube import resources
from liqod.kube.resources import Resource
from liqod.kubelet.api.certificate import REQUESTS
from tests.weakened.attempt import Attempt

_KINDS: Final = {
    (one.group, one.plural): one for one in (REQUESTS, *vars(resources).values()) if isinstance(one, Resource)
}
METHODS: Final = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE"}


def kind_of(attempt: Attempt) -> Resource:
    """Return the kind of the object that is asked for, or of the one that a part belongs to."""
    return _KINDS[attempt.request.group, attempt.request.resource.partition("/")[0]]


def namespace_of(attempt: Attempt) -> str:
    """Return the namespace of the object; empty where it has none."""
    return attempt.request.namespace if kind_of(attempt).namespaced else ""


def name_of(attempt: Attempt) -> str:
    """Return the name of the object."""
    one = attempt.request
    return one.name or str(((one.new or one.old or {}).get("metadata") or {}).get("name") or "x")


def path(attempt: Attempt) -> str:
    """Return the path that is asked for."""
    one = attempt.request
    resource, _, part = one.resource.partition("/")
    parts = ["/api/v1" if not one.group else f"/apis/{one.group}/{one.versions[0]}"]
    parts += ["namespaces", namespace_of(attempt)] if namespace_of(attempt) else []
    parts += [resource]
    parts += [name_of(attempt)] if part or one.operation != "CREATE" else []
    parts += [part] if part else []
    return "/".join(parts) + "?dryRun=All"


def created(attempt: Attempt) -> dict[str, Any]:
    """Return the object of an attempt to create it, as it is sent."""
    made = _complete(attempt, attempt.request.new or {})
    if attempt.request.resource == "serviceaccounts/token":
        return {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [], **made["spec"]},
        }
    return made


def before(attempt: Attempt) -> dict[str, Any]:
    """Return the object that has to be there before it is changed or deleted."""
    return _complete(attempt, attempt.request.old or {})


def changed(attempt: Attempt, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an object becomes by an attempt: what is there, with what the attempt has besides or instead."""
    made: dict[str, Any] = _over(present, _complete(attempt, attempt.request.new or {}))
    return made


def deleted(attempt: Attempt) -> dict[str, Any]:
    """Return the options of a deletion; where there are such an API server does not read those of the path."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], **(attempt.request.options or {})}


def _complete(attempt: Attempt, thing: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with what an API server asks for of its kind, and policies do not look at."""
    one, kind = attempt.request, kind_of(attempt)
    metadata = {**(thing.get("metadata") or {})}
    metadata.setdefault("name", "x")
    metadata.pop("namespace", None)
    version = f"{one.group}/{one.versions[0]}".strip("/")
    made = {"apiVersion": version, "kind": kind.kind, **copy.deepcopy({**thing}), "metadata": metadata}
    if kind == REQUESTS:
        asked, _ = serving.request("somebody", "somebodies", [])
        made["spec"] = {
            "request": base64.b64encode(asked).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        }
    return made


def _over(present: Any, new: Any) -> Any:
    if isinstance(present, Mapping) and isinstance(new, Mapping):
        return {**present, **{name: _over(present.get(name), one) for name, one in new.items()}}
    return new
