"""Forges the access of offloaded pods to their home API server (spec 004, "Configuration data").

With an unchanged token source the lender's kubelet would request a token of one of *the lender's* service accounts.
``with_access`` replaces token sources by items of a Secret at the lender, with tokens of the home API server, and sets
the environment variables of that API server. If this is disabled, or the pod is annotated so, ``without_tokens``
removes the volume that the ServiceAccount admission plugin adds, with its mounts, and the token sources of the user's
projected volumes. ``with_lender_account`` leaves the token to the lender, where a pod is annotated so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import frozen

from liqod.kubelet.common.context import ROOT_CA, ApiServer, Context, remote_root_ca
from liqod.model.objects.meta import ObjectMeta

API_ACCESS_PREFIX: Final = "kube-api-access-"
SUPPORT_ANNOTATION: Final = "liqo.io/api-server-support"
LENDER_ACCOUNT_ANNOTATION: Final = "liqo.io/remote-service-account-name"
REMOTE: Final = "remote"
"""The value of that annotation of a pod that is to have a token of the lender's cluster, not of its own."""
DEFAULT_ACCOUNT: Final = "default"
DEFAULT_SECONDS: Final = 3600
"""Default lifetime of a token in seconds. Source: Kubernetes API, ServiceAccountTokenProjection."""

NAMESPACE_KEY: Final = "namespace"
SECRET_SUFFIX: Final = ".liqo-token"  # noqa: S105 (part of a name)
_MAX_NAME: Final = 253
"""The name of a Secret is a DNS subdomain (RFC 1123)."""
_HOST: Final = "kubernetes.default"
_TOKEN_SOURCES: Final = ("serviceAccountToken", "podCertificate")
_CONTAINERS: Final = ("containers", "initContainers")


@frozen
class TokenSource:
    """A token that a pod mounts: its key in the pod's Secret, audience (empty: the API server), lifetime in seconds."""

    key: str
    audience: str = ""
    seconds: int = DEFAULT_SECONDS


def secret_name(pod: str) -> str:
    """Return the name of the Secret at the lender that holds the tokens of a pod.

    The suffix prevents collisions with reflected Secrets of users, whose names are unchanged.
    """
    room = _MAX_NAME - len(SECRET_SUFFIX)
    if len(pod) > room:
        pod = f"{pod[: room - 9].rstrip('-.')}-{hashlib.sha256(pod.encode()).hexdigest()[:8]}"
    return pod + SECRET_SUFFIX


def api_server_names(domain: str) -> list[str]:
    """Return the names by which the pods of a cluster with this domain call its API server.

    The last one is that of pods in the namespace ``default`` (Kubernetes: "Accessing the Kubernetes API from a Pod").
    """
    return [_HOST, f"{_HOST}.svc", f"{_HOST}.svc.{domain}", "kubernetes"]


def account_of(spec: Mapping[str, Any]) -> str:
    """Return the name of the service account that a pod runs as."""
    return str(spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_ACCOUNT)


def is_supported(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod gets tokens of its home API server, as far as its annotation says."""
    return annotations.get(SUPPORT_ANNOTATION, "").lower() not in ("disabled", REMOTE)


def lender_account(spec: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    """Return the service account of the lender whose token a pod asks for instead; empty if it asks for none."""
    if annotations.get(SUPPORT_ANNOTATION, "").lower() != REMOTE or not sources_of(spec):
        return ""
    return annotations.get(LENDER_ACCOUNT_ANNOTATION) or account_of(spec)


def has_access(pod: ObjectMeta, context: Context) -> bool:
    """Return whether a pod gets access to its home API server: it wants that, and may leave home with its tokens."""
    egress = context.egress.value
    stays = any(egress.objection(kind, pod.namespace, pod.labels) for kind in ("pod", "serviceaccount"))
    return is_supported(pod.annotations) and not stays


def sources_of(spec: Mapping[str, Any]) -> list[TokenSource]:
    """Return the tokens that a pod of the home cluster mounts."""
    return [
        TokenSource(
            _key(volume, token),
            str(token.get("audience") or ""),
            int(token.get("expirationSeconds") or DEFAULT_SECONDS),
        )
        for volume in spec.get("volumes") or ()
        for token in _tokens(volume)
    ]


def forge_access(pod: ObjectMeta, spec: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the spec of a home pod with the fields for API access forged."""
    if account := lender_account(spec, pod.annotations):
        return with_lender_account(spec, account)
    server = context.services.api_server(pod.namespace) if has_access(pod, context) else None
    return without_tokens(spec) if server is None else with_access(pod.name, spec, context, server)


def with_access(name: str, spec: Mapping[str, Any], context: Context, server: ApiServer) -> dict[str, Any]:
    """Return a pod spec with tokens from the pod's Secret and the address of the home API server.

    In a pod without a token only references to the CA of the home cluster are renamed.
    """
    forged = _without_account(spec)
    tokens = any(True for volume in spec.get("volumes") or () for _ in _tokens(volume))
    if forged.get("volumes"):
        forged["volumes"] = [_volume(volume, name, context) for volume in forged["volumes"]]
    environment = _environment(server) if tokens else []
    account = account_of(spec)
    for kind in _CONTAINERS:
        if spec.get(kind):
            forged[kind] = [_container(container, environment, account, context) for container in spec[kind]]
    if tokens and not server.name:
        aliases = [{"ip": ip, "hostnames": api_server_names(context.domain)} for ip in server.addresses]
        forged["hostAliases"] = [*(spec.get("hostAliases") or ()), *aliases]
    return forged


def with_lender_account(spec: Mapping[str, Any], account: str) -> dict[str, Any]:
    """Return a pod spec with a token of the lender's account of that name in the remote namespace.

    Admission there adds the volume that admission here added, which is left out, with the lender's CA and namespace.
    Other sources of tokens stay: the kubelet there requests tokens of the same account for them.
    """
    forged = _without_api_access(spec)
    if forged.get("volumes"):
        forged["volumes"] = [_without_sources(volume, ("podCertificate",)) for volume in forged["volumes"]]
    return {**forged, "serviceAccountName": account, "automountServiceAccountToken": True}


def without_tokens(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod spec without tokens of the API server; the argument is not modified."""
    forged = _without_api_access(spec)
    if forged.get("volumes"):
        forged["volumes"] = [_without_sources(volume, _TOKEN_SOURCES) for volume in forged["volumes"]]
    return forged


def _without_api_access(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod spec without account and without the volume with its token that admission added."""
    forged = _without_account(spec)
    volumes = spec.get("volumes") or []
    removed = {volume.get("name") for volume in volumes if _is_api_access(volume)}
    kept = [volume for volume in volumes if volume.get("name") not in removed]
    if kept:
        forged["volumes"] = kept
    else:
        forged.pop("volumes", None)
    for kind in _CONTAINERS:
        if spec.get(kind):
            forged[kind] = [_without_mounts(container, removed) for container in spec[kind]]
    return forged


def _without_account(spec: Mapping[str, Any]) -> dict[str, Any]:
    forged = {key: value for key, value in spec.items() if key not in ("serviceAccountName", "serviceAccount")}
    forged["automountServiceAccountToken"] = False
    return forged


def _sources(volume: Mapping[str, Any]) -> list[dict[str, Any]]:
    return (volume.get("projected") or {}).get("sources") or []


def _tokens(volume: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for source in _sources(volume):
        token = source.get("serviceAccountToken")
        if token is not None:
            yield token


def _key(volume: Mapping[str, Any], token: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(str(token.get("path") or "").encode()).hexdigest()[:12]
    return f"{volume.get('name', '')}-{digest}"


def _volume(volume: dict[str, Any], pod: str, context: Context) -> dict[str, Any]:
    if (volume.get("configMap") or {}).get("name") == ROOT_CA:
        return {**volume, "configMap": _renamed(volume["configMap"], context)}
    sources = _sources(volume)
    if not sources:
        return volume
    items = [{"key": _key(volume, token), "path": token.get("path")} for token in _tokens(volume)]
    forged: list[dict[str, Any]] = []
    for source in sources:
        if (source.get("configMap") or {}).get("name") == ROOT_CA:
            forged.append({**source, "configMap": _renamed(source["configMap"], context)})
        elif items and "downwardAPI" in source:
            rest, moved = _home_namespace(source["downwardAPI"])
            items += moved
            if rest:
                forged.append({**source, "downwardAPI": {**source["downwardAPI"], "items": rest}})
        elif not any(kind in source for kind in _TOKEN_SOURCES):
            forged.append(source)
    if items:
        forged.append({"secret": {"name": secret_name(pod), "items": items}})
    return {**volume, "projected": {**volume["projected"], "sources": forged}}


def _home_namespace(downward: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split the downward API items of a volume with a token: those to keep, and the namespace file to replace.

    Clients use that file as their default namespace (client-go, tools/clientcmd, inClusterClientConfig): with a token
    of the home cluster it must contain the home namespace.
    """
    rest, moved = [], []
    for item in downward.get("items") or ():
        if (item.get("fieldRef") or {}).get("fieldPath") == "metadata.namespace":
            mode = {"mode": item["mode"]} if item.get("mode") is not None else {}
            moved.append({"key": NAMESPACE_KEY, "path": item.get("path"), **mode})
        else:
            rest.append(item)
    return rest, moved


def _renamed(reference: Mapping[str, Any], context: Context) -> dict[str, Any]:
    return {**reference, "name": remote_root_ca(context)}


def _environment(server: ApiServer) -> list[dict[str, Any]]:
    """Return the environment variables of the ``kubernetes`` service, for the home API server.

    Variables of the pod spec override those that the lender's kubelet sets for its own cluster.
    """
    host, port = server.name or _HOST, str(server.port)
    url = f"tcp://{host}:{port}"
    values = {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": url,
        f"KUBERNETES_PORT_{port}_TCP": url,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
        f"KUBERNETES_PORT_{port}_TCP_PORT": port,
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def _container(
    container: dict[str, Any], environment: list[dict[str, Any]], account: str, context: Context
) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    given = container.get("env") or []
    names = {variable.get("name") for variable in given}
    # First, because $(VAR) expands only variables that are defined earlier (EnvVar.value); the user's own value wins.
    env = [v for v in environment if v["name"] not in names] + [_variable(v, account, context) for v in given]
    if env != given:
        changes["env"] = env
    imported = container.get("envFrom") or []
    renamed = [_imported(source, context) for source in imported]
    if renamed != imported:
        changes["envFrom"] = renamed
    return {**container, **changes} if changes else container


def _variable(variable: dict[str, Any], account: str, context: Context) -> dict[str, Any]:
    source = variable.get("valueFrom") or {}
    if (source.get("fieldRef") or {}).get("fieldPath") == "spec.serviceAccountName":
        return {"name": variable.get("name"), "value": account}
    if (source.get("configMapKeyRef") or {}).get("name") == ROOT_CA:
        return {**variable, "valueFrom": {**source, "configMapKeyRef": _renamed(source["configMapKeyRef"], context)}}
    return variable


def _imported(source: dict[str, Any], context: Context) -> dict[str, Any]:
    if (source.get("configMapRef") or {}).get("name") == ROOT_CA:
        return {**source, "configMapRef": _renamed(source["configMapRef"], context)}
    return source


def _is_api_access(volume: Mapping[str, Any]) -> bool:
    return str(volume.get("name", "")).startswith(API_ACCESS_PREFIX) and any(True for _ in _tokens(volume))


def _without_sources(volume: dict[str, Any], kinds: Iterable[str]) -> dict[str, Any]:
    sources = _sources(volume)
    kept = [source for source in sources if not any(kind in source for kind in kinds)]
    if len(kept) == len(sources):
        return volume
    return {**volume, "projected": {**volume["projected"], "sources": kept}}


def _without_mounts(container: dict[str, Any], removed: Iterable[Any]) -> dict[str, Any]:
    mounts = container.get("volumeMounts")
    gone = set(removed)
    if not mounts or not gone:
        return container
    kept = [mount for mount in mounts if mount.get("name") not in gone]
    if len(kept) == len(mounts):
        return container
    forged = {key: value for key, value in container.items() if key != "volumeMounts"}
    if kept:
        forged["volumeMounts"] = kept
    return forged
