"""Verdicts on the end-to-end tests: which specs count, and which reasons are accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.e2e import table
from tests.e2e.__main__ import CONFORMANCE, GROUPS, ROWS, kept_in, write_page, write_rows
from tests.e2e.suite import SpecResult, Verdict, read
from tests.e2e.verdicts import HOST, LENDER, Row, Traces, rows, traces, uses_host

NODE = "liqo-milan"
SPEC = "[sig-node] Pods should run"


def event(resource: str, *, subresource: str = "", agent: str = "kubelet", **more: Any) -> dict[str, Any]:
    """Return an event of the audit log."""
    reference = {"resource": resource, "subresource": subresource, **more.pop("reference", {})}
    return {"verb": "create", "userAgent": agent, "objectRef": reference, **more}


class TracesTests(SynchronousTestCase):
    """What an audit log says of each spec."""

    def test_pods_of_a_spec(self) -> None:
        """Pods and nodes are a spec's when they are in a namespace that it made, no matter who made the pods."""
        pod = {"spec": {"hostPID": True}}
        target = {"target": {"name": NODE}}
        found = traces(
            [
                event("namespaces", agent=f"e2e.test/v1 -- {SPEC}", reference={"name": "pods-1"}),
                event("pods", reference={"namespace": "pods-1"}, requestObject=pod),
                event("pods", subresource="binding", reference={"namespace": "pods-1"}, requestObject=target),
                event("pods", reference={"namespace": "elsewhere"}, requestObject={}),
            ]
        )
        self.assertEqual(found, {SPEC: Traces(pods=[pod], nodes={NODE})})

    def test_other_verbs(self) -> None:
        """Only what was made counts."""
        deleted = {
            **event("namespaces", agent=f"e2e.test/v1 -- {SPEC}", reference={"name": "pods-1"}),
            "verb": "delete",
        }
        self.assertEqual(traces([deleted, event("pods", reference={"namespace": "pods-1"})]), {})


class RowsTests(SynchronousTestCase):
    """The verdict on each spec."""

    def verdict(self, result: Verdict, pods: list[Any], control: list[Verdict], node: str = NODE) -> list[str]:
        """Return the verdicts for one spec."""
        seen = {SPEC: Traces(pods=pods, nodes={node})}
        tried = {SPEC: [SpecResult(SPEC, one, 1.0) for one in control]}
        return [row.verdict for row in rows([SpecResult(SPEC, result, 1.0)], seen, tried, NODE)]

    def test_table(self) -> None:
        """A failure is accepted for what a pod asks of the host, or where the lender fails three times of three."""
        host: list[Any] = [{"spec": {"hostNetwork": True}}]
        plain: list[Any] = [{"spec": {}}]
        cases: list[tuple[Verdict, list[Any], list[Verdict], str]] = [
            ("passed", host, [], "passed"),
            ("failed", plain, [], "failed"),
            ("failed", [*plain, *host], [], HOST),
            ("failed", plain, ["failed", "failed"], "failed"),
            ("failed", plain, ["failed", "failed", "failed"], LENDER),
            ("failed", plain, ["failed", "passed", "failed"], "failed"),
            ("skipped", plain, [], "skipped"),
        ]
        for result, pods, control, expected in cases:
            with self.subTest(result=result, pods=pods, control=control):
                self.assertEqual(self.verdict(result, pods, control), [expected])

    def test_other_nodes(self) -> None:
        """A spec whose pods were on no virtual node does not count."""
        self.assertEqual(self.verdict("passed", [], [], node="node1"), [])

    def test_host(self) -> None:
        """Namespaces, paths and ports of the host, also of init containers, and nothing else."""
        port = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
        for spec, expected in (
            ({"hostPID": True}, True),
            ({"hostIPC": True}, True),
            ({"volumes": [{"hostPath": {"path": "/"}}]}, True),
            ({"containers": [port]}, True),
            ({"initContainers": [port]}, True),
            ({"containers": [{"ports": [{"containerPort": 80}]}], "volumes": [{"emptyDir": {}}]}, False),
        ):
            with self.subTest(spec=spec):
                self.assertEqual(uses_host({"spec": spec}), expected)


class ReportTests(SynchronousTestCase):
    """Reading JUnit and writing the page."""

    def test_read(self) -> None:
        """Specs that were not chosen, and the suite's own set-up, are left out."""
        path = Path(self.mktemp())
        path.write_text(
            f"""<testsuites><testsuite>
            <testcase name="[SynchronizedBeforeSuite]" time="1"/>
            <testcase name="[It] {SPEC}" time="2.5"/>
            <testcase name="[It] b" time="1"><failure message="no">where</failure></testcase>
            <testcase name="[It] c" time="0"><skipped message="skipped"/></testcase>
            <testcase name="[It] d" time="0"><skipped message="skipped - needs two nodes"/></testcase>
            </testsuite></testsuites>"""
        )
        self.assertEqual(
            read(path),
            [
                SpecResult(SPEC, "passed", 2.5),
                SpecResult("b", "failed", 1.0, "no\nwhere"),
                SpecResult("d", "skipped", 0.0, "needs two nodes"),
            ],
        )

    def test_page(self) -> None:
        """Each group has its counts, and what did not pass is listed with its reason."""
        seen = {name: Traces(nodes={NODE}) for name in (SPEC, "[sig-apps] b")}
        results = [SpecResult(SPEC, "passed", 1.0), SpecResult("[sig-apps] b", "failed", 1.0, "no `pod`\nmore")]
        page = table.page(rows(results, seen, {}, NODE), commit="abc", kubernetes="1.36.1")
        self.assertIn("| sig-node | 1 | 0 | 0 | 0 | 0 | 1 |\n", page)
        self.assertIn("| all | 1 | 0 | 0 | 0 | 1 | 2 |\n", page)
        self.assertIn("* [sig-apps] b: `no 'pod'`\n", page)


class KeptTests(SynchronousTestCase):
    """Where the results of a run are kept."""

    def test_by_focus(self) -> None:
        """The results of one choice of specs are not those of another, and the usual ones stay where they were."""
        folder = Path("kept")
        self.assertEqual(kept_in(folder, "sig-apps", CONFORMANCE), folder / "sig-apps")
        places = {kept_in(folder, "sig-apps", focus) for focus in (CONFORMANCE, "Deployment", "StatefulSet")}
        self.assertEqual(len(places), 3)
        self.assertEqual(kept_in(folder, "sig-apps", "Deployment"), kept_in(folder, "sig-apps", "Deployment"))


class PageTests(SynchronousTestCase):
    """When the page is written."""

    def setUp(self) -> None:
        """Begin with a page of an earlier run."""
        self.folder = Path(self.mktemp())
        self.page = self.folder / "page.md"
        self.folder.mkdir()
        self.page.write_text("earlier")

    def keep(self, group: str, focus: str = CONFORMANCE) -> None:
        """Keep the results of a group, of one spec."""
        file = kept_in(self.folder, group, focus) / ROWS
        file.parent.mkdir()
        write_rows(file, [Row(f"[{group}] a", group, "passed", 1.0)])

    def test_a_part(self) -> None:
        """While one group has no results the page stays, whatever else was run, and what is missing is said."""
        for group in GROUPS[1:]:
            self.keep(group)
        self.keep(GROUPS[0], "Deployment")
        self.assertIn(f"no results of {GROUPS[0]}", write_page(self.folder, "abc", self.page))
        self.assertEqual(self.page.read_text(), "earlier")

    def test_parts_together(self) -> None:
        """The page has every group as soon as the last one was run, in whatever order that was."""
        for group in reversed(GROUPS):
            self.keep(group)
        self.assertIn("written", write_page(self.folder, "abc", self.page))
        text = self.page.read_text()
        self.assertIn(f"| all | {len(GROUPS)} | 0 | 0 | 0 | 0 | {len(GROUPS)} |\n", text)
        self.assertIn("Commit `abc`", text)
        for group in GROUPS:
            self.assertIn(f"| {group} | 1 |", text)
