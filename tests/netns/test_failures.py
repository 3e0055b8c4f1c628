"""What goes wrong between two clusters, on real sockets: nothing is deleted that nobody asked for, and all comes back.

Steps on one pair of clusters, in the order of their names; each begins and ends with both borrowing from each other.
"""

from __future__ import annotations

import atexit
import itertools
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.netns.world import FOREIGN, OFFERS, World, missing
from tests.testbed import process

SETTINGS = """\
[peering]
listen = "tcp6:5872"
ping-interval = 1.0
# The relay's connections are to the same port as the sessions, which are counted.
api = "direct"

[sharing]
ttl = {ttl}

[metrics]
listen = "tcp:5874:interface=127.0.0.1"
"""
TTL = 10.0
ROME, MILAN = "rome", "milan"
BOTH = ((ROME, MILAN), (MILAN, ROME))
KEPT = (FOREIGN, OFFERS, "/apis/offloading.liqo.io/v1beta1/virtualnodes", "/api/v1/nodes", "/api/v1/namespaces")
TOMBSTONES = "/api/v1/namespaces/liqo-system/configmaps/liqod-unpeered"


class FailureTests(SynchronousTestCase):
    """Rome and Milan on one LAN."""

    _world: ClassVar[World | None] = None
    kept: ClassVar[dict[str, str]] = {}
    begun: ClassVar[str] = ""
    """The step that has begun and did not come to its end."""

    def setUp(self) -> None:
        require(missing())
        cls = type(self)
        if cls._world is None:
            world = cls._world = World({ROME: 1, MILAN: 1})
            world.__enter__()
            atexit.register(world.__exit__, None, None, None)
            for name in world.clusters:
                world.configure(name, SETTINGS.format(ttl=TTL))
        self.world = cls._world
        self.assertEqual(cls.begun, "", "an earlier step failed")
        cls.begun = self.id()

    def done(self) -> None:
        """Say that a step came to its end, so that the next one has what it needs."""
        type(self).begun = ""

    # What must not change.

    def everything(self) -> dict[str, str]:
        """Return the UID of all that nobody asks to delete; one that is being deleted does not count."""
        found = {}
        for name in self.world.clusters:
            for path in KEPT:
                for one in self.world.get(name, path)["items"]:
                    if not one["metadata"].get("deletionTimestamp"):
                        found[f"{name} {path} {one['metadata']['name']}"] = one["metadata"]["uid"]
        return found

    def intact(self) -> None:
        """Have everything that was there be there still, and be the same."""
        now = self.everything()
        self.assertEqual({what: uid for what, uid in self.kept.items() if now.get(what) != uid}, {})

    def one_session(self) -> None:
        """Have exactly one connection between the two daemons, after a moment in which one too many may be closed."""
        self.world.eventually("one session", lambda: [len(self.world.sessions(name)) for name, _ in BOTH] == [1, 1])

    def well(self) -> None:
        """Wait until both borrow from each other, with everything that was there."""
        self.world.peered(*BOTH)
        self.intact()

    def seen_key(self, name: str, peer: str) -> str:
        """Return the fingerprint that a peer was seen with."""
        return str(self.world.status(name, peer)["seenFingerprint"])

    def closed(self, name: str, peer: str) -> bool:
        """Tell whether a virtual node is NotReady and the scheduler puts no pods on it."""
        taints = self.world.node(name, peer)["spec"].get("taints", [])
        kept_off = {(one["key"], one["effect"]) for one in taints}
        away = {("node.kubernetes.io/not-ready", "NoSchedule"), ("node.kubernetes.io/unreachable", "NoSchedule")}
        return not self.world.node_ready(name, peer) and bool(kept_off & away)

    def trust(self) -> None:
        """Each administrator trusts the other's key on their own cluster."""
        for name, peer in BOTH:
            self.world.eventually(f"{name} sees {peer}", partial(self.seen_key, name, peer))
            self.world.ctl(name, "trust", peer, "--yes")

    def suspected_then_lost(self, *pairs: tuple[str, str]) -> None:
        """Have node and record show Suspect, then Lost, with a node that is NotReady and gets no new pods."""
        for name, peer in pairs:
            self.world.phase(name, peer, "Suspect", "Lost")
            self.world.eventually("the node is NotReady, and nothing new comes", partial(self.closed, name, peer))
        for name, peer in pairs:
            self.world.phase(name, peer, "Lost")
            self.assertIn("nothing is removed", self.world.status(name, peer)["message"])

    # The steps.

    def test_01_both_boot_together(self) -> None:
        """Both dial each other at once, also after both crash at once: one session stays, opened by the smaller ID."""
        self.world.start(*self.world.clusters)
        self.trust()
        self.world.peered(*BOTH)
        self.one_session()
        type(self).kept = self.everything()
        for name in self.world.clusters:
            self.world.kill(name)
        self.world.start(*self.world.clusters)
        self.world.eventually("a session", lambda: self.world.sessions(ROME))
        self.well()
        self.one_session()
        self.done()

    def test_02_silence_is_suspect_then_lost_and_nothing_is_removed(self) -> None:
        """Packets dropped both ways: Alive, Suspect, Lost on record and node of both sides; back by itself."""
        self.world.cut(MILAN)
        self.suspected_then_lost(*BOTH)
        self.assertIn("it is dialled again within", self.world.status(ROME, MILAN)["message"])
        self.intact()
        self.world.heal(MILAN)
        self.well()
        self.one_session()
        self.done()

    def test_03_one_way_is_found_whichever_way(self) -> None:
        """A host that only receives, and one that only sends, are Suspect on both sides like one that is gone."""
        for receives in (True, False):
            self.world.cut(MILAN, received=receives, said=not receives)
            for name, peer in BOTH:
                self.world.phase(name, peer, "Suspect", "Lost")
            self.intact()
            self.world.heal(MILAN)
            self.well()
        self.done()

    def test_04_an_address_that_answers_is_taken(self) -> None:
        """With IPv4 blocked between the hosts the peer is reached at its IPv6 address, which mDNS reported as well."""
        address = self.world.address(ROME)
        rules = f"ip saddr {address} tcp dport 5872 drop; ip saddr {address} tcp sport 5872 drop;"
        hook = "type filter hook input priority -300;"
        self.world.nft(MILAN, f"table inet four {{\n chain in {{ {hook} {rules} }}\n }}")
        try:
            self.world.eventually(
                "a session over IPv6",
                lambda: (
                    all("fd98" in one or "fe80" in one for pair in self.world.sessions(ROME) for one in pair)
                    and self.world.sessions(ROME)
                ),
            )
            self.well()
        finally:
            self.world.nft(MILAN, "delete table inet four")
        self.done()

    def test_05_a_daemon_that_sleeps_goes_on_where_it_was(self) -> None:
        """SIGSTOP until it is Lost, then SIGCONT: the other side shows it, and all is well again without a deletion."""
        self.world.signal(MILAN, signal.SIGSTOP)
        self.suspected_then_lost((ROME, MILAN))
        self.intact()
        self.world.signal(MILAN, signal.SIGCONT)
        self.well()
        self.one_session()
        self.done()

    def test_06_a_dead_peer_is_dialled_less_and_less(self) -> None:
        """Attempts at a peer that hangs up at once come with growing, jittered pauses, and stop nowhere."""
        self.world.kill(MILAN)
        moments = _count_calls(self.world.namespace(MILAN), 9.0, 3)
        pauses = [after - before for before, after in itertools.pairwise(moments)]
        print(f"\nattempts after {[round(one - moments[0], 2) for one in moments]} s")
        self.assertGreater(len(moments), 2, "it goes on trying")
        self.assertLess(len(moments), 9, "but not every half second")
        self.assertGreater(pauses[-1], pauses[0])
        self.assertNotEqual([round(pause * 1000) % 500 for pause in pauses], [0] * len(pauses), "there is jitter")
        self.intact()
        self.world.start(MILAN)
        self.well()
        self.done()

    def test_07_a_new_key_is_refused_until_a_person_trusts_it(self) -> None:
        """The peer is installed again under its ID: refused with an event, the pin stays; then trusted once more."""
        pinned = self.world.record(ROME, MILAN)["spec"]["fingerprint"]
        self.world.kill(MILAN)
        self.world.ask(MILAN, "DELETE", "/api/v1/namespaces/liqo-system/secrets/liqod-identity")
        self.world.start(MILAN)
        self.world.eventually(
            "a new key", lambda: self.world.get(MILAN, "/api/v1/namespaces/liqo-system/secrets/liqod-identity")
        )
        self.world.phase(ROME, MILAN, "Refused")
        self.assertEqual(self.world.condition(ROME, MILAN, "Authenticated")["reason"], "ClusterIDRepetition")
        self.assertEqual(self.world.record(ROME, MILAN)["spec"]["fingerprint"], pinned)
        self.world.eventually("an event", lambda: self._events(ROME, "ClusterIDRepetition"))
        self.intact()
        self.world.ctl(ROME, "distrust", MILAN, "--yes")
        self.world.eventually("its new key is shown", partial(self.seen_key, ROME, MILAN))
        self.world.ctl(ROME, "trust", MILAN, "--yes")
        self.assertNotEqual(self.world.record(ROME, MILAN)["spec"]["fingerprint"], pinned)
        self.world.peered(*BOTH)
        type(self).kept = self.everything()
        self.done()

    def test_08_the_end_with_a_peer_that_answers(self) -> None:
        """Both sides forget each other; the receipt lists what went; they are strangers in sight again."""
        receipt = self.world.ctl(ROME, "unpeer", MILAN, "--yes", timeout=200)
        self.assertIn("liqo-milan", receipt)
        self.assertIn("milan has ended it, too", receipt)
        self.assertNotIn(" left", receipt)
        self.strangers(ROME, MILAN)
        self.strangers(MILAN, ROME)
        self.done()

    def test_09_the_end_with_a_peer_that_sleeps(self) -> None:
        """Its time passes, this side is clean all the same; it learns that at its next Hello and cleans up by
        itself.
        """
        self.trust()
        self.world.peered(*BOTH)
        self.world.signal(MILAN, signal.SIGSTOP)
        receipt = self.world.ctl(ROME, "unpeer", MILAN, "--yes", "--timeout=3", timeout=200)
        self.assertIn("notified when it reconnects", receipt)
        self.assertNotIn(" left", receipt)
        self.assertRaises(LookupError, self.world.node, ROME, MILAN)
        self.assertIn(self.world.id(MILAN), self.world.get(ROME, TOMBSTONES)["data"])
        self.world.signal(MILAN, signal.SIGCONT)
        self.strangers(MILAN, ROME)
        self.done()

    def test_10_the_end_with_a_peer_that_is_dead(self) -> None:
        """Nobody is waited for; when the peer lives again it learns of the end from its first Hello."""
        self.trust()
        self.world.peered(*BOTH)
        with self.assertRaises(LookupError):  # trust again ends the tombstone
            self.world.get(ROME, TOMBSTONES)["data"][self.world.id(MILAN)]
        self.world.kill(MILAN)
        receipt = self.world.ctl(ROME, "unpeer", MILAN, "--dead", "--yes", timeout=200)
        self.assertNotIn(" left", receipt)
        self.assertRaises(LookupError, self.world.node, ROME, MILAN)
        self.assertTrue(self.world.node(MILAN, ROME), "the dead one knows nothing yet")
        self.world.start(MILAN)
        self.strangers(MILAN, ROME)
        reported = self.world.eventually(
            "the tombstone is done", lambda: self._is_notified(self.world.get(ROME, TOMBSTONES))
        )
        self.assertTrue(reported)
        self.done()

    def strangers(self, name: str, peer: str) -> None:
        """Wait until a cluster keeps nothing of a peer but that it is in sight."""

        def gone() -> bool:
            with_peer = [
                one for one in self.world.get(name, "/api/v1/nodes")["items"] if one["metadata"]["name"] != "node"
            ]
            offers = self.world.get(name, OFFERS)["items"]
            pins = [one["spec"].get("fingerprint") for one in self.world.get(name, FOREIGN)["items"]]
            spaces = [one["metadata"]["name"] for one in self.world.get(name, "/api/v1/namespaces")["items"]]
            left = (with_peer, offers, [pin for pin in pins if pin], [one for one in spaces if "tenant" in one])
            self.assertEqual(left, ([], [], [], []))
            return True

        self.world.eventually(f"{name} keeps nothing of {peer}", gone)

    def _events(self, name: str, reason: str) -> list[Any]:
        events = self.world.get(name, "/api/v1/events")["items"]
        return [event for event in events if event.get("reason") == reason]

    def _is_notified(self, tombstones: dict[str, Any]) -> bool:
        return '"told":"2' in tombstones["data"][self.world.id(MILAN)].replace(" ", "")


def _count_calls(namespace: str, seconds: float, least: int) -> list[float]:
    """Listen on a peer's port in its namespace, hang up on every caller, and return when they came.

    That is for some seconds, and on a slow machine until there were at least so many.
    """
    moments: list[float] = []
    done = threading.Event()

    def listen() -> None:
        with socket.create_server(("0.0.0.0", 5872), reuse_port=False) as server:
            server.settimeout(0.1)
            while not done.is_set():
                try:
                    caller, _ = server.accept()
                except TimeoutError:
                    continue
                moments.append(time.monotonic())
                caller.close()

    with ThreadPoolExecutor(1, initializer=process.enter, initargs=(namespace,)) as place:
        running = place.submit(listen)
        time.sleep(seconds)
        end = time.monotonic() + 60.0
        while len(moments) < least and time.monotonic() < end:
            time.sleep(0.1)
        done.set()
        running.result(10)
    return moments
