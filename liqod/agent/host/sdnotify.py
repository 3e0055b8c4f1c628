"""Notifies the service manager (systemd) of readiness, status, liveness and stopping: sd_notify(3).

Without ``NOTIFY_SOCKET`` everything here does nothing. Messages are single datagrams; one that cannot be sent is
dropped, because the service manager's trouble must never become the daemon's.
"""

from __future__ import annotations

import os
import socket
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
        self._is_ready = False

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
        line = " ".join(text.split())
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def alive(self) -> None:
        """Notify the watchdog: without it systemd kills the service after ``WatchdogSec=``."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Notify that the service is stopping (``STOPPING=1``)."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(message.encode(), self._address)
        except OSError as error:
            self.log.debug("service manager not notified of {message}: {error}", message=message, error=error)
