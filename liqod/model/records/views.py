"""Views of liqod's own records (custom resources), as their definitions in ``kube/manifests`` describe them.

``spec`` holds the desired state, ``status`` the state observed by the daemon. Every view tolerates absent fields,
because a record may be older than the daemon that reads it.
"""

from __future__ import annotations

import sys
from typing import Any, Final, Literal

import msgspec

from liqod.model.ids import ClusterID, Fingerprint, Key
from liqod.model.names import tenant_namespace
from liqod.model.objects.interning import Interner
from liqod.model.objects.meta import Condition, Object, View
from liqod.model.records.offer import Offer

Switch = Literal["Auto", "Yes", "No"]
Decision = Literal["Auto", "Accept", "Refuse"]

DEFAULT_CLASS: Final = "default"
"""The class of a slice that names none."""
MAX_SLICES: Final = 32
"""Slices of one borrower at one lender."""
MAX_DIRECT_ENDPOINTS: Final = 4000
"""Addresses at other lenders in a ShadowEndpointSlice; the schema has the same bound."""


class Endpoint(View, frozen=True):
    """Where a peer can be dialled: ``host:port`` and how it was found (mDNS, DNS-SD, Manual)."""

    address: str
    source: str = "Manual"


class AnnouncedKey(View, frozen=True):
    """A peer's announced next key, and the fingerprint ``by`` of the key that announced it.

    It is trusted only while the key ``by`` is pinned. Afterwards it records which key replaced that one.
    """

    fingerprint: str = ""
    by: str = ""


class PeerSharing(View, frozen=True):
    """What is lent to one peer where that differs from ``[sharing]``: a percentage, and limits by resource."""

    percentage: int | None = None
    limits: dict[str, str] = {}


class Reclaim(View, frozen=True):
    """An order to take back what is lent to a peer; ``by`` is the moment from which on its pods are evicted."""

    by: str = ""


class ForeignClusterSpec(View, frozen=True):
    """User-owned: the pin (``fingerprint``), addresses written by hand, whether to peer in each direction, and how."""

    cluster_id: str = msgspec.field(name="clusterID", default="")
    fingerprint: str = ""
    endpoints: list[Endpoint] = []
    outgoing_peering: Switch = "Auto"
    incoming_peering: Switch = "Auto"
    announced_key: AnnouncedKey | None = None
    sharing: PeerSharing = PeerSharing()
    reclaim: Reclaim | None = None

    @property
    def next_key(self) -> Fingerprint | None:
        """The key that the holder of the pinned one announced as its next."""
        announced = self.announced_key
        if announced is None or not self.fingerprint or announced.by != self.fingerprint:
            return None
        return Fingerprint(announced.fingerprint)


class LentSlice(View, frozen=True):
    """A part of what is lent that the peer asked for by itself: what it asked, and what it has.

    ``reason`` and ``message`` say why that is less, empty where it is all.
    """

    name: str = ""
    slice_class: str = msgspec.field(name="class", default="")
    revision: int = 0
    asked: dict[str, str] = {}
    resources: dict[str, str] = {}
    reason: str = ""
    message: str = ""


class Lent(View, frozen=True):
    """This cluster's offer to the peer, the peer's verdict, and the slices that are a part of the offer."""

    resources: dict[str, str] = {}
    epoch: int = 0
    seq: int = 0
    verdict: str = ""
    reason: str = ""
    tenant_namespace: str = ""
    slices: list[LentSlice] = []


class ForeignClusterStatus(View, frozen=True):
    """Daemon-owned: identity as seen, addresses as found, phase with reason and sentence, conditions.

    Condition types: Discovered, Authenticated, Advertised (they offer to us), Accepted (we accepted), Lending (they
    accepted ours), WithinLimits (once they were refused something, or held back). ``knows_key`` is the newest key of
    ours that the peer has on record, ``api`` how its API server is reached: direct or relay, ``protocol`` the version
    that both sides spoke in the last session.
    """

    cluster_name: str = ""
    seen_fingerprint: str = ""
    words: str = ""
    knows_key: str = ""
    api: str = ""
    protocol: str = ""
    endpoints: list[Endpoint] = []
    phase: str = ""
    reason: str = ""
    message: str = ""
    lent: Lent | None = None
    conditions: list[Condition] = []


class ForeignCluster(Object, frozen=True):
    """One peer, named by its cluster ID."""

    spec: ForeignClusterSpec = ForeignClusterSpec()
    status: ForeignClusterStatus = ForeignClusterStatus()


class AdvertisementSpec(View, frozen=True):
    """A provider's offer as it was received; only ``decision`` belongs to the user."""

    cluster_id: str = msgspec.field(name="clusterID", default="")
    epoch: int = 0
    seq: int = 0
    time_to_live: int = 0
    offer: Offer = Offer()
    decision: Decision = "Auto"


class AdvertisementStatus(View, frozen=True):
    """``phase`` is Pending, Accepted, Refused, Withdrawn or Expired, with a reason and a sentence."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    received_at: str = ""
    conditions: list[Condition] = []


class Advertisement(Object, frozen=True):
    """What one provider lends us, named ``advertisement-<provider ID>``."""

    spec: AdvertisementSpec = AdvertisementSpec()
    status: AdvertisementStatus = AdvertisementStatus()

    @property
    def has_ended(self) -> bool:
        """Whether the offer was refused here or withdrawn there: the lender's virtual nodes are removed."""
        return self.status.phase in ("Refused", "Withdrawn")


class PatchAffinity(View, frozen=True):
    """The part of an affinity that a patch has: a NodeAffinity of the Kubernetes API."""

    node_affinity: dict[str, Any] = {}


class OffloadingPatch(View, frozen=True):
    """What is particular to the objects that go through one virtual node.

    Nodes are the lender's: ``node_selector``, ``tolerations``, ``affinity`` and ``runtime_class_name`` are added to the
    spec of pods there. Labels and annotations are keys of such that are left out.
    """

    labels_not_reflected: list[str] = []
    annotations_not_reflected: list[str] = []
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []
    affinity: PatchAffinity = PatchAffinity()
    runtime_class_name: str = ""


class NodeTaint(View, frozen=True):
    """A taint of a virtual node, beside the one that all virtual nodes have."""

    key: str = ""
    value: str = ""
    effect: str = ""


class VirtualNodeSpec(View, frozen=True):
    """Which peer, which node name, and what is particular to this node.

    ``limits``: the most of the lender's offer that the node shows, by resource; what is not named is not limited.
    """

    cluster_id: str = msgspec.field(name="clusterID", default="")
    node_name: str = ""
    labels: dict[str, str] = {}
    taints: list[NodeTaint] = []
    limits: dict[str, str] = {}
    offloading_patch: OffloadingPatch = OffloadingPatch()


class VirtualNodeStatus(View, frozen=True):
    """Daemon-owned: phase with reason and sentence, and conditions (Credential, Node, Reflection, Limits).

    ``api`` is how the lender's API server is reached: direct or relay. ``kubelet_port`` is where the node's API is
    served on the daemon's host (0: nowhere yet). ``deletions_observation`` names what the condition DeletionsHeld is
    about, for the annotation that confirms it.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    api: str = ""
    kubelet_port: int = 0
    deletions_observation: str = ""
    conditions: list[Condition] = []


class VirtualNode(Object, frozen=True):
    """A virtual node of a lender; its existence starts a kubelet.

    Peering makes one for each accepted advertisement, named by the peer's ID and in its tenant namespace. Users make
    further ones.
    """

    spec: VirtualNodeSpec = VirtualNodeSpec()
    status: VirtualNodeStatus = VirtualNodeStatus()

    @property
    def is_further(self) -> bool:
        """Whether a user made it."""
        lender = ClusterID(self.spec.cluster_id)
        return self.metadata.key != Key(tenant_namespace(lender), lender)


class ResourceSliceNode(View, frozen=True):
    """The virtual node of a slice, with what is particular to it."""

    node_name: str = ""
    labels: dict[str, str] = {}
    taints: list[NodeTaint] = []
    offloading_patch: OffloadingPatch = OffloadingPatch()


class ResourceSliceSpec(View, frozen=True):
    """What is asked of a lender: an amount of a class, and the virtual node that shows it (None: none does)."""

    provider_cluster_id: str = msgspec.field(name="providerClusterID", default="")
    slice_class: str = msgspec.field(name="class", default=DEFAULT_CLASS)
    resources: dict[str, str] = {}
    virtual_node: ResourceSliceNode | None = None


class ResourceSliceStatus(View, frozen=True):
    """Daemon-owned: phase (Pending, Granted, Reduced, Refused, Removing) with reason and sentence.

    ``resources`` are what the slice has, also while a change of it is undecided or refused; ``observed_generation`` is
    the generation of the spec that the phase is about.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    resources: dict[str, str] = {}
    observed_generation: int = 0


class ResourceSlice(Object, frozen=True):
    """At home: an amount of a lender's offer that is asked for by itself."""

    spec: ResourceSliceSpec = ResourceSliceSpec()
    status: ResourceSliceStatus = ResourceSliceStatus()


class NattingTableSpec(View, frozen=True):
    """The translation in both directions, written before the remote namespace is requested."""

    cluster_id: str = msgspec.field(name="clusterID", default="")
    natting_table: dict[str, str] = {}
    de_natting_table: dict[str, str] = {}


class MappingStatus(View, frozen=True):
    """The lender's answer for one namespace: Pending, Ready, Refused or Releasing."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class NattingTableStatus(View, frozen=True):
    """By local namespace, what became of each mapping; ``phase`` and ``message`` sum it up for people."""

    phase: str = ""
    message: str = ""
    mappings: dict[str, MappingStatus] = {}


class NamespaceNattingTable(Object, frozen=True):
    """One per foreign cluster, named by its cluster ID: local namespace <-> remote namespace."""

    spec: NattingTableSpec = NattingTableSpec()
    status: NattingTableStatus = NattingTableStatus()


MAX_POD_BYTES: Final = 256 * 1024
"""Bytes of a pod spec that are accepted: the largest real ones are a tenth of it."""


class ShadowPodSpec(View, frozen=True):
    """The pod that the borrower wants; kept opaque here, checked by ``hosting``.

    Of one that is larger than ``MAX_POD_BYTES``, which is refused, only the size is kept: a number in place of the pod.
    """

    pod: msgspec.Raw = msgspec.Raw(b"{}")

    def __post_init__(self) -> None:
        size = len(bytes(self.pod))
        # A msgspec.Raw keeps its whole input buffer alive, which may be a page of a list: copy it.
        kept = self.pod.copy() if size <= MAX_POD_BYTES else msgspec.Raw(str(size).encode())
        msgspec.structs.force_setattr(self, "pod", kept)

    @property
    def oversize(self) -> int:
        """The bytes of a pod that was not kept since it is too large; 0 for any other."""
        text = bytes(self.pod)
        return int(text) if len(text) < 20 and text.isdigit() else 0


class ShadowPodStatus(View, frozen=True):
    """Written only when it matters: a refusal (with its reason), or the final phase of a finished pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class ShadowPod(Object, frozen=True):
    """On the lender: a pod that a borrower wants to run; hosting creates a Pod of the same name and maintains it."""

    spec: ShadowPodSpec = ShadowPodSpec()
    status: ShadowPodStatus = ShadowPodStatus()


class EndpointConditions(View, frozen=True):
    """Conditions of one endpoint; None is "unknown", which consumers must treat as ready (discovery.k8s.io/v1)."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


_conditions: Final[Interner[EndpointConditions]] = Interner(msgspec.json.Encoder().encode)


class ObjectReference(View, frozen=True):
    """The object that an endpoint stands for."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ForZone(View, frozen=True):
    """A zone whose traffic an endpoint should get."""

    name: str = ""


class EndpointHints(View, frozen=True):
    """Where an endpoint should be used from."""

    for_zones: list[ForZone] | None = None


class SliceEndpoint(View, frozen=True):
    """One endpoint of a slice, as far as it travels between clusters; what many have alike is kept once."""

    addresses: list[str] = []
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    node_name: str | None = None
    zone: str | None = None
    hints: EndpointHints | None = None
    target_ref: ObjectReference | None = None

    def __post_init__(self) -> None:
        force = msgspec.structs.force_setattr
        force(self, "conditions", _conditions(self.conditions))
        for name in ("hostname", "node_name", "zone"):
            text = getattr(self, name)
            if text is not None:
                force(self, name, sys.intern(text))


class SlicePort(View, frozen=True):
    """One port of a slice; ``port`` None means all."""

    name: str = ""
    port: int | None = None
    protocol: str = "TCP"
    app_protocol: str | None = None


class SliceTemplate(View, frozen=True):
    """What an EndpointSlice holds besides its metadata; ``address_type`` is IPv4, IPv6 or FQDN."""

    address_type: str = "IPv4"
    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None


class DirectEndpoint(View, frozen=True):
    """An address of a slice that is a pod's at another lender, ``lender``, and its ``original`` address there."""

    address: str = ""
    lender: str = ""
    original: str = ""


class ShadowEndpointSliceSpec(View, frozen=True):
    """The slice that the borrower wants; ``direct`` are those of its addresses that may be reached without it."""

    template: SliceTemplate = SliceTemplate()
    direct: list[DirectEndpoint] | None = None


class ShadowEndpointSlice(Object, frozen=True):
    """On the lender: endpoints of a borrower's service that run elsewhere; hosting makes it an EndpointSlice."""

    spec: ShadowEndpointSliceSpec = ShadowEndpointSliceSpec()
