"""Which process made a namespace, so that a later run knows whether it still runs."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path


def own(process: int = 0) -> str:
    """Return what stands for this process, or another of this host: where it is, its number, and when it began.

    The place is the host's name, its boot and the namespace of process numbers; a number alone is used again.
    """
    number = process or os.getpid()
    boot, space = "-", "-"
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()}/{boot}/{space} {number} {_began(number)}"


def runs(origin: str) -> bool:
    """Return whether the process of this host that an origin stands for still runs."""
    _, _, process = origin.partition(" ")
    number = process.partition(" ")[0]
    return number.isdecimal() and len(number) < 10 and own(int(number)) == origin


def _began(process: int) -> str:
    """Return the start of a process in clock ticks since boot (proc_pid_stat(5), field 22); "-" for none."""
    try:
        # The second field, in parentheses, may have spaces in it.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "-"
