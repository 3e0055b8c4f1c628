"""What a host loses again and again of what its agent makes."""

from __future__ import annotations

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.kernel.model import (
    DesiredNodeKernel,
    NetworkInterface,
    ObservedKernel,
    ObservedNodeKernel,
    ObservedOverlay,
    Overlay,
)
from liqod.fabric.agent.undone import TIMES, Losses, absent, absent_of_node
from tests.fabric.agent.test_plan import DESIRED, observed_after

WHOLE = observed_after()


class AbsentTests(SynchronousTestCase):
    """What is missing, in words."""

    def test_gateway(self) -> None:
        """Each part has its words; of a device that is gone its keys and routes are not missed as well."""
        assert WHOLE.tunnel is not None
        for seen, words in (
            (WHOLE, []),
            (attrs.evolve(WHOLE, rules=None), ["the nftables table inet liqod"]),
            (attrs.evolve(WHOLE, routes={}), ["routes of the table 18952"]),
            (attrs.evolve(WHOLE, tunnel=attrs.evolve(WHOLE.tunnel, peers={})), ["a peer's key on the device liqod"]),
            (ObservedKernel(rules=WHOLE.rules), ["the device liqod"]),
        ):
            self.assertEqual(sorted(absent(DESIRED, seen)), words)

    def test_node(self) -> None:
        """So it is on a host that is no gateway."""
        wanted = DesiredNodeKernel(Overlay("liqod-vx", 1, 4789, "192.0.2.2", 1400, (), 18952), (), ())
        seen = ObservedNodeKernel(ObservedOverlay(NetworkInterface(1400, up=True)), rules=WHOLE.rules)
        self.assertEqual(absent_of_node(wanted, seen), frozenset())
        self.assertEqual(
            absent_of_node(wanted, ObservedNodeKernel()), {"the device liqod-vx", "the nftables table inet liqod"}
        )


class LossesTests(SynchronousTestCase):
    """What is lost again and again."""

    def passes(self, losses: Losses, wanted: str, missing: str, *, fails: bool = False) -> None:
        losses.note(wanted, frozenset(missing.split()))
        if not fails:
            losses.made(wanted)

    def test_again_and_again(self) -> None:
        """What is missing in each of some passes that want the same is named, and no more once a pass found it."""
        losses = Losses()
        for wanted in ("one", *["two"] * TIMES):
            self.passes(losses, wanted, "routes")
            self.assertEqual(losses.sentence, "", "what is wanted for the first time was not lost")
        self.passes(losses, "two", "routes")
        self.assertIn("something on this host removes routes again and again", losses.sentence)
        self.passes(losses, "three", "routes rules")
        self.assertIn("routes", losses.sentence, "a change of what is wanted proves nothing")
        self.passes(losses, "three", "")
        self.assertEqual(losses.sentence, "")

    def test_what_cannot_be_made(self) -> None:
        """What a pass failed to make was not removed by anybody."""
        losses = Losses()
        for _ in range(3 * TIMES):
            self.passes(losses, "one", "rules", fails=True)
            self.assertEqual(losses.sentence, "")
        for _ in range(TIMES + 1):
            self.passes(losses, "one", "rules")
        self.assertIn("rules", losses.sentence)
        self.passes(losses, "one", "rules", fails=True)
        self.passes(losses, "one", "rules", fails=True)
        self.assertEqual(losses.sentence, "", "now it is another thing that is wrong")
