"""A real DNS server, Debian's nsd, that serves one zone from a directory of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.environment import require

PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def program() -> str:
    """Return where nsd is; skips the test where it is not installed."""
    found = shutil.which("nsd", path=PLACES) or ""
    require("" if found else "nsd is not installed: as root, `make testbed` installs it")
    return found


def furnish(directory: Path, address: str, port: int, domain: str, text: str) -> list[str]:
    """Write configuration and zone, and return the command line of the server, which stays in the foreground."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "zone").write_text(text)
    options = {
        "ip-address": f"{address}@{port}",
        "zonesdir": str(directory),
        "database": '""',
        "username": '""',
        "pidfile": f"{directory}/pid",
        "xfrdfile": f"{directory}/xfrd",
        "zonelistfile": f"{directory}/list",
        "xfrdir": str(directory),
        "server-count": "1",
    }
    lines = ["server:", *(f"  {key}: {value}" for key, value in options.items())]
    lines += ["remote-control:", "  control-enable: no", "zone:", f"  name: {domain}", "  zonefile: zone"]
    (directory / "nsd.conf").write_text("\n".join(lines) + "\n")
    return [program(), "-d", "-c", f"{directory}/nsd.conf"]
