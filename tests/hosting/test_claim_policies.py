"""What the admission policies let a borrower do with the volume that its claim is bound to."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.hosting.tenants.test_policies import BORROWERS, asked, claim


class BoundVolumeTests(SynchronousTestCase):
    """One update of a claim, and one claim that is made."""

    def test_table(self) -> None:
        """The volume is neither named, changed nor taken away, and whatever else is updated passes with it."""
        for before, after, allowed in (
            ("mine", "mine", True),
            (None, None, True),
            ("mine", "of-others", False),
            (None, "of-others", False),
            ("mine", None, False),
        ):
            refused = asked(BORROWERS[0], "persistentvolumeclaims", claim(volumeName=after), claim(volumeName=before))
            self.assertIs(not refused, allowed, (before, after, refused))
        self.assertFalse(asked(BORROWERS[0], "persistentvolumeclaims", claim()))
        self.assertTrue(asked(BORROWERS[0], "persistentvolumeclaims", claim(volumeName="of-others")))
