"""Finds another installation that uses the same names, such as Liqo: nothing of it is overwritten unasked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import attrs

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, bad, good
from liqod.cli.console.session import Session
from liqod.kube import manifests
from liqod.kube.errors import NotFound
from liqod.kube.manifests import MANAGED_BY
from liqod.kube.resources import CRDS, DAEMONSETS, DEPLOYMENTS, STORAGECLASSES, Resource
from liqod.model.names import FIELD_MANAGER, MANAGED_BY_LABEL
from liqod.model.objects.meta import Object, ObjectMeta, View

RELEASE = "meta.helm.sh/release-name"
"""The annotation by which Helm marks what belongs to a release."""
RELEASE_NAMESPACE = "meta.helm.sh/release-namespace"
GROUPS = "liqo.io"
"""The end of Liqo's API groups, which are also liqod's."""
WORKLOADS = "app.kubernetes.io/part-of=liqo"
"""The label of what runs, from Liqo's chart."""


class DefinitionSpec(View, frozen=True):
    """Of a CRD: whether its objects have a namespace, which no update can change."""

    scope: str = ""


class DefinitionStatus(View, frozen=True):
    """Of a CRD: the versions in which objects may be stored; an update has to keep each of them."""

    stored_versions: list[str] | None = None


class Definition(Object, frozen=True):
    """A CRD."""

    spec: DefinitionSpec = DefinitionSpec()
    status: DefinitionStatus = DefinitionStatus()


@attrs.frozen
class Foreign:
    """Something of another installation: kind, name, and whose it is, as a clause for people.

    ``obstacle``: why it cannot be taken over, and what to do; empty where it can.
    """

    resource: Resource
    name: str
    owner: str
    obstacle: str = ""

    @property
    def text(self) -> str:
        """What it is, and whose."""
        return f"the {'CRD' if self.resource == CRDS else self.resource.kind} {self.name} {self.owner}"

    @property
    def hint(self) -> str:
        """What to do about it."""
        return self.obstacle or (
            "remove that installation; `liqodctl install --adopt` then takes over what it left behind"
        )


RUNS = "remove that installation first (docs/coming-from-liqo.md); it cannot be taken over while it runs"


def owner_of(meta: ObjectMeta) -> str:
    """Return who manages an object, by its labels and annotations; empty for ours and for nobody's. Pure."""
    if release := meta.annotations.get(RELEASE, ""):
        return f"the Helm release {release}"
    manager = meta.labels.get(MANAGED_BY, "")
    return "" if manager in ("", FIELD_MANAGER) else manager


def obstacle_of(found: Definition, wanted: Mapping[str, Any]) -> str:
    """Return why a CRD cannot become ours, which the API server would refuse; empty where it can. Pure.

    Source: validation of CustomResourceDefinition updates, k8s.io/apiextensions-apiserver: ``spec.scope`` is immutable,
    and ``status.storedVersions`` must all be in ``spec.versions``.
    """
    known = {version["name"] for version in wanted["spec"]["versions"]}
    old = [version for version in found.status.stored_versions or () if version not in known]
    if not old and found.spec.scope in ("", wanted["spec"]["scope"]):
        return ""
    what = f"stored as {', '.join(old)}" if old else f"of the scope {found.spec.scope}"
    return (
        f"its objects are {what}, which liqod's cannot take over; save what you need of them, and "
        f"`kubectl delete crd {found.metadata.name}`, which deletes them all"
    )


def foreign_definitions(found: Sequence[Definition]) -> list[Foreign]:
    """Return the definitions of our names that are another's, given all of the cluster. Pure.

    Liqo's are not marked (Helm marks nothing that is in a chart's ``crds``): where kinds are defined that only Liqo
    has, those of our names are Liqo's too, unless they are marked as ours.
    """
    ours = {one["metadata"]["name"]: one for one in manifests.definitions()}
    unmarked = {one.metadata.name for one in found if one.metadata.labels.get(MANAGED_BY) != FIELD_MANAGER}
    others = sorted(name for name in unmarked - ours.keys() if name.endswith(f".{GROUPS}"))
    foreign: list[Foreign] = []
    for one in sorted((one for one in found if one.metadata.name in ours), key=lambda one: one.metadata.name):
        name = one.metadata.name
        if owner := owner_of(one.metadata):
            foreign.append(Foreign(CRDS, name, f"is managed by {owner}", obstacle_of(one, ours[name])))
        elif others and name in unmarked:
            foreign.append(Foreign(CRDS, name, f"seems to be Liqo's, as {others[0]} is", obstacle_of(one, ours[name])))
    return foreign


async def foreign(session: Session) -> list[Foreign]:
    """Return what another installation has of our names, and what of Liqo runs; this first."""
    found: list[Foreign] = []
    for resource in (DEPLOYMENTS, DAEMONSETS):
        for one in (await session.client.list(resource, view=Object, labels=WORKLOADS)).items:
            where = f"{one.metadata.namespace}/{one.metadata.name}"
            found.append(Foreign(resource, where, "is Liqo's, and runs", RUNS))
    definitions = foreign_definitions((await session.client.list(CRDS, view=Definition)).items)
    found += definitions
    if name := session.settings.storage.virtual_class if session.settings.storage.enabled else "":
        try:
            meta = (await session.client.get(STORAGECLASSES, name, view=Object)).metadata
        except NotFound:
            return found
        # One that nobody marked, where nothing else is Liqo's, an administrator may have made for liqod.
        if meta.labels.get(MANAGED_BY_LABEL) != FIELD_MANAGER and (definitions or owner_of(meta)):
            found.append(Foreign(STORAGECLASSES, name, f"is managed by {owner_of(meta) or 'somebody else'}"))
    return found


async def settle_foreign(session: Session, *, adopt: bool) -> AsyncIterator[str]:
    """Raise CliError where another installation has our names; with ``adopt`` mark what it left as ours instead.

    Yields a line for each object that was marked. What runs is refused in any case, before anything was written.
    """
    found = await foreign(session)
    _refuse([one for one in found if one.obstacle or not adopt])
    for one in found:
        labels = {MANAGED_BY: FIELD_MANAGER}
        if one.resource == STORAGECLASSES:
            labels[MANAGED_BY_LABEL] = FIELD_MANAGER  # by this `uninstall` knows it
        patch = {"metadata": {"labels": labels, "annotations": {RELEASE: None, RELEASE_NAMESPACE: None}}}
        await session.client.patch(one.resource, one.name, patch, view=None)
        yield f"{one.resource.kind} {one.name}: taken over, it is liqod's now"


async def refuse_foreign(session: Session) -> None:
    """Raise CliError where another installation has our definitions, or runs: its objects look like ours."""
    # The storage class is removed by its label alone.
    _refuse([one for one in await foreign(session) if one.resource != STORAGECLASSES])


def _refuse(found: Sequence[Foreign]) -> None:
    if not found:
        return
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise CliError(errors.IN_USE, f"{found[0].text}{more}: another installation uses the same names", found[0].hint)


async def foreign_findings(session: Session) -> AsyncIterator[Finding]:
    """Check that no other installation uses the names of liqod."""
    found = await foreign(session)
    for one in found:
        yield bad("Other installations", one.text, one.hint)
    if not found:
        yield good("Other installations", "none uses the names of liqod's definitions and storage class")
