"""Tests of liqod.kube.writing.merge_patch."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.writing.merge_patch import apply_merge_patch, merge_patch

NAMES = st.sampled_from("abc")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3)


def without_nulls(value: Any) -> Any:
    """Return a value without fields that are null: to a merge patch they are absent."""
    if not isinstance(value, dict):
        return value
    return {name: without_nulls(one) for name, one in value.items() if one is not None}


class MergePatchTests(SynchronousTestCase):
    """The smallest patch between two objects."""

    @settings(deadline=None)
    @given(OBJECTS, OBJECTS)
    def test_it_leads_there(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Applied to what was before, the patch makes what is wanted, and nothing is left to patch then."""
        patch = merge_patch(before, after)
        made = apply_merge_patch(before, patch)
        in_order = partial(json.dumps, sort_keys=True)  # to Python True is 1
        self.assertEqual(in_order(without_nulls(made)), in_order(without_nulls(after)))
        self.assertEqual(merge_patch(made, after), {})

    @given(OBJECTS)
    def test_equal_objects(self, value: dict[str, Any]) -> None:
        """Between equal objects there is nothing to patch."""
        self.assertEqual(merge_patch(value, value), {})

    def test_examples(self) -> None:
        """Only what differs is named: removed fields as null, lists whole; a bool is no number, null is no value."""
        for before, after, patch in (
            ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}),
            ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, {"a": {"y": None}}),
            ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
            ({"a": 1}, {"a": True}, {"a": True}),
            ({}, {"a": None}, {}),
            ({"a": None}, {}, {}),
            ({"a": 1}, {"a": {}}, {"a": {}}),
        ):
            self.assertEqual(repr(merge_patch(before, after)), repr(patch))
