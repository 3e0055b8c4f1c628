"""Our alert rules on real Prometheus servers at three real clusters: ``make nightly ARGS=monitoring``.

Rome and milan borrow from each other; paris knows nobody and is there to see that nothing fires without a cause. Each
cluster has a Prometheus of its own, as docs/runbooks.md wants it, with the published job and rules, but sooner.
"""

from __future__ import annotations

import atexit
import time
from functools import partial
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.packaging.test_monitoring import rules as published
from tests.real.alerting.cases import ANYWAY, CASES, Case
from tests.real.alerting.rules import down, evaluated, firing, unhealthy
from tests.real.alerting.server import METRICS, PACKAGES, Prometheus, log_of
from tests.real.base import require_clusters
from tests.real.borrowing import MILAN, ROME, Borrowing, NamedDaemon
from tests.real.broken_setups import faults
from tests.real.path import eventually
from tests.testbed import build, process, system

PARIS = "paris"
FIRES_WITHIN = 180.0
"""Seconds until an alert fires: what has to be noticed first is missed pings, or an answer that is remembered."""
RESOLVES_WITHIN = 240.0
_FAILURES = (process.CommandFailed, AssertionError, LookupError, ValueError, OSError)


class AlertingTests(SynchronousTestCase):
    """Steps in the order of their numbers."""

    _sides: ClassVar[Borrowing | None] = None
    servers: ClassVar[dict[str, Prometheus]] = {}

    def setUp(self) -> None:
        """Make clusters, daemons and servers before the first step."""
        cls = type(self)
        if cls._sides is None:
            try:
                system.require(PACKAGES)
            except system.Missing as error:
                require(str(error))
            build.ensure()
            require_clusters()
            cls._sides = Borrowing(clusters=3, more=METRICS)
            atexit.register(cls._sides.close)
            cls._sides.open()
            self._make_paris(cls._sides)
            clusters = dict(zip((ROME, MILAN, PARIS), cls._sides.testbed.clusters, strict=True))
            for name, cluster in clusters.items():
                cls.servers[name] = Prometheus(cluster)
                atexit.register(cls.servers[name].stop)
                cls.servers[name].start()
        assert cls._sides is not None
        self.sides = cls._sides

    def _make_paris(self, sides: Borrowing) -> None:
        """Start the daemon of the third cluster, which finds nobody."""
        paris = NamedDaemon(sides.testbed[3], PARIS, extra=METRICS)
        text = paris.config.read_text()
        self.assertIn('interfaces = ["eth0"]', text)
        paris.config.write_text(text.replace('interfaces = ["eth0"]', "mdns = false"))
        paris.start()

    def all_up(self) -> bool:
        """Have every server scrape its daemon without an error."""
        for name, server in self.servers.items():
            self.assertEqual(down(server.ask("targets")), {}, name)
        return True

    def fires(self, at: str) -> set[str]:
        """Return the alerts that fire at a side."""
        return firing(self.servers[at].ask("alerts"))

    def silent(self, case: Case) -> bool:
        """Have none of a case's alerts fire."""
        self.assertEqual(self.fires(case.at) & set(case.alerts), set())
        return True

    def test_1_targets(self) -> None:
        """Each daemon is scraped through TLS, by an account with that right; without the token it refuses."""
        eventually("all targets are up", self.all_up)
        for server in self.servers.values():
            cluster = server.cluster
            url = "https://liqod-metrics.liqo-system.svc:5874/metrics"
            to = f"liqod-metrics.liqo-system.svc:5874:{cluster.address}:5874"
            asking = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}"]
            trusted = ["--cacert", str(server.directory / "ca.crt"), "--connect-to", to]
            self.assertEqual(cluster.run([*asking, *trusted, url]), "401", cluster.name)

    def test_2_rules(self) -> None:
        """Every published rule is loaded and evaluates, recorded series and alerts alike."""
        for name, server in self.servers.items():
            eventually(f"the rules of {name} evaluate", partial(self.evaluates, server))

    def evaluates(self, server: Prometheus) -> bool:
        """Have a server evaluate all rules without an error."""
        answer = server.ask("rules")
        self.assertEqual(unhealthy(answer), {})
        self.assertEqual(evaluated(answer), {one.get("alert", one.get("record")) for one in published()})
        return True

    def test_3_alerts(self) -> None:
        """In each of ten broken set-ups an alert fires that names it, and ends when it was mended."""
        eventually("nothing fires", self.quiet, RESOLVES_WITHIN)
        failed = [f"{case.name}: {why}" for case in CASES if (why := self.tried(case))]
        if failed:
            print(*(f"--- {name}\n{log_of(server)}" for name, server in self.servers.items()), sep="\n")
        self.assertEqual(failed, [])

    def tried(self, case: Case) -> str:
        """Break, wait for an alert, mend, wait for its end; return what did not come about, or nothing."""
        try:
            eventually("its alerts do not fire", partial(self.silent, case), RESOLVES_WITHIN)
            with faults.made(self.sides, case.fault):
                begin = time.monotonic()
                fired = eventually(
                    f"one of {case.alerts} fires", lambda: self.fires(case.at) & set(case.alerts), FIRES_WITHIN
                )
                print(f"{case.name}: {', '.join(sorted(fired))} after {time.monotonic() - begin:.0f} s", flush=True)
                self.assertEqual(self.fires(PARIS) - ANYWAY, set(), "at a cluster that nothing was done to")
            begin = time.monotonic()
            eventually("all is well again", self.sides.is_well, RESOLVES_WITHIN, 1.0)
            eventually("its alerts end", partial(self.silent, case), RESOLVES_WITHIN)
            print(f"{case.name}: they ended {time.monotonic() - begin:.0f} s after it was mended", flush=True)
        except _FAILURES as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def quiet(self) -> bool:
        """Have nothing fire anywhere."""
        for name in self.servers:
            self.assertEqual(self.fires(name) - ANYWAY, set(), name)
        return True
