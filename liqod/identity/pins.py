"""Decides whether to trust a peer's key, once per handshake, before data is sent or accepted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from liqod.model.ids import ClusterID, Fingerprint


@attrs.frozen
class Trusted:
    """The key is pinned for the ID, or announced as the next one in a pinned session, or signed by a configured CA."""

    by: Literal["pin", "announcement", "ca"]


@attrs.frozen
class UnknownKey:
    """The key has no pin, announcement or CA: an administrator must decide."""


@attrs.frozen
class Mismatch:
    """Another key is pinned for the claimed ID: an impostor, or a cluster that lost its key. The pin is kept."""

    pinned: Fingerprint


Judgement = Trusted | UnknownKey | Mismatch


def judge(
    claimed_id: ClusterID,
    fingerprint: Fingerprint,
    pins: Mapping[ClusterID, Fingerprint],
    *,
    chains_to_ca: bool,
    announced: Fingerprint | None = None,
) -> Judgement:
    """Judge a key that claims to be a cluster.

    A pin beats everything, a CA included; ``announced`` is the key that the holder of the pinned one said would be its
    next. ``chains_to_ca`` must mean that the CA vouches for *this* ID
    (``PeerCertificate.vouches_for``). A key that is already pinned for another ID is not trusted for a second one by
    the CA's word alone: one key is one cluster, and a person decides about exceptions.
    """
    pinned = pins.get(claimed_id)
    if pinned is not None:
        if fingerprint == pinned:
            return Trusted("pin")
        return Trusted("announcement") if fingerprint == announced else Mismatch(pinned)
    if chains_to_ca and fingerprint not in pins.values():
        return Trusted("ca")
    return UnknownKey()
