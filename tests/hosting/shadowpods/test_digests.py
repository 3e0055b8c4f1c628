"""What of a ShadowPod asks for a change of the running pod, and of its size: by digests."""

from __future__ import annotations

import copy
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.shadowpods import forge
from tests.hosting.shadowpods.test_forge import shadow


def container(name: str, cpu: str = "1", image: str = "a:1", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, "resources": {"requests": {"cpu": cpu}}, **more}


SPEC: dict[str, Any] = {
    "containers": [container("main"), container("second")],
    "initContainers": [container("first"), container("side", restartPolicy="Always")],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "activeDeadlineSeconds": 600,
    "volumes": [{"name": "v", "emptyDir": {}}],
}


def digests(spec: dict[str, Any], **metadata: dict[str, str]) -> tuple[str, str]:
    """Return the digest of what can be changed, and that of the size."""
    made = shadow(spec, **metadata)
    return forge.digest_of(made), forge.size_of(made)


def edited(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """Return the spec with one thing changed."""
    spec = copy.deepcopy(SPEC)
    inner: Any = spec
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return spec


class DigestTests(SynchronousTestCase):
    """Two ShadowPods that differ in one thing."""

    def test_what_can_be_changed_is_seen(self) -> None:
        """Images of all containers, tolerations, the deadline, containers for debugging, labels and annotations."""
        before = digests(SPEC)
        for path, value in (
            (("containers", 0, "image"), "a:2"),
            (("containers", 1, "image"), "a:2"),
            (("initContainers", 0, "image"), "a:2"),
            (("initContainers", 1, "image"), "a:2"),
            (("tolerations",), []),
            (("tolerations", 0, "key"), "b"),
            (("activeDeadlineSeconds",), 601),
            (("ephemeralContainers",), [{"name": "debugger"}]),
        ):
            after = digests(edited(path, value))
            self.assertNotEqual(after[0], before[0], path)
            self.assertEqual(after[1], before[1], path)
        self.assertNotEqual(digests(SPEC, labels={"a": "b"})[0], before[0])
        self.assertNotEqual(digests(SPEC, annotations={"a": "b"})[0], before[0])

    def test_the_size_is_that_of_what_runs_on(self) -> None:
        """Containers and sidecars can be resized; an ordinary init container that is over cannot."""
        before = digests(SPEC)
        for path, seen in (
            (("containers", 0), True),
            (("containers", 1), True),
            (("initContainers", 1), True),
            (("initContainers", 0), False),
        ):
            after = digests(edited((*path, "resources", "requests", "cpu"), "2"))
            self.assertEqual([after[0] != before[0], after[1] != before[1]], [seen, seen], path)

    def test_what_cannot_be_changed_asks_for_nothing(self) -> None:
        """Nor does what is only written otherwise, or is this cluster's to say."""
        before = digests(SPEC)
        self.assertEqual(digests(edited(("volumes",), [])), before)
        self.assertEqual(digests(SPEC, labels={"liqo.io/managed-by": "me"}), before)
        self.assertEqual(digests(SPEC, annotations={"kubernetes.io/config.mirror": "x"}), before)
        plain = {key: value for key, value in SPEC.items() if key != "tolerations"}
        written: dict[str, Any]
        for written in ({"tolerations": []}, {"tolerations": None}):
            self.assertEqual(digests({**plain, **written}), digests(plain))
        alone = {"containers": SPEC["containers"]}
        for written in ({"initContainers": []}, {"initContainers": None}, {"ephemeralContainers": None}):
            self.assertEqual(digests({**alone, **written}), digests(alone))
