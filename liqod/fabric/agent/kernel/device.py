"""Creates the tunnel device, with the kernel's WireGuard, or wireguard-go where the kernel has none.

wireguard-go is a process that must outlive the daemon: it gets its own session, and under systemd a unit
(systemd/liqod-tunnel@.service, or liqod-network-tunnel@.service where the agent is a process of its own), because
systemd kills the processes of a stopped unit (control group, systemd.kill(5)). Where the agent is a pod, it has a pod
of its own (``userspace``).
"""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path
from typing import Final

from liqod.fabric.agent.kernel import userspace
from liqod.fabric.agent.kernel.host import Kernel, KernelError, ProgramOutput

PROBE_DEVICE: Final = "liqod-probe"
UNIT: Final = "liqod-tunnel"
UNITS: Final = ("liqod-network-tunnel", UNIT)
"""The tunnel's unit for each user that changes the network; the socket of wireguard-go is for the same user alone."""


class NotServed(KernelError):
    """Nobody serves the tunnel's device, which this process cannot make; the pod that does may begin at once."""


async def try_kind(kernel: Kernel, *kind: str) -> ProgramOutput:
    """Make a device of a kind, with its options, and remove it; return what came of making it."""
    remove = ("ip", "link", "del", "dev", PROBE_DEVICE)
    # A process that was killed in the middle of this left the device, which would be taken for a refusal (EEXIST).
    await kernel.run(remove)
    made = await kernel.run(("ip", "link", "add", "dev", PROBE_DEVICE, "type", *kind))
    await kernel.run(remove)
    return made


async def creation(kernel: Kernel, device: str, *, under_systemd: bool) -> tuple[str, ...]:
    """Return the command that creates the device; raises KernelError where none can, NotServed where another has to."""
    made = await try_kind(kernel, "wireguard")
    if made.code == 0:
        return ("ip", "link", "add", "dev", device, "type", "wireguard")
    if "Operation not permitted" in made.err:
        raise KernelError("making network devices is not permitted: the daemon needs the capability CAP_NET_ADMIN")
    if userspace.is_served(device):
        return userspace.start_command(device)
    if shutil.which("wireguard-go", path="/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin") is None:
        raise KernelError("the kernel has no WireGuard and wireguard-go is not installed; install one of them")
    if under_systemd and (unit := await _installed_unit(kernel, device)):
        # The device is not there. Where the unit runs all the same its process hangs: to start it would change nothing.
        return ("systemctl", "restart", unit)
    if under_systemd and shutil.which("systemd-run") is not None:
        # The unit is not installed: a transient one instead, which needs root.
        options = ("--quiet", "--collect", f"--unit={UNIT}-{device}", "--property=Type=forking")
        return ("systemd-run", *options, "wireguard-go", device)
    if shutil.which("setsid") is None:
        raise NotServed(
            "the kernel has no WireGuard: beside an agent in a pod wireguard-go runs in a pod of its own, which "
            "network.userspace of the chart makes"
        )
    # wireguard-go forks: the parent exits when the device exists, the child keeps none of our pipes open.
    return ("setsid", "--fork", "wireguard-go", device)


async def _installed_unit(kernel: Kernel, device: str) -> str:
    """Return the unit that runs wireguard-go as the user of this process, or an empty text where none is installed.

    Raises KernelError where one is installed for another user alone, whose socket this one could not open.
    """
    own = own_user()
    others: list[str] = []
    for name in UNITS:
        unit = f"{name}@{device}.service"
        shown = await kernel.run(("systemctl", "show", "--property=LoadState,User", unit))
        found = {key: value for key, _, value in (line.partition("=") for line in shown.out.splitlines())}
        if shown.code or found.get("LoadState") != "loaded":
            continue
        user = found.get("User") or "root"
        if own in ("root", user):
            return unit
        others.append(f"{unit} runs as {user}")
    if others:
        raise KernelError(
            f"{', '.join(others)}, whose socket the user {own} of this process may not open; "
            "`liqodctl install --host` installs the unit for it"
        )
    return ""


def own_user() -> str:
    """Return the name of the user that this process runs as, or the number of one without a name."""
    user = os.geteuid()
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def is_under_systemd(environ: dict[str, str]) -> bool:
    """Return whether this process was started by systemd as a service."""
    return "INVOCATION_ID" in environ and Path("/run/systemd/system").is_dir()


def implementation(kind: str) -> str:
    """Return what implements a device of a kind (``linkinfo.info_kind`` of ip(8))."""
    return {"wireguard": "kernel", "tun": "wireguard-go"}.get(kind, kind)
