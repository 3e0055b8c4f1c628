"""Run programs inside network namespaces and stop them by their own process IDs.

A namespace is entered with ``nsenter --net=FILE``: unlike ``ip netns exec`` that leaves ``/sys`` and the control
groups alone. The addresses of a test network lead out of the machine when used from elsewhere, so that a namespace
that is gone is an error here and never silently the machine's own network.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

NETNS: Final = Path("/run/netns")
_CLONE_NEWNET: Final = 0x40000000


class CommandFailed(Exception):
    """A program ended with an error or not in time; the text holds its command line and what it said."""

    def __init__(self, argv: Sequence[str], code: int | None, output: str) -> None:
        how = "did not end in time" if code is None else f"ended with status {code}"
        super().__init__(f"{' '.join(argv)} {how}: {output.strip()}")
        self.code = code
        self.output = output


def run(
    argv: Sequence[str], *, input: str | None = None, timeout: float = 60.0, env: Mapping[str, str] | None = None
) -> str:
    """Run a program to its end and return its standard output; CommandFailed when it fails."""
    try:
        done = subprocess.run(
            list(argv),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = b"".join(part for part in (late.stdout, late.stderr) if isinstance(part, bytes))
        raise CommandFailed(argv, None, said.decode(errors="replace")) from late
    if done.returncode != 0:
        raise CommandFailed(argv, done.returncode, done.stderr + done.stdout)
    return done.stdout


def entry(netns: str) -> list[str]:
    """Return the words to put before a command line so that it runs in the named network namespace."""
    if not (NETNS / netns).exists():
        raise CommandFailed(["nsenter", netns], 1, f"there is no network namespace {netns}")
    return ["nsenter", f"--net={NETNS / netns}", "--"]


def run_in(
    netns: str,
    argv: Sequence[str],
    *,
    input: str | None = None,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a program to its end in a network namespace and return its standard output."""
    return run([*entry(netns), *argv], input=input, timeout=timeout, env=env)


def spawn_in(netns: str, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start a program in a network namespace; its output goes to the log file."""
    return spawn([*entry(netns), *argv], log=log, env=env)


def enter(netns: str) -> None:
    """Move the calling thread, and those that it starts from now on, into a network namespace for good.

    Called in the main thread before the first socket is opened this puts a whole test process on the test network.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with (NETNS / netns).open("rb") as handle:
        if libc.setns(handle.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter network namespace {netns}")


class Process:
    """A program running in a session of its own, so that it and its children are stopped together."""

    def __init__(self, popen: subprocess.Popen[bytes], name: str, log: Path) -> None:
        self._popen = popen
        self.name = name
        self.log = log

    @property
    def pid(self) -> int:
        """The process ID, which is the ID of its process group as well."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the program has not ended yet."""
        return self._popen.poll() is None

    def tail(self, lines: int = 25) -> str:
        """Return the last lines of the log."""
        return tail(self.log, lines)

    def wait(self, timeout: float) -> int | None:
        """Wait until the program has ended and return its exit status, or None when it still runs after that time."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, grace: float = 5.0) -> None:
        """Ask the program and its children to end, end them after the grace period, and wait for all of them.

        What was entered a process namespace for is a child of the program that entered, and outlives it: the one that
        starts the same again at once finds its ports taken.
        """
        for signum, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signum)
            if self._has_ended(patience):
                break

    def _has_ended(self, patience: float) -> bool:
        """Wait until no process of the group is left; return whether that is so in time."""
        deadline = time.monotonic() + patience
        while True:
            self._popen.poll()
            try:
                os.killpg(self._popen.pid, 0)
            except ProcessLookupError:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def spawn(argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, stdin: int | None = None) -> Process:
    """Start a program in a session of its own with its output appended to the log file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        popen = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
    return Process(popen, log.stem, log)


def tail(log: Path, lines: int = 25) -> str:
    """Return the last lines of a file, or nothing when there is none."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def birth(pid: int) -> str:
    """Return when a process started, in clock ticks, or "" when there is none: with the ID it names one process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def children(pid: int) -> list[int]:
    """Return the IDs of the processes whose parent is the given one."""
    found = []
    for entry_ in Path("/proc").iterdir():
        if not entry_.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if entry_.joinpath("stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(entry_.name))
    return found


def inhabitants(netns: str) -> list[int]:
    """Return the IDs of the processes in a network namespace, this one excepted."""
    try:
        text = run(["ip", "netns", "pids", netns])
    except CommandFailed:
        return []
    return [int(word) for word in text.split() if int(word) != os.getpid()]


def kill(pids: Iterable[int], patience: float = 10.0) -> None:
    """End processes at once and wait until they are gone."""
    waiting = list(pids)
    for pid in waiting:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and any(birth(pid) for pid in waiting):
        time.sleep(0.02)
