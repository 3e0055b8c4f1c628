"""Runs ``liqodctl`` again and again from one warm process, on pipes or on a terminal of a given width.

The process imports everything once and forks for each run, which takes milliseconds instead of seconds. It reads one
request (JSON) a line and answers with one line: output, errors, exit status.
"""

from __future__ import annotations

import atexit
import base64
import fcntl
import functools
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60.0
"""Seconds that a run may take before it is killed, and its status is -9."""


@functools.cache
def warm() -> ForkServer:
    """Return the one of this process; it ends with it."""
    server = ForkServer()
    atexit.register(server.close)
    return server


class ForkServer:
    """The client side: ``run`` blocks, one at a time; ``close`` ends the process."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        # kubectl, which completes names, makes its cache in the home.
        self._home = tempfile.mkdtemp()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "HOME": self._home, "PYTHONPATH": f"{ROOT}:{ROOT / 'sandbox'}"},
        )

    def run(self, *argv: str, **request: Any) -> tuple[str, str, int]:
        """Return output, errors and status.

        ``env``: more of the environment; ``tty``: columns of a terminal (output and errors are one then); ``expect``
        and ``send``: what to send, or with ``signal`` which signal, when a text was printed; ``closed``: nobody reads;
        ``full``: standard output is a disk without room.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps({"argv": argv, **request}).encode() + b"\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        out, err = (base64.b64decode(answer[name]).decode("utf-8", "replace") for name in ("out", "err"))
        return out, err, answer["status"]

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
        shutil.rmtree(self._home, ignore_errors=True)


def serve() -> None:
    """Import all commands, then answer requests until standard input ends."""
    import click

    from liqod.cli.main import cli

    def load(group: Any) -> None:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                load(command)

    load(cli)
    import liqod.kube.connection.config

    assert liqod.kube.connection.config
    import kubernetes.config

    assert kubernetes.config
    from liqod.cli.console import complete

    # A user who presses TAB waits two seconds; a test on a busy machine is about what is offered.
    vars(complete)["TIMEOUT"] = LIMIT / 2
    for line in sys.stdin:
        out, err, status = one_run(json.loads(line))
        answer = {"out": base64.b64encode(out).decode(), "err": base64.b64encode(err).decode(), "status": status}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def one_run(request: dict[str, Any]) -> tuple[bytes, bytes, int]:
    """Fork, run the command in the child, and return what it printed and how it ended."""
    columns = request.get("tty")
    if columns:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        ends, theirs = [master, master], [slave, slave, slave]
    else:
        out, err = os.pipe(), os.pipe()
        ends, theirs = [out[0], err[0]], [os.open(os.devnull, os.O_RDONLY), out[1], err[1]]
    if request.get("full"):
        # Its own end of the pipe is kept, so that the order of streams stays.
        os.close(theirs[1])
        theirs[1] = os.open("/dev/full", os.O_WRONLY)
    if request.get("closed"):
        # Before the command runs: what is written sooner goes into the pipe without an error.
        os.close(ends[0])
        ends = [ends[1], ends[1]]
    child = os.fork()
    if child == 0:
        run_child(request, theirs, ends, bool(columns))
    for one in set(theirs):
        os.close(one)
    printed = converse(request, child, ends)
    _, status = os.waitpid(child, 0)
    text = printed[ends[0]] if not request.get("closed") else b""
    return text, b"" if columns else printed[ends[1]], os.waitstatus_to_exitcode(status)


def converse(request: dict[str, Any], child: int, ends: list[int]) -> dict[int, bytes]:
    """Read what the child prints until it ends, and send what the request says; kills it after ``LIMIT`` seconds."""
    printed = dict.fromkeys(ends, b"")
    sent = not request.get("expect")
    end = time.monotonic() + LIMIT
    known = set(ends)
    open_ends = set(known)
    while open_ends and time.monotonic() < end:
        ready, _, _ = select.select(list(open_ends), [], [], 0.2)
        for one in ready:
            try:
                data = os.read(one, 65536)
            except OSError:  # A terminal whose other side was closed.
                data = b""
            if not data:
                open_ends.discard(one)
            printed[one] += data
        if not sent and any(request["expect"].encode() in text for text in printed.values()):
            sent = True
            if request.get("signal"):
                os.kill(child, request["signal"])
            else:
                os.write(ends[0], request["send"].encode())
    if open_ends:
        os.kill(child, signal.SIGKILL)
    for one in known:
        os.close(one)
    return printed


def run_child(request: dict[str, Any], streams: list[int], ends: list[int], terminal: bool) -> None:
    """Become ``liqodctl``; does not return."""
    code = 70
    try:
        if terminal:
            os.setsid()
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for one in {*streams, *ends} - {0, 1, 2}:
            os.close(one)
        for name in ("COLUMNS", "NO_COLOR", "KUBECONFIG", "_LIQODCTL_COMPLETE"):
            os.environ.pop(name, None)
        os.environ.update({"TERM": "xterm", **request.get("env", {})})
        encoding = request.get("encoding", "utf-8")
        sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding=encoding, closefd=False)  # noqa: SIM115
        sys.argv = ["liqodctl", *request["argv"]]
        from liqod.cli.main import main

        try:
            main()
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            code = 120
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
