"""Tests of liqod.kube.writing.ensure: what is there becomes what is wanted, in one write, and stays unwritten after."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.writing.ensure import APPLIED_ANNOTATION, difference, marked
from liqod.kube.writing.merge_patch import apply_merge_patch

MATCH = {"resourceRules": [{"resources": ["pods"]}]}
LIMITS = {"type": "Container", "defaultRequest": {"cpu": "50m"}}

values = st.recursive(
    st.integers(0, 3) | st.text("ab", min_size=1, max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)
fields = st.dictionaries(st.sampled_from(["spec", "data"]), st.dictionaries(st.sampled_from("abc"), values), min_size=1)


def thing(**content: Any) -> dict[str, Any]:
    """Return an object as a caller wants it."""
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "one", "labels": {"a": "1"}}, **content}


def admitted(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object as an API server keeps it that sets a default in every field which has none."""
    kept = copy.deepcopy(body)
    for value in kept.values():
        if isinstance(value, dict) and value is not kept["metadata"]:
            value.setdefault("policy", "Equivalent")
    return kept


class DifferenceTests(SynchronousTestCase):
    """The patch between an object and what is wanted."""

    def test_defaults_are_no_difference(self) -> None:
        """What the API server added is neither a difference nor removed."""
        wanted = marked(thing(spec={"match": MATCH}))
        there = copy.deepcopy(wanted)
        there["spec"] |= {"policy": "Equivalent"}
        there["spec"]["match"] = {**MATCH, "scope": "*"}
        self.assertEqual(difference(there, wanted, defaulted=True), {})

    def test_leftovers_go(self) -> None:
        """What an earlier setting or release wrote and this one does not want is removed, deep inside too."""
        before = marked(thing(spec={"match": {**MATCH, "exclude": ["x"]}, "conditions": ["y"]}))
        wanted = marked(thing(spec={"match": MATCH}))
        patch = difference(admitted(before), wanted, defaulted=True)
        self.assertEqual(patch["spec"], {"match": {"exclude": None}, "conditions": None, "policy": None})
        written = admitted(apply_merge_patch(admitted(before), patch))
        self.assertEqual(written, admitted(wanted))
        self.assertEqual(difference(written, wanted, defaulted=True), {})

    def test_leftover_in_a_list(self) -> None:
        """A default that a LimitRange had for one more resource goes with the setting."""
        before = marked(thing(spec={"limits": [{**LIMITS, "defaultRequest": {"cpu": "50m", "memory": "1Mi"}}]}))
        wanted = marked(thing(spec={"limits": [LIMITS]}))
        self.assertEqual(difference(before, wanted, defaulted=True)["spec"], {"limits": [LIMITS]})

    def test_object_of_an_earlier_release(self) -> None:
        """Without the annotation, what is there more counts as defaults: nothing is written for it."""
        wanted = marked(thing(spec={"match": MATCH}))
        there = thing(spec={"match": MATCH, "policy": "Equivalent"})
        self.assertEqual(difference(there, wanted, defaulted=True), {})
        changed = difference(thing(spec={"match": {}}), wanted, defaulted=True)
        self.assertEqual(changed["metadata"]["annotations"], {APPLIED_ANNOTATION: applied(wanted)})

    def test_mapping_without_defaults(self) -> None:
        """Where the API server adds nothing, a key too much is removed, and not written for ever."""
        there, wanted = thing(data={"a": "1", "b": "2"}), thing(data={"a": "1"})
        self.assertEqual(difference(there, wanted), {"data": {"b": None}})
        self.assertEqual(difference(thing(spec={"a": "1"}), thing(spec={"a": "1", "b": None})), {})

    def test_labels_of_others_stay(self) -> None:
        """Labels and annotations of others are neither compared nor written."""
        wanted = marked(thing(spec={}))
        there = copy.deepcopy(wanted)
        there["metadata"]["labels"] |= {"b": "2"}
        there["metadata"]["annotations"] |= {"c": "3"}
        self.assertEqual(difference(there, wanted, defaulted=True), {})
        there["metadata"]["labels"] = {"b": "2"}
        self.assertEqual(difference(there, wanted, defaulted=True), {"metadata": {"labels": {"a": "1"}}})

    @given(fields, fields)
    def test_one_write_suffices(self, earlier: dict[str, Any], later: dict[str, Any]) -> None:
        """Whatever was wanted before: one patch makes the fields that are wanted now exactly those, then none."""
        wanted = marked(thing(**later))
        there = admitted(marked(thing(**earlier)))
        written = admitted(apply_merge_patch(there, difference(there, wanted, defaulted=True)))
        for name in later:
            self.assertEqual(written[name], admitted(wanted)[name])
        self.assertEqual(difference(written, wanted, defaulted=True), {})


def applied(body: dict[str, Any]) -> str:
    """Return the digest that an object carries."""
    return str(body["metadata"]["annotations"][APPLIED_ANNOTATION])
