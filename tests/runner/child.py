"""One process of tests: runs trial and writes every result down: ``python -m tests.runner.child RECORD PLACE NAME...``.

Trial's own text stays what people read. The record is for the runner, which so need not guess from that text.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any, Final, TextIO

from attrs import asdict
from twisted.internet import asyncioreactor
from twisted.trial.reporter import TreeReporter
from twisted.trial.runner import TestLoader, TrialRunner

from tests.runner.results import END, Result, Verdict

COLLECTIONS: Final = (20_000, 20, 50)
"""When Python looks for cycles: with its own thresholds a third of a process of tests is spent on that."""


class Recorder(TreeReporter):
    """Reports as trial does, and writes each result to a file at once, so that it is there when the process dies."""

    record: TextIO

    def _note(self, test: Any, verdict: Verdict, detail: str = "") -> None:
        begun = self._testStarted
        seconds = self._getTime() - begun if begun is not None else 0.0
        self.record.write(json.dumps(asdict(Result(test.id(), verdict, round(seconds, 3), detail))) + "\n")
        self.record.flush()

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self._note(test, "passed")

    def addExpectedFailure(self, *args: Any) -> None:
        super().addExpectedFailure(*args)
        self._note(args[0], "passed")

    def addSkip(self, *args: Any) -> None:
        super().addSkip(*args)
        self._note(args[0], "skipped", str(args[1]))

    def addFailure(self, *args: Any) -> None:
        super().addFailure(*args)
        self._note(args[0], "failed", self._getFailure(args[1]).getTraceback())

    def addError(self, *args: Any) -> None:
        super().addError(*args)
        self._note(args[0], "failed", self._getFailure(args[1]).getTraceback())

    def addUnexpectedSuccess(self, *args: Any) -> None:
        super().addUnexpectedSuccess(*args)
        self._note(args[0], "failed", "it passed, and was expected to fail")

    def done(self) -> None:
        super().done()
        self.record.write(json.dumps(END) + "\n")
        self.record.flush()


def main(argv: list[str]) -> int:
    """Run tests by name and return the exit status."""
    record, place, *names = argv
    asyncioreactor.install()
    with Path(record).open("w") as file:
        recorder = type("Recorder", (Recorder,), {"record": file})
        runner = TrialRunner(recorder, workingDirectory=place)
        suite = TestLoader().loadByNames(names, recurse=True)
        gc.set_threshold(*COLLECTIONS)
        gc.freeze()
        result = runner.run(suite)
        return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
