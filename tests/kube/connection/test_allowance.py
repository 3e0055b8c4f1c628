"""What a peer's server may have this daemon keep."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.kube.cache.shared_informers import Informers
from liqod.kube.connection.answers import OF_A_PEER
from liqod.kube.connection.cache_quota import OVERHEAD, Allowance, CacheUsage, decoded_size
from liqod.kube.resources import CONFIGMAPS
from liqod.model.ids import Key
from liqod.model.objects.meta import Object
from tests.kube.cases import Answer, ConfigMap, config_map, memory_client, status, warnings_of

A, B = Key("ns", "a"), Key("ns", "b")


class HeldTests(SynchronousTestCase):
    """The counting."""

    def setUp(self) -> None:
        self.allowance = Allowance(10 * OVERHEAD)
        self.held = CacheUsage(self.allowance)

    def test_replaced(self) -> None:
        """An object counts once, with its last size; one that is dropped does not count."""
        self.assertTrue(self.held.note(A, 100) and self.held.note(A, 50))
        self.assertEqual(self.allowance.taken, 50 + OVERHEAD)
        self.held.drop(A)
        self.held.drop(A)
        self.assertEqual(self.allowance.taken, 0)

    def test_too_much(self) -> None:
        """What would be too much is not counted; what gets smaller always passes."""
        self.assertTrue(self.held.note(A, 8 * OVERHEAD))
        self.assertFalse(self.held.note(B, OVERHEAD))
        self.assertTrue(self.held.note(A, OVERHEAD))
        self.assertTrue(self.held.note(B, OVERHEAD))

    def test_all_caches_of_a_server(self) -> None:
        """What one cache took is not left for another; it is when that one is gone."""
        other = CacheUsage(self.allowance)
        self.assertTrue(other.note(A, 8 * OVERHEAD))
        self.assertFalse(self.held.note(A, OVERHEAD))
        other.clear()
        self.assertTrue(self.held.note(A, OVERHEAD))

    def test_listed_again(self) -> None:
        """A list that comes in while as much is held is allowed, and is what counts when it is complete."""
        self.held.note(A, 8 * OVERHEAD)
        self.held.begin()
        self.assertTrue(self.held.note(B, 7 * OVERHEAD))
        self.assertFalse(self.held.note(A, 2 * OVERHEAD))
        self.held.complete()
        self.assertEqual(self.allowance.taken, 8 * OVERHEAD)
        self.held.begin()
        self.held.complete()
        self.assertEqual(self.allowance.taken, 0)

    @given(st.lists(st.tuples(st.sampled_from(["note", "drop", "begin", "complete"]), st.integers(0, 9))))
    @settings(deadline=None)
    def test_any_order(self, steps: list[tuple[str, int]]) -> None:
        """Whatever is reported in whatever order, no more than is allowed is counted, and all of it is given back."""
        allowance = Allowance(20 * OVERHEAD)
        held, beside = CacheUsage(allowance), CacheUsage(allowance)
        beside.note(A, 0)
        for what, number in steps:
            key = Key("ns", str(number))
            match what:
                case "note":
                    held.note(key, number * OVERHEAD)
                case "drop":
                    held.drop(key)
                case "begin":
                    held.begin()
                case _:
                    held.complete()
            self.assertLessEqual(allowance.taken, allowance.most)
            self.assertGreaterEqual(allowance.taken, OVERHEAD)
        held.clear()
        self.assertEqual(allowance.taken, OVERHEAD)


class DecodedSizeTests(SynchronousTestCase):
    """What an object is charged with."""

    def test_about_what_it_occupies(self) -> None:
        """The memory that a decoded object takes is known within a factor of two, however little JSON it was."""
        many = 20_000
        kinds: list[dict[str, Any]] = [
            {"ownerReferences": [{}] * many},
            {"ownerReferences": [{"name": f"a{number}", "kind": "b"} for number in range(many)]},
            {"labels": {str(number): "" for number in range(many)}},
            {"annotations": {"a": "b" * 10 * many}},
            {"annotations": {"a": "b" * 10 * many + "\U0001f600"}},
            {"annotations": {"a": "b" * 10 * many + "\u20ac"}},
        ]
        for metadata in kinds:
            text = msgspec.json.encode({"metadata": {"name": "a", **metadata}})
            tracemalloc.start()
            value = msgspec.json.decode(text, type=Object)
            kept, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            self.assertLess(kept, 2 * decoded_size(value), text[:60])

    def test_what_a_view_leaves_out(self) -> None:
        """Parts that are stepped over, such as managed fields, cost nothing."""
        text = msgspec.json.encode({"metadata": {"name": "a", "managedFields": [{}] * 1000}})
        self.assertLess(decoded_size(msgspec.json.decode(text, type=Object)), 1000)


class InformerTests(SynchronousTestCase):
    """A cache of a server that shows more than it may."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.open: list[Request] = []
        self.streams = True
        self.pages = 0
        self.allowance = Allowance(20 * OVERHEAD)
        self.client, self.server = memory_client(self.answer, self.clock, allowance=self.allowance)
        self.informers = Informers(self.client, self.clock)
        self.informer = self.informers.of(CONFIGMAPS, ConfigMap)

    def answer(self, request: Request) -> Answer:
        if b"watch=true" in request.uri and self.streams:
            request.notifyFinish().addErrback(lambda _: None)
            self.open.append(request)
            request.write(b"")
            return None
        if b"watch=true" in request.uri:
            return (422, status(422, "Invalid"))
        self.pages += 1
        items = [config_map(f"p{self.pages}-{number}", 3) for number in range(5)]
        return (200, {"metadata": {"continue": f"t{self.pages}"}, "items": items})

    def send(self, *events: tuple[str, Any]) -> None:
        text = b"".join(json.dumps({"type": kind, "object": body}).encode() + b"\n" for kind, body in events)
        self.open[-1].write(text)
        self.server.flush()

    def end_of_list(self, version: int) -> tuple[str, Any]:
        annotations = {"k8s.io/initial-events-end": "true"}
        return ("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})

    def start(self) -> None:
        self.informers.startService()
        self.server.flush()

    def crowd(self, version: int) -> list[tuple[str, Any]]:
        return [("ADDED", config_map(f"crowd-{version}-{number}", version)) for number in range(40)]

    def test_a_list_without_end(self) -> None:
        """A list in pages that never ends is given up, and nothing of it is kept."""
        self.streams = False
        self.start()
        self.assertLess(self.pages, 10)
        self.assertIn("more than", self.informer.error)
        self.assertEqual(len(self.informer), 0)
        self.assertFalse(self.informer.synced)

    def test_a_streamed_list_without_end(self) -> None:
        """So is one that is streamed; it is tried again later, and kept when it is modest then."""
        self.start()
        self.send(*self.crowd(3))
        self.assertIn("more than", self.informer.error)
        self.assertEqual(len(self.informer), 0)
        self.clock.advance(60)
        self.server.flush()
        self.send(("ADDED", config_map("a", 9)), self.end_of_list(10))
        self.assertEqual((len(self.informer), self.informer.error), (1, ""))
        self.assertTrue(self.informer.live.value)

    def test_objects_without_end(self) -> None:
        """A watch that brings ever more is given up: the cache stays as it was, and says that it is not live."""
        self.start()
        self.send(("ADDED", config_map("a", 3)), self.end_of_list(4))
        self.assertTrue(self.informer.live.value)
        self.send(*self.crowd(5))
        self.assertLess(len(self.informer), 20)
        self.assertFalse(self.informer.live.value)
        self.clock.advance(60)
        self.server.flush()
        self.send(("ADDED", config_map("a", 3)), self.end_of_list(60))
        self.assertEqual([key.name for key in self.informer.keys()], ["a"])  # noqa: SIM118
        self.assertTrue(self.informer.live.value)

    def test_small_in_json_and_large_once_decoded(self) -> None:
        """An object counts with what it takes in memory, in a list and in a watch; an ordinary one with its JSON."""
        self.start()
        large = config_map("b", 5)
        large["metadata"]["ownerReferences"] = [{}] * 2000
        self.send(("ADDED", config_map("a", 3)), self.end_of_list(4))
        ordinary = len(json.dumps({"type": "ADDED", "object": config_map("a", 3)}))
        self.assertEqual(self.allowance.taken, OVERHEAD + max(ordinary, decoded_size(self.informer.items()[0])))
        self.send(("ADDED", large))
        self.assertIn("more than", self.informer.error)
        self.assertEqual(len(self.informer), 1)

    def test_lines(self) -> None:
        """A line of a peer's watch is no longer than one answer; home's may be."""
        self.start()
        self.send(self.end_of_list(4))
        self.open[-1].write(b"x" * (OF_A_PEER + 1))
        self.server.flush()
        self.assertIn(f"more than {OF_A_PEER} bytes", self.informer.error)

    def test_names_of_unreadable_objects(self) -> None:
        """Of an object that cannot be read neither memory nor log have a name of a megabyte."""
        caught = warnings_of(self)
        self.allowance.most = 1 << 30
        self.start()
        self.send(self.end_of_list(4))
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for number in range(10):
            bad = config_map("n" * 100_000 + str(number), 5 + number) | {"data": {"x": 5}}
            self.send(("ADDED", bad), ("DELETED", bad))
        self.assertEqual(len(caught), 10)
        self.assertLess(max(len(event["name"]) for event in caught), 1000)
        caught.clear()
        kept, _ = tracemalloc.get_traced_memory()
        self.assertLess(kept, 900_000)

    def test_changes_without_end(self) -> None:
        """Changes of what is held, and deletions, take nothing."""
        self.start()
        self.send(("ADDED", config_map("a", 3)), self.end_of_list(4))
        taken = self.allowance.taken
        for version in range(10, 110):
            self.send(("MODIFIED", config_map("a", version)), ("ADDED", config_map("b", version)))
            self.send(("DELETED", config_map("b", version)))
        self.assertTrue(self.informer.live.value)
        self.assertLess(self.allowance.taken, taken + OVERHEAD)

    def test_a_cache_that_is_gone(self) -> None:
        """What a stopped cache held is given back."""
        self.start()
        self.send(*self.crowd(3)[:5], self.end_of_list(4))
        self.assertGreater(self.allowance.taken, 5 * OVERHEAD)
        self.successResultOf(self.informers.stopService())
        self.assertEqual(self.allowance.taken, 0)
