"""A peering ends while the lender's API server is away for ten minutes, and the borrower's daemon restarts twice."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from tests.real.daemons import Daemon
from tests.real.endings import TOMBSTONE, EndingTests
from tests.testbed.process import CommandFailed

AWAY: Final = 600.0
RESTARTS: Final = (120.0, 360.0)
"""Seconds after which the borrower's daemon is killed and started again."""
LATEST: Final = 900.0
"""Seconds until all is clean: what failed is tried again every six minutes in the end."""


class UnpeerAwayTests(EndingTests):
    """Two pods of rome run at milan, whose daemon stays and can do nothing."""

    def test_ten_minutes_and_two_restarts(self) -> None:
        """Afterwards nothing of the peering is left at either side."""
        self.peer()
        begin = time.monotonic()
        self.milan.cluster.lose_control_plane()
        try:
            said = self.unpeer()
            self.assertIn("notified when it reconnects", said)
            for seconds in RESTARTS:
                self.wait_until(begin + seconds)
                self.rome.kill()
                self.rome.start()
            self.wait_until(begin + AWAY)
        finally:
            self.milan.cluster.restore_control_plane(kubelet=True)
        self.tidy()
        back = time.monotonic()
        for daemon, before in zip((self.rome, self.milan), self.before, strict=True):
            self.clean(daemon, before, back + LATEST)

    def unpeer(self) -> str:
        """End the peering at rome; return what the command says, whether or not it waits in vain."""
        try:
            return self.rome.liqodctl("unpeer", "milan", "--yes", "--timeout=30", timeout=200)
        except CommandFailed as error:
            return error.output

    def wait_until(self, moment: float) -> None:
        """Sleep until a moment of the monotonic clock."""
        time.sleep(max(0.0, moment - time.monotonic()))

    def clean(self, daemon: Daemon, before: dict[str, object], until: float) -> None:
        """Wait until a cluster is as before the peering, but for what rome remembers of its end."""
        allowed = (TOMBSTONE,) if daemon is self.rome else ()
        look = partial(self.as_before, daemon, before, allowed)
        while True:
            try:
                return look()
            except AssertionError:
                if time.monotonic() > until:
                    raise
