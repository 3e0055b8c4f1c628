"""Steps with a database and its clients: what was acknowledged is there, once, and which sessions broke."""

from __future__ import annotations

from functools import partial

from tests.real.path import eventually
from tests.real.programs import postgres
from tests.real.programs.base import LONG, ProgramTests


class LedgerTests(ProgramTests):
    """The base of tests with PostgreSQL at milan; without steps of its own."""

    disks = 3

    @property
    def primary(self) -> str:
        """The name of the primary's pod."""
        return f"{postgres.PRIMARY}-0"

    def make_database(self) -> str:
        """Have the primary run at milan with an empty table, and return the address of its service at home."""
        self.home.apply(postgres.service(), postgres.primary())
        self.at_milan(postgres.PRIMARY, 1, LONG)
        eventually("the database answers", lambda: self.ask("select 1") == "1", LONG)
        self.ask("create table ledger (n bigint primary key)")
        return str(self.here("service", postgres.PRIMARY)["spec"]["clusterIP"])

    def ask(self, statement: str, pod: str = "", address: str = "127.0.0.1") -> str:
        """Carry out a statement in a database's own pod, or by an address from any other pod."""
        return self.run_in(pod or self.primary, *postgres.sql(statement, address)).strip()

    def acknowledged(self, pod: str = postgres.WRITER) -> list[int]:
        """Return the numbers that a client knows to be committed, in its order."""
        return [int(line) for line in self.run_in(pod, "cat", "/data/acknowledged").split()]

    def broken(self, pod: str = postgres.WRITER) -> list[str]:
        """Return why sessions of a client ended, one line each."""
        return self.run_in(pod, "cat", "/data/broken").splitlines()

    def writes_on(self, pod: str = postgres.WRITER, count: int = 20, timeout: float = LONG) -> None:
        """Wait until a client has so many acknowledgements more than now."""
        before = len(self.acknowledged(pod))
        eventually(f"{pod} writes on", lambda: len(self.acknowledged(pod)) >= before + count, timeout)

    def check_ledger(self, database: str = "", pod: str = postgres.WRITER) -> None:
        """Have every acknowledged row be there, and no row that the client did not write."""
        known = self.acknowledged(pod)
        self.assertEqual(known, list(range(1, len(known) + 1)), "the client has counted without a gap")
        eventually("the database answers", partial(self.ask, "select 1", database), LONG)
        rows = [int(line) for line in self.ask("select n from ledger order by n", database).split()]
        lost = sorted(set(known) - set(rows))
        self.assertEqual(lost, [], "transactions that were acknowledged and are lost")
        self.assertEqual(rows, list(range(1, len(rows) + 1)))
        # While this looked the client went on.
        now = self.acknowledged(pod)
        self.assertLessEqual(len(rows), len(now) + 1)

    def check_new_pod(self) -> None:
        """Delete the primary's pod: another one runs at the lender, has what was committed, and is written on."""
        before = self.uids(postgres.PRIMARY)
        self.drop(f"pod/{self.primary}")
        eventually("another pod", lambda: self.uids(postgres.PRIMARY) not in ({}, before))
        self.at_milan(postgres.PRIMARY)
        self.writes_on()
        self.check_ledger()
