"""The quota level of each tenant: that of the configuration or, where it has none, that with which the tenant began."""

from __future__ import annotations

from typing import Final, Literal

import attrs
import msgspec

from liqod.hosting.tenants.contract import Contract
from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.names import QUOTA_ANNOTATION, tenant_namespace
from liqod.model.objects.granted_namespace import is_tenant_namespace
from liqod.model.objects.meta import Object

Level = Literal["none", "soft", "hard"]
OF_NEW_TENANTS: Final[Level] = "hard"
BEFORE: Final[Level] = "soft"
"""The level of tenants from before levels were noted."""

_LEVELS: Final[tuple[Level, ...]] = ("none", "soft", "hard")


def note(configured: Level | Literal[""]) -> dict[str, str]:
    """Return the annotation of the tenant namespace of a new tenant."""
    return {QUOTA_ANNOTATION: configured or OF_NEW_TENANTS}


def level_of(configured: Level | Literal[""], namespace: Object | None) -> Level:
    """Return the level of a tenant, by its tenant namespace; a tenant that no watch has shown yet is new."""
    if configured:
        return configured
    if namespace is None:
        return OF_NEW_TENANTS
    found = namespace.metadata.annotations.get(QUOTA_ANNOTATION, "")
    return next((level for level in _LEVELS if level == found), BEFORE)


def at_level(contract: Contract, level: Level) -> Contract:
    """Return the contract of tenants of a level."""
    return attrs.evolve(contract, granted=msgspec.structs.replace(contract.granted, quota=level))


class Contracts:
    """The contract of each tenant, at its level; ``namespaces`` has the tenant namespaces."""

    def __init__(self, contract: Contract, namespaces: Informer[Object]) -> None:
        self._configured = contract.granted.quota
        self._at = {level: at_level(contract, level) for level in _LEVELS}
        self._namespaces = namespaces

    def of(self, tenant: str) -> Contract:
        """Return the contract of a tenant."""
        found = self._namespaces.get(Key("", tenant_namespace(tenant))) if not self._configured else None
        own = found if found is not None and is_tenant_namespace(found, tenant) else None
        return self._at[level_of(self._configured, own)]
