"""Notifies the service manager (systemd) of readiness, status, liveness and stopping: sd_notify(3).

Without ``NOTIFY_SOCKET`` everything here does nothing. Messages are single datagrams; sending never waits, because the
service manager's trouble must never become the daemon's. One for which the socket's queue has no room is sent before
the next one; what cannot be sent at all is dropped.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from twisted.logger import Logger


class Notifier:
    """Sends to the socket of the service manager; ``interval``: seconds between watchdog notifications, 0 for none."""

    log = Logger()

    def __init__(self, address: str = "", interval: float = 0.0) -> None:
        # "@" stands for the NUL that begins the name of an abstract socket (sd_notify(3), unix(7)).
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.interval = interval
        self._status = ""
        self._text = ""
        self._note = ""
        self._is_ready = False
        self._is_reloading = False
        # A socket holds ten datagrams by default (net.unix.max_dgram_qlen), and a busy reader leaves them there.
        self._unsent: list[str] = []

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Notifier:
        """Return the notifier that ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` describe."""
        microseconds = environ.get("WATCHDOG_USEC", "")
        meant = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        # sd_watchdog_enabled(3) recommends half of the limit; a third tolerates one lost notification more.
        interval = int(microseconds) / 1e6 / 3 if meant and microseconds.isdigit() else 0.0
        return cls(environ.get("NOTIFY_SOCKET", ""), interval)

    def ready(self) -> None:
        """Notify once that start-up is complete (``READY=1``): units of ``Type=notify`` count as started then."""
        if not self._is_ready:
            self._is_ready = True
            self._send("READY=1")

    def status(self, text: str) -> None:
        """Show one line in the service's status; an unchanged line is not sent again."""
        self._text = text
        line = " ".join("; ".join(part for part in (text, self._note) if part).split())
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def note(self, text: str) -> None:
        """Add a sentence to every status from now on; an empty one takes it back."""
        self._note = text
        self.status(self._text)

    def reloading(self) -> None:
        """Notify that the configuration is read again (``RELOADING=1``), until ``reloaded`` or the next READY."""
        self._is_reloading = True
        # MONOTONIC_USEC is what units of Type=notify-reload (systemd 253) want; others ignore it.
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        """Notify that this process goes on as it was."""
        self._is_reloading = False
        if self._is_ready:
            self._send("READY=1")

    def alive(self) -> None:
        """Notify the watchdog: without it systemd kills the service after ``WatchdogSec=``."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Notify that the service is stopping (``STOPPING=1``), unless it is only to start again."""
        if not self._is_reloading:
            self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        waiting = [*self._unsent, message]
        while waiting and self._is_taken(waiting[0]):
            del waiting[0]
        self._unsent = _latest(waiting)

    def _is_taken(self, message: str) -> bool:
        """Send a message; return False where it has to wait until there is room for it."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(message.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            self.log.debug("service manager not notified of {state}: {error}", state=message, error=error)
        return True


def _latest(messages: list[str]) -> list[str]:
    """Return the messages that still matter, in their order: the last of each kind, and no sign of life of the past."""
    last = {message.partition("=")[0]: place for place, message in enumerate(messages)}
    last.pop("WATCHDOG", None)
    return [messages[place] for place in sorted(last.values())]
