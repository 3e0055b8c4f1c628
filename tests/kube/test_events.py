"""Tests of liqod.kube.events over a server in memory."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.kube import events
from liqod.kube.events import EventRecorder, EventSource
from tests.kube.cases import Answer, memory_client, status

POD = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "u1"}


class EventTests(SynchronousTestCase):
    """What is written, and what is not."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.refusal: Answer = None
        client, self.server = memory_client(self.answer, self.clock)
        wall = datetime(2031, 1, 1, tzinfo=UTC)
        self.recorder = EventRecorder(client, self.clock, "liqod", "host1", wall=lambda: wall)

    def answer(self, request: Request) -> Answer:
        assert request.content is not None
        self.seen.append((f"{request.method.decode()} {request.uri.decode()}", json.loads(request.content.read())))
        return self.refusal or (201, {})

    def emit(self, reason: str = "Offloaded", regarding: dict[str, str] | None = None) -> None:
        self.recorder.record_event(regarding or POD, "Normal", reason, "the pod runs on c2")
        self.server.flush()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.server.flush()

    def test_an_event_says_what_who_and_when(self) -> None:
        """A new event is one POST with the object, the source and the time."""
        self.emit()
        [(line, body)] = self.seen
        self.assertEqual(line, "POST /api/v1/namespaces/ns/events")
        self.assertEqual(body["involvedObject"], POD)
        self.assertEqual((body["reason"], body["type"], body["count"]), ("Offloaded", "Normal", 1))
        self.assertEqual(body["source"], {"component": "liqod", "host": "host1"})
        self.assertEqual(body["firstTimestamp"], "2031-01-01T00:00:00Z")

    def test_an_event_of_another_source(self) -> None:
        """What is said for another component, such as a virtual node's kubelet, has its name and its node."""
        self.recorder.record_event(POD, "Normal", "Started", "it runs", EventSource("kubelet", "liqo-milan"))
        self.server.flush()
        [(_, body)] = self.seen
        self.assertEqual(body["source"], {"component": "kubelet", "host": "liqo-milan"})
        self.assertEqual((body["reportingComponent"], body["reportingInstance"]), ("kubelet", "liqo-milan"))

    def test_repetitions_are_counted_and_written_seldom(self) -> None:
        """A hundred equal events are one POST and, after ten seconds, one PATCH of the count."""
        for _ in range(100):
            self.emit()
        self.assertEqual(len(self.seen), 1)
        self.advance(10)
        name = self.seen[0][1]["metadata"]["name"]
        self.assertEqual(self.seen[1][0], f"PATCH /api/v1/namespaces/ns/events/{name}")
        self.assertEqual(self.seen[1][1]["count"], 100)
        self.advance(60)
        self.assertEqual(len(self.seen), 2)

    def test_cluster_scoped_objects_have_their_events_in_default(self) -> None:
        """An event about an object without a namespace goes to the namespace default."""
        self.emit(regarding={"apiVersion": "v1", "kind": "Node", "name": "n"})
        self.assertEqual(self.seen[0][0], "POST /api/v1/namespaces/default/events")

    def test_a_flood_is_dropped_not_queued(self) -> None:
        """Beyond the rate new events are dropped and counted; later ones are written again."""
        for number in range(80):
            self.emit(f"Reason{number}", {**POD, "namespace": f"ns{number}"})
        self.assertEqual((len(self.seen), self.recorder.dropped), (50, 30))
        self.advance(2)
        self.emit("Later")
        self.assertEqual(self.seen[-1][1]["reason"], "Later")

    def test_a_flood_from_one_namespace_leaves_room_for_others(self) -> None:
        """Half of the rate is for others: who makes pods fail there hides nothing of theirs."""
        for number in range(80):
            self.emit(f"Reason{number}")
        self.assertEqual((len(self.seen), self.recorder.dropped), (25, 55))
        self.emit("Refused", {**POD, "namespace": "other"})
        self.assertEqual(self.seen[-1][0], "POST /api/v1/namespaces/other/events")

    def test_a_flood_from_all_namespaces_leaves_room_for_the_cluster(self) -> None:
        """What is about peers and nodes is written whatever happens to pods."""
        for number in range(80):
            self.emit(f"Reason{number}", {**POD, "namespace": f"ns{number}"})
        self.emit("ClusterIDRepetition", {"apiVersion": "v1", "kind": "Node", "name": "n"})
        self.assertEqual(self.seen[-1][1]["reason"], "ClusterIDRepetition")

    def test_a_refused_event_is_nobody_s_trouble(self) -> None:
        """A failing API server fails nobody; the next occurrence is written again."""
        self.refusal = (403, status(403, "Forbidden"))
        self.emit()
        self.refusal = None
        self.emit()
        self.assertEqual([line.split()[0] for line, _ in self.seen], ["POST", "POST"])

    def test_an_event_that_the_server_forgot_is_written_again(self) -> None:
        """When the count cannot be written because the event expired, the next occurrence is a new event."""
        self.emit()
        self.emit()
        self.refusal = (404, status(404, "NotFound"))
        self.advance(10)
        self.refusal = None
        self.emit()
        self.assertEqual([line.split()[0] for line, _ in self.seen], ["POST", "PATCH", "POST"])

    def test_what_is_remembered_is_bounded(self) -> None:
        """Any number of distinct events takes bounded memory, and stopping leaves no timer."""
        self.patch(events, "REMEMBERED", 64)
        for number in range(300):
            for _ in range(2):
                self.recorder.record_event(POD, "Normal", f"Reason{number}", "again")
            self.clock.advance(0.25)
            if number % 10 == 0:
                self.server.flush()
        self.assertEqual(len(self.recorder._series), 64)
        self.successResultOf(self.recorder.stop())
        self.assertEqual([call for call in self.clock.getDelayedCalls() if "_recount" in str(call)], [])
