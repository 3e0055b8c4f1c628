"""What releases of Kubernetes lack of what liqod uses, by the number of the release. Pure.

A release that lacks something is supported all the same: what is said here is what does not work there, and what to do.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

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
