"""The base of tests on real clusters: a testbed shared by all tests of a process, and ways to wait.

The first test that needs clusters starts them and moves the main thread to the test network, so that everything the
reactor does from then on happens there. They are removed when the process ends. A testbed that stands already is used
when ``LIQOD_TESTBED`` names it (``python -m tests.testbed up 2 --nodes`` makes one named ``liqod-standing``).
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Final, TypeVar

from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import FailTest, SkipTest, TestCase

from tests.environment import require
from tests.testbed import build, cni, system, versions
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed
from tests.testbed.system import missing
from tests.testbed.testbed import Testbed, attach

T = TypeVar("T")

CEILING = 120.0
"""Seconds that anything may take on a slow or busy machine: only a failure takes as long."""
_NOT_YET = (AssertionError, CommandFailed, LookupError)
_UNBUILT: Final[dict[tuple[str, ...], str]] = {}
"""What could not be built in this process, with its version, and why: each step would try it again."""
_LACKING: Final[dict[str, str]] = {}
"""Why this machine cannot carry a network plugin, or nothing: each step would look again."""
_made: dict[type[object], Exception | None] = {}
"""The classes whose steps have something to stand on, with why making it failed."""


class _Shared:
    testbed: Testbed | None = None
    shape: tuple[object, ...] = ()


def lacking() -> str:
    """Return why this machine cannot carry real clusters, or nothing."""
    return "; ".join(filter(None, (*missing(), versions.lacking())))


def require_clusters() -> None:
    """Skip the test on a machine that cannot carry clusters, with the reason."""
    if reason := lacking():
        require(f"real clusters are not possible here: {reason}")


def require_built(names: Sequence[str], version: str = versions.KUBERNETES) -> None:
    """Build programs that a module has for itself; the test fails where they cannot be had.

    Such a module runs where it is named, or as a part of the night of its own: left out, it would be taken for shown.
    """
    wanted = (version, *names)
    if wanted not in _UNBUILT:
        try:
            build.ensure(names, version)
        except (CommandFailed, OSError, ValueError) as error:
            _UNBUILT[wanted] = f"{', '.join(names)} cannot be had: {error}"
    if why := _UNBUILT.get(wanted):
        raise FailTest(why)


def made_once(owner: type[object], make: Callable[[], None]) -> None:
    """Make what all steps of a class stand on, before the first of them.

    Where it failed each further step fails with the same reason: on what is half made it would find another one. A skip
    is asked for again.
    """
    if owner not in _made:
        try:
            make()
        except SkipTest:
            raise
        except Exception as error:
            _made[owner] = error
            raise
        _made[owner] = None
    elif (failed := _made[owner]) is not None:
        raise FailTest(f"what the first step should stand on failed: {type(failed).__name__}: {failed}") from failed


def require_plugin(plugin: str) -> None:
    """Skip the test where this machine cannot carry a network plugin; what is missing of it is installed and built."""
    if plugin == cni.BRIDGE:
        return
    if plugin not in _LACKING:
        try:
            system.require(cni.PACKAGES)
            _LACKING[plugin] = cni.lacking(plugin)
        except system.Missing as error:
            _LACKING[plugin] = f"{plugin} is not possible here: {error}"
    require(_LACKING[plugin])
    require_built([cni.PROGRAMS[plugin]])


def shared_testbed(clusters: int, *, nodes: bool, kwok: int, qps: int, plugin: str = cni.BRIDGE) -> Testbed:
    """Return the testbed of this process, starting it the first time; another shape replaces it."""
    require_clusters()
    shape = (clusters, nodes, kwok, qps, plugin)
    if _Shared.testbed is None or _Shared.shape != shape:
        require_plugin(plugin)
        _stop_shared()
        if name := os.environ.get("LIQOD_TESTBED"):
            _Shared.testbed = _standing(name, clusters, nodes=nodes, kwok=kwok, plugin=plugin)
        else:
            _Shared.testbed = Testbed(clusters, nodes=nodes, kwok=kwok, qps=qps, cni=plugin)
            atexit.register(_stop_shared)
            _Shared.testbed.start()
        _Shared.shape = shape
        _Shared.testbed.enter()
    return _Shared.testbed


def _standing(name: str, clusters: int, *, nodes: bool, kwok: int, plugin: str) -> Testbed:
    testbed = attach(name)
    has = testbed.shape
    fits = (has.nodes or not nodes) and has.kwok >= kwok and plugin in (cni.BRIDGE, has.plugin)
    if len(testbed.clusters) < clusters or not fits:
        needs = f"{clusters} clusters, {nodes=}, {kwok=}, {plugin=}"
        raise FailTest(f"the testbed {name} has not what this test needs: {needs}")
    return testbed


def _stop_shared() -> None:
    if _Shared.testbed is not None and not _Shared.testbed.stays:
        _Shared.testbed.stop()
    _Shared.testbed = None


class RealClusters(TestCase):
    """A test on real clusters; ``self.clusters`` are there when a test begins.

    A class says what it needs: how many clusters, with a real node each or without, how many made-up nodes, the
    request rate of the controllers, and the network plugin. Classes of one module had better need the same.
    """

    cluster_count: ClassVar[int] = 2
    nodes: ClassVar[bool] = True
    kwok: ClassVar[int] = 0
    qps: ClassVar[int] = 0
    plugin: ClassVar[str] = cni.BRIDGE
    timeout = 600

    testbed: Testbed
    clusters: list[Cluster]

    def setUp(self) -> None:
        """Start the clusters, unless they stand."""
        self.testbed = shared_testbed(
            self.cluster_count, nodes=self.nodes, kwok=self.kwok, qps=self.qps, plugin=self.plugin
        )
        self.clusters = self.testbed.clusters


def eventually(check: Callable[[], T], timeout: float = CEILING, what: str = "it") -> T:
    """Call until the answer is true in Python's sense and return it; FailTest says what did not happen.

    A check that raises an assertion, a failed command or a missing key is called again. It blocks the reactor.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            if answer := check():
                return answer
            last = f"last answer: {answer!r}"
        except _NOT_YET as error:
            last = str(error)
        if time.monotonic() > deadline:
            raise FailTest(f"{what} did not happen in {timeout:.0f} s: {last}")
        time.sleep(0.25)


async def becomes(check: Callable[[], Awaitable[T]], timeout: float = CEILING, what: str = "it") -> T:
    """Do the same as ``eventually`` with a coroutine function, while the reactor runs on."""
    from twisted.internet import reactor

    deadline = time.monotonic() + timeout
    while True:
        try:
            if answer := await check():
                return answer
            last = f"last answer: {answer!r}"
        except _NOT_YET as error:
            last = str(error)
        if time.monotonic() > deadline:
            raise FailTest(f"{what} did not happen in {timeout:.0f} s: {last}")
        await deferLater(reactor, 0.25)


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call, such as kubectl, beside the reactor."""
    return await deferToThread(call)


def failures(result: object) -> int:
    """Return how many failures and errors a result has so far, also where trial has wrapped the reporter."""
    while not hasattr(result, "failures") and hasattr(result, "_originalReporter"):
        result = result._originalReporter
    return sum(len(getattr(result, kind, ())) for kind in ("failures", "errors"))
