"""The place where the programs of one cluster run: their own network, process and mount namespaces.

The first process (``init.py``) holds the process namespace. To end it is to end every daemon, shim and container of
the cluster, and their mounts go with them; nothing has to be found and stopped one by one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.testbed import process

_CGROUPS = Path("/sys/fs/cgroup")


class Host:
    """The namespaces of one cluster and what runs in them.

    A leased host ends together with the process that started it; one that is not leased stands until it is ended.
    """

    def __init__(self, netns: str, directory: Path, *, leased: bool) -> None:
        self.netns = netns
        self.directory = directory
        self._leased = leased
        self._popen: subprocess.Popen[bytes] | None = None
        self.init = 0

    def start(self) -> None:
        """Start the first process and wait until its mounts stand."""
        self.directory.mkdir(parents=True, exist_ok=True)
        script = Path(__file__).with_name("init.py")
        inner = [sys.executable, "-I", "-S", str(script), str(self.directory), "leased" if self._leased else "free"]
        outer = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--kill-child=SIGKILL", "--", *inner]
        with (self.directory / "init.log").open("ab") as log:
            self._popen = subprocess.Popen(
                [*process.entry(self.netns), *outer],
                stdin=subprocess.PIPE if self._leased else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._popen.stdout is not None
        if self._popen.stdout.readline() != b"ready\n":
            raise process.CommandFailed(outer, self._popen.poll(), process.tail(self.directory / "init.log"))
        self._popen.stdout.close()
        (self.init,) = process.children(self._popen.pid)

    def entry(self) -> list[str]:
        """Return the words to put before a command line so that it runs on this host."""
        return ["nsenter", "--target", str(self.init), "--mount", "--pid", "--net", "--"]

    def run(self, argv: Sequence[str], *, timeout: float = 60.0) -> str:
        """Run a program to its end on this host and return its standard output."""
        return process.run([*self.entry(), *argv], timeout=timeout)

    def spawn(self, name: str, argv: Sequence[str]) -> process.Process:
        """Start a daemon on this host; its log is ``NAME.log`` in the directory."""
        return process.spawn([*self.entry(), *argv], log=self.directory / f"{name}.log")

    def stop(self) -> None:
        """End everything on this host at once."""
        if self.init:
            process.kill([self.init])
            self.init = 0
        if self._popen is not None:
            if self._popen.stdin is not None:
                self._popen.stdin.close()
            self._popen.wait(10)
            self._popen = None


def make_cgroups(name: str) -> None:
    """Make the control group of a cluster's containers, under every controller where there are several trees."""
    if (_CGROUPS / "cgroup.controllers").exists():
        (_CGROUPS / name).mkdir(exist_ok=True)
        return
    for tree in sorted(_CGROUPS.iterdir()):
        if tree.is_dir() and not tree.is_symlink() and (tree / "cgroup.procs").exists():
            (tree / name).mkdir(exist_ok=True)


def cgroups(name: str) -> list[Path]:
    """Return the directories of a control group that are there, the innermost first."""
    found: list[Path] = []
    for root in [_CGROUPS / name, *(tree / name for tree in _CGROUPS.iterdir() if not tree.is_symlink())]:
        found.extend(Path(top) for top, _, _ in os.walk(root, topdown=False))
    return found


def remove_cgroups(name: str, patience: float = 10.0) -> None:
    """Remove a control group with all inside; the kernel refuses for a moment after the last process has ended."""
    deadline = time.monotonic() + patience
    while remaining := cgroups(name):
        for directory in remaining:
            with contextlib.suppress(OSError):
                directory.rmdir()
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
