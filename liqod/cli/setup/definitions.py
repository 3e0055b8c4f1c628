"""How the cluster has the CustomResourceDefinitions of this release."""

from __future__ import annotations

from liqod.cli.console.session import Session
from liqod.kube import manifests
from liqod.kube.errors import NotFound
from liqod.kube.resources import CRDS
from liqod.model.diagnosis.installation import DefinitionFacts


async def definitions(session: Session) -> list[DefinitionFacts]:
    """Return each definition of this release with its state in the cluster."""
    found = []
    for definition in manifests.definitions():
        name = definition["metadata"]["name"]
        try:
            there = await session.client.get(CRDS, name)
        except NotFound:
            found.append(DefinitionFacts(name, "missing"))
            continue
        # The API server serves a CRD only when its condition Established is True.
        if not manifests.is_established(there):
            found.append(DefinitionFacts(name, "not served"))
        elif not manifests.covers(there.get("spec"), definition["spec"]):
            found.append(DefinitionFacts(name, "other release"))
        else:
            found.append(DefinitionFacts(name, "same"))
    return found
