"""Verdicts on the end-to-end tests: which specs count, and which reasons are accepted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.e2e import table
from tests.e2e.__main__ import BOTH, CONFORMANCE, GROUPS, ROWS, kept_in, setups_of, write_page, write_rows
from tests.e2e.clusters import contracted
from tests.e2e.setups import ALONE, OTHERS, USUAL, Setup
from tests.e2e.suite import SpecResult, Verdict, read
from tests.e2e.verdicts import (
    EBPF,
    HOST,
    LENDER,
    NO_CONTROL,
    Control,
    Row,
    Traces,
    ebpf_services,
    rows,
    traces,
    uses_host,
)

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
                event("services", reference={"namespace": "pods-1"}),
                event("services", subresource="status", reference={"namespace": "pods-1"}),
            ]
        )
        self.assertEqual(found, {SPEC: Traces(pods=[pod], nodes={NODE}, services=1)})

    def test_a_pod_that_names_its_node(self) -> None:
        """It is on that node, though it is never bound: no spec is left out that way."""
        pod = {"spec": {"nodeName": NODE}}
        found = traces(
            [
                event("namespaces", agent=f"e2e.test/v1 -- {SPEC}", reference={"name": "pods-1"}),
                event("pods", reference={"namespace": "pods-1"}, requestObject=pod),
            ]
        )
        self.assertEqual(found[SPEC].nodes, {NODE})

    def test_other_verbs(self) -> None:
        """Only what was made counts."""
        deleted = {
            **event("namespaces", agent=f"e2e.test/v1 -- {SPEC}", reference={"name": "pods-1"}),
            "verb": "delete",
        }
        self.assertEqual(traces([deleted, event("pods", reference={"namespace": "pods-1"})]), {})


class RowsTests(SynchronousTestCase):
    """The verdict on each spec."""

    def verdict(
        self,
        result: Verdict,
        seen: Traces,
        control: Sequence[Verdict] = (),
        *,
        ebpf: bool = False,
        unfinished: str = "",
    ) -> list[Row]:
        """Return the row of one spec."""
        tried = Control({SPEC: [SpecResult(SPEC, one, 1.0) for one in control]}, unfinished)
        return rows([SpecResult(SPEC, result, 1.0, "why")], {SPEC: seen}, tried, {NODE}, ebpf=ebpf)

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
                found = self.verdict(result, Traces(pods=pods, nodes={NODE}), control)
                self.assertEqual([row.verdict for row in found], [expected])

    def test_ebpf(self) -> None:
        """A spec that made a Service fails for a reason where these are carried out in the kernel, and nowhere else."""
        for services, ebpf, expected in ((1, True, EBPF), (1, False, "failed"), (0, True, "failed")):
            with self.subTest(services=services, ebpf=ebpf):
                found = self.verdict("failed", Traces(nodes={NODE}, services=services), ebpf=ebpf)
                self.assertEqual([row.verdict for row in found], [expected])

    def test_facts(self) -> None:
        """Whether Services are carried out by eBPF is what a cluster's facts say of it."""
        for values, expected in ((["cilium"], True), (["nftables"], False), ([], False)):
            with self.subTest(values=values):
                facts = [{"name": "NetworkPlugin", "values": ["cilium"]}, {"name": "ProxyMode", "values": values}]
                self.assertEqual(ebpf_services([{}, {"status": {"facts": facts}}]), expected)

    def test_unfinished_control(self) -> None:
        """A control run that ended early leaves a row for each spec, which says so where it failed."""
        (row,) = self.verdict("failed", Traces(nodes={NODE}), ["failed"], unfinished="run 2 ended early")
        self.assertEqual((row.verdict, row.text), ("failed", "run 2 ended early: why"))
        (row,) = self.verdict("passed", Traces(nodes={NODE}), unfinished="run 2 ended early")
        self.assertEqual((row.verdict, row.text), ("passed", "why"))

    def test_other_nodes(self) -> None:
        """A spec whose pods were on no virtual node does not count."""
        self.assertEqual(self.verdict("passed", Traces(nodes={"node1"})), [])

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
        found = rows(results, seen, NO_CONTROL, {NODE})
        page = table.page(found, {}, commit="abc", kubernetes="1.36.1")
        self.assertIn("| sig-node | 1 | 0 | 0 | 0 | 0 | 0 | 1 |\n", page)
        self.assertIn("| all | 1 | 0 | 0 | 0 | 0 | 1 | 2 |\n", page)
        self.assertIn("* [sig-apps] b: `no 'pod'`\n", page)

    def test_other_columns(self) -> None:
        """Another set-up is a column, and what passes without it and not with it is listed."""
        names = (SPEC, "[sig-node] b", "[sig-apps] c")
        usual = [Row(name, "sig-apps" if "apps" in name else "sig-node", "passed", 1.0) for name in names]
        there = [Row(SPEC, "sig-node", "passed", 1.0), Row("[sig-node] b", "sig-node", "failed", 1.0, "no rights")]
        page = table.page(usual, {"default contract": there}, commit="abc", kubernetes="1.36.1")
        self.assertIn(" | all | default contract |\n", page)
        self.assertIn("| sig-node | 2 | 0 | 0 | 0 | 0 | 0 | 2 | 1 of 2 |\n", page)
        self.assertIn("| sig-apps | 1 | 0 | 0 | 0 | 0 | 0 | 1 | - |\n", page)
        self.assertIn("## Passed, and fails elsewhere: default contract\n\n* [sig-node] b: `no rights`\n", page)


class SetupTests(SynchronousTestCase):
    """Which clusters there are."""

    def test_names(self) -> None:
        """Each choice has a name of its own, by which its results are kept; the usual one has none."""
        setups = [USUAL, ALONE, *OTHERS.values(), Setup(lenders=2, contract=True)]
        self.assertEqual(USUAL.name, "")
        self.assertEqual(len({setup.name for setup in setups}), len(setups))
        self.assertEqual(Setup(release="1.30").name, "lender-1.30")
        self.assertEqual(Setup(lenders=2, contract=True).name, "lenders-2+contract")

    def test_releases(self) -> None:
        """A release is the lenders', and home keeps the usual one."""
        home = USUAL.releases[0]
        self.assertEqual(USUAL.releases, (home, home))
        self.assertEqual(Setup(lenders=2, release="1.30").releases, (home, "1.30.14", "1.30.14"))
        self.assertEqual(Setup(alone=True, release="1.30").releases, ("1.30.14",))

    def test_sides(self) -> None:
        """Both sides run where nothing else is chosen; another set-up runs once, at home."""
        contract = Setup(contract=True)
        for chosen, side, expected in (
            (USUAL, "both", [USUAL, ALONE]),
            (USUAL, "home", [USUAL]),
            (USUAL, "lender", [ALONE]),
            (contract, "both", [contract]),
            (contract, "lender", [ALONE]),
            (Setup(release="1.30"), "lender", [Setup(alone=True, release="1.30")]),
        ):
            with self.subTest(chosen=chosen, side=side):
                self.assertEqual(setups_of(chosen, side), expected)

    def test_contract(self) -> None:
        """Under the contract nothing is granted in the section of the lender's, and the other sections stay."""
        before = '[cluster]\nname = "milan"\n\n[hosting]\nimage-pull-policy = "any"\nlabels = ["example.com/"]\n'
        found = contracted(before + 'quota = "soft"\n\n[network]\nmode = "wireguard"\n\n[names]\nenabled = true\n')
        self.assertEqual(
            found,
            '[cluster]\nname = "milan"\n\n[hosting]\nimage-pull-policy = "any"\n\n'
            '[network]\nmode = "wireguard"\n\n[names]\nenabled = true\n',
        )
        self.assertRaises(ValueError, contracted, "[cluster]\n")


class KeptTests(SynchronousTestCase):
    """Where the results of a run are kept."""

    def test_by_focus(self) -> None:
        """The results of one choice of specs or clusters are not another's, and the usual ones stay where they were."""
        folder = Path("kept")
        self.assertEqual(kept_in(folder, "sig-apps", CONFORMANCE), folder / "sig-apps")
        places = {kept_in(folder, "sig-apps", focus) for focus in (CONFORMANCE, "Deployment", "StatefulSet")}
        self.assertEqual(len(places), 3)
        self.assertEqual(kept_in(folder, "sig-apps", "Deployment"), kept_in(folder, "sig-apps", "Deployment"))
        self.assertEqual(kept_in(folder, "sig-apps", CONFORMANCE, ALONE), folder / "sig-apps@alone")


class PageTests(SynchronousTestCase):
    """When the page is written."""

    def setUp(self) -> None:
        """Begin with a page of an earlier run."""
        self.folder = Path(self.mktemp())
        self.page = self.folder / "page.md"
        self.folder.mkdir()
        self.page.write_text("earlier")

    def keep(self, group: str, setup: Setup = USUAL, focus: str = CONFORMANCE) -> None:
        """Keep the results of a group, of one spec."""
        file = kept_in(self.folder, group, focus, setup) / ROWS
        file.parent.mkdir()
        write_rows(file, [Row(f"[{group}] a", group, "passed", 1.0)])

    def test_a_part(self) -> None:
        """While one group has no results the page stays, whatever else was run, and what is missing is said."""
        for setup in BOTH:
            for group in GROUPS[1:]:
                self.keep(group, setup)
        self.keep(GROUPS[0], ALONE)
        self.keep(GROUPS[0], USUAL, "Deployment")
        self.assertIn(f"no results of {GROUPS[0]}", write_page(self.folder, "abc", self.page))
        self.assertEqual(self.page.read_text(), "earlier")

    def test_one_side(self) -> None:
        """Without the runs on the lender alone the page stays as well."""
        for group in GROUPS:
            self.keep(group)
        self.assertIn(f"no results of {GROUPS[0]} (alone)", write_page(self.folder, "abc", self.page))
        self.assertEqual(self.page.read_text(), "earlier")

    def test_parts_together(self) -> None:
        """The page has every group as soon as the last one was run, in whatever order that was."""
        for group in reversed(GROUPS):
            for setup in BOTH:
                self.keep(group, setup)
        self.keep(GROUPS[0], OTHERS["default contract"])
        self.assertIn("written", write_page(self.folder, "abc", self.page))
        text, count = self.page.read_text(), len(GROUPS)
        self.assertIn(f"| all | {count} | 0 | 0 | 0 | 0 | 0 | {count} | {count} of {count} | 1 of 1 |\n", text)
        self.assertIn(" | the lender alone | default contract |\n", text)
        self.assertIn("Commit `abc`", text)
        for group in GROUPS:
            self.assertIn(f"| {group} | 1 |", text)
