"""What a tenant may not have of routes of the Gateway API: others' gateways, hosts, services, and what proxies do."""

from __future__ import annotations

from typing import Any, Final

from tests.variations.services import HOSTS
from tests.variations.variation import MARK, ForbiddenObject

GATEWAY: Final = "public/shared"
"""The gateway that is granted to the tenant."""
_PARENT: Final = {"namespace": "public", "name": "shared"}
_BACKEND: Final = {"name": "web", "port": 80}
_OWN: Final = {"backendRefs": [_BACKEND]}
_VALUE: Final = {"name": "X-A", "value": "%ENVIRONMENT(TOKEN)%"}


def _route(*rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"parentRefs": [_PARENT], "hostnames": [f"www.{HOSTS}"], "rules": [_OWN, *rules], **fields}


def _filtered(kind: str, field: str, /, **what: Any) -> dict[str, Any]:
    return {**_OWN, "filters": [{"type": kind, field: what}]}


_ROUTES: Final[tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]] = (
    ("a gateway of others", _route(parentRefs=[{**_PARENT, "name": "internal"}]), {}),
    ("a gateway of others beside its own", _route(parentRefs=[_PARENT, {**_PARENT, "namespace": "kube-system"}]), {}),
    ("a gateway in its own namespace", _route(parentRefs=[{"name": "shared"}]), {}),
    ("a service of a mesh", _route(parentRefs=[{**_PARENT, "group": "", "kind": "Service"}]), {}),
    ("a listener of its choice", _route(parentRefs=[{**_PARENT, "sectionName": "internal"}]), {}),
    ("a host of others", _route(hostnames=["www.lender.example"]), {}),
    ("a host of others beside its own", _route(hostnames=[f"a.{HOSTS}", "www.lender.example"]), {}),
    ("a host with its name at the end", _route(hostnames=[f"evil{HOSTS}"]), {}),
    ("the whole domain", _route(hostnames=["*.example"]), {}),
    ("every host", {"parentRefs": [_PARENT], "rules": [_OWN]}, {}),
    ("a service of others", _route({"backendRefs": [{**_BACKEND, "namespace": "kube-system"}]}), {}),
    ("what is no service", _route({"backendRefs": [{**_BACKEND, "group": "example.com", "kind": "Bucket"}]}), {}),
    ("filters of a backend", _route({"backendRefs": [{**_BACKEND, "filters": [{"type": "ExtensionRef"}]}]}), {}),
    ("a mirror", _route(_filtered("RequestMirror", "requestMirror", backendRef={**_BACKEND, "namespace": "x"})), {}),
    ("an extension", _route(_filtered("ExtensionRef", "extensionRef", group="a.example", kind="A", name="a")), {}),
    ("variables of the proxy", _route(_filtered("RequestHeaderModifier", "requestHeaderModifier", set=[_VALUE])), {}),
    ("the same to clients", _route(_filtered("ResponseHeaderModifier", "responseHeaderModifier", add=[_VALUE])), {}),
    ("lines of its configuration", _route({**_OWN, "matches": [{"path": {"type": "Exact", "value": "/;}} x"}}]}), {}),
    (
        "regular expressions",
        _route({**_OWN, "matches": [{"path": {"type": "RegularExpression", "value": "/(a+)+"}}]}),
        {},
    ),
    ("too many rules", _route(*[_OWN] * 20), {}),
    ("a field of tomorrow", _route({**_OWN, "retry": {"attempts": 9999}}), {}),
    ("a DNS record", _route(), {"annotations": {"external-dns.alpha.kubernetes.io/hostname": MARK}}),
    ("a certificate of the lender", _route(), {"annotations": {"cert-manager.io/cluster-issuer": MARK}}),
    ("to stay for ever", _route(), {"finalizers": ["example.com/never"]}),
)


def routes() -> list[ForbiddenObject]:
    """Return the forbidden HTTPRoutes."""
    harmless = {"spec": _route()}
    return [ForbiddenObject(words, {"metadata": metadata, "spec": spec}, harmless) for words, spec, metadata in _ROUTES]
