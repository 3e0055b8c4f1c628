"""Which release of liqod may follow which in a cluster, and what peers of earlier ones lack. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from liqod.model.diagnosis.problem import Passed, Problem
from liqod.model.records.views import ForeignCluster

VERSION_LABEL: Final = "app.kubernetes.io/version"
"""On the daemon's account and on definitions: the release that wrote them last."""
_PROTOCOL: Final = re.compile(r"1\.\d{1,5}")
_RELEASE: Final = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")


def parse(text: str) -> tuple[int, int, int] | None:
    """Return the three numbers of a release; None for what is none, such as a checkout."""
    found = _RELEASE.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def is_newer(one: str, other: str) -> bool:
    """Return whether a release is newer than another one; False where one of them is none."""
    first, second = parse(one), parse(other)
    return first is not None and second is not None and first > second


def serves(other: str, own: str) -> bool:
    """Return whether what another release wrote serves this one: it is an earlier one, or the next minor one.

    A release knows the records of the next minor one, and of no later one.
    """
    theirs, ours = parse(other), parse(own)
    if theirs is None or ours is None:
        return False
    return theirs <= ours or (theirs[0] == ours[0] and theirs[1] <= ours[1] + 1)


def downgrade_refusal(installed: str, own: str) -> str:
    """Return why a release must not take over from the one that is installed; empty where it may."""
    if not is_newer(installed, own) or serves(installed, own):
        return ""
    return (
        f"release {installed} of liqod is installed in this cluster, and this is {own}: a rollback goes one minor "
        "release at a time, since a release knows the records of the next one and of no later one"
    )


PROTOCOLS: Final = "Protocol"
"""The topic of what peers of earlier releases lack."""
NEWEST: Final = "1.2"
"""The version of the protocol that this release speaks at most."""
SHOWN: Final = 5
"""Peers that are named at most."""
SINCE: Final = {
    1: "a key is not rotated without a new trust",
    2: "no slices, direct connections or streams without a tunnel, and names of home not reflected are unknown",
}
"""What does not work with a peer that does not speak a minor version (protocol.md)."""


def older_peers(peers: Iterable[ForeignCluster]) -> Iterator[Problem]:
    """Yield the peers with which an earlier version of the protocol is spoken, and what does not work with them."""
    for peer in peers:
        spoken = peer.status.protocol
        minor = int(spoken.removeprefix("1.")) if _PROTOCOL.fullmatch(spoken) else None
        lacking = [text for since, text in SINCE.items() if minor is not None and since > minor]
        if lacking:
            yield Problem(
                code="PeerOlder",
                kind="peer",
                name=peer.status.cluster_name or peer.metadata.name,
                cause=f"it speaks liqod/{spoken}, this cluster {NEWEST}: {'; '.join(lacking)}",
                severity="warning",
                peer=peer.metadata.name,
                topic=PROTOCOLS,
            )


def protocols_passed(peers: Iterable[ForeignCluster]) -> Iterator[Passed]:
    """Yield that peers speak the newest version."""
    if newest := [peer.status.cluster_name or peer.metadata.name for peer in peers if peer.status.protocol == NEWEST]:
        names = ", ".join(newest[:SHOWN]) + (f" and {len(newest) - SHOWN} more" if len(newest) > SHOWN else "")
        yield Passed(PROTOCOLS, f"liqod/{NEWEST}, the newest of this cluster, is spoken with {names}")
