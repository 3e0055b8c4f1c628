"""Subresources and kinds that do something instead of storing an object: binding, eviction, tokens, scale, reviews."""

from __future__ import annotations

from typing import Any

import attrs

from kubesandbox.auth import tokens
from kubesandbox.auth.rbac import Access, Roles
from kubesandbox.auth.tokens import User
from kubesandbox.kinds import statuses
from kubesandbox.kinds.kinds import PODS, SECRETS, SERVICEACCOUNTS, GroupResource, Json, Key, Kind
from kubesandbox.kinds.statuses import Cause
from kubesandbox.server.api import Api
from kubesandbox.server.requests import Caller, DeleteOptions
from kubesandbox.store.bodies import timestamp
from kubesandbox.store.state import Stored

_BINDINGS = GroupResource("", "pods/binding")


def success() -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def bind(api: Api, caller: Caller, key: Key, body: Json) -> Json:
    """Assign a pod to a node (``POST pods/NAME/binding``)."""
    kind = api.catalog.builtin(PODS)
    target = (body.get("target") or {}).get("name", "")
    if not target:
        raise statuses.invalid("", "Binding", key.name, [Cause.required("target.name")])
    current = api.get(kind, *key)
    pod = current.object
    if pod["metadata"].get("deletionTimestamp"):
        raise statuses.conflict(_BINDINGS, key.name, f"pod {key.name} is being deleted, cannot be assigned to a host")
    taken = pod["spec"].get("nodeName")
    if taken:
        raise statuses.conflict(_BINDINGS, key.name, f'pod {key.name} is already assigned to node "{taken}"')
    conditions = [each for each in (pod.get("status") or {}).get("conditions") or () if each["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": api.now(),
                 "observedGeneration": pod["metadata"].get("generation", 1)}  # fmt: skip
    bound = pod | {
        "spec": pod["spec"] | {"nodeName": target},
        "status": {**(pod.get("status") or {}), "conditions": [*conditions, scheduled]},
    }
    metadata = body.get("metadata") or {}
    annotations = {**(pod["metadata"].get("annotations") or {}), **(metadata.get("annotations") or {})}
    if annotations:
        bound["metadata"] = pod["metadata"] | {"annotations": annotations}
    bound["metadata"] = bound["metadata"] | {"generation": pod["metadata"].get("generation", 1) + 1}
    if not caller.dry_run:
        api.store.put(PODS, key, bound)
    return success()


async def evict(api: Api, caller: Caller, key: Key, body: Json) -> Json:
    """Evict a pod (``POST pods/NAME/eviction``); disruption budgets are not consulted."""
    kind = api.catalog.builtin(PODS)
    options = delete_options(body.get("deleteOptions") or {}, {})
    await api.delete(caller, kind, key, attrs.evolve(options, dry_run=options.dry_run or caller.dry_run))
    return success()


def delete_options(body: Json, query: dict[str, str]) -> DeleteOptions:
    """Read the options of a deletion from a request's body, or from its query where it has no body."""
    given: Json = body or query
    preconditions = body.get("preconditions") or {}
    grace = given.get("gracePeriodSeconds")
    orphan = given.get("orphanDependents") in (True, "true", "1")
    return DeleteOptions(
        int(grace) if grace is not None else None,
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        given.get("propagationPolicy") or ("Orphan" if orphan else ""),
        dry_run=bool(given.get("dryRun")),
    )


def _bound(api: Api, account: Key, reference: Json) -> tuple[str, str, str] | None:
    """Return what a token is to be bound to (kind, name, UID), after the checks that the API server makes."""
    kind = str(reference.get("kind"))
    resource = {"Pod": PODS, "Secret": SECRETS}.get(kind)
    if resource is None:
        return None
    name, uid = str(reference.get("name") or ""), str(reference.get("uid") or "")
    found = api.get(api.catalog.builtin(resource), account.namespace, name).object
    running_as = (found.get("spec") or {}).get("serviceAccountName") or "default"
    if resource == PODS and running_as != account.name:
        said = (
            f'cannot bind token for serviceaccount "{account.name}" to pod running with different serviceaccount name.'
        )
        raise statuses.bad_request(said)
    if uid and uid != found["metadata"]["uid"]:
        message = f"the UID in the bound object reference ({uid}) does not match the UID in record."
        raise statuses.conflict(resource, name, message)
    return kind.lower(), name, found["metadata"]["uid"]


async def request_token(api: Api, secret: bytes, key: Key, body: Json) -> Json:
    """Issue a token for a service account (``POST serviceaccounts/NAME/token``)."""
    kind = api.catalog.builtin(SERVICEACCOUNTS)
    account = api.get(kind, *key).object
    spec: Json = {
        "audiences": [tokens.ISSUER],
        "expirationSeconds": 3600,
        "boundObjectRef": None,
        **(body.get("spec") or {}),
    }
    seconds = int(spec["expirationSeconds"])
    if seconds < 600:
        cause = Cause.invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        raise statuses.invalid("authentication.k8s.io", "TokenRequest", "", [cause])
    now = api.wall()
    bound = _bound(api, key, spec["boundObjectRef"] or {})
    account_uid = account["metadata"]["uid"]
    token = tokens.sign(
        secret, key.namespace, key.name, account_uid, now=now, seconds=seconds, audiences=spec["audiences"], bound=bound
    )
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": key.name, "namespace": key.namespace, "creationTimestamp": api.now()},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": timestamp(now + seconds)},
    }


def scale_of(stored: Stored) -> Json:
    """Return the ``Scale`` of a deployment, replica set or stateful set."""
    body = stored.object
    metadata, spec = body["metadata"], body.get("spec") or {}
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = ((spec.get("selector") or {}).get("matchLabels") or {}).items()
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": (body.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{name}={value}" for name, value in sorted(labels)),
        },
    }


async def set_scale(api: Api, caller: Caller, kind: Kind, key: Key, scale: Json) -> Json:
    """Set the replicas that a ``Scale`` asks for."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    version = (scale.get("metadata") or {}).get("resourceVersion")

    def scaled(body: Json) -> Json:
        metadata = body["metadata"] | ({"resourceVersion": version} if version else {})
        return body | {"metadata": metadata, "spec": body["spec"] | {"replicas": replicas}}

    return scale_of(await api.change(caller, kind, key, scaled))


def review(roles: Roles, user: User, kind: Kind, namespace: str, body: Json, *, whose: Any, now: str) -> Json:
    """Answer an access review or token review; ``whose`` tells the user of a token (None when it is not valid).

    Only a review of oneself is stamped with ``now``, as the API server does it.
    """
    spec: Json = body.get("spec") or {}
    result: Json = {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": {"creationTimestamp": None},
        "spec": spec,
    }
    match kind.kind:
        case "SelfSubjectReview":
            result.pop("spec")
            about = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
            return result | {"metadata": {"creationTimestamp": now}, "status": about}
        case "TokenReview":
            found = whose(spec.get("token", ""))
            if found is None:
                return result | {"status": {"user": {}, "error": "[invalid bearer token]"}}
            uid = {"uid": found.account[2]} if found.account else {}
            known = {"username": found.name, "groups": list(found.groups), **uid}
            return result | {"status": {"authenticated": True, "user": known, "audiences": [tokens.ISSUER]}}
    asked = (
        user if kind.kind == "SelfSubjectAccessReview" else User(spec.get("user", ""), tuple(spec.get("groups") or ()))
    )
    wanted = spec.get("resourceAttributes") or {}
    access = Access(
        wanted.get("verb", ""),
        wanted.get("group", ""),
        wanted.get("resource", ""),
        wanted.get("subresource", ""),
        namespace=wanted.get("namespace", namespace),
        name=wanted.get("name", ""),
    )
    if "nonResourceAttributes" in spec:
        other = spec["nonResourceAttributes"]
        access = Access(other.get("verb", ""), path=other.get("path", ""))
    return result | {"status": {"allowed": roles.allow(asked, access)}}
