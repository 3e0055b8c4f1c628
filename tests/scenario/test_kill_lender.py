"""``kill -9`` at any event of the lender's daemon."""

from __future__ import annotations

from hypothesis import given

from tests.scenario.kills import EVENTS_OF_LENDER, KillCase, points
from tests.scenario.profile import profile


class LenderTests(KillCase):
    """The lender's daemon is killed and started again, the other one goes on."""

    def test_any_event(self) -> None:
        """Wherever the lender's daemon is killed, the pods there are not touched, and new ones come when it is back."""
        given(points(EVENTS_OF_LENDER))(profile(5)(lambda points: self.run_points(points, 1)))()
        print(f"{self.points} kills, {self.landed} of them while work was under way")
