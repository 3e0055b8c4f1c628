"""SIGHUP: the configuration is read again, and if it is good and not the same the program starts again with it.

The program is replaced (execve(2)) once everything was stopped in order: process ID, environment and command line stay,
so that a service manager, or a container whose first process this is, sees one process that goes on. What runs at
lenders and for borrowers is not touched by that, as by any restart.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from twisted.application.service import Service
from twisted.internet.interfaces import IReactorCore, IReactorFromThreads
from twisted.logger import Logger

from liqod.agent.host.sdnotify import Notifier
from liqod.config.load import SettingsError
from liqod.config.schema import Settings

_HANGUP = frozenset({signal.SIGHUP})


class Reload(Service):
    """Reads the settings again at SIGHUP; ``restart`` is called when they are good and have changed.

    Where the process was started with SIGHUP ignored (``nohup``) it stays so.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactorFromThreads,
        settings: Settings,
        *,
        read: Callable[[], Settings],
        restart: Callable[[], None],
        notifier: Notifier,
    ) -> None:
        self._reactor = reactor
        self._settings = settings
        self._read = read
        self._restart = restart
        self._notifier = notifier

    def startService(self) -> None:
        super().startService()
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, lambda number, frame: self._reactor.callFromThread(self.reload))
        # ``replace_program`` blocked it; one that came since is delivered now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANGUP)

    def reload(self) -> None:
        """Read the settings; a daemon that stops already does nothing: when it starts again it reads them anyway."""
        if not self.running:
            return
        self._notifier.reloading()
        try:
            settings = self._read()
        except SettingsError as error:
            for problem in error.problems:
                self._log.error("the configuration is wrong, the daemon goes on as it was: {error}", error=problem)
            more = f" (and {len(error.problems) - 1} more, see the log)" if len(error.problems) > 1 else ""
            self._notifier.note(f"the configuration is wrong and not in use: {error.problems[0]}{more}")
        except Exception:
            self._log.failure("the configuration cannot be read, the daemon goes on as it was")
            self._notifier.note("the configuration cannot be read and is not in use: see the log")
        else:
            self._notifier.note("")
            if settings != self._settings:
                self._log.info("the configuration has changed: the daemon stops in order and starts again with it")
                self._restart()
                return
            self._log.info("the configuration was read again: nothing has changed")
        self._notifier.reloaded()


def restart_in_order(reactor: IReactorCore, pidfile: str) -> Callable[[], None]:
    """Return a function that stops a reactor with all its services and then starts the program again.

    To be called before the working directory changes: the paths of the command line count from there. ``pidfile`` is
    removed before; empty: there is none.
    """
    place = Path.cwd()

    def replace_program() -> None:
        # Twisted notes here by which signal it was stopped: somebody wants this process to end after all.
        if getattr(reactor, "_exitSignal", None) is not None:
            return
        if pidfile:
            # twistd refuses to start where a process of this number runs, and that is this one.
            Path(pidfile).unlink(missing_ok=True)
        os.chdir(place)
        # An execve resets the signal's handler, not the mask: until the next handler is there it must not kill.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANGUP)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606

    stopping = False

    def restart() -> None:
        nonlocal stopping
        # SIGHUP comes more than once while the services stop.
        if not stopping:
            stopping = True
            reactor.addSystemEventTrigger("after", "shutdown", replace_program)
            reactor.stop()

    return restart
