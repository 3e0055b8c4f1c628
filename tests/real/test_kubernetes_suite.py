"""Some of Kubernetes' own conformance specs, on a virtual node that is the only schedulable node of its cluster."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import ClassVar, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.e2e import verdicts
from tests.e2e.clusters import E2EClusters, prepare
from tests.e2e.suite import SpecResult, run
from tests.e2e.verdicts import Traces
from tests.real.base import require_clusters

SPECS: Final = (
    "[sig-apps] Deployment RollingUpdateDeployment should delete old pods and create new ones [Conformance]",
    "[sig-apps] Job should create pods for an Indexed job with completion indexes and specified hostname [Conformance]",
    "[sig-auth] ServiceAccounts ServiceAccountIssuerDiscovery should support OIDC discovery of service account issuer"
    " [Conformance]",
    "[sig-auth] ServiceAccounts should mount projected service account token [Conformance]",
    "[sig-cli] Kubectl logs logs should be able to retrieve and filter logs [Conformance]",
    "[sig-network] DNS should provide DNS for pods for Hostname [Conformance]",
    "[sig-network] Services should serve multiport endpoints from pods [Conformance]",
    "[sig-node] Pods should be submitted and removed [NodeConformance] [Conformance]",
    "[sig-node] Pod InPlace Resize Container burstable pods - extended 6 containers - various operations performed"
    " (including adding limits and requests) [MinimumKubeletVersion:1.34] [Conformance]",
    "[sig-node] Pods Extended (pod generation) Pod Generation pod generation should start at 1 and increment per update"
    " [MinimumKubeletVersion:1.34] [Conformance]",
    "[sig-node] Pods should support retrieving logs from the container over websockets [NodeConformance] [Conformance]",
    "[sig-storage] ConfigMap should be consumable from pods in volume [NodeConformance] [Conformance]",
)
WITHOUT_PODS: Final = ("[sig-instrumentation] Events API should delete a collection of events [Conformance]",)
"""Of this group none has pods: home's API server answers with the daemon's policies and webhook in place."""


class KubernetesSuiteTests(SynchronousTestCase):
    """The specs run once, for all tests of the class."""

    results: ClassVar[list[SpecResult]] = []
    seen: ClassVar[dict[str, Traces]] = {}
    node: ClassVar[str] = ""

    def setUp(self) -> None:
        """Run the specs before the first test."""
        require_clusters()
        cls = type(self)
        if not cls.node:
            prepare()
            with E2EClusters() as clusters, tempfile.TemporaryDirectory() as folder:
                (cls.node,) = clusters.nodes
                focus = [re.escape(name) for name in (*SPECS, *WITHOUT_PODS)]
                cls.results = run(clusters.home, Path(folder), focus=focus, limit=900)
                cls.seen = verdicts.traces(clusters.home.audited())

    def test_specs_pass(self) -> None:
        """Each of them passes, and none was left out."""
        failed = [f"{result.name}: {result.text[:2000]}" for result in self.results if result.verdict != "passed"]
        self.assertFalse(failed, "\n".join(failed))
        self.assertEqual({result.name for result in self.results}, {*SPECS, *WITHOUT_PODS})

    def test_pods_ran_on_the_virtual_node(self) -> None:
        """Those that make pods had them on the virtual node and on no other."""
        self.assertEqual({name: self.seen[name].nodes for name in SPECS}, {name: {self.node} for name in SPECS})
