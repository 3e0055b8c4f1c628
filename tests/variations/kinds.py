"""Kinds in which a tenant has no business: whatever it does with them, the API server's own rights refuse it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final

from attrs import frozen

from liqod.kube.client import Client
from liqod.kube.errors import ApiError
from liqod.kube.requests import collection, item
from liqod.kube.resources import (
    CLUSTERROLEBINDINGS,
    CONFIGMAPS,
    DEPLOYMENTS,
    ENDPOINTSLICES,
    FOREIGNCLUSTERS,
    LIMITRANGES,
    NAMESPACES,
    NETWORKPOLICIES,
    NODES,
    PERSISTENTVOLUMES,
    PODS,
    RESOURCEQUOTAS,
    ROLEBINDINGS,
    SERVICEACCOUNTS,
    VALIDATINGPOLICYBINDINGS,
    VIRTUALNODES,
    Resource,
)
from tests.variations.variation import send

ROUTES: Final = (
    Resource("gateway.networking.k8s.io", "v1", "tlsroutes", "TLSRoute", True),
    Resource("gateway.networking.k8s.io", "v1", "gateways", "Gateway", True),
    Resource("gateway.networking.k8s.io", "v1", "referencegrants", "ReferenceGrant", True),
    Resource("route.openshift.io", "v1", "routes", "Route", True),
    Resource("traefik.io", "v1alpha1", "ingressroutes", "IngressRoute", True),
)
"""Kinds that lead traffic to a namespace, which a cluster may have; none is granted to tenants."""
_KINDS: Final = (
    *ROUTES,
    CLUSTERROLEBINDINGS,
    DEPLOYMENTS,
    ENDPOINTSLICES,
    FOREIGNCLUSTERS,
    LIMITRANGES,
    NAMESPACES,
    NETWORKPOLICIES,
    NODES,
    PERSISTENTVOLUMES,
    PODS,
    RESOURCEQUOTAS,
    ROLEBINDINGS,
    SERVICEACCOUNTS,
    VALIDATINGPOLICYBINDINGS,
    VIRTUALNODES,
    Resource("", "v1", "endpoints", "Endpoints", True),
    Resource("", "v1", "replicationcontrollers", "ReplicationController", True),
    Resource("", "v1", "podtemplates", "PodTemplate", True),
    Resource("batch", "v1", "jobs", "Job", True),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", True),
    Resource("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False),
    Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True),
)
_SUBRESOURCES: Final = (
    (PODS, "ephemeralcontainers"),
    (PODS, "resize"),
    (PODS, "binding"),
    (PODS, "eviction"),
    (PODS, "status"),
    (PODS, "proxy"),
    (SERVICEACCOUNTS, "token"),
    (NAMESPACES, "finalize"),
    (NODES, "proxy"),
    (Resource("", "v1", "services", "Service", True), "status"),
    (Resource("", "v1", "services", "Service", True), "proxy"),
    (Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True), "status"),
    (Resource("networking.k8s.io", "v1", "ingresses", "Ingress", True), "status"),
    (Resource("offloading.liqo.io", "v1beta1", "shadowpods", "ShadowPod", True), "status"),
)


@frozen
class Step:
    """A request that must be refused: what it is for in words, and all that makes it."""

    words: str
    method: str
    path: str
    kind: str = "application/json"
    body: Mapping[str, Any] | None = None

    async def ask(self, client: Client) -> ApiError | None:
        """Return the refusal, or None where the API server did it."""
        try:
            await send(client, self.method, self.path, self.kind, json.dumps(self.body) if self.body else "")
        except ApiError as error:
            return error
        return None


def steps(random: Random, namespace: str, others: str, count: int) -> Iterator[Step]:
    """Yield requests of a tenant with a namespace; ``others`` is a namespace that is not its own."""
    made = [*_on_kinds(random, namespace), *_on_subresources(random, namespace), *_elsewhere(random, others)]
    assert len(made) <= count, len(made)
    yield from made
    yield from random.choices([*_on_kinds(random, namespace), *_elsewhere(random, others)], k=count - len(made))


def _on_kinds(random: Random, namespace: str) -> Iterator[Step]:
    for resource in _KINDS:
        where = namespace if resource.namespaced else ""
        body = _body(resource)
        yield random.choice(
            [
                Step(f"create {resource.plural}", "POST", collection(resource, where), body=body),
                Step(f"read {resource.plural}", "GET", item(resource, where, "x", "")),
                Step(f"delete all {resource.plural}", "DELETE", collection(resource, where)),
                Step(f"replace {resource.plural}", "PUT", item(resource, where, "x", ""), body=body),
                Step(
                    f"apply {resource.plural}",
                    "PATCH",
                    f"{item(resource, where, 'x', '')}?fieldManager=borrower&force=true",
                    "application/apply-patch+yaml",
                    body,
                ),
            ]
            if resource != PODS
            # Reading pods is what a tenant needs.
            else [Step("create pods", "POST", collection(resource, where), body=body)]
        )


def _on_subresources(random: Random, namespace: str) -> Iterator[Step]:
    for resource, subresource in _SUBRESOURCES:
        path = item(resource, namespace if resource.namespaced else "", "x", subresource)
        methods = ("GET", "POST") if subresource == "proxy" else ("PATCH", "PUT", "POST")
        body = {"metadata": {"name": "x"}, "status": {"phase": "Running"}}
        method = random.choice(methods)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        yield Step(f"{method} {resource.plural}/{subresource}", method, path, kind, None if method == "GET" else body)


def _elsewhere(random: Random, others: str) -> Iterator[Step]:
    for resource in (CONFIGMAPS, PODS):
        yield Step(f"read {resource.plural} of all", "GET", collection(resource, ""))
        yield Step(f"read {resource.plural} of others", "GET", collection(resource, random.choice((others, "default"))))
        yield Step(f"create {resource.plural} of others", "POST", collection(resource, others), body=_body(resource))


def _body(resource: Resource) -> dict[str, Any]:
    version = f"{resource.group}/{resource.version}".strip("/")
    return {"apiVersion": version, "kind": resource.kind, "metadata": {"name": "x"}, "spec": {}}


def definitions(resources: Iterable[Resource] = ROUTES) -> Iterator[dict[str, Any]]:
    """Yield definitions of kinds that a cluster may have, so that it is not for their absence that they are refused."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for one in resources:
        names = {"plural": one.plural, "singular": one.kind.lower(), "kind": one.kind, "listKind": f"{one.kind}List"}
        version = {"name": one.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        # The API server wants to know that somebody approved a kind of one of its own groups.
        approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{one.plural}.{one.group}", "annotations": approved},
            "spec": {"group": one.group, "scope": "Namespaced", "names": names, "versions": [version]},
        }
