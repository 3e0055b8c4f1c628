"""Caches that begin with what others held when they stopped, over a server in memory."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.listwatch import CATCH_UP, LONGEST_CATCH_UP
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.connection.cache_quota import Allowance
from liqod.kube.resources import CONFIGMAPS, SECRETS
from liqod.model.ids import Key
from liqod.model.objects.meta import Object
from tests.kube.cases import Answer, ConfigMap, config_map, memory_client, status

Event = tuple[str, Any]


def bookmark(version: int, end: bool = False) -> Event:
    """Return a bookmark, or that which ends a streamed list."""
    annotations = {"k8s.io/initial-events-end": "true"} if end else {}
    return ("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


class KeptCachesTests(SynchronousTestCase):
    """One cache stops, and another one of the same objects takes its place."""

    def setUp(self) -> None:
        self.open: list[Request] = []
        self.answers: list[Answer] = []
        self.uris: list[str] = []
        self.connect()

    def connect(self, **options: Any) -> None:
        self.clock = MemoryReactorClock()
        self.client, self.server = memory_client(self.answer, self.clock, **options)
        self.reported: list[tuple[str, str | None, str | None]] = []

    def answer(self, request: Request) -> Answer:
        self.uris.append(request.uri.decode())
        if self.answers:
            return self.answers.pop(0)
        request.notifyFinish().addErrback(lambda _: None)
        self.open.append(request)
        # Like the real server: the head of the answer is sent before there is an event.
        request.write(b"")
        return None

    def tell(self, key: Key, old: ConfigMap | None, new: ConfigMap | None) -> None:
        before, after = old and old.metadata.resource_version, new and new.metadata.resource_version
        self.reported.append((key.name, before, after))  # type: ignore[arg-type]

    def send(self, *events: Event) -> None:
        for kind, body in events:
            self.open[-1].write(json.dumps({"type": kind, "object": body}).encode() + b"\n")
        self.server.flush()

    def started(self, **options: Any) -> Informer[ConfigMap]:
        informer = Informer(self.client, CONFIGMAPS, ConfigMap, self.clock, random=lambda: 0.5, **options)
        informer.subscribe(self.tell)
        informer.startService()
        self.server.flush()
        return informer

    def live(self, **options: Any) -> Informer[ConfigMap]:
        informer = self.started(**options)
        self.send(("ADDED", config_map("a", 3)), ("ADDED", config_map("b", 4)), bookmark(9, end=True))
        self.assertTrue(informer.synced)
        return informer

    def keep(self, informer: Informer[Any]) -> None:
        self.client.kept.open()
        self.successResultOf(informer.stopService())
        self.client.kept.close()
        self.server.flush()
        self.reported.clear()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.server.flush()

    def names(self, informer: Informer[ConfigMap]) -> list[str]:
        return sorted(key.name for key in informer.keys())  # noqa: SIM118

    def test_it_goes_on_without_a_list(self) -> None:
        """It watches from the version of the other, and is synced when what happened meanwhile has come."""
        self.keep(self.live())
        second = self.started()
        self.assertIn("resourceVersion=9", self.uris[-1])
        self.assertNotIn("sendInitialEvents", self.uris[-1])
        self.send(("MODIFIED", config_map("a", 10)), ("DELETED", config_map("b", 11)))
        self.assertEqual((second.synced, second.live.value), (False, False))
        waiting = second.when_synced()
        self.pass_time(CATCH_UP)
        self.successResultOf(waiting)
        self.assertEqual((second.synced, second.live.value, second.error), (True, True, ""))
        self.assertEqual(self.names(second), ["a"])
        self.assertEqual(self.reported, [("a", None, "3"), ("b", None, "4"), ("a", "3", "10"), ("b", "4", None)])
        self.assertEqual(len(self.uris), 2)
        self.send(("ADDED", config_map("c", 12)))
        self.assertEqual(self.names(second), ["a", "c"])

    def test_nothing_is_delivered_while_it_starts(self) -> None:
        """As with a list, subscribers are called later than ``startService``: one may not be whole before."""
        self.keep(self.live())
        informer = Informer(self.client, CONFIGMAPS, ConfigMap, self.clock)
        informer.subscribe(self.tell)
        informer.startService()
        self.assertEqual(self.reported, [])
        self.pass_time(0)
        self.assertEqual([name for name, _, _ in self.reported], ["a", "b"])

    def test_events_put_it_off(self) -> None:
        """While the watch brings something it may have more; not for longer than a while."""
        self.keep(self.live())
        second, version, passed = self.started(), 10, 0.0
        while passed < LONGEST_CATCH_UP - 0.1:
            self.send(("MODIFIED", config_map("a", version)))
            self.assertFalse(second.synced)
            self.pass_time(0.1)
            version, passed = version + 1, passed + 0.1
        self.send(("MODIFIED", config_map("a", version)))
        self.pass_time(0.11)
        self.assertTrue(second.synced)

    def test_a_version_that_is_too_old(self) -> None:
        """It lists: where the server says so instead of an answer, and where it says so in the watch."""
        for refused in (False, True):
            self.connect()
            self.keep(self.live())
            self.answers = [(410, status(410, "Expired"))] if refused else []
            second = self.started()
            if not refused:
                self.send(("ERROR", status(410, "Expired")))
            self.pass_time(CATCH_UP)
            self.assertIn("sendInitialEvents=true", self.uris[-1])
            self.assertFalse(second.synced)
            self.send(("ADDED", config_map("a", 12)), bookmark(20, end=True))
            self.assertTrue(second.synced)
            self.assertEqual(self.names(second), ["a"])
            self.assertEqual(self.reported[-2:], [("b", "4", None), ("a", "3", "12")])

    def test_a_watch_that_died(self) -> None:
        """What the other missed comes, if its version is not too old; until then nobody takes it for what there is."""
        first = self.live()
        self.server.refusing = True
        self.server.cut()
        self.assertNotEqual(first.error, "")
        self.keep(first)
        second = self.started()
        self.pass_time(CATCH_UP)
        self.assertFalse(second.synced)
        self.server.refusing = False
        self.pass_time(2)
        self.assertIn("resourceVersion=9", self.uris[-1])
        self.assertFalse(second.synced)
        self.send(("DELETED", config_map("b", 11)))
        self.pass_time(CATCH_UP)
        self.assertEqual((second.synced, self.names(second)), (True, ["a"]))

    def test_what_is_not_kept(self) -> None:
        """Nothing, unless it is asked for; nothing of a cache without a first list; nothing after it was cleared."""
        self.successResultOf(self.live().stopService())
        self.keep(self.started())
        self.assertEqual(len(self.client.kept), 0)
        self.keep(self.live())
        self.assertEqual(len(self.client.kept), 1)
        self.client.kept.clear()
        self.started()
        self.assertIn("sendInitialEvents=true", self.uris[-1])

    def test_other_objects(self) -> None:
        """Only a cache of the same objects, by the same view, from the same server begins with it."""
        self.keep(self.live())
        for made in (
            Informer(self.client, CONFIGMAPS, Object, self.clock),
            Informer(self.client, SECRETS, ConfigMap, self.clock),
            Informer(self.client, CONFIGMAPS, ConfigMap, self.clock, namespace="default"),
            Informer(self.client, CONFIGMAPS, ConfigMap, self.clock, labels="a=b"),
        ):
            made.startService()
            self.server.flush()
            self.assertIn("sendInitialEvents=true", self.uris[-1])
        other, server = memory_client(self.answer, self.clock)
        other.kept = self.client.kept
        other.config = type(other.config)("http://other.test:6443", dial=server)
        Informer(other, CONFIGMAPS, ConfigMap, self.clock).startService()
        server.flush()
        self.assertIn("sendInitialEvents=true", self.uris[-1])

    def test_a_server_that_went_back(self) -> None:
        """What was kept before the server was restored is of another past."""
        self.keep(self.live())
        self.client.went_back.set(1)
        self.started()
        self.pass_time(1)
        self.assertIn("sendInitialEvents=true", self.uris[-1])

    def test_versions_are_compared_on(self) -> None:
        """A list that is lower than what the other has seen shows a restored server."""
        first = self.live()
        self.send(("MODIFIED", config_map("a", 30)))
        self.keep(first)
        self.started()
        self.send(("ERROR", status(410, "Expired")))
        self.pass_time(1)
        self.send(bookmark(20, end=True))
        self.assertEqual(self.client.went_back.value, 1)

    def test_sizes(self) -> None:
        """They go on too, with what changes until it has caught up; a cache that needs them does not begin without."""
        self.keep(self.live(sizes=True))
        second = self.started(sizes=True)
        self.assertNotIn("sendInitialEvents", self.uris[-1])
        waiting = second.sizes.when_synced()
        self.send(("DELETED", config_map("b", 11)), ("ADDED", config_map("c", 12)))
        self.assertNoResult(waiting)
        self.pass_time(CATCH_UP)
        self.successResultOf(waiting)
        known = {key.name for key in second.sizes.contents()}
        self.assertEqual(known, {"a", "c"})
        self.connect()
        self.keep(self.live())
        self.started(sizes=True)
        self.assertIn("sendInitialEvents=true", self.uris[-1])

    def test_quota(self) -> None:
        """What is kept of a lender's objects counts as if they had been listed."""
        allowance = Allowance()
        self.connect(allowance=allowance)
        first = self.live()
        taken = allowance.taken
        self.keep(first)
        self.assertEqual(allowance.taken, 0)
        second = self.started()
        self.assertNotIn("sendInitialEvents", self.uris[-1])
        self.pass_time(CATCH_UP)
        self.assertEqual((allowance.taken, second.synced), (taken, True))
        self.keep(second)
        allowance.most = 10
        self.started()
        self.assertIn("sendInitialEvents=true", self.uris[-1])

    def test_several_begin_with_the_same(self) -> None:
        """As the virtual nodes of one lender do."""
        self.keep(self.live())
        for _ in range(2):
            self.started()
            self.assertNotIn("sendInitialEvents", self.uris[-1])

    def test_the_same_set(self) -> None:
        """Informers that do not run can say what others are to watch, sizes included."""
        drafts, informers = Informers(self.client, self.clock), Informers(self.client, self.clock)
        drafts.of(CONFIGMAPS, ConfigMap, namespace="shop", sizes=True)
        drafts.of(SECRETS, Object, labels="a=b")
        informers.watch_same(drafts)
        self.assertEqual({one.watched for one in informers}, {one.watched for one in drafts})
        self.assertEqual([one.has_sizes for one in informers], [True, False])
        self.assertEqual(self.uris, [])
