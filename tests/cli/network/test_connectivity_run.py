"""Runs of ``liqodctl test`` against a simulated cluster whose scheduler and kubelets the test plays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from liqod.agent.account.names import LEASE
from liqod.cli.console.options import Options
from liqod.cli.console.session import Session
from liqod.cli.network.connectivity import command, objects, origin
from liqod.config.schema import Settings
from liqod.kube.errors import KubeError
from liqod.kube.resources import FOREIGNCLUSTERS, LEASES, NAMESPACES, NODES, PODS, SERVICES
from tests.cli.cluster_case import REACTOR
from tests.cli.test_every_command import EveryCase

ENDED = "2026-01-01T00:00:01Z"
READY = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]
Codes = Callable[[str, str], int]
"""How a container of a pod ends, both by their names."""


def well(pod: str, container: str) -> int:
    """Return how a container ends where all is well and policies are enforced."""
    return 1 if container.startswith("denied") else 0


class ConnectivityRunTests(EveryCase):
    """A run from its beginning to its end, whichever that is."""

    async def populate(self) -> None:
        """Make a peer with which nothing is wrong."""
        await super().populate()
        spec = {"holderIdentity": "one", "renewTime": datetime.now(UTC).isoformat(), "leaseDurationSeconds": 3600}
        await self.client.create(LEASES, {"metadata": {"name": LEASE}, "spec": spec}, "liqo-system")
        ready = {"status": {"phase": "Ready", "reason": "", "message": ""}}
        await self.client.patch(FOREIGNCLUSTERS, "c2", ready, subresource="status")
        up = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self.client.patch(NODES, "liqo-milan", up, subresource="status")

    async def spaces(self) -> list[str]:
        """Return the namespaces of tests that are there."""
        names = [one["metadata"]["name"] for one in (await self.client.list(NAMESPACES)).items]
        return [name for name in names if name.startswith("liqod-test-")]

    def play(self, codes: Codes | None) -> None:
        """Run the pods of tests from now on: servers become ready, the containers of clients end with codes if any."""
        playing = Deferred.fromCoroutine(self._played(codes))
        playing.addErrback(lambda failure: failure.trap(CancelledError))

        def stop() -> Deferred[None]:
            playing.cancel()
            return playing

        self.addCleanup(stop)

    async def _played(self, codes: Codes | None) -> None:
        while True:
            for pod in (await self.client.list(PODS)).items:
                meta = pod["metadata"]
                if not meta["namespace"].startswith("liqod-test-") or (pod.get("status") or {}).get("podIPs"):
                    continue
                status = self._status(pod, codes)
                if status:
                    try:
                        await self.client.patch(
                            PODS, meta["name"], {"status": status}, meta["namespace"], subresource="status"
                        )
                    except KubeError:
                        continue  # It was deleted meanwhile.
            await deferLater(REACTOR, 0.05)

    def _status(self, pod: dict[str, Any], codes: Codes | None) -> dict[str, Any]:
        name = pod["metadata"]["name"]
        if pod["spec"].get("restartPolicy") != "Never":
            return {"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}], "conditions": READY}
        if codes is None:
            return {}
        ended = []
        for container in pod["spec"]["containers"]:
            code = codes(name, container["name"])
            end = {"exitCode": code, "message": f"said {code}", "startedAt": ENDED, "finishedAt": ENDED}
            ended.append({"name": container["name"], "state": {"terminated": end}})
        return {"phase": "Succeeded", "podIPs": [{"ip": "10.0.0.8"}], "containerStatuses": ended}

    async def test_good(self) -> None:
        """Where all answers are right the status is 0, the reports say so, and nothing is left."""
        self.play(well)
        file = Path(self.mktemp()).absolute()
        out, err, status = await self.outcome("test", "-o", "json", f"--junit={file}")
        self.assertEqual(status, 0, (out, err))
        found = json.loads(out)
        self.assertEqual((found["failed"], found["problems"]), (0, []))
        self.assertEqual(found["good"] + found["skipped"], len(found["results"]))
        self.assertTrue(
            {"pod", "service", "dns", "headless", "large", "api"} <= {one["way"] for one in found["results"]}
        )
        suites = Xml.fromstring(file.read_text())
        self.assertEqual((suites.get("tests"), suites.get("failures")), (str(len(found["results"])), "0"))
        self.assertEqual(await self.spaces(), [])

    async def test_broken(self) -> None:
        """A way that fails is shown with its object and the next command, in 80 columns; nothing is left."""
        self.play(lambda pod, container: 1 if (pod, container) == ("from-here-0", "dns") else well(pod, container))
        out, err, status = await self.outcome("test", "milan")
        self.assertEqual(status, 1)
        self.assertIn("look at: DNS of home; next: `kubectl -n kube-system get pods -l k8s-app=kube-dns`", out)
        self.assertIn("LQ6003", err)
        self.assertIn("DNS of home", err)
        # In a pipe each answer is a plain line.
        self.assertIn("\n✗ dns: home to milan: said 1\n", err)
        self.assertIn("\n✓ service: milan to home: said 0\n", err)
        self.assertNotIn("\x1b", out + err)
        out, _, _ = await self.outcome("test", "milan", "--only=dns", tty=80, env={"NO_COLOR": "1"})
        shown = out.replace("\r\x1b[K", "\n").replace("\r", "\n")
        self.assertEqual([line for line in shown.splitlines() if len(line) > 80 and " " in line.strip()], [])
        self.assertEqual(await self.spaces(), [])

    async def test_pods_that_do_not_start(self) -> None:
        """Pods that do not start are named with the reason, and nothing is left."""
        out, err, status = await self.outcome("test", "milan", "--timeout=1", "--parallel=8", "-o", "json")
        self.assertEqual(status, 1)
        # They stop side by side; which one is named first does not depend on it.
        self.assertIn("first: pod here at home: ", err)
        found = json.loads(out)
        self.assertEqual({one["way"] for one in found["results"] if one["result"] == "failed"}, {"start"})
        self.assertEqual(await self.spaces(), [])

    async def test_known_to_be_broken(self) -> None:
        """Of a peer that the diagnosis knows to be broken it says so, and no pods are made."""
        lost = {"status": {"phase": "Suspect", "reason": "Unreachable", "message": "no answer"}}
        await self.client.patch(FOREIGNCLUSTERS, "c2", lost, subresource="status")
        file = Path(self.mktemp()).absolute()
        out, err, status = await self.outcome("test", f"--junit={file}")
        self.assertEqual(status, 1)
        self.assertIn("no pods were started: Unreachable: no answer", out)
        self.assertIn("LQ6003", err)
        self.assertEqual(Xml.fromstring(file.read_text()).get("failures"), "1")
        self.assertEqual(await self.spaces(), [])

    async def test_signals(self) -> None:
        """Ctrl-C and SIGTERM end a run with 130, while servers start and while clients run; nothing is left."""
        for servers in (False, True):
            if servers:
                self.play(None)
            for number in (signal.SIGINT, signal.SIGTERM):
                expect = "runs at" if servers else "waiting for"
                seen = self.cluster.store.version
                found = await self.outcome("test", "milan", tty=80, expect=expect, signal=int(number))
                self.assertEqual(found[2], 130, (servers, number, found))
                self.assertGreater(self.cluster.store.version, seen)
                self.assertEqual(await self.spaces(), [], (servers, number))

    async def test_killed(self) -> None:
        """What a run that was killed left is deleted by the next one; a namespace of a run that goes on is not."""
        _, _, status = await self.outcome("test", "milan", tty=80, expect="waiting for", signal=int(signal.SIGKILL))
        self.assertEqual(status, -signal.SIGKILL)
        (left,) = await self.spaces()
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
            await self.client.create(NAMESPACES, objects.namespace("liqod-test-other", origin.own(other.pid)))
            await self.client.create(NAMESPACES, objects.namespace("liqod-test-away", "elsewhere/b/p 1 1"))
            await self.client.create(NAMESPACES, {"metadata": {"name": "liqod-test-mine"}})
            self.play(well)
            _, err, status = await self.outcome("test", "milan", "--only=pod")
            other.kill()
        self.assertEqual(status, 0, err)
        self.assertIn(f"deleted what an earlier run left: the namespace {left}", err)
        self.assertEqual(set(await self.spaces()), {"liqod-test-other", "liqod-test-away", "liqod-test-mine"})

    async def test_kept(self) -> None:
        """With --keep the pods stay to be looked at, until the next run."""
        self.play(well)
        _, err, status = await self.outcome("test", "milan", "--only=pod", "--keep")
        self.assertEqual(status, 0, err)
        (kept,) = await self.spaces()
        self.assertIn(f"kubectl delete namespace {kept}", " ".join(err.split()))
        await self.outcome("test", "milan", "--only=pod")
        self.assertEqual(await self.spaces(), [])

    async def test_addresses(self) -> None:
        """Pods at the peer call a Service of home by the address that it has at home, and others as they are given."""
        self.play(well)
        _, err, status = await self.outcome("test", "milan", "--only=clusterip", "--only=service", "--keep")
        self.assertEqual(status, 0, err)
        (space,) = await self.spaces()
        address = (await self.client.get(SERVICES, "here", space))["spec"]["clusterIP"]
        containers = (await self.client.get(PODS, "from-there-0", space))["spec"]["containers"]
        scripts = {one["name"]: one["command"][-1] for one in containers}
        self.assertIn(f"address() {{ echo {address}; }}", scripts["clusterip"])
        self.assertIn("$HERE_SERVICE_HOST", scripts["service"])

    async def test_a_run_that_takes_too_long(self) -> None:
        """What was found before it was ended is reported, and what was not tried by then; nothing is left."""
        self.play(None)
        self.patch(command, "LONGEST_RUN", 2.0)
        session = Session(Options(), reactor=REACTOR, client=self.client, settings=Settings())
        choice = command.TestOptions(
            peers=(), ways=("pod",), image="x", timeout=60.0, parallel=4, ingress_class="", keep=False
        )
        report = await command._report(session, choice)
        self.assertEqual([(one.way, one.outcome) for one in report.results], [("pod", "failed")] * 2)
        self.assertEqual(await self.spaces(), [])

    async def test_report_without_a_reader(self) -> None:
        """The report for CI is written although nobody reads the output."""
        self.play(well)
        file = Path(self.mktemp()).absolute()
        _, _, status = await self.outcome("test", "--only=pod", f"--junit={file}", closed=True)
        self.assertEqual(status, 141)
        self.assertEqual(Xml.fromstring(file.read_text()).get("failures"), "0")

    async def test_bad_file(self) -> None:
        """A report that cannot be written is an error of its own."""
        self.play(well)
        _, err, status = await self.outcome("test", "--only=pod", f"--junit={os.devnull}/x")
        self.assertEqual(status, 1)
        self.assertIn("LQ1008", err)
