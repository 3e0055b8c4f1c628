"""What a lender says of a pod that is not for it to say, or cannot be."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.context import Context
from liqod.kubelet.pods.restarts import tally
from liqod.kubelet.pods.status import forge_status
from liqod.model.ids import ClusterID
from liqod.model.objects.quantity import parse

CONTEXT = Context(home=ClusterID("rome"), lender=ClusterID("milan"), node_name="liqo-milan", node_address="10.0.0.9")
NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T01:00:00Z"


def ended(at: str, container: str = "c1", **state: Any) -> dict[str, Any]:
    """Return the status of a pod whose container ended, with one date everywhere."""
    terminated = {"exitCode": 1, "startedAt": at, "finishedAt": at, "containerID": container}
    main = {"name": "main", "containerID": container, "state": {"terminated": terminated}, **state}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": at, "lastProbeTime": None}
    return {"startTime": at, "containerStatuses": [main], "conditions": [ready]}


class HostileStatusTests(SynchronousTestCase):
    def forge(
        self, home: dict[str, Any], remote: dict[str, Any], spec: dict[str, Any] | None = None, now: str = NOW
    ) -> dict[str, Any]:
        return forge_status(
            home,
            remote,
            tally=tally(None, home, "r1", remote),
            context=CONTEXT,
            now=now,
            spec=spec or {},
        )

    def test_gates_are_the_homes(self) -> None:
        """A lender that says that a readiness gate is open does not open it, nor close one that is open at home."""
        spec = {"readinessGates": [{"conditionType": "example.com/lb"}]}
        gate = {"type": "example.com/lb", "status": "True"}
        said = {"conditions": [gate, {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}]}
        forged = self.forge({}, said, spec)
        self.assertEqual([one["type"] for one in forged["conditions"]], ["Ready"])
        self.assertEqual(forged["conditions"][0]["status"], "False")
        said["conditions"][0] = {**gate, "status": "False", "reason": "Mine"}
        self.assertIn(gate, self.forge({"conditions": [gate]}, said, spec)["conditions"])

    def test_containers_of_the_pod(self) -> None:
        """Only the pod's own containers are shown, each once, whatever else the lender tells of."""
        spec = {"containers": [{"name": "main"}], "initContainers": [{"name": "first"}]}
        reported = {
            "containerStatuses": [{"name": "injected", "image": "x"}, {"name": "main"}, {"name": "main", "image": "y"}],
            "initContainerStatuses": [{"name": "main"}, {"name": "first"}],
        }
        forged = self.forge({}, reported, spec)
        self.assertEqual(forged["containerStatuses"], [{"name": "main", "restartCount": 0}])
        self.assertEqual([one["name"] for one in forged["initContainerStatuses"]], ["first"])

    def test_resources_beyond_the_pods_own(self) -> None:
        """The quotas of home count what a status says that a container, or the pod, was given: at most what it asks."""
        asked = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1"}}
        for container, pod in ((asked, {}), ({}, asked)):
            spec = {"containers": [{"name": "main", "resources": container}], "resources": pod}
            for lie in ("1000000", "1Ei", "9" * 30, "-5", "much", ["1"], None, 0.5):
                many = dict.fromkeys(("cpu", "memory", "nvidia.com/gpu"), lie)
                said = {"allocatedResources": many, "resources": {"requests": many, "limits": many}}
                forged = self.forge({}, {"containerStatuses": [{"name": "main", **said}], **said}, spec)
                for shown, own in ((forged["containerStatuses"][0], container), (forged, pod)):
                    given = shown.get("resources") or {}
                    if not own:
                        self.assertEqual((given, shown.get("allocatedResources")), ({}, None))
                        continue
                    for found, most in (
                        (shown["allocatedResources"], asked["requests"]),
                        (given["requests"], asked["requests"]),
                        (given["limits"], asked["limits"]),
                    ):
                        self.assertEqual(found.keys(), most.keys())
                        for name, amount in found.items():
                            self.assertTrue(0 <= parse(str(amount)) <= parse(most[name]), (lie, name, amount))

    def test_resources_of_a_pod_that_is_made_smaller(self) -> None:
        """Until its node has taken the difference back it has the old amounts, and then never more than the new."""
        spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}]}

        def shown(before: str, said: str) -> str:
            home = {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": before}}]}
            remote = {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": said}}]}
            return str(self.forge(home, remote, spec)["containerStatuses"][0]["allocatedResources"]["cpu"])

        self.assertEqual((shown("1", "1"), shown("1", "2"), shown("500m", "1")), ("1", "1", "500m"))
        self.assertEqual((shown("1", "250m"), shown("250m", "500m")), ("250m", "500m"))

    def test_names_that_are_none(self) -> None:
        """What is no name of an image and no ID of a container is not shown: terminals and scanners at home read it."""
        spec = {"containers": [{"name": "main"}], "ephemeralContainers": [{"name": "debug"}]}
        fine = {
            "image": "registry.example:5000/a/b:1.2_3",
            "imageID": "docker-pullable://registry.example:5000/a/b@sha256:0a1b",
            "containerID": "containerd://0a1b",
        }
        names: tuple[Any, ...] = (
            "\x1b[2J",
            "a b",
            "a\nb",
            "--flag",
            "x" * 600,
            "",
            7,
            None,
            {},
            "\u0430bc",
            "$(id)",
            "../etc",
        )
        for name in names:
            odd = dict.fromkeys(fine, name)
            for given, shown in ((fine, fine), (odd, dict.fromkeys(fine, ""))):
                said = {
                    "containerStatuses": [{"name": "main", **given}],
                    "ephemeralContainerStatuses": [{"name": "debug", **given}],
                }
                forged = self.forge({}, said, spec)
                for kind in said:
                    found = {key: str(forged[kind][0][key]) for key in fine}
                    self.assertEqual(found, shown, (name, kind))

    def test_restarts_that_cannot_be(self) -> None:
        """A count that no API server takes is shown as the largest or the least that it does."""
        for said, shown in ((2**40, 2**31 - 1), (-5, 0)):
            forged = self.forge({}, {"containerStatuses": [{"name": "main", "restartCount": said}]})
            self.assertEqual(forged["containerStatuses"][0]["restartCount"], shown)

    def test_dates_that_have_not_come(self) -> None:
        """They are shown as the present one, and stay so: the status is not written again at each pass."""
        for date in ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00", "2026-01-01T00:00:01Z", "never"):
            said = ended(date, lastState={"running": {"startedAt": date}})
            said["initContainerStatuses"] = [{"name": "first", "state": {"running": {"startedAt": date}}}]
            said["ephemeralContainerStatuses"] = [{"name": "debug", "state": {"running": {"startedAt": date}}}]
            spec = {"ephemeralContainers": [{"name": "debug"}]}
            forged = self.forge({}, said, spec)
            self.assertNotIn(date, str(forged))
            self.assertEqual(str(forged).count(NOW), 7)
            if date > LATER:
                self.assertNotIn(LATER, str(self.forge(forged, said, spec, now=LATER)))
        for date in (NOW, "2025-12-31T23:59:59.5Z", "2026-01-01T02:00:00+02:00"):
            said = ended(date)
            self.assertEqual(
                self.forge({}, said)["containerStatuses"][0]["state"], said["containerStatuses"][0]["state"]
            )
            self.assertEqual(self.forge({}, said)["conditions"][0]["lastTransitionTime"], date)

    def test_another_container_with_a_date_that_has_not_come(self) -> None:
        """It ended now, not when the one before it did."""
        first = self.forge({}, ended("9999-12-31T23:59:59Z"))
        second = self.forge(first, ended("9999-12-31T23:59:59Z", "c2"), now=LATER)
        self.assertEqual(second["containerStatuses"][0]["state"]["terminated"]["finishedAt"], LATER)
