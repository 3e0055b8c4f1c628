"""``kill -9`` at any event of the borrower's daemon."""

from __future__ import annotations

from hypothesis import given

from tests.scenario.kills import EVENTS_OF_BORROWER, KillCase, points
from tests.scenario.profile import profile


class BorrowerTests(KillCase):
    """The borrower's daemon is killed and started again, the other one goes on."""

    def test_any_event(self) -> None:
        """Wherever the borrower's daemon is killed, its pods come to the end that was asked for, each of them once."""
        given(points(EVENTS_OF_BORROWER))(profile(5)(lambda points: self.run_points(points, 0)))()
        print(f"{self.points} kills, {self.landed} of them while work was under way")
