"""Finds CRDs that another installation manages, such as one of Liqo by Helm: they are not overwritten."""

from __future__ import annotations

from collections.abc import AsyncIterator

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, bad, good
from liqod.cli.console.session import Session
from liqod.kube import manifests
from liqod.kube.errors import NotFound
from liqod.kube.resources import CRDS
from liqod.model.names import FIELD_MANAGER
from liqod.model.objects.meta import Object, ObjectMeta

MANAGED_BY = "app.kubernetes.io/managed-by"
RELEASE = "meta.helm.sh/release-name"
"""The annotation by which Helm marks what belongs to a release."""


def owner_of(meta: ObjectMeta) -> str:
    """Return who manages an object, by its labels and annotations; empty for ours and for nobody's. Pure."""
    if release := meta.annotations.get(RELEASE, ""):
        return f"the Helm release {release}"
    manager = meta.labels.get(MANAGED_BY, "")
    return "" if manager in ("", FIELD_MANAGER) else manager


async def foreign(session: Session) -> dict[str, str]:
    """Return the CRDs of ours that somebody else manages, each with who does."""
    found = {}
    for definition in manifests.definitions():
        name = definition["metadata"]["name"]
        try:
            there = await session.client.get(CRDS, name, view=Object)
        except NotFound:
            continue
        if owner := owner_of(there.metadata):
            found[name] = owner
    return found


async def refuse_foreign(session: Session, *, adopt: bool) -> None:
    """Raise CliError where a CRD is managed by somebody else, unless it is to be taken over."""
    found = {} if adopt else await foreign(session)
    if found:
        name, owner = next(iter(found.items()))
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise CliError(
            errors.IN_USE,
            f"the CRD {name}{more} is managed by {owner}: another installation uses the same names",
            "remove that installation first; --adopt takes the CRDs over, and their objects with them",
        )


async def foreign_findings(session: Session) -> AsyncIterator[Finding]:
    """Check that no other installation manages the CRDs."""
    found = await foreign(session)
    for name, owner in found.items():
        yield bad("CRDs", f"{name} is managed by {owner}", "remove that installation, or `liqodctl install --adopt`")
    if not found:
        yield good("CRDs", "no other installation manages CRDs of these names")
