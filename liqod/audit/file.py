"""A file of lines that is rotated by size. Blocking: a line is at most a kibibyte, and their rate is limited."""

from __future__ import annotations

import errno
import os
from pathlib import Path

# The lines name peers and addresses: only the daemon's user reads them.
MODE = 0o600


class RotatingFile:
    """Appends lines to ``path``; at ``max_bytes`` it becomes ``path.1``, that ``path.2``, up to ``backups`` of them."""

    def __init__(self, path: str, max_bytes: int, backups: int) -> None:
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._backups = backups
        self._descriptor: int | None = None
        self._size = 0
        self._torn = False

    def write(self, line: bytes) -> None:
        """Append a line, which has no line feed; raises OSError when it was not written completely."""
        # A part of a line may be there from a disk that was full: the next one begins on a line of its own.
        data = b"\n" * self._torn + line + b"\n"
        descriptor = self._open()
        if self._size and self._size + len(data) > self._max_bytes:
            self.close()
            self._rotate()
            data, descriptor = line + b"\n", self._open()
        written = os.write(descriptor, data)
        self._size += written
        self._torn = 0 < written < len(data) or (self._torn and not written)
        if written < len(data):
            # write(2) returns less than was asked for when the disk is full after a part of it.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._path, flags, MODE)
            self._size = os.fstat(self._descriptor).st_size
        return self._descriptor

    def _rotate(self) -> None:
        self._torn = False
        if not self._backups:
            self._path.unlink(missing_ok=True)
            return
        for number in range(self._backups, 0, -1):
            newer = self._numbered(number - 1)
            if newer.exists():
                newer.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
