"""WireGuard in the words of wg(8): what ``wg show DEV dump`` says, and what changes one peer alone. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from liqod.fabric.kernel.model import Desired, Device, Link, Step, Tunnel, TunnelPeer
from liqod.model.records.network import Network

USERSPACE = "tun"
"""The kind of link that the device is where wireguard-go made it."""
ALIVE = 180
"""Seconds after a handshake in which a session is in use: its peer is where its packets come from."""


def parse_dump(text: str) -> Tunnel | None:
    """Return the device that ``wg show DEV dump`` describes; None for an empty answer."""
    lines = text.splitlines()
    if not lines:
        return None
    _, public_key, port, _ = lines[0].split("\t")
    peers = {}
    for line in lines[1:]:
        key, _, endpoint, allowed, handshake, received, sent, _ = line.split("\t")
        peers[key] = TunnelPeer(
            "" if endpoint == "(none)" else endpoint,
            frozenset(ipaddress.ip_network(one) for one in allowed.split(",") if one != "(none)"),
            int(handshake),
            int(received),
            int(sent),
        )
    return Tunnel("" if public_key == "(none)" else public_key, int(port), peers)


def interface_steps(desired: Desired, tunnel: Tunnel | None) -> Iterator[Step]:
    """Yield what gives the device its key and port; a device that has them is left alone."""
    if tunnel is None or tunnel.public_key != desired.public_key:
        argv = ("wg", "set", desired.device, "private-key", "/dev/stdin")
        yield Step(argv, desired.private_key + "\n", secret=True)
    if tunnel is None or tunnel.listen_port != desired.listen_port:
        yield Step(("wg", "set", desired.device, "listen-port", str(desired.listen_port)))


def peer_steps(desired: Desired, tunnel: Tunnel | None, now: float) -> Iterator[Step]:
    """Yield one command for all peers that are new or differ; the others are not mentioned, nothing disturbs them."""
    changed = [_section(desired, link, tunnel, now) for link in desired.links]
    known = tunnel.peers if tunnel is not None else {}
    changed += [_next_section(link) for link in desired.links if link.next_key and link.next_key not in known]
    text = "\n".join(section for section in changed if section)
    if text:
        yield Step(("wg", "addconf", desired.device, "/dev/stdin"), text)


def rebind_steps(desired: Desired, device: Device | None, tunnel: Tunnel | None) -> Iterator[Step]:
    """Yield what makes wireguard-go choose the address anew from which it sends, after the host lost one.

    It goes on sending from the address at which it last heard from a peer, and the kernel refuses that, until it has
    heard nothing for 15 seconds. Naming the endpoint that it has already makes it forget the source, and nothing else.
    """
    if not desired.moved or device is None or device.kind != USERSPACE or tunnel is None:
        return
    known = {key: peer.endpoint for key, peer in sorted(tunnel.peers.items()) if peer.endpoint}
    words = [word for key, endpoint in known.items() for word in ("peer", key, "endpoint", endpoint)]
    if words:
        yield Step(("wg", "set", desired.device, *words))


def removal_steps(desired: Desired, tunnel: Tunnel | None) -> Iterator[Step]:
    """Yield the removal of peers that nobody wants, one by one."""
    wanted = {key for link in desired.links for key in (link.public_key, link.next_key)}
    for key in sorted(tunnel.peers if tunnel is not None else ()):
        if key not in wanted:
            yield Step(("wg", "set", desired.device, "peer", key, "remove"))


def host_port(address: str, port: int) -> str:
    """Return an endpoint as wg writes it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _next_section(link: Link) -> str:
    """A peer's next key, by which nothing is sent yet: no network, no endpoint, nothing that keeps it alive."""
    return f"[Peer]\nPublicKey = {link.next_key}\n"


def _section(desired: Desired, link: Link, tunnel: Tunnel | None, now: float) -> str:
    known = tunnel.peers.get(link.public_key) if tunnel is not None else None
    wanted: frozenset[Network] = frozenset(link.remote)
    # A peer whose packets arrive is where they come from: what the kernel learned is newer than what we were told.
    settled = known is not None and (now - known.handshake < ALIVE or not link.endpoint)
    if known is not None and known.allowed == wanted and (settled or known.endpoint == link.endpoint):
        return ""
    lines = ["[Peer]", f"PublicKey = {link.public_key}"]
    if link.endpoint and not settled:
        lines.append(f"Endpoint = {link.endpoint}")
    lines.append(f"AllowedIPs = {', '.join(map(str, link.remote))}")
    lines.append(f"PersistentKeepalive = {desired.keepalive}")
    return "\n".join(lines) + "\n"
