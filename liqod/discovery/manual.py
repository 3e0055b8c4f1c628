"""Candidates from the configuration, ``[discovery] peers``."""

from __future__ import annotations

from collections.abc import Iterable

from liqod.config.schema import PeerSettings
from liqod.discovery.candidate import MANUAL, Candidate
from liqod.model.host_port import split_address


def candidates(peers: Iterable[PeerSettings]) -> tuple[Candidate, ...]:
    """Return the candidates of the configured peers; raises ValueError, naming the address, for one that is none."""
    found = (Candidate(*split_address(peer.address), MANUAL, fingerprint=peer.fingerprint or "") for peer in peers)
    return tuple(dict.fromkeys(found))
