"""Whether the path to a borrower's home is lost, as values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.home.path import (
    MAX_CANDIDATES,
    MAX_TARGETS,
    SILENT_FOR,
    HomePath,
    Target,
    judge,
    session_sign,
    targets_of,
    tunnel_sign,
)
from liqod.model.records.network import TunnelEndpointStatus
from liqod.model.records.views import ForeignClusterStatus, ShadowEndpointSlice
from tests.fuzz.cost import calls

WELL, CUT = HomePath(lost=False, answered_at=100.0), HomePath(lost=True, answered_at=100.0, troubled_since=110.0)


def shadow(*endpoints: dict[str, Any], port: Any = 80, protocol: str = "TCP") -> ShadowEndpointSlice:
    template = {"endpoints": list(endpoints), "ports": [{"port": port, "protocol": protocol}]}
    return msgspec.convert({"spec": {"template": template}}, ShadowEndpointSlice)


class JudgeTests(SynchronousTestCase):
    """What is known before, what the tunnel's probes say, and the moment; what is known then."""

    def test_table(self) -> None:
        """The tunnel decides; where it is in doubt, endpoints that used to answer; nothing else changes anything."""
        doubt = HomePath(lost=False, answered_at=100.0, troubled_since=110.0)
        late = 110.0 + SILENT_FOR
        for before, sign, now, wanted in (
            (HomePath(), None, 5.0, HomePath()),
            (HomePath(), True, 5.0, HomePath(lost=False)),
            # Without an endpoint that ever answered a silent one says nothing.
            (HomePath(), False, 5.0, HomePath(troubled_since=5.0)),
            (HomePath(troubled_since=5.0), False, 500.0, HomePath(troubled_since=5.0)),
            (HomePath(lost=False), False, 500.0, HomePath(lost=False, troubled_since=500.0)),
            # The doubt begins, and lasts.
            (WELL, False, 110.0, doubt),
            (doubt, False, late - 0.1, doubt),
            (doubt, False, late, CUT),
            # An endpoint answers: it is the daemon alone that does not.
            (HomePath(False, 113.0, 110.0), False, late, HomePath(False, 113.0, 110.0)),
            (HomePath(True, 130.0, 110.0), False, 131.0, HomePath(False, 130.0, 110.0)),
            # A daemon that has just started does not know, and changes nothing.
            (CUT, None, 900.0, CUT),
            (CUT, False, 900.0, CUT),
            (CUT, True, 900.0, WELL),
        ):
            self.assertEqual(judge(before, sign, now), wanted, (before, sign, now))

    def test_signs(self) -> None:
        """Only a tunnel that is known to carry, or not to, says anything."""
        for phase, sign in (("Connected", True), ("Error", False), ("Connecting", None), ("", None)):
            self.assertIs(tunnel_sign(TunnelEndpointStatus(phase=phase)), sign)
        self.assertIsNone(tunnel_sign(None))
        for phase, sign in (("Ready", True), ("Authenticated", True), ("Suspect", False), ("Lost", False)):
            self.assertIs(session_sign(ForeignClusterStatus(phase=phase)), sign)
        for phase in ("", "Discovered", "Connecting", "TrustPending", "Withdrawing"):
            self.assertIsNone(session_sign(ForeignClusterStatus(phase=phase)))
        self.assertIsNone(session_sign(None))


def found(*shadows: ShadowEndpointSlice, answered: Collection[Target] = ()) -> list[Target]:
    """Return what is called of these slices; addresses in 10.0.0.0/8 were agreed on."""
    return targets_of(shadows, answered, lambda address: address.startswith("10."))


class TargetTests(SynchronousTestCase):
    ONE, TWO, THREE = ({"addresses": [f"10.0.0.{n}"]} for n in (1, 2, 3))

    def test_order(self) -> None:
        """What answered last comes first, then the first endpoint of each slice, then all others; a few at most."""
        unready = {"addresses": ["10.0.0.9"], "conditions": {"ready": False}}
        slices = shadow(self.ONE, self.TWO), shadow(unready, self.THREE, port=443)
        self.assertEqual(found(*slices), [("10.0.0.1", 80), ("10.0.0.3", 443), ("10.0.0.2", 80)])
        self.assertEqual(found(*slices, answered=[("10.0.0.2", 80), ("10.0.0.7", 80)])[0], ("10.0.0.2", 80))
        many = shadow(*({"addresses": [f"10.0.1.{n}"]} for n in range(50)))
        self.assertEqual(len(found(many)), MAX_TARGETS)

    def test_cost(self) -> None:
        """Of a large slice a few endpoints are looked at, and no more addresses are judged than are needed."""
        judged: list[str] = []

        def is_allowed(address: str) -> bool:
            judged.append(address)
            return address.startswith("10.")

        def large(net: int) -> ShadowEndpointSlice:
            return shadow(*({"addresses": [f"{net}.0.{n // 250}.{n % 250}"]} for n in range(1000)))

        self.assertEqual(len(targets_of([large(10)], (), is_allowed)), MAX_TARGETS)
        self.assertEqual(len(judged), MAX_TARGETS)
        judged.clear()
        self.assertEqual(targets_of([large(net) for net in range(100, 200)], (), is_allowed), [])
        self.assertEqual(len(judged), MAX_CANDIDATES)
        one = large(10)
        self.assertLess(calls(lambda _: targets_of([one], (), is_allowed), b""), 200)

    def test_what_is_not_called(self) -> None:
        """Neither an address that was not agreed on, whether or not it answered, nor what TCP does not reach."""
        for odd in (
            shadow(self.ONE, port=None),
            shadow(self.ONE, protocol="UDP"),
            shadow({"addresses": []}),
            shadow(),
            shadow({"addresses": ["192.168.1.1"]}),
        ):
            self.assertEqual(found(odd, answered=[("192.168.1.1", 80)]), [])
