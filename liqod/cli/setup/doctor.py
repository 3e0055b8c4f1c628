"""``doctor``: everything that is wrong with the peerings of a cluster, that contradicts itself, or will break."""

from __future__ import annotations

import base64
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Final

import click

from liqod.agent.host.clock_check import judge, server_time
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, bad, failed, good, warning
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.render import join_reason
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.peering.token import row_of
from liqod.cli.status.facts import advice_of, cluster_facts
from liqod.identity.certs import read_certificates
from liqod.kube import manifests
from liqod.kube.errors import Forbidden, KubeError, NotFound
from liqod.kube.resources import CRDS, NAMESPACES, PODS, SECRETS
from liqod.model.diagnosis.cluster import ClusterFacts, diagnose, name_of
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object
from liqod.model.objects.pod import OCCUPYING_PODS, Pod, pod_requests
from liqod.model.records.invitations import TOKEN_LABEL
from liqod.model.records.offloading import NAME

EXPIRES_SOON: Final = timedelta(days=21)
FULL: Final = Fraction(9, 10)
"""The share of what is borrowed from which on a virtual node is nearly full."""


@click.command()
@click.option("--fix", is_flag=True, help="Repair what is safe to repair: expired pairing tokens are deleted.")
@cluster_options
def doctor(options: Options, fix: bool) -> None:
    """Find what is wrong, contradicts itself, or will break; each finding says what to do.

    Looks at the daemon, peers, networks, orphaned objects, certificates, quotas, clocks and versions.

    \b
    Examples:
      liqodctl doctor
      liqodctl doctor --fix
    """

    async def work(session: Session) -> list[Finding]:
        facts = await cluster_facts(session)
        found = [*problems(facts), *contradictions(facts), *networks(facts)]
        for part in (_orphans(session, facts), _quotas(session, facts), _secrets(session, fix=fix), _host(session)):
            try:
                found += [finding async for finding in part]
            except KubeError as error:
                shown = errors.from_kube(error, session.client.config.server)
                found.append(warning("Rights", f"{shown.code}: {shown.message}", shown.hint))
        return found

    findings = in_cluster(options, work)
    Output(options).report(findings)
    if failed(findings):
        raise CliError(errors.CHECK, "something is wrong", "follow the hints above; `liqodctl explain CODE` says more")


def problems(facts: ClusterFacts) -> Iterator[Finding]:
    """Yield what the diagnosis finds, which ``status`` and ``explain`` show as well. Pure."""
    found = [one for one in diagnose(facts) if one.severity != "info"]
    for one in found:
        text = f"{one.kind} {one.name}: {join_reason(one.code, one.cause)}"
        judged = bad if one.severity == "error" else warning
        yield judged("Peerings", text, advice_of(one))
    if not found:
        yield good("Peerings", "nothing is wrong")


def contradictions(facts: ClusterFacts) -> Iterator[Finding]:
    """Yield records that contradict one another. Pure."""
    names = Counter(name_of(peer) for peer in facts.peers)
    for name, count in sorted(names.items()):
        if count > 1:
            yield warning("Contradictions", f"{count} peers call themselves {name}", "use their cluster IDs")
    keys = Counter(peer.spec.fingerprint for peer in facts.peers if peer.spec.fingerprint)
    for key, count in sorted(keys.items()):
        if count > 1:
            peers = ", ".join(peer.metadata.name for peer in facts.peers if peer.spec.fingerprint == key)
            yield bad("Contradictions", f"one key is trusted as {peers}", "`liqodctl distrust` all but one")
    for one in facts.offloadings:
        if one.metadata.name != NAME:
            text = f"NamespaceOffloading {one.metadata.key} has no effect: only one named {NAME} counts"
            yield warning(
                "Contradictions", text, f"kubectl delete nsof -n {one.metadata.namespace} {one.metadata.name}"
            )


def networks(facts: ClusterFacts) -> Iterator[Finding]:
    """Yield networks of peers that overlap, as they are mapped here. Pure."""
    known: list[tuple[str, ipaddress.IPv4Network | ipaddress.IPv6Network]] = []
    clash = False
    for config in facts.networks:
        own = [("this cluster", text) for text in config.spec.local.pod_cidrs]
        for owner, text in [*own, *((config.metadata.name, text) for text in config.spec.remap.pod_cidrs)]:
            try:
                network = ipaddress.ip_network(text)
            except ValueError:
                continue
            for other, there in known:
                if other != owner and network.version == there.version and network.overlaps(there):
                    clash = True
                    hint = "`liqodctl unpeer` one of them, and check pod-cidrs and pools under [network]"
                    yield bad("Networks", f"{network} of {owner} overlaps {there} of {other}", hint)
            if (owner, network) not in known:
                known.append((owner, network))
    if known and not clash:
        yield good("Networks", f"{len(known)} networks, none overlaps another")


async def _orphans(session: Session, facts: ClusterFacts) -> AsyncIterator[Finding]:
    peers = {peer.metadata.name for peer in facts.peers}
    spaces = (await session.client.list(NAMESPACES, view=Object, labels=REMOTE_CLUSTER_LABEL)).items
    count = 0
    for text, hint in orphans(facts, peers, spaces):
        count += 1
        yield warning("Orphans", text, hint)
    if not count:
        yield good("Orphans", "every object of a peering belongs to a known peer")


def orphans(facts: ClusterFacts, peers: set[str], spaces: Sequence[Object]) -> Iterator[tuple[str, str]]:
    """Yield objects of peers that have no ForeignCluster, each with what to do. Pure."""
    for space in spaces:
        peer = space.metadata.labels[REMOTE_CLUSTER_LABEL]
        if peer not in peers:
            name = space.metadata.name
            yield (
                f"namespace {name} is of the unknown peer {peer}",
                f"see what is in it; kubectl delete namespace {name}",
            )
    recorded = {record.spec.node_name for record in facts.virtual_nodes}
    for node in facts.nodes:
        if node.metadata.name not in recorded:
            name = node.metadata.name
            yield f"node {name} has no VirtualNode record", f"kubectl drain {name}; kubectl delete node {name}"
    for kind, records in (("nnt", facts.tables), ("networkconfig", facts.networks), ("tunnelendpoint", facts.tunnels)):
        for record in records:
            name = record.metadata.name
            if name not in peers:
                yield f"{kind} {name} is of an unknown peer", f"kubectl delete {kind} {name}, once its daemon runs"


async def _quotas(session: Session, facts: ClusterFacts) -> AsyncIterator[Finding]:
    for node in facts.nodes:
        name = node.metadata.name
        pods = (await session.client.list(PODS, view=Pod, fields=f"spec.nodeName={name},{OCCUPYING_PODS}")).items
        try:
            used = quantity.add(pod_requests(pod.spec) for pod in pods)
            full = nearly_full(used, quantity.parse_all(node.status.allocatable))
        except ValueError:
            continue
        if full:
            hint = "ask the lender for more, or lower the requests of pods"
            yield warning("Quotas", f"{name}: more than 90 % of {', '.join(full)} is requested", hint)
        else:
            yield good("Quotas", f"{name}: there is room for more pods")


def nearly_full(used: Mapping[str, Fraction], whole: Mapping[str, Fraction]) -> list[str]:
    """Return the resources that are nearly used up. Pure."""
    return sorted(name for name, amount in used.items() if whole.get(name) and amount > whole[name] * FULL)


async def _secrets(session: Session, *, fix: bool) -> AsyncIterator[Finding]:
    namespace, now = session.settings.kubernetes.namespace, datetime.now(UTC)
    try:
        found: list[dict[str, Any]] = (await session.client.list(SECRETS, namespace)).items
    except Forbidden:
        yield warning("Keys", f"the Secrets of {namespace} may not be read", "as an administrator of the cluster")
        return
    soon = False
    for body in found:
        name, data = body["metadata"]["name"], body.get("data") or {}
        if TOKEN_LABEL in (body["metadata"].get("labels") or {}):
            if row_of(body)["state"] != "expired":
                continue
            if fix:
                await session.client.delete(SECRETS, name, namespace)
                yield good("Keys", f"the expired pairing token {name} was deleted")
            else:
                yield warning("Keys", f"the pairing token {name} has expired", "liqodctl doctor --fix deletes it")
        elif (ends := expiry(data.get("tls.crt", ""))) is not None and ends - now < EXPIRES_SOON:
            soon = True
            judged = bad if ends < now else warning
            yield judged(
                "Keys", f"the certificate in {name} ends on {ends:%Y-%m-%d}", "restart the daemon, which renews it"
            )
    if not soon:
        yield good("Keys", "no certificate ends within three weeks")


def expiry(encoded: str) -> datetime | None:
    """Return when the certificate in a Secret ends; None where there is none. Pure."""
    try:
        return read_certificates(base64.b64decode(encoded))[0].not_valid_after_utc
    except ValueError:
        return None


async def _host(session: Session) -> AsyncIterator[Finding]:
    now = await server_time(session.client)
    verdict = judge((datetime.now(UTC) - now).total_seconds()) if now is not None else None
    if verdict is None:
        yield warning("Clock", "the API server does not reveal its time", "synchronize the clocks of both hosts by NTP")
    elif verdict.message:
        yield (bad if verdict.fatal else warning)("Clock", verdict.message, "synchronize both clocks by NTP")
    else:
        yield good("Clock", "is synchronized with the API server's")
    other = [name async for name in _other_release(session)]
    for name in other:
        yield warning("Versions", f"the CRD {name} is of another release", "liqodctl install")
    if not other:
        yield good("Versions", "the CRDs are those of this release")


async def _other_release(session: Session) -> AsyncIterator[str]:
    for definition in manifests.definitions():
        name = definition["metadata"]["name"]
        try:
            there = await session.client.get(CRDS, name)
        except NotFound:
            yield name
            continue
        if not manifests.covers(there.get("spec"), definition["spec"]):
            yield name
