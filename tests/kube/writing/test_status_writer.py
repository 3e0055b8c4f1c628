"""Tests of liqod.kube.writing.status_writer and liqod.kube.writing.refusals."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.flow.backoff import Backoff
from liqod.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Throttled,
    Unreachable,
)
from liqod.kube.resources import PODS
from liqod.kube.writing.mutation_cache import Mutations
from liqod.kube.writing.refusals import READ_AGAIN, RefusedWrite, RefusedWrites, Retry, refused_write
from liqod.kube.writing.status_writer import StatusWriter, Written
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, ObjectMeta, View
from tests.kube.cases import Answer, MemoryServer, memory_client, status


class Status(View, frozen=True):
    """A status for tests."""

    phase: str = ""
    message: str | None = None


class Thing(Object, frozen=True):
    """A view with a status."""

    status: Status = Status()


KEY = Key("ns", "p")


def thing(version: str, phase: str = "", message: str | None = None) -> Thing:
    """Return a state of an object."""
    meta = ObjectMeta(name="p", namespace="ns", uid="u", resource_version=version)
    return Thing(metadata=meta, status=Status(phase=phase, message=message))


class StatusWriterTests(SynchronousTestCase):
    """Statuses are written only when they differ, only what differs, and only to the right object."""

    def setUp(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.answer: Answer = (200, {})
        self.clock = Clock()
        self.mutations: Mutations[Key, Thing] = Mutations(self.clock)
        self.server: MemoryServer
        self.client, self.server = memory_client(self.take)

    def take(self, request: Request) -> Answer:
        self.assertEqual((request.method, request.path), (b"PATCH", b"/api/v1/namespaces/ns/pods/p/status"))
        assert request.content is not None
        self.bodies.append(json.loads(request.content.read()))
        return self.answer

    def write(self, present: Thing, wanted: Status, *, versioned: bool = True) -> Written[Thing] | RefusedWrite:
        writer = StatusWriter(self.client, PODS, Thing, self.mutations, versioned=versioned)
        result = Deferred.fromCoroutine(writer.write(present, wanted))
        self.server.flush()
        return self.successResultOf(result)

    def test_an_equal_status_is_not_written(self) -> None:
        """Nothing is sent when the object has the status already."""
        present = thing("1", "Running")
        self.assertEqual(self.write(present, Status(phase="Running")), Written(present, changed=False))
        self.assertEqual(self.bodies, [])

    def test_what_differs_with_uid_and_version(self) -> None:
        """The smallest patch is sent, bound to the object and the state it was computed from; the answer is noted."""
        meta = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "2"}
        self.answer = 200, {"metadata": meta, "status": {"phase": "Failed"}}
        written = self.write(thing("1", "Failed", "why"), Status(phase="Failed"))
        self.assertEqual(self.bodies, [{"metadata": {"uid": "u", "resourceVersion": "1"}, "status": {"message": None}}])
        self.assertEqual(written, Written(thing("2", "Failed"), changed=True))
        self.assertEqual(self.mutations.newest(KEY, thing("1", "Failed", "why")), thing("2", "Failed"))

    def test_without_version(self) -> None:
        """A kind with many writers is bound by its UID alone."""
        self.answer = 200, {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "2"}}
        self.write(thing("1"), Status(phase="Running"), versioned=False)
        self.assertEqual(self.bodies[0]["metadata"], {"uid": "u"})

    def test_refusals_are_returned(self) -> None:
        """Every refusal comes back with its policy; after a lost race the watch is believed again."""
        for code, reason, retry in (
            (409, "Conflict", Retry.AT_ONCE),
            (404, "NotFound", Retry.ON_CHANGE),
            (422, "Invalid", Retry.ON_CHANGE),
            (403, "Forbidden", Retry.LATER),
        ):
            self.answer = code, status(code, reason, "no")
            self.mutations.wrote(KEY, thing("0"), thing("1"))
            self.assertEqual(self.write(thing("1"), Status(phase="Running")), RefusedWrite(retry, reason, "no"))
            self.assertEqual(len(self.mutations), 0 if code in (404, 409) else 1)

    def test_failures_are_raised(self) -> None:
        """What says nothing about the object is for the controller's back-off."""
        self.answer = 401, status(401, "Unauthorized")
        writer = StatusWriter(self.client, PODS, Thing, self.mutations)
        result = Deferred.fromCoroutine(writer.write(thing("1"), Status(phase="Running")))
        self.server.flush()
        self.failureResultOf(result, KubeError)


class RefusalsTests(SynchronousTestCase):
    """One policy for what the API server refuses."""

    def test_policy(self) -> None:
        """Each kind of refusal has one meaning."""
        cases: list[tuple[KubeError, bool, Retry]] = [
            (Conflict(409, "Conflict", ""), False, Retry.AT_ONCE),
            (AlreadyExists(409, "AlreadyExists", ""), True, Retry.AT_ONCE),
            (Gone(410, "Expired", ""), False, Retry.AT_ONCE),
            (NotFound(404, "NotFound", ""), False, Retry.ON_CHANGE),
            (NotFound(404, "NotFound", ""), True, Retry.LATER),
            (Invalid(422, "Invalid", ""), True, Retry.ON_CHANGE),
            (Forbidden(403, "Forbidden", ""), True, Retry.LATER),
            (Throttled(429, "TooManyRequests", ""), True, Retry.LATER),
            (Unreachable("no answer"), False, Retry.LATER),
        ]
        for error, creating, retry in cases:
            self.assertIs(refused_write(error, creating=creating).retry, retry, repr(error))

    def test_delays(self) -> None:
        """Later means later each time, at once means after the watch had its chance, on change means no timer."""
        refusals: RefusedWrites[str] = RefusedWrites(Backoff(5.0, jitter=0.0))
        later = refused_write(Forbidden(403, "Forbidden", "not allowed"))
        self.assertEqual([refusals.refused("a", later) for _ in range(3)], [5.0, 10.0, 20.0])
        self.assertEqual(refusals.get("a"), later)
        refusals.forget("a")
        self.assertEqual((refusals.refused("a", later), refusals.get("b")), (5.0, None))
        self.assertIsNone(refusals.refused("b", refused_write(Invalid(422, "Invalid", ""))))
        self.assertEqual(refusals.refused("c", refused_write(Conflict(409, "Conflict", ""))), READ_AGAIN)
        self.assertEqual(len(refusals), 2)

    def test_the_servers_pause(self) -> None:
        """The server's Retry-After is the least that is waited."""
        error = Throttled(429, "TooManyRequests", "")
        error.retry_after = 90.0
        self.assertEqual(RefusedWrites[str]().refused("a", refused_write(error)), 90.0)
