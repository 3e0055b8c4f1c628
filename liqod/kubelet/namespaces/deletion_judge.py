"""Judges deletions at a lender whose only reason is that an object is missing at home: a pure function.

An object whose deletion was watched is not judged: somebody deleted it. One that is merely not listed may have been
lost with the state of the home cluster, when its etcd was restored from a snapshot or its objects were copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from liqod.model.ids import Key

FEW: Final = 20
"""Number of objects of one kind that may be deleted without a question, however few there are."""
PART: Final = 10
"""The part of the objects of one kind that may be deleted without a question: one in ``PART``."""

WENT_BACK: Final = "HomeWentBack"
OTHER_CLUSTER: Final = "OtherCluster"
MISSING: Final = "MissingAtHome"

Item = tuple[str, Key]
"""An object by the plural of its kind and the key of its counterpart at home."""


@frozen
class Surge:
    """Of one kind: ``missing`` objects would be deleted or were just deleted, of ``total`` at the lender."""

    missing: int
    total: int

    @property
    def is_large(self) -> bool:
        """Whether it is more than a tenth, and more than twenty."""
        return self.missing > FEW and self.missing * PART > self.total


@frozen
class LossEvidence:
    """What speaks for lost state at home: how often versions went back; the records are those of another cluster."""

    went_back: int = 0
    other_cluster: bool = False

    def beyond(self, accepted: LossEvidence) -> LossEvidence:
        """Return what of it was not accepted already; a cache that is gone takes nothing back."""
        return LossEvidence(
            went_back=self.went_back if self.went_back > accepted.went_back else 0,
            other_cluster=self.other_cluster and not accepted.other_cluster,
        )

    @property
    def reason(self) -> str:
        """The reason code; empty without evidence."""
        return OTHER_CLUSTER if self.other_cluster else WENT_BACK if self.went_back else ""


@frozen
class HeldDeletions:
    """Nothing is deleted until somebody confirms ``observation``, which names the reason and the missing objects."""

    reason: str
    message: str
    observation: str


_CAUSES: Final = {
    WENT_BACK: "the resource versions of this cluster went back: its etcd was restored",
    OTHER_CLUSTER: "the natting table was written by another cluster (UID of the namespace kube-system)",
    MISSING: "too many at once, and nobody was seen to delete them",
}


def judge(missing: Iterable[Item], surges: Mapping[str, Surge], evidence: LossEvidence) -> HeldDeletions | None:
    """Return why the missing objects must not be deleted now; None if they may be."""
    items = sorted(missing)
    reason = evidence.reason or (MISSING if any(surge.is_large for surge in surges.values()) else "")
    if not items or not reason:
        return None
    counts = ", ".join(f"{surge.missing} of {surge.total} {kind}" for kind, surge in sorted(surges.items()))
    return HeldDeletions(reason, f"missing at home: {counts}; {_CAUSES[reason]}", observation_of(reason, items))


def why_kept(pods: int, volumes: int, evidence: LossEvidence) -> str:
    """Return why a virtual node stays whose record is missing, and was not seen to be deleted; empty if it may go.

    ``pods``: those on it; ``volumes``: those whose data is at its lender. Both go there when the node does.
    """
    if evidence.reason:
        return _CAUSES[evidence.reason]
    if pods > FEW:
        return f"{pods} pods are on it"
    return f"the lender has the data of {volumes} volumes" if volumes else ""


def observation_of(reason: str, items: Iterable[Item]) -> str:
    """Return a name of a reason and a set of objects; it changes with each of them."""
    text = "\n".join((reason, *(f"{kind}/{key.namespace}/{key.name}" for kind, key in sorted(items))))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
