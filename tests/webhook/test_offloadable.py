"""What holds of the admission policies for pods without an API server; the rest is shown on real ones."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.model.records.offloading import BOTH, REMOTE, Policy
from liqod.webhook import offloadable, placement


class OffloadableTests(SynchronousTestCase):
    def test_the_webhook_leaves_it_alone(self) -> None:
        """A pod that a policy made tolerant is tolerant to the webhook too, in another form than its own."""
        pod = {"spec": {"tolerations": [dict(offloadable.TOLERATION)]}}
        for strategy in (BOTH, REMOTE):
            paths = [one["path"] for one in placement.mutations(pod, Policy(strategy))]
            self.assertEqual([path for path in paths if "tolerations" in path], [])
        self.assertNotEqual(offloadable.TOLERATION, placement.TOLERATION)

    def test_right_in_either_order(self) -> None:
        """The policy that takes away is invoked again after the other one, which is invoked once."""
        refined, added = (one["spec"] for one in offloadable.policies())
        self.assertEqual((refined["reinvocationPolicy"], added["reinvocationPolicy"]), ("IfNeeded", "Never"))
        # One whose conditions do not hold the first time would not be invoked again.
        self.assertNotIn("matchConditions", refined)
