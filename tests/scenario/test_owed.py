"""What could not be removed when a virtual node ended is removed later, however often the daemon restarts."""

from __future__ import annotations

from typing import Any

from twisted.web.server import Request

from liqod.model.records.unpeering import Order
from tests.scenario.case import ScenarioCase
from tests.scenario.test_failures import Pair
from tests.scenario.test_unpeering import end, remains

REFUSAL = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"no"}'


class OwedTests(ScenarioCase):
    """What an end of a peering could not remove at first is removed later."""

    def end_with_refusals(self, what: bytes, *, restart: bool = False) -> None:
        """End a peering while rome's API server refuses a kind of deletion, and for half an hour after that."""
        pair = Pair(self.scene())
        rome, render, open_ = pair.rome, pair.rome.door.render, False

        def refuse(request: Request) -> Any:
            if not open_ and request.method == b"DELETE" and what in request.path:
                request.setResponseCode(403)
                return REFUSAL
            return render(request)

        self.patch(rome.door, "render", refuse)
        end(pair, 0, Order())
        pair.scene.world.run(300 if restart else 30)
        if restart:
            rome.kill()
            rome.start()
        open_ = True
        pair.scene.world.run(1800)
        self.assertEqual(remains(rome), [])

    def test_node(self) -> None:
        """A node whose removal is refused once is removed."""
        self.end_with_refusals(b"/nodes/")

    def test_mapping(self) -> None:
        """A mapping of namespaces whose removal is refused once is removed."""
        self.end_with_refusals(b"/namespacenattingtables/")

    def test_restart(self) -> None:
        """What was refused until the daemon ended is removed by the one that is started next."""
        for what in (b"/nodes/", b"/namespacenattingtables/"):
            self.end_with_refusals(what, restart=True)
