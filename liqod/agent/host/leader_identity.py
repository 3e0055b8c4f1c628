"""By which name this daemon is a candidate for its cluster's lease.

A daemon with the identity of one that crashed renews its lease and need not wait for it to expire. So the identity
is kept in the state directory. Nobody else has it as long as the file is locked (flock(2): the kernel gives the lock
back with the process, however that ends), nor after the host was copied (another boot ID).
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_FILE: Final = "candidate"


class LeaderIdentity:
    """The name under which this process competes for the lease, its own until ``close``."""

    def __init__(self, hostname: str, environ: Mapping[str, str] = os.environ, boot_id: Path = BOOT_ID) -> None:
        self.name = f"{hostname}-{secrets.token_hex(4)}"
        self._file: int | None = None
        # Set by systemd, from StateDirectory=; several are separated by colons (systemd.exec(5)).
        directory = environ.get("STATE_DIRECTORY", "").partition(":")[0]
        if directory:
            self._keep(Path(directory) / _FILE, boot_id)

    def close(self) -> None:
        """Let others have the name."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _keep(self, path: Path, boot_id: Path) -> None:
        """Take over the name that is kept, or keep this one; without a file that can be locked, neither."""
        file = None
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            boot = boot_id.read_text().strip()
            kept = os.read(file, 4096).decode("utf-8", "replace").split("\n")
            # Not after the host was given another name: people know the candidates by these.
            if len(kept) == 3 and kept[1] == boot and kept[0].rpartition("-")[0] == self.name.rpartition("-")[0]:
                self.name = kept[0]
            else:
                os.ftruncate(file, 0)
                os.pwrite(file, f"{self.name}\n{boot}\n".encode(), 0)
            self._file, file = file, None
        except OSError:
            pass
        finally:
            if file is not None:
                os.close(file)
