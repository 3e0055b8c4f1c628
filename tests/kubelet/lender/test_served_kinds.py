"""Which kinds both sides serve, of those that not every API server has."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.controller import After
from liqod.flow.observe import Latest
from liqod.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from liqod.kube.resources import GRPCROUTES, HTTPROUTES, Resource
from liqod.kubelet.common.readiness import Readiness, not_ready
from liqod.kubelet.common.refusals import SETTLING_TIME
from liqod.kubelet.lender.health import ANSWERS
from liqod.kubelet.lender.served_kinds import LOOKED_AT, UNANSWERED, ServedKinds
from tests.kube.cases import logged

ABSENT = NotFound(404, "NotFound", "the server could not find the requested resource")
REFUSED = Forbidden(403, "Forbidden", "httproutes is forbidden")


class Server:
    """Serves all kinds but those with an error."""

    def __init__(self, **errors: KubeError) -> None:
        self.errors = errors
        self.asked: list[tuple[str, str]] = []

    async def page(self, resource: Resource, namespace: str, view: Any, *, limit: int) -> None:
        assert limit == 1
        self.asked.append((resource.plural, namespace))
        if (error := self.errors.get(resource.plural)) is not None:
            raise error


class Health:
    """Of the lender."""

    def __init__(self) -> None:
        self.state: Latest[Readiness] = Latest(ANSWERS)

    @property
    def ok(self) -> bool:
        return self.state.value.ready


class ServedKindsTests(SynchronousTestCase):
    """Two kinds, at home and at a lender."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.home, self.lender = Server(), Server()
        self.health = Health()
        self.found: list[tuple[str, str]] = []
        kinds = (HTTPROUTES, GRPCROUTES)
        self.served = ServedKinds(self.clock, cast(Any, self.home), kinds, health=cast(Any, self.health), lender="rome")
        self.follow("shop")

    def follow(self, local: str) -> None:
        def found(kind: Resource) -> None:
            self.found.append((local, kind.plural))

        self.served.follow(local, cast(Any, self.lender), f"{local}-there", found)

    def step(self, local: str = "shop") -> After | None:
        return self.successResultOf(Deferred.fromCoroutine(self.served.reconcile(local)))

    def test_both_serve_them(self) -> None:
        """Each is found once, and nothing is asked for again."""
        self.assertIsNone(self.step())
        self.assertEqual(self.found, [("shop", "httproutes"), ("shop", "grpcroutes")])
        self.assertEqual(self.lender.asked, [("httproutes", "shop-there"), ("grpcroutes", "shop-there")])
        self.assertIsNone(self.step())
        self.assertEqual((len(self.found), len(self.home.asked)), (2, 2))

    def test_what_a_side_lacks(self) -> None:
        """The other kind goes; what is lacking is asked for after a time, and said once, with the side."""
        lines = logged(self, LogLevel.info)
        for server, where in ((self.home, "this cluster"), (self.lender, "the lender")):
            self.found.clear()
            self.follow("shop")
            server.errors = {"httproutes": ABSENT}
            for _ in range(3):
                self.assertEqual(self.step(), After(LOOKED_AT))
                self.clock.advance(LOOKED_AT)
            self.assertEqual(self.found, [("shop", "grpcroutes")])
            (line,) = lines
            self.assertIn(where, line["detail"])
            self.assertEqual((line["peer"], line["kind"]), ("rome", "httproutes.gateway.networking.k8s.io"))
            server.errors = {}
            self.assertIsNone(self.step())
            self.assertEqual(self.found[-1], ("shop", "httproutes"))
            lines.clear()

    def test_many_namespaces(self) -> None:
        """What is absent for one is absent for all: it is not asked for once more for each."""
        self.home.errors = {"httproutes": ABSENT, "grpcroutes": ABSENT}
        for number in range(20):
            self.follow(f"n{number}")
            self.assertEqual(self.step(f"n{number}"), After(LOOKED_AT))
        self.assertEqual((len(self.home.asked), self.lender.asked), (2, []))

    def test_what_a_lender_does_not_grant(self) -> None:
        """One of an older release has no right to give to it: that may be so in one namespace and not in another."""
        self.lender.errors = {"httproutes": REFUSED}
        self.clock.advance(SETTLING_TIME)
        self.assertEqual(self.step(), After(LOOKED_AT))
        self.lender.errors = {}
        self.follow("other")
        self.assertIsNone(self.step("other"))

    def test_a_grant_without_effect_yet(self) -> None:
        """Soon after a namespace was granted 403 is no answer: it is asked for again soon, and nothing is said."""
        lines = logged(self, LogLevel.info)
        self.lender.errors = {"httproutes": REFUSED}
        self.assertEqual((self.step(), lines), (After(UNANSWERED), []))
        self.lender.errors = {}
        self.clock.advance(UNANSWERED)
        self.assertIsNone(self.step())
        self.assertIn(("shop", "httproutes"), self.found)

    def test_without_an_answer(self) -> None:
        """Unknown is not absent: it is asked for again soon, and nothing is said."""
        lines = logged(self, LogLevel.info)
        self.lender.errors = {"httproutes": Unreachable("no route to host")}
        self.assertEqual(self.step(), After(UNANSWERED))
        self.assertEqual(self.found, [("shop", "grpcroutes")])
        self.assertEqual(lines, [])

    def test_a_lender_that_does_not_answer(self) -> None:
        """Nobody is asked anything until it answers, home neither; then every namespace has its turn at once."""
        self.health.state.set(not_ready("PeerUnreachable", "no answer"))
        self.follow("other")
        self.served.startService()
        self.addCleanup(self.served.stopService)
        self.clock.pump([UNANSWERED] * 10)
        self.assertEqual((self.home.asked, self.lender.asked), ([], []))
        self.health.state.set(ANSWERS)
        self.clock.pump([0.1] * 10)
        self.assertEqual({local for local, _ in self.found}, {"shop", "other"})

    def test_a_namespace_that_is_closed(self) -> None:
        """It is not opened by an answer that comes later, nor asked for."""
        self.served.forget("shop")
        self.assertIsNone(self.step())
        self.assertEqual((self.found, self.home.asked), ([], []))
