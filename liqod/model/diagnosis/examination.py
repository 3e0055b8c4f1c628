"""The one answer to what is wrong, from all that is known: records, what one daemon says of itself, and probes. Pure.

``explain`` and ``test`` know the records alone, ``status`` also pods and what the API server answers, ``/readyz`` the
process alone, ``doctor`` and ``netcheck`` more; more evidence only adds problems. What was not looked at is neither
wrong nor well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import attrs

from liqod.model.diagnosis import consistency, installation, kubernetes_release, releases
from liqod.model.diagnosis.cluster import ClusterRecords, daemon_problems, diagnose
from liqod.model.diagnosis.consistency import QuotaFacts
from liqod.model.diagnosis.installation import ClockFacts, DefinitionFacts, SecretFacts, Unmet, Unread
from liqod.model.diagnosis.path import PathProbes, path_passed, path_problems
from liqod.model.diagnosis.problem import (
    DAEMON,
    PEERINGS,
    PROCESSES,
    WORKLOADS,
    Diagnosis,
    Passed,
    Problem,
    diagnosis,
)
from liqod.model.objects.meta import Object
from liqod.model.objects.quantity import Resources


@attrs.frozen(kw_only=True)
class Evidence:
    """What is known; None: not looked at.

    ``unmet`` is what a daemon's process lacks, ``spaces`` the namespaces of remote clusters, ``used`` what pods request
    on virtual nodes by name, ``quotas`` those of tenants here, ``now`` the date by which certificates are judged,
    ``kubernetes`` the version of this cluster's API server.
    """

    records: ClusterRecords | None = None
    unmet: Sequence[Unmet] | None = None
    path: PathProbes | None = None
    spaces: Sequence[Object] | None = None
    used: Mapping[str, Resources] | None = None
    quotas: Sequence[QuotaFacts] = ()
    secrets: Sequence[SecretFacts] | None = None
    now: datetime | None = None
    clock: ClockFacts | None = None
    definitions: Sequence[DefinitionFacts] | None = None
    kubernetes: str | None = None
    unread: Sequence[Unread] = ()


def examine(evidence: Evidence) -> Diagnosis:
    """Return what is wrong, and what is well."""
    return diagnosis(_problems(evidence), _passed(evidence))


def _problems(evidence: Evidence) -> Iterator[Problem]:
    records = evidence.records
    if evidence.unmet is not None:
        yield from installation.process_problems(evidence.unmet)
    if records is not None:
        if evidence.path is not None:
            yield from path_problems(records, evidence.path)
        yield from diagnose(records)
        yield from consistency.contradictions(records)
        yield from releases.older_peers(records.peers)
        yield from consistency.overlaps(records)
        if evidence.spaces is not None and not records.unread:
            yield from consistency.orphans(records, evidence.spaces)
        if evidence.used is not None:
            yield from consistency.full_nodes(records, evidence.used)
    yield from consistency.full_quotas(evidence.quotas)
    if evidence.secrets is not None and evidence.now is not None:
        yield from installation.key_problems(evidence.secrets, evidence.now)
    if evidence.clock is not None:
        yield from installation.clock_problems(evidence.clock)
    if evidence.definitions is not None:
        yield from installation.definition_problems(evidence.definitions)
    if evidence.kubernetes is not None:
        yield from kubernetes_release.release_problems(evidence.kubernetes, records.nodes if records else ())
    yield from installation.unread_problems(evidence.unread)


def _passed(evidence: Evidence) -> Iterator[Passed]:
    records = evidence.records
    if evidence.unmet is not None:
        yield Passed(DAEMON, "it does its work", name="this process")
    if records is not None:
        if evidence.path is not None:
            yield from path_passed(records, evidence.path)
        if records.leader is not None:
            leader = records.leader
            yield Passed(DAEMON, f"{leader.holder} leads, renewed {leader.age:.0f} s ago", name=leader.holder)
        if records.knows_leader and not any(daemon_problems(records.leader)):
            # Records that nobody keeps up to date may say that all is well, and are not believed.
            yield Passed(PEERINGS, "nothing is wrong")
        if records.processes:
            yield Passed(PROCESSES, "each renews its Lease and lacks nothing")
        if records.waiting is not None:
            yield Passed(WORKLOADS, "every pod on a virtual node runs, or has just begun")
        yield from consistency.overlaps_passed(records)
        yield from releases.protocols_passed(records.peers)
        if evidence.spaces is not None and not records.unread:
            yield Passed(consistency.ORPHANS, "every object of a peering belongs to a known peer")
        if evidence.used is not None:
            yield from consistency.full_nodes_passed(records, evidence.used)
    yield from installation.installation_passed(evidence.clock, evidence.secrets, evidence.definitions)
    if evidence.kubernetes is not None:
        yield from kubernetes_release.release_passed(evidence.kubernetes, records.nodes if records else ())
