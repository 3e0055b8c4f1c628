"""An attempt: a request that the admission policies refuse, with its words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle
from typing import Any, Final

from attrs import evolve, frozen

from liqod.model.names import ORIGIN_LABEL, REMOTE_CLUSTER_LABEL
from tests.hosting.shadowpods.admission import Request

GROUPS: Final = {
    "ingresses": "networking.k8s.io",
    "networkpolicies": "networking.k8s.io",
    "httproutes": "gateway.networking.k8s.io",
    "grpcroutes": "gateway.networking.k8s.io",
    "shadowpods": "offloading.liqo.io",
    "shadowendpointslices": "offloading.liqo.io",
    "shadownetworkpolicysets": "offloading.liqo.io",
    "roles": "rbac.authorization.k8s.io",
    "rolebindings": "rbac.authorization.k8s.io",
    "endpointslices": "discovery.k8s.io",
    "leases": "coordination.k8s.io",
    "mutatingwebhookconfigurations": "admissionregistration.k8s.io",
    "storageclasses": "storage.k8s.io",
    "certificatesigningrequests/approval": "certificates.k8s.io",
}
OWN: Final = "liqo"
"""The namespace of the daemon."""
DAEMON: Final = f"system:serviceaccount:{OWN}:liqod"
AGENT: Final = f"system:serviceaccount:{OWN}:liqod-network"
NAMES: Final = f"system:serviceaccount:{OWN}:liqod-names"
BORROWERS: Final = ("system:serviceaccount:liqo-tenant-rome:borrower", "liqo:cluster:rome")
TENANT: Final = {REMOTE_CLUSTER_LABEL: "rome"}
_ORIGIN: Final = {ORIGIN_LABEL: "rome"}


@frozen
class Attempt:
    """What is asked for, in words and as an API server has it."""

    words: str
    request: Request

    def __str__(self) -> str:
        one = self.request
        return f"{one.operation} {one.resource}: {self.words}"


def owned(body: Mapping[str, Any], name: str = "x") -> dict[str, Any]:
    """Return an object with a name, a namespace and the label that all has which a borrower writes."""
    metadata = {**(body.get("metadata") or {})}
    metadata["labels"] = {**_ORIGIN, **(metadata.get("labels") or {})}
    return {**body, "metadata": {"name": name, "namespace": "shop-rome", **metadata}}


def named(body: Mapping[str, Any], name: str = "x") -> dict[str, Any]:
    """Return an object with a name."""
    return {**body, "metadata": {"name": name, **(body.get("metadata") or {})}}


def asked(
    words: str,
    resource: str,
    new: Mapping[str, Any] | None = None,
    old: Mapping[str, Any] | None = None,
    **more: Any,
) -> Attempt:
    """Return an attempt of a borrower in a namespace that it was granted; ``more`` are other fields of the request."""
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    fields = {"namespace": "shop-rome", "namespace_labels": TENANT, "group": GROUPS.get(resource, ""), **more}
    user = fields.pop("user", BORROWERS[0])
    return Attempt(words, Request(user, operation, resource, new, old, **fields))


def at_first_and_later(
    words: str, resource: str, new: Mapping[str, Any], old: Mapping[str, Any], **more: Any
) -> Iterator[Attempt]:
    """Yield the attempt to create an object, and to change a harmless one into it."""
    yield asked(words, resource, new, **more)
    yield asked(words, resource, new, old, **more)


def in_turns(attempts: Iterable[Attempt], users: Iterable[str] = BORROWERS) -> Iterator[Attempt]:
    """Yield each attempt, by one user after the other: each is one of the two ways to a lender."""
    for one, user in zip(attempts, cycle(users), strict=False):
        yield evolve(one, request=evolve(one.request, user=user))
