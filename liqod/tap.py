"""``twistd liqod``: options, and from them the service.

What is wrong with the command line or the configuration ends the process with status 2 and sentences on standard error,
before anything is started and without a traceback.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar, Final, NoReturn, cast

from twisted.application.service import IService, IServiceCollection, MultiService
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorAlreadyInstalledError
from twisted.logger import ILogObserver
from twisted.python.components import Componentized
from twisted.python.usage import Options as UsageOptions

from liqod.config.load import DEFAULT_PATH, SettingsError, load
from liqod.config.schema import Settings

# The units have RestartPreventExitStatus=2: with a wrong configuration no restart helps.
USAGE_STATUS = 2
COLLECTIONS = (5_000, 10, 10)
"""When Python looks for cycles among what was made: seven times as seldom as it would (700), which halves the CPU that
this takes; a daemon makes few cycles, and a few thousand small objects more at a time are one or two megabytes."""

PIDFILE: Final = "twistd.pid"
"""The file in the working directory that twistd writes its process ID to unless it is given another one."""


class Options(UsageOptions):
    """The options of ``twistd liqod``: where the configuration is, and whether to look at it only."""

    synopsis = "[--config FILE] [--check]"
    longdesc = (
        "Peers this Kubernetes cluster with others. Every setting is in the configuration file; a variable such as "
        "LIQOD_PEERING__LISTEN overrides the setting `listen` of the section [peering]. "
        "In the foreground: twistd -n liqod"
    )
    optParameters: ClassVar[list[list[str]]] = [["config", "c", DEFAULT_PATH, "The configuration file."]]
    optFlags: ClassVar[list[list[str | None]]] = [["check", None, "Say whether the configuration is good, and end."]]

    def opt_version(self) -> NoReturn:
        """Show the version of liqod, and end."""
        try:
            found = version("liqod")
        except PackageNotFoundError:
            found = "(from a checkout)"
        sys.stdout.write(f"liqod {found}\n")
        raise SystemExit(0)


class DaemonService(MultiService):
    """The top of the service tree: sets the log's observer, which Twisted takes from the application.

    ``report`` is called when everything has stopped.
    """

    def __init__(self, observer: ILogObserver | None = None, report: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._observer = observer
        self._report = report

    def setServiceParent(self, parent: IServiceCollection) -> None:
        if self._observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._observer)
        super().setServiceParent(parent)

    async def _stop(self) -> None:
        await super().stopService()
        if self._report is not None:
            self._report()

    def stopService(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._stop())


def makeService(options: Options) -> IService:
    """Return the daemon's service; ends the process where options or configuration are wrong."""
    path: str = options["config"]
    try:
        settings = load(path, os.environ)
    except SettingsError as error:
        _give_up(*error.problems)
    if options["check"]:
        _check_identity(settings)
        sys.stdout.write(f"{path}: good\n")
        raise SystemExit(0)
    return _daemon(settings, options.parent if options.parent is not None else {}, path)


def _check_identity(settings: Settings) -> None:
    from liqod.agent.errors import StartupError
    from liqod.agent.home import check_files

    try:
        check_files(settings.identity)
    except StartupError as error:
        _give_up(error.message)


def _daemon(settings: Settings, twistd: MutableMapping[str, object], path: str) -> IService:
    # Importing a reactor or the daemon is left until here: twistd chooses the reactor first, and --help needs neither.
    from twisted.application.internet import TimerService
    from twisted.internet import asyncioreactor
    from twisted.internet.interfaces import IReactorCore

    from liqod.flow.aio import reactor_is_asyncio
    from liqod.flow.clocks import installed_reactor, use_steady_time

    # Without --reactor twistd has installed none yet: the first import of twisted.internet.reactor would.
    with suppress(ReactorAlreadyInstalledError):
        asyncioreactor.install()
    reactor = installed_reactor()
    if not reactor_is_asyncio(reactor):
        _give_up(
            f"liqod runs on Twisted's asyncio reactor, and this is {type(reactor).__name__}; leave out --reactor: "
            f"twistd -n liqod --config {path}"
        )
    if twistd.get("nodaemon") and twistd.get("pidfile") == str(Path(PIDFILE).absolute()):
        # The process ID of a foreground process is known, and the working directory may be read-only.
        twistd["pidfile"] = ""
    use_steady_time(reactor)
    gc.set_threshold(*COLLECTIONS)
    from liqod.agent.host.reload import Reload, restart_in_order
    from liqod.agent.host.sdnotify import Notifier
    from liqod.agent.log.limit import REPORT, LimitedLog
    from liqod.agent.log.observers import Forward, goes_to_standard_output, log_filter, log_writer
    from liqod.agent.service import Agent

    daemon = DaemonService()
    if goes_to_standard_output(twistd):
        limited = LimitedLog(reactor, log_writer(settings.log.format, sys.stdout, os.environ))
        daemon = DaemonService(log_filter(settings.log.level, limited), limited.report)
        reports = TimerService(REPORT, limited.report)
        reports.clock = reactor
        reports.setServiceParent(daemon)
    logging.getLogger().addHandler(Forward())
    notifier = Notifier.from_environment(os.environ)
    Agent(reactor, settings, notifier=notifier).setServiceParent(daemon)
    source = str(Path(path).absolute()) if path else ""
    restart = restart_in_order(cast(IReactorCore, reactor), str(twistd.get("pidfile") or ""))
    Reload(
        reactor, settings, read=lambda: load(source, os.environ), restart=restart, notifier=notifier
    ).setServiceParent(daemon)
    # Modules, classes and functions stay as long as the process: looking at all of them blocked the reactor for 30 ms.
    gc.freeze()
    return daemon


def _give_up(*sentences: str) -> NoReturn:
    for sentence in sentences:
        sys.stderr.write(f"liqod: {sentence}\n")
    raise SystemExit(USAGE_STATUS)
