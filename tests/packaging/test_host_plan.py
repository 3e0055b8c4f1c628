"""Which changes an installation on a host needs: tables and properties of the plan."""

from __future__ import annotations

from pathlib import Path

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.host.apply import observe
from liqod.cli.setup.host.plan import (
    ABSENT,
    OTHER,
    Account,
    HostPlan,
    ObservedHost,
    Receipt,
    plan_installation,
    plan_removal,
    settled,
)
from liqod.cli.setup.host.wanted import USERS, HostFile, digest_of

NEW, OLD, THEIRS = (digest_of(text) for text in (b"new", b"old", b"theirs"))
SYSTEM_USER = Account(200, "/usr/sbin/nologin")
SYSTEM_USERS = dict.fromkeys(USERS, SYSTEM_USER)


def unit(*, configuration: bool = False, optional: bool = False) -> HostFile:
    """Return an entry whose wanted content is ``new``."""
    return HostFile("/etc/unit", b"new", configuration=configuration, optional=optional)


class InstallTests(SynchronousTestCase):
    def verb(self, entry: HostFile, found: str, *written: str) -> str:
        receipt = Receipt({entry.path: written}) if written else None
        plan = plan_installation([entry], ObservedHost({entry.path: found}, accounts=SYSTEM_USERS, receipt=receipt))
        (change,) = plan.changes
        self.assertEqual(bool(plan.refusals), change.verb == "conflict")
        return change.verb

    def test_unit(self) -> None:
        """What is absent, or as we wrote it, is written; what somebody else wrote or changed is refused."""
        for found, written, verb in (
            (ABSENT, (), "write"),
            (ABSENT, (OLD,), "write"),
            (NEW, (), "unchanged"),
            (NEW, (OLD,), "unchanged"),
            (OLD, (OLD,), "replace"),
            (OLD, (NEW, OLD), "replace"),
            (THEIRS, (), "conflict"),
            (THEIRS, (OLD,), "conflict"),
            (OTHER, (), "conflict"),
        ):
            self.assertEqual(self.verb(unit(), found, *written), verb, (found, written))

    def test_configuration(self) -> None:
        """A configuration that the administrator wrote or changed stays as it is."""
        entry = unit(configuration=True)
        self.assertEqual(self.verb(entry, THEIRS), "keep")
        self.assertEqual(self.verb(entry, THEIRS, OLD), "keep")
        self.assertEqual(self.verb(entry, OLD, OLD), "replace")
        self.assertEqual(self.verb(entry, OTHER), "conflict")

    def test_optional(self) -> None:
        """Completions and links of others stay, and are no reason to refuse."""
        self.assertEqual(self.verb(unit(optional=True), THEIRS), "keep")
        self.assertEqual(self.verb(unit(optional=True), OTHER), "keep")

    def test_not_ours(self) -> None:
        """What was there before, even if equal to what is wanted, is not in the receipt."""
        plan = plan_installation(
            [unit()], ObservedHost({"/etc/unit": NEW}, frozenset({"/etc", "/etc/liqod"}), SYSTEM_USERS)
        )
        self.assertEqual((plan.receipt.entries, plan.receipt.directories, plan.receipt.users), ({}, [], []))

    def test_accounts(self) -> None:
        """An existing user is used if it is a system user that cannot log in, else refused."""
        for account, refused, created in (
            (None, False, list(USERS)),
            (SYSTEM_USER, False, []),
            (Account(200, "/bin/false"), False, []),
            (Account(200, "/bin/sh"), True, []),
            (Account(1000, "/usr/sbin/nologin"), True, []),
            (Account(0, "/usr/sbin/nologin"), True, []),
        ):
            plan = plan_installation([], ObservedHost({}, accounts=dict.fromkeys(USERS, account) if account else {}))
            self.assertEqual((bool(plan.refusals), plan.create_users), (refused, created), account)


class ObserveTests(SynchronousTestCase):
    """What is read of a host."""

    def test_only_accounts_of_the_daemon_are_read(self) -> None:
        """Lines of others, and those that are no account, say nothing."""
        root = Path(self.mktemp())
        (root / "etc").mkdir(parents=True)
        lines = (
            "root:x:0:0:root:/root:/bin/bash",
            "liqod:x:990:990::/:/usr/sbin/nologin",
            "liqod-network:x:none:991::/:/usr/sbin/nologin",
            "liqod-names:x:992",
            "",
        )
        (root / "etc" / "passwd").write_text("\n".join(lines))
        self.assertEqual(observe(root, []).accounts, {"liqod": Account(990, "/usr/sbin/nologin")})


class LifeTests(SynchronousTestCase):
    """Installations that are interrupted anywhere, repeated, upgraded and removed, on a host in memory."""

    @given(
        contents=st.lists(st.binary(max_size=2), min_size=2, max_size=4),
        before=st.sampled_from([ABSENT, THEIRS]),
        stop=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    )
    def test_removal_restores(self, contents: list[bytes], before: str, stop: list[int]) -> None:
        """Whatever was installed in which order, and wherever it was interrupted: removal leaves what was before."""
        paths = ["/etc/liqod/a", "/etc/liqod/b", "/usr/c"]
        host = ObservedHost({path: before if path.endswith("b") else ABSENT for path in paths}, frozenset({"/etc"}))
        start = host
        for content, end in zip(contents, stop, strict=False):
            entries = [HostFile(path, content, optional=True) for path in paths]
            host = carried_out(plan_installation(entries, host), entries, host, end)
        host = removed(plan_removal(host), host)
        self.assertEqual(host, start)

    def test_second_run(self) -> None:
        """A second run has nothing to do, and the receipt says the same."""
        entries = [unit(), HostFile("/etc/liqod/liqod.toml", b"new", configuration=True)]
        host = ObservedHost({entry.path: ABSENT for entry in entries})
        host = carried_out(plan_installation(entries, host), entries, host, 9)
        again = plan_installation(entries, host)
        self.assertEqual([change.verb for change in again.changes], ["unchanged", "unchanged"])
        self.assertEqual(again.create_users, [])
        self.assertEqual(again.receipt, host.receipt)

    def test_changed_configuration_stays(self) -> None:
        """Removal keeps a configuration that was changed, and says so."""
        host = ObservedHost({"/etc/unit": THEIRS}, receipt=Receipt({"/etc/unit": [OLD]}))
        (change,) = plan_removal(host).changes
        self.assertEqual((change.verb, change.why), ("keep", "it was changed since it was written"))


def carried_out(plan: HostPlan, entries: list[HostFile], host: ObservedHost, end: int) -> ObservedHost:
    """Return the host after an installation that ended after so many files."""
    digests = dict(host.digests)
    steps = [entry for entry, change in zip(entries, plan.changes, strict=True) if change.verb in ("write", "replace")]
    for entry in steps[:end]:
        digests[entry.path] = entry.digest
    done = end > len(steps)
    return ObservedHost(
        digests,
        host.directories | frozenset(plan.receipt.directories),
        SYSTEM_USERS if plan.create_users and done else host.accounts,
        settled(plan.receipt, entries) if done else plan.receipt,
    )


def removed(plan: HostPlan, host: ObservedHost) -> ObservedHost:
    """Return the host after a removal."""
    gone = {change.path for change in plan.changes if change.verb == "remove"}
    return attrs.evolve(
        host,
        digests={path: ABSENT if path in gone else digest for path, digest in host.digests.items()},
        directories=host.directories - set(plan.receipt.directories),
        accounts={} if plan.remove_users else host.accounts,
        receipt=None,
    )
