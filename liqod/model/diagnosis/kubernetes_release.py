"""What releases of Kubernetes lack of what liqod uses, by the number of the release. Pure.

A release that lacks something is supported all the same: what is said here is what does not work there, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from liqod.model.diagnosis.problem import Passed, Problem
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects.node import Node

KUBERNETES: Final = "Kubernetes"
"""The topic of what releases lack."""

_NUMBERS: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})")

Release = tuple[int, int]


@attrs.frozen(kw_only=True)
class Gap:
    """Something that a release has from ``since`` on; ``at_lender``: pods at a lender of an older one lack it."""

    since: Release
    text: str
    advice: str
    at_lender: bool = False


GAPS: Final = (
    Gap(
        since=(1, 33),
        text="cannot resize pods that run: a change of their requests and limits at home is not carried out",
        advice="make the pods again with other requests and limits",
        at_lender=True,
    ),
    Gap(
        since=(1, 34),
        text="drops requests and limits of a pod as a whole (spec.resources): pods of borrowers with them are refused",
        advice="name requests and limits of the containers",
        at_lender=True,
    ),
    Gap(
        since=(1, 36),
        text="has no MutatingAdmissionPolicies by default: pods made while no daemon answers the webhook wait for one",
        advice="run a second daemon, which answers when the first one is down",
    ),
)


def release_of(version: str) -> Release | None:
    """Return the release that a version is of, such as ``v1.30.14+k3s1``; None where it names none."""
    found = _NUMBERS.match(version)
    return (int(found[1]), int(found[2])) if found else None


def gaps(release: Release | None, *, at_lender: bool = False) -> list[Gap]:
    """Return what a release lacks, or what of it matters for pods at a lender; nothing of a release that is unknown."""
    if release is None:
        return []
    return [gap for gap in GAPS if release < gap.since and (gap.at_lender or not at_lender)]


def lender_versions(nodes: Sequence[Node], peer: str = "") -> list[tuple[str, str]]:
    """Return name and Kubernetes version of the virtual nodes that stand for a peer, or for any, by name."""
    lenders = ((node.metadata.name, node.metadata.labels.get(REMOTE_CLUSTER_LABEL, ""), node) for node in nodes)
    return sorted(
        (name, node.status.node_info.kubelet_version) for name, of, node in lenders if of and peer in ("", of)
    )


def release_problems(own: str, nodes: Sequence[Node]) -> Iterator[Problem]:
    """Yield what this cluster's Kubernetes lacks, by its version, and that of each lender, by its virtual node."""
    for gap in gaps(release_of(own)):
        yield _older("this cluster", f"Kubernetes {own} {gap.text}", gap)
    for name, version in lender_versions(nodes):
        for gap in gaps(release_of(version), at_lender=True):
            yield _older(name, f"the lender's Kubernetes {version} {gap.text}", gap)


def release_passed(own: str, nodes: Sequence[Node]) -> Iterator[Passed]:
    """Yield the releases that were looked at."""
    for name, version in (("this cluster", own), *lender_versions(nodes)):
        if release_of(version) is not None:
            yield Passed(KUBERNETES, f"{name}: {version} has all that liqod uses", name=name)


def _older(name: str, cause: str, gap: Gap) -> Problem:
    return Problem(
        code="OlderKubernetes",
        kind="object" if name == "this cluster" else "node",
        name=name,
        cause=cause,
        severity="warning",
        advice=gap.advice,
        topic=KUBERNETES,
    )
