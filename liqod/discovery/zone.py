"""Resource records for a DNS zone in which others find this cluster by DNS-SD (RFC 6763). Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from liqod.discovery.candidate import Announcement, instance_label, to_txt

SERVICE = "_liqod._tcp"


def zone_lines(me: Announcement, domain: str, host: str, addresses: Iterable[str], ttl: int) -> list[str]:
    """Return resource records in master file format; ``host`` is the name that ``addresses`` are published under.

    Without addresses the host is expected to have its own records already.
    """
    domain = domain.strip(".")
    service = f"{SERVICE}.{domain}."
    instance = f"{instance_label(me)}.{service}"
    target = f"{host.strip('.')}."
    texts = " ".join(f'"{key}={value}"' for key, value in to_txt(me).items() if value)
    lines = [
        f"{service} {ttl} IN PTR {instance}",
        f"{instance} {ttl} IN SRV 0 0 {me.port} {target}",
        f"{instance} {ttl} IN TXT {texts}",
    ]
    for text in addresses:
        address = ipaddress.ip_address(text)
        lines.append(f"{target} {ttl} IN {'A' if address.version == 4 else 'AAAA'} {address}")
    return lines
