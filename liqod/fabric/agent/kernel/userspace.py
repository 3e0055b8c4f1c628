"""wireguard-go where the network agent is a pod: run by a pod of its own, so that it carries traffic while the agent's
pod is replaced.

    python3 -m liqod.fabric.agent.kernel.userspace serve DEVICE     the tunnel's pod: waits for requests
    python3 -m liqod.fabric.agent.kernel.userspace start DEVICE     the agent: has the device made, and waits for it

It is what the unit ``liqod-tunnel@DEVICE`` is on a host: started by the agent when there is a first peer, ended by the
removal of the device.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

SOCKETS: Final = Path("/var/run/wireguard")
"""Where wireguard-go has the socket of each device, by which wg(8) reaches it."""
PROGRAM: Final = "wireguard-go"
PATIENCE: Final = 10.0
"""Seconds that wireguard-go may take to make its device."""
STEP: Final = 0.05
GOOD: Final = b"ok"


def requests_of(device: str, place: Path = SOCKETS) -> Path:
    """Return the socket at which the pod of a device takes requests."""
    return place / f"{device}.start"


def is_served(device: str, place: Path = SOCKETS) -> bool:
    """Return whether a pod runs wireguard-go for a device."""
    with contextlib.suppress(OSError):
        return requests_of(device, place).is_socket()
    return False


def start_command(device: str) -> tuple[str, ...]:
    """Return the command of the agent that has the device made."""
    return (sys.executable, "-P", "-m", "liqod.fabric.agent.kernel.userspace", "start", device)


def serve(device: str, place: Path = SOCKETS, program: str = PROGRAM) -> None:
    """Take requests, one after the other, until this process ends; what was started before is left as it is."""
    path = requests_of(device, place)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    unready = path.with_suffix(".new")
    unready.unlink(missing_ok=True)
    running: subprocess.Popen[bytes] | None = None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        # It has its name only when it takes connections: who finds it may call at once.
        listening.bind(str(unready))
        unready.chmod(0o600)
        listening.listen()
        unready.replace(path)
        try:
            while True:
                connection, _ = listening.accept()
                with connection:
                    if running is None or running.poll() is not None:
                        running = subprocess.Popen([program, "-f", device])  # noqa: S603
                    with contextlib.suppress(OSError):
                        connection.sendall(_outcome(running, place / f"{device}.sock"))
        finally:
            path.unlink(missing_ok=True)


def _outcome(running: subprocess.Popen[bytes], made: Path) -> bytes:
    """Wait until the device is there; returns ``GOOD``, or why it is not."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if running.poll() is not None:
            return f"{PROGRAM} ended with status {running.returncode}; the log of its pod says why".encode()
        if made.is_socket():
            return GOOD
        time.sleep(STEP)
    return f"{PROGRAM} has made no device after {PATIENCE:g} s".encode()


def start(device: str, place: Path = SOCKETS) -> str:
    """Have the device made; returns why it was not, or an empty text."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PATIENCE + 2.0)
            connection.connect(str(requests_of(device, place)))
            answer = connection.recv(1024)
    except OSError as error:
        return f"the pod of the tunnel does not answer: {error.strerror or error}"
    return "" if answer == GOOD else answer.decode("utf-8", "replace") or "the pod of the tunnel ended"


def main(words: list[str]) -> int:
    """Run one of the two commands; returns the exit status."""
    if len(words) != 2 or words[0] not in ("serve", "start"):
        sys.stderr.write("usage: serve DEVICE, or start DEVICE\n")
        return 2
    if words[0] == "serve":
        # Process 1 of a container has no default action for it.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        serve(words[1])
    problem = start(words[1])
    if problem:
        sys.stderr.write(f"{problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
