"""What a tenant may not have of Services and Ingresses: other's addresses, names and hosts, and what controllers do."""

from __future__ import annotations

from typing import Any, Final

from tests.variations.variation import MARK, ForbiddenObject

HOSTS: Final = "apps.example"
"""The suffix of hosts that is granted to the tenant."""
_PORTS: Final = {"ports": [{"port": 80}]}
_WEB: Final = {"name": "a", "port": 80}
_KUBELET: Final = {"name": "b", "port": 10250}
_SERVICE: Final[tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]] = (
    ("an address of others", {"externalIPs": ["192.0.2.1"]}, {}),
    ("the name server's address", {"externalIPs": ["10.96.0.10"]}, {}),
    ("addresses, one of them its own", {"externalIPs": ["203.0.113.1", "2001:db8::1"], "ipFamilies": ["IPv4"]}, {}),
    ("an external address of a load balancer", {"type": "LoadBalancer", "externalIPs": ["192.0.2.2"]}, {}),
    ("the address of a load balancer", {"type": "LoadBalancer", "loadBalancerIP": "192.0.2.3"}, {}),
    ("an address of a load balancer, in IPv6", {"type": "LoadBalancer", "loadBalancerIP": "2001:db8::3"}, {}),
    ("a load balancer that is not lent", {"type": "LoadBalancer", "loadBalancerClass": "example.com/internal"}, {}),
    ("a load balancer that others own", {"type": "LoadBalancer", "loadBalancerClass": "io.cilium/node"}, {}),
    ("ssh of the nodes", {"type": "LoadBalancer", "ports": [{"port": 22}]}, {}),
    ("the kubelets' port, beside its own", {"type": "LoadBalancer", "ports": [_WEB, _KUBELET]}, {}),
    ("a name of this cluster", {"type": "ExternalName", "externalName": "vault.vault.svc.cluster.local"}, {}),
    ("the API server by name", {"type": "ExternalName", "externalName": "kubernetes.default.svc"}, {}),
    ("the node by name", {"type": "ExternalName", "externalName": "localhost"}, {}),
    ("the metadata service by name", {"type": "ExternalName", "externalName": "metadata.google.internal"}, {}),
    ("a name with ports", {"type": "ExternalName", "externalName": "vault.vault", "ports": [{"port": 8200}]}, {}),
    ("an address by annotation", {}, {"annotations": {"metallb.io/loadBalancerIPs": MARK}}),
    ("an address by an older annotation", {}, {"annotations": {"metallb.universe.tf/address-pool": MARK}}),
    ("to share an address", {}, {"annotations": {"metallb.io/allow-shared-ip": MARK}}),
    (
        "a public balancer of a cloud",
        {},
        {"annotations": {"service.beta.kubernetes.io/aws-load-balancer-scheme": MARK}},
    ),
    ("a subnet of a cloud", {}, {"annotations": {"service.beta.kubernetes.io/azure-load-balancer-internal": MARK}}),
    ("a DNS record", {}, {"annotations": {"external-dns.alpha.kubernetes.io/hostname": MARK}}),
    ("a network of the VPN", {}, {"annotations": {"tailscale.com/expose": MARK}}),
    ("services of all clusters", {}, {"annotations": {"service.cilium.io/global": MARK}}),
    ("to be the node's", {}, {"labels": {"kubernetes.io/cluster-service": MARK}}),
    ("another proxy", {}, {"labels": {"service.kubernetes.io/service-proxy-name": MARK}}),
    ("to stay for ever", {}, {"finalizers": ["example.com/never"]}),
    ("to stay as a load balancer", {"type": "LoadBalancer"}, {"finalizers": ["service.kubernetes.io/load-balancer-x"]}),
    (
        "an owner elsewhere",
        {"externalIPs": ["192.0.2.4"]},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "control", "uid": "0"}]},
    ),
    ("all at once", {"type": "LoadBalancer", "loadBalancerIP": "192.0.2.5", "externalIPs": ["192.0.2.6"]}, {}),
)
_BACKEND: Final = {"service": {"name": "web", "port": {"number": 80}}}
_OTHER: Final = {"resource": {"apiGroup": "example.com", "kind": "Bucket", "name": "others"}}
_HOSTS: Final = (
    ("a host of others", "www.lender.example"),
    ("a host with its name at the end", f"evil{HOSTS}"),
    ("a host with its name in front", f"{HOSTS}.lender.example"),
    ("the whole domain", "*.example"),
    ("a name of the cluster", "kubernetes.default.svc.cluster.local"),
    ("a look-alike", f"xn--apps-0qa.{HOSTS.partition('.')[2]}"),
    ("a name of one label", "localhost"),
    ("every host", ""),
)


def _rule(host: str, backend: dict[str, Any] = _BACKEND, path: str = "/") -> dict[str, Any]:
    rule: dict[str, Any] = {"http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}
    return {"host": host, **rule} if host else rule


def _ingress(*rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"ingressClassName": "public", **({"rules": list(rules)} if rules else {}), **fields}


_OWN: Final = _rule(f"www.{HOSTS}")


def _ingresses() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return words, spec and metadata of the forbidden ingresses."""
    made: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for words, host in _HOSTS:
        made += [
            (words, _ingress(_rule(host)), {}),
            (f"{words}, behind its own", _ingress(_OWN, _rule(host, path="/.well-known")), {}),
        ]
        tls = {"secretName": "t", **({"hosts": [host]} if host else {})}
        made.append((f"the certificate of {words}", _ingress(_OWN, tls=[{"hosts": [f"a.{HOSTS}"]}, tls]), {}))
    bare = _rule(f"w.{HOSTS}")
    return [
        *made,
        ("what no rule takes", _ingress(_OWN, defaultBackend=_BACKEND), {}),
        ("what no rule takes, alone", _ingress(defaultBackend=_BACKEND), {}),
        ("a resource", _ingress(_rule(f"r.{HOSTS}", _OTHER)), {}),
        ("a resource as default", _ingress(_OWN, defaultBackend=_OTHER), {}),
        ("another controller", _ingress(bare, ingressClassName="internal"), {}),
        ("any controller", {"rules": [bare]}, {}),
        ("a controller by annotation", {"rules": [bare]}, {"annotations": {"kubernetes.io/ingress.class": MARK}}),
        (
            "lines of its configuration",
            _ingress(bare),
            {"annotations": {"nginx.ingress.kubernetes.io/server-snippet": MARK}},
        ),
        ("regular expressions", _ingress(bare), {"annotations": {"nginx.ingress.kubernetes.io/use-regex": MARK}}),
        ("another's login", _ingress(bare), {"annotations": {"nginx.ingress.kubernetes.io/auth-url": MARK}}),
        (
            "a middleware of others",
            _ingress(bare),
            {"annotations": {"traefik.ingress.kubernetes.io/router.middlewares": MARK}},
        ),
        ("a certificate of the lender", _ingress(bare), {"annotations": {"cert-manager.io/cluster-issuer": MARK}}),
        ("a group of others", _ingress(bare), {"annotations": {"alb.ingress.kubernetes.io/group.name": MARK}}),
        ("to stay for ever", _ingress(bare), {"finalizers": ["example.com/never"]}),
    ]


def services() -> list[ForbiddenObject]:
    """Return the forbidden Services."""
    harmless = {"spec": _PORTS}
    return [
        ForbiddenObject(words, {"metadata": metadata, "spec": {**_PORTS, **spec}}, harmless)
        for words, spec, metadata in _SERVICE
    ]


def ingresses() -> list[ForbiddenObject]:
    """Return the forbidden Ingresses."""
    harmless = {"spec": _ingress(_OWN)}
    return [
        ForbiddenObject(words, {"metadata": metadata, "spec": spec}, harmless) for words, spec, metadata in _ingresses()
    ]
