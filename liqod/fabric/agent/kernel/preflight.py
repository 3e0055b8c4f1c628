"""Checks the requirements of the network on a host: programs, the capability, and kernel features.

Nothing is changed by it: rules are only checked (``nft --check``), and the device that is tried is removed at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from liqod.config import schema
from liqod.fabric.agent.kernel import device as devices
from liqod.fabric.agent.kernel.host import TOOLS, Kernel, KernelError, has_six

NET_ADMIN: Final = 12
"""CAP_NET_ADMIN, from linux/capability.h."""
PATHS: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAT: Final = """\
table inet liqod_try {
	chain there { type nat hook prerouting priority dstnat; ip daddr 192.0.2.0/25 dnat ip prefix to 198.51.100.0/25; }
	chain back { type nat hook postrouting priority srcnat; ip saddr 192.0.2.0/25 snat ip prefix to 198.51.100.0/25; }
	chain clamp { type filter hook forward priority 0; tcp flags syn / syn,rst tcp option maxseg size set rt mtu; }
}
"""


@attrs.frozen
class HostCheck:
    """One thing that was checked; ``hint`` is empty where it is as it should be.

    ``may_come``: what is missing may come by itself soon after this process began.
    """

    text: str
    hint: str = ""
    may_come: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class Lacks:
    """What a host lacks to be a gateway, in one sentence with what to do; empty where it lacks nothing.

    ``may_come``: all of it may come by itself soon after this process began.
    """

    sentence: str = ""
    may_come: bool = False


INCAPABLE: Final = HostCheck(
    "this process may not change the network: what the kernel can do is not known",
    "run it as root; the daemon needs the capability CAP_NET_ADMIN, which systemd/liqod.service gives it",
)
LONGEST: Final = 900
"""Characters that a record has room for."""


def find_program(name: str) -> str | None:
    """Return the path of a program, as the daemon finds it; None where it is not installed."""
    return shutil.which(name, path=PATHS)


def is_capable(status: str = "") -> bool:
    """Return whether a process, by its /proc/PID/status, may change the network; by default this one."""
    text = status or Path("/proc/self/status").read_text()
    mask = next((line.split()[1] for line in text.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(mask, 16) >> NET_ADMIN & 1)


@attrs.frozen(kw_only=True)
class Means:
    """What a process has for changing its host's network; by default this process on this host."""

    find: Callable[[str], str | None] = find_program
    capable: Callable[[], bool] = is_capable

    def missing(self) -> list[HostCheck]:
        """Return the programs and the right that a gateway lacks."""
        found = [_tool(name, package, self.find) for name, package in TOOLS.items()]
        return [*(one for one in found if one.hint), *([] if self.capable() else [INCAPABLE])]


async def find_lacks(kernel: Kernel, settings: schema.NetworkSettings, means: Means, *, under_systemd: bool) -> Lacks:
    """Return what a host lacks to be a gateway."""
    found = await check_host(kernel, settings, means, under_systemd=under_systemd)
    lacks = [one for one in found if one.hint]
    sentence = "; ".join(f"{one.text}: {one.hint}" for one in lacks)[:LONGEST]
    return Lacks(sentence, bool(lacks) and all(one.may_come for one in lacks))


async def check_host(
    kernel: Kernel, settings: schema.NetworkSettings, means: Means, *, under_systemd: bool
) -> list[HostCheck]:
    """Return what there is and what is missing."""
    node = settings.role == "node"
    programs = [name for name in TOOLS if not (node and name in ("wg", "conntrack"))]
    found = [_tool(name, TOOLS[name], means.find) for name in programs]
    if any(check.hint for check in found):
        return found
    if not means.capable():
        return [*found, INCAPABLE]
    if not node:
        found.append(await _tunnel(kernel, settings.device, under_systemd=under_systemd))
    found.append(await _overlay(kernel))
    found.append(await _nat(kernel))
    forwarding = await kernel.run(("sysctl", "-n", "net.ipv4.ip_forward"))
    if forwarding.out.strip() == "1":
        found.append(HostCheck("the kernel forwards packets"))
    else:
        found.append(
            HostCheck("the kernel forwards no packets", "set net.ipv4.ip_forward = 1, as Kubernetes needs it too")
        )
    if not await has_six(kernel):
        found.append(HostCheck("IPv6 is disabled on this host: peers' networks of IPv6 are left out"))
    return found


def _tool(name: str, package: str, find: Callable[[str], str | None]) -> HostCheck:
    if find(name) is not None:
        return HostCheck(f"{name} is there")
    return HostCheck(f"the program {name} is missing", f"install the package {package}")


async def _tunnel(kernel: Kernel, device: str, *, under_systemd: bool) -> HostCheck:
    try:
        made = await devices.creation(kernel, device, under_systemd=under_systemd)
    except KernelError as error:
        hint = "modprobe wireguard, or install the package wireguard-go"
        return HostCheck(str(error), hint, may_come=isinstance(error, devices.NotServed))
    own = made[-1] == "wireguard"
    return HostCheck(
        "the kernel knows WireGuard" if own else "the kernel does not know WireGuard: wireguard-go is used"
    )


async def _overlay(kernel: Kernel) -> HostCheck:
    if (await devices.try_kind(kernel, "vxlan", "id", "1", "dstport", "5876")).code:
        return HostCheck("the kernel does not know VXLAN, which clusters of several nodes need", "modprobe vxlan")
    return HostCheck("the kernel knows VXLAN")


async def _nat(kernel: Kernel) -> HostCheck:
    checked = await kernel.run(("nft", "--check", "-f", "-"), _NAT)
    if checked.code:
        message = (checked.err.strip().splitlines() or ["it did not say why"])[0]
        hint = "the kernel needs nf_tables with nat (Linux 5.8 or newer: modprobe nft_nat), and nftables 0.9.5 or newer"
        return HostCheck(f"addresses cannot be translated by prefix: {message}", hint)
    return HostCheck("nftables translates addresses by prefix")
