"""Runs Kubernetes' end-to-end tests in a cluster's network, and reads what came of them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

from attrs import frozen

from tests.testbed import process, versions
from tests.testbed.cluster import Cluster

Verdict = Literal["passed", "failed", "skipped"]

NON_BLOCKING: Final = "virtual-node.liqo.io/not-allowed,node-role.kubernetes.io/control-plane"
"""Taints that do not make a node unschedulable for the tests: their pods tolerate that of virtual nodes."""


@frozen
class SpecResult:
    """What came of one spec: its full name, the verdict, seconds, and the failure's text."""

    name: str
    verdict: Verdict
    seconds: float
    text: str = ""

    @property
    def group(self) -> str:
        """The special interest group whose spec it is, such as ``sig-apps``."""
        found = re.search(r"\[(sig-[a-z-]+)\]", self.name)
        return found[1] if found else "other"


def run(
    cluster: Cluster, report: Path, *, focus: Sequence[str], skip: Sequence[str] = (), limit: float = 3600.0
) -> list[SpecResult]:
    """Run the specs whose names match one of the patterns, and return their results.

    ``report``: the directory of JUnit and log. ``limit``: seconds after which the run is ended, and CommandFailed
    raised. A spec that fails is a result; CommandFailed also says that the suite itself did not come to its end.
    """
    report.mkdir(parents=True, exist_ok=True)
    junit = report / "junit_01.xml"
    junit.unlink(missing_ok=True)
    argv = [
        str(versions.program("e2e.test")),
        f"--kubeconfig={cluster.kubeconfig}",
        f"--kubectl-path={versions.program('kubectl')}",
        f"--report-dir={report}",
        "--provider=skeleton",
        "--num-nodes=1",
        f"--non-blocking-taints={NON_BLOCKING}",
        "--allowed-not-ready-nodes=-1",
        "--minStartupPods=0",
        "--system-pods-startup-timeout=5s",
        "--node-schedulable-timeout=60s",
        "--ginkgo.no-color",
        f"--ginkgo.timeout={int(limit)}s",
        *(f"--ginkgo.focus={pattern}" for pattern in focus),
        *(f"--ginkgo.skip={pattern}" for pattern in skip),
    ]
    running = cluster.spawn("e2e", argv)
    try:
        if running.wait(limit + 60) is None or not junit.exists():
            raise process.CommandFailed(argv, None, running.tail(60))
    finally:
        running.stop()
    return read(junit)


def read(junit: Path) -> list[SpecResult]:
    """Return the results in a JUnit file of the suite, but for those of its own set-up and of specs not chosen."""
    return sorted(_results(ElementTree.parse(junit).getroot()), key=lambda result: result.name)


def _results(root: ElementTree.Element) -> Iterable[SpecResult]:
    for case in root.iter("testcase"):
        name = case.get("name", "").removeprefix("[It] ")
        if not case.get("name", "").startswith("[It]"):
            continue
        skipped, failure = case.find("skipped"), case.find("failure")
        if failure is None:
            failure = case.find("error")
        seconds = float(case.get("time", "0"))
        if failure is not None:
            yield SpecResult(name, "failed", seconds, f"{failure.get('message', '')}\n{failure.text or ''}".strip())
        elif skipped is None:
            yield SpecResult(name, "passed", seconds)
        elif reason := skipped.get("message", "").removeprefix("skipped").strip(" -"):
            # A spec that was not chosen is skipped without a message.
            yield SpecResult(name, "skipped", seconds, reason)
