"""How the cluster has the CustomResourceDefinitions of this release, and whether this release may take over there."""

from __future__ import annotations

from liqod.agent.account.names import ACCOUNT
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Session
from liqod.kube import manifests
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import CRDS, SERVICEACCOUNTS
from liqod.model.diagnosis.installation import DefinitionFacts
from liqod.model.diagnosis.releases import VERSION_LABEL, downgrade_refusal, serves
from liqod.model.objects.meta import Object


async def definitions(session: Session) -> list[DefinitionFacts]:
    """Return each definition of this release with its state in the cluster."""
    own = manifests.release()
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
        elif manifests.covers(there.get("spec"), definition["spec"]):
            found.append(DefinitionFacts(name, "same"))
        elif later := manifests.later_release(there, own):
            # One minor release later they are meant for this one as well, after a rollback.
            found.append(DefinitionFacts(name, "same" if serves(later, own) else "later release"))
        else:
            found.append(DefinitionFacts(name, "other release"))
    return found


async def downgrade(session: Session) -> str:
    """Return why this release must not take over from the one that is installed; empty where it may."""
    try:
        there = await session.client.get(SERVICEACCOUNTS, ACCOUNT, session.settings.kubernetes.namespace, view=Object)
    except (NotFound, Forbidden):
        return ""
    return downgrade_refusal(there.metadata.labels.get(VERSION_LABEL, ""), manifests.release())


async def refuse_downgrade(session: Session) -> None:
    """Raise CliError where this release must not take over, before anything was changed."""
    if refusal := await downgrade(session):
        raise CliError(errors.REFUSED, refusal, "nothing was changed; use the programs of a release in between")
