"""The oracle inside of pods, by a table: what each finding looks like, and that an ordinary pod has none."""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.variations.inside import Report, Surroundings, breaches, capabilities, is_over, parse
from tests.variations.pods import forbidden_objects
from tests.variations.probe import CANARY, SCRIPT, probing

DEFAULT: Final = 0xA80425FB
"""The capabilities of a container that names none (containerd's defaults)."""
LINE: Final[dict[str, Any]] = {
    "probe": "main",
    "uid": 0,
    "gid": 0,
    "capabilities": f"{DEFAULT:016x}",
    "bounding": f"{DEFAULT:016x}",
    "seccomp": 0,
    "no_new_privileges": 0,
    "namespaces": {"pid": "11", "net": "12", "ipc": "13", "uts": "14", "mnt": "15"},
    "devices": 0,
    "masked": True,
    "writable": False,
    "files": [],
    "sockets": [],
    "tokens": [],
    "reached": [],
}
NODE: Final = {"pid": "1", "net": "2", "ipc": "3", "uts": "4", "mnt": "5"}


def report(**changes: Any) -> Report:
    """Return an ordinary report with other values."""
    found = parse(json.dumps({**LINE, **changes}, separators=(",", ":")))
    assert found is not None
    return found


AROUND: Final = Surroundings(ordinary=report(reached=["kubelet", "metadata"]), node=NODE)


class InsideTests(SynchronousTestCase):
    """What is a finding."""

    def test_ordinary(self) -> None:
        """A pod that has what every pod has, and reaches nothing, has nothing."""
        self.assertEqual(list(breaches(report(), AROUND)), [])

    def test_each_finding(self) -> None:
        """Each thing alone is one finding, in its words."""
        names = LINE["namespaces"]
        more = f"{DEFAULT | 1 << 21:016x}"
        findings: tuple[tuple[dict[str, Any], str], ...] = (
            ({"namespaces": {**names, "pid": "1"}}, "the node's own pid namespace"),
            ({"namespaces": {**names, "net": "2"}}, "the node's own net namespace"),
            ({"namespaces": {**names, "ipc": "3"}}, "the node's own ipc namespace"),
            ({"namespaces": {**names, "uts": "4"}}, "the node's own uts namespace"),
            ({"namespaces": {**names, "mnt": "5"}}, "the node's own mnt namespace"),
            ({"capabilities": more}, "the capability SYS_ADMIN"),
            ({"bounding": more}, "the capability SYS_ADMIN"),
            ({"bounding": f"{DEFAULT | 1 << 63:016x}"}, "the capability number 63"),
            ({"files": ["/v/v/srv/canary"]}, "the file /v/v/srv/canary of the node, or of others"),
            ({"sockets": ["/v/v"]}, "the socket /v/v of the node"),
            ({"tokens": ["a.b.c", "d.e.f"]}, "2 tokens of this cluster"),
            ({"devices": 3}, "3 block devices"),
            ({"masked": False}, "an unmasked /proc"),
            ({"writable": True}, "settings of the node's kernel"),
            ({"reached": ["another tenant"]}, "a way to another tenant"),
        )
        for changes, words in findings:
            self.assertEqual(list(breaches(report(**changes), AROUND)), [words], changes)

    def test_capabilities_of_the_baseline(self) -> None:
        """What Pod Security lets a pod add is none, and neither is less than an ordinary pod has."""
        for bits in (0, DEFAULT, 1 << 29 | 1 << 27, DEFAULT & ~(1 << 13)):
            changed = report(capabilities=f"{bits:016x}", bounding=f"{bits:016x}")
            self.assertEqual(list(breaches(changed, AROUND)), [], capabilities(bits))

    def test_seccomp(self) -> None:
        """Less than an ordinary pod of this node has is a finding."""
        filtered = evolve(AROUND, ordinary=report(seccomp=2))
        self.assertEqual(list(breaches(report(), filtered)), ["no seccomp"])
        self.assertEqual(list(breaches(report(seccomp=2), AROUND)), [])

    def test_ways(self) -> None:
        """Whatever is reached counts, also what a pod reaches that no policy isolates."""
        found = list(breaches(AROUND.ordinary, AROUND))
        self.assertEqual(found, ["a way to kubelet", "a way to metadata"])

    def test_restricted(self) -> None:
        """At that level a pod is not root, and has next to no capability."""
        strict = evolve(AROUND, level="restricted")
        found = list(breaches(report(), strict))
        for words in ("the user root", "new privileges", "the capability CHOWN", "no seccomp"):
            self.assertIn(words, found)
        fine = report(uid=1000, gid=1000, capabilities="0", seccomp=2, no_new_privileges=1)
        self.assertEqual(list(breaches(fine, strict)), [])

    def test_logs(self) -> None:
        """The last whole line counts; what is no report is none."""
        line = json.dumps(LINE, separators=(",", ":"))
        self.assertEqual(parse(f"hello\n{line}\nbye\n"), report())
        for log in ("", "hello\n", line[:-9], '{"probe":7}', '{"probe":"x","uid":0}'):
            self.assertIsNone(parse(log), log)


class OverTests(SynchronousTestCase):
    """When a probe is not waited for any more."""

    def test_table(self) -> None:
        """A pod that has ended, one without a node, and one whose container cannot be made are over."""
        waits = {"state": {"waiting": {"reason": "ErrImageNeverPull"}}}
        begins = {"state": {"waiting": {"reason": "ContainerCreating"}}}
        table: tuple[tuple[dict[str, Any], bool], ...] = (
            ({}, False),
            ({"phase": "Pending"}, False),
            ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, False),
            ({"phase": "Succeeded"}, True),
            ({"phase": "Failed"}, True),
            ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}, True),
            ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}, False),
            ({"phase": "Pending", "containerStatuses": [waits]}, True),
            ({"phase": "Pending", "initContainerStatuses": [waits], "containerStatuses": [begins]}, True),
            ({"phase": "Pending", "containerStatuses": [begins]}, False),
        )
        for status, over in table:
            self.assertEqual(is_over({"status": status}), over, status)


class ProbingTests(SynchronousTestCase):
    """How a variation becomes a probe."""

    def test_each_container(self) -> None:
        """Each container of each variation runs the probe, with each volume of the pod where it is looked for."""
        for one in forbidden_objects():
            made = probing(one, "/srv/canary", {"kubelet": "192.0.2.1:10250"}).desired["spec"]["pod"]
            named = {f"/v/{volume['name']}" for volume in made.get("volumes") or ()}
            for kind in ("containers", "initContainers", "ephemeralContainers"):
                for container in made.get(kind) or ():
                    self.assertEqual(container["command"][2], SCRIPT)
                    self.assertIn("kubelet=192.0.2.1:10250", container["command"])
                    self.assertEqual({mount["mountPath"] for mount in container.get("volumeMounts") or ()}, named)
        self.assertIn(CANARY, SCRIPT)

    def test_what_kubernetes_expands(self) -> None:
        """In a command Kubernetes replaces two dollar signs by one: the script has none."""
        self.assertNotIn("$$", SCRIPT)
