"""WireGuard by wg(8): parses ``wg show DEV dump``, and plans changes that touch one peer alone. Pure.

Cryptokey routing (WireGuard whitepaper, section 2): a packet is sent to the peer whose AllowedIPs hold its destination,
and one that was received is dropped unless its source lies in the AllowedIPs of the key that it was decrypted with. So
a network has one peer at a time; naming it for a second one takes it from the first.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from liqod.fabric.agent.kernel.model import DesiredKernel, HostCommand, NetworkInterface, TunnelPeer, WireGuardDevice
from liqod.fabric.state.network import Link
from liqod.model.records.network import SESSION_LIFETIME, Network

USERSPACE = "tun"
"""The kind of link that a device of wireguard-go is."""


def parse_dump(text: str) -> WireGuardDevice | None:
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
    return WireGuardDevice("" if public_key == "(none)" else public_key, int(port), peers)


def interface_steps(desired: DesiredKernel, tunnel: WireGuardDevice | None) -> Iterator[HostCommand]:
    """Yield what sets the device's key and port, where they differ."""
    if tunnel is None or tunnel.public_key != desired.public_key:
        argv = ("wg", "set", desired.device, "private-key", "/dev/stdin")
        yield HostCommand(argv, desired.private_key + "\n", secret=True)
    if tunnel is None or tunnel.listen_port != desired.listen_port:
        yield HostCommand(("wg", "set", desired.device, "listen-port", str(desired.listen_port)))


def peer_steps(desired: DesiredKernel, tunnel: WireGuardDevice | None, now: float) -> Iterator[HostCommand]:
    """Yield one command for all peers that are new or differ; sessions with the others go on undisturbed."""
    changed = [_section(desired, link, tunnel, now) for link in desired.links]
    known = tunnel.peers if tunnel is not None else {}
    changed += [_next_section(link) for link in desired.links if link.next_key and link.next_key not in known]
    text = "\n".join(section for section in changed if section)
    if text:
        yield HostCommand(("wg", "addconf", desired.device, "/dev/stdin"), text)


def rebind_steps(
    desired: DesiredKernel, device: NetworkInterface | None, tunnel: WireGuardDevice | None
) -> Iterator[HostCommand]:
    """Yield what makes wireguard-go choose another source address, after the host lost the one that it sent from.

    wireguard-go caches the local address at which it last received from a peer, and the kernel refuses to send from one
    that is gone; by itself it drops that after 15 seconds without a packet. Setting the endpoint that it has already
    clears the cached source, and nothing else.
    """
    if not desired.moved or device is None or device.kind != USERSPACE or tunnel is None:
        return
    known = {key: peer.endpoint for key, peer in sorted(tunnel.peers.items()) if peer.endpoint}
    words = [word for key, endpoint in known.items() for word in ("peer", key, "endpoint", endpoint)]
    if words:
        yield HostCommand(("wg", "set", desired.device, *words))


def removal_steps(desired: DesiredKernel, tunnel: WireGuardDevice | None) -> Iterator[HostCommand]:
    """Yield the removal of stale peers, one by one."""
    wanted = {key for link in desired.links for key in (link.public_key, link.next_key)}
    for key in sorted(tunnel.peers if tunnel is not None else ()):
        if key not in wanted:
            yield HostCommand(("wg", "set", desired.device, "peer", key, "remove"))


def _next_section(link: Link) -> str:
    """Return the section of a peer's next key: no AllowedIPs, endpoint or keepalive, so nothing is sent by it."""
    return f"[Peer]\nPublicKey = {link.next_key}\n"


def _section(desired: DesiredKernel, link: Link, tunnel: WireGuardDevice | None, now: float) -> str:
    known = tunnel.peers.get(link.public_key) if tunnel is not None else None
    wanted: frozenset[Network] = frozenset(link.remote)
    # WireGuard roams: it sends to where the latest authenticated packet came from (whitepaper, section 2.1), which is
    # newer than the endpoint that the peer announced.
    at = known.handshake_at if known is not None else None
    roamed = known is not None and ((at is not None and now - at < SESSION_LIFETIME) or not link.endpoint)
    if known is not None and known.allowed == wanted and (roamed or known.endpoint == link.endpoint):
        return ""
    lines = ["[Peer]", f"PublicKey = {link.public_key}"]
    if link.endpoint and not roamed:
        lines.append(f"Endpoint = {link.endpoint}")
    lines.append(f"AllowedIPs = {', '.join(map(str, link.remote))}")
    # Keepalives hold the UDP mapping of a NAT or a stateful firewall open (wg(8): 25 s suits most of them).
    lines.append(f"PersistentKeepalive = {desired.keepalive}")
    return "\n".join(lines) + "\n"
