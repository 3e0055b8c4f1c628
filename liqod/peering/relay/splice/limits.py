"""How much of streams to home's API server one peer gets, and why it gets none. Pure.

A lender asks for idle streams (KeepStreams); home grants them. The first byte makes an idle stream one that is used:
TLS has the client speak first, so that nothing need be said before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from liqod.model.records.facts import MAX_VALUES
from liqod.model.records.offer import HomeStreamsGrant

KEPT: Final = 4
"""Idle streams that a lender asks for: as many pods may connect at the same moment."""
MOST_OPEN: Final = 256
"""Streams of one peer that are used at the same time; more pods wait, and are refused then."""
PER_POD: Final = 32
"""Connections from the address of one pod at the same time."""
WAITING: Final = 64
"""Pods of one tenant that wait for a stream at the same time."""
RATE: Final = 8 << 20
"""Bytes a second that pass by all streams of one peer, in both directions together."""
BURST: Final = 64 << 20
"""The same at once: the first lists of a program that watches."""
SILENT: Final = 1800.0
"""Seconds without a byte in either direction after which a used stream is closed; client-go pings every 30 s."""
FIRST_BYTE: Final = 10.0
"""Seconds that a pod has for its first byte; before it no stream is taken."""
WAIT: Final = 5.0
"""Seconds that a pod waits for a stream at most."""
CONNECT: Final = 10.0
"""Seconds that home's API server has to accept a connection."""
UNREAD: Final = 60.0
"""Seconds for which one end may leave what waits for it unread, before the stream is closed."""
IDLE: Final = 240.0
"""Seconds for which the lender keeps an idle stream: middle boxes forget silent connections after some minutes."""
IDLE_AT_HOME: Final = 600.0
"""The same at home, in case that the lender does not keep to it."""
MAX_AHEAD: Final = 128 << 10
"""Bytes that are kept of a pod until its stream is joined; a ClientHello has a few hundred."""
ASK_AGAIN: Final = 30.0
"""Seconds until a lender asks again where home refused."""
UNASKED: Final = 60.0
"""Seconds of a new session in which a lender that had streams has to ask again; after them it has none at home."""
ASKED_PER_SECOND: Final = 0.2
"""How often a second a lender may ask for streams, evenly; a lender of this release asks once in a session."""
ASKED_AT_ONCE: Final = 10
"""The same at once."""
_HANDSHAKE: Final = 22
"""The content type of the first record of TLS (RFC 8446, 5.1)."""


@frozen(kw_only=True)
class StreamSituation:
    """What is known of a peer when one of its streams arrives: ``granted`` idle ones, and how many there are."""

    has_session: bool
    granted: int
    idle: int
    used: int


def is_tls(data: bytes) -> bool:
    """Return whether bytes begin as TLS does: nothing else may pass, so that no token passes readably."""
    return data[:1] == bytes((_HANDSHAKE,))


def missing_names(certified: Collection[str], called: Sequence[str]) -> tuple[str, ...]:
    """Return the names that a certificate is not for; nothing where its names are not known, or not all of them."""
    known = frozenset(name.lower() for name in certified)
    if not known or len(certified) >= MAX_VALUES:
        return ()
    return tuple(name for name in called if name not in known and f"*.{name.partition('.')[2]}" not in known)


def grant(
    asked: int, most: int, *, borrows: bool, target: str, certified: Collection[str], called: Sequence[str]
) -> HomeStreamsGrant:
    """Return how many idle streams a lender gets, why these are fewer than it asked for, and what is amiss otherwise.

    ``most`` is the setting, ``borrows`` whether pods of ours may run there, ``target`` where our API server is, and
    ``certified`` are the names of its certificate; empty: not known. By the names in ``called`` pods call it: the first
    is what they are given, so that nothing works without it; the others are built into programs.
    """
    if not asked:
        return HomeStreamsGrant(0)
    if not most:
        return HomeStreamsGrant(0, "NoStreams", "this cluster keeps no streams ([peering] api-streams)")
    if not borrows:
        return HomeStreamsGrant(0, "NotBorrowing", "this cluster runs no pods with you now")
    if not target:
        return HomeStreamsGrant(0, "NoAddress", "no address of this cluster's API server is known that TLS leads to")
    missing = missing_names(certified, called)
    amiss = f"the certificate of this cluster's API server is not for {', '.join(missing)}: add it to its names"
    said = [amiss] if missing else []
    if missing and missing[0] == called[0]:
        return HomeStreamsGrant(0, "NamesMissing", amiss)
    if asked > most:
        return HomeStreamsGrant(most, "FewerStreams", "; ".join([f"[peering] api-streams allows {most}", *said]))
    return HomeStreamsGrant(asked, message="; ".join(said))


def refusal(situation: StreamSituation) -> tuple[str, str] | None:
    """Return why a stream of a peer is not kept, in a word and a sentence; None where it is."""
    if not situation.has_session:
        return "StreamWithoutSession", "there is no session with the peer"
    if not situation.granted:
        return "StreamNotAsked", "no streams were agreed on with the peer"
    # One more than agreed on may be on its way: the one that takes the place of a stream that is used since.
    if situation.idle > situation.granted:
        return "TooManyStreams", f"{situation.idle} idle streams of the peer are open already"
    if situation.used >= MOST_OPEN:
        return "TooManyStreams", f"{MOST_OPEN} streams of the peer are used"
    return None


def place_of(urls: Iterable[str]) -> tuple[str, int] | None:
    """Return host and port of the first URL that streams can lead to: TLS, and nothing before the API in its path."""
    for url in urls:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or 443
        except ValueError:
            continue
        if parts.scheme == "https" and host and host.isascii() and not parts.path.strip("/"):
            return host, port
    return None
