"""Runs a program on a terminal of 80 columns and 24 rows, and tells what a user sees of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

COLUMNS: Final = 80
ROWS: Final = 24
_SEQUENCE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""A control sequence (ECMA-48, 5.4)."""


@frozen
class Shown:
    """What a program wrote to its terminal, how long it ran, and its exit status; None: it was ended."""

    text: str
    seconds: float
    status: int | None


def on_terminal(
    argv: Sequence[str],
    *,
    timeout: float = 60.0,
    answers: Sequence[tuple[str, str]] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Shown:
    """Run a program to its end; after ``timeout`` seconds it is ended, with all that it started.

    ``answers``: what is typed, each when a text has been written.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    variables = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "LC_ALL": "C.UTF-8", **(env or {})}
    variables.pop("COLUMNS", None)
    begin = time.monotonic()
    try:
        running = subprocess.Popen(
            list(argv), stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=variables, cwd=cwd
        )
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    try:
        said = _conversation(master, running, begin + timeout, answers)
        status = _end(running, begin + timeout)
        seconds = time.monotonic() - begin
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        os.close(master)
    return Shown(said.decode("utf-8", "replace"), seconds, status)


def _conversation(
    master: int, running: subprocess.Popen[bytes], deadline: float, answers: Sequence[tuple[str, str]]
) -> bytes:
    """Return all that is written to a terminal until its program has ended, or its time is over."""
    said, seen, waiting = b"", 0, list(answers)
    while time.monotonic() < deadline:
        ready, _, _ = select.select([master], [], [], 0.05)
        if not ready:
            if running.poll() is not None:
                break
            continue
        try:
            chunk = os.read(master, 1 << 16)
        except OSError:
            break  # Nobody has the terminal any more (EIO).
        if not chunk:
            break
        said += chunk
        if waiting and waiting[0][0].encode() in said[seen:]:
            seen = len(said)
            os.write(master, waiting.pop(0)[1].encode())
    return said


def _end(running: subprocess.Popen[bytes], deadline: float) -> int | None:
    try:
        return running.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def plain(text: str) -> str:
    """Return what stays of a text on a terminal: no line that was written over, no control sequence. Pure."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(_SEQUENCE.sub("", line.rpartition("\r")[2]).rstrip() for line in lines).strip("\n")


def folded(text: str, columns: int = COLUMNS) -> list[str]:
    """Return the rows that a plain text takes: what is longer goes on in the next row. Pure."""
    return [
        line[begin : begin + columns] for line in text.split("\n") for begin in range(0, max(len(line), 1), columns)
    ]


def first_screen(text: str) -> list[str]:
    """Return the rows of a program's output that a user sees without scrolling. Pure."""
    return folded(plain(text))[:ROWS]
