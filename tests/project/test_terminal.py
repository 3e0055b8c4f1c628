"""A program that the tests run on a terminal has one of 80 columns, and what stays on it is read."""

from __future__ import annotations

import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.real.terminal import COLUMNS, ROWS, first_screen, folded, on_terminal, plain

SIZE = "import os, sys; print(sys.stdout.isatty(), *os.get_terminal_size(1))"
ASKS = "print('hello ' + input('who? '))"
SLEEPS = "import time; print('begun', flush=True); time.sleep(60)"


class TerminalTests(SynchronousTestCase):
    """Programs on a terminal."""

    def run_python(self, script: str, **options: object) -> tuple[str, int | None]:
        """Run a script; returns what stays on the terminal, and the status."""
        shown = on_terminal([sys.executable, "-c", script], **options)  # type: ignore[arg-type]
        return plain(shown.text), shown.status

    def test_size(self) -> None:
        """The program sees a terminal of the size that is promised."""
        self.assertEqual(self.run_python(SIZE), (f"True {COLUMNS} {ROWS}", 0))

    def test_answer(self) -> None:
        """What is typed when a text was written is read, and seen."""
        self.assertEqual(self.run_python(ASKS, answers=[("who?", "me\n")]), ("who? me\nhello me", 0))

    def test_status(self) -> None:
        """The exit status is the program's."""
        self.assertEqual(self.run_python("raise SystemExit(3)")[1], 3)

    def test_too_long(self) -> None:
        """A program that does not end is ended, and what it had written is there."""
        self.assertEqual(self.run_python(SLEEPS, timeout=2.0), ("begun", None))

    def test_large(self) -> None:
        """Of much that is written nothing is lost."""
        text, _ = self.run_python("print('\\n'.join(map(str, range(20000))))")
        self.assertEqual(text.splitlines(), [str(number) for number in range(20000)])


class ScreenTests(SynchronousTestCase):
    """What is seen."""

    def test_written_over(self) -> None:
        """A line that was written over is gone, and so are colours."""
        text = "\r\x1b[K… waiting (1 s)\r\x1b[K… waiting (2 s)\r\x1b[K\x1b[32mconnected\x1b[0m  \r\n"
        self.assertEqual(plain(text), "connected")

    def test_folded(self) -> None:
        """A line that is too long goes on in the next row, and an empty one takes a row."""
        self.assertEqual(folded("abcdefg\n\nh", 3), ["abc", "def", "g", "", "h"])
        self.assertEqual(len(first_screen("x" * (COLUMNS + 1) + "\n" + "y\n" * 50)), ROWS)
