"""One borrower, three lenders, and room for fewer: who is taken, what the user decides, what is given back."""

from __future__ import annotations

import msgspec
from kubesandbox.kinds.kinds import NODES

from liqod.config import schema
from liqod.config.schema import Settings
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS
from tests.scenario.case import OFFERS, SMALL, ScenarioCase, Scene, node_ready
from tests.scenario.side import Side

LENDERS = ("milan", "turin", "genoa")


class PolicyTests(ScenarioCase):
    def meet(self, policy: str, maximum: int) -> Scene:
        """Have a borrower with a policy that trusts three lenders, and is trusted."""

        def change(settings: Settings) -> Settings:
            acceptance = msgspec.convert({"policy": policy, "maximum": maximum}, schema.AcceptanceSettings)
            return msgspec.structs.replace(settings, acceptance=acceptance)

        scene = self.scene()
        self.rome = scene.side("rome", nodes=(SMALL,), peers=(2, 3, 4), change=change)
        self.lenders = [scene.side(name) for name in LENDERS]
        for side in scene.sides:
            side.start()
        scene.acquaint(*((self.rome, lender) for lender in self.lenders))
        scene.becomes("all offers are there", lambda: len(self.phases()) == 3 and "" not in self.phases().values())
        scene.world.run(5)
        return scene

    def phases(self) -> dict[str, str]:
        """Return the phase of each offer, by the lender's name."""
        names = {f"advertisement-{lender.id}": lender.name for lender in self.lenders}
        return {
            names[offer["metadata"]["name"]]: offer.get("status", {}).get("phase", "")
            for offer in self.rome.objects(OFFERS)
        }

    def accepted(self) -> set[str]:
        return {name for name, phase in self.phases().items() if phase == "Accepted"}

    def nodes(self) -> set[str]:
        """Return the lenders whose node is ready."""
        return {lender.name for lender in self.lenders if node_ready(self.rome, lender)}

    def settles(self, scene: Scene, *names: str) -> None:
        """See that these lenders, and no others, are accepted and have nodes; and that it stays so."""
        wanted = set(names)
        scene.becomes(f"{names} are accepted and have nodes", lambda: self.accepted() == wanted == self.nodes(), 120)
        scene.world.run(30)
        self.assertEqual((self.accepted(), self.nodes()), (wanted, wanted))
        virtual = {node["metadata"]["name"] for node in self.rome.objects(NODES)} - {"node"}
        self.assertEqual(virtual, {f"liqo-{name}" for name in names})

    def decide(self, scene: Scene, lender: str, decision: str) -> None:
        name = f"advertisement-{self.lender(lender).id}"
        change = {"spec": {"decision": decision}}
        scene.do(self.rome.client.patch(ADVERTISEMENTS, name, change, view=None))

    def lend(self, scene: Scene, lender: str, switch: str) -> None:
        """Let a lender's administrator say whether it lends to rome."""
        change = {"spec": {"incomingPeering": switch}}
        client = self.lender(lender).client
        scene.do(client.patch(FOREIGNCLUSTERS, self.rome.id, change, view=None))

    def lender(self, name: str) -> Side:
        return self.lenders[LENDERS.index(name)]

    def first(self) -> list[str]:
        """Return the lenders, those that were accepted first."""
        return sorted(LENDERS, key=lambda name: (name not in self.accepted(), LENDERS.index(name)))

    def test_room_for_one(self) -> None:
        """One of three is taken; when the user refuses it the next is, and one that the user wants is in any case."""
        scene = self.meet("AutoAcceptMax", 1)
        self.assertEqual(len(self.accepted()), 1)
        one = self.first()[0]
        self.settles(scene, one)
        self.decide(scene, one, "Refuse")
        scene.becomes("another is taken", lambda: self.accepted() and one not in self.accepted(), 60)
        two = self.accepted().pop()
        three = ({*LENDERS} - {one, two}).pop()
        self.settles(scene, two)
        self.decide(scene, three, "Accept")
        self.settles(scene, two, three)
        self.decide(scene, one, "Auto")
        self.settles(scene, two, three)  # it has to wait: there is no room

    def test_room_for_two(self) -> None:
        """An offer that is withdrawn makes room for the one that waited; offered again, it waits itself."""
        scene = self.meet("AutoAcceptMax", 2)
        one, two, three = self.first()
        self.settles(scene, one, two)
        self.lend(scene, one, "No")
        self.settles(scene, two, three)
        self.lend(scene, one, "Auto")
        self.settles(scene, two, three)
        self.lend(scene, two, "No")
        self.settles(scene, one, three)

    def test_restart_keeps_seats(self) -> None:
        """Who is in stays in, whichever daemons are killed and in whatever order they come back."""
        scene = self.meet("AutoAcceptMax", 2)
        one, two, _ = self.first()
        self.settles(scene, one, two)
        for victims in (scene.sides[:1], scene.sides[1:], scene.sides):
            for side in victims:
                side.kill()
            scene.world.run(20)
            for side in reversed(victims):
                side.start()
            scene.becomes("all lead", lambda: all(side.daemon.ready.is_open for side in scene.sides))
            scene.world.run(60)
            self.settles(scene, one, two)

    def test_by_hand(self) -> None:
        """With the policy Manual nothing is taken unless the user says so, and it goes when the user says so."""
        scene = self.meet("Manual", 5)
        self.settles(scene)
        self.decide(scene, "turin", "Accept")
        self.settles(scene, "turin")
        self.decide(scene, "milan", "Accept")
        self.settles(scene, "milan", "turin")
        self.decide(scene, "turin", "Refuse")
        self.settles(scene, "milan")
