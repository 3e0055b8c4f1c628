"""The sizes of a cache's objects, as the server sends them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.cache.sizes import Sizes
from liqod.kube.resources import CONFIGMAPS
from liqod.model.ids import Key
from tests.kube.cases import Answer, ConfigMap, config_map, memory_client, status

MEGABYTE = 1 << 20


def text_of(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


class TableTests(SynchronousTestCase):
    """The table by itself."""

    @given(st.lists(st.tuples(st.sampled_from(["note", "drop", "begin", "complete"]), st.integers(0, 5))))
    def test_any_order(self, steps: list[tuple[str, int]]) -> None:
        """Whatever is reported in whatever order, a subscriber that adds up the changes has what the table has, and so
        has one that comes later.
        """
        sizes = Sizes()
        found: dict[Key, int] = {}

        def note(key: Key, old: int | None, new: int | None) -> None:
            self.assertEqual(found.pop(key, None), old)
            if new is not None:
                found[key] = new

        sizes.subscribe(note)
        for number, (what, name) in enumerate(steps):
            key = Key("ns", str(name))
            match what:
                case "note":
                    sizes.note(key, number)
                case "drop":
                    sizes.drop(key)
                case "begin":
                    sizes.begin()
                case _:
                    sizes.complete()
            self.assertEqual(len(sizes), len(found))
        expected, found = found, {}
        sizes.subscribe(note)
        self.assertEqual(found, expected)

    def test_writes(self) -> None:
        """Each version that a watch shows counts, one of the same size too; none of a list, and no deletion."""
        sizes, found = Sizes(), list[tuple[str, int]]()
        end = sizes.subscribe_writes(lambda key, size: found.append((key.name, size)))
        sizes.begin()
        sizes.note(Key("ns", "a"), 5)
        sizes.complete()
        self.assertEqual(found, [])
        sizes.note(Key("ns", "a"), 5)
        sizes.note(Key("ns", "a"), 5)
        sizes.note(Key("ns", "b"), 7)
        sizes.drop(Key("ns", "b"))
        self.assertEqual(found, [("a", 5), ("a", 5), ("b", 7)])
        end()
        sizes.note(Key("ns", "a"), 5)
        self.assertEqual(len(found), 3)


class InformerTests(SynchronousTestCase):
    """An informer that is asked for sizes."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.open: list[Request] = []
        self.streams = True
        self.items: list[Any] = []
        self.client, self.server = memory_client(self.answer, self.clock)

    def start(self, *, sizes: bool = True) -> Informer[ConfigMap]:
        informers = Informers(self.client, self.clock)
        informer = informers.of(CONFIGMAPS, ConfigMap, sizes=sizes)
        informers.startService()
        self.addCleanup(informers.stopService)
        self.server.flush()
        return informer

    def answer(self, request: Request) -> Answer:
        if b"watch=true" not in request.uri:
            return (200, text_of({"metadata": {"resourceVersion": "9"}, "items": self.items}))
        if b"sendInitialEvents" in request.uri and not self.streams:
            return (422, status(422, "Invalid"))
        request.notifyFinish().addErrback(lambda _: None)
        self.open.append(request)
        request.write(b"")
        return None

    def send(self, *events: tuple[str, Any]) -> None:
        self.open[-1].write(b"".join(text_of({"type": kind, "object": body}) + b"\n" for kind, body in events))
        self.server.flush()

    def end_of_list(self) -> None:
        annotations = {"k8s.io/initial-events-end": "true"}
        self.send(("BOOKMARK", {"metadata": {"resourceVersion": "9", "annotations": annotations}}))

    def managed(self, name: str, version: int, size: int) -> dict[str, Any]:
        body = config_map(name, version)
        body["metadata"]["managedFields"] = [{"manager": "x" * size}]
        return body

    def test_a_watch(self) -> None:
        """What the view leaves out counts; a change and a deletion are followed, of what cannot be decoded too."""
        sizes = self.start().sizes
        large, a, b = self.managed("a", 1, MEGABYTE), Key("default", "a"), Key("default", "b")
        self.send(("ADDED", large))
        self.assertFalse(sizes.when_synced().called)
        self.end_of_list()
        self.assertTrue(sizes.when_synced().called)
        self.assertEqual(sizes.get(a), len(text_of(large)))
        small = self.managed("a", 10, 5)
        self.send(("MODIFIED", small))
        self.assertEqual(sizes.get(a), len(text_of(small)))
        unread = self.managed("b", 11, 500) | {"data": {"x": 5}}
        self.send(("ADDED", unread))
        self.assertEqual(sizes.get(b), len(text_of(unread)))
        self.send(("MODIFIED", self.managed("a", 12, 500) | {"data": {"x": 5}}))
        self.assertGreater(sizes.get(a) or 0, 500)
        self.send(("DELETED", small), ("DELETED", unread))
        self.assertEqual(len(sizes), 0)

    def test_the_same_from_a_list(self) -> None:
        """Pages and a streaming list give the same sizes; what a new list does not have is gone."""
        items = [self.managed("a", 1, MEGABYTE), self.managed("b", 2, 7) | {"data": {"x": 5}}]
        streamed = self.start().sizes
        self.send(*(("ADDED", item) for item in items))
        self.end_of_list()
        self.streams, self.items = False, items
        listed = self.start()
        keys = [Key("default", "a"), Key("default", "b")]
        self.assertEqual([listed.sizes.get(key) for key in keys], [streamed.get(key) for key in keys])
        self.assertEqual([listed.sizes.get(key) for key in keys], [len(text_of(item)) for item in items])
        self.items = items[1:]
        self.send(("ERROR", status(410, "Expired")))
        for _ in range(4):
            self.clock.advance(20)
            self.server.flush()
        self.assertEqual([listed.sizes.get(key) for key in keys], [None, len(text_of(items[1]))])

    def test_those_that_do_not_ask(self) -> None:
        """Others keep no table; and one that runs without cannot be asked for it."""
        informers = Informers(self.client, self.clock)
        informer = informers.of(CONFIGMAPS, ConfigMap)
        self.assertFalse(informer.has_sizes)
        with self.assertRaises(ValueError):
            _ = informer.sizes
        with self.assertRaises(ValueError):
            informers.of(CONFIGMAPS, ConfigMap, sizes=True)
        asked = informers.of(CONFIGMAPS, ConfigMap, namespace="a", sizes=True)
        self.assertIs(informers.of(CONFIGMAPS, ConfigMap, namespace="a"), asked)
