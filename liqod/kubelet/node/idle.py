"""Decides whether a VirtualNode runs: it is whole, its node's name is its own, and its lender lends (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import frozen

from liqod.kubelet.common.readiness import judge_offer
from liqod.model.ids import Key, is_dns_label
from liqod.model.records.views import Advertisement, ForeignCluster, VirtualNode

NAME_TAKEN: Final = "NodeNameTaken"


@frozen
class Idle:
    """Why no virtual kubelet runs for a record; ``releases``: what an earlier one left for it is to be removed."""

    reason: str
    message: str
    releases: bool = False


@frozen
class Holder:
    """Who has a node's name now: the record whose kubelet runs, and the lender that the Node names; empty: none."""

    running: Key | None = None
    lender: str = ""


def is_whole(record: VirtualNode) -> bool:
    """Return whether a record names a node and a lender."""
    return bool(record.spec.node_name) and is_dns_label(record.spec.cluster_id)


def idle(
    record: VirtualNode,
    rivals: Iterable[VirtualNode],
    holder: Holder,
    *,
    peer: ForeignCluster | None,
    offer: Advertisement | None,
) -> Idle | None:
    """Return why a record has no virtual kubelet; None: it has one.

    ``rivals`` are the records with the same node name. A user's record outlives peering and offer, and its node does
    not: it comes back with the next offer. A peer or an offer that is missing removes no node.
    """
    if not is_whole(record):
        return Idle(
            "Incomplete", "spec.nodeName and spec.clusterID are needed: a node's name, and the cluster ID of a peer"
        )
    others = [
        one
        for one in rivals
        if is_whole(one)
        and one.metadata.key != record.metadata.key
        and (one.metadata.key == holder.running or not one.metadata.deleting)
    ]
    first = min((record, *others), key=lambda one: _rank(one, holder))
    if first is not record:
        taken = f"the VirtualNode {first.metadata.key} has the node name {record.spec.node_name}"
        return Idle(NAME_TAKEN, f"{taken}: give this one another nodeName")
    return _without_lender(record, holder, peer, offer) if record.is_further else None


def _without_lender(
    record: VirtualNode, holder: Holder, peer: ForeignCluster | None, offer: Advertisement | None
) -> Idle | None:
    if peer is not None and peer.metadata.deleting:
        return Idle("Unpeering", "the peering ends; the node comes back with the next one", releases=True)
    if offer is not None and offer.has_ended:
        judged = judge_offer(offer)
        return Idle(judged.reason, judged.message, releases=True)
    if peer is None and offer is None and holder == Holder():
        return Idle("LenderUnknown", f"there is no peer {record.spec.cluster_id}: the node waits for it")
    return None


def comes_back(peer: ForeignCluster | None, offer: Advertisement | None) -> bool:
    """Return whether a lender's virtual node is made again after its removal: the peering and the offer last."""
    if peer is None or offer is None or offer.has_ended:
        return False
    return bool(peer.spec.fingerprint) and not peer.metadata.deleting


def _rank(record: VirtualNode, holder: Holder) -> tuple[bool, bool, bool, str, str]:
    """Return the order in which records get a name: who has it keeps it, then the oldest."""
    meta = record.metadata
    return (
        meta.key != holder.running,
        bool(holder.lender) and record.spec.cluster_id != holder.lender,
        # It survives a restart of the daemon, when no kubelet runs.
        record.status.reason == NAME_TAKEN,
        meta.creation_timestamp or "",
        str(meta.key),
    )
