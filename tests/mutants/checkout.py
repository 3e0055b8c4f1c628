"""A copy of the checkout in which one module at a time is changed."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDERS: Final = ("liqod", "sandbox", "tests", "twisted", "etc", "docs", "systemd", "benchmarks", "packaging")
_FILES: Final = ("setup.cfg", "pyproject.toml", "README.md", "CONTRIBUTING.md", "Makefile", "LICENSE")


class Copy:
    """The copy below ``path``; it is as the checkout was when it was made, whatever happens to that meanwhile."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="liqod-mutants-")).resolve()
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *_FOLDERS, *_FILES]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
        for name in filter(None, names):
            # What the package has of other folders is there by links, some of them to whole folders.
            if (ROOT / name).is_file() or (ROOT / name).is_symlink():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.path / name, follow_symlinks=False)
        # Python compares a .pyc with its source by size and whole seconds: each version of a file needs its own.
        self._seconds = itertools.count(1_000_000_000)

    def sources(self) -> dict[str, bytes]:
        """Return the text of each module of the daemon."""
        files = sorted((self.path / "liqod").rglob("*.py"))
        return {
            ".".join(file.relative_to(self.path).with_suffix("").parts): file.read_bytes()
            for file in files
            if file.stem != "__init__"
        }

    @contextmanager
    def changed(self, module: str, text: bytes) -> Iterator[None]:
        """Let a module have another text for a while."""
        file = self.path.joinpath(*module.split(".")).with_suffix(".py")
        before = file.read_bytes()
        try:
            self._write(file, text)
            yield
        finally:
            self._write(file, before)

    def remove(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _write(self, file: Path, text: bytes) -> None:
        file.write_bytes(text)
        second = next(self._seconds)
        os.utime(file, (second, second))
