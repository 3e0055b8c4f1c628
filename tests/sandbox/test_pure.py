"""The sandbox's pure parts: patches, apply, scripts of containers, tables, protobuf."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubesandbox.auth.rbac import Access, covers, rule_allows
from kubesandbox.kinds import merge_schema, schema
from kubesandbox.kinds.kinds import Json
from kubesandbox.nodes import script
from kubesandbox.server import protobuf
from kubesandbox.server.table import duration, json_path
from kubesandbox.store import apply as ssa
from kubesandbox.store import patch
from twisted.trial.unittest import SynchronousTestCase

names = st.sampled_from(["a", "b", "c"])
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.integers(0, 3), st.text("xy", max_size=2)),
    lambda inner: st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
maps = st.dictionaries(names, values, max_size=3)
relaxed = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
NOW = "2026-01-01T00:00:00Z"


def owner(name: str) -> ssa.Owner:
    return ssa.Owner(name, "Apply", "v1")


class PatchTests(SynchronousTestCase):
    """Patches."""

    @given(maps, maps)
    @relaxed
    def test_merge_patch_is_idempotent(self, target: Json, change: Json) -> None:
        """The same merge patch again changes nothing, and its input stays as it was."""
        before = repr(target)
        once = patch.merge(target, change)
        self.assertEqual(patch.merge(once, change), once)
        self.assertEqual(repr(target), before)

    @given(maps, maps)
    @relaxed
    def test_a_difference_leads_to_its_goal(self, old: Json, new: Json) -> None:
        """The merge patch that names every difference gives the new object."""

        def difference(left: Json, right: Json) -> Json:
            result: Json = {name: None for name in left if name not in right}
            for name, value in right.items():
                both = isinstance(value, dict) and isinstance(left.get(name), dict)
                result[name] = difference(left[name], value) if both else value
            return result

        self.assertEqual(patch.merge(old, difference(old, new)), new)

    def test_strategic_order(self) -> None:
        """$setElementOrder puts the elements in the order it names."""
        target = {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
        change = {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                           "containers": [{"name": "c"}, {"name": "b", "$patch": "delete"}]}}  # fmt: skip
        result = patch.strategic(target, change, merge_schema.core("Pod"))
        self.assertEqual([each["name"] for each in result["spec"]["containers"]], ["c", "a"])


class ApplyTests(SynchronousTestCase):
    """Server-side apply as a function."""

    @given(maps, maps)
    @relaxed
    def test_lone_applier_gets_what_it_says(self, first: Json, second: Json) -> None:
        """Where nobody else owns anything, the second configuration alone remains."""
        shape = merge_schema.ANY
        live, owners = ssa.apply(None, {"data": first}, owner("one"), shape, force=False, now=NOW)
        live |= {"metadata": {"managedFields": ssa.write_owners(owners)}}
        live, _ = ssa.apply(live, {"data": second}, owner("one"), shape, force=False, now=NOW)
        self.assertEqual(_without_empty(live.get("data", {})), _without_empty(second))

    @given(maps)
    @relaxed
    def test_owners_survive_writing(self, body: Json) -> None:
        """managedFields read back are the fields that were written."""
        fields = ssa.fields_of({"data": body}, merge_schema.ANY)
        owners = {owner("one"): (fields, NOW)}
        again = ssa.read_owners({"metadata": {"managedFields": ssa.write_owners(owners)}})
        self.assertEqual(again, owners if fields else {})

    def test_element_that_another_owns_keeps_its_key(self) -> None:
        """Who lets go of an element does not take the key from those who own parts of it."""
        shape = merge_schema.core("Pod")
        whole = {"spec": {"containers": [{"name": "a", "image": "x"}]}}
        part = {"spec": {"containers": [{"name": "a", "workingDir": "/"}]}}
        live, owners = ssa.apply(None, whole, owner("one"), shape, force=False, now=NOW)
        live |= {"metadata": {"managedFields": ssa.write_owners(owners)}}
        live, owners = ssa.apply(live, part, owner("two"), shape, force=False, now=NOW)
        live |= {"metadata": {"managedFields": ssa.write_owners(owners)}}
        live, _ = ssa.apply(live, {"spec": {}}, owner("one"), shape, force=False, now=NOW)
        self.assertEqual(live["spec"]["containers"], [{"name": "a", "workingDir": "/"}])


def _without_empty(value: Any) -> Any:
    """Drop maps that hold nothing: whether those remain is nobody's business."""
    if not isinstance(value, dict):
        return value
    kept = {name: _without_empty(inner) for name, inner in value.items()}
    return {name: inner for name, inner in kept.items() if inner != {}}


class SchemaTests(SynchronousTestCase):
    """Structural schemas."""

    def test_int_or_string(self) -> None:
        """An int-or-string takes both and nothing else."""
        wanted = {"properties": {"x": {"x-kubernetes-int-or-string": True}}}
        self.assertEqual(schema.validate({"x": 1}, wanted) + schema.validate({"x": "1"}, wanted), [])
        self.assertEqual(schema.validate({"x": {}}, wanted)[0].reason, "FieldValueTypeInvalid")

    @given(maps)
    @relaxed
    def test_pruning_is_idempotent(self, body: Json) -> None:
        """What was pruned once has nothing left to prune."""
        wanted: Json = {
            "properties": {"a": {"properties": {"b": {}}}, "b": {"additionalProperties": {"properties": {}}}}
        }
        pruned = schema.prune(body, wanted)
        self.assertEqual(schema.prune(pruned, wanted), pruned)
        self.assertEqual(schema.unknown_fields(pruned, wanted), [])


class ScriptTests(SynchronousTestCase):
    """What simulated containers do."""

    def test_scripts(self) -> None:
        """Commands are read for how long they run and how they end."""
        for words, seconds, code in (
            (["sleep", "5"], 5.0, 0),
            (["sleep", "2m"], 120.0, 0),
            (["sleep", "infinity"], None, 0),
            (["sh", "-c", "sleep 1; exit 4"], 1.0, 4),
            (["/bin/sh", "-c", "echo a && false"], 0.0, 1),
            (["nginx"], None, 0),
            ([], None, 0),
        ):
            play = script.read({"command": words}, {})
            self.assertEqual((play.seconds, play.exit_code), (seconds, code), words)


class RuleTests(SynchronousTestCase):
    """Rules of roles."""

    def test_subresources(self) -> None:
        """A rule on pods does not cover pods/log; pods/log, */log and * do."""
        wanted = Access("get", "", "pods", "log", namespace="n", name="p")
        for resources, allowed in ((["pods"], False), (["pods/log"], True), (["*/log"], True), (["*"], True)):
            rule = {"verbs": ["get"], "apiGroups": [""], "resources": resources}
            self.assertEqual(rule_allows(rule, wanted), allowed, resources)

    def test_several_rules_cover_one(self) -> None:
        """Rights may be held through several rules."""
        held = [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]} for verb in ("get", "list")]
        both = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
        self.assertTrue(covers(held, both))
        self.assertFalse(covers(held[:1], both))


class TableTests(SynchronousTestCase):
    """Cells of tables."""

    def test_durations(self) -> None:
        """Ages are shown as kubectl shows them."""
        for seconds, text in (
            (5, "5s"),
            (119, "119s"),
            (150, "2m30s"),
            (600, "10m"),
            (3 * 3600 + 60, "3h1m"),
            (10 * 3600, "10h"),
            (3 * 86400, "3d"),
            (3 * 86400 + 7200, "3d2h"),
            (400 * 86400, "400d"),
            (800 * 86400, "2y70d"),
        ):
            self.assertEqual(duration(seconds), text)

    def test_json_paths(self) -> None:
        """Fields, indices, stars and filters select."""
        body = {"a": {"b.c": [{"type": "X", "v": 1}, {"type": "Y", "v": 2}]}}
        self.assertEqual(json_path(body, '.a.b\\.c[?(@.type=="Y")].v'), [2])
        self.assertEqual(json_path(body, ".a['b.c'][0].v"), [1])
        self.assertEqual(json_path(body, ".a.b\\.c[*].v"), [1, 2])
        self.assertEqual(json_path(body, ".none.at.all"), [])


class ProtobufTests(SynchronousTestCase):
    """Bodies in protobuf."""

    @given(st.binary(max_size=60))
    @relaxed
    def test_garbage_is_refused(self, data: bytes) -> None:
        """No bytes do anything but be read or be refused."""
        for each in (data, b"k8s\x00" + data, b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12" + data):
            try:
                protobuf.read(each)
            except protobuf.NotReadable:
                continue

    def test_namespace(self) -> None:
        """A namespace as kubectl sends it is read."""
        data = b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x05\x0a\x03\x0a\x01x"
        self.assertEqual(protobuf.read(data), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
