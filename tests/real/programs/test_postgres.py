"""PostgreSQL: the primary with its volume at the lender, a streaming replica at home, failover by hand."""

from __future__ import annotations

from tests.real.path import NAMESPACE, eventually
from tests.real.programs import postgres
from tests.real.programs.base import LONG
from tests.real.programs.ledger import LedgerTests
from tests.real.programs.postgres import LEADS, REPLICA, ROLE, WRITER
from tests.real.programs.workloads import VIRTUAL

SECOND = "writer-there"
"""A client beside the primary, at milan."""


class PostgresTests(LedgerTests):
    """Steps in the order of their numbers."""

    def test_01_primary(self) -> None:
        """The primary of a StatefulSet runs at milan, its data in a volume there, and answers by its service."""
        self.begin()
        address = self.make_database()
        bound = self.there("pvc", f"data-{self.primary}")
        self.assertEqual(bound["status"]["phase"], "Bound")
        self.home.apply(postgres.writer(address, self.at_home))
        self.at_rome(WRITER)
        self.writes_on()

    def test_02_restart_with_its_data(self) -> None:
        """A primary whose pod is deleted comes back at milan with its volume: nothing that was committed is lost."""
        self.check_new_pod()
        self.assertTrue(self.broken())

    def test_03_replica_at_home(self) -> None:
        """A replica at rome copies the primary through the tunnel, and follows it."""
        address = str(self.here("service", postgres.PRIMARY)["spec"]["clusterIP"])
        self.home.apply(postgres.replica(address, self.at_home))
        self.at_rome(REPLICA)
        eventually("it follows", lambda: self.ask("select state from pg_stat_replication") == "streaming", LONG)
        self.assertEqual(self.ask("select pg_is_in_recovery()", REPLICA), "t")
        count = int(self.ask("select count(*) from ledger"))
        eventually("it has the rows", lambda: int(self.ask("select count(*) from ledger", REPLICA)) >= count)
        # What is acknowledged from now on is at both.
        self.ask("alter system set synchronous_standby_names = '*'")
        self.ask("select pg_reload_conf()")
        eventually("it is waited for", lambda: self.ask("select sync_state from pg_stat_replication") == "sync")
        self.writes_on()

    def test_04_failover(self) -> None:
        """Promoted by hand, the replica has all that was acknowledged; the service leads to it, from both clusters."""
        self.home.kubectl("scale", "-n", NAMESPACE, f"statefulset/{postgres.PRIMARY}", "--replicas=0")
        eventually("the primary is gone", lambda: self.uids(postgres.PRIMARY) == {}, LONG)
        self.assertEqual(self.ask("select pg_promote()", REPLICA), "t")
        self.home.kubectl("label", "pod", "-n", NAMESPACE, REPLICA, "--overwrite", f"{ROLE}={LEADS[ROLE]}")
        self.writes_on()
        self.check_ledger(REPLICA)
        address = str(self.here("service", postgres.PRIMARY)["spec"]["clusterIP"])
        self.home.apply(postgres.writer(address, VIRTUAL, SECOND))
        self.at_milan(SECOND)
        # It counts from 1 as well, and finds these rows: what is shown is that it reaches the database at home.
        self.writes_on(SECOND, 5)

    def test_05_the_volume_goes_with_its_claim(self) -> None:
        """Deleted at home, the claim takes milan's with it."""
        self.drop("statefulset/pg", f"pvc/data-{self.primary}")
        eventually("no claim is left", lambda: not self.lender.get("pvc", "-n", self.remote())["items"], LONG)
