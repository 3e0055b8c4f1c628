"""What counts as a regression of a benchmark, what is noise or a slower machine, and what ends a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.__main__ import modules
from benchmarks.figures import compare as comparison
from benchmarks.figures import goals, report
from benchmarks.figures.compare import (
    ABSOLUTE,
    NOTHING,
    Difference,
    Verdict,
    alone,
    compare,
    samples,
    samples_of,
    status,
)
from benchmarks.figures.measure import spent
from benchmarks.network import relay
from benchmarks.offloading import floor, latency, offload, profile, takeover
from benchmarks.peering import hub
from benchmarks.scale import noted
from liqod.model.diagnosis.processes import lease_name
from tests.project.test_architecture import CHECKOUT
from tests.testbed import build, process, system

STEADY = (0.97, 1.0, 1.0, 1.02, 1.03)
NOISY = (0.7, 0.85, 1.0, 1.2, 1.5)


def runs(*, machine: float = 1.0, factor: float = 1.0, noise: tuple[float, ...] = STEADY) -> list[dict[str, Any]]:
    """Return five repetitions on a machine that takes so many times as long; offloading takes ``factor`` times more."""
    found: list[dict[str, Any]] = []
    for number, one in enumerate(noise):
        # The hour differs from repetition to repetition, and with it both rows.
        hour = machine * (1 + number / 5)
        local = {"seconds": 10 * hour, "CPU ms/pod": 20 * hour, "requests/pod lender": 0.0}
        there = {"seconds": 30 * hour * one * factor, "CPU ms/pod": 60 * hour * one, "requests/pod lender": 6.0}
        found += [{"qps": 500, "pods": 1000, "where": "local", **local}]
        found += [{"qps": 500, "pods": 1000, "where": "offloaded", **there}]
    return found


class CompareTests(SynchronousTestCase):
    """Two measurements, each of five repetitions."""

    def verdicts(self, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Verdict]:
        found = compare(samples(before), samples(after), 0.10)
        return {one.name.removeprefix("500 1000 offloaded "): one.verdict for one in found}

    def test_a_slower_machine_is_no_regression(self) -> None:
        """What takes twice as long for the local pods too is the machine."""
        self.assertEqual(set(self.verdicts(runs(), runs(machine=2.0)).values()), {Verdict.SAME})

    def test_a_regression_of_a_fifth(self) -> None:
        """It is seen at the figure that it is of, and its reverse as well; half of a tenth is none."""
        found = self.verdicts(runs(), runs(factor=1.2))
        self.assertEqual([found["seconds"], found["CPU ms/pod"]], [Verdict.WORSE, Verdict.SAME])
        self.assertEqual(self.verdicts(runs(factor=1.2), runs())["seconds"], Verdict.BETTER)
        self.assertEqual(self.verdicts(runs(), runs(factor=1.05))["seconds"], Verdict.SAME)

    def test_a_regression_of_exactly_a_tenth(self) -> None:
        """It is one, whatever the rounding of the quotients; a little less is none."""
        for before in (1.0, 0.7, 3.0, 1e-3, 1e6):
            for factor, verdict in ((1.1, Verdict.WORSE), (1.0999, Verdict.SAME), (0.9, Verdict.BETTER)):
                found = compare({"s": [before] * 3}, {"s": [before * factor] * 3}, 0.10)
                self.assertEqual([one.verdict for one in found], [verdict], f"{before} {factor}")
        self.assertEqual(self.verdicts(runs(), runs(factor=1.1))["seconds"], Verdict.WORSE)
        noisy = self.verdicts(runs(noise=NOISY), runs(factor=1.1, noise=NOISY))
        self.assertEqual(noisy["seconds"], Verdict.NOISY)

    def test_noise_is_no_regression(self) -> None:
        """Where repetitions differ too much among themselves nobody can tell, and nothing is called the same."""
        for factor, verdict in ((1.0, Verdict.NOISY), (1.15, Verdict.NOISY), (2.0, Verdict.WORSE)):
            found = self.verdicts(runs(noise=NOISY), runs(factor=factor, noise=NOISY))
            self.assertEqual(found["seconds"], verdict, f"{factor}")

    def test_more_repetitions_tell(self) -> None:
        """As noisy as they are, of a hundred of them a median is known well enough."""
        for factor, verdict in ((1.0, Verdict.SAME), (1.15, Verdict.WORSE)):
            found = self.verdicts(runs(noise=NOISY * 20), runs(factor=factor, noise=NOISY * 20))
            self.assertEqual(found["seconds"], verdict, f"{factor}")

    def test_nothing(self) -> None:
        """A figure that is zero before and after is the same; from zero it grows by any part."""
        (found,) = compare({"a": [0.0] * 3}, {"a": [0.0] * 3}, 0.10)
        self.assertEqual(found.verdict, Verdict.SAME)
        (found,) = compare({"a": [0.0] * 3}, {"a": [1.0] * 3}, 0.10)
        self.assertEqual(found.verdict, Verdict.WORSE)

    def test_what_only_one_has(self) -> None:
        """It is named, and times without local pods beside them are not compared with such that have them."""
        without = [one for one in runs() if one["where"] != "local"]
        names = alone(samples(runs()), samples(without))
        self.assertIn("500 1000 offloaded seconds: only before", names)
        self.assertIn(f"500 1000 offloaded seconds{ABSOLUTE}: only after", names)
        self.assertEqual(set(self.verdicts(runs(), without)), {"requests/pod lender"})

    def test_an_interrupted_repetition(self) -> None:
        """What it lacks does not move the others' partners."""
        whole = runs()
        found = samples([*whole[:3], *whole[4:]])["500 1000 offloaded seconds"]
        self.assertEqual([round(one, 6) for one in found], [2.91, 3.0, 3.06, 3.09])

    def test_status(self) -> None:
        """It is 1 when one is worse, and another one when nothing is known of any."""
        for verdicts, wanted in (
            ([Verdict.SAME, Verdict.BETTER], 0),
            ([Verdict.SAME, Verdict.NOISY], 0),
            ([Verdict.SAME, Verdict.WORSE], 1),
            ([Verdict.UNKNOWN, Verdict.NOISY], NOTHING),
            ([], NOTHING),
        ):
            found = [Difference("a", 1.0, 1.0, 0.0, one) for one in verdicts]
            self.assertEqual(status(found), wanted, f"{verdicts}")

    def test_nothing_in_common(self) -> None:
        """Two files of different benchmarks are no success."""
        place = Path(self.mktemp())
        files = [report.save_figures(name, {name: [1.0] * 3}, place / name) for name in ("one", "two")]
        self.patch(sys, "argv", ["compare", *map(str, files)])
        self.assertEqual(self.assertRaises(SystemExit, comparison.main).code, NOTHING)

    def test_too_few(self) -> None:
        """Of two repetitions nobody knows the noise."""
        self.assertEqual(set(self.verdicts(runs()[:4], runs(factor=3.0)).values()), {Verdict.UNKNOWN})

    def test_one_request_more(self) -> None:
        """Requests are not divided by anything."""
        more = [{**one, "requests/pod lender": one["requests/pod lender"] + 1} for one in runs()]
        self.assertEqual(self.verdicts(runs(), more)["requests/pod lender"], Verdict.WORSE)


class ResultsTests(SynchronousTestCase):
    """Where figures go."""

    def setUp(self) -> None:
        self.patch(report, "RESULTS", Path(self.mktemp()))

    def test_a_file_of_their_own(self) -> None:
        """Without another file they go to one by the benchmark and the date; it can be compared with itself."""
        figures = {"first write, s": [1.0, 1.01, 1.02]}
        file = report.save_figures("takeover", figures, None, pods=10)
        self.assertEqual(file.parent, report.RESULTS)
        self.assertRegex(file.name, r"^takeover-\d{8}T\d{6}\.json$")
        kept = json.loads(file.read_text())
        self.assertEqual((kept["figures"], kept["about"]), (figures, {"pods": 10}))
        self.assertIn("commit", kept)
        (found,) = compare(samples_of(kept), samples_of(kept), 0.10)
        self.assertEqual(found.verdict, Verdict.SAME)
        self.assertRegex(report.save(None, []).name, r"^offload-")

    def test_another_file(self) -> None:
        """One that is named is written, with the folders that it is in."""
        wanted = Path(self.mktemp()) / "mine" / "figures.json"
        self.assertEqual(report.save(wanted, []), wanted)
        self.assertEqual(samples_of(json.loads(wanted.read_text())), {})
        self.assertFalse(report.RESULTS.exists())
        self.assertEqual([file.name for file in wanted.parent.iterdir()], [wanted.name])

    def test_one_definition_of_a_ratio(self) -> None:
        """What a run prints of itself is what a report says of its file."""
        rest: dict[str, Any] = {what: {} for what in ("cpu", "peak", "created", "deleted", "delete_cpu")}
        done = [
            report.Run(qps=500, where=where, pods=10, ready=seconds * hour, busy={"c1/etcd": seconds * hour}, **rest)
            for hour, factor in ((1.0, 2.0), (3.0, 2.5), (2.0, 4.0))
            for where, seconds in (("local", 1.0), ("offloaded", factor))
        ]
        found = goals.summaries(report.records(done))
        self.assertEqual([one.ratio("local") for one in found], [2.5, 2.5])
        self.assertIn(goals.rendered(found), report.text(done, {}, {}))
        values = samples(report.records(done))
        self.assertEqual(values["500 10 offloaded seconds"], [2.0, 2.5, 4.0])

    def test_the_parts_of_a_figure(self) -> None:
        """The CPU of each process is kept beside the figures, and is none of those that are compared."""
        rest: dict[str, Any] = {what: {} for what in ("peak", "created", "deleted", "delete_cpu")}
        cpu = {"c1/etcd": 0.5, "c1/unshare": 0.0}
        (one,) = report.records([report.Run(qps=0, where="local", pods=10, ready=1.0, busy=cpu, cpu=cpu, **rest)])
        self.assertEqual(one["processes, CPU ms/pod"], {"c1/etcd": 50.0})
        named = samples([one, {**one, "where": "offloaded"}])
        self.assertIn("stock 10 offloaded seconds", named)
        self.assertEqual([name for name in named if "processes" in name], [])

    def test_goals(self) -> None:
        """A report ends with 1 where a goal is missed, and is on the latest file where none is named."""
        report.RESULTS.mkdir()
        older, newer = (report.RESULTS / f"offload-{number}.json" for number in (1, 2))
        older.write_text(json.dumps({"commit": "a", "runs": runs()}))
        newer.write_text(json.dumps({"commit": "b", "runs": []}))
        cases: list[tuple[list[str], int]] = [([], 0), ([str(older)], 1)]
        for files, code in cases:
            self.patch(sys, "argv", ["report", *files])
            self.assertEqual(self.assertRaises(SystemExit, report.main).code, code)


class NamesTests(SynchronousTestCase):
    """What can be run."""

    def test_modules(self) -> None:
        """Each name is a module's in one of the folders, and what only other programs start is none."""
        found = modules()
        for name, module in found.items():
            file = CHECKOUT / f"{module.replace('.', '/')}.py"
            self.assertTrue(file.is_file(), name)
        self.assertLessEqual({"offload", "compare", "report", "sweep", "clusters", "hub", "handshake"}, set(found))
        self.assertFalse({"hub_peers", "lenders", "crowd", "flame"} & set(found))


class OffloadTests(SynchronousTestCase):
    """How a run of all three rows is done."""

    def test_namespaces(self) -> None:
        """Pods are looked at by liqod where they are to be offloaded, and nowhere else."""
        self.assertEqual(set(offload.NAMESPACES), set(offload.SELECTORS))
        self.assertEqual(len(set(offload.NAMESPACES.values())), len(offload.SELECTORS))
        spaces: list[Any] = [offload.NAMESPACE, offload.LOCAL_NAMESPACE]
        names = {where: one["metadata"]["name"] for where, one in zip(("offloaded", "local"), spaces, strict=True)}
        self.assertEqual({where: offload.NAMESPACES[where] for where in names}, names)
        self.assertEqual([bool(one["metadata"].get("labels")) for one in spaces], [True, False])

    def test_saved_after_each_repetition(self) -> None:
        """One that fails takes nothing away of those before it."""
        done: list[str] = []

        def run(_: Any, qps: int, where: str, pods: int) -> report.Run:
            done.append(where)
            if len(done) > 4:
                raise AssertionError("not within 900 s: the pods are gone")
            rest = ("busy", "cpu", "peak", "created", "deleted", "delete_cpu")
            nothing: dict[str, Any] = {what: {} for what in rest}
            return report.Run(qps=qps, where=where, pods=pods, ready=1.0, **nothing)

        @contextmanager
        def bed(*_: Any, **__: Any) -> Iterator[dict[int, Any]]:
            yield {1: SimpleNamespace(apply=lambda *_: "")}

        @contextmanager
        def running(_: Any) -> Iterator[Any]:
            yield SimpleNamespace(name="floor", running=True)

        for what, name, stub in (
            (system, "require", lambda: None),
            (build, "ensure", lambda _: None),
            (offload, "precompile", lambda: None),
            (offload, "Testbed", bed),
            (offload, "peer", lambda _: ([], {})),
            (offload, "idle", lambda _: {}),
            (offload, "run", run),
            (floor, "running", running),
        ):
            self.patch(what, name, stub)
        file = Path(self.mktemp())
        self.patch(sys, "argv", ["offload", "--counts=10", "--qps=500", "--repeat=3", f"--json={file}"])
        self.assertRaises(AssertionError, offload.main)
        self.assertEqual([one["where"] for one in json.loads(file.read_text())["runs"]], done[:3])

    def test_new_kinds_are_watched_first(self) -> None:
        """Daemons wait once for the garbage collector, where their kinds were not defined before."""
        watched = 'apiserver_longrunning_requests{group="offloading.liqo.io",resource="shadowpods",verb="WATCH"} 1\n'

        class Cluster:
            """A cluster that ShadowPods are defined in by the first installation."""

            name = "c1"
            defined = False

            def install(self) -> None:
                self.defined = True

            def kubectl(self, *words: str) -> str:
                if words[1] == "--raw=/metrics":
                    return watched
                return "customresourcedefinition/shadowpods.offloading.liqo.io" if self.defined else ""

        slept: list[float] = []
        self.patch(offload, "time", SimpleNamespace(sleep=slept.append))
        cluster = Cluster()
        daemon: Any = SimpleNamespace(cluster=cluster, install=cluster.install)
        offload.install([daemon])
        self.assertEqual(slept, [offload.DISCOVERY])
        offload.install([daemon])
        self.assertEqual(slept, [offload.DISCOVERY])


class FloorTests(SynchronousTestCase):
    """The program that the floor is."""

    def program(self, *, running: bool) -> Any:
        return SimpleNamespace(name="floor", running=running, tail=lambda: "watch of /api/v1/pods: 410 Gone")

    def test_what_is_done_meanwhile(self) -> None:
        """It is returned as soon as it is there, and raised where it fails."""
        self.assertEqual(floor.during(self.program(running=True), lambda: 7), 7)

        def fails() -> None:
            raise LookupError("no such node")

        self.assertRaises(LookupError, floor.during, self.program(running=True), fails)

    def test_one_that_ended(self) -> None:
        """The run ends with its words, and does not wait for pods that nobody makes."""
        self.patch(floor, "LOOK", 0.01)
        never = threading.Event()
        self.addCleanup(never.set)
        error = self.assertRaises(SystemExit, floor.during, self.program(running=False), never.wait)
        self.assertIn("410 Gone", str(error))


class LatencyTests(SynchronousTestCase):
    """Percentiles."""

    def test_nearest_rank(self) -> None:
        """The part of so many values is at or below it, and no smaller value would do."""
        values = [float(one) for one in range(200, 0, -1)]
        cases = ((200, 0.5, 100.0), (200, 0.99, 198.0), (50, 0.9, 45.0), (1, 0.99, 1.0), (3, 0.5, 2.0))
        for count, part, wanted in cases:
            self.assertEqual(latency.percentile(values[-count:], part), wanted, f"{part} of {count}")

    def test_a_tail_that_is_known(self) -> None:
        """There is a P99 from 200 samples on; of fewer it would be the largest."""
        last = latency.HEAD.index("P99 ms")
        for count, wanted in ((50, "-"), (199, "-"), (200, 198.0), (1000, 990.0)):
            row = latency.Taken("secrets", "liqod", [float(one) for one in range(1, count + 1)]).row()
            self.assertEqual(len(row), len(latency.HEAD))
            self.assertEqual(row[last], wanted, f"{count}")

    def test_figures(self) -> None:
        """Every sample is kept, so that two runs can be compared."""
        taken = [latency.Taken("secrets", "liqod", (1.0, 2.0)), latency.Taken("secrets", "alone", (3.0,))]
        found = latency.figures(taken)
        self.assertEqual(found, {"secrets, liqod, ms": [1.0, 2.0], "secrets, alone, ms": [3.0]})


class MeasureTests(SynchronousTestCase):
    """What a process has spent."""

    def test_memory(self) -> None:
        """What is resident now is no more than it was at most; a process that is gone has nothing."""
        mine = spent(os.getpid())
        self.assertTrue(0 < mine.resident_mib <= mine.peak_mib, f"{mine}")
        self.assertEqual(spent(2**30).resident_mib, 0.0)


class HubTests(SynchronousTestCase):
    """What a hub is measured by."""

    def test_ready_peers(self) -> None:
        """Records that are Ready count; one without a status is not there yet."""
        records = b'{"items": [{"status": {"phase": "Ready"}}, {"status": {"phase": "Joining"}}, {}]}'
        api: Any = SimpleNamespace(get={"/apis/discovery.liqo.io/v1alpha1/foreignclusters": records}.__getitem__)
        self.assertEqual(hub.ready_peers(api), 1)


class TakeoverTests(SynchronousTestCase):
    """What counts as the first write of a successor, and as a list."""

    def event(self, verb: str, resource: str, name: str = "", space: str = "", **more: Any) -> dict[str, Any]:
        resource, _, subresource = resource.partition("/")
        about = {"resource": resource, "subresource": subresource, "name": name, "namespace": space}
        return {"verb": verb, "objectRef": about, "requestURI": "/", "user": {"username": "liqod"}, **more}

    def test_writes(self) -> None:
        """Everything that changes what is stored, but for the Leases of the daemon; those of virtual nodes count."""
        for verb, resource, name, space, written in (
            ("patch", "pods/status", "web", "shop", True),
            ("update", "leases", "liqod", "liqo-system", False),
            ("patch", "leases", lease_name("all", "one"), "liqo-system", False),
            ("create", "leases", "", "liqo-system", False),
            ("patch", "leases", "liqo-milan", "kube-node-lease", True),
            ("patch", "leases", "liqod", "shop", True),
            ("create", "selfsubjectaccessreviews", "", "", False),
            ("create", "serviceaccounts/token", "liqod", "liqo-system", False),
            ("create", "shadowpods", "", "shop", True),
            ("list", "pods", "", "", False),
        ):
            event = self.event(verb, resource, name, space)
            self.assertEqual(takeover.is_write(event), written, f"{verb} {resource} {name}")

    def test_lists(self) -> None:
        """Also those that are streamed; a watch that goes on is none."""
        streamed = "/api/v1/pods?watch=true&sendInitialEvents=true"
        self.assertTrue(takeover.is_list(self.event("list", "pods")))
        self.assertTrue(takeover.is_list(self.event("watch", "pods", requestURI=streamed)))
        self.assertFalse(takeover.is_list(self.event("watch", "pods", requestURI="/api/v1/pods?watch=true")))

    def test_the_first(self) -> None:
        """It is the one that arrived first, of those that count, whichever was answered first."""
        events = [
            self.event("list", "pods", requestReceivedTimestamp="2026-11-22T10:00:01.500000Z"),
            self.event("patch", "pods", "b", requestReceivedTimestamp="2026-11-22T10:00:02.500000Z"),
            self.event("patch", "pods", "a", requestReceivedTimestamp="2026-11-22T10:00:02.250000Z"),
        ]
        self.assertEqual(takeover.first(events, takeover.is_write) - takeover.first(events, takeover.is_list), 0.75)
        self.assertRaises(LookupError, takeover.first, events[:1], takeover.is_write)

    def test_who_asked(self) -> None:
        """The one in whose name it was, where a relay passed it on."""
        passed = self.event("create", "shadowpods", impersonatedUser={"username": "a:borrower"})
        self.assertEqual([takeover.user(one) for one in (passed, self.event("get", "pods"))], ["a:borrower", "liqod"])


class FailingPartTests(SynchronousTestCase):
    """A part of a benchmark that fails ends it, with the reason, and leaves nothing behind."""

    def test_a_profile_that_cannot_be_taken(self) -> None:
        """What fails in the thread of a profile is raised where the profiles are read."""

        def refused(*_: Any) -> None:
            raise OSError("connection refused")

        self.patch(profile, "_daemons", lambda _: [])
        self.patch(profile.Profiles, "_take_server", refused)
        testbed: Any = SimpleNamespace(clusters=[SimpleNamespace(name="rome")])
        profiles = profile.Profiles(testbed, 0, Path(self.mktemp()))
        profiles.start()
        error = self.assertRaises(AssertionError, profiles.stacks)
        self.assertIn("rome", str(error))
        self.assertIn("connection refused", str(error))

    def test_peers_that_cannot_be_made(self) -> None:
        """The process of the peers ends, so that the hub does not wait for it for ever."""
        code = (
            "import benchmarks.peering.hub_peers as one\n"
            "async def prepare(*_): raise OSError('no port is free')\n"
            "one.prepare = prepare\n"
            "raise SystemExit(one.main('1', '127.0.0.1:1'))\n"
        )
        path = os.pathsep.join(map(str, (CHECKOUT, CHECKOUT / "sandbox")))
        environ = {**os.environ, "PYTHONPATH": path}
        with subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=CHECKOUT,
            env=environ,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            self.addCleanup(running.kill)
            assert running.stderr is not None
            try:
                self.assertEqual(running.wait(120), 1)
            finally:
                running.kill()
            self.assertIn("no port is free", running.stderr.read())

    def test_a_far_process_that_does_not_listen(self) -> None:
        """It is stopped when it is given up, and when the benchmark ends."""

        class Far:
            """A process that runs."""

            running = True
            stopped = 0

            def tail(self) -> str:
                return "nothing"

            def stop(self, patience: float) -> None:
                self.stopped += 1

        far = Far()
        passing = iter(range(0, 1000, 30))
        self.patch(process, "spawn", lambda *_, **__: far)
        self.patch(relay, "time", SimpleNamespace(monotonic=lambda: next(passing), sleep=lambda _: None))
        directory = Path(self.mktemp())
        directory.mkdir()
        with self.assertRaisesRegex(SystemExit, "api does not listen"), relay.listening(directory, "api"):
            self.fail("it does not listen")
        self.assertEqual(far.stopped, 1)
        (directory / "lender").write_text("1")
        with relay.listening(directory, "lender"):
            self.assertEqual(far.stopped, 1)
        self.assertEqual(far.stopped, 2)


class NotedTests(SynchronousTestCase):
    """What a sandbox server notes is read like the audit log of a real one."""

    def noted(self, method: str, path: str, **arguments: str) -> dict[str, Any]:
        """Return a request as it is noted."""
        query = "&".join(f"{name}={value}" for name, value in arguments.items())
        request: Any = SimpleNamespace(
            method=method.encode(),
            path=path.encode(),
            uri=f"{path}?{query}".encode(),
            args={name.encode(): [value.encode()] for name, value in arguments.items()},
            getHeader=lambda name: "liqod/1",
        )
        return noted.event(request, datetime(2026, 11, 22, 10, 0, 2, tzinfo=UTC))

    def test_the_lease(self) -> None:
        """Those of the daemon are no writes, those of nodes are; the time is that of the request."""
        leases = "/apis/coordination.k8s.io/v1/namespaces"
        self.assertFalse(takeover.is_write(self.noted("POST", f"{leases}/liqo-system/leases")))
        process_lease = f"{leases}/liqo-system/leases/{lease_name('all', 'one')}"
        self.assertFalse(takeover.is_write(self.noted("PATCH", process_lease)))
        own = self.noted("PUT", f"{leases}/liqo-system/leases/liqod")
        self.assertFalse(takeover.is_write(own))
        self.assertTrue(takeover.is_write(self.noted("PATCH", f"{leases}/kube-node-lease/leases/liqo-milan")))
        self.assertEqual(takeover.moment(own["requestReceivedTimestamp"]) % 60, 2.0)

    def test_lists(self) -> None:
        """A list is one, and so is a watch that begins with everything."""
        self.assertTrue(takeover.is_list(self.noted("GET", "/api/v1/pods")))
        self.assertTrue(takeover.is_list(self.noted("GET", "/api/v1/pods", watch="true", sendInitialEvents="true")))
        self.assertFalse(takeover.is_list(self.noted("GET", "/api/v1/pods", watch="true")))
        self.assertFalse(takeover.is_list(self.noted("GET", "/api/v1/namespaces/shop/pods/web")))

    def test_subresources(self) -> None:
        """A status is written to the object that it is of."""
        about = self.noted("PATCH", "/api/v1/namespaces/shop/pods/web/status")["objectRef"]
        self.assertEqual(about, {"resource": "pods", "subresource": "status", "namespace": "shop", "name": "web"})
        self.assertEqual(self.noted("GET", "/api/v1/namespaces/shop")["objectRef"]["namespace"], "")

    def test_figures(self) -> None:
        """Seconds are counted from the end of the lease; lists from when it was taken."""
        times = {"requestReceivedTimestamp": "2026-11-22T10:00:02Z"}
        made = {**self.noted("POST", "/apis/a/v1/namespaces/x/shadowpods"), **times}
        read, wrote = self.noted("GET", "/api/v1/pods"), self.noted("PATCH", "/api/v1/namespaces/shop/pods/web")
        now = takeover.moment(times["requestReceivedTimestamp"])
        found = takeover.figures([read, wrote], [made], acquired=now - 1.0, ended=now - 2.0)
        self.assertEqual(found["lease ends -> it leads, s"], 1.0)
        self.assertEqual(found["lease ends -> its first write at home, s"], 2.0)
        self.assertEqual(found["lease ends -> its first ShadowPod, s"], 2.0)
        self.assertEqual((found["lists after that"], found["lists of pods, ShadowPods and secrets"]), (1.0, 1.0))
        late = takeover.figures([read, wrote], [made], acquired=now + 1.0, ended=now)
        self.assertEqual(late["lists after that"], 0.0)
