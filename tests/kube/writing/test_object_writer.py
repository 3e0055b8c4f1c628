"""Tests of liqod.kube.writing.object_writer: a write counts at once, and only for the state it was decided on."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.kube.errors import Conflict, KubeError, NotFound
from liqod.kube.resources import PODS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.object_writer import ObjectWriter
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, ObjectMeta
from tests.kube.cases import Answer, MemoryServer, memory_client, status

KEY = Key("ns", "p")
OURS, OTHER = "example.com/ours", "example.com/other"
T = TypeVar("T")


def thing(version: str, *finalizers: str) -> Object:
    """Return a state of an object."""
    meta = ObjectMeta(name="p", namespace="ns", uid="u", resource_version=version, finalizers=list(finalizers))
    return Object(metadata=meta)


class FixedWatch:
    """An informer that shows one state."""

    def __init__(self, seen: Object) -> None:
        self.seen = seen

    def get(self, key: Key) -> Object:
        return self.seen


class ObjectWriterTests(SynchronousTestCase):
    """One object, whose watch lags behind."""

    def setUp(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.answer: Answer = (200, {})
        self.server: MemoryServer
        self.client, self.server = memory_client(self.take)

    def take(self, request: Request) -> Answer:
        self.assertEqual((request.method, request.path), (b"PATCH", b"/api/v1/namespaces/ns/pods/p"))
        assert request.content is not None
        self.bodies.append(json.loads(request.content.read()))
        return self.answer

    def writer(self, seen: Object) -> ObjectWriter[Object]:
        self.cache: MutationCache[Object] = MutationCache(cast(Any, FixedWatch(seen)), Clock())
        return ObjectWriter(self.client, PODS, Object, self.cache)

    def run_now(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        result = Deferred.fromCoroutine(work)
        self.server.flush()
        return result

    def answered(self, version: str, *finalizers: str) -> None:
        meta = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version, "finalizers": list(finalizers)}
        self.answer = 200, {"metadata": meta}

    def test_a_patch_is_bound_to_the_state_it_was_decided_on(self) -> None:
        """The body has the version, metadata and spec; the answer counts before the watch shows it."""
        self.answered("2")
        writer = self.writer(thing("1"))
        work = writer.patch(thing("1"), metadata={"annotations": {"a": "b"}}, spec={"nodeName": "n"})
        self.assertEqual(self.successResultOf(self.run_now(work)), thing("2"))
        expected = {"metadata": {"resourceVersion": "1", "annotations": {"a": "b"}}, "spec": {"nodeName": "n"}}
        self.assertEqual(self.bodies, [expected])
        self.assertEqual(self.cache.get(KEY), thing("2"))

    def test_after_a_refusal_the_watch_is_authoritative(self) -> None:
        """A lost race, and an object that is gone, drop what was written before."""
        refusals: tuple[tuple[int, str, type[KubeError]], ...] = (
            (409, "Conflict", Conflict),
            (404, "NotFound", NotFound),
        )
        for code, reason, kind in refusals:
            writer = self.writer(thing("1"))
            self.cache.wrote(KEY, thing("1"), thing("2"))
            self.answer = code, status(code, reason, "no")
            self.failureResultOf(self.run_now(writer.patch(thing("2"), spec={"nodeName": "n"})), kind)
            self.assertEqual(self.cache.get(KEY), thing("1"))

    def test_a_finalizer_is_added_to_those_of_others(self) -> None:
        """A merge patch replaces the list: it has all of them."""
        self.answered("2", OTHER, OURS)
        added = self.run_now(self.writer(thing("1", OTHER)).add_finalizer(thing("1", OTHER), OURS))
        self.assertEqual(self.successResultOf(added), thing("2", OTHER, OURS))
        self.assertEqual(self.bodies, [{"metadata": {"resourceVersion": "1", "finalizers": [OTHER, OURS]}}])

    def test_an_object_is_gone_with_its_last_finalizer(self) -> None:
        """And with ours alone: while another one holds it, it is there."""
        for others, left in (((), None), ((OTHER,), thing("2", OTHER))):
            present = thing("1", OURS, *others)
            self.answered("2", *others)
            self.successResultOf(self.run_now(self.writer(present).remove_finalizer(present, OURS)))
            self.assertEqual(self.cache.get(KEY), left)
            self.assertEqual(self.bodies[-1]["metadata"]["finalizers"], list(others) or None)

    def test_an_object_that_is_gone_needs_no_finalizer_removed(self) -> None:
        """That is no error, and the watch that still shows it is not believed."""
        present = thing("1", OURS)
        self.answer = 404, status(404, "NotFound", "no")
        self.successResultOf(self.run_now(self.writer(present).remove_finalizer(present, OURS)))
        self.assertIsNone(self.cache.get(KEY))

    def test_a_finalizer_is_not_removed_from_an_object_that_changed(self) -> None:
        """Somebody may have added one of their own."""
        present = thing("1", OURS)
        self.answer = 409, status(409, "Conflict", "no")
        self.failureResultOf(self.run_now(self.writer(present).remove_finalizer(present, OURS)), Conflict)
        self.assertEqual(self.cache.get(KEY), present)
