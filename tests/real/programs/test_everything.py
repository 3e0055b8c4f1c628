"""Databases, web servers, jobs and their clients at once, while daemons, name servers, the link and an API server fail.

Two promises: no connection between two pods breaks that does not cross what was cut, and no transaction is lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from tests.real.borrowing import crash
from tests.real.daemons import Daemon, HostDaemon
from tests.real.path import NAMESPACE, condition, eventually, live_pods, node_ready
from tests.real.programs import ingress, postgres, traffic
from tests.real.programs.base import LONG
from tests.real.programs.ledger import LedgerTests
from tests.real.programs.traffic import ECHO, ECHO_PORT, SEEN, WEB
from tests.real.programs.workloads import (
    VIRTUAL,
    bare_pod,
    claim,
    client,
    container,
    every_minute,
    job,
    of_database,
    pod_spec,
    workload,
)
from tests.testbed.cluster import Cluster

KILLS = 20
"""How often the daemon of each side is killed."""
CUT = 300.0
"""Seconds for which nothing passes between the clusters."""
HOST = "shop.example.com"
THERE, HERE, ACROSS, VISITOR = "held-there", "held-here", "held-across", "visitor"
HOME_ECHO, WRITER_THERE, REDIS, COUNTER, NAMED, CRON = "home-echo", "writer-there", "redis", "counter", "named", "tick"
NAMES = '\n[names]\nenabled = true\n[metrics]\nlisten = ""\n'
OF_NAMES = '\n[daemon]\nrole = "names"\n[names]\nslot = 2\n[metrics]\nlisten = ""\n'
# Each answer of the server is the number that it has stored: the last line is what must be there at least.
_COUNT = "while :; do redis-cli -h $ADDRESS incr n >> /tmp/seen 2>/tmp/errors || sleep 1; sleep 0.2; done"


class EverythingTests(LedgerTests):
    """Steps in the order of their numbers: all of it begins, then one failure after the other, then the sums."""

    built = ("home-client", "skipper")
    disks = 3
    start_daemons = False
    names: ClassVar[HostDaemon]
    before: ClassVar[dict[str, dict[str, str]]] = {}

    def beside(self, name: str) -> str:
        """Return the address of a service in milan itself: what calls it there does not leave the cluster."""
        found = eventually(f"{name} at milan", partial(self.there, "service", name))
        return str(found["spec"]["clusterIP"])

    def at(self, name: str, file: str = SEEN) -> str:
        """Return a file of a pod at milan, which is asked of milan: home may be cut off."""
        script = f"cat {file} 2>/dev/null; true"
        return self.lender.kubectl("exec", "-n", self.remote(), name, "--", "sh", "-c", script)

    def pods_there(self) -> dict[str, str]:
        """Return the UIDs of the pods at milan that stay, with how often their containers were restarted."""
        found = self.lender.get("pods", "-n", self.remote())["items"]
        return {
            one["metadata"]["name"]: " ".join(
                [one["metadata"]["uid"], *(str(each["restartCount"]) for each in one["status"]["containerStatuses"])]
            )
            for one in found
            if not one["metadata"]["name"].startswith(CRON)
        }

    def intact(self) -> None:
        """Have all that does not cross the link be as it was: the pods, and every connection inside of one cluster."""
        self.assertEqual(self.pods_there(), self.before["pods"])
        for name, cluster in ((THERE, self.lender), (HERE, self.home)):
            seen = self.seen(name, SEEN, cluster)
            self.assertEqual(seen["broken"], "", name)
            self.assertLess(seen["longest"], 10.0, f"{name} waited for an answer")
        self.assertEqual(self.at(WRITER_THERE, "/data/broken"), "", "the session beside the database")
        self.goes_on()

    def goes_on(self) -> None:
        """Have what counts at milan count on."""

        def count() -> tuple[int, int]:
            echoed = int(self.seen(THERE, SEEN, self.lender)["echoed"])
            return echoed, len(self.at(WRITER_THERE, "/data/acknowledged").split())

        first = count()
        eventually("they count on", lambda: all(now > then for now, then in zip(count(), first, strict=True)))

    def well(self) -> None:
        """Wait until the clusters are joined again, and the clients that cross the link are answered."""
        eventually("the virtual node is Ready", partial(node_ready, self.home), LONG)
        eventually("the tunnel", self.connected, LONG)
        self.writes_on(timeout=LONG)
        asked = partial(self.seen, VISITOR, SEEN)
        before = int(asked()["answered"])
        eventually("the visitor is answered", lambda: int(asked()["answered"]) > before + 50, LONG)

    def kill_in_turn(self, daemons: Sequence[Daemon], count: int, seed: int, pause: float = 0.5) -> None:
        """Kill daemons, one after the other, so often each, at moments chosen by chance; each is started again.

        ``pause`` is the least time for which all of them run between two kills.
        """
        chance = random.Random(seed)
        for _ in range(count):
            for daemon in daemons:
                time.sleep(pause + chance.uniform(0.0, 3.5))
                crash(daemon)
                time.sleep(chance.uniform(0.0, 0.5))
                daemon.start()

    @contextmanager
    def cut(self, cluster: Cluster, address: str) -> Iterator[None]:
        """Let nothing pass between a cluster's host and another one."""
        lines = ["table ip cut {"]
        for name, word in (("input", "saddr"), ("output", "daddr"), ("forward", "daddr")):
            lines += [f"chain {name} {{", f"type filter hook {name} priority 0", f"ip {word} {address} drop", "}"]
        cluster.run(["nft", "-f", "-"], input="\n".join([*lines, "}", ""]))
        try:
            yield
        finally:
            cluster.run(["nft", "delete table ip cut"])

    def test_01_it_begins(self) -> None:
        """The clusters are joined; milan has two name servers for rome's pods."""
        self.milan.config.write_text(self.milan.config.read_text() + NAMES)
        self.rome.start()
        self.milan.start()
        type(self).names = HostDaemon(self.lender, "milan", identity="names", extra=OF_NAMES)
        self.names.start()
        self.begin()

    def test_02_databases(self) -> None:
        """PostgreSQL and Redis run at milan; each has a client in each cluster, or beside it."""
        address = self.make_database()
        self.ask("create table beside (n bigint primary key)")
        self.home.apply(postgres.writer(address, self.at_home))
        script = postgres.writer(self.beside(postgres.PRIMARY), VIRTUAL, WRITER_THERE)
        main = script["spec"]["containers"][0]
        main["command"][2] = main["command"][2].replace("insert into ledger", "insert into beside")
        mounts = [{"name": "data", "mountPath": "/data"}]
        server = "exec redis-server --protected-mode no --dir /data --appendonly yes --appendfsync always"
        redis = container(server, port=6379, volumeMounts=mounts)
        spec = pod_spec(redis, VIRTUAL, **of_database())
        self.home.apply(
            script,
            workload("StatefulSet", REDIS, spec, volumeClaimTemplates=[claim("data")]),
        )
        self.serve(REDIS, 6379)
        counter = container(_COUNT, env=[{"name": "ADDRESS", "value": self.beside(REDIS)}])
        self.home.apply(bare_pod(COUNTER, pod_spec(counter, VIRTUAL)))
        for name in (WRITER_THERE, REDIS, COUNTER):
            self.at_milan(name)
        self.at_rome(postgres.WRITER)
        self.writes_on()

    def test_03_traffic(self) -> None:
        """Web servers at milan behind a controller at rome; connections are held in each cluster and between them."""
        self.home.apply(*ingress.rights(), ingress.controller(self.at_home), traffic.web(3))
        self.serve(WEB, traffic.PORT)
        self.home.apply(ingress.ingress(WEB, HOST, WEB, traffic.PORT))
        self.home.apply(traffic.echo(VIRTUAL), traffic.echo(self.at_home, HOME_ECHO))
        across, here = self.serve(ECHO, ECHO_PORT), self.serve(HOME_ECHO, ECHO_PORT)
        self.at_milan(WEB, 3)
        self.at_milan(ECHO)
        self.at_rome(HOME_ECHO)
        (front,) = self.at_rome(ingress.NAME).values()
        url = f"http://{front['status']['podIP']}:{ingress.PORT}/"
        self.home.apply(
            traffic.held(THERE, self.beside(ECHO), VIRTUAL),
            traffic.held(HERE, here, self.at_home),
            traffic.held(ACROSS, across, self.at_home),
            traffic.load(VISITOR, url, self.at_home, host=HOST),
            bare_pod(NAMED, pod_spec(client("lookup", f"{ECHO}.{NAMESPACE}.svc", SEEN), VIRTUAL)),
            every_minute(CRON, "date", successfulJobsHistoryLimit=60),
        )
        for name in (THERE, NAMED):
            self.at_milan(name)
        for name in (HERE, ACROSS, VISITOR):
            self.at_rome(name)
        self.well()
        self.before["pods"] = self.pods_there()
        self.intact()

    def test_04_daemons(self) -> None:
        """Both daemons are killed twenty times: no request and no connection notices, nor those across the link."""
        failed = int(self.seen(VISITOR, SEEN)["failed"])
        self.kill_in_turn([self.rome, self.milan], KILLS, seed=4)
        self.intact()
        self.well()
        self.assertEqual(self.seen(ACROSS, SEEN)["broken"], "")
        self.assertEqual(int(self.seen(VISITOR, SEEN)["failed"]), failed, self.seen(VISITOR, SEEN))
        self.assertEqual(self.broken(), [])

    def test_05_name_servers(self) -> None:
        """One name server is away at a time, ten times each: a name that is asked for again is found."""
        asked = partial(self.seen, NAMED, SEEN, self.lender)
        start = int(asked()["answered"])
        eventually("names are found", lambda: int(asked()["answered"]) > start + 10)
        failed = int(asked()["failed"])
        self.kill_in_turn([self.names, self.milan], 10, seed=5, pause=10.0)
        self.intact()
        self.assertEqual(int(asked()["failed"]), failed, asked())
        before = int(asked()["answered"])
        eventually("names are still found", lambda: int(asked()["answered"]) > before + 10)
        self.well()

    def test_06_the_link(self) -> None:
        """For five minutes nothing passes: inside of each cluster nothing is lost, and afterwards all goes on."""
        with self.cut(self.lender, self.home.address):
            end = time.monotonic() + CUT
            while time.monotonic() < end:
                time.sleep(20.0)
                self.assertEqual(self.seen(THERE, SEEN, self.lender)["broken"], "")
                self.assertEqual(self.seen(HERE, SEEN, self.home)["broken"], "")
            self.intact()
        self.well()
        self.intact()
        self.assertEqual(len(live_pods(self.home, WEB)), 3)
        print(f"\nacross the cut: {self.seen(ACROSS, SEEN)}, sessions ended: {self.broken()}")

    def test_07_the_lenders_api_server(self) -> None:
        """Milan's API server is away for a while: no pod and no connection notices."""
        self.home_is_answered()
        failed = int(self.seen(VISITOR, SEEN)["failed"])
        self.lender.lose_control_plane()
        time.sleep(30.0)
        self.lender.restore_control_plane(kubelet=True)
        self.well()
        self.intact()
        self.assertEqual(int(self.seen(VISITOR, SEEN)["failed"]), failed, self.seen(VISITOR, SEEN))

    def home_is_answered(self) -> None:
        """Wait until home's clients have been answered without a failure for ten seconds."""

        def steady() -> bool:
            before = int(self.seen(VISITOR, SEEN)["failed"])
            time.sleep(10.0)
            return int(self.seen(VISITOR, SEEN)["failed"]) == before

        eventually("no request fails", steady, LONG)

    def test_08_all_at_once(self) -> None:
        """While daemons are killed, new pods come, the web servers are replaced, and jobs end."""
        self.home.apply(traffic.web(3, version="2"))
        self.home.apply(job("last", "echo done", completions=5, parallelism=5, completionMode="Indexed"))
        self.kill_in_turn([self.rome, self.names, self.milan], 5, seed=8)
        words = ("rollout", "status", "-n", NAMESPACE, f"deployment/{WEB}", "--timeout=300s")
        self.home.kubectl(*words, timeout=320)
        self.at_milan(WEB, 3)
        eventually("the job is done", lambda: condition(self.here("job", "last"), "Complete") == "True", LONG)
        self.assertEqual(self.here("job", "last")["status"].get("failed", 0), 0)

    def test_09_the_sums(self) -> None:
        """Nothing that a database acknowledged is lost, and no job of the minutes has failed."""
        self.check_ledger()
        known = [int(line) for line in self.at(WRITER_THERE, "/data/acknowledged").split()]
        rows = {int(line) for line in self.ask("select n from beside").split()}
        self.assertEqual(known, list(range(1, len(known) + 1)))
        self.assertEqual(set(known) - rows, set())
        counted = [int(word) for word in self.at(COUNTER).split() if word.isdigit()]
        self.assertEqual(counted, sorted(set(counted)), "a number was given twice")
        stored = self.run_in(f"{REDIS}-0", "redis-cli", "get", "n").strip()
        self.assertGreaterEqual(int(stored), counted[-1])
        jobs = self.minutes()
        self.assertEqual([one["metadata"]["name"] for one in jobs if one["status"].get("failed")], [])
        self.assertGreater(len(jobs), 5)
        print(f"\n{len(known)} rows beside the database, {counted[-1]} in Redis, {len(jobs)} jobs")

    def minutes(self) -> list[dict[str, Any]]:
        """Return the jobs that the CronJob has made."""
        jobs = self.home.get("jobs", "-n", NAMESPACE)["items"]
        return [one for one in jobs if one["metadata"]["name"].startswith(CRON)]
