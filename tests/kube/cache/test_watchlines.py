"""Tests of liqod.kube.cache.watch_decoder."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.cache.watch_decoder import Bookmark, Decoder, Failure, Lines, LineTooLong, Unreadable, WatchEvent
from liqod.kube.errors import Gone
from liqod.model.ids import Key
from liqod.model.records.views import ShadowPod
from tests.kube.cases import ConfigMap, config_map, status


def line(kind: str, body: Any) -> bytes:
    """Return a line as the API server writes it."""
    return json.dumps({"type": kind, "object": body}, separators=(",", ":")).encode()


class LinesTests(SynchronousTestCase):
    """Cutting chunks."""

    @given(st.lists(st.binary(max_size=12).map(lambda text: text.replace(b"\n", b""))), st.lists(st.integers(0, 60)))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_lines_survive_any_chunking(self, wanted: list[bytes], cuts: list[int]) -> None:
        """However the bytes are cut, the same lines come out."""
        stream = b"".join(text + b"\n" for text in wanted)
        edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
        lines = Lines()
        got = [text for low, high in itertools.pairwise(edges) for text in lines.feed(stream[low:high])]
        self.assertEqual(got, [text for text in wanted if text])

    def test_a_line_without_end_is_bounded(self) -> None:
        """A line may not grow past the bound, in one chunk or in many."""
        lines = Lines(longest=100)
        self.assertRaises(LineTooLong, lines.feed, b"x" * 101)
        lines = Lines(longest=100)
        lines.feed(b"ok\n" + b"x" * 60)
        self.assertRaises(LineTooLong, lines.feed, b"x" * 41)


class DecoderTests(SynchronousTestCase):
    """From lines to events."""

    def setUp(self) -> None:
        self.decoder = Decoder(ConfigMap)

    def test_changes_carry_the_view(self) -> None:
        """ADDED, MODIFIED and DELETED carry the object as its view."""
        for kind in ("ADDED", "MODIFIED", "DELETED"):
            event = self.decoder.line(line(kind, config_map("a", 3, x="1")))
            self.assertIsInstance(event, WatchEvent)
            assert isinstance(event, WatchEvent)
            self.assertEqual((event.type, event.object.data), (kind, {"x": "1"}))

    def test_an_object_that_is_nested_deeply(self) -> None:
        """API servers take 10,000 levels, more than the decoder: the object is named, and the watch goes on."""
        deep = b"[" * 5000 + b"]" * 5000
        head = b'{"metadata":{"labels":{},"managedFields":[%s],"name":"a","namespace":"d","resourceVersion":"9"}'
        for body in (
            head % b"" + b',"spec":{"\\"":%s},"z":"]"}' % deep,
            head % deep + b',"spec":{}}',
            # More than is looked at, before and inside.
            head % b"" + b',"spec":[[%s],%s]}' % (b"[]," * 60000 + b"1", deep),
            head % b"" + b',"spec":%s}' % (b"[" * 60000 + b"]" * 60000),
        ):
            for decoder in (self.decoder, Decoder(ShadowPod)):
                event = decoder.line(b'{"type":"MODIFIED","object":%s}' % body)
                assert isinstance(event, Unreadable)
                self.assertEqual((event.type, event.key, event.resource_version), ("MODIFIED", Key("d", "a"), "9"))
                listed = decoder.object(body)
                assert isinstance(listed, Unreadable)
                self.assertEqual(listed.key, Key("d", "a"))
        for line in (b'{"type":"ADDED","object":' + b"[" * 5000, b"[" * 90000, b'{"a":"' + b"[" * 90000):
            self.assertIsInstance(self.decoder.line(line), Unreadable)

    def test_an_object_of_too_many_parts(self) -> None:
        """It is not decoded, which would take twenty times its length; it is named, and its neighbours are read."""
        head = b'{"metadata":{"name":"a","namespace":"d","resourceVersion":"9","ownerReferences":[%s]}}'
        large, small = (head % b",".join([b"{}"] * number) for number in (300_000, 3))
        decoder = Decoder(ConfigMap, most_parts=500_000)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        event = decoder.line(b'{"type":"MODIFIED","object":%s}' % large)
        listed = decoder.object(large)
        _, peak = tracemalloc.get_traced_memory()
        assert isinstance(event, Unreadable)
        assert isinstance(listed, Unreadable)
        self.assertEqual((event.type, event.key, event.resource_version), ("MODIFIED", Key("d", "a"), "9"))
        self.assertEqual((listed.key, listed.resource_version), (Key("d", "a"), "9"))
        self.assertLess(peak, 4 * len(large))
        self.assertIsInstance(decoder.object(small), ConfigMap)
        self.assertIsInstance(self.decoder.object(large), ConfigMap)
        for kind in (b"ERROR", b"BOOKMARK", b"ADDED"):
            for rest in (b"%s}" % large, b"[%s" % large, b"[" * 500_001 + b"]" * 500_001 + b"}"):
                self.assertIsInstance(decoder.line(b'{"type":"%s","object":%s' % (kind, rest)), Unreadable)

    def test_bookmarks_tell_the_end_of_the_list(self) -> None:
        """A bookmark has a resource version and perhaps the mark of the initial events' end."""
        body: dict[str, Any] = {"metadata": {"resourceVersion": "7"}}
        self.assertEqual(self.decoder.line(line("BOOKMARK", body)), Bookmark("7", False))
        body["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
        self.assertEqual(self.decoder.line(line("BOOKMARK", body)), Bookmark("7", True))
        spaced = json.dumps({"object": body, "type": "BOOKMARK"}).encode()
        self.assertEqual(self.decoder.line(spaced), Bookmark("7", True))

    def test_errors_are_typed(self) -> None:
        """An ERROR event becomes the exception that its Status means."""
        event = self.decoder.line(line("ERROR", status(410, "Expired")))
        assert isinstance(event, Failure)
        self.assertIsInstance(event.error, Gone)

    def test_an_unreadable_object_is_named(self) -> None:
        """An object that does not fit the view is reported with its key and version, so that the watch goes on."""
        bad = config_map("a", 3) | {"data": {"x": 5}}
        event = self.decoder.line(line("MODIFIED", bad))
        assert isinstance(event, Unreadable)
        self.assertEqual((event.type, event.key, event.resource_version), ("MODIFIED", Key("default", "a"), "3"))

    @given(
        st.one_of(
            st.binary(),
            st.recursive(
                st.none() | st.integers() | st.text(),
                lambda c: st.lists(c) | st.dictionaries(st.sampled_from(["type", "object", "metadata", "name"]), c),
            ).map(lambda value: json.dumps(value).encode()),
        )
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_nothing_a_server_sends_raises(self, text: bytes) -> None:
        """Any bytes become an event of some kind."""
        self.assertIsInstance(self.decoder.line(text), WatchEvent | Bookmark | Failure | Unreadable)
