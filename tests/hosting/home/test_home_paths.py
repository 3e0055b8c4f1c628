"""When endpoints at a borrower's home are called, and what reaches them."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.flow.controller import After
from liqod.hosting.home.path import AT_EASE, IN_DOUBT
from liqod.hosting.home.paths import GIVEN_UP, HomePaths
from liqod.model.records.network import TunnelEndpoint
from liqod.model.records.views import ForeignCluster, ShadowEndpointSlice

reactor: Any = _reactor
SLICE = msgspec.convert(
    {
        "metadata": {"name": "db-1", "namespace": "shop-rome"},
        "spec": {"template": {"endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80, "protocol": "TCP"}]}},
    },
    ShadowEndpointSlice,
)


class Records:
    """The informer of one kind: one record with a phase, or none."""

    def __init__(self, kind: type[TunnelEndpoint | ForeignCluster]) -> None:
        self.kind = kind
        self.phase: str | None = None

    def get(self, key: object) -> TunnelEndpoint | ForeignCluster | None:
        return None if self.phase is None else msgspec.convert({"status": {"phase": self.phase}}, self.kind)


class Around:
    """Slices, namespaces and networks in one: one slice of rome's, and its tunnel, or none."""

    decisions = None

    def __init__(self, *, tunnel: bool = True) -> None:
        self.tunnels, self.peers = Records(TunnelEndpoint), Records(ForeignCluster)
        self.tunnel = tunnel
        self.agreed = True
        self.slice = SLICE
        self.judged = 0

    def has_tunnel(self, tenant: str) -> bool:
        return self.tunnel

    def items(self) -> list[ShadowEndpointSlice]:
        return [self.slice]

    def known_tenant(self, namespace: str) -> str:
        return "rome"

    def objection(self, tenant: str, address: str) -> str:
        self.judged += 1
        return "" if self.agreed else "it was not agreed on"


def paths_over(around: Around, clock: Any) -> HomePaths:
    """Return what watches the paths."""
    one = cast(Any, around)
    return HomePaths(clock, shadows=one, foreign=cast(Any, around.peers), namespaces=one, networks=one)


class PaceTests(SynchronousTestCase):
    """How often a borrower has this daemon call an address."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.around = Around()
        self.paths = paths_over(self.around, self.clock)
        self.calls: list[tuple[str, int]] = []
        self.answers = True

        async def call(address: str, port: int) -> bool:
            self.calls.append((address, port))
            return self.answers

        self.patch(self.paths, "_call", call)

    def look(self, phase: str | None) -> tuple[After | None, int]:
        """Look at the path once; returns when it is looked at again, and how many calls there were."""
        (self.around.tunnels if self.around.tunnel else self.around.peers).phase = phase
        self.calls.clear()
        after = self.successResultOf(Deferred.fromCoroutine(self.paths.reconcile("rome")))
        return after, len(self.calls)

    def test_without_a_tunnel_nobody_is_called(self) -> None:
        """However often it is looked at; nor where the address was not agreed on."""
        self.assertEqual(self.look(None), (None, 0))
        self.around.agreed = False
        for phase in ("Connected", "Error", "Connecting"):
            self.assertEqual(self.look(phase), (After(AT_EASE), 0))
            self.clock.advance(IN_DOUBT)

    def test_where_others_connect_the_clusters(self) -> None:
        """The session stands for the tunnel: alive, one call a minute; silent, endpoints decide; a peer that is gone
        is called no more. What the record of a tunnel says does not count there.
        """
        self.around.tunnel, self.around.tunnels.phase = False, "Error"
        self.assertEqual(self.look("Connecting"), (After(AT_EASE), 1))
        self.assertEqual(self.look("Ready"), (After(AT_EASE), 0))
        self.assertEqual(self.look("Suspect"), (After(IN_DOUBT), 1))
        self.clock.advance(GIVEN_UP)
        self.assertEqual(self.look("Suspect"), (After(IN_DOUBT), 1))  # the daemon alone is down
        self.assertEqual(self.paths.lost.value, {"rome": False})
        self.answers = False
        for _ in range(4):
            self.clock.advance(IN_DOUBT)
            self.look("Lost")
        self.assertEqual(self.paths.lost.value, {"rome": True})
        self.look("Authenticated")
        self.assertEqual(self.paths.lost.value, {"rome": False})
        self.assertEqual(self.look(None), (None, 0))

    def test_nobody_is_asked_for_a_peer_without_endpoints(self) -> None:
        """It is looked at again when it has some, not before."""
        self.around.tunnel = False
        self.patch(self.around, "items", list)
        self.assertEqual(self.look("Ready"), (None, 0))

    def test_endpoints_that_become_ready_are_called(self) -> None:
        """A slice whose endpoints are not ready is looked at again, so that a path that is lost later is found."""
        ready = self.around.slice
        template = {**msgspec.to_builtins(ready.spec)["template"]}
        template["endpoints"] = [{**template["endpoints"][0], "conditions": {"ready": False}}]
        meta = {"name": "db-1", "namespace": "shop-rome"}
        self.around.slice = msgspec.convert({"metadata": meta, "spec": {"template": template}}, ShadowEndpointSlice)
        self.assertEqual(self.look("Connected"), (After(AT_EASE), 0))
        self.around.slice = ready
        self.clock.advance(AT_EASE)
        self.assertEqual(self.look("Connected"), (After(AT_EASE), 1))
        self.answers = False
        for _ in range(6):
            self.look("Error")
            self.clock.advance(IN_DOUBT)
        self.look("Error")
        self.assertEqual(self.paths.lost.value, {"rome": True})

    def test_a_tunnel_that_carries_is_one_call_a_minute(self) -> None:
        """Looks in between call nobody."""
        self.assertEqual(self.look("Connected"), (After(AT_EASE), 1))
        self.clock.advance(AT_EASE - 1)
        self.assertEqual(self.look("Connected"), (After(1.0), 0))
        self.clock.advance(1)
        self.assertEqual(self.look("Connected"), (After(AT_EASE), 1))

    def test_slices_are_looked_at_at_their_pace(self) -> None:
        """However many come: their endpoints are not judged before somebody may be called again."""
        self.look("Connected")
        for _ in range(100):
            self.look("Connected")
        self.assertEqual(self.around.judged, 1)
        self.clock.advance(AT_EASE)
        self.around.agreed = False  # none may be called, so none ever answers
        self.around.tunnels.phase = "Error"
        for _ in range(100):
            self.look("Error")
        self.assertEqual(self.around.judged, 2)
        self.clock.advance(IN_DOUBT)
        self.assertEqual(self.look("Error"), (After(AT_EASE), 0))
        self.assertEqual(self.around.judged, 3)

    def test_slices_of_which_none_answers(self) -> None:
        """They are looked at no more often than in doubt."""
        self.answers = False
        self.assertEqual(self.look("Connected"), (After(AT_EASE), 1))
        self.clock.advance(IN_DOUBT / 2)
        self.assertEqual(self.look("Connected"), (After(IN_DOUBT / 2), 0))
        self.clock.advance(IN_DOUBT / 2)
        self.assertEqual(self.look("Connected"), (After(AT_EASE), 1))
        self.answers = True
        self.clock.advance(IN_DOUBT)
        self.assertEqual(self.look("Connected"), (After(AT_EASE), 1))
        self.answers = False
        self.clock.advance(AT_EASE)
        self.assertEqual(self.look("Connected"), (After(AT_EASE), 1))
        self.assertEqual(self.look("Connected"), (After(IN_DOUBT), 0))

    def test_in_doubt_it_is_every_two_seconds_and_later_ten(self) -> None:
        """While endpoints answer, or might; a path that is lost is asked seldom."""
        self.look("Connected")
        self.assertEqual(self.look("Error"), (After(IN_DOUBT), 1))
        self.answers = False
        for _ in range(3):
            self.clock.advance(IN_DOUBT)
            after, calls = self.look("Error")
            self.assertEqual(calls, 1)
        self.assertEqual((after, self.paths.lost.value), (After(GIVEN_UP), {"rome": True}))


class Silent(Protocol):
    """Keeps what comes; ``ended`` fires with the connection."""

    def __init__(self) -> None:
        self.data = b""
        self.ended: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.ended.callback(None)


class CallTests(TestCase):
    """What the address that a borrower named gets."""

    timeout = 30

    async def test_no_byte_is_sent(self) -> None:
        """A connection, and its end; a port where nobody listens is an answer of its host, too."""
        called = Silent()
        listening = reactor.listenTCP(0, Factory.forProtocol(lambda: called), interface="127.0.0.1")
        paths = paths_over(Around(), reactor)
        port = listening.getHost().port
        self.assertTrue(await paths._call("127.0.0.1", port))
        await called.ended
        self.assertEqual(called.data, b"")
        await listening.stopListening()
        self.assertTrue(await paths._call("127.0.0.1", port))

    def test_a_call_that_is_cancelled(self) -> None:
        """The step that makes it ends as one that was cancelled: neither an answer nor a defect."""
        around = Around()
        around.tunnels.phase = "Connected"
        around.slice = msgspec.convert(
            {"spec": {"template": {"endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": 1}]}}},
            ShadowEndpointSlice,
        )
        paths = paths_over(around, reactor)
        looking = Deferred.fromCoroutine(paths.reconcile("rome"))
        looking.cancel()
        self.failureResultOf(looking, CancelledError)
