"""Who may read the metrics: the holder of one token, or whom the cluster lets; and how much strangers cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import Unreachable
from liqod.kube.resources import ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from liqod.kube.reviews import AccessReview, TokenReview, UserInfo, _AccessStatus, _TokenStatus
from liqod.metrics.access import MAX_TOKEN, REREAD, Denied, OneToken
from liqod.metrics.callers import (
    KEPT,
    KEPT_FOR,
    PATIENCE,
    REFUSED_FOR,
    REVIEWS,
    WAITING,
    WAITING_PER_SOURCE,
    ClusterAccess,
)

PATH = "/metrics"
HERE = "192.0.2.1"


class Reviewer:
    """An API server that knows tokens and rights, and answers at once or when the test says."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.users = {"good": "prometheus", "weak": "somebody"}
        self.may = {("prometheus", "get", PATH)}
        self.at_once = at_once
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.open: list[tuple[Deferred[Any], Any]] = []

    def create(self, resource: Resource, body: Mapping[str, Any], *, view: type) -> Deferred[Any]:
        """Review a token, or a right."""
        spec = body["spec"]
        self.asked.append((resource.kind, spec))
        if resource is TOKEN_REVIEWS:
            name = self.users.get(spec["token"], "")
            answer: Any = TokenReview(status=_TokenStatus(authenticated=bool(name), user=UserInfo(username=name)))
        else:
            assert resource is ACCESS_REVIEWS
            wanted = spec["nonResourceAttributes"]
            allowed = (spec["user"], wanted["verb"], wanted["path"]) in self.may
            answer = AccessReview(status=_AccessStatus(allowed=allowed))
        waiting: Deferred[Any] = Deferred()
        if self.at_once:
            waiting.callback(answer)
        else:
            self.open.append((waiting, answer))
        return waiting

    def answer(self) -> None:
        """Answer the oldest review."""
        waiting, answer = self.open.pop(0)
        waiting.callback(answer)


class AccessCase(SynchronousTestCase):
    """Calls, and what becomes of them."""

    def outcome(self, call: Deferred[None]) -> int:
        """Return the code that a caller gets: 200 for one that is admitted."""
        denied: list[Denied] = []

        def refused(failure: Failure) -> None:
            failure.trap(Denied)
            assert isinstance(failure.value, Denied)
            denied.append(failure.value)

        self.assertIsNone(self.successResultOf(call.addErrback(refused)))
        return denied[0].code if denied else 200


class ClusterAccessTests(AccessCase):
    """Bearer tokens of the cluster."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.server: Any = Reviewer()
        self.access = ClusterAccess(lambda: self.server, self.clock)

    def call(self, token: bytes, source: str = HERE, path: str = PATH) -> Deferred[None]:
        return Deferred.fromCoroutine(self.access.admit(token, path, source))

    def slow(self) -> None:
        """Have the API server answer when the test says."""
        self.server = Reviewer(at_once=False)

    def test_who_gets_in(self) -> None:
        """Whom the API server knows, and lets get this path; another path is another right."""
        self.assertEqual(self.outcome(self.call(b"good")), 200)
        self.assertEqual(self.outcome(self.call(b"weak")), 403)
        self.assertEqual(self.outcome(self.call(b"bad")), 401)
        self.assertEqual(self.outcome(self.call(b"")), 401)
        self.assertEqual(self.outcome(self.call(b"good", path="/readyz")), 403)
        self.assertEqual({kind for kind, _ in self.server.asked}, {"TokenReview", "SubjectAccessReview"})

    def test_answers_are_remembered_for_a_while(self) -> None:
        """A scraper is reviewed once in a while, one that is refused again sooner; then the present answer counts."""
        for token, code, seconds in ((b"good", 200, KEPT_FOR), (b"weak", 403, REFUSED_FOR), (b"bad", 401, REFUSED_FOR)):
            self.outcome(self.call(token))
            count = len(self.server.asked)
            self.clock.advance(seconds - 0.1)
            self.assertEqual(self.outcome(self.call(token)), code)
            self.assertEqual(len(self.server.asked), count, token)
            self.clock.advance(0.1)
            self.assertEqual(self.outcome(self.call(token)), code)
            self.assertGreater(len(self.server.asked), count, token)
        self.server.users.clear()
        self.clock.advance(KEPT_FOR)
        self.assertEqual(self.outcome(self.call(b"good")), 401)

    def test_no_token_is_kept(self) -> None:
        """In memory are digests alone."""
        self.outcome(self.call(b"good"))
        self.outcome(self.call(b"bad"))
        kept = repr(self.access._admitted._values) + repr(self.access._refused._values)
        self.assertNotIn("'good'", kept)
        self.assertNotIn("b'bad'", kept)

    def test_a_flood_of_tokens(self) -> None:
        """Few are reviewed at a time and so many remembered; one that was admitted is not forgotten for them."""
        self.outcome(self.call(b"good"))
        asked = len(self.server.asked)
        for number in range(5 * KEPT):
            self.assertEqual(self.outcome(self.call(b"bad-%d" % number)), 401)
        self.assertEqual(len(self.access._refused), KEPT)
        self.assertEqual(len(self.server.asked), asked + 5 * KEPT)
        self.assertEqual(self.outcome(self.call(b"good")), 200)
        self.assertEqual(len(self.server.asked), asked + 5 * KEPT)

    def test_a_slow_api_server(self) -> None:
        """Few reviews are open at a time, few wait for one address, and all of them end with a sentence."""
        self.slow()
        calls = [self.call(b"a-%d" % number) for number in range(3 * WAITING)]
        self.assertEqual(len(self.server.open), REVIEWS)
        refused = [one for one in calls if one.called]
        self.assertEqual(len(refused), 3 * WAITING - WAITING_PER_SOURCE)
        others = [self.call(b"b-%d" % number, f"198.51.100.{number}") for number in range(3 * WAITING)]
        self.assertEqual(sum(not one.called for one in others), WAITING - WAITING_PER_SOURCE)
        self.clock.advance(PATIENCE + 0.1)
        self.assertEqual({self.outcome(one) for one in (*calls, *others)}, {503})
        self.assertEqual(self.access._waiting, {})
        self.assertEqual(self.clock.getDelayedCalls(), [])
        # None of that is remembered: as soon as it answers again everybody is reviewed.
        self.server = Reviewer()
        self.assertEqual(self.outcome(self.call(b"good")), 200)

    def test_who_waits_has_its_turn(self) -> None:
        """A scraper that waits behind strangers of other addresses is admitted when the API server answers."""
        self.slow()
        strangers = [self.call(b"b-%d" % number, f"198.51.100.{number}") for number in range(10)]
        scraper = self.call(b"good")
        while self.server.open:
            self.server.answer()
        self.assertEqual({self.outcome(one) for one in strangers}, {401})
        self.assertEqual(self.outcome(scraper), 200)

    def test_who_hangs_up(self) -> None:
        """A caller that is gone leaves its place to others, and no review behind."""
        self.slow()
        calls = [self.call(b"a-%d" % number) for number in range(WAITING_PER_SOURCE)]
        for call in calls:
            call.cancel()
            self.failureResultOf(call)
        self.assertEqual(self.access._waiting, {})
        self.assertEqual(self.clock.getDelayedCalls(), [])
        last = self.call(b"good")
        while self.server.open:
            waiting, answer = self.server.open.pop(0)
            if not waiting.called:
                waiting.callback(answer)
        self.assertEqual(self.outcome(last), 200)

    def test_what_is_no_token(self) -> None:
        """The API server is not asked about what is too long, or no ASCII text."""
        for token in (b"x" * (MAX_TOKEN + 1), b"\xff\xfe", "tök".encode()):
            self.assertEqual(self.outcome(self.call(token)), 401)
        self.assertEqual(self.server.asked, [])

    def test_no_api_server(self) -> None:
        """Before the daemon has one, and while it does not answer, nobody is admitted; the caller learns no address."""
        self.server = None
        self.assertEqual(self.outcome(self.call(b"good")), 503)
        error = Unreachable("https://10.0.0.1:6443: connection refused")
        self.server = type("Gone", (), {"create": lambda *_, **__: Failure(error).raiseException()})()
        call = self.call(b"good")
        denied = self.failureResultOf(call, Denied).value
        self.assertEqual((denied.code, denied.reason), (503, "ScrapeNotReviewed"))
        self.assertNotIn("10.0.0.1", denied.message)
        self.assertIn("10.0.0.1", str(denied))

    def test_odd_names(self) -> None:
        """A user's name reaches no terminal or log with what it would obey."""
        self.server.users["odd"] = "x\x1b[31m\n" + "y" * 1000
        denied = self.failureResultOf(self.call(b"odd"), Denied).value
        self.assertNotIn("\x1b", denied.message)
        self.assertNotIn("\n", denied.message)
        self.assertLess(len(denied.message), 300)


class OneTokenTests(AccessCase):
    """A token in a file."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.file = Path(self.mktemp())
        self.file.write_text("secret\n")
        self.access = OneToken(str(self.file), self.clock)

    def call(self, token: bytes) -> int:
        return self.outcome(Deferred.fromCoroutine(self.access.admit(token, PATH, HERE)))

    def test_the_token(self) -> None:
        """It admits, without the line feed at its end; nothing else does, a part of it or none at all."""
        self.assertEqual(self.call(b"secret"), 200)
        for wrong in (b"", b"secre", b"secret2", b"SECRET", b"x" * (MAX_TOKEN + 1)):
            self.assertEqual(self.call(wrong), 401, wrong)

    def test_another_token(self) -> None:
        """A new token in the file counts soon, and the former one no longer."""
        self.assertEqual(self.call(b"secret"), 200)
        self.file.write_text("other")
        self.clock.advance(REREAD)
        self.assertEqual((self.call(b"other"), self.call(b"secret")), (200, 401))

    def test_no_token(self) -> None:
        """A file that is empty, gone or huge admits nobody, an empty token least of all; the caller learns no path."""
        for make in (lambda: self.file.write_text("\n"), self.file.unlink, lambda: self.file.write_bytes(b"x" * 10**6)):
            make()
            self.clock.advance(REREAD)
            self.assertEqual((self.call(b""), self.call(b"secret"), self.call(b"x" * 10**6)), (503, 503, 503))
        denied = self.failureResultOf(Deferred.fromCoroutine(self.access.admit(b"", PATH, HERE)), Denied).value
        self.assertNotIn(str(self.file), denied.message)
        self.assertIn(str(self.file), str(denied))
        self.file.write_text("secret")
        self.clock.advance(REREAD)
        self.assertEqual(self.call(b"secret"), 200)
