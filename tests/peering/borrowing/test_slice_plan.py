"""What a slice asks for, what its record says, and what its virtual node is: by tables."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.objects import quantity
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.views import (
    MAX_SLICES,
    Advertisement,
    AdvertisementStatus,
    NodeTaint,
    OffloadingPatch,
    PatchAffinity,
    ResourceSlice,
    ResourceSliceNode,
    ResourceSliceSpec,
    ResourceSliceStatus,
    VirtualNode,
    VirtualNodeSpec,
)
from liqod.peering.borrowing.slice_plan import (
    SLICE_LABEL,
    SliceFacts,
    ask,
    checked,
    node_labels,
    node_spec,
    problem,
    removing,
    status_of,
)
from liqod.wire.events import AskSlice, SliceDecided

ACCEPTED = Advertisement(status=AdvertisementStatus(phase="Accepted"))
GRANTED = ResourceSliceStatus(phase="Granted", resources={"cpu": "4"}, observed_generation=1)


def record(name: str = "gpu", *, generation: int = 1, namespace: str = "liqo-system", **fields: Any) -> ResourceSlice:
    """Return a slice of the lender rome."""
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"{namespace}/{name}",
        generation=generation,
        creation_timestamp=fields.pop("created", "2030-01-01T00:00:00Z"),
    )
    status = fields.pop("status", ResourceSliceStatus())
    spec = {"provider_cluster_id": "rome", "resources": {"cpu": "4"}, "virtual_node": ResourceSliceNode(), **fields}
    return ResourceSlice(metadata=meta, spec=ResourceSliceSpec(**spec), status=status)


def facts(one: ResourceSlice, **known: Any) -> SliceFacts:
    """Return what is known of a slice whose lender answers, in a session."""
    given: dict[str, Any] = {
        "siblings": [one],
        "offer": ACCEPTED,
        "speaks": True,
        "decided": None,
        "running": {},
        "node": None,
        **known,
    }
    return SliceFacts(record=one, **given)


class ProblemTests(SynchronousTestCase):
    """What is refused at home."""

    def reason(self, one: ResourceSlice, **known: Any) -> str:
        found = problem(facts(one, **known))
        return found[0] if found is not None else ""

    def test_names(self) -> None:
        """A name is a DNS label, and of one slice of the lender: of two the older has it, in whatever namespace."""
        self.assertEqual(self.reason(record("a.b")), "BadName")
        old = record(namespace="other", created="2029-01-01T00:00:00Z")
        new = record()
        self.assertEqual(self.reason(new, siblings=[new, old]), "NameTaken")
        self.assertEqual(self.reason(old, siblings=[new, old]), "")
        other = VirtualNode(metadata=ObjectMeta(name="gpu"), spec=VirtualNodeSpec(cluster_id="rome"))
        own = VirtualNode(
            metadata=ObjectMeta(name="gpu", labels={SLICE_LABEL: "gpu"}), spec=VirtualNodeSpec(cluster_id="rome")
        )
        self.assertEqual((self.reason(new, node=other), self.reason(new, node=own)), ("NodeNameTaken", ""))
        self.assertEqual(self.reason(record(virtual_node=None), node=other), "")

    def test_how_many(self) -> None:
        """A lender grants so many; the oldest are asked for."""
        many = [record(f"s{number:02}", created=f"2030-01-01T00:00:{number:02}Z") for number in range(MAX_SLICES + 1)]
        reasons = [self.reason(one, siblings=many) for one in many]
        self.assertEqual(reasons, [""] * MAX_SLICES + ["TooManySlices"])

    def test_amounts(self) -> None:
        """What the API server would refuse is refused here as well."""
        for resources, reason in (
            ({"cpu": "4"}, ""),
            ({"cpu": "-4"}, "NegativeAmount"),
            ({"cpu": "0"}, "NothingAsked"),
            ({"cpu": "much"}, "BadQuantity"),
        ):
            self.assertEqual(self.reason(record(resources=resources)), reason)

    def test_a_change_below_what_runs(self) -> None:
        """It is refused while the pods are there, or while it is not known; any other change is none of it."""
        for wanted, running, reason in (
            ({"cpu": "2"}, {"cpu": "3"}, "InUse"),
            ({"cpu": "2"}, None, "InUse"),
            ({"cpu": "2"}, {"cpu": "2"}, ""),
            ({"cpu": "5"}, {"cpu": "9"}, ""),
            ({"cpu": "5"}, None, ""),
            ({"memory": "1Gi"}, {"cpu": "1"}, "InUse"),
            ({"memory": "1Gi"}, {"memory": "2Gi"}, ""),
        ):
            one = record(generation=2, status=GRANTED, resources=wanted)
            amounts = None if running is None else quantity.parse_all(running)
            self.assertEqual(self.reason(one, running=amounts), reason, (wanted, running))
        same = record(status=GRANTED)
        self.assertEqual(self.reason(same, running=quantity.parse_all({"cpu": "9"})), "")


class StatusTests(SynchronousTestCase):
    """What is sent, and what the record says."""

    def test_what_is_asked(self) -> None:
        """Only in a session of a release that knows slices, of an accepted offer."""
        one = record(generation=3)
        self.assertEqual(ask(facts(one)), AskSlice("gpu", "default", {"cpu": "4"}, 3))
        for known in ({"speaks": None}, {"speaks": False}, {"offer": None}, {"offer": Advertisement()}):
            self.assertIsNone(ask(facts(one, **known)), known)
        self.assertIsNone(ask(facts(record(resources={"cpu": "-1"}))))

    def test_what_it_waits_for(self) -> None:
        """One that was not decided on is pending, and keeps what it had."""
        changed = record(generation=2, status=GRANTED, resources={"cpu": "8"})
        for known, reason in (
            ({}, "Asked"),
            ({"speaks": None}, "NoSession"),
            ({"speaks": False}, "PeerTooOld"),
            ({"offer": None}, "NoOffer"),
            ({"decided": SliceDecided("gpu", 1, "Granted", {"cpu": "4"})}, "Asked"),
        ):
            status = status_of(facts(changed, **known))
            self.assertEqual((status.phase, status.reason, status.resources), ("Pending", reason, {"cpu": "4"}))

    def test_what_was_decided_stays(self) -> None:
        """While the lender is away, and after a restart, when nothing was said yet."""
        one = record(status=GRANTED)
        for known in ({"speaks": None}, {"offer": None}, {}):
            self.assertEqual(status_of(facts(one, **known)), GRANTED)
        refused = msgspec.structs.replace(GRANTED, phase="Refused", reason="NameTaken", resources={})
        self.assertEqual(status_of(facts(record(status=refused))).reason, "Asked")

    def test_decisions(self) -> None:
        """Each with what the slice has then; more than was asked for, and than there was, is not believed."""
        one = record(generation=2, status=GRANTED, resources={"cpu": "8"})
        for event, expected in (
            (SliceDecided("gpu", 2, "Granted", {"cpu": "8"}), ("Granted", "", {"cpu": "8"})),
            (SliceDecided("gpu", 2, "Reduced", {"cpu": "6"}, "ClassLimit"), ("Reduced", "ClassLimit", {"cpu": "6"})),
            (SliceDecided("gpu", 2, "Refused", {"cpu": "4"}, "TooLarge"), ("Refused", "TooLarge", {"cpu": "4"})),
            (SliceDecided("gpu", 2, "Refused", {}, "UnknownClass"), ("Refused", "UnknownClass", {})),
            (SliceDecided("gpu", 2, "Granted", {"cpu": "9"}), ("Refused", "BadGrant", {"cpu": "4"})),
            (SliceDecided("gpu", 2, "Granted", {"memory": "1Gi"}), ("Refused", "BadGrant", {"cpu": "4"})),
            (SliceDecided("gpu", 2, "Removed"), ("Pending", "TakenBack", {})),
        ):
            status = status_of(facts(one, decided=event))
            self.assertEqual((status.phase, status.reason, status.resources), expected, event)
            self.assertEqual(status.observed_generation, 2)

    def test_what_this_cluster_refuses(self) -> None:
        """That of the virtual node is said beside what was granted."""
        status = status_of(facts(record(status=GRANTED), refused="spec.taints: no"))
        self.assertEqual((status.phase, status.reason, status.resources), ("Granted", "NodeRefused", {"cpu": "4"}))
        self.assertIn("spec.taints: no", status.message)

    def test_whole_units(self) -> None:
        """What is finer than a unit of the resource is left out, so that a virtual node can have it for a limit."""
        asked = {"cpu": "2", "memory": "1Gi"}
        self.assertEqual(checked({"cpu": "1500001u", "memory": "1"}, asked, {}), {"cpu": "1500m"})

    def test_a_removal_keeps_the_amount(self) -> None:
        """Until the lender has it back."""
        status = removing(record(status=GRANTED), "Draining", "its node is drained")
        self.assertEqual((status.phase, status.reason, status.resources), ("Removing", "Draining", {"cpu": "4"}))


class NodeTests(SynchronousTestCase):
    """The virtual node of a slice."""

    def limits(self, resources: dict[str, str], offered: tuple[str, ...]) -> dict[str, str]:
        spec = node_spec(record(), ResourceSliceStatus(resources=resources), offered)
        assert spec is not None
        return spec.limits

    def test_what_it_shows(self) -> None:
        """What it has; of what pods need anyway the rest, of all else nothing; one without anything shows nothing."""
        offered = ("cpu", "memory", "pods", "nvidia.com/gpu")
        for resources, expected in (
            ({"cpu": "2"}, {"cpu": "2", "nvidia.com/gpu": "0"}),
            ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}),
            ({}, dict.fromkeys((*offered, "ephemeral-storage"), "0")),
        ):
            self.assertEqual(self.limits(resources, offered), expected)

    def test_what_it_is(self) -> None:
        """Its labels, taints and patch are those of the slice; one may have no node."""
        taint = NodeTaint(key="gpu", effect="NoSchedule")
        patch = OffloadingPatch(affinity=PatchAffinity(node_affinity={"x": "y"}), runtime_class_name="kata")
        wanted = ResourceSliceNode(node_name="n", labels={"a": "b"}, taints=[taint], offloading_patch=patch)
        one = record(virtual_node=wanted)
        spec = node_spec(one, GRANTED, ())
        assert spec is not None
        self.assertEqual((spec.node_name, spec.labels, spec.taints), ("n", {"a": "b"}, [taint]))
        self.assertEqual((spec.cluster_id, spec.offloading_patch), ("rome", patch))
        self.assertEqual(node_labels(one)[SLICE_LABEL], "gpu")
        self.assertIsNone(node_spec(record(virtual_node=None), GRANTED, ()))

    def test_facts_are_a_value(self) -> None:
        """They are compared, and never changed."""
        known = facts(record())
        self.assertEqual(attrs.evolve(known, refused=""), known)
