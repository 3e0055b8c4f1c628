"""Chooses the network interfaces for mDNS: the host's real ones, not those of containers and tunnels."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import ifaddr

from liqod.discovery.candidate import Network

# linux/if.h, linux/sockios.h
IFF_UP: Final = 0x1
IFF_LOOPBACK: Final = 0x8
IFF_POINTOPOINT: Final = 0x10
IFF_MULTICAST: Final = 0x1000
_SIOCGIFFLAGS: Final = 0x8913

CONTAINER_NAMES: Final = re.compile(
    r"(docker|podman|cni|veth|cali|cilium|lxc|flannel|kube-|virbr|vnet|vxlan|geneve|weave|antrea|ovs|ovn|dummy|nodelocal"
    r"|tun|tap|wg|tailscale|zt|utun|liqo)[-\w.]*|br-[0-9a-f]{12}|k?ipvs0?"
)
"""Names of the devices of container runtimes, CNI plugins, virtual machines and tunnels."""


@attrs.frozen
class Interface:
    """An interface as the kernel shows it now: flags of ``netdevice(7)``, addresses with their networks."""

    name: str
    index: int
    flags: int
    addresses: tuple[ipaddress.IPv4Interface | ipaddress.IPv6Interface, ...]


@attrs.frozen
class InterfaceChoice:
    """The interfaces to use: what to bind to, what to announce, and which networks are on-link."""

    listen: tuple[str | int, ...]
    """IPv4 addresses, and indexes of interfaces with IPv6: the form that zeroconf takes."""
    addresses: tuple[str, ...]
    """Addresses at which we can be dialled; no link-local IPv4, no loopback unless it is configured."""
    networks: tuple[Network, ...]
    loopback: bool


def observe() -> tuple[Interface, ...]:
    """Return the interfaces of this process's network namespace, sorted by name; one ioctl for each."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for adapter in ifaddr.get_adapters():
            name = adapter.name
            try:
                # struct ifreq (netdevice(7)): a name of IFNAMSIZ = 16 bytes with its NUL, then the flags as a short.
                # Python copies the argument into a buffer of 1024 bytes, so a shorter one than the C structure is safe.
                answer = fcntl.ioctl(probe, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode()[:15], 0))
            except OSError:
                continue  # gone since it was listed, or an alias without flags of its own
            flags = struct.unpack("16sH14x", answer)[1]
            found.append(Interface(name, adapter.index or 0, flags, _addresses(adapter.ips)))
    return tuple(sorted(found, key=lambda interface: interface.name))


def choose(interfaces: Iterable[Interface], wanted: Sequence[str]) -> InterfaceChoice:
    """Return what to use: the wanted names and addresses; without any, all that are up, multicast and real."""
    listen: list[str | int] = []
    addresses: list[str] = []
    networks: list[Network] = []
    loopback = False
    for interface in interfaces:
        chosen = [
            address
            for address in interface.addresses
            if _is_chosen(interface, address, wanted) and interface.flags & IFF_UP
        ]
        if not chosen:
            continue
        loopback = loopback or bool(interface.flags & IFF_LOOPBACK)
        for address in sorted(chosen, key=lambda one: (one.version, one.ip.packed)):
            networks.append(address.network)
            if isinstance(address, ipaddress.IPv4Interface):
                listen.append(str(address.ip))
            elif interface.index not in listen:
                listen.append(interface.index)
            if not (address.version == 4 and address.ip.is_link_local):
                addresses.append(str(ipaddress.ip_address(address.ip.packed)))
    return InterfaceChoice(tuple(listen), tuple(dict.fromkeys(addresses)), tuple(dict.fromkeys(networks)), loopback)


def _is_chosen(
    interface: Interface, address: ipaddress.IPv4Interface | ipaddress.IPv6Interface, wanted: Sequence[str]
) -> bool:
    if wanted:
        return interface.name in wanted or str(ipaddress.ip_address(address.ip.packed)) in wanted
    return (
        interface.flags & (IFF_LOOPBACK | IFF_POINTOPOINT | IFF_MULTICAST) == IFF_MULTICAST
        and CONTAINER_NAMES.fullmatch(interface.name) is None
    )


def _addresses(ips: Iterable[ifaddr.IP]) -> tuple[ipaddress.IPv4Interface | ipaddress.IPv6Interface, ...]:
    found = []
    for ip in ips:
        text = ip.ip if isinstance(ip.ip, str) else ip.ip[0]
        found.append(ipaddress.ip_interface(f"{text.partition('%')[0]}/{ip.network_prefix}"))
    return tuple(found)
