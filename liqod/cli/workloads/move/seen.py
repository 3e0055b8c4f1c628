"""What a move of a volume is decided from: its record, and what there is of it. Pure.

The record is a ConfigMap in the namespace of the claim: it outlives the claim, which is made again at the end. All
else is observed, so that a command that was interrupted goes on where it was, on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from attrs import Factory, frozen

HOME: Final = "home"
"""This cluster, as a target; its volumes name no cluster."""
LABEL: Final = "storage.liqo.io/move"
"""On all that is made for a move: its ID."""
SERVER_LABEL: Final = "liqo-move"
"""On the pod that serves the repository, and the selector of its service: the ID of the move. It has no domain: labels
of liqo.io are for one cluster, and a service at a lender finds the pods there by labels that came with them."""
REPOSITORY: Final = "storage.liqo.io/repository"
"""On the job that fills the repository: the UID of the pod that serves it, which holds it as well."""

Phase = Literal["copying", "copied", "switching", "switched"]
"""How far a move is: the copy is made; it is there, and the original too; the original goes, and a claim of its name is
filled from the copy; that is done, and the copy goes."""
JobName = Literal["backup", "restore", "refill"]
Part = Literal["secret", "service", "server", "backup", "restore", "refill", "copy", "claim"]
"""What is made for a move: ``copy`` is the claim with the copy, ``claim`` the one that takes the original's place."""


class MoveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A move: of the claim with a UID, from one cluster to another; ``body`` is what the claim is made from again."""

    id: str
    claim: str
    uid: str
    origin: str
    target: str
    phase: Phase
    body: dict[str, Any]


@frozen
class ClaimSeen:
    """A claim: the UID, whether it is bound to a volume, and whose it is: the ID of a move in its label."""

    uid: str
    bound: bool = True
    deleting: bool = False
    block: bool = False
    move: str = ""


@frozen
class ServerSeen:
    """The pod that serves the repository, and why it does not yet."""

    uid: str
    ready: bool = False
    why: str = ""


@frozen
class JobSeen:
    """A job: how it goes, or why it failed; ``repository`` is that which it fills."""

    state: Literal["running", "succeeded", "failed"]
    message: str = ""
    repository: str = ""


@frozen(kw_only=True)
class Observed:
    """What there is, at one moment.

    ``origin`` is the cluster with the data. ``users`` are the pods that have the claim. ``lacking`` are those of both
    clusters that do not have the namespace. ``offers_storage``: whether the target has a storage class for the copy.
    ``follows``: whether the claim's class is one whose data follows its pods. ``version`` is that of the record.
    """

    claim: ClaimSeen | None = None
    record: MoveRecord | None = None
    origin: str = HOME
    follows: bool = True
    users: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    offers_storage: bool = True
    secret: bool = False
    service: bool = False
    server: ServerSeen | None = None
    copy: ClaimSeen | None = None
    version: str = ""
    jobs: Mapping[JobName, JobSeen] = Factory(dict)


@frozen
class Wish:
    """What was asked for: a target (empty: that of the record), to give up the original, or the move.

    ``again``: what failed before is tried once more.
    """

    target: str = ""
    confirm: bool = False
    cancel: bool = False
    again: bool = False
