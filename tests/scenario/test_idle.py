"""Time without changes costs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from liqod.config import schema
from liqod.config.schema import Settings
from tests.scenario.case import ScenarioCase, offloaded, unchanged

HOUR = 3600.0
LEASES = {("update", "leases"), ("patch", "leases")}
PODS = 3
EXPIRING = {
    ("create", "serviceaccounts/token"): 1 + 2 * PODS,
    ("patch", "secrets"): 1 + 2 * PODS,
    ("patch", "advertisements/status"): 3,
}
"""What an hour costs with tokens of an hour, the peer's and those of pods, and offers of half an hour: each is renewed
before it ends.
"""


def lasting(settings: Settings) -> Settings:
    """Return settings with which nothing expires within a day."""
    return msgspec.structs.replace(
        settings, hosting=schema.HostingSettings(token_lifetime=86400), sharing=schema.SharingSettings(ttl=86400.0)
    )


class IdleTests(ScenarioCase):
    def an_hour(self, limits: Mapping[tuple[str, str], int], *, last: bool) -> None:
        scene = self.scene()
        rome, milan = scene.peered(lasting if last else unchanged)
        scene.deploy(rome, "web", PODS, tokens=not last)
        scene.becomes("three run", lambda: offloaded(rome, milan, "web", PODS))
        scene.world.run(60)  # what settles, settles
        before = [(Counter(side.door.requests), side.door.writes()) for side in scene.sides]
        scene.world.run(HOUR)
        for side, (requests, writes) in zip(scene.sides, before, strict=True):
            seen = side.door.requests - requests
            print(side.name, {f"{verb} {what}": count for (_, verb, what), count in sorted(seen.items())})
            beyond = {what: count for what, count in (side.door.writes() - writes).items() if what not in LEASES}
            self.assertEqual({what: count for what, count in beyond.items() if count > limits.get(what, 0)}, {})
        self.assertTrue(offloaded(rome, milan, "web", 3))

    def test_nothing(self) -> None:
        """In an hour in which nothing changes and nothing expires the daemons write nothing but leases."""
        self.an_hour({}, last=True)

    def test_renewals(self) -> None:
        """With short-lived tokens and offers they write nothing but leases, and what would expire otherwise."""
        self.an_hour(EXPIRING, last=False)
