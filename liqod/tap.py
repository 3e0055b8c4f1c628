"""``twistd liqod``: options, and from them the service.

What is wrong with the command line or the configuration ends the process with status 2 and sentences on standard error,
before anything is started and without a traceback.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar, Final, NoReturn, TextIO, cast

from constantly import NamedConstant
from twisted.application.service import IService, IServiceCollection, MultiService
from twisted.internet.error import ReactorAlreadyInstalledError
from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    PredicateResult,
    eventAsText,
    textFileLogObserver,
)
from twisted.python.components import Componentized
from twisted.python.usage import Options as UsageOptions
from zope.interface import implementer

from liqod.audit.events import LOGGER as AUDIT_LOG
from liqod.config.load import DEFAULT_PATH, ConfigError, load
from liqod.config.schema import Settings

# The units have RestartPreventExitStatus=2: with a wrong configuration no restart helps.
USAGE_STATUS = 2
COLLECTIONS = (5_000, 10, 10)
"""When Python looks for cycles among what was made: seven times as seldom as it would (700), which halves the CPU that
this takes; a daemon makes few cycles, and a few thousand small objects more at a time are one or two megabytes."""

PIDFILE: Final = "twistd.pid"
"""The file in the working directory that twistd writes its process ID to unless it is given another one."""
SYSLOG_LEVELS: Final = {"debug": 7, "info": 6, "warn": 4, "error": 3, "critical": 2}
"""What systemd reads as the priority of a line, see sd-daemon(3), for each level of Twisted."""


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


class Daemon(MultiService):
    """The top of the service tree: sets the level of the log, which Twisted takes from the application."""

    def __init__(self, observer: ILogObserver | None) -> None:
        super().__init__()
        self._observer = observer

    def setServiceParent(self, parent: IServiceCollection) -> None:
        if self._observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._observer)
        super().setServiceParent(parent)


def makeService(options: Options) -> IService:
    """Return the daemon's service; ends the process where options or configuration are wrong."""
    path: str = options["config"]
    try:
        settings = load(path, os.environ)
    except ConfigError as error:
        _give_up(*error.problems)
    if options["check"]:
        sys.stdout.write(f"{path}: good\n")
        raise SystemExit(0)
    return _daemon(settings, options.parent if options.parent is not None else {}, path)


def _daemon(settings: Settings, twistd: MutableMapping[str, object], path: str) -> IService:
    # Importing a reactor or the daemon is left until here: twistd chooses the reactor first, and --help needs neither.
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
    from liqod.agent.service import Agent

    daemon = Daemon(_observer(settings.log.level, twistd))
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


def _observer(level: str, twistd: Mapping[str, object]) -> ILogObserver | None:
    """Return the observer for the wanted level, or None where twistd's own options say where the log goes."""
    if not twistd.get("nodaemon") or twistd.get("logger") or twistd.get("syslog"):
        return None
    if twistd.get("logfile") not in (None, "-"):
        return None
    predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.levelWithName(level))
    predicate.setLogLevelForNamespace(AUDIT_LOG, LogLevel.info)
    stream = journal_observer(sys.stdout) if is_journal(sys.stdout, os.environ) else textFileLogObserver(sys.stdout)
    return FilteringLogObserver(stream, [predicate, WithoutPluginCache()])


@implementer(ILogFilterPredicate)
class WithoutPluginCache:
    """Leaves out that twistd's cache of plugins, which saves milliseconds, cannot be written.

    Twisted reports it at every start where the package belongs to root and the daemon does not run as root.
    """

    def __call__(self, event: LogEvent) -> NamedConstant:
        # Events of Twisted's older log have their text in log_text, and log_format names only that.
        text = str(event.get("log_text") or event.get("log_format") or event.get("format") or "")
        return PredicateResult.no if text.startswith("Unable to write to plugin cache") else PredicateResult.maybe


def is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether systemd's journal reads a stream: JOURNAL_STREAM names its device and inode, systemd.exec(5)."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def journal_observer(stream: TextIO) -> ILogObserver:
    """Return an observer for the journal, which has the time of each line: lines begin with their priority instead."""

    def line(event: LogEvent) -> str | None:
        text = eventAsText(event, includeTimestamp=False, includeSystem=True)
        level = getattr(event.get("log_level"), "name", "info")
        lines = text.splitlines() or [""]
        return "".join(f"<{SYSLOG_LEVELS.get(level, 6)}>{one}\n" for one in lines) if text else None

    return FileLogObserver(stream, line)


def _give_up(*sentences: str) -> NoReturn:
    for sentence in sentences:
        sys.stderr.write(f"liqod: {sentence}\n")
    raise SystemExit(USAGE_STATUS)
