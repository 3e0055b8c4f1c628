"""Tests of liqod.kube.cache.informer and informers over a server in memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.kube.cache.shared_informers import Informers
from liqod.kube.resources import CONFIGMAPS, NODES, PODS, SECRETS, SERVICES
from liqod.model.ids import Key
from liqod.model.objects.meta import Object
from tests.kube.cases import Answer, ConfigMap, config_map, memory_client, status, warnings_of


class InformerTests(SynchronousTestCase):
    """A cache that follows a server."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.open: list[Request] = []
        self.answers: list[Answer] = []
        self.uris: list[str] = []
        self.write: Callable[[Request], None] = lambda request: None
        self.client, self.server = memory_client(self.answer, self.clock)
        self.informers = Informers(self.client, self.clock)
        self.reported: list[tuple[str, str | None, str | None]] = []
        self.informer = self.informers.of(CONFIGMAPS, ConfigMap)
        self.informer.subscribe(self.tell)

    def answer(self, request: Request) -> Answer:
        self.uris.append(request.uri.decode())
        if self.answers:
            return self.answers.pop(0)
        request.notifyFinish().addErrback(lambda _: None)
        self.open.append(request)
        # Like the real server: the head of the answer is sent before there is an event.
        request.write(b"")
        if b"sendInitialEvents" in request.uri:
            self.write(request)
        return None

    def tell(self, key: Key, old: ConfigMap | None, new: ConfigMap | None) -> None:
        self.reported.append(
            (key.name, old and old.metadata.resource_version, new and new.metadata.resource_version)  # type: ignore[arg-type]
        )

    def divide(self, key: Key, old: ConfigMap | None, new: ConfigMap | None) -> None:
        raise ZeroDivisionError

    def start(self) -> None:
        self.informers.startService()
        self.server.flush()

    def send(self, *events: tuple[str, Any]) -> None:
        self.open[-1].write(self.lines(*events))
        self.server.flush()

    def bookmark(self, version: int, end: bool = False) -> tuple[str, Any]:
        annotations = {"k8s.io/initial-events-end": "true"} if end else {}
        return ("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})

    def live(self) -> None:
        self.start()
        self.send(("ADDED", config_map("a", 3, x="1")), ("ADDED", config_map("b", 4)), self.bookmark(9, end=True))

    def names(self) -> list[str]:
        return sorted(key.name for key in self.informer.keys())  # noqa: SIM118

    def test_it_follows_a_streamed_list_and_its_changes(self) -> None:
        """The first list arrives by streaming; changes follow; subscribers hear old and new."""
        self.live()
        self.successResultOf(self.informers.when_synced())
        self.send(("MODIFIED", config_map("a", 10)), ("DELETED", config_map("b", 11)))
        self.assertEqual(self.reported, [("a", None, "3"), ("b", None, "4"), ("a", "3", "10"), ("b", "4", None)])
        self.assertEqual(self.names(), ["a"])
        self.assertIn("sendInitialEvents=true", self.uris[0])
        self.assertIn("allowWatchBookmarks=true", self.uris[0])

    def test_nobody_is_synced_before_the_list_is_complete(self) -> None:
        """Half a list is no list: ``synced`` waits for its end."""
        self.start()
        self.send(("ADDED", config_map("a", 3)))
        self.assertNoResult(self.informers.when_synced())
        self.assertFalse(self.informer.synced)
        self.assertEqual(self.names(), [])

    def test_chunks_may_be_cut_anywhere(self) -> None:
        """Events that arrive byte by byte are the same events."""
        self.start()
        text = json.dumps({"type": "ADDED", "object": config_map("ä", 3)}).encode() + b"\n"
        kind, body = self.bookmark(9, end=True)
        text += json.dumps({"type": kind, "object": body}).encode() + b"\n"
        for position in range(len(text)):
            self.open[-1].write(text[position : position + 1])
            if position % 16 == 0:
                self.server.flush()
        self.server.flush()
        self.assertEqual(self.names(), ["ä"])

    def test_a_late_subscriber_hears_what_there_is(self) -> None:
        """Stored objects are replayed at subscription; an ended subscription hears nothing more."""
        self.live()
        received: list[str] = []
        end = self.informer.subscribe(lambda key, old, new: received.append(key.name))
        self.assertEqual(received, ["a", "b"])
        end()
        self.send(("MODIFIED", config_map("a", 10)))
        self.assertEqual(received, ["a", "b"])

    def test_a_bad_subscriber_does_not_end_the_watch(self) -> None:
        """A subscriber that raises is logged; the others hear the change."""
        self.live()
        self.informer.subscribe(self.divide)
        self.flushLoggedErrors(ZeroDivisionError)
        self.send(("MODIFIED", config_map("a", 10)))
        self.assertEqual(self.reported[-1], ("a", "3", "10"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_an_old_server_is_listed_in_pages(self) -> None:
        """Where streaming is refused the list is read in pages and watched from its version."""
        self.answers = [
            (422, status(422, "Invalid")),
            (200, {"metadata": {"continue": "t"}, "items": [config_map("a", 3)]}),
            (200, {"metadata": {"resourceVersion": "9"}, "items": [config_map("b", 4)]}),
        ]
        self.start()
        self.assertEqual(self.names(), ["a", "b"])
        self.assertTrue(self.informer.synced)
        self.assertIn("resourceVersion=9", self.uris[-1])
        self.send(("DELETED", config_map("b", 11)))
        self.assertEqual(self.names(), ["a"])

    def test_a_broken_watch_goes_on_where_it_stopped(self) -> None:
        """After a lost connection the watch goes on from the last version; it says so meanwhile."""
        caught = warnings_of(self)
        self.live()
        self.send(self.bookmark(20))
        self.server.cut()
        self.assertIn("was lost", self.informer.error)
        self.assertEqual(self.informer.stale_since, self.clock.seconds())
        self.assertEqual(self.names(), ["a", "b"])
        self.clock.advance(2)
        self.server.flush()
        self.assertIn("resourceVersion=20", self.uris[-1])
        self.assertEqual((self.informer.error, self.informer.stale_since), ("", None))
        self.assertEqual(len(caught), 1)

    def test_a_new_path_is_taken_at_once(self) -> None:
        """When the path is new a watch that was silent since is replaced within a moment, without a warning."""
        caught = warnings_of(self)
        self.live()
        self.send(self.bookmark(20))
        self.assertTrue(self.informer.live.value)
        lives: list[bool] = []
        self.informer.live.subscribe(lives.append)
        self.clock.advance(30)
        asked = len(self.uris)
        self.client.path_is_new(self.clock.seconds() - 5)
        self.assertEqual(lives, [False])
        self.clock.advance(0.5)
        self.server.flush()
        self.assertEqual(len(self.uris), asked + 1)
        self.assertIn("resourceVersion=20", self.uris[-1])
        self.assertEqual((lives, self.informer.error, len(caught)), ([False, True], "", 0))
        self.send(("DELETED", config_map("b", 21)))
        self.assertEqual(self.names(), ["a"])
        # What was received on the new path stays.
        self.client.path_is_new(self.clock.seconds() - 0.4)
        self.clock.advance(0.5)
        self.server.flush()
        self.assertEqual(len(self.uris), asked + 1)

    def test_a_new_path_ends_a_pause(self) -> None:
        """A watch that waits before it tries again does so no longer; a stopped one stays stopped."""
        self.live()
        self.server.refusing = True
        self.server.cut()
        for _ in range(10):
            self.clock.advance(5)
            self.server.flush()
        self.server.refusing = False
        asked = len(self.uris)
        self.client.path_is_new(self.clock.seconds())
        self.clock.advance(0.5)
        self.server.flush()
        self.assertEqual(len(self.uris), asked + 1)
        self.assertTrue(self.informer.live.value)
        self.successResultOf(self.informers.stopService())
        self.client.path_is_new(self.clock.seconds() + 1)
        self.clock.advance(60)
        self.assertEqual(len(self.uris), asked + 1)

    def test_deletions_that_nobody_saw_are_reported(self) -> None:
        """After a gap that is too long the new list tells what was deleted in it."""
        self.live()
        self.clock.advance(15)
        self.send(("ERROR", status(410, "Expired")))
        self.send(("ADDED", config_map("a", 3)), self.bookmark(50, end=True))
        self.assertEqual(self.reported[-1], ("b", "4", None))
        self.assertEqual(self.names(), ["a"])

    def test_an_unreadable_object_is_left_out_and_reported_once(self) -> None:
        """An object that does not fit the view is logged once and does not end the watch."""
        caught = warnings_of(self)
        self.live()
        bad = config_map("c", 12) | {"data": {"x": 5}}
        self.send(("ADDED", bad), ("MODIFIED", bad), ("MODIFIED", config_map("a", 13)))
        self.assertEqual(self.reported[-1], ("a", "3", "13"))
        self.assertEqual(self.names(), ["a", "b"])
        self.assertEqual(len(caught), 1)

    def test_a_silent_watch_is_given_up(self) -> None:
        """A watch without a line for 70 s is replaced; lines keep it alive."""
        self.live()
        self.clock.advance(60)
        self.send(self.bookmark(20))
        self.clock.advance(60)
        self.server.flush()
        self.assertEqual(len(self.open), 1)
        self.clock.advance(11)
        self.server.flush()
        self.assertEqual(len(self.open), 2)
        self.assertIn("resourceVersion=20", self.uris[-1])

    def test_an_endless_line_ends_the_watch_only(self) -> None:
        """A line beyond all bounds ends the watch; it is taken up again after a wait."""
        self.live()
        for _ in range(17):
            self.open[-1].write(b"x" * (1 << 20))
        self.server.flush()
        self.assertIn("bytes in a watch", self.informer.error)
        self.clock.advance(60)
        self.server.flush()
        self.send(self.bookmark(20, end=True))
        self.assertEqual(self.informer.error, "")

    def test_many_events_do_not_hold_the_reactor(self) -> None:
        """Lines are worked off in turns: others get their turn between them, and none is lost."""
        self.live()
        self.clock.seconds = self.ticking()  # type: ignore[method-assign]
        later, turns = self.clock.callLater, []

        def call_later(delay: float, call: Any, *args: Any, **kwargs: Any) -> Any:
            turns.append((call, args))
            return later(delay, call, *args, **kwargs)

        self.clock.callLater = call_later  # type: ignore[assignment, method-assign]
        self.send(*(("MODIFIED", config_map("a", 100 + number)) for number in range(50)))
        self.assertEqual(self.reported[-1], ("a", "148", "149"))
        self.assertEqual(len(self.reported), 52)
        self.assertGreater(len([call for call in turns if "_drain" in repr(call)]), 5)

    def ticking(self) -> Any:
        """Return a clock on which every look takes 5 ms."""
        real, looks = self.clock.seconds, [0]

        def seconds() -> float:
            looks[0] += 1
            return real() + looks[0] * 0.005

        return seconds

    def test_all_list_again_when_versions_went_back(self) -> None:
        """Where one informer sees lower versions, another whose watch goes on above them lists again too, and both
        count that once; one that is made later goes by the same count."""
        nodes = self.informers.of(NODES, Object)
        self.client.seen.note(SECRETS, 40)
        self.start()
        self.of("nodes").write(self.lines(self.bookmark(50, end=True)))
        self.of("configmaps").write(
            self.lines(("ADDED", config_map("a", 3)), ("ADDED", config_map("b", 4)), self.bookmark(9, end=True))
        )
        self.server.flush()
        self.clock.advance(20)
        # The server was restored at version 8, and is at 12 now: the version 9 of config maps tells nothing.
        self.of("nodes").write(self.lines(("ERROR", status(410, "Expired"))))
        self.of("configmaps").write(self.lines(self.bookmark(11)))
        self.server.flush()
        asked = len(self.uris)
        self.of("nodes").write(self.lines(self.bookmark(12, end=True)))
        self.server.flush()
        self.assertFalse(self.informer.live.value)
        self.clock.advance(0.5)
        self.server.flush()
        self.assertEqual(len(self.uris), asked + 1)
        self.assertIn("configmaps?", self.uris[-1])
        self.assertIn("sendInitialEvents=true", self.uris[-1])
        self.of("configmaps").write(self.lines(("ADDED", config_map("a", 3)), self.bookmark(10, end=True)))
        self.server.flush()
        self.assertEqual((self.names(), self.reported[-1]), (["a"], ("b", "4", None)))
        self.clock.advance(1)
        self.server.flush()
        self.assertEqual(len(self.uris), asked + 1)
        secrets = self.informers.of(SECRETS, Object)
        self.server.flush()
        self.of("secrets").write(self.lines(self.bookmark(13, end=True)))
        self.server.flush()
        self.clock.advance(1)
        self.server.flush()
        self.assertEqual(len(self.uris), asked + 2)
        self.assertEqual([one.went_back for one in (nodes, self.informer, secrets)], [1, 1, 1])

    def test_what_was_seen_since(self) -> None:
        """What was seen before versions went back says nothing any more; what was seen since is compared again."""
        self.client.seen.note(CONFIGMAPS, 40)
        self.client.seen.note(SECRETS, 40)
        self.start()
        self.send(self.bookmark(20, end=True))
        self.assertEqual(self.client.went_back.value, 1)
        self.assertFalse(self.client.seen.is_before(SECRETS, "21"))
        self.client.seen.note(NODES, 30)
        nodes = self.informers.of(NODES, Object)
        self.server.flush()
        self.of("nodes").write(self.lines(self.bookmark(25, end=True)))
        self.server.flush()
        self.assertEqual((nodes.went_back, self.informer.went_back), (2, 2))

    def test_versions_that_go_back_again_and_again(self) -> None:
        """A server each of whose lists is lower than the last, and which ends each watch, is listed rarely: each
        informer gets its turn, and a warning is logged for each time that all list, not for each list. When it has been
        quiet for long, lower versions lead to a list at once."""
        warnings, versions = warnings_of(self), iter(range(100_000, 0, -1))
        expired = ("ERROR", status(410, "Expired"))
        self.write = lambda request: request.write(self.lines(self.bookmark(next(versions), end=True), expired))
        others: list[Any] = [self.informers.of(kind, Object) for kind in (NODES, SECRETS, PODS, SERVICES)]
        self.start()
        asked = self.pass_time(60)
        kinds = Counter(uri.split("?")[0] for uri in asked)
        self.assertEqual(len(kinds), 5)
        self.assertGreaterEqual(min(kinds.values()), 3)
        self.assertLessEqual(max(kinds.values()), 10)
        went_back = [one for one in warnings if "went back" in one["log_format"]]
        self.assertLessEqual(len(went_back), 5)
        self.write = lambda request: request.write(self.lines(self.bookmark(next(versions), end=True)))
        versions = iter(range(300_000, 400_000))
        self.pass_time(900, 5.0)
        self.assertTrue(all(one.live.value for one in (self.informer, *others)))
        versions = iter([5, *range(10, 100)])
        self.of("pods").write(self.lines(expired))
        self.assertEqual(len(self.pass_time(1)), 5)
        self.assertEqual(self.pass_time(30), [])

    def lists(self) -> list[str]:
        return [uri for uri in self.uris if "sendInitialEvents" in uri]

    def pass_time(self, seconds: int, step: float = 0.1) -> list[str]:
        """Let time pass, in which each list is answered and each watch is kept open; return the lists."""
        before = len(self.lists())
        for _ in range(round(seconds / step)):
            self.server.flush()
            self.clock.advance(step)
        self.server.flush()
        return self.lists()[before:]

    def of(self, plural: str) -> Request:
        """Return the newest request for a kind that is open."""
        return next(one for one in reversed(self.open) if f"/{plural}?" in one.uri.decode())

    def lines(self, *events: tuple[str, Any]) -> bytes:
        return b"".join(json.dumps({"type": kind, "object": body}).encode() + b"\n" for kind, body in events)

    def test_indexes_follow(self) -> None:
        """An index is kept up to date with the objects."""
        self.informer.add_index("x", lambda one: one.data.values())
        self.live()
        self.assertEqual([one.metadata.name for one in self.informer.by_index("x", "1")], ["a"])
        self.send(("MODIFIED", config_map("a", 10, x="2")))
        self.assertEqual(self.informer.by_index("x", "1"), [])

    def test_the_same_question_shares_an_informer(self) -> None:
        """One informer serves all who want the same kind, view and selection; another selection has its own."""
        self.assertIs(self.informers.of(CONFIGMAPS, ConfigMap), self.informer)
        self.assertIsNot(self.informers.of(CONFIGMAPS, Object), self.informer)
        self.assertIsNot(self.informers.of(CONFIGMAPS, ConfigMap, labels="a=b"), self.informer)
        self.start()
        self.informers.of(NODES, Object)
        self.server.flush()
        self.assertIn("/api/v1/nodes", self.uris[-1])

    def test_known(self) -> None:
        """An informer is known once somebody has requested it; to look for one requests none."""
        self.assertIs(self.informers.known(CONFIGMAPS, ConfigMap), self.informer)
        self.assertIsNone(self.informers.known(NODES, Object))
        self.assertIsNone(self.informers.known(CONFIGMAPS, ConfigMap, labels="a=b"))
        self.assertEqual(list(self.informers), [self.informer])

    def test_stopping_ends_the_watch(self) -> None:
        """A stopped informer closes its connection and leaves no timer; dropping one does the same."""
        self.live()
        self.successResultOf(self.informers.stopService())
        self.server.flush()
        self.clock.advance(0)
        self.assertEqual(self.own_timers(), [])
        requests = len(self.uris)
        self.clock.advance(500)
        self.assertEqual(len(self.uris), requests)

    def test_it_can_be_stopped_from_inside_a_callback(self) -> None:
        """A subscriber may stop the service that calls it."""
        stopped: list[Any] = []
        self.informer.subscribe(lambda key, old, new: stopped.append(self.informers.stopService()))
        self.live()
        self.successResultOf(stopped[0])

    def own_timers(self) -> list[Any]:
        return [call for call in self.clock.getDelayedCalls() if "liqod" in str(call)]
