"""Decides what a ResourceSlice asks of its lender, what its status says, and what its virtual node is. Pure.

What is not known changes nothing: a slice keeps what it has while its lender is away, or has not answered yet. A change
that cannot be is refused here, on the record, and is not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final, Protocol

import attrs
import msgspec

from liqod.model.ids import ClusterID, Key, is_dns_label
from liqod.model.objects import quantity
from liqod.model.objects.meta import MAX_MESSAGE
from liqod.model.objects.quantity import Resources
from liqod.model.records.views import (
    MAX_SLICES,
    Advertisement,
    ResourceSlice,
    ResourceSliceStatus,
    VirtualNode,
    VirtualNodeSpec,
)
from liqod.peering.lending.advert import round_down
from liqod.peering.lending.slice_decider import amount_problem
from liqod.wire.events import AskSlice, SliceDecided

FINALIZER: Final = "sharing.liqo.io/resource-slice"
"""Keeps a record until its node is gone and the lender has the amount back."""
SLICE_LABEL: Final = "sharing.liqo.io/resource-slice"
"""On a VirtualNode: the name of the ResourceSlice that it shows, in the same namespace."""
LOCAL: Final = frozenset(
    (
        *("BadName", "BadQuantity", "BadResource", "InUse", "NameTaken", "NegativeAmount"),
        *("NodeNameTaken", "NotWhole", "NothingAsked", "TooManyResources", "TooManySlices"),
    )
)
"""Reasons of refusals that need no lender; once their cause is gone the request is sent."""
_SHARED: Final = ("cpu", "memory", "pods", "ephemeral-storage")
"""What a node shows of the rest of the offer where its slice does not name it: without it no pod runs there."""
MAX_LIMITS: Final = 64
"""Limits that a VirtualNode may have; its definition has the same bound."""
_ZERO: Final = Fraction(0)


class _Forge(Protocol):
    """Makes a status of this slice."""

    def __call__(self, phase: str, reason: str, message: str, resources: Mapping[str, str]) -> ResourceSliceStatus: ...


@attrs.frozen(kw_only=True)
class SliceFacts:
    """What is known when a slice is decided on.

    ``siblings``: all slices of the lender, itself among them. ``offer``: None without one. ``speaks``: whether the
    lender knows slices, None without a session. ``decided``: its newest decision in this process. ``running``: what the
    pods on the slice's node request, None while that is not known. ``node``: the VirtualNode with the slice's name;
    ``refused``: why this cluster does not take what the record says of it, empty where it does.
    """

    record: ResourceSlice
    siblings: Iterable[ResourceSlice]
    offer: Advertisement | None
    speaks: bool | None
    decided: SliceDecided | None
    running: Resources | None
    node: VirtualNode | None
    refused: str = ""

    @property
    def is_new(self) -> bool:
        """Whether the spec is another one than that which the status is about."""
        return self.record.metadata.generation != self.record.status.observed_generation


def problem(facts: SliceFacts) -> tuple[str, str] | None:
    """Return why a slice is not asked for, as a reason and a sentence; None: it is."""
    record, spec = facts.record, facts.record.spec
    meta = record.metadata
    if not is_dns_label(meta.name):
        return "BadName", "the name of a slice is a DNS label: lower-case letters, digits and '-', at most 63"
    older = sorted(facts.siblings, key=age)
    rival = next((one for one in older if one.metadata.name == meta.name), record)
    if rival.metadata.key != meta.key:
        return "NameTaken", f"the older ResourceSlice {rival.metadata.key} has this name at the lender"
    if sum(age(one) < age(record) for one in older) >= MAX_SLICES:
        return "TooManySlices", f"a lender grants {MAX_SLICES} slices to one borrower"
    if spec.virtual_node is not None and facts.node is not None and not is_own(facts.node, record):
        return "NodeNameTaken", f"the VirtualNode {meta.key} exists, and is not of this slice: give it another name"
    if (wrong := amount_problem(spec.resources)) is not None:
        return wrong
    return _below_use(facts) if facts.is_new or record.status.reason == "InUse" else None


def _below_use(facts: SliceFacts) -> tuple[str, str] | None:
    """Return why a change is refused that takes what pods use; None where there is none."""
    had, wanted = _amounts(facts.record.status.resources), quantity.parse_all(facts.record.spec.resources)
    less = [name for name, value in had.items() if wanted.get(name, _ZERO) < value]
    if not less:
        return None
    if facts.running is None:
        return "InUse", "it is not known yet what runs on the node of this slice"
    running = facts.running
    over = sorted(name for name in less if wanted.get(name, _ZERO) < running.get(name, _ZERO))
    if not over:
        return None
    parts = ", ".join(
        f"{name} {quantity.render(wanted.get(name, _ZERO), resource=name)} of "
        f"{quantity.render(running[name], resource=name)}"
        for name in over
    )
    return "InUse", f"less than the pods on the node of this slice request: {parts}; it keeps what it had"


def ask(facts: SliceFacts) -> AskSlice | None:
    """Return what is to be asked of the lender; None: nothing now."""
    if not facts.speaks or not is_accepted(facts.offer) or problem(facts) is not None:
        return None
    spec, meta = facts.record.spec, facts.record.metadata
    return AskSlice(meta.name, spec.slice_class, dict(spec.resources), meta.generation)


def status_of(facts: SliceFacts) -> ResourceSliceStatus:
    """Return the status of a slice that is not being deleted."""
    found = _judged(facts)
    if facts.refused and found.resources:
        message = f"this cluster refuses the virtual node of the slice: {facts.refused}"
        return msgspec.structs.replace(found, reason="NodeRefused", message=message[:MAX_MESSAGE])
    return found


def _judged(facts: SliceFacts) -> ResourceSliceStatus:
    before, generation = facts.record.status, facts.record.metadata.generation

    def status(phase: str, reason: str, message: str, resources: Mapping[str, str]) -> ResourceSliceStatus:
        return ResourceSliceStatus(
            phase=phase,
            reason=reason,
            message=message[:MAX_MESSAGE],
            resources=dict(resources),
            observed_generation=generation,
        )

    if (wrong := problem(facts)) is not None:
        return status("Refused", *wrong, before.resources)
    if facts.decided is not None and facts.decided.revision == generation:
        return _decided(facts, facts.decided, status)
    settled = before.phase in ("Granted", "Reduced") or (before.phase == "Refused" and before.reason not in LOCAL)
    if settled and not facts.is_new:
        return before
    return status("Pending", *_waits_for(facts), before.resources)


def _decided(facts: SliceFacts, event: SliceDecided, status: _Forge) -> ResourceSliceStatus:
    before, asked = facts.record.status.resources, facts.record.spec.resources
    if event.decision == "Removed":
        return status("Pending", "TakenBack", "the lender no longer has this slice; the next session asks again", {})
    resources = checked(event.resources, asked, before)
    if resources is None:
        return status("Refused", "BadGrant", "the lender granted what was not asked for; it is not shown", before)
    return status(event.decision, event.reason, event.message, resources)


def checked(granted: Mapping[str, str], asked: Mapping[str, str], had: Mapping[str, str]) -> dict[str, str] | None:
    """Return what a lender granted, in whole units; None where that is more than was asked for and than there was."""
    most, before = _amounts(asked), _amounts(had)
    shown = {}
    for name, value in _amounts(granted).items():
        if value > max(most.get(name, _ZERO), before.get(name, _ZERO)):
            return None
        shown[name] = round_down(name, value)
    return quantity.render_all({name: value for name, value in shown.items() if value > 0})


def _waits_for(facts: SliceFacts) -> tuple[str, str]:
    if facts.speaks is None:
        return "NoSession", "the lender is asked once there is a session with it"
    if not facts.speaks:
        return "PeerTooOld", "the lender's release knows no slices; it is asked once it was upgraded"
    if not is_accepted(facts.offer):
        return "NoOffer", "the lender is asked once an offer of it is accepted"
    return "Asked", "the lender was asked and has not answered yet"


def is_accepted(offer: Advertisement | None) -> bool:
    """Return whether an offer is accepted, of which a slice can be a part."""
    return offer is not None and offer.status.phase == "Accepted"


def is_own(node: VirtualNode, record: ResourceSlice) -> bool:
    """Return whether a VirtualNode was made for a slice."""
    return node.metadata.labels.get(SLICE_LABEL) == record.metadata.name and (
        node.spec.cluster_id == record.spec.provider_cluster_id
    )


def node_spec(record: ResourceSlice, status: ResourceSliceStatus, offered: Iterable[str]) -> VirtualNodeSpec | None:
    """Return the spec of a slice's virtual node; None: it has none.

    The node shows what the slice has. Of what it does not name it shows the rest of the offer where no pod runs without
    it, and else nothing. One whose slice was taken back shows nothing, and keeps its pods.
    """
    wanted = record.spec.virtual_node
    if wanted is None:
        return None
    limits = dict(status.resources)
    names = {*offered, *_SHARED} if not status.resources else {name for name in offered if name not in _SHARED}
    left = sorted(names - limits.keys())[: max(0, MAX_LIMITS - len(limits))]
    limits |= dict.fromkeys(left, "0")
    return VirtualNodeSpec(
        cluster_id=record.spec.provider_cluster_id,
        node_name=wanted.node_name or record.metadata.name,
        labels=wanted.labels,
        taints=wanted.taints,
        limits=limits,
        offloading_patch=wanted.offloading_patch,
    )


def node_labels(record: ResourceSlice) -> dict[str, str]:
    """Return the labels of the VirtualNode of a slice."""
    # Not that of the peer: as every further VirtualNode it outlives peerings.
    return {SLICE_LABEL: record.metadata.name}


def node_name(record: ResourceSlice) -> str:
    """Return the name of the Node of a slice; empty: it has none."""
    wanted = record.spec.virtual_node
    return "" if wanted is None else wanted.node_name or record.metadata.name


def lender_of(record: ResourceSlice) -> ClusterID | None:
    """Return the lender that a slice is asked of; None where it names none."""
    return ClusterID(record.spec.provider_cluster_id) if is_dns_label(record.spec.provider_cluster_id) else None


def removing(record: ResourceSlice, reason: str, message: str) -> ResourceSliceStatus:
    """Return the status of a slice that is being deleted."""
    return msgspec.structs.replace(record.status, phase="Removing", reason=reason, message=message[:MAX_MESSAGE])


def age(record: ResourceSlice) -> tuple[str, Key]:
    """Return the order of slices: the oldest first."""
    return record.metadata.creation_timestamp or "", record.metadata.key


def _amounts(resources: Mapping[str, str]) -> dict[str, Fraction]:
    """Return quantities; those that cannot be read, or are negative, count as none."""
    found = {}
    for name, text in resources.items():
        try:
            found[name] = max(_ZERO, quantity.parse(text))
        except ValueError:
            continue
    return found
