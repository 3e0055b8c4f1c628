"""Bad input to reflection, in fake time: what the lender refuses, what is huge or odd, or changes in a millisecond."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.forge.secret import TOKEN_TYPE
from liqod.kubelet.reflection.kinds import CONFIGMAP, SECRET, Kind
from tests.kube.cases import Answer, status
from tests.kubelet.reflection.sides import Server, Sides

REFUSALS: Mapping[str, tuple[int, str, str]] = {
    "quota": (403, "Forbidden", 'configmaps "bad" is forbidden: exceeded quota: few, requested: count/configmaps=1'),
    "webhook": (400, "BadRequest", 'admission webhook "names.example.com" denied the request: no such names'),
    "policy": (422, "Invalid", 'ConfigMap "bad" is invalid: a policy of the lender says no'),
    "immutable": (422, "Invalid", 'ConfigMap "bad" is invalid: data: Forbidden: field is immutable when set'),
    "length": (422, "Invalid", 'ConfigMap "bad" is invalid: metadata.name: must be no more than 253 characters'),
    "size": (413, "RequestEntityTooLarge", "limit is 3145728"),
}


class Refusing(Server):
    """Refuses whatever is called ``bad``, while it has a reason to."""

    refusal: tuple[int, str, str] | None = None

    def write(self, method: bytes, name: str, body: dict[str, Any]) -> Answer:
        if name == "bad" and self.refusal is not None:
            code, reason, message = self.refusal
            return code, status(code, reason, message)
        return super().write(method, name, body)


class Events:
    """Keeps the events that were emitted."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    def record_event(
        self, regarding: Mapping[str, Any], type: str, reason: str, message: str, source: Any = None
    ) -> None:
        self.seen.append((regarding["name"], reason, message))


def sides(kind: Kind = CONFIGMAP) -> tuple[Sides, Refusing, Events]:
    """Return two servers with the reflector between them, the lender one that can refuse, and what is reported at
    home.
    """
    made = Sides(kind, Refusing)
    lender, reported = made.lender, Events()
    assert isinstance(lender, Refusing)
    made.crash()
    made.recorder = reported
    made.begin()
    made.pass_time(0.1)
    return made, lender, reported


def put(server: Server, name: str, uid: str = "", **data: Any) -> None:
    """Make or change an object of a server as somebody there does."""
    server.put(name, {"metadata": {"name": name, "namespace": "shop", "uid": uid or f"uid-{name}"}, **data})


class RefusalTests(SynchronousTestCase):
    """Each refusal is reported in the lender's words, insisted on ever more slowly, and concerns nobody else."""

    def test_a_name_that_is_free_again(self) -> None:
        """An object that had the name when it was to be created, and is gone when it is looked for, is no refusal."""
        both, lender, reported = sides()
        both.clock.advance(11)
        lender.refusal = 409, "AlreadyExists", 'configmaps "bad" already exists'
        put(both.home, "bad", data={"a": "1"})
        both.pass_time(0.1)
        lender.refusal = None
        both.pass_time(2)
        self.assertEqual((list(lender.objects), reported.seen), (["bad"], []))

    def test_each(self) -> None:
        """Reported at home in the lender's words; a few attempts in an hour; others go at once; it goes when it may."""
        for what, refusal in REFUSALS.items():
            both, lender, reported = sides()
            lender.refusal = refusal
            put(both.home, "bad", data={"a": "1"})
            put(both.home, "good", data={"a": "1"})
            both.pass_time(0.1)
            self.assertIn("good", lender.objects, what)
            both.clock.advance(11)
            both.pass_time(0.1)
            name, reason, message = reported.seen[0]
            self.assertEqual(name, "bad", what)
            self.assertTrue(reason.startswith("Remote"), what)
            self.assertIn(refusal[2][:60], message, what)
            for _ in range(360):
                both.clock.advance(10)
                both.flush()
            self.assertLess(len([name for _, name in lender.writes if name == "bad"]), 25, what)
            lender.refusal = None
            for _ in range(40):
                both.clock.advance(10)
                both.flush()
            self.assertEqual(lender.objects["bad"]["data"], {"a": "1"}, what)
            both.crash()

    def test_a_change_is_tried_soon(self) -> None:
        """What was refused is tried again within seconds when it changes at home, not only after the back-off."""
        both, lender, _ = sides()
        lender.refusal = REFUSALS["policy"]
        put(both.home, "bad", data={"a": "1"})
        for _ in range(60):
            both.clock.advance(10)
            both.flush()
        lender.refusal = None
        put(both.home, "bad", data={"a": "2"})
        both.pass_time(1.5)
        self.assertEqual(lender.objects["bad"]["data"], {"a": "2"})
        both.crash()

    def test_an_object_in_the_way(self) -> None:
        """An object of the lender's own with the name is not touched, however often; the home object says so."""
        both, lender, reported = sides()
        lender.objects["mine"] = {"metadata": {"name": "mine", "namespace": "shop-home", "uid": "x"}, "data": {}}
        before = json.dumps(lender.objects["mine"])
        lender.write = lambda method, name, body: (409, status(409, "AlreadyExists"))  # type: ignore[method-assign]
        put(both.home, "mine", data={"a": "1"})
        for _ in range(60):
            both.clock.advance(10)
            both.flush()
        self.assertEqual(json.dumps(lender.objects["mine"]), before)
        self.assertEqual({reason for name, reason, _ in reported.seen if name == "mine"}, {"RemoteNameTaken"})
        both.crash()

    def test_a_token_that_stays(self) -> None:
        """That a token of a service account stays at home is said once with what to do, unless that is wanted."""
        both, lender, reported = sides(SECRET)
        put(both.home, "token", type=TOKEN_TYPE)
        both.pass_time(0.1)
        put(both.home, "token", type=TOKEN_TYPE, data={"token": "eHg="})
        both.reflector.enqueue_all()
        both.pass_time(0.1)
        ((name, reason, message),) = reported.seen
        self.assertEqual((name, reason), ("token", "NotReflected"))
        self.assertIn("never expires; mount the pod's own token", message)
        both.inputs = attrs.evolve(both.inputs, listing="AllowList")
        put(both.home, "other", type=TOKEN_TYPE)
        both.pass_time(0.1)
        self.assertEqual((len(reported.seen), lender.writes), (1, []))
        both.crash()


class OddInputTests(SynchronousTestCase):
    def test_the_same_name_within_a_millisecond(self) -> None:
        """An object that is deleted and made again at once, many times, ends as the last one of its name."""
        both, lender, _ = sides()
        for number in range(50):
            put(both.home, "conf", f"u{number}", data={"number": str(number)}, immutable=bool(number % 2))
            if number % 3 == 0:
                both.pass_time(0.001)
            both.home.remove("conf")
        put(both.home, "conf", "last", data={"number": "last"})
        both.pass_time(3)
        both.clock.advance(30)
        both.pass_time(1)
        self.assertEqual(lender.objects["conf"]["data"], {"number": "last"})
        self.assertNotIn("immutable", lender.objects["conf"])
        both.home.remove("conf")
        both.clock.advance(30)
        both.pass_time(1)
        self.assertEqual(lender.objects, {})
        both.crash()

    def test_a_huge_object(self) -> None:
        """The largest config map that an API server keeps travels whole, and is not sent again."""
        both, lender, _ = sides()
        data = {f"key-{number}": "x" * 100_000 for number in range(10)}
        put(both.home, "huge", data=data)
        both.pass_time(0.2)
        self.assertEqual(lender.objects["huge"]["data"], data)
        writes = len(lender.writes)
        put(both.home, "other", data={"a": "1"})
        both.pass_time(0.2)
        self.assertEqual(len(lender.writes), writes + 1)
        both.crash()

    def test_thousands(self) -> None:
        """Thousands of objects are each written once."""
        both, lender, _ = sides()
        for number in range(2000):
            put(both.home, f"conf-{number}", data={"a": str(number)})
        for _ in range(3000):
            both.pass_time(0.001)
            if len(lender.objects) == 2000:
                break
        self.assertEqual(len(lender.objects), 2000)
        self.assertEqual(len(lender.writes), 2000)
        both.crash()

    def test_bytes_that_are_no_text(self) -> None:
        """What is no text travels as the base64 that it is in the API; what is no UTF-8 harms no other object."""
        both, lender, reported = sides(SECRET)
        odd = base64.b64encode(bytes(range(256))).decode()
        put(both.home, "odd", data={"raw": odd}, type="Opaque")
        assert both.home.watch is not None
        both.home.watch.write(
            b'{"type":"ADDED","object":{"metadata":{"name":"bad","namespace":"shop","uid":"b",'
            b'"resourceVersion":"9999"},"type":"Opaque","data":{"k":"\xff\xfe"}}}\n'
        )
        both.home.watch.write(b'{"type":"ADDED","object":{"metadata":{"name":"\xff","namespace":"shop"}}}\n')
        put(both.home, "after", data={"raw": odd}, type="Opaque")
        both.pass_time(1)
        self.assertEqual([(name, reason) for name, reason, _ in reported.seen], [("bad", "UnreadableObject")])
        self.assertEqual(lender.objects["odd"]["data"], {"raw": odd})
        self.assertEqual(lender.objects["after"]["data"], {"raw": odd})
        self.assertNotIn("bad", lender.objects)
        put(both.home, "bad", "b", data={"k": odd}, type="Opaque")
        both.pass_time(1)
        both.clock.advance(400)
        both.pass_time(1)
        self.assertEqual(lender.objects["bad"]["data"], {"k": odd})
        both.crash()
