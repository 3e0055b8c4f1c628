"""Finds records that contradict one another, and objects that belong to no peer. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

import attrs

from liqod.model.diagnosis.cluster import ClusterRecords, name_of
from liqod.model.diagnosis.problem import Kind, Passed, Problem
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object
from liqod.model.objects.quantity import Resources
from liqod.model.records.network import Network
from liqod.model.records.offloading import NAME

CONTRADICTIONS: Final = "Contradictions"
NETWORKS: Final = "Networks"
ORPHANS: Final = "Orphans"
QUOTAS: Final = "Quotas"
FULL: Final = Fraction(9, 10)
"""The share of what is borrowed from which on a virtual node is nearly full."""


def contradictions(facts: ClusterRecords) -> Iterator[Problem]:
    """Yield records that contradict one another."""
    names = Counter(name_of(peer) for peer in facts.peers)
    for name, count in sorted(names.items()):
        if count > 1:
            text = f"{count} peers call themselves {name}"
            yield _warning(CONTRADICTIONS, "AmbiguousName", ("peer", name), text, "use their cluster IDs")
    keys = Counter(peer.spec.fingerprint for peer in facts.peers if peer.spec.fingerprint)
    for key, count in sorted(keys.items()):
        if count > 1:
            peers = ", ".join(peer.metadata.name for peer in facts.peers if peer.spec.fingerprint == key)
            yield Problem(
                code="KeyInUse",
                kind="peer",
                name=peers,
                cause=f"one key is trusted as {peers}",
                advice="`liqodctl distrust` all but one",
                topic=CONTRADICTIONS,
            )
    for one in facts.offloadings:
        if one.metadata.name != NAME:
            text = f"NamespaceOffloading {one.metadata.key} has no effect: only one named {NAME} counts"
            advice = f"kubectl delete nsof -n {one.metadata.namespace} {one.metadata.name}"
            yield _warning(CONTRADICTIONS, "Ignored", ("namespace", one.metadata.namespace), text, advice)


def overlaps(facts: ClusterRecords) -> Iterator[Problem]:
    """Yield networks of peers that overlap, as they are mapped here."""
    known = _networks(facts)
    for number, (owner, network) in enumerate(known):
        for other, there in known[:number]:
            if other != owner and network.version == there.version and network.overlaps(there):
                yield Problem(
                    code="CIDROverlap",
                    kind="tunnel",
                    name=owner,
                    cause=f"{network} of {owner} overlaps {there} of {other}",
                    advice="`liqodctl unpeer` one of them, and check pod-cidrs and pools under [network]",
                    topic=NETWORKS,
                )


def overlaps_passed(facts: ClusterRecords) -> Iterator[Passed]:
    """Yield how many networks were compared."""
    if known := _networks(facts):
        yield Passed(NETWORKS, f"{len(known)} networks, none overlaps another")


def _networks(facts: ClusterRecords) -> list[tuple[str, Network]]:
    """Return the networks in use here with their owners, each once."""
    found: dict[tuple[str, Network], None] = {}
    for config in facts.networks:
        own = [("this cluster", text) for text in config.spec.local.pod_cidrs]
        for owner, text in [*own, *((config.metadata.name, text) for text in config.spec.remap.pod_cidrs)]:
            try:
                found[owner, ipaddress.ip_network(text)] = None
            except ValueError:
                continue
    return list(found)


def orphans(facts: ClusterRecords, spaces: Sequence[Object]) -> Iterator[Problem]:
    """Yield objects of peers that have no ForeignCluster, and what peers have not released, which is kept for them.

    ``spaces`` are the namespaces of remote clusters.
    """
    peers = {peer.metadata.name: name_of(peer) for peer in facts.peers}
    for space in spaces:
        peer, name = space.metadata.labels.get(REMOTE_CLUSTER_LABEL, ""), space.metadata.name
        if peer not in peers:
            text = f"namespace {name} is of the unknown peer {peer}"
            advice = f"see what is in it; kubectl delete namespace {name}"
            yield _warning(ORPHANS, "Orphaned", ("namespace", name), text, advice)
    recorded = {record.spec.node_name for record in facts.virtual_nodes}
    for node in facts.nodes:
        if node.metadata.name not in recorded:
            name = node.metadata.name
            advice = f"kubectl drain {name}; kubectl delete node {name}"
            yield _warning(ORPHANS, "Orphaned", ("node", name), f"node {name} has no VirtualNode record", advice)
    for table in facts.tables:
        owed = [one for _, one in sorted(table.status.mappings.items()) if one.phase == "Releasing"]
        if owed and table.metadata.name in peers:
            name = peers[table.metadata.name]
            text = f"not released at {name}, {len(owed)} of its namespaces: {owed[0].message}"
            advice = f"nothing if it comes back; `liqodctl unpeer {name} --dead` gives up what is there"
            yield _warning(ORPHANS, owed[0].reason or "PeerUnreachable", ("peer", name), text, advice)
    for kind, records in (("nnt", facts.tables), ("networkconfig", facts.networks), ("tunnelendpoint", facts.tunnels)):
        for record in records:
            name = record.metadata.name
            if name not in peers:
                advice = f"kubectl delete {kind} {name}, once its daemon runs"
                yield _warning(ORPHANS, "Orphaned", ("object", name), f"{kind} {name} is of an unknown peer", advice)


def full_nodes(facts: ClusterRecords, used: Mapping[str, Resources]) -> Iterator[Problem]:
    """Yield virtual nodes of which nearly all is requested; ``used`` is by node, absent where it is not known."""
    for name, full in _full(facts, used):
        if full:
            text = f"{name}: more than 90 % of {', '.join(full)} is requested"
            yield _warning(QUOTAS, "NearlyFull", ("node", name), text, "")


def full_nodes_passed(facts: ClusterRecords, used: Mapping[str, Resources]) -> Iterator[Passed]:
    """Yield the virtual nodes with room."""
    for name, _ in _full(facts, used):
        yield Passed(QUOTAS, f"{name}: there is room for more pods", name=name)


def _full(facts: ClusterRecords, used: Mapping[str, Resources]) -> Iterator[tuple[str, list[str]]]:
    for node in facts.nodes:
        taken = used.get(node.metadata.name)
        if taken is None:
            continue
        try:
            yield node.metadata.name, nearly_full(taken, quantity.parse_all(node.status.allocatable))
        except ValueError:
            continue


@attrs.frozen
class QuotaFacts:
    """A ResourceQuota of a tenant's namespace here, and what of it is used."""

    namespace: str
    name: str
    hard: Resources
    used: Resources


def full_quotas(quotas: Iterable[QuotaFacts]) -> Iterator[Problem]:
    """Yield quotas of tenants of which nearly all is used: soon their pods are refused."""
    for one in quotas:
        if full := nearly_full(one.used, one.hard):
            text = f"namespace {one.namespace}: more than 90 % of {', '.join(full)} of the quota {one.name} is used"
            yield _warning(QUOTAS, "NearlyFull", ("namespace", one.namespace), text, "")


def nearly_full(used: Mapping[str, Fraction], whole: Mapping[str, Fraction]) -> list[str]:
    """Return the resources that are nearly used up."""
    return sorted(name for name, amount in used.items() if whole.get(name) and amount > whole[name] * FULL)


def _warning(topic: str, code: str, about: tuple[Kind, str], cause: str, advice: str) -> Problem:
    kind, name = about
    return Problem(code=code, kind=kind, name=name, cause=cause, severity="warning", advice=advice, topic=topic)
