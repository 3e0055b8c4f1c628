"""A storm of endpoint changes, in fake time: few writes, the right end; and daemons that end at any moment."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.forge.reflected import ForgeInputs
from liqod.kubelet.reflection.kinds import CONFIGMAP, ENDPOINTSLICE
from tests.kubelet.networks import LenderObjects
from tests.kubelet.reflection.sides import CONTEXT, Sides

SLICES = 3


def slice_of(name: str, number: int) -> dict[str, Any]:
    addresses = [f"10.0.{number // 250}.{1 + number % 250}"]
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": addresses, "conditions": {"ready": True}}],
    }


class BurstTests(SynchronousTestCase):
    """A reflector of slices between two servers in memory."""

    def setUp(self) -> None:
        self.sides = Sides(ENDPOINTSLICE)
        self.sides.pass_time(0.1)

    def test_storm(self) -> None:
        """Of 1000 changes a second for 10 s at most two a second are written per slice, and the last one is."""
        began = self.sides.clock.seconds()
        for number in range(10_000):
            name = f"db-{number % SLICES}"
            self.sides.home.put(name, slice_of(name, number))
            self.sides.pass_time(0.001)
        self.sides.pass_time(1.0)
        for index in range(SLICES):
            name = f"db-{index}"
            times = [at - began for at, written in self.sides.lender.writes if written == name]
            self.assertGreater(len(times), 15)
            for start in times:
                self.assertLessEqual(len([at for at in times if start <= at < start + 0.999]), 2)
            latest = self.sides.home.objects[name]["endpoints"][0]["addresses"]
            self.assertEqual(self.sides.lender.objects[name]["spec"]["template"]["endpoints"][0]["addresses"], latest)
        count = len(self.sides.lender.writes)
        self.sides.pass_time(3.0)
        self.assertEqual(len(self.sides.lender.writes), count)

    def test_quiet(self) -> None:
        """An hour without changes takes no write, and a change of what does not travel takes none either."""
        self.sides.home.put("db-0", slice_of("db-0", 1))
        self.sides.pass_time(0.1)
        self.assertEqual(len(self.sides.lender.writes), 1)
        body = slice_of("db-0", 1)
        body["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"}
        body["endpoints"].append({"addresses": ["10.9.9.9"], "nodeName": "liqo-lender"})
        inputs = ForgeInputs(CONTEXT, home=LenderObjects(nodes=("liqo-lender",)))
        self.sides.inputs = inputs
        self.sides.home.put("db-0", body)
        self.sides.pass_time(0.1)
        for _ in range(60):
            self.sides.clock.advance(60.0)
            self.sides.home.wire.flush()
            self.sides.lender.wire.flush()
        self.assertEqual(len(self.sides.lender.writes), 1)


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.sampled_from(["1", "2", "3"])),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("remove at the lender"), NAMES),
        st.tuples(st.just("pass"), st.integers(1, 4)),
        st.tuples(st.just("flush home")),
        st.tuples(st.just("flush lender")),
        st.tuples(st.just("crash")),
    ),
    max_size=25,
)


class CrashTests(SynchronousTestCase):
    """A daemon that ends at any moment, requests under way or not, and another that goes on."""

    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(STEPS)
    def test_end_state(self, steps: list[tuple[Any, ...]]) -> None:
        """Whatever happened, the lender ends up with what is at home and nothing else, and then nothing is written."""
        sides = Sides(CONFIGMAP)
        uids = 0
        for what, *details in steps:
            match what:
                case "put":
                    name, value = details
                    known = sides.home.objects.get(name)
                    uids += 1
                    uid = known["metadata"]["uid"] if known is not None else f"h{uids}"
                    metadata = {"name": name, "namespace": "shop", "uid": uid}
                    sides.home.put(name, {"metadata": metadata, "data": {"v": value}})
                case "remove":
                    sides.home.remove(details[0])
                case "remove at the lender":
                    sides.lender.remove(details[0])
                case "pass":
                    sides.pass_time(details[0] / 1000)
                case "flush home":
                    sides.home.wire.flush()
                case "flush lender":
                    sides.lender.wire.flush()
                case "crash":
                    sides.crash()
                    sides.begin()
        for _ in range(100):
            sides.flush()
            sides.clock.advance(0.5)
        mine = {name: body["data"] for name, body in sides.home.objects.items()}
        self.assertEqual({name: body["data"] for name, body in sides.lender.objects.items()}, mine)
        count = len(sides.lender.writes)
        sides.crash()
        sides.begin()
        for _ in range(100):
            sides.flush()
            sides.clock.advance(0.5)
        self.assertEqual(len(sides.lender.writes), count)
