"""What could not be removed when a peering ended is removed later, however often the daemon restarts."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.web.server import Request

from liqod.kube.resources import CONFIGMAPS
from liqod.model.names import tenant_namespace
from liqod.model.records.unpeering import Order
from tests.scenario.case import FOREIGN, ScenarioCase
from tests.scenario.test_failures import Pair
from tests.scenario.test_unpeering import end, remains

REFUSAL = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"no"}'


def no_remains(pair: Pair) -> bool:
    """Return whether neither side keeps anything of the peering."""
    return not (remains(pair.rome) or remains(pair.milan))


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
        record = rome.object(FOREIGN, pair.milan.id)
        assert record is not None, "the record with its finalizer is what remembers the end"
        self.assertIn("deletionTimestamp", record["metadata"])
        self.assertIn("waiting for", record["status"]["message"])
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

    def test_a_lender_without_its_api_server(self) -> None:
        """Its API server is down for ten minutes while the borrower ends the peering and restarts twice: nothing stays.

        Also when the borrower's daemon is not there when the lender is back.
        """
        for back_first in (False, True):
            pair = Pair(self.scene())
            scene, rome, milan = pair.scene, pair.rome, pair.milan
            milan.stop_api()
            end(pair, 0, Order())
            scene.world.run(20)
            rome.kill()
            rome.start()
            scene.world.run(200)
            rome.kill()
            scene.world.run(30)
            if not back_first:
                rome.start()
            scene.world.run(350)
            milan.start_api()
            if back_first:
                scene.world.run(120)
                rome.start()
            scene.becomes("nothing is left on either side", partial(no_remains, pair), 900)

    def test_a_namespace_that_does_not_go(self) -> None:
        """A tenant namespace that somebody holds back keeps the record, across a restart, until it is gone."""
        pair = Pair(self.scene())
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        name = tenant_namespace(milan.id)
        held = {"metadata": {"name": "held", "namespace": name, "finalizers": ["example.com/held"]}}
        scene.do(rome.client.create(CONFIGMAPS, held))
        end(pair, 0, Order())
        for _ in range(2):
            scene.world.run(300)
            record = rome.object(FOREIGN, milan.id) or {}
            self.assertIn(name, record["status"]["message"])
            rome.kill()
            rome.start()
        scene.do(rome.client.patch(CONFIGMAPS, "held", {"metadata": {"finalizers": None}}, name))
        scene.becomes("nothing is left", lambda: not remains(rome), 120)
