"""Which testbeds there are on this machine, and the removal of everything that belongs to one of them.

Each testbed has a directory below ``/run/liqod-testbed``, or LIQOD_TESTBED_REGISTRY, with a note of what it made. Its
owner holds a lock on it as long as it lives; a note whose lock is free belongs to a dead run and is swept by the next
one. All names begin with the testbed's own, and process IDs are noted with their start times, so that nobody else's
are ever touched.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.testbed import lan, process, versions
from tests.testbed.host import remove_cgroups

ROOT: Path = Path(os.environ.get("LIQOD_TESTBED_REGISTRY", "/run/liqod-testbed"))
PREFIX: Final = "liqod-"


class Note:
    """The directory of one testbed in the registry; while this object holds it, nobody else removes the testbed."""

    def __init__(self, name: str, lock: int) -> None:
        self.name = name
        self._lock = lock

    @property
    def _file(self) -> Path:
        return ROOT / self.name / "note.json"

    def write(self, note: dict[str, Any]) -> None:
        """Replace the note at once, so that a reader sees either the old or the new one."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(note))
        fresh.replace(self._file)

    def read(self) -> dict[str, Any]:
        """Return the note, empty when its owner died before it was written."""
        return read(self.name)

    def release(self) -> None:
        """Let go of the testbed; it stays."""
        os.close(self._lock)


def read(name: str) -> dict[str, Any]:
    """Return what is noted about a testbed, nothing when there is none of that name."""
    try:
        note: dict[str, Any] = json.loads((ROOT / name / "note.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return note


def names() -> list[str]:
    """Return the names of all noted testbeds."""
    return sorted(entry.name for entry in ROOT.iterdir() if entry.is_dir()) if ROOT.exists() else []


def create(name: str) -> Note:
    """Note a new testbed; FileExistsError when the name is taken."""
    with _registry_lock():
        if (ROOT / name).exists():
            raise FileExistsError(f"the testbed {name} stands already; `python -m tests.testbed down` ends it")
        (ROOT / name).mkdir(parents=True)
        note = _hold(name, wait=True)
    assert note is not None
    return note


def hold(name: str, *, wait: bool = False) -> Note | None:
    """Take over a noted testbed; None when its owner lives, or when it is gone."""
    if wait:
        return _hold(name, wait=True)
    with _registry_lock():
        return _hold(name, wait=False)


def sweep() -> list[str]:
    """Remove what dead runs left behind and return the names of their testbeds."""
    swept = []
    for name in names():
        note = hold(name)
        if note is None:
            continue
        if note.read().get("stays") and any(alive(init) for init in note.read().get("inits", [])):
            note.release()
            continue
        remove(note)
        swept.append(name)
    return swept


def alive(identity: list[Any]) -> bool:
    """Say whether a noted process, an ID with its start time, still runs."""
    pid, born = identity
    return bool(born) and process.birth(pid) == born


def remove(held: Note) -> None:
    """End and remove everything that belongs to a testbed; to be called again does no harm."""
    note = held.read()
    process.kill(pid for pid, born in note.get("inits", []) if alive([pid, born]))
    for netns in note.get("namespaces", []):
        for _ in range(20):
            if not (inside := process.inhabitants(netns)):
                break
            process.kill(inside)
        lan.remove(netns)
    for cgroup in note.get("cgroups", []):
        remove_cgroups(cgroup)
    if directory := note.get("directory"):
        for mount in _mounts_below(directory):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)
    shutil.rmtree(ROOT / held.name, ignore_errors=True)
    held.release()


def _mounts_below(directory: str) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{directory}/")), reverse=True)


def _hold(name: str, *, wait: bool) -> Note | None:
    try:
        lock = os.open(ROOT / name / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(lock)
        return None
    if not _is_current(lock, ROOT / name / "lock"):
        os.close(lock)
        return None
    return Note(name, lock)


def _is_current(lock: int, path: Path) -> bool:
    """Say whether a lock still is the file of that name, and not that of a removed testbed with the same one."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _registry_lock() -> Iterator[None]:
    versions.cache().mkdir(parents=True, exist_ok=True)
    with (versions.cache() / "registry.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
