"""Reflection of one kind between two API servers in memory, in fake time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.web.server import Request

from liqod.flow.observe import Latest
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.events import Recorder
from liqod.kube.writing.merge_patch import apply_merge_patch
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.informers import NamespacedInformers
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.deletion_gate import DeletionGate
from liqod.kubelet.namespaces.deletion_judge import LossEvidence
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.reflection.forge.reflected import ForgeInputs
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.reflector import Reflector
from liqod.model.ids import ClusterID
from tests.kube.cases import Answer, memory_client, status

CONTEXT = Context(ClusterID("home"), ClusterID("lender"), "liqo-lender")


class Server:
    """One kind at one API server: objects, a watch, and the times of all writes."""

    def __init__(self, clock: MemoryReactorClock) -> None:
        self.clock = clock
        self.connect()
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[float, str]] = []
        self.watch: Request | None = None
        self.version = 10
        self.made = 0

    def connect(self) -> None:
        """Make a client, as a daemon does when it starts."""
        self.client, self.wire = memory_client(self.answer, self.clock)

    def answer(self, request: Request) -> Answer:
        if request.method == b"GET" and b"watch" not in request.args:
            found = self.objects.get(request.path.decode().rpartition("/")[2])
            return (200, found) if found is not None else (404, status(404, "NotFound"))
        if request.method == b"GET":
            request.notifyFinish().addErrback(lambda _: None)
            request.write(b"")
            self.watch = request
            for body in self.objects.values():
                self.send("ADDED", body)
            end = {"resourceVersion": str(self.version), "annotations": {"k8s.io/initial-events-end": "true"}}
            self.send("BOOKMARK", {"metadata": end})
            return None
        assert request.content is not None
        body = json.loads(request.content.read() or b"{}")
        name = body["metadata"]["name"] if request.method == b"POST" else request.path.decode().rpartition("/")[2]
        self.writes.append((self.clock.seconds(), name))
        return self.write(request.method, name, body)

    def write(self, method: bytes, name: str, body: dict[str, Any]) -> Answer:
        there = self.objects.get(name)
        if method == b"POST":
            if there is not None:
                return 409, status(409, "AlreadyExists")
            self.made += 1
            return 201, self.put(name, apply_merge_patch({"metadata": {"uid": f"u{self.made}"}}, body))
        wanted = body.get("preconditions") or body.get("metadata") or {}
        if there is None:
            return 404, status(404, "NotFound", kind="configmaps")
        if wanted.get("uid", there["metadata"]["uid"]) != there["metadata"]["uid"]:
            return 409, status(409, "Conflict")
        if method == b"DELETE":
            self.remove(name)
            return 200, {}
        return 200, self.put(name, apply_merge_patch(there, body))

    def remove(self, name: str) -> None:
        body = self.objects.pop(name, None)
        if body is not None:
            self.version += 1
            body["metadata"]["resourceVersion"] = str(self.version)
            self.send("DELETED", body)

    def put(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = body
        self.send(kind, body)
        return body

    def send(self, kind: str, body: Mapping[str, Any]) -> None:
        if self.watch is not None:
            self.watch.write(json.dumps({"type": kind, "object": body}).encode() + b"\n")


class Silent:
    """Takes events."""

    def record_event(
        self, regarding: Mapping[str, Any], type: str, reason: str, message: str, source: Any = None
    ) -> None:
        raise AssertionError(f"no event was expected: {reason} {message}")


class Surroundings:
    """What a reflector needs of its virtual kubelet: what is forged from, and lists of what was reported to it."""

    def __init__(self, sides: Sides) -> None:
        self.sides = sides

    def inputs(self, kind: Kind, local: str) -> ForgeInputs:
        return self.sides.inputs

    def namespace_missing(self, local: str) -> None:
        self.sides.lost.append(local)

    def export_requests_changed(self) -> None:
        self.sides.requested.append(self.sides.clock.seconds())

    def settled(self, local: str) -> None:
        self.sides.settled.append(local)


class Sides:
    """Two servers, and what a daemon runs between them; ``crash`` ends that at once, ``begin`` starts it again."""

    def __init__(self, kind: Kind, lender: type[Server] = Server, recorder: Recorder | None = None) -> None:
        self.kind = kind
        self.clock = MemoryReactorClock()
        self.home, self.lender = Server(self.clock), lender(self.clock)
        self.recorder: Recorder = recorder if recorder is not None else Silent()
        self.inputs = ForgeInputs(CONTEXT)
        self.begin()

    def begin(self) -> None:
        for server in (self.home, self.lender):
            server.connect()
        self.informers = Informers(self.home.client, self.clock)
        health = LenderHealth(self.clock, Latest(None), 3600.0)
        health.request_succeeded()
        self.lost: list[str] = []
        self.requested: list[float] = []
        self.settled: list[str] = []
        self.reflector = Reflector(
            self.clock,
            self.kind,
            context=CONTEXT,
            surroundings=Surroundings(self),
            informers=NamespacedInformers(self.informers),
            health=health,
            gate=DeletionGate(self.clock, "milan", LossEvidence),
            recorder=self.recorder,
            workers=4,
        )
        self.informers.startService()
        self.reflector.startService()
        remote = RemoteNamespace(self.clock, self.lender.client, "shop-home", CONTEXT)
        self.reflector.open_namespace("shop", remote)

    def crash(self) -> None:
        for server in (self.home, self.lender):
            server.watch = None
            server.wire.cut()
        self.reflector.stopService()
        self.informers.stopService()

    def flush(self) -> None:
        self.home.wire.flush()
        self.lender.wire.flush()

    def pass_time(self, seconds: float) -> None:
        """Let time pass in steps of a millisecond, and what was sent arrive."""
        for _ in range(max(1, round(seconds * 1000))):
            self.flush()
            self.clock.advance(0.001)
        self.flush()
