"""Discovery as a whole, over a source that the test plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config import schema
from liqod.discovery.candidate import Announcement, Candidate
from liqod.discovery.mdns import Mdns
from liqod.discovery.merge import GRACE, Lost, Resolved
from liqod.discovery.service import Discovery

ME = Announcement("me", "me", "", 5872)
MANUAL = Candidate("hand.example", 5872, "Manual")
FOUND = Candidate("10.0.0.1", 5872, "mDNS", "peer")


class Played(Service):
    """A source of sightings that the test calls."""

    def __init__(
        self,
        me: Announcement,
        wanted: Sequence[str],
        clock: IReactorTime,
        on_sightings: Callable[[Sequence[Resolved | Lost]], None],
    ) -> None:
        self.saw = on_sightings
        self.announced = [me]

    def announce(self, me: Announcement) -> None:
        self.announced.append(me)


class ServiceTests(SynchronousTestCase):
    """What the owner of the service sees."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.changes: list[tuple[Candidate, ...]] = []
        settings = schema.DiscoverySettings(peers=[schema.PeerSettings("hand.example:5872")])
        self.discovery = Discovery(settings, ME, self.clock, self.changes.append, make_mdns=Played)
        (self.source,) = self.discovery.services

    def test_configured_peers_are_reported_at_start(self) -> None:
        """Peers named by hand are there at once, whatever mDNS does."""
        self.discovery.startService()
        self.assertEqual(self.changes, [(MANUAL,)])

    def test_only_changes_are_reported(self) -> None:
        """A repeated sighting calls nobody; a lost one turns stale, and is gone after the grace period."""
        self.discovery.startService()
        for _ in range(3):
            self.source.saw([Resolved("peer", (FOUND,))])
        self.source.saw([Lost("peer")])
        stale = Candidate("10.0.0.1", 5872, "mDNS", "peer", stale=True)
        self.assertEqual(self.changes, [(MANUAL,), (MANUAL, FOUND), (MANUAL, stale)])
        self.clock.advance(GRACE)
        self.assertEqual(self.changes[-1], (MANUAL,))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopped_service_is_quiet(self) -> None:
        """After stopService no timer is left and no sighting is reported."""
        self.discovery.startService()
        self.source.saw([Resolved("peer", (FOUND,)), Lost("peer")])
        self.successResultOf(self.discovery.stopService())
        count = len(self.changes)
        self.source.saw([Resolved("other", (FOUND,))])
        self.assertEqual((len(self.changes), self.clock.getDelayedCalls()), (count, []))

    def test_nothing_found_is_reported_as_nothing(self) -> None:
        """Without peers the owner hears the empty tuple at start: no candidates is an answer."""
        Discovery(schema.DiscoverySettings(mdns=False), ME, self.clock, self.changes.append).startService()
        self.assertEqual(self.changes, [()])

    def test_without_mdns_nothing_is_announced(self) -> None:
        """Nothing is made that could tell the LAN of this cluster, nor when its key is another one."""
        sources: list[Played] = []

        class Made(Played):
            def __init__(self, *args: Any, **named: Any) -> None:
                super().__init__(*args, **named)
                sources.append(self)

        for mdns in (True, False):
            sources.clear()
            chosen = schema.DiscoverySettings(mdns=mdns)
            discovery = Discovery(chosen, ME, self.clock, self.changes.append, make_mdns=Made)
            discovery.startService()
            discovery.announce_key("sha256:next")
            self.assertEqual(len(sources), mdns)

    def test_wrong_address_is_refused_at_once(self) -> None:
        """A configured address that is none stops the daemon with its name in the message."""
        settings = schema.DiscoverySettings(mdns=False, peers=[schema.PeerSettings("a:b:c:nonsense")])
        with self.assertRaisesRegex(ValueError, "nonsense"):
            Discovery(settings, ME, self.clock, self.changes.append)

    def test_mdns_refuses_other_reactors(self) -> None:
        """Without an asyncio loop mDNS says which option to leave out."""
        with self.assertRaisesRegex(RuntimeError, "leave out --reactor"):
            Mdns(ME, (), self.clock, lambda _: None).startService()
