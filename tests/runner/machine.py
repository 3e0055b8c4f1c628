"""The machine that a run has: what is installed and built on it before, and what of it is not in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import define, field

from tests.runner.steps import CONTRACT, NETNS, REAL
from tests.testbed import build, process, system


def prepare(names: Iterable[str]) -> Iterator[str]:
    """Install and build what these tests need, as far as this machine allows; yield why something was not possible."""
    needed = {folder for folder in (REAL, NETNS, CONTRACT) if any(f"{name}.".startswith(folder) for name in names)}
    if needed & {REAL, NETNS}:
        try:
            system.require()
        except system.Missing as error:
            yield str(error)
    if needed & {REAL, CONTRACT}:
        try:
            build.ensure()
        except (process.CommandFailed, OSError) as error:
            yield f"the programs of the test clusters cannot be built: {error}"


def processor_times(stat: str) -> tuple[int, int]:
    """Return how long the processors were idle and how long they are up, in ticks, from ``/proc/stat`` (proc(5)).

    Time that the hypervisor took away (the eighth column) is not idle.
    """
    columns = [int(text) for text in stat.split("\n", 1)[0].split()[1:9]]
    return sum(columns[3:5]), sum(columns)


@define
class Idle:
    """Measures for which share of the time the processors had nothing to do; never, where that cannot be known."""

    _before: tuple[int, int] = field(factory=lambda: _now())

    def share(self) -> float:
        """Return the share of the time since the last call, 0.0 to 1.0."""
        before, self._before = self._before, _now()
        idle, total = (after - earlier for after, earlier in zip(self._before, before, strict=True))
        return idle / total if total else 0.0


def memory_share(meminfo: str) -> float:
    """Return the share of the memory that new programs can have, from ``/proc/meminfo`` (proc(5)), 0.0 to 1.0."""
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in meminfo.splitlines())}
    return sizes["MemAvailable"] / sizes["MemTotal"]


def free_memory() -> float:
    """Return the share of this machine's memory that is free; none, where that cannot be known."""
    meminfo = Path("/proc/meminfo")
    return memory_share(meminfo.read_text()) if meminfo.exists() else 0.0


def _now() -> tuple[int, int]:
    stat = Path("/proc/stat")
    return processor_times(stat.read_text()) if stat.exists() else (0, 0)
