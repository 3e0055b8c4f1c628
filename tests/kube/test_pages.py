"""Pages of a list, of which one object is nested deeper than the decoder goes."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.nesting import SHALLOW, items_of, shallow
from liqod.kube.pages import decode_raw
from tests.kube.cases import config_map

DEEP = b"[" * 3000 + b'"}"' + b"]" * 3000
JSON = st.recursive(
    st.none() | st.integers(0, 9) | st.text(alphabet='a"\\[]{}', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"[', max_size=2), inner, max_size=3),
)


class PageTests(SynchronousTestCase):
    """One object spoils no other."""

    def test_a_deep_object(self) -> None:
        """The page has all of its objects, and its token, wherever that stands."""
        good = json.dumps(config_map("a", 3)).encode()
        deep = b'{"metadata":{"name":"b"},"x":%s}' % DEEP
        meta = b'"metadata":{"continue":"t"}'
        for text in (b'{"items":[%s,%s,%s],' + meta + b"}", b"{" + meta + b',"items":[%s, %s ,%s]}'):
            page = decode_raw(text % (good, deep, good))
            self.assertEqual([bytes(one) for one in page.items or ()], [good, deep, good])
            self.assertEqual(page.metadata.continue_, "t")
        with self.assertRaises(msgspec.MsgspecError):
            decode_raw(b'{"items":[%s' % DEEP)

    @given(st.lists(st.dictionaries(st.text(alphabet='a"[', max_size=2), JSON, max_size=3)), JSON)
    def test_any_items(self, items: list[object], other: object) -> None:
        """The objects are those that a decoder finds."""
        page = json.dumps({"x": other, "items": items, "z": other}).encode()
        found, rest = items_of(page)
        self.assertEqual([json.loads(one) for one in found], items)
        self.assertEqual(json.loads(rest), {"x": other, "items": [], "z": other})

    @given(JSON, st.integers(0, SHALLOW))
    def test_what_is_shallow_stays(self, value: object, depth: int) -> None:
        """What is nested deeper becomes null, and nothing else changes."""
        wrapped = b"[" * depth + json.dumps(value).encode() + b"]" * depth
        if _depth(value) + depth <= SHALLOW:
            self.assertEqual(shallow(wrapped), wrapped)
        self.assertLessEqual(_depth(json.loads(shallow(wrapped))), SHALLOW)


def _depth(value: object) -> int:
    inner = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)
