"""A hostile host on the LAN: announces many invented clusters as fast as it can. Arguments: own address, how many."""

from __future__ import annotations

import socket
import sys

from zeroconf import const
from zeroconf._dns import DNSAddress, DNSPointer, DNSService, DNSText
from zeroconf._protocol.outgoing import DNSOutgoing

TYPE = "_liqod._tcp.local."


def packet(number: int, *, pointer_only: bool = False) -> bytes:
    """Return a well-formed announcement of a cluster that does not exist; without its address it has to be asked."""
    name, server = f"fake-{number}.{TYPE}", f"fake-{number}.local."
    text = b"".join(bytes((len(entry),)) + entry for entry in (b"proto=1", b"id=fake-%d" % number, b"name=fake"))
    out = DNSOutgoing(const._FLAGS_QR_RESPONSE | const._FLAGS_AA)
    unique = const._CLASS_IN | const._CLASS_UNIQUE
    address = socket.inet_aton(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
    out.add_answer_at_time(DNSPointer(TYPE, const._TYPE_PTR, const._CLASS_IN, 4500, name), 0)
    if pointer_only:
        return out.packets()[0]
    out.add_answer_at_time(DNSService(name, const._TYPE_SRV, unique, 120, 0, 0, 5872, server), 0)
    out.add_answer_at_time(DNSText(name, const._TYPE_TXT, unique, 4500, text), 0)
    out.add_answer_at_time(DNSAddress(server, const._TYPE_A, unique, 120, address), 0)
    return out.packets()[0]


def main(own: str, count: str) -> None:
    """Send the flood."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        sock.bind((own, 5353))
        for number in range(1, int(count) + 1):
            sock.sendto(packet(number), ("224.0.0.251", 5353))


if __name__ == "__main__":
    main(*sys.argv[1:])
