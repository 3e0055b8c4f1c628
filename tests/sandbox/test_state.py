"""The sandbox's store, lists and watches: versions, history, what happens when history is gone."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubesandbox.kinds.catalog import Catalog
from kubesandbox.kinds.kinds import CONFIGMAPS, Json, Key
from kubesandbox.kinds.statuses import ApiStatus
from kubesandbox.server.watch import MAX_PENDING, WatchOptions, WatchStream
from kubesandbox.store.listing import Query, list_page
from kubesandbox.store.selectors import parse_labels
from kubesandbox.store.state import Expired, Store
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

KIND = Catalog().builtin(CONFIGMAPS)


def body(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n", "labels": labels}}


def put(store: Store, name: str, **labels: str) -> None:
    store.put(CONFIGMAPS, Key("n", name), body(name, **labels))


class Sink:
    """Takes what a watch sends."""

    def __init__(self) -> None:
        self.data = b""
        self.finished = False

    def write(self, data: bytes) -> None:
        self.data += data

    def finish(self) -> None:
        self.finished = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def events(self) -> list[Json]:
        return [json.loads(line) for line in self.data.splitlines()]


class StoreTests(SynchronousTestCase):
    """Versions and history."""

    def test_every_change_has_the_next_version(self) -> None:
        """Creation, change and removal each take the next number, and the last state carries that of the removal."""
        store = Store()
        put(store, "a")
        put(store, "a", x="y")
        last = store.remove(CONFIGMAPS, Key("n", "a"))
        assert last is not None
        self.assertEqual((store.version, last.object["metadata"]["resourceVersion"]), (3, "3"))

    def test_stored_objects_do_not_share_what_was_given(self) -> None:
        """The version is stamped on a copy."""
        given_body = body("a")
        Store().put(CONFIGMAPS, Key("n", "a"), given_body)
        self.assertNotIn("resourceVersion", given_body["metadata"])

    def test_history_is_bounded(self) -> None:
        """Changes beyond the bound are gone, and asking for them says so."""
        store = Store(history=3)
        for number in range(5):
            put(store, f"a{number}")
        self.assertEqual([change.version for change in store.changes_since(CONFIGMAPS, 2)], [3, 4, 5])
        self.assertRaises(Expired, store.changes_since, CONFIGMAPS, 1)

    @given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=20), st.integers(0, 20))
    @settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
    def test_the_past_can_be_listed(self, steps: list[tuple[str, bool]], back: int) -> None:
        """A list at an earlier version is what a list at that moment was."""
        store = Store()
        seen: dict[int, list[Json]] = {0: []}
        for name, present in steps:
            if present:
                put(store, name)
            else:
                store.remove(CONFIGMAPS, Key("n", name))
            seen[store.version] = [each.object for each in store.items(CONFIGMAPS)]
        version = sorted(seen)[-1 - back % len(seen)]
        self.assertEqual([each.object for each in store.items_at(CONFIGMAPS, version)], seen[version])

    def test_pages_of_a_forgotten_version(self) -> None:
        """A continue token whose version is compacted is 410 Expired."""
        store = Store()
        for name in "abc":
            put(store, name)
        page = list_page(store, KIND, Query("n", limit=1))
        put(store, "d")
        self.assertEqual(len(list_page(store, KIND, Query("n", token=page.token)).items), 2)
        store.compact()
        refusal = self.assertRaises(ApiStatus, list_page, store, KIND, Query("n", token=page.token))
        self.assertEqual((refusal.code, refusal.reason), (410, "Expired"))

    def test_forged_token(self) -> None:
        """A continue token that was not given out is 400."""
        refusal = self.assertRaises(ApiStatus, list_page, Store(), KIND, Query("n", token="AAAA"))
        self.assertEqual(refusal.code, 400)


class WatchTests(SynchronousTestCase):
    """Watch streams."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = Store()
        self.sink = Sink()

    def watch(self, **options: Any) -> WatchStream:
        options = {"namespace": "", "chooses": None, "version": self.store.version, **options}
        stream = WatchStream(self.clock, self.store, KIND, WatchOptions(**options), self.sink)
        stream.start()
        return stream

    def test_too_old_version(self) -> None:
        """A watch from a version that is compacted gets 410 as an event, and ends."""
        put(self.store, "a")
        put(self.store, "b")
        self.store.compact()
        self.watch(version=1)
        event = self.sink.events()[0]
        self.assertEqual((event["type"], event["object"]["code"], event["object"]["reason"]), ("ERROR", 410, "Expired"))
        self.assertTrue(self.sink.finished)

    def test_bookmarks(self) -> None:
        """Bookmarks come every minute, with the version that the watcher has reached."""
        self.watch(bookmarks=True, seconds=200)
        put(self.store, "a")
        self.clock.advance(60)
        self.clock.advance(60)
        kinds = [each["type"] for each in self.sink.events()]
        self.assertEqual(kinds, ["ADDED", "BOOKMARK", "BOOKMARK"])
        self.assertEqual(self.sink.events()[-1]["object"]["metadata"]["resourceVersion"], "1")

    def test_end(self) -> None:
        """A watch ends after its time and leaves nothing behind."""
        self.watch(seconds=5, bookmarks=True)
        self.clock.advance(5)
        self.assertTrue(self.sink.finished)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        put(self.store, "a")
        self.assertNotIn(b"ADDED", self.sink.data)

    def test_slow_reader_misses_nothing(self) -> None:
        """What happens while the reader is paused is sent when it resumes."""
        stream = self.watch()
        stream.pauseProducing()
        put(self.store, "a")
        self.assertEqual(self.sink.data, b"")
        stream.resumeProducing()
        self.assertEqual(len(self.sink.events()), 1)

    def test_hopeless_reader_is_cut_off(self) -> None:
        """A reader that never reads costs a bounded amount of memory."""
        stream = self.watch()
        stream.pauseProducing()
        for _ in range(MAX_PENDING + 1):
            put(self.store, "a")
        self.assertTrue(self.sink.finished)

    def test_selection(self) -> None:
        """Leaving the selection is a deletion that shows the last matching state."""
        requirements = parse_labels("on=yes")

        def chooses(found: Json) -> bool:
            return all(each.matches(found["metadata"]["labels"]) for each in requirements)

        self.watch(chooses=chooses)
        put(self.store, "a", on="yes")
        put(self.store, "a", on="no")
        added, deleted = self.sink.events()
        self.assertEqual((added["type"], deleted["type"]), ("ADDED", "DELETED"))
        self.assertEqual(deleted["object"]["metadata"]["labels"], {"on": "yes"})
        self.assertEqual(deleted["object"]["metadata"]["resourceVersion"], "2")
