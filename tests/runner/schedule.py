"""In which order steps run, how many at a time, and which run once more.

Modules on real clusters run two at a time: each has clusters to itself, and waits for them most of its time. Beside
them run steps that need nothing but this machine and keep it busy; when either kind is done, the other has the machine
to itself. While the processors have nothing to do and memory is free, one step more begins, of either kind: how much
of its time a module waits depends on the machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from attrs import define, evolve, field

from tests.runner.execute import Outcome, end_all, execute
from tests.runner.machine import Idle, free_memory
from tests.runner.results import PROCESS, Result, merge, phrase
from tests.runner.steps import Step, trial

REAL_AT_A_TIME: Final = 2
AGAIN: Final = 4
"""Modules that are run once more when they failed: if more of them did, it is not chance."""
SPARE: Final = 4
"""Steps that may run besides while the processors are idle, on real clusters or not."""
IDLE: Final = 0.2
"""The share of a measured time that the processors were idle from which on they count as such."""
FREE: Final = 0.3
"""The share of the memory that must be free for it: three real clusters take some gigabytes."""
_MEASURE_EVERY: Final = 8.0
_REPORT_EVERY: Final = 30.0


def at_a_time(*, real: bool) -> int:
    """Return how many steps run at a time: more than there are processors, because most of them wait for timers."""
    processors = max(2, os.cpu_count() or 1)
    # A real cluster keeps processors busy that are nobody's step.
    return processors + REAL_AT_A_TIME - 1 if real else 3 * processors


@define
class Progress:
    """Keeps what is done and prints one line for each step that ends."""

    total: int
    outcomes: list[Outcome] = field(factory=list)
    _running: dict[str, float] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def run(self, step: Step) -> Outcome:
        """Run a step, report it, and keep its outcome."""
        with self._lock:
            self._running[step.title] = time.monotonic()
        outcome = execute(step)
        with self._lock:
            del self._running[step.title]
            self.outcomes.append(outcome)
            _print(f"[{len(self.outcomes)}/{self.total}] {step.title}", outcome)
        return outcome

    def repeat(self) -> None:
        """Run the modules in which something failed once more, each alone, if they are few."""
        failed = [failed_names(outcome) for outcome in self.outcomes]
        if sum(map(len, failed)) > AGAIN:
            return
        for number, names in enumerate(failed):
            first = self.outcomes[number]
            again: list[Result] = []
            for name in names:
                print(f"once more, alone: {name}", flush=True)
                second = execute(evolve(trial(name), limit=first.step.limit))
                _print(f"{name}, again", second)
                again += second.results
            if names:
                self.outcomes[number] = evolve(first, results=merge(first.results, again))

    def report_running(self) -> None:
        """Print what runs now and for how long."""
        with self._lock:
            now = time.monotonic()
            slow = [f"{title} for {now - begin:.0f} s" for title, begin in self._running.items()]
        if slow:
            print(f"[{len(self.outcomes)}/{self.total}] running: {', '.join(slow)}", flush=True)


def failed_names(outcome: Outcome) -> list[str]:
    """Return the names of the step in which something failed: all when its process failed, none for a check."""
    failed = [result.test for result in outcome.results if result.verdict == "failed"]
    if any(test.endswith(PROCESS) for test in failed):
        return list(outcome.step.names)
    return [name for name in outcome.step.names if any(f"{test}.".startswith(f"{name}.") for test in failed)]


@define
class Turns:
    """Hands out steps in their order: ``parallel`` at a time, and no more on real clusters than may run at a time."""

    _waiting: list[Step]
    _parallel: int
    _running: int = 0
    _real: int = 0
    _spare: bool = False
    _lock: threading.Condition = field(factory=threading.Condition)

    def take(self) -> Step | None:
        """Return the next step that may begin, waiting until there is one; None when no step is left."""
        with self._lock:
            while self._waiting:
                if step := self.ready():
                    self._waiting.remove(step)
                    self._running += 1
                    self._real += step.is_real
                    self._spare = False
                    return step
                self._lock.wait()
        return None

    def ready(self) -> Step | None:
        """Return the step that would begin now, if one may."""
        if self._running >= self._parallel + (SPARE if self._spare else 0):
            return None
        real = self._real < REAL_AT_A_TIME + (SPARE if self._spare else 0)
        return next((step for step in self._waiting if real or not step.is_real), None)

    def done(self, step: Step) -> None:
        """Take note that a step has ended."""
        with self._lock:
            self._running -= 1
            self._real -= step.is_real
            self._lock.notify_all()

    def use(self, idle: float, free: float) -> None:
        """Let one step more begin if the processors were idle for this share of the time since the last call.

        ``free`` is the share of the memory that is free.
        """
        with self._lock:
            self._spare = idle >= IDLE and free >= FREE
            self._lock.notify_all()

    def drop(self) -> None:
        """Hand out nothing more."""
        with self._lock:
            self._waiting.clear()
            self._lock.notify_all()


def run_all(progress: Progress, steps: Iterable[Step], parallel: int) -> None:
    """Run steps, several at a time, in their order as far as that may be."""
    turns = Turns(list(steps), parallel)

    def work() -> None:
        while step := turns.take():
            try:
                progress.run(step)
            finally:
                turns.done(step)

    with ThreadPoolExecutor(parallel + SPARE) as pool:
        workers = [pool.submit(work) for _ in range(parallel + SPARE)]
        idle = Idle()
        measured = reported = time.monotonic()
        try:
            while not all(one.done() for one in workers):
                time.sleep(0.1)
                now = time.monotonic()
                if now - measured > _MEASURE_EVERY:
                    measured = now
                    turns.use(idle.share(), free_memory())
                if now - reported > _REPORT_EVERY:
                    reported = now
                    progress.report_running()
        except BaseException:
            turns.drop()
            end_all()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        for one in workers:
            one.result()


def _print(title: str, outcome: Outcome) -> None:
    counts = outcome.counts
    print(f"{title}: {phrase(counts).rpartition(',')[0]}, {outcome.seconds:.1f} s", flush=True)
    if counts["failed"]:
        print(f"{'-' * 20} {title}\n{outcome.output.rstrip()}\n{'-' * 20}", flush=True)
