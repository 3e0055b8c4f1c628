"""What an installation on a host consists of."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
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
ROLES: Final = {
    "all": "liqod.service",
    "control": "liqod-control.service",
    "network": "liqod-network.service",
    "names": "liqod-names.service",
}
"""The unit of a process with each role (``[daemon] role``)."""
_USER_OF_ROLE: Final = {"all": "liqod", "control": "liqod", "network": "liqod-network", "names": "liqod-names"}
_TUNNELS: Final = {"all": "liqod-tunnel@.service", "network": "liqod-network-tunnel@.service"}
"""The tunnel's unit of each role that changes the network; the socket of wireguard-go is for the same user alone."""
KUBECONFIGS: Final = {
    "all": "/etc/liqod/kubeconfig",
    "control": "/etc/liqod/kubeconfig",
    "network": "/etc/liqod/network.kubeconfig",
    "names": "/etc/liqod/names.kubeconfig",
}
"""The kubeconfig that each of these units names."""
TOKEN_FILES: Final = {
    "/etc/liqod/kubeconfig": "../../var/lib/liqod/home.token",
    "/etc/liqod/network.kubeconfig": "../../var/lib/liqod-network/home.token",
    "/etc/liqod/names.kubeconfig": "../../var/lib/liqod-names/home.token",
}
"""The newest token that goes with each of these, in the state directory of its unit, which alone it may write.

Relative, since a kubeconfig may lie in the directory of another host's root.
"""
OWNED: Final = {
    user: (f"/var/lib/{user}", *(path for path, reader in READERS.items() if reader == user)) for user in USERS
}
"""What each user's process has on its host: the state directory of its unit, and its kubeconfig."""
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
class HostFile:
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


def users_of(roles: Collection[str]) -> list[str]:
    """Return the users that processes with some roles run as."""
    users = {_USER_OF_ROLE[role] for role in roles}
    return [user for user in USERS if user in users]


def wanted(prefix: str, program: click.Command, roles: Collection[str], *, polkit: bool) -> Sequence[HostFile]:
    """Return the entries for processes with some roles, in an environment at ``prefix``.

    ``program`` is the command that completions are for.
    """
    shipped = files("liqod.cli.setup.host") / "files"
    tunnels = {_TUNNELS[role] for role in roles if role in _TUNNELS}
    units = {ROLES[role] for role in roles} | tunnels
    users = users_of(roles)
    entries = [HostFile(CONFIGURATION, (shipped / "liqod.toml").read_bytes(), configuration=True)]
    for unit in sorted((shipped / "systemd").iterdir(), key=lambda file: file.name):
        content = unit.read_bytes().replace(f"{SHIPPED_PREFIX}/".encode(), f"{prefix}/".encode())
        if unit.name in units:
            entries.append(HostFile(f"{UNITS}/{unit.name}", content))
        elif unit.name.endswith(".rules") and polkit and tunnels:
            entries.append(HostFile(f"{POLKIT}/rules.d/{unit.name}", content))
        elif unit.name.endswith(".sysusers"):
            entries.append(HostFile(SYSUSERS, _only(content, users)))
    for path, shell in _COMPLETIONS.items():
        script = shell(program, {}, "liqodctl", "_LIQODCTL_COMPLETE").source()
        entries.append(HostFile(path, f"{script}\n".encode(), optional=True))
    if prefix not in ("/usr", "/usr/local"):
        entries += [
            HostFile(f"/usr/local/bin/{name}", target=f"{prefix}/bin/{name}", optional=True) for name in _PROGRAMS
        ]
    return entries


def _only(sysusers: bytes, users: Collection[str]) -> bytes:
    """Return a file of sysusers.d(5) with its comments, and of its users only some."""
    lines = sysusers.decode().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("u ") or line.split()[1] in users).encode()
