"""Puts a mutant before the tests that reach it, nearest first, until one of them fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from attrs import frozen

from tests.mutants.changes import apply
from tests.mutants.checkout import Copy
from tests.mutants.imports import SCENARIO, Imports
from tests.mutants.reach import Reach
from tests.mutants.run import LIMIT, Run, run
from tests.mutants.sample import Mutant

Outcome = Literal["killed", "survived", "equivalent"]
_TOGETHER: Final = 6
"""Test modules in one process, once the nearest one alone has let the mutant live."""
_AT_ONCE: Final = 4
"""So many of the nearest test modules are asked before it is found out what they run, which takes longer than that."""
_ITS_OWN: Final = -1.0
"""How near a test module is that imports the module itself and is about its package: it is asked whatever it takes."""
_SECONDS_A_STEP: Final = 10.0
"""A test module that takes so many seconds more is asked as if it were one import farther away."""


@frozen
class Result:
    """What came of one mutant: ``by`` is the test that failed, or "time" when the tests did not end.

    ``seconds`` are those of processors.
    """

    outcome: Outcome
    by: str
    seconds: float
    tests: int


class Trials:
    """Tries mutants, one at a time, in a copy of the checkout.

    ``budget``: the seconds of processors that tests of one mutant may take, by what they took before; ``wide``: whether
    all tests that import the module are asked, the scenario tests last.
    """

    def __init__(self, copy: Copy, imports: Imports, reach: Reach, *, budget: float, wide: bool) -> None:
        self._copy = copy
        self._imports = imports
        self._reach = reach
        self._budget = budget
        self._wide = wide
        self._sources = copy.sources()
        self._spent = 0.0

    def attempt(self, mutant: Mutant) -> Result:
        """Try one mutant."""
        asked, self._spent = 0, 0.0
        for tests in self._in_turn(mutant):
            asked += len(tests)
            ended = self._killer(mutant, tests)
            if ended is not None:
                by = "time" if ended.late else ended.failed
                return Result("killed", by, self._spent, asked)
        return Result("survived", "", self._spent, asked)

    def _in_turn(self, mutant: Mutant) -> Iterator[list[str]]:
        """Yield the test modules that reach a mutant: the nearest alone, then several together, scenarios last."""
        rank = self._imports.tests_of(mutant.module, wide=self._wide)
        near = {test: far + self._reach.seconds(test) / _SECONDS_A_STEP for test, far in rank.items()}
        left = self._budget
        together: list[str] = []
        is_first = True
        blind = 0
        for test in sorted(near, key=near.__getitem__):
            is_its_own = rank[test] <= _ITS_OWN
            # The nearest that reaches the mutant is asked whatever it takes: with none the mutant would prove nothing.
            is_affordable = is_first or is_its_own or self._reach.seconds(test) <= left
            if test.startswith(SCENARIO) or not is_affordable:
                continue
            if not self._reach.is_known(test):
                # To find out what a module runs takes longer than to ask it, and those of which it is known.
                if together:
                    yield together
                    together = []
                if blind < _AT_ONCE:
                    blind += 1
                    yield [test]
                    continue
            known = self._reach.of(test)
            if known.passed and known.reaches(mutant.module, self._sources[mutant.module], mutant.change):
                left -= known.seconds
                together.append(test)
                if is_first or len(together) == _TOGETHER:
                    is_first = False
                    yield together
                    together = []
        if together:
            yield together
        if self._wide:
            yield from ([test] for test in near if test.startswith(SCENARIO))

    def _killer(self, mutant: Mutant, tests: Sequence[str]) -> Run | None:
        """Return the run that failed because of the mutant: one in company counts when it fails alone too.

        One that failed on a busy machine, or of which nobody knows whether it passes, counts when the test passes
        without the mutant.
        """
        limit = LIMIT if tests[0].startswith(SCENARIO) else int(30 + 4 * sum(map(self._reach.seconds, tests)))
        with self._copy.changed(mutant.module, apply(self._sources[mutant.module], mutant.change)):
            ended = self._run(tests, limit)
        if ended.passed:
            return None
        if len(tests) > 1:
            likely = sorted(tests, key=lambda test: not f"{ended.failed}.".startswith(f"{test}."))
            alone = (self._killer(mutant, [test]) for test in likely)
            return next((ended for ended in alone if ended is not None), None)
        failed = ended.failed if ended.failed.startswith(tests[0]) else tests[0]
        is_sure = self._reach.is_known(tests[0]) and not ended.waited
        return ended if is_sure or self._run([failed], limit).passed else None

    def _run(self, tests: Sequence[str], limit: int) -> Run:
        ended = run(self._copy.path, tests, limit)
        self._spent += ended.seconds
        return ended
