"""Candidates: addresses at which a peer may be dialled; they are hints and establish no trust.

Also encodes and decodes the TXT record with a cluster's claims (keys ``id``, ``name``, ``fp``, ``proto``), and ranks
its addresses for dialling.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from liqod.model.addresses import parse_ip
from liqod.model.ids import is_dns_label, parse_fingerprint

PROTOCOL: Final = 1
"""The major version of the peer protocol that is spoken here; clusters whose record leaves it out are not dialled."""
MAX_TXT: Final = 1300
"""Bytes of a TXT record, as RFC 6763 (6.2) advises: what fits one packet."""
MAX_ADDRESSES: Final = 8
"""Addresses kept of one announcement."""
MAX_NAME: Final = 63
"""Maximum octets of a DNS label (RFC 1035, section 2.3.4)."""

MDNS: Final = "mDNS"
MANUAL: Final = "Manual"
DNS_SD: Final = "DNS-SD"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_PROTOCOLS = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@attrs.frozen
class Candidate:
    """An address to dial, and the source's claims about the peer's identity (empty: none).

    ``stale``: the source no longer shows it; it is dialled after the others.
    """

    host: str
    port: int
    source: str
    cluster_id: str = ""
    cluster_name: str = ""
    fingerprint: str = attrs.field(default="", kw_only=True)
    stale: bool = attrs.field(default=False, kw_only=True)


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@attrs.frozen
class Announcement:
    """The announcement of this cluster. ``addresses`` empty: those of the chosen interfaces.

    ``port`` 0 announces nothing: without a listener this cluster only browses.
    """

    cluster_id: str
    cluster_name: str
    fingerprint: str
    port: int
    addresses: tuple[str, ...] = attrs.field(default=(), converter=_texts)


@attrs.frozen
class TxtRecord:
    """The content of a TXT record, validated."""

    cluster_id: str
    cluster_name: str
    fingerprint: str


class BadRecord(ValueError):
    """A record that no release of liqod sends; the message has what is wrong with it."""


def to_txt(me: Announcement) -> dict[str, str]:
    """Return the TXT record's entries."""
    return {"id": me.cluster_id, "name": me.cluster_name, "fp": me.fingerprint, "proto": str(PROTOCOL)}


def from_txt(properties: Mapping[bytes, bytes | None]) -> TxtRecord:
    """Parse a TXT record; raise BadRecord. Unknown keys are ignored (RFC 6763, 6.4)."""
    size = sum(len(key) + len(value or b"") + 2 for key, value in properties.items())
    if size > MAX_TXT:
        raise BadRecord(f"the record has {size} bytes; {MAX_TXT} are allowed")
    majors = _PROTOCOLS.fullmatch(_text(properties, b"proto"))
    if majors is None or not int(majors[1]) <= PROTOCOL <= int(majors[2] or majors[1]):
        raise BadRecord(f"the record's protocol is not {PROTOCOL}, nor a range such as 1-2 with {PROTOCOL} in it")
    cluster_id = _text(properties, b"id")
    if not is_dns_label(cluster_id):
        raise BadRecord("the record's id is not a DNS-1123 label")
    name = _text(properties, b"name")
    if name and (len(name) > MAX_NAME or _NAME.fullmatch(name) is None):
        raise BadRecord("the record's name is not a DNS-1123 name of at most 63 characters")
    fingerprint = _text(properties, b"fp")
    if fingerprint:
        try:
            parse_fingerprint(fingerprint)
        except ValueError as error:
            raise BadRecord("the record's fp is not a fingerprint") from error
    return TxtRecord(cluster_id, name, fingerprint)


def instance_label(me: Announcement) -> str:
    """Return the instance name of this cluster (RFC 6763, 4.1.1): readable, and unique even where names are equal."""
    suffix = hashlib.sha256(me.cluster_id.encode()).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9-]+", "-", me.cluster_name.lower()).strip("-")
    return f"{readable[: MAX_NAME - len(suffix) - 1].rstrip('-') or 'cluster'}-{suffix}"


def candidates_of(
    text_record: TxtRecord,
    addresses: Iterable[str],
    port: int,
    *,
    local: Iterable[Network],
    loopback: bool,
    source: str = MDNS,
) -> tuple[Candidate, ...]:
    """Return the candidates of one announcement, best first: at most eight, without what cannot be dialled.

    ``local`` holds the on-link networks; ``loopback`` is True if loopback is among the chosen interfaces.
    """
    if not 0 < port < 65536:
        return ()
    networks = tuple(local)
    ranked = {}
    for text in addresses:
        rank = _rank(text, networks, loopback)
        if rank is not None:
            ranked[text] = rank
    best = sorted(ranked, key=lambda text: (ranked[text], text))[:MAX_ADDRESSES]
    return tuple(
        Candidate(
            host, port, source, text_record.cluster_id, text_record.cluster_name, fingerprint=text_record.fingerprint
        )
        for host in best
    )


def _rank(text: str, local: tuple[Network, ...], loopback: bool) -> int | None:
    """Return the rank of an address, the lowest is dialled first; None when it cannot be a peer's."""
    address = parse_ip(text)
    if address is None:
        return None
    if address.is_loopback:
        return 0 if loopback else None
    if address.is_unspecified or address.is_multicast or address.is_reserved:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return 1 if any(address in network for network in local if network.version == 4) else 2
    if address.ipv4_mapped is not None:
        return None
    if address.is_link_local:
        return 5 if address.scope_id else None
    plain = ipaddress.IPv6Address(int(address))
    return 3 if any(plain in network for network in local if network.version == 6) else 4


def _text(properties: Mapping[bytes, bytes | None], key: bytes) -> str:
    value = properties.get(key) or b""
    try:
        return value.decode("ascii")
    except UnicodeDecodeError as error:
        raise BadRecord(f"the record's {key.decode()} is not ASCII") from error
