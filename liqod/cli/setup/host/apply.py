"""Observes a host and carries out what was planned for it; ``root`` is its root directory, "/" for this host."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.setup.host.plan import ABSENT, OTHER, Account, HostPlan, ObservedHost, Receipt, parents
from liqod.cli.setup.host.wanted import OWNED, POLKIT, RECEIPT, ROLES, USERS, HostFile, digest_of

RECEIPT_LIMIT: Final = 1 << 20
SYSTEMD: Final = ("usr/lib/systemd/systemd", "lib/systemd/systemd")
POLKIT_PLACES: Final = (POLKIT, "/usr/share/polkit-1")


def has_polkit(root: Path) -> bool:
    """Return whether polkit is installed."""
    return any(_at(root, place).is_dir() for place in POLKIT_PLACES)


def observe(root: Path, paths: Iterable[str]) -> ObservedHost:
    """Return what there is of some paths, and of those of the receipt. Raises CliError where it cannot be read."""
    receipt = read_receipt(root)
    everything = {*paths, *(receipt.entries if receipt else ())}
    try:
        return ObservedHost(
            {path: _digest(_at(root, path)) for path in everything},
            frozenset(path for path in parents([*everything, RECEIPT]) if _is_there(root, path)),
            _accounts(root),
            receipt,
        )
    except OSError as error:
        raise _failure(error) from None


def _is_there(root: Path, directory: str) -> bool:
    """Return whether a directory is there, and not from an installation that ended before it had a receipt."""
    if Path(directory) == Path(RECEIPT).parent and _is_unfinished(_at(root, RECEIPT)):
        return False
    return _at(root, directory).is_dir()


def observe_removal(root: Path) -> ObservedHost:
    """Return what there is of what an uninstallation may remove. Raises CliError where it cannot be read."""
    return observe(root, [path for paths in OWNED.values() for path in paths])


def preflight(root: Path, prefix: str, plan: HostPlan) -> list[str]:
    """Return why the plan cannot be carried out: no systemd, no rights, a read-only file system, a private place."""
    if not any((root / place).exists() for place in SYSTEMD):
        return [f"there is no systemd here; run `{prefix}/bin/twistd -n liqod` by the service manager that there is"]
    if root == Path("/") and os.geteuid() != 0:
        return ["only root may install a service: run it as root, or with sudo"]
    refusals = []
    changed = [change.path for change in plan.changes if change.verb in ("write", "replace")]
    for path in dict.fromkeys(_nearest(root, path) for path in [*changed, RECEIPT]):
        if not path.resolve().is_relative_to(root.resolve()):
            refusals.append(f"{path} leads out of {root} by a symbolic link")
        elif not os.access(path, os.W_OK | os.X_OK):
            read_only = os.statvfs(path).f_flag & os.ST_RDONLY
            refusals.append(f"{path} cannot be written: {'the file system is read-only' if read_only else 'no rights'}")
    if plan.create_users and not shutil.which("systemd-sysusers"):
        refusals.append("systemd-sysusers, which creates users, is not installed")
    if root == Path("/"):
        refusals += [
            f"{directory} is closed to the user {USERS[0]}, who runs what is in {prefix}; "
            "create the Python environment in /opt/liqod"
            for directory in [Path(prefix), *Path(prefix).parents]
            if not directory.stat().st_mode & stat.S_IXOTH
        ]
    return refusals


def install(root: Path, entries: Sequence[HostFile], plan: HostPlan) -> None:
    """Carry out a plan for an installation, all but ``save_receipt`` at its end. Raises CliError."""
    try:
        # What is made before the receipt is there would be nobody's if this were interrupted then.
        _make(root, [directory for directory in plan.receipt.directories if directory in parents([RECEIPT])])
        save_receipt(root, plan.receipt)
        _make(root, plan.receipt.directories)
        verbs = {change.path: change.verb for change in plan.changes}
        for entry in entries:
            if verbs[entry.path] in ("write", "replace"):
                _write(_at(root, entry.path), entry)
        if plan.create_users:
            _run("systemd-sysusers", f"--root={root}", str(_at(root, "/etc/sysusers.d/liqod.conf")))
    except OSError as error:
        raise _failure(error) from None


def _make(root: Path, directories: Iterable[str]) -> None:
    for directory in directories:
        path = _at(root, directory)
        if not path.is_dir():
            path.mkdir()
            # The umask of the administrator may have taken away others' right to enter.
            path.chmod(0o755)


def remove_unfinished(root: Path) -> list[str]:
    """Remove what an installation leaves that ended before it had a receipt; return what it was. Raises CliError."""
    receipt = _at(root, RECEIPT)
    if not _is_unfinished(receipt):
        return []
    try:
        _scratch(receipt).unlink(missing_ok=True)
        receipt.parent.rmdir()
    except OSError as error:
        raise _failure(error) from None
    return [str(Path(RECEIPT).parent)]


def _is_unfinished(receipt: Path) -> bool:
    """Return whether the directory of a receipt has nothing in it but a receipt that was not written to its end."""
    return receipt.parent.is_dir() and [*receipt.parent.iterdir()] == [_scratch(receipt)]


def remove(root: Path, plan: HostPlan) -> list[str]:
    """Carry out a plan for a removal; returns what was removed. Raises CliError."""
    removed = []
    try:
        for entry in plan.receipt.entries:
            _scratch(_at(root, entry)).unlink(missing_ok=True)
        for change in plan.changes:
            if change.verb == "remove":
                path = _at(root, change.path)
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
                removed.append(change.path)
        for user in plan.remove_users:
            prefix = [] if root == Path("/") else ["--prefix", str(root)]
            _run("userdel", *prefix, user)
            # With USERGROUPS_ENAB in login.defs(5) the group went with its user.
            if f"\n{user}:" in "\n" + _at(root, "/etc/group").read_text(encoding="utf-8", errors="replace"):
                _run("groupdel", *prefix, user)
            removed.append(f"the user {user}")
        _scratch(_at(root, RECEIPT)).unlink(missing_ok=True)
        # The receipt goes last, so that an interrupted removal can be repeated.
        _at(root, RECEIPT).unlink(missing_ok=True)
        for directory in sorted(plan.receipt.directories, key=lambda path: -path.count("/")):
            with contextlib.suppress(OSError):
                _at(root, directory).rmdir()
                removed.append(directory)
    except OSError as error:
        raise _failure(error) from None
    return removed


def reload_systemd(root: Path) -> None:
    """Have systemd read its units again, where it runs and is this host's. Raises CliError."""
    if root == Path("/") and Path("/run/systemd/system").is_dir():
        _run("systemctl", "daemon-reload")


def in_use(root: Path) -> list[str]:
    """Return the services that this host's systemd runs, or would at its next start."""
    if root != Path("/") or not Path("/run/systemd/system").is_dir() or not shutil.which("systemctl"):
        return []
    return [
        unit
        for unit in ROLES.values()
        if any(
            subprocess.run(["systemctl", "--quiet", question, unit], check=False).returncode == 0  # noqa: S603, S607
            for question in ("is-active", "is-enabled")
        )
    ]


def read_receipt(root: Path) -> Receipt | None:
    """Return the receipt, or None where there is none. Raises CliError for one that cannot be used."""
    path = _at(root, RECEIPT)
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(RECEIPT_LIMIT))
        return Receipt(
            {str(path): [str(one) for one in digests] for path, digests in said["entries"].items()},
            [str(directory) for directory in said["directories"]],
            [str(user) for user in said["users"]],
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failure(error) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        hint = "remove it; then `install --host` begins as on a new host, and refuses files that differ"
        raise CliError(errors.FILE, f"{path} is damaged", hint) from None


def save_receipt(root: Path, receipt: Receipt) -> None:
    """Write the receipt. Raises CliError."""
    body = {
        "entries": dict(sorted(receipt.entries.items())),
        "directories": sorted(receipt.directories),
        "users": sorted(receipt.users),
    }
    try:
        _write(_at(root, RECEIPT), HostFile(RECEIPT, f"{json.dumps(body, indent=1)}\n".encode()))
    except OSError as error:
        raise _failure(error) from None


def group_in(root: Path, name: str) -> int | None:
    """Return the ID of a group of the host in ``root``, by its group(5), or None where there is none."""
    try:
        text = _at(root, "/etc/group").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    fields = (line.split(":") for line in text.splitlines())
    return next((int(one[2]) for one in fields if one[0] == name and len(one) > 2 and one[2].isdigit()), None)


def _write(path: Path, entry: HostFile) -> None:
    """Write a file or link at once or not at all."""
    scratch = _scratch(path)
    scratch.unlink(missing_ok=True)
    if entry.target:
        scratch.symlink_to(entry.target)
    else:
        # O_EXCL: nothing that somebody else put there is written through.
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            # As with directories: the daemon reads its configuration as another user.
            os.fchmod(file.fileno(), 0o644)
            file.write(entry.content)
            file.flush()
            os.fsync(file.fileno())
    # rename(2) is atomic: a unit file is never read half written.
    scratch.replace(path)


def _scratch(path: Path) -> Path:
    return path.with_name(f".{path.name}.liqod-new")


def _at(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _nearest(root: Path, path: str) -> Path:
    """Return the nearest directory above a path that is there."""
    return next(parent for parent in _at(root, path).parents if parent.is_dir())


def _digest(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    if stat.S_ISLNK(mode):
        return digest_of(b"", str(path.readlink()))
    return digest_of(path.read_bytes()) if stat.S_ISREG(mode) else OTHER


def _accounts(root: Path) -> dict[str, Account]:
    try:
        text = _at(root, "/etc/passwd").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    lines = (line.split(":") for line in text.splitlines())
    return {
        fields[0]: Account(int(fields[2]), fields[6])
        for fields in lines
        if fields[0] in USERS and len(fields) == 7 and fields[2].isdigit()
    }


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:
        raise CliError(errors.HOST, f"{words[0]} is not installed", "install it, and run this again") from None
    if done.returncode != 0:
        raise CliError(errors.HOST, f"{' '.join(words)} failed: {done.stderr.strip()}", "mend that, and run this again")


def _failure(error: OSError) -> CliError:
    what = f"{error.filename}: {(error.strerror or str(error)).lower()}"
    return CliError(errors.FILE, what, "mend that, and run this again: it goes on where it was interrupted")
