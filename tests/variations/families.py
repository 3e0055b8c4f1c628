"""The variations of each kind that a tenant writes itself, with what is looked at afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from attrs import frozen

from liqod.kube.resources import (
    ENDPOINTSLICES,
    HTTPROUTES,
    INGRESSES,
    PERSISTENTVOLUMECLAIMS,
    SECRETS,
    SERVICES,
    SHADOWENDPOINTSLICES,
    SHADOWNETWORKPOLICYSETS,
    Resource,
)
from liqod.model.names import ORIGIN_LABEL
from tests.facts.stated import PODS
from tests.facts.stated import SERVICES as SERVICE_NETWORKS
from tests.variations import routes, seen, services, storage
from tests.variations.seen import Judge
from tests.variations.variation import AT_ONCE, ForbiddenObject, Variation, varied, with_origin

SEED: Final = int(os.environ.get("LIQOD_SEED", "14"))
"""Of everything that is left to chance; another one makes other variations."""
_SET: Final[Mapping[str, Any]] = {"spec": {"policies": []}}
_WITH_ORIGIN: Final = (SERVICES, INGRESSES, HTTPROUTES, PERSISTENTVOLUMECLAIMS)
"""Kinds of which each variation has the label of what borrowers write, to be refused for what it is after."""
_ORIGIN: Final = "any"
_PROBE: Final[Mapping[str, Any]] = {"name": "probe", "labels": {ORIGIN_LABEL: _ORIGIN}}


@frozen
class Family:
    """Forbidden objects of a kind, how many variations are made of them, and the kind and judge of what comes of it.

    ``probe`` is an object that is refused as soon as the policy of the family is in force.
    """

    resource: Resource
    objects: Callable[[str], Sequence[ForbiddenObject]]
    count: int
    shown: Resource
    judge: Callable[[str], Judge]
    probe: Mapping[str, Any]

    def variations(self, node: str) -> list[Variation]:
        """Return the variations at a cluster with a node of an address."""
        strategic = self.resource.group in ("", "networking.k8s.io")
        made = list(varied(Random(SEED), self.resource, self.objects(node), self.count, strategic=strategic))
        if self.resource in _WITH_ORIGIN:
            return [with_origin(one, _ORIGIN) for one in made]
        # The name is what is forbidden: there is no harmless one that could become it.
        return [one for one in made if self.resource != SHADOWNETWORKPOLICYSETS or one.how in AT_ONCE]


def _one_set(body: Mapping[str, Any]) -> Iterator[str]:
    if body["metadata"]["name"] != "home":
        yield "another set"


FAMILIES: Final = {
    "services": Family(
        SERVICES,
        lambda node: services.services(),
        50,
        SERVICES,
        lambda node: seen.service,
        {"metadata": _PROBE, "spec": {"type": "ExternalName", "externalName": "vault.vault"}},
    ),
    "ingresses": Family(
        INGRESSES,
        lambda node: services.ingresses(),
        50,
        INGRESSES,
        lambda node: seen.ingress,
        {"metadata": _PROBE, "spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}},
    ),
    "routes": Family(
        HTTPROUTES,
        lambda node: routes.routes(),
        40,
        HTTPROUTES,
        lambda node: seen.route,
        {"metadata": _PROBE, "spec": {"hostnames": ["www.lender.example"]}},
    ),
    "claims": Family(
        PERSISTENTVOLUMECLAIMS,
        lambda node: storage.claims(),
        50,
        PERSISTENTVOLUMECLAIMS,
        lambda node: seen.claim,
        {
            "metadata": _PROBE,
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "selector": {},
                "storageClassName": storage.CLASS,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    ),
    "secrets": Family(
        SECRETS,
        lambda node: storage.secrets(),
        20,
        SECRETS,
        lambda node: seen.secret,
        {
            "type": "kubernetes.io/service-account-token",
            "metadata": {**_PROBE, "annotations": {"kubernetes.io/service-account.name": "default"}},
        },
    ),
    "slices": Family(
        SHADOWENDPOINTSLICES,
        storage.slices,
        50,
        ENDPOINTSLICES,
        lambda node: seen.slice_judge((*PODS, *SERVICE_NETWORKS, node)),
        {"spec": {"template": {"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}]}}},
    ),
    "sets": Family(
        SHADOWNETWORKPOLICYSETS,
        lambda node: [ForbiddenObject("a set of another name", _SET, _SET)],
        10,
        SHADOWNETWORKPOLICYSETS,
        lambda node: _one_set,
        _SET,
    ),
}
