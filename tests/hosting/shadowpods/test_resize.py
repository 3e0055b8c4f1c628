"""What counts against an offer while a pod is resized, and when a resize is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
from twisted.internet.task import deferLater

from liqod.hosting.views import Pod
from liqod.kube.errors import from_status
from liqod.kube.resources import PODS, Resource
from liqod.model.records.views import ShadowPod, ShadowPodSpec
from tests.hosting.shadowpods.test_controller import KEY, REQUEST, ControllerCases, shadow


class ResizeCases(ControllerCases):
    """A pod of one CPU runs, of an offer of five; no case."""

    def setUp(self) -> None:
        super().setUp()
        self.answer: Exception | None = None
        self.resizes = 0
        self.sizes: list[Any] = []

        async def patch(resource: Resource, name: str, body: Any, namespace: str, **options: Any) -> Any:
            await deferLater(self.clock, REQUEST)
            if options.get("subresource") == "resize":
                self.resizes += 1
                self.sizes.append(body)
                if self.answer is not None:
                    raise self.answer

        async def get(resource: Resource, name: str, namespace: str = "", **options: Any) -> Any:
            await deferLater(self.clock, REQUEST)
            assert resource is PODS
            return self.pods.get(KEY)

        self.server.patch = patch  # type: ignore[method-assign]
        self.server.get = get  # type: ignore[method-assign]
        self.shadows.put(shadow())
        self.start()
        self.pass_time(1.0)
        self.pods.put(self.shown())
        self.pass_time(1.0)

    def shown(self, cpu: str = "1", **status: Any) -> Pod:
        """Return the pod as the API server has it, of a size."""
        (body,) = self.server.bodies
        spec = msgspec.json.decode(msgspec.json.encode(body["spec"]))
        spec["containers"][0]["resources"]["requests"]["cpu"] = cpu
        changed = {**body["metadata"], "uid": "p1", "resourceVersion": f"{10 + self.clock.seconds()}"}
        return msgspec.convert(
            {**body, "metadata": changed, "spec": spec, "status": {"phase": "Running", **status}}, Pod
        )

    def request(self, cpu: str) -> None:
        """Have the borrower ask for another size."""
        one = shadow()
        spec: dict[str, Any] = msgspec.json.decode(bytes(one.spec.pod))
        spec["containers"][0]["resources"]["requests"]["cpu"] = cpu
        changed: ShadowPod = msgspec.structs.replace(
            one, spec=ShadowPodSpec(pod=msgspec.Raw(msgspec.json.encode(spec)))
        )
        self.shadows.put(changed)
        self.pass_time(1.0)

    @property
    def counted(self) -> Fraction | None:
        return self.controller.capacity.used("borrower").get("cpu")


class RefusedResizeTests(ResizeCases):
    """A size that the API server refuses does not count; the one that the pod has does."""

    def refuse(self, code: int) -> None:
        self.answer = from_status(code, b'{"message": "the pod QoS class may not change as a result of resizing"}')

    def test_smaller(self) -> None:
        """No capacity is freed, whatever the refusal is."""
        for number, code in enumerate((422, 404, 403, 500, 429), 1):
            self.refuse(code)
            self.request(f"{number}00m")
            self.assertEqual(self.counted, Fraction(1), f"after {code}")
        self.assertGreaterEqual(self.resizes, 5)

    def test_larger(self) -> None:
        """Nothing is counted that the pod did not get."""
        for number, code in enumerate((422, 404, 403, 500, 429), 1):
            self.refuse(code)
            self.request(f"{3 + number / 10}")
            self.assertEqual(self.counted, Fraction(1), f"after {code}")


class LimitedResizeTests(ResizeCases):
    """At the level ``hard`` a resize raises no limit above the offer either."""

    def request_limit(self, cpu: str, limit: str) -> None:
        """Have the borrower ask for another size and limit."""
        one = shadow()
        resources = {"requests": {"cpu": cpu}, "limits": {"cpu": limit}}
        spec = {"containers": [{"name": "main", "image": "web:1", "resources": resources}]}
        self.shadows.put(msgspec.structs.replace(one, spec=ShadowPodSpec(pod=msgspec.Raw(msgspec.json.encode(spec)))))
        self.pass_time(1.0)

    def test_beyond_the_offer(self) -> None:
        """What a limit is beyond the offer is not given, and not asked for again."""
        self.assertEqual(self.pods.get(KEY).spec.containers[0].resources.limits, {"cpu": "5"})
        for limit in ("500", "900", "0"):
            self.request_limit("2", limit)
        (first, *more) = self.sizes
        self.assertEqual([one["value"] for one in first[1:]], ["2"], "the request alone")
        self.pods.put(self.shown("2"))
        self.pass_time(600.0)
        self.request_limit("2", "700")
        self.assertEqual(len(self.sizes), 1 + len(more))
        self.assertEqual(self.counted, Fraction(2))


class AcceptedResizeTests(ResizeCases):
    """What a node still holds for a pod counts, as the scheduler counts it (KEP-1287)."""

    def test_smaller(self) -> None:
        """A pod that becomes smaller counts with its old size until its node has taken that back."""
        self.request("500m")
        self.assertEqual((self.resizes, self.counted), (1, Fraction(1)), "the API server has not shown it yet")
        held = {"name": "main", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
        self.pods.put(self.shown("500m", containerStatuses=[held]))
        self.pass_time(1.0)
        self.assertEqual(self.counted, Fraction(1), "the node has not done it yet")
        held = {"name": "main", "allocatedResources": {"cpu": "500m"}, "resources": {"requests": {"cpu": "1"}}}
        self.pods.put(self.shown("500m", containerStatuses=[held]))
        self.pass_time(1.0)
        self.assertEqual(self.counted, Fraction(1), "the container still has it")
        held = {"name": "main", "allocatedResources": {"cpu": "500m"}, "resources": {"requests": {"cpu": "500m"}}}
        self.pods.put(self.shown("500m", containerStatuses=[held]))
        self.pass_time(1.0)
        self.assertEqual(self.counted, Fraction(1, 2))

    def test_larger(self) -> None:
        """A pod that becomes larger counts with its new size at once."""
        self.request("3")
        self.assertEqual((self.resizes, self.counted), (1, Fraction(3)))
        self.pods.put(self.shown("3"))
        self.pass_time(1.0)
        self.assertEqual(self.counted, Fraction(3))
