"""Pods beside a daemon of a host, and a daemon of a host beside pods: each refuses the other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.surroundings.foreign import RELEASE
from liqod.cli.setup.surroundings.other_form import managed_by, no_host, no_pods
from liqod.cli.setup.up.chart.render import Release, render
from liqod.kube.manifests import MANAGED_BY
from liqod.kube.resources import CRDS, DEPLOYMENTS, LEASES, NAMESPACES, PODS
from liqod.model.diagnosis.cluster import LeaderFacts
from liqod.model.objects.meta import ObjectMeta
from tests.cli.cluster_case import ClusterCase
from tests.packaging.test_chart import VARIANTS
from tests.packaging.test_up import deployment

OWN = "liqo-system"
POD = "liqod-7d9f8c-x2x4z"


def meta(manager: str = "", release: str = "") -> ObjectMeta:
    """Return the metadata of the daemon's Deployment."""
    labels = {MANAGED_BY: manager} if manager else {}
    return ObjectMeta(name="liqod", labels=labels, annotations={RELEASE: release} if release else {})


class DecidedTests(SynchronousTestCase):
    def test_no_pods(self) -> None:
        """Pods are refused where a daemon leads that is none of them; one that is gone may hold the lease still."""
        for holder, alive, pods, are_there, is_refused in (
            ("", False, (), False, False),
            ("node-1-ab12", True, (), False, True),
            ("node-1-ab12", False, (), False, False),
            ("node-1-ab12", True, (POD,), True, True),
            (POD, True, (POD,), True, False),
            (POD, True, (), True, False),
            (POD, True, (), False, True),
        ):
            leads = LeaderFacts(holder, alive=alive, age=1.0) if holder else None
            found = no_pods(leads, pods, are_there=are_there)
            self.assertEqual(bool(found), is_refused, (holder, alive, pods, are_there))
            for line in found:
                self.assertIn(f"the daemon {holder} leads, and is no pod of this installation; stop it first", line)

    def test_no_host(self) -> None:
        """A service of a host is refused by every pod, with who made it and what removes it."""
        self.assertEqual(no_host(None), [])
        for pods, who, how in (
            (meta("liqodctl"), "`liqodctl up --in-cluster`", "`liqodctl down --in-cluster`"),
            (meta("Helm", "mine"), "the Helm release mine", "`helm uninstall`"),
            (meta("kubectl"), "kubectl", "in the same way"),
            (meta(), "somebody else", "in the same way"),
        ):
            (line,) = no_host(pods)
            self.assertRegex(line, rf"^liqod serves this cluster as pods.*; {who} .*{how}")

    def test_own_pods(self) -> None:
        """Those of `up --in-cluster` are changed by it, all others are not."""
        found = [bool(managed_by(one)) for one in (meta("liqodctl"), meta("Helm", "mine"), meta("kubectl"), meta())]
        self.assertEqual(found, [False, True, True, True])

    def test_chart(self) -> None:
        """Each process of the chart's job that writes to the cluster asks who leads before it does."""
        for variant, values in VARIANTS.items():
            (job,) = [one for one in render(values, Release()) if one["metadata"]["name"] == "liqod-setup-install"]
            spec = job["spec"]["template"]["spec"]
            commands = [one["command"] for one in (*spec["initContainers"], *spec["containers"])]
            self.assertEqual(
                {tuple(one[1:]) for one in commands if one[0].endswith("/liqodctl")}, {("install", "--pods")}, variant
            )


class InstallTests(ClusterCase):
    """`liqodctl install --pods`, which the chart's job runs."""

    async def lease(self, holder: str) -> None:
        """Have a daemon lead."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "renewTime": now, "leaseDurationSeconds": 600}
        await self.client.create(LEASES, {"metadata": {"name": "liqod"}, "spec": spec}, OWN)

    async def definitions(self) -> int:
        """Return how many definitions there are."""
        return len((await self.client.list(CRDS)).items)

    async def test_beside_a_host(self) -> None:
        """It refuses, and nothing is changed; without the option it is what the host's own installation runs."""
        await self.client.create(NAMESPACES, {"metadata": {"name": OWN}})
        await self.lease("node-1-ab12")
        output = " ".join((await self.liqodctl("install", "--pods", status=1)).split())
        self.assertIn("the daemon node-1-ab12 leads, and is no pod of this installation", output)
        self.assertEqual(await self.definitions(), 0)
        await self.liqodctl("install")
        self.assertGreater(await self.definitions(), 0)

    async def test_beside_pods(self) -> None:
        """It installs where nobody leads, where a pod does, and where one did whose Deployment is there."""
        await self.liqodctl("install", "--pods")
        await self.lease(POD)
        await self.liqodctl("install", "--pods", status=1)
        pod: dict[str, Any] = {"metadata": {"name": POD, "labels": {"app.kubernetes.io/name": "liqod"}}}
        await self.client.create(PODS, {**pod, "spec": {"containers": [{"name": "a", "image": "a"}]}}, OWN)
        await self.liqodctl("install", "--pods")
        await self.client.delete(PODS, POD, OWN)
        await self.client.create(DEPLOYMENTS, deployment(), OWN)
        await self.liqodctl("install", "--pods")

    async def test_options(self) -> None:
        """A pod gets its token from the cluster, and is no service of a host."""
        for other, said in (
            ("--daemon-kubeconfig=file", "--pods does not go with it"),
            ("--host", "--host goes with --role, --dry-run and --root only"),
        ):
            self.assertIn(said, " ".join((await self.liqodctl("install", "--pods", other, status=2)).split()))
