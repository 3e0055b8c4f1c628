"""``tenant``: what a peer may do in this cluster, what it has here, and what it has left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import click
import msgspec

from liqod.cli.console import complete
from liqod.cli.console.group import Group
from liqod.cli.console.options import Options, cluster_options, group_options
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.status.peers import find, label
from liqod.config.schema import HostingSettings
from liqod.hosting.shadowpods.quota import resource_requests
from liqod.hosting.tenants import bounds, grants
from liqod.hosting.tenants.admission import pod_shape
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.namespaces import selector
from liqod.hosting.tenants.policies import MAX_DESTINATIONS, MAX_PORTS
from liqod.hosting.tenants.quota.content_bounds import GROWTH, most_contents
from liqod.hosting.tenants.quota.levels import at_level, level_of
from liqod.hosting.tenants.quota.record_bounds import BYTES, most_records
from liqod.hosting.tenants.quota.view import ResourceQuota
from liqod.hosting.views import Pod, is_managed
from liqod.kube.errors import NotFound
from liqod.kube.resources import (
    CONFIGMAPS,
    FOREIGNCLUSTERS,
    NAMESPACES,
    PODS,
    RESOURCEQUOTAS,
    SECRETS,
    SHADOWENDPOINTSLICES,
    SHADOWNETWORKPOLICYSETS,
    SHADOWPODS,
)
from liqod.model.ingress_path import MAX_MATCHES, MAX_ROUTE_RULES
from liqod.model.names import (
    FULL_CONTENTS_LABEL,
    FULL_LABEL,
    HELD_WRITES_LABEL,
    MANAGED_BY_LABEL,
    MANAGED_BY_SHADOWPOD,
    ORIGIN_LABEL,
)
from liqod.model.objects import quantity
from liqod.model.objects.granted_namespace import granted_to, is_tenant_namespace
from liqod.model.objects.meta import Object, find_condition
from liqod.model.objects.portable_metadata import MAX_ANNOTATIONS_SIZE, MAX_KEYS
from liqod.model.objects.quantity import Resources
from liqod.model.records.views import MAX_POD_BYTES, ForeignCluster
from liqod.peering.records.status import LIMITS
from liqod.peering.session.usage import SHARES

CONTENTS = "config maps and secrets"
COLUMNS = {"of": "OF", "what": "WHAT", "used": "USED", "bound": "BOUND", "left": "LEFT"}
_OWN = ("workers", "token-lifetime", "labels", "annotations", "tolerations", "volumes")
"""Settings that are not shown as they stand: they are no bound, or are part of a longer list."""


@click.group(cls=Group)
@group_options
def tenant() -> None:
    """Tenants: peers that borrow from this cluster.

    \b
    Example:
      liqodctl tenant show milan
    """


@tenant.command()
@click.argument("name", metavar="PEER", shell_complete=complete.peers)
@cluster_options
def show(options: Options, name: str) -> None:
    """Show what a peer may do here, what it has here, and what it has left.

    \b
    Examples:
      liqodctl tenant show milan
      liqodctl tenant show milan -o json
    """

    async def work(session: Session) -> None:
        cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
        present = (await session.client.list(NAMESPACES, view=Object, labels=selector(cluster.metadata.name))).items
        own = next((one for one in present if is_tenant_namespace(one, cluster.metadata.name)), None)
        contract = Contract.of(session.settings)
        contract = at_level(contract, level_of(contract.granted.quota, own))
        names = sorted(one.metadata.name for one in granted_to(cluster.metadata.name, present))
        lent = cluster.status.lent
        rows = [*await _held(session, cluster, names, contract), *_granted(contract), *_fixed(), *_shares()]
        slices = lent.slices if lent is not None else []
        rows += [_row("offer", f"slice {one.name}", bound=_words(one.resources)) for one in slices]
        session.show([*rows, *_refused(cluster, granted_to(cluster.metadata.name, present))], COLUMNS)
        if lent is None or not lent.resources:
            session.say(f"nothing is lent to {label(cluster)} at present", "yellow")

    in_cluster(options, work)


async def _held(
    session: Session, cluster: ForeignCluster, names: Sequence[str], contract: Contract
) -> list[dict[str, Any]]:
    """Return what the pods of a peer use of the offer, what it has in all its namespaces, and in each of them."""
    managed = f"{MANAGED_BY_LABEL}={MANAGED_BY_SHADOWPOD}"
    pods = [
        pod
        for pod in (await session.client.list(PODS, view=Pod, labels=managed)).items
        if pod.metadata.namespace in names and is_managed(pod) and not pod.finished
    ]
    lent = cluster.status.lent.resources if cluster.status.lent is not None else {}
    used = quantity.add(resource_requests.of_pod(pod.spec) for pod in pods)
    rows = [*_amounts("offer", quantity.parse_all(lent), used)]
    left = grants.MAX_NAMESPACES - len(names)
    rows.append(_row("offer", "namespaces", str(len(names)), str(grants.MAX_NAMESPACES), left))
    total = bounds.most_of_tenant(contract, quantity.parse_all(lent))
    counts: list[Resources] = []
    of_namespaces: list[dict[str, Any]] = []
    for name in names:
        try:
            quota = await session.client.get(RESOURCEQUOTAS, bounds.NAME, name, view=ResourceQuota)
        except NotFound:
            of_namespaces.append(_row(name, "quota", bound="none"))
            continue
        hard, counted = quantity.parse_all(quota.spec.hard), quantity.parse_all(quota.status.used)
        counts.append(counted)
        of_namespaces += _amounts(name, hard, counted, others=False)
    rows += _amounts("tenant", total, quantity.add(counts), others=False)
    records = most_records(contract, quantity.parse_all(lent))
    rows += _amounts("tenant", records, await _records(session, names), others=False)
    if GROWTH in (most := most_contents(contract)):
        rows += _amounts("tenant", {CONTENTS: most[GROWTH]}, await _contents(session, names), others=False)
    return [*rows, *of_namespaces]


async def _records(session: Session, names: Sequence[str]) -> Resources:
    """Return the numbers of the records in some namespaces by kind, and their bytes."""
    found: Counter[str] = Counter()
    for name in names:
        for resource in (SHADOWPODS, SHADOWENDPOINTSLICES, SHADOWNETWORKPOLICYSETS):
            items = (await session.client.list(resource, name, view=msgspec.Raw)).items
            found[resource.plural] += len(items)
            found[BYTES] += sum(len(bytes(item)) for item in items)
    return {name: Fraction(number) for name, number in found.items()}


async def _contents(session: Session, names: Sequence[str]) -> Resources:
    """Return the bytes of the config maps and secrets in some namespaces."""
    size = 0
    for name in names:
        for resource in (CONFIGMAPS, SECRETS):
            items = (await session.client.list(resource, name, view=msgspec.Raw, labels=ORIGIN_LABEL)).items
            size += sum(len(bytes(item)) for item in items)
    return {CONTENTS: Fraction(size)}


def _amounts(of: str, bound: Resources, used: Resources, *, others: bool = True) -> Iterator[dict[str, Any]]:
    """Yield a row for each resource that is bounded, and for ``others`` that are used without a bound."""
    for name in sorted({*bound, *(used if others else ())}):
        limit, taken = bound.get(name), used.get(name, Fraction(0))
        if limit is None:
            yield _row(of, name, _text(name, taken), "0", "0")
        else:
            yield _row(of, name, _text(name, taken), _text(name, limit), _text(name, max(Fraction(0), limit - taken)))


def _granted(contract: Contract) -> Iterator[dict[str, Any]]:
    """Yield the contract of a tenant: the settings that differ from nothing, and the lists that they add to."""
    for field in msgspec.structs.fields(HostingSettings):
        if field.encode_name not in _OWN:
            yield _row("contract", field.encode_name, bound=_words(getattr(contract.granted, field.name)))
    lists: Mapping[str, Iterable[str]] = {
        "annotations": contract.annotations,
        "labels": contract.labels,
        "load-balancer-classes": contract.load_balancer_classes,
        "tolerations": contract.tolerations,
        "volumes": contract.volumes,
    }
    for name, allowed in lists.items():
        yield _row("contract", name, bound=_words(sorted(allowed)))


def _fixed() -> Iterator[dict[str, Any]]:
    """Yield what no setting changes."""
    amounts = {
        "annotations of an object": MAX_KEYS,
        "characters of annotations": MAX_ANNOTATIONS_SIZE,
        "containers of a pod": pod_shape.MAX_CONTAINERS,
        "destinations of a slice": MAX_DESTINATIONS,
        "labels of an object": MAX_KEYS,
        "matches of a rule of a route": MAX_MATCHES,
        "bytes of a pod": MAX_POD_BYTES,
        "ports of a service": MAX_PORTS,
        "rules of a route": MAX_ROUTE_RULES,
        "tolerations of a pod": pod_shape.MAX_TOLERATIONS,
    }
    for name, amount in sorted(amounts.items()):
        yield _row("fixed", name, bound=str(amount))
    for name, shape in (("fields of a container", pod_shape.CONTAINER), ("fields of a pod", pod_shape.POD)):
        yield _row("fixed", name, bound=_words(sorted(shape)))


def _shares() -> Iterator[dict[str, Any]]:
    """Yield what a peer may take of the daemon."""
    for name, (rate, burst) in SHARES.items():
        yield _row("share", name, bound=f"{rate:g} a second, {burst:g} at once")


def _refused(cluster: ForeignCluster, namespaces: Iterable[Object]) -> Iterator[dict[str, Any]]:
    """Yield what was refused to a peer or held back of it, and what it has no room for now."""
    found = find_condition(cluster.status.conditions, LIMITS)
    if found is not None:
        yield _row("refused", found.reason, bound=found.message)
    labels = {
        "no room": FULL_LABEL,
        "no room for contents": FULL_CONTENTS_LABEL,
        "writes are held until": HELD_WRITES_LABEL,
    }
    held = list(namespaces)
    for what, key in labels.items():
        if values := sorted({one.metadata.labels[key] for one in held if key in one.metadata.labels}):
            yield _row("refused", what, bound=_words(values))


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={amount}" for name, amount in sorted(value.items())) or "-"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "-"


def _row(of: str, what: str, used: str = "", bound: str = "", left: object = "") -> dict[str, Any]:
    return {"of": of, "what": what, "used": used, "bound": bound, "left": str(left)}


def _text(name: str, value: Fraction) -> str:
    return quantity.render(value, resource="storage" if name in (BYTES, CONTENTS) else name.removeprefix("requests."))
