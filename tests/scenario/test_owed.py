"""What could not be removed when a peering ended is removed later, however often the daemon restarts."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.web.server import Request

from liqod.kube.resources import CONFIGMAPS, VIRTUALNODES
from liqod.model.names import tenant_namespace
from liqod.model.records.unpeering import UnpeeringOrder
from tests.scenario.case import FOREIGN, SHADOWPODS, ScenarioCase, node_ready, offloaded
from tests.scenario.test_failures import Pair
from tests.scenario.test_unpeering import TABLES, end, remains

REFUSAL = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"no"}'


def no_remains(pair: Pair) -> bool:
    """Return whether neither side keeps anything of the peering."""
    return not (remains(pair.rome) or remains(pair.milan))


def owes_nothing(pair: Pair) -> bool:
    """Return whether the borrower has no mapping left at the lender."""
    return not any(table["spec"].get("nattingTable") for table in pair.rome.objects(TABLES))


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
        end(pair, 0, UnpeeringOrder())
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
            end(pair, 0, UnpeeringOrder())
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

    def delete_node(self, pair: Pair) -> None:
        """Cut the link between both sides, and delete the VirtualNode at rome; nothing is to run any more."""
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        for address in (milan.address, milan.api_address):
            scene.network.part(rome.address, address)
        scene.becomes("the lender is away", lambda: not node_ready(rome, milan), 120)
        scene.do(rome.client.delete(VIRTUALNODES, milan.id, tenant_namespace(milan.id)))
        for app in ("steady", "moving"):
            scene.scale(rome, app, 0)
        scene.world.run(60)

    def test_a_node_deleted_while_the_lender_is_away(self) -> None:
        """What a removed virtual node had at the lender is given back by the one that is made after it.

        Also when the daemon starts meanwhile.
        """
        for restart in (False, True):
            pair = Pair(self.scene())
            scene, rome, milan = pair.scene, pair.rome, pair.milan
            self.delete_node(pair)
            if restart:
                rome.kill()
                rome.start()
                scene.world.run(60)
            scene.network.heal()
            scene.becomes("the node is back", lambda a=rome, b=milan: node_ready(a, b), 300)  # type: ignore[misc]
            scene.becomes("no pod is left", lambda b=milan: not b.objects(SHADOWPODS), 120)  # type: ignore[misc]
            scene.becomes("nothing is owed", partial(owes_nothing, pair), 120)
            scene.scale(rome, "moving", 1)
            scene.becomes("a new one runs", partial(offloaded, rome, milan, "moving", 1), 300)

    def test_an_end_after_a_node_was_deleted(self) -> None:
        """What is owed to a lender that is away does not delay the end of the peering with it."""
        for order in (UnpeeringOrder(), UnpeeringOrder("dead")):
            pair = Pair(self.scene())
            self.delete_node(pair)
            self.assertFalse(owes_nothing(pair))
            end(pair, 0, order)
            if order.kind == "dead":
                pair.scene.becomes("rome is through", lambda p=pair: not remains(p.rome), 60)  # type: ignore[misc]
            else:
                leftovers = partial(pair.rome.objects, TABLES)
                pair.scene.becomes("the mapping is gone", lambda look=leftovers: not look(), 120)  # type: ignore[misc]
            pair.scene.network.heal()
            pair.scene.becomes("nothing is left on either side", partial(no_remains, pair), 900)

    def test_a_namespace_that_does_not_go(self) -> None:
        """A tenant namespace that somebody holds back keeps the record, across a restart, until it is gone."""
        pair = Pair(self.scene())
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        name = tenant_namespace(milan.id)
        held = {"metadata": {"name": "held", "namespace": name, "finalizers": ["example.com/held"]}}
        scene.do(rome.client.create(CONFIGMAPS, held))
        end(pair, 0, UnpeeringOrder())
        for _ in range(2):
            scene.world.run(300)
            record = rome.object(FOREIGN, milan.id) or {}
            self.assertIn(name, record["status"]["message"])
            rome.kill()
            rome.start()
        scene.do(rome.client.patch(CONFIGMAPS, "held", {"metadata": {"finalizers": None}}, name))
        scene.becomes("nothing is left", lambda: not remains(rome), 120)
