"""What an installation, or its removal, has to change on a host. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, Literal

import attrs

from liqod.cli.setup.host.wanted import OWNED, RECEIPT, USERS, HostFile

ABSENT: Final = ""
OTHER: Final = "other"
"""The digest of what is neither a regular file nor a symbolic link."""
NOLOGIN: Final = ("nologin", "false")
SYSTEM_UIDS: Final = 1000
"""User IDs below belong to system users (Debian policy 9.2.2, login.defs(5))."""

Verb = Literal["write", "replace", "keep", "remove", "unchanged", "conflict"]


@attrs.frozen
class Account:
    """A user of the host, as in passwd(5)."""

    uid: int
    shell: str


@attrs.frozen
class Receipt:
    """What was written: digests of files and links by path, directories and users that were created.

    It is saved before the first change, so while an installation is under way a path may have two digests.
    """

    entries: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    directories: Sequence[str] = ()
    users: Sequence[str] = ()


@attrs.frozen
class ObservedHost:
    """The host: digests by path, directories that exist (of those that matter), users, and the receipt."""

    digests: Mapping[str, str]
    directories: frozenset[str] = frozenset()
    accounts: Mapping[str, Account] = attrs.field(factory=dict)
    receipt: Receipt | None = None


@attrs.frozen
class PathChange:
    """What is done to one path, and why if that is not plain."""

    verb: Verb
    path: str
    why: str = ""


@attrs.frozen
class HostPlan:
    """Changes in their order; with refusals none of them is carried out."""

    changes: Sequence[PathChange]
    receipt: Receipt
    create_users: Sequence[str] = ()
    remove_users: Sequence[str] = ()
    refusals: Sequence[str] = ()


def plan_installation(entries: Sequence[HostFile], observed: ObservedHost, users: Sequence[str] = USERS) -> HostPlan:
    """Return what has to be done so that all entries and users are there."""
    before = observed.receipt or Receipt()
    changes = [_installed(entry, observed.digests.get(entry.path, ABSENT), before) for entry in entries]
    refusals = [f"{change.path} {change.why}" for change in changes if change.verb == "conflict"]
    refusals += filter(None, (_account_refusal(*one) for one in sorted(observed.accounts.items()) if one[0] in users))
    ours = {
        entry.path: list(dict.fromkeys([entry.digest, *before.entries.get(entry.path, ())]))
        for entry, change in zip(entries, changes, strict=True)
        if change.verb in ("write", "replace") or (change.verb == "unchanged" and entry.path in before.entries)
    }
    missing = [path for path in parents([*ours, RECEIPT]) if path not in observed.directories]
    create = [name for name in users if name not in observed.accounts]
    receipt = Receipt(
        # What an earlier release wrote and this one does not have stays in the receipt: uninstall removes it.
        {**before.entries, **ours},
        sorted({*before.directories, *missing}),
        sorted({*before.users, *create}),
    )
    return HostPlan(changes, receipt, create_users=create, refusals=refusals)


def _installed(entry: HostFile, digest: str, before: Receipt) -> PathChange:
    if digest == entry.digest:
        return PathChange("unchanged", entry.path)
    if digest == ABSENT:
        return PathChange("write", entry.path)
    if digest in before.entries.get(entry.path, ()):
        return PathChange("replace", entry.path, "written by an earlier installation, and not changed since")
    if entry.configuration and digest != OTHER:
        return PathChange("keep", entry.path, "your configuration")
    if entry.optional:
        return PathChange("keep", entry.path, "not written by this command")
    why = "was changed" if entry.path in before.entries else "exists, and was not written by this command"
    return PathChange("conflict", entry.path, f"{why}; move it away (own settings of a unit belong in a drop-in)")


def settled(receipt: Receipt, entries: Sequence[HostFile]) -> Receipt:
    """Return the receipt of an installation that is complete: one digest for each path that it wrote."""
    digests = {entry.path: [entry.digest] for entry in entries}
    return attrs.evolve(receipt, entries={path: digests.get(path, old) for path, old in receipt.entries.items()})


def _account_refusal(name: str, account: Account) -> str:
    if account.uid == 0:
        return f"the user {name} is root under another name (user ID 0); remove it"
    if account.uid >= SYSTEM_UIDS or not account.shell.endswith(NOLOGIN):
        return (
            f"there is a user {name} who may log in (user ID {account.uid}, shell {account.shell}), and the daemon is "
            "not run as a person; rename that user, or make it a system user with the shell /usr/sbin/nologin"
        )
    return ""


def plan_removal(observed: ObservedHost) -> HostPlan:
    """Return what has to be done so that nothing of the receipt is left but what was changed since.

    With a user that was created goes what its process has: its number may become another user's.
    """
    before = observed.receipt or Receipt()
    changes = []
    for path, written in sorted(before.entries.items()):
        digest = observed.digests.get(path, ABSENT)
        if digest in written:
            changes.append(PathChange("remove", path))
        elif digest != ABSENT:
            changes.append(PathChange("keep", path, "it was changed since it was written"))
    users = [name for name in before.users if name in observed.accounts]
    owned = [path for user in users for path in OWNED.get(user, ()) if path not in before.entries]
    changes += [PathChange("remove", path) for path in owned if observed.digests.get(path, ABSENT) != ABSENT]
    return HostPlan(changes, before, remove_users=users)


def parents(paths: Sequence[str]) -> list[str]:
    """Return all directories above some paths, the upper ones first; not the root directory itself."""
    found = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    return sorted(found - {"/"}, key=lambda path: (path.count("/"), path))
