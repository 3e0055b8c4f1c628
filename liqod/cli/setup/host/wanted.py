"""What an installation on a host consists of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import attrs
import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

USERS: Final = ("liqod", "liqod-network", "liqod-names")
"""The users of the daemon and of its processes for the network and for names, as in liqod.sysusers."""
READERS: Final = {
    "/etc/liqod/kubeconfig": "liqod",
    "/etc/liqod/network.kubeconfig": "liqod-network",
    "/etc/liqod/names.kubeconfig": "liqod-names",
}
"""The group that may read each kubeconfig of the units; no process reads another's credentials."""
CONFIGURATION: Final = "/etc/liqod/liqod.toml"
UNITS: Final = "/etc/systemd/system"
SYSUSERS: Final = "/etc/sysusers.d/liqod.conf"
POLKIT: Final = "/etc/polkit-1"
RECEIPT: Final = "/etc/liqod/host-installation.json"
"""What was written. It belongs to root and is not in the state directory, which belongs to the daemon's user."""
SHIPPED_PREFIX: Final = "/opt/liqod"
"""The environment that the shipped units name."""
_COMPLETIONS: Final = {
    "/etc/bash_completion.d/liqodctl": BashComplete,
    "/usr/local/share/zsh/site-functions/_liqodctl": ZshComplete,
    "/etc/fish/completions/liqodctl.fish": FishComplete,
}
_PROGRAMS: Final = ("liqodctl", "kubectl-liqod")


@attrs.frozen
class Entry:
    """A file, or with ``target`` a symbolic link; ``path`` is absolute, seen from the root directory.

    A ``configuration`` belongs to the administrator once it is there; without an ``optional`` one liqod works as well.
    """

    path: str
    content: bytes = b""
    target: str = ""
    configuration: bool = False
    optional: bool = False

    @property
    def digest(self) -> str:
        """The digest as ``digest_of`` computes it for what is on disk."""
        return digest_of(self.content, self.target)


def digest_of(content: bytes, target: str = "") -> str:
    """Return what identifies a file's content or a link's target."""
    return f"link:{target}" if target else f"sha256:{hashlib.sha256(content).hexdigest()}"


def wanted(prefix: str, program: click.Command, *, polkit: bool) -> Sequence[Entry]:
    """Return the entries for an environment at ``prefix``; ``program`` is the command that completions are for."""
    shipped = files("liqod.cli.setup.host") / "files"
    entries = [Entry(CONFIGURATION, (shipped / "liqod.toml").read_bytes(), configuration=True)]
    for unit in sorted((shipped / "systemd").iterdir(), key=lambda file: file.name):
        content = unit.read_bytes().replace(f"{SHIPPED_PREFIX}/".encode(), f"{prefix}/".encode())
        if unit.name.endswith(".service"):
            entries.append(Entry(f"{UNITS}/{unit.name}", content))
        elif unit.name.endswith(".rules") and polkit:
            entries.append(Entry(f"{POLKIT}/rules.d/{unit.name}", content))
        elif unit.name.endswith(".sysusers"):
            entries.append(Entry(SYSUSERS, content))
    for path, shell in _COMPLETIONS.items():
        script = shell(program, {}, "liqodctl", "_LIQODCTL_COMPLETE").source()
        entries.append(Entry(path, f"{script}\n".encode(), optional=True))
    if prefix not in ("/usr", "/usr/local"):
        entries += [Entry(f"/usr/local/bin/{name}", target=f"{prefix}/bin/{name}", optional=True) for name in _PROGRAMS]
    return entries
