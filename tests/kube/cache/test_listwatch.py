"""Tests of liqod.kube.cache.listwatch: the machine alone, and against a model of a server that fails in every way."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.cache.listwatch import Command, List, ListWatch, Wait, Watch
from liqod.kube.cache.store import Delta, Store
from liqod.kube.cache.watch_decoder import Bookmark, Failure, Unreadable, WatchEvent
from liqod.kube.errors import (
    ApiError,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    ServerError,
    Throttled,
    Undecodable,
    Unreachable,
)
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, ObjectMeta


def item(name: str, version: int, uid: str = "u") -> Object:
    """Return an object."""
    return Object(metadata=ObjectMeta(name=name, namespace="ns", uid=uid, resource_version=str(version)))


def machine(stream: bool = True) -> ListWatch[Object]:
    """Return a machine without jitter."""
    return ListWatch(Store(), lambda: 0.5, stream=stream)


class WentBackTests(SynchronousTestCase):
    """Versions that are lower than earlier ones."""

    def test_than_an_earlier_list_watch_has_seen(self) -> None:
        """A first list with a lower version than an earlier process saw counts; once, and not without one."""
        for before, found in ((0, 0), (9, 0), (10, 1)):
            m: ListWatch[Object] = ListWatch(Store(), lambda: 0.5, stream=False)
            m.newest = before
            m.start(0)
            m.listed({}, (), "9", 0)
            self.assertEqual((m.went_back, m.newest), (found, 9), before)
            m.listed({}, (), "11", 30)
            self.assertEqual((m.went_back, m.newest), (found, 11), before)


class OrderTests(SynchronousTestCase):
    """What is done after what."""

    def test_a_streamed_list_counts_when_it_is_complete(self) -> None:
        """Initial events change nothing until the bookmark that ends them; then the store holds them all."""
        m = machine()
        self.assertEqual(m.start(0), Watch("", True, 450))
        m.connected(0)
        self.assertEqual(list(m.received(WatchEvent("ADDED", item("a", 3)), 0)), [])
        self.assertEqual((len(m.store), m.synced), (0, False))
        deltas = list(m.received(Bookmark("9", True), 0))
        self.assertEqual([d.key.name for d in deltas], ["a"])
        self.assertEqual((m.synced, m.error, m.stale_since, m.resource_version), (True, "", None, "9"))

    def test_a_server_that_refuses_to_stream_is_listed_in_pages(self) -> None:
        """400 or 422 to the streaming list means pages, from then on."""
        m = machine()
        m.start(0)
        self.assertEqual(m.ended(Invalid(422, "Invalid", "sendInitialEvents is forbidden"), 0), List())
        deltas, command = m.listed({Key("ns", "a"): item("a", 3)}, (), "9", 0)
        self.assertEqual((len(deltas), command), (1, Watch("9", False, 450)))
        m.connected(0)
        self.assertEqual(m.ended(Gone(410, "Expired", "too old"), 20), List())

    def test_a_server_that_ignores_streaming_is_listed_in_pages(self) -> None:
        """An ordinary bookmark in place of the end of the initial events tells that the server does not know them."""
        m = machine()
        m.start(0)
        m.connected(0)
        m.received(Bookmark("5", False), 1)
        self.assertTrue(m.closing)
        self.assertEqual(m.ended(None, 1), List())
        self.assertFalse(m.closing)
        m.listed({}, (), "5", 1)
        m.connected(1)
        self.assertEqual(m.ended(Gone(410, "Expired", ""), 20), List())

    def test_a_restart_during_a_streamed_list_is_not_held_against_the_server(self) -> None:
        """A stream that ends early once is replaced by pages once; the next list is streamed again."""
        m = machine()
        m.start(0)
        m.connected(0)
        self.assertEqual(m.ended(None, 1), List())
        m.listed({}, (), "5", 1)
        m.connected(1)
        self.assertEqual(m.ended(Gone(410, "Expired", ""), 20), Watch("", True, 450))

    def test_a_server_that_never_ends_a_streamed_list_is_listed_in_pages(self) -> None:
        """A proxy may cut every stream short: after three of them nothing is streamed any more."""
        m = machine()
        command = m.start(0)
        for _ in range(3):
            self.assertEqual(command, Watch("", True, 450))
            m.connected(0)
            self.assertEqual(m.ended(None, 1), List())
            m.listed({}, (), "5", 1)
            m.connected(1)
            command = m.ended(Gone(410, "Expired", ""), 20)
        self.assertEqual(command, List())

    def test_an_ordinary_end_goes_on_from_the_last_version(self) -> None:
        """When the server ends a watch after its time, the next begins at once where it stopped."""
        m = self.live()
        m.received(WatchEvent("MODIFIED", item("a", 12)), 30)
        m.received(Bookmark("20", False), 60)
        self.assertEqual(m.ended(None, 400), Watch("20", False, 450))
        self.assertEqual(m.error, "")

    def test_watches_that_end_at_once_are_slowed_down(self) -> None:
        """A watch that lived for less than 10 s earns a growing wait, up to 30 s."""
        m = self.live()
        waits = []
        for _ in range(8):
            command = m.ended(None, 0)
            assert isinstance(command, Wait)
            waits.append(command.seconds)
            self.assertIsInstance(m.waited(), Watch)
            m.connected(0)
        self.assertEqual(waits, [1.2, 2.4, 4.8, 9.6, 19.2, 22.5, 22.5, 22.5])
        self.assertIsInstance(m.ended(None, 11), Watch)
        self.assertEqual(m.ended(None, 11), Wait(1.2))

    def test_a_watch_that_brought_something_goes_on(self) -> None:
        """A watch that a busy server ends, taking its reader for slow, goes on at once, at most four times a second."""
        m = self.live()
        for number in range(20, 28):
            m.received(WatchEvent("MODIFIED", item("a", number)), 3)
            self.assertEqual(m.ended(None, 3), Watch(str(number), False, 450))
            m.connected(0)
        m.received(WatchEvent("MODIFIED", item("a", 30)), 0.05)
        self.assertEqual(m.ended(None, 0.05), Wait(0.2))
        self.assertEqual(m.waited(), Watch("30", False, 450))
        m.connected(1)
        self.assertEqual(m.ended(None, 2), Wait(1.2))

    def test_a_failure_is_reported_until_the_watch_lives_again(self) -> None:
        """After a failure ``error`` and ``stale_since`` say so, from the first failure to the next connection."""
        m = self.live()
        m.ended(Unreachable("refused"), 100)
        self.assertIsInstance(m.waited(), Watch)
        m.ended(Unreachable("refused still"), 110)
        self.assertEqual((m.error, m.stale_since), ("refused still", 100))
        m.waited()
        m.connected(120)
        self.assertEqual((m.error, m.stale_since), ("", None))

    def test_the_server_may_ask_for_patience(self) -> None:
        """A Retry-After longer than the back-off is respected."""
        m = self.live()
        error = Throttled(429, "TooManyRequests", "")
        error.retry_after = 40.0
        self.assertEqual(m.ended(error, 0), Wait(40.0))

    def test_a_cache_that_is_being_filled_is_asked_again_soon(self) -> None:
        """While the server only fills its cache of a kind it is asked again well within the second it names, but
        after a few times its Retry-After is respected as any other."""
        m = machine()
        m.start(0)
        error = Throttled(429, "TooManyRequests", "storage is (re)initializing")
        error.retry_after = 40.0
        waits = [m.ended(error, 0) for _ in range(6)]
        self.assertEqual(waits[:3], [Wait(0.15), Wait(0.3), Wait(0.6)])
        self.assertEqual(waits[5], Wait(40.0))

    def test_a_version_that_is_too_old_means_a_new_list(self) -> None:
        """410, as an answer or as an event in the watch, leads to a new list: at once, also after other failures, but
        after a wait when it was listed just now or when the list itself is refused; meanwhile the store is stale."""
        m = self.live()
        m.ended(Unreachable("restarting"), 100)
        m.waited()
        m.connected(101)
        m.received(Failure(Gone(410, "Expired", "")), 101)
        self.assertEqual(m.ended(None, 101), Watch("", True, 450))
        self.assertEqual((m.stale_since, m.error == ""), (101, False))
        m = self.live()
        m.received(Failure(Gone(410, "Expired", "")), 5)
        self.assertTrue(m.closing)
        self.assertIsInstance(m.ended(None, 5), Wait)
        self.assertEqual(m.waited(), Watch("", True, 450))
        self.assertIsInstance(m.ended(Gone(410, "Expired", ""), 500), Wait)

    def test_what_cannot_be_decoded_is_not_watched_again(self) -> None:
        """An object that is too long for a line would come again from the same version: all are listed again, and in
        pages where it is in a streamed list."""
        m = self.live()
        self.assertEqual(m.ended(Undecodable("a line is too long"), 50), Watch("", True, 450))
        self.assertEqual(m.ended(Undecodable("a line is too long"), 51), List())
        m.listed({}, (), "9", 51)
        m.connected(51)
        self.assertEqual(m.ended(Undecodable("a line is too long"), 100), List())
        self.assertIsInstance(m.ended(Undecodable("a page is too long"), 100), Wait)
        self.assertEqual(m.waited(), List())

    def test_a_watch_that_brings_nothing_means_a_new_list(self) -> None:
        """A server restored from a backup sends not even bookmarks from our version on: after a silence from the
        beginning of a watch all are listed again, at which the lower version is seen. A watch that brought something
        before its silence goes on from its version: the network has a gap."""
        m = self.live()
        m.ended(Unreachable("restarting"), 100)
        m.waited()
        m.connected(110)
        self.assertEqual(m.ended(None, 180), Watch("", True, 450))
        m.connected(180)
        m.received(Bookmark("9", True), 180)
        self.assertEqual((m.went_back, m.resource_version, len(m.store)), (1, "9", 0))
        self.assertEqual(m.ended(None, 250), Watch("9", False, 450))
        m.connected(250)
        m.received(Bookmark("12", False), 260)
        self.assertEqual(m.ended(None, 330), Watch("12", False, 450))
        m.connected(330)
        self.assertEqual(m.ended(Unreachable("refused"), 399), Wait(1.2))

    def test_a_kind_without_bookmarks(self) -> None:
        """Its silence says nothing: it is not listed again and again on a quiet cluster."""
        m = machine(stream=False)
        m.listed({}, (), "11", 0)
        m.connected(0)
        self.assertEqual(m.ended(None, 70), Watch("11", False, 450))

    def test_a_server_that_went_back(self) -> None:
        """Lower versions than before mean that etcd was restored; 410 alone does not."""
        for version, back in (("12", False), ("20", False), ("9", True)):
            m = machine(stream=False)
            m.listed({}, (), "11", 0)
            m.connected(0)
            m.received(WatchEvent("ADDED", item("a", 12)), 1)
            m.ended(Gone(410, "Expired", "too old"), 20)
            m.listed({}, (), version, 20)
            self.assertEqual(m.went_back, int(back), version)
            m.listed({}, (), str(int(version) + 5), 30)
            self.assertEqual(m.went_back, int(back), "it is the same event")
            m.listed({}, (), "3", 40)
            self.assertEqual(m.went_back, back + 1, "the next one")

    def test_watched_deletions(self) -> None:
        """A deletion that the server reported is distinguished from one concluded from a new list."""
        m = machine(stream=False)
        m.listed({Key("ns", name): item(name, 3) for name in "ab"}, (), "9", 0)
        m.connected(0)
        reported = list(m.received(WatchEvent("DELETED", item("a", 10)), 1))
        concluded, _ = m.listed({}, (), "11", 2)
        self.assertEqual([delta.watched for delta in (*reported, *concluded)], [True, False])

    def test_an_unreadable_object_stays_as_it_was(self) -> None:
        """A change that cannot be read advances the version and leaves what is known, also over a new list."""
        m = self.live()
        self.assertEqual(list(m.received(Unreadable("MODIFIED", Key("ns", "a"), "15", ""), 1)), [])
        self.assertEqual(m.resource_version, "15")
        m.received(Failure(Gone(410, "Expired", "")), 20)
        m.ended(None, 20)
        m.connected(20)
        m.received(Unreadable("ADDED", Key("ns", "a"), "15", ""), 20)
        self.assertEqual(list(m.received(Bookmark("30", True), 20)), [])
        self.assertIsNotNone(m.store.get(Key("ns", "a")))
        self.assertEqual(len(list(m.received(Unreadable("DELETED", Key("ns", "a"), "31", ""), 21))), 1)

    def test_silence_ends_a_watch(self) -> None:
        """A watch is to be given up 70 s after the last line."""
        m = self.live()
        m.received(Bookmark("11", False), 50)
        self.assertEqual(m.deadline, 120)

    def live(self) -> ListWatch[Object]:
        m = machine()
        m.start(0)
        m.connected(0)
        m.received(WatchEvent("ADDED", item("a", 3)), 0)
        m.received(Bookmark("10", True), 0)
        return m


class Server:
    """A model of the API server: objects, a history that can be compacted, a taste for failing."""

    def __init__(self, streams: str) -> None:
        self.streams = streams
        self.version = 1
        self.floor = 0
        self.objects: dict[str, Object] = {}
        self.history: list[tuple[int, WatchEvent[Object]]] = []

    def write(self, name: str, delete: bool) -> None:
        self.version += 1
        old = self.objects.pop(name, None)
        if delete:
            if old is not None:
                gone = item(name, self.version, old.metadata.uid)
                self.history.append((self.version, WatchEvent("DELETED", gone)))
            return
        uid = old.metadata.uid if old is not None else f"u{self.version}"
        self.objects[name] = item(name, self.version, uid)
        self.history.append((self.version, WatchEvent("ADDED" if old is None else "MODIFIED", self.objects[name])))

    def compact(self) -> None:
        self.floor = self.version
        self.history.clear()

    def since(self, version: int) -> list[Any]:
        if version < self.floor:
            return [Failure(Gone(410, "Expired", "too old"))]
        return [change for at, change in self.history if at > version]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.just("compact"), st.none(), st.none()),
        st.tuples(
            st.just("serve"), st.integers(0, 9), st.sampled_from(["end", "break", "forbid", "throttle", "error"])
        ),
    ),
    max_size=40,
)
FAILURES: dict[str, KubeError | None] = {
    "end": None,
    "break": Unreachable("broken"),
    "forbid": Forbidden(403, "Forbidden", "no"),
    "throttle": Throttled(429, "TooManyRequests", "busy"),
    "error": ServerError(500, "InternalError", "oops"),
}


class Follower:
    """Drives a machine against the model, and keeps what its deltas say beside it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.machine = machine()
        self.now = 0.0
        self.command: Command = self.machine.start(self.now)
        self.shadow: dict[Key, Object] = {}
        self.serial = 0

    def tell(self, deltas: Any) -> None:
        delta: Delta[Object]
        for delta in deltas:
            assert self.shadow.get(delta.key) == delta.old, "a delta does not continue what was reported before"
            if delta.new is None:
                del self.shadow[delta.key]
            else:
                self.shadow[delta.key] = delta.new

    def serve(self, events: int, failure: str) -> None:
        """Execute one command; the server sends at most so many events and then fails like that."""
        self.now += 1
        command = self.command
        if isinstance(command, Wait):
            self.now += command.seconds
            self.command = self.machine.waited()
        elif isinstance(command, List):
            error = FAILURES[failure]
            if error is not None:
                self.command = self.machine.ended(error, self.now)
                return
            deltas, self.command = self.machine.listed(
                {one.metadata.key: one for one in self.server.objects.values()}, (), str(self.server.version), self.now
            )
            self.tell(deltas)
        else:
            self.watch(command, events, failure)

    def watch(self, command: Watch, events: int, failure: str) -> None:
        error = FAILURES[failure]
        if command.initial and self.server.streams == "refuses":
            self.command = self.machine.ended(Invalid(422, "Invalid", "forbidden"), self.now)
            return
        if isinstance(error, ApiError):
            self.command = self.machine.ended(error, self.now)
            return
        self.machine.connected(self.now)
        lines: list[Any]
        if command.initial:
            known = self.server.streams == "knows"
            lines = [WatchEvent("ADDED", one) for one in self.server.objects.values()]
            lines.append(Bookmark(str(self.server.version), known))
        else:
            lines = self.server.since(int(command.resource_version))
        for line in lines[:events]:
            self.tell(self.machine.received(line, self.now))
            if self.machine.closing:
                break
        self.now += 15
        self.command = self.machine.ended(error, self.now)


class ConvergenceTests(SynchronousTestCase):
    """Whatever happens, in the end the store is what the server holds."""

    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(["knows", "refuses", "ignores"]), STEPS)
    def test_any_order_of_failures_converges(self, streams: str, steps: list[tuple[Any, Any, Any]]) -> None:
        """After any writes, compactions and failures the store equals the server, and the deltas reported every step
        there, each deletion among them."""
        server = Server(streams)
        follower = Follower(server)
        for what, first, second in steps:
            if what == "write":
                server.write(first, second)
            elif what == "compact":
                server.compact()
            else:
                follower.serve(first, second)
        for _ in range(12):
            follower.serve(10_000, "end")
        store = {one.metadata.key.name: one for one in follower.machine.store}
        self.assertEqual(store, server.objects)
        self.assertEqual({key.name: one for key, one in follower.shadow.items()}, server.objects)
        self.assertTrue(follower.machine.synced)
        self.assertEqual(follower.machine.error, "")
