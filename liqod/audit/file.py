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
        self._torn = False

    def write(self, line: bytes) -> None:
        """Append a line, which has no line feed; raises OSError when it was not written completely."""
        descriptor = self._open()
        size = os.fstat(descriptor).st_size
        if size and size + self._torn + len(line) + 1 > self._max_bytes:
            self.close()
            self._rotate()
            descriptor = self._open()
        # A part of a line may be there from a disk that was full: the next one begins on a line of its own.
        data = b"\n" * self._torn + line + b"\n"
        if os.write(descriptor, data) < len(data):
            # write(2) returns less than was asked for when the disk is full after a part of it.
            self.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._torn = False

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is not None and not self._is_in_place(self._descriptor):
            self.close()
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._path, flags, MODE)
            size = os.fstat(self._descriptor).st_size
            self._torn = bool(size) and os.pread(self._descriptor, 1, size - 1) != b"\n"
        return self._descriptor

    def _is_in_place(self, descriptor: int) -> bool:
        """Return whether the path still names the file that was opened: it may have been moved or removed."""
        try:
            return os.path.samestat(self._path.lstat(), os.fstat(descriptor))
        except OSError:
            return False

    def _rotate(self) -> None:
        if not self._backups:
            self._path.unlink(missing_ok=True)
            return
        for number in range(self._backups, 0, -1):
            newer = self._numbered(number - 1)
            if newer.exists():
                newer.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
