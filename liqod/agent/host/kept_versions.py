"""Keeps the newest resource versions of the cluster in the state directory, from one process to the next.

etcd is restored while the daemon is stopped, and what is kept in the cluster goes back with it: only what lies beside
it can tell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from liqod.kube.connection.seen_versions import SeenVersions

_FILE: Final = "resource-versions.json"
_MOST: Final = 64 << 10
"""Bytes that are read; a kind takes some fifty."""


class KeptVersions:
    """The file of one cluster; without a state directory nothing is kept, and nothing fails."""

    def __init__(self, cluster: str, environ: Mapping[str, str] = os.environ) -> None:
        # Set by systemd, from StateDirectory=; several are separated by colons (systemd.exec(5)).
        directory = environ.get("STATE_DIRECTORY", "").partition(":")[0]
        self._path = Path(directory) / _FILE if directory else None
        self._cluster = cluster

    def read(self) -> SeenVersions:
        """Return what an earlier process has seen of this cluster; nothing where the file is of another one."""
        if self._path is None:
            return SeenVersions()
        try:
            with self._path.open("rb") as file:
                kept: Any = msgspec.json.decode(file.read(_MOST))
        except (OSError, msgspec.DecodeError, RecursionError):
            return SeenVersions()
        is_ours = isinstance(kept, dict) and kept.get("cluster") == self._cluster
        versions = kept.get("versions") if is_ours else None
        return SeenVersions(versions if isinstance(versions, dict) else None)

    def write(self, seen: SeenVersions) -> None:
        """Keep what was seen, in place of what was kept; raises OSError."""
        if self._path is None:
            return
        temporary = self._path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode({"cluster": self._cluster, "versions": seen.as_dict()}))
        temporary.replace(self._path)
