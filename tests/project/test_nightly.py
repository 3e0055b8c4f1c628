"""The nightly parts: what was interrupted goes on, what has results is not run again, and no failure is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import nightly
from tests.environment import require
from tests.nightly import JUNIT, PARTS, Part, run_parts, state, state_of
from tests.runner.steps import CHECKOUT
from tests.upstream_results import modules_named

SAMPLE = """
import os, signal, sys, time
from pathlib import Path
mark = Path(__file__).with_name("mark")
mark.open("a").write("x")
word = sys.argv[1]
print("this is", word)
if word == "fails":
    sys.exit(3)
if word == "interrupts" and len(mark.read_text()) == 1:
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
if word == "sleeps":
    time.sleep(60)
if word == "writes":
    Path(sys.argv[2]).write_text("<s><testcase name='a'/><testcase name='b'><failure type='unsteady'/></testcase></s>")
"""


class NightlyTests(SynchronousTestCase):
    """Parts that run a program of the test."""

    def setUp(self) -> None:
        """Have the program and a folder for results."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        (self.folder / "night_sample.py").write_text(SAMPLE)

    def part(self, *words: str, limit: float = 30.0) -> Part:
        """Return a part that runs the program."""
        return Part(words[0], ("night_sample", *words), limit, {"PYTHONPATH": str(self.folder)})

    def run_part(self, *words: str, again: bool = False, limit: float = 30.0) -> list[str]:
        """Run one part and return the verdicts."""
        return [one.verdict for one in run_parts([self.part(*words, limit=limit)], self.folder, again=again)]

    @property
    def runs(self) -> int:
        """How often the program ran."""
        return len((self.folder / "mark").read_text())

    def test_once(self) -> None:
        """A part that has its results is not run again, unless it is asked for; its log stays."""
        for again, runs in ((False, 1), (False, 1), (True, 2)):
            self.assertEqual((self.run_part("passes", again=again), self.runs), (["passed"], runs))
        self.assertEqual((self.folder / "passes.log").read_text(), "this is passes\n")

    def test_failure(self) -> None:
        """A part that fails or takes too long has failed, now and when its results are read again."""
        for word, limit in (("fails", 30.0), ("sleeps", 0.5)):
            for _ in range(2):
                self.assertEqual(self.run_part(word, limit=limit), ["failed"], word)

    def test_interrupt(self) -> None:
        """A part that was interrupted has no results, and runs when the night goes on."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        self.assertRaises(KeyboardInterrupt, self.run_part, "interrupts")
        self.assertEqual((self.run_part("interrupts"), self.runs), (["passed"], 2))

    def test_results_of_its_own(self) -> None:
        """A part that writes results is judged by them; one that was to write some and did not has failed."""
        self.assertEqual(self.run_part("writes", JUNIT), ["passed", "unsteady"])
        self.assertEqual(self.run_part("passes", JUNIT), ["failed"])

    def test_parts(self) -> None:
        """Every part has a name of its own and a time after which it is ended."""
        names = [part.name for part in PARTS]
        self.assertEqual(len(set(names)), len(names))
        self.assertTrue(all(part.limit > 0 for part in PARTS))

    def test_pages_get_all_results(self) -> None:
        """What earlier parts left counts as well: a row may wait for tests of several."""
        given: list[list[Path]] = []
        before = signal.getsignal(signal.SIGINT)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        self.patch(nightly, "PARTS", (self.part("passes"), self.part("fails")))
        self.patch(nightly, "KEPT", self.folder)
        self.patch(nightly, "state", lambda: "night")
        self.patch(nightly, "write_upstream_results", given.append)
        for word in ("passes", "fails"):
            nightly.main([word])
        names = [[file.name for file in files] for files in given]
        self.assertEqual(names, [["passes.xml"], ["fails.xml", "passes.xml"]])

    def test_rows_of_the_upstream_page(self) -> None:
        """Each test that a row of the page waits for is run by a part."""
        self.assertEqual(modules_named() - {word for part in PARTS for word in part.words}, set())

    def test_state(self) -> None:
        """The name of the sources begins with the commit and is a file's name."""
        require("" if (CHECKOUT / ".git").exists() else "the sources are no clone of the repository")
        self.assertRegex(state(), r"^[0-9a-f]{40}(-[0-9a-f]{8})?$")
        self.assertNotIn(os.sep, state())

    def test_pages_are_no_state(self) -> None:
        """What a night writes into its pages is no change of the sources, so that it goes on where it was."""
        require("" if shutil.which("git") else "there is no git")
        checkout = self.folder / "sources"
        (checkout / "docs").mkdir(parents=True)
        code, page = checkout / "code.py", checkout / "docs" / "upstream-tests.md"
        for file in (code, page):
            file.write_text("one\n")
        by = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
        for words in (("init", "-q"), ("add", "-A"), (*by, "commit", "-qm", "one")):
            subprocess.run(["git", *words], cwd=checkout, check=True)
        begun = state(checkout)
        page.write_text("two\n")
        (checkout / "docs" / "kubernetes-conformance.md").write_text("new\n")
        self.assertEqual(state(checkout), begun)
        part = state_of(["*.py"], checkout)
        code.write_text("two\n")
        self.assertNotEqual(state(checkout), begun)
        changed = state_of(["*.py"], checkout)
        (checkout / "docs" / "more.md").write_text("new\n")
        self.assertEqual(len({part, changed, state_of(["*.py"], checkout)}), 2)
        subprocess.run(["git", "add", "-A"], cwd=checkout, check=True)
        subprocess.run(["git", *by, "commit", "-qm", "two"], cwd=checkout, check=True)
        committed = state_of(["*.py"], checkout)
        (checkout / "docs" / "more.md").write_text("other\n")
        subprocess.run(["git", *by, "commit", "-qam", "three"], cwd=checkout, check=True)
        self.assertEqual(state_of(["*.py"], checkout), committed)
