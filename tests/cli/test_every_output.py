"""What holds for the output of every command of ``liqodctl``, wherever it goes: each test runs over all of them."""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator
from typing import Any, Final

import yaml

from tests.cli.test_every_command import ESCAPE, FAILING, HOME, RUNS, EveryCase, leaves

NARROW: Final = 60
CLEARED: Final = re.compile(r"[^\n]*\r\x1b\[K")
"""A line of a terminal that was written over."""
COPIED: Final = {("completion",), ("dns-records",), ("web",)}
"""Commands whose output is copied or read by programs: it has lines as long as they are."""
WATCHED: Final = {
    ("status",): "daemon",
    ("discover",): "this cluster",
    ("usage",): "NAMESPACE",
    ("explain", "web"): "WHAT",
    ("node", "list"): "liqo-milan",
    ("slice", "list"): "no slices",
    ("check",): "passed",
    ("ping", "milan", "--count=1"): "PATH",
}
"""What is shown again with --watch, and a word of it."""


class EveryOutputTests(EveryCase):
    """Every command, in an order in which one leaves what the next ones need."""

    timeout = 900

    async def outcomes(self, *more: str, **request: Any) -> AsyncIterator[tuple[tuple[str, ...], str, str, int]]:
        """Yield each command with its output, its errors and its status; none is a defect of liqod."""
        known = {path for path, _ in leaves()}
        for path, words in RUNS.items():
            if path in known:
                out, err, status = await self.outcome(*path, *self.named(words), *more, **dict(request))
                for text in ("Traceback", "LQ9001"):
                    self.assertNotIn(text, out + err, path)
                yield path, out, err, status

    def assert_status(self, path: tuple[str, ...], status: int, said: str) -> None:
        """Have a command end as it should; the demonstration may find a busy machine too slow, and says that."""
        if path != ("demo",) or "LQ5001" not in said:
            self.assertEqual(status, int(path in FAILING), (path, said))

    async def test_narrow_terminal(self) -> None:
        """On a narrow terminal no line with a space is wider than it, and no escape sequence of a peer is obeyed."""
        async for path, out, _, status in self.outcomes(tty=NARROW, env={"NO_COLOR": "1"}):
            stays = CLEARED.sub("", out)
            self.assertNotIn(ESCAPE, stays, path)
            wide = [one for one in stays.splitlines() if len(one) > NARROW and " " in one.strip()]
            self.assertEqual(wide if path not in COPIED else [], [], path)
            self.assert_status(path, status, out)

    async def test_ascii(self) -> None:
        """In a locale without Unicode everything is printed, by replacements."""
        async for path, out, err, status in self.outcomes(encoding="ascii"):
            self.assertTrue((out + err).isascii(), path)
            self.assert_status(path, status, err)

    async def test_pipe(self) -> None:
        """A pipe gets no colours, and lines that nobody broke: none is a part of another one."""
        async for path, out, err, _ in self.outcomes(env={"COLUMNS": "20"}):
            self.assertNotIn(ESCAPE, out + err, path)

    async def test_yaml(self) -> None:
        """With -o yaml every command prints one document, also one that fails."""
        async for path, out, err, status in self.outcomes("-o", "yaml"):
            self.assertIsNotNone(yaml.safe_load(out), (path, err))
            self.assert_status(path, status, err)

    async def test_closed_pipe(self) -> None:
        """A reader that went away ends a command with 141 and without a word, unless it fails before it prints."""
        async for path, _, err, status in self.outcomes(closed=True):
            self.assertIn(status, (141, 1) if path in {*FAILING, ("demo",)} else (141,), (path, err))

    async def test_full_disk(self) -> None:
        """Where the output cannot be written a command says so in one sentence, and fails."""
        async for path, _, err, status in self.outcomes(full=True):
            self.assertEqual(status, 1, (path, err))
            self.assertRegex(err, r"LQ\d{4}: ", path)
            self.assertLessEqual(err.count("cannot be written"), 1, path)


class WatchTests(EveryCase):
    """What is shown again and again."""

    async def test_until_interrupted(self) -> None:
        """It begins at the top of the terminal, and Ctrl-C ends it with 130."""
        for argv, word in WATCHED.items():
            out, err, status = await self.outcome(*argv, "--watch", tty=80, expect=word, signal=int(signal.SIGINT))
            self.assertEqual(status, 130, (argv, out, err))
            self.assertIn(HOME, out, argv)

    async def test_refused(self) -> None:
        """A document is printed once: --watch does not go with it; nor with a code, whose meaning does not change."""
        for argv in (*WATCHED, ("explain", "TrustPending")):
            form = () if argv[-1] == "TrustPending" else ("-o", "json")
            _, err, status = await self.outcome(*argv, "--watch", *form)
            self.assertEqual(status, 2, (argv, err))
            self.assertIn("--watch", err, argv)
