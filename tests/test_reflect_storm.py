"""A storm of endpoint changes, in fake time: few writes, the right end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.flow.observe import Latest
from liqod.kube.informers import Informers
from liqod.kubelet.forge.patches import merged
from liqod.kubelet.forge.place import Place
from liqod.kubelet.forge.reflected import Context
from liqod.kubelet.reach import Reach
from liqod.kubelet.reflect.homes import Homes
from liqod.kubelet.reflect.kinds import ENDPOINTSLICE
from liqod.kubelet.reflect.reflector import Reflector
from liqod.kubelet.remote import RemoteNamespace
from liqod.model.ids import ClusterID
from tests.kube_cases import Answer, memory_client

PLACE = Place(ClusterID("home"), ClusterID("lender"), "liqo-lender")
SLICES = 3


class Server:
    """One kind at one API server: objects, a watch, and the times of all writes."""

    def __init__(self, clock: MemoryReactorClock) -> None:
        self.clock = clock
        self.client, self.wire = memory_client(self.answer, clock)
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[float, str]] = []
        self.watch: Request | None = None
        self.version = 10

    def answer(self, request: Request) -> Answer:
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
        body = json.loads(request.content.read())
        name = request.path.decode().rpartition("/")[2] if request.method == b"PATCH" else body["metadata"]["name"]
        self.writes.append((self.clock.seconds(), name))
        return 200, self.put(name, merged(self.objects.get(name, {"metadata": {"uid": f"u-{name}"}}), body))

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

    def emit(self, regarding: Mapping[str, Any], type: str, reason: str, message: str) -> None:
        raise AssertionError(f"nothing should be told: {reason} {message}")


def slice_of(name: str, number: int) -> dict[str, Any]:
    addresses = [f"10.0.{number // 250}.{1 + number % 250}"]
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": addresses, "conditions": {"ready": True}}],
    }


class Storm(SynchronousTestCase):
    """A reflector of slices between two servers in memory."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.home, self.lender = Server(self.clock), Server(self.clock)
        self.informers = Informers(self.home.client, self.clock)
        reach = Reach(self.clock, Latest(None), 3600.0)
        reach.heard()
        context = Context(PLACE, objection=lambda annotations: "")
        self.lost: list[str] = []
        self.reflector = Reflector(
            self.clock,
            ENDPOINTSLICE,
            PLACE,
            Homes(self.informers),
            reach,
            Silent(),
            4,
            lambda local: context,
            self.lost.append,
        )
        self.informers.startService()
        self.reflector.startService()
        remote = RemoteNamespace(self.clock, self.lender.client, "shop-home", PLACE, lambda name: None)
        self.reflector.begin("shop", remote)
        self.pass_time(0.1)

    def pass_time(self, seconds: float) -> None:
        """Let time pass in steps of a millisecond, and what was sent arrive."""
        for _ in range(max(1, round(seconds * 1000))):
            self.home.wire.flush()
            self.lender.wire.flush()
            self.clock.advance(0.001)
        self.home.wire.flush()
        self.lender.wire.flush()

    def test_storm(self) -> None:
        """Of 1000 changes a second for 10 s at most two a second are written per slice, and the last one is."""
        began = self.clock.seconds()
        for number in range(10_000):
            name = f"db-{number % SLICES}"
            self.home.put(name, slice_of(name, number))
            self.pass_time(0.001)
        self.pass_time(1.0)
        for index in range(SLICES):
            name = f"db-{index}"
            times = [at - began for at, written in self.lender.writes if written == name]
            self.assertGreater(len(times), 15)
            for start in times:
                self.assertLessEqual(len([at for at in times if start <= at < start + 0.999]), 2)
            latest = self.home.objects[name]["endpoints"][0]["addresses"]
            self.assertEqual(self.lender.objects[name]["spec"]["template"]["endpoints"][0]["addresses"], latest)
        count = len(self.lender.writes)
        self.pass_time(3.0)
        self.assertEqual(len(self.lender.writes), count)

    def test_quiet(self) -> None:
        """An hour without changes takes no write, and a change of what does not travel takes none either."""
        self.home.put("db-0", slice_of("db-0", 1))
        self.pass_time(0.1)
        self.assertEqual(len(self.lender.writes), 1)
        body = slice_of("db-0", 1)
        body["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"}
        body["endpoints"].append({"addresses": ["10.9.9.9"], "nodeName": "liqo-lender"})
        context = Context(PLACE, objection=lambda annotations: "", is_there=lambda node: node == "liqo-lender")
        self.patch(self.reflector, "_context", lambda local: context)
        self.home.put("db-0", body)
        self.pass_time(0.1)
        for _ in range(60):
            self.clock.advance(60.0)
            self.home.wire.flush()
            self.lender.wire.flush()
        self.assertEqual(len(self.lender.writes), 1)
