"""``twistd liqod``: options, and from them the service.

What is wrong with the command line or the configuration ends the process with status 2 and sentences on standard error,
before anything is started and without a traceback.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from typing import ClassVar, NoReturn

from twisted.application.service import IService, IServiceCollection, MultiService
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    textFileLogObserver,
)
from twisted.python.components import Componentized
from twisted.python.usage import Options as UsageOptions

from liqod.config.load import DEFAULT_PATH, ConfigError, load
from liqod.config.schema import Settings

USAGE_STATUS = 2
COLLECTIONS = (5_000, 10, 10)
"""When Python looks for cycles among what was made: seven times as seldom as it would (700), which halves the CPU that
this takes; a daemon makes few cycles, and a few thousand small objects more at a time are one or two megabytes."""


class Options(UsageOptions):
    """The options of ``twistd liqod``: where the configuration is, and whether to look at it only."""

    synopsis = "[--config FILE] [--check]"
    longdesc = (
        "Peers this Kubernetes cluster with others. Every setting is in the configuration file; a variable such as "
        "LIQOD_PEERING__LISTEN overrides the setting `listen` of the section [peering]. "
        "Run it as: twistd --nodaemon --pidfile= --reactor=asyncio liqod"
    )
    optParameters: ClassVar[list[list[str]]] = [["config", "c", DEFAULT_PATH, "The configuration file."]]
    optFlags: ClassVar[list[list[str | None]]] = [["check", None, "Say whether the configuration is good, and end."]]


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
    return _daemon(settings, options.parent or {}, path)


def _daemon(settings: Settings, twistd: Mapping[str, object], path: str) -> IService:
    # Importing a reactor or the daemon is left until here: twistd chooses the reactor first, and --help needs neither.
    from liqod.flow.aio import reactor_is_asyncio
    from liqod.flow.clocks import installed_reactor, use_steady_time

    reactor = installed_reactor()
    if not reactor_is_asyncio(reactor):
        _give_up(
            f"liqod runs on Twisted's asyncio reactor, and this is {type(reactor).__name__}; start it with: "
            f"twistd --nodaemon --pidfile= --reactor=asyncio liqod --config {path}"
        )
    use_steady_time(reactor)
    gc.set_threshold(*COLLECTIONS)
    from liqod.agent.host.sdnotify import Notifier
    from liqod.agent.service import Agent

    daemon = Daemon(_observer(settings.log.level, twistd))
    Agent(reactor, settings, notifier=Notifier.from_environment(os.environ)).setServiceParent(daemon)
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
    return FilteringLogObserver(textFileLogObserver(sys.stdout), [predicate])


def _give_up(*sentences: str) -> NoReturn:
    for sentence in sentences:
        sys.stderr.write(f"liqod: {sentence}\n")
    raise SystemExit(USAGE_STATUS)
