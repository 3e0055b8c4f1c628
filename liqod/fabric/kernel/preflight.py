"""What a host must offer to the network fabric: programs, permission, and what its kernel can do.

Nothing is changed by looking: rules are only checked, and the device that is tried is removed at once.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import attrs

from liqod.config import schema
from liqod.fabric.kernel import device as devices
from liqod.fabric.kernel.host import TOOLS, Kernel, KernelError

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
class Trait:
    """One thing that was looked at; ``hint`` is empty where all is well."""

    text: str
    hint: str = ""


async def traits(kernel: Kernel, settings: schema.Network, *, under_systemd: bool, capable: bool) -> list[Trait]:
    """Return what there is and what is missing; ``capable`` tells whether this process may change the network."""
    node = settings.role == "node"
    found = [_tool(name, package) for name, package in TOOLS.items() if not (node and name in ("wg", "conntrack"))]
    if any(trait.hint for trait in found):
        return found
    if not capable:
        why = "this process may not change the network: what the kernel can do is not known"
        hint = "run it as root; the daemon needs the capability CAP_NET_ADMIN, which systemd/liqod.service gives it"
        return [*found, Trait(why, hint)]
    if not node:
        found.append(await _tunnel(kernel, settings.device, under_systemd=under_systemd))
    found.append(await _overlay(kernel))
    found.append(await _nat(kernel))
    forwarding = await kernel.run(("sysctl", "-n", "net.ipv4.ip_forward"))
    if forwarding.out.strip() == "1":
        found.append(Trait("the kernel forwards packets"))
    else:
        found.append(Trait("the kernel forwards no packets", "set net.ipv4.ip_forward = 1, as Kubernetes needs it too"))
    return found


def is_capable(status: str = "") -> bool:
    """Tell whether a process, by its /proc/PID/status, may change the network; by default this one."""
    text = status or Path("/proc/self/status").read_text()
    mask = next((line.split()[1] for line in text.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(mask, 16) >> NET_ADMIN & 1)


def _tool(name: str, package: str) -> Trait:
    if shutil.which(name, path=PATHS) is not None:
        return Trait(f"{name} is there")
    return Trait(f"the program {name} is missing", f"install the package {package}")


async def _tunnel(kernel: Kernel, device: str, *, under_systemd: bool) -> Trait:
    try:
        made = await devices.creation(kernel, device, under_systemd=under_systemd)
    except KernelError as error:
        return Trait(str(error), "modprobe wireguard, or install the package wireguard-go")
    own = made[-1] == "wireguard"
    return Trait("the kernel knows WireGuard" if own else "the kernel does not know WireGuard: wireguard-go is used")


async def _overlay(kernel: Kernel) -> Trait:
    name = devices.PROBE_DEVICE
    made = await kernel.run(("ip", "link", "add", "dev", name, "type", "vxlan", "id", "1", "dstport", "5876"))
    if made.code:
        return Trait("the kernel does not know VXLAN, which clusters of several nodes need", "modprobe vxlan")
    await kernel.run(("ip", "link", "del", "dev", name))
    return Trait("the kernel knows VXLAN")


async def _nat(kernel: Kernel) -> Trait:
    checked = await kernel.run(("nft", "--check", "-f", "-"), _NAT)
    if checked.code:
        said = (checked.err.strip().splitlines() or ["it did not say why"])[0]
        hint = "the kernel needs nf_tables with nat (Linux 5.8 or newer: modprobe nft_nat), and nftables 0.9.5 or newer"
        return Trait(f"addresses cannot be translated by prefix: {said}", hint)
    return Trait("nftables translates addresses by prefix")
