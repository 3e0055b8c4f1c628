"""Ports of this host for tests: never those by default, on which a liqod may run here or another test listen."""

from __future__ import annotations

import socket


def free_ports(count: int, kind: int = socket.SOCK_STREAM) -> list[int]:
    """Return ports that were free on loopback a moment ago, of TCP, or of UDP with SOCK_DGRAM."""
    sockets = [socket.socket(socket.AF_INET, kind) for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
