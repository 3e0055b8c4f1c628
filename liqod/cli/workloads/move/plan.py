"""Decides the next step of a move: one function of what was asked for and what there is. Pure.

The order keeps the data: the original stays until somebody confirmed that it may go, and when it goes there is a copy
at the target, which stays until a claim of the original's name was filled from it and compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from liqod.cli.workloads.move.seen import JobName, JobSeen, MoveRecord, Observed, Part, Phase, Wish

_FULL: Final = re.compile(r"no space left|insufficient storage|disk quota exceeded|\b507\b", re.IGNORECASE)
"""What restic, its server and ``cp`` say of a disk without room."""
_OF_COPYING: Final[Sequence[Part]] = ("backup", "restore", "server", "service", "secret")
_MADE: Final[Sequence[Part]] = ("backup", "restore", "server", "service", "secret", "copy")
_FILLED: Final[Sequence[JobName]] = ("restore", "backup")
"""The jobs that use the repository, the later one first."""
_WORDS: Final = {"backup": "the backup", "restore": "the copy", "refill": "filling the claim from the copy"}
_NONE: Final = JobSeen("running")
SHOWN: Final = 5
"""Pods that are named in a message."""


@frozen
class Refused:
    """It is not begun, or does not go on, for a reason that somebody has to do something about."""

    reason: str
    message: str


@frozen
class Begin:
    """Write the record."""


@frozen
class Make:
    """Make a part."""

    part: Part


@frozen
class Remove:
    """Remove a part."""

    part: Part


@frozen
class Note:
    """Note in the record how far the move is."""

    phase: Phase


@frozen
class Wait:
    """Look again later."""

    what: str


@frozen
class Rest:
    """The copy is there, and it is somebody's turn to look at it."""


@frozen
class End:
    """Remove the record: the move is done, or was given up."""

    moved: bool


Step = Refused | Begin | Make | Remove | Note | Wait | Rest | End


def plan(seen: Observed, wish: Wish) -> Step:
    """Return the next step."""
    record = seen.record
    if record is None:
        return _begin(seen, wish)
    if wish.target and wish.target != record.target:
        return Refused(
            "AlreadyMoving",
            f"the claim is being moved to {record.target} already: --confirm or --cancel that move first",
        )
    if wish.cancel:
        return _give_up(seen, record)
    if record.phase == "copying":
        return _copy(seen, record, wish)
    if record.phase == "copied":
        return _rest(seen, wish)
    if record.phase == "switching":
        return _switch(seen, record, wish)
    return _first_of(seen, ("refill", "copy")) or End(moved=True)


def _begin(seen: Observed, wish: Wish) -> Step:
    if wish.confirm or wish.cancel:
        return Refused("NotMoving", "the claim is not being moved: begin with --to")
    claim = seen.claim
    if claim is None or claim.deleting:
        return Refused("ClaimGone", "there is no such claim, or it is being deleted")
    if not seen.follows:
        return Refused(
            "OtherClass",
            "the data of its class stays where it is: what is moved is that of liqo ([storage] virtual-class), or "
            "of another class with its provisioner",
        )
    if claim.block:
        return Refused("BlockVolume", "it is a block device, which has no files to copy")
    if not claim.bound:
        return Refused("NotBound", "it has no data yet: a first pod says where that is to be")
    if seen.origin == wish.target:
        return Refused("AlreadyThere", f"its data is at {wish.target} already")
    if seen.lacking:
        return Refused(
            "NamespaceNotOffloaded",
            f"the namespace is not at {', '.join(seen.lacking)}: `liqodctl offload namespace`, and a first pod there",
        )
    if not seen.offers_storage:
        return Refused("StorageNotOffered", f"{wish.target} has no storage class for it")
    return _in_use(seen) or Begin()


def _in_use(seen: Observed) -> Refused | None:
    if not seen.users:
        return None
    more = len(seen.users) - SHOWN
    names = ", ".join(seen.users[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    return Refused("InUse", f"pods have the claim: {names}; scale their owners to 0 until the move is confirmed")


def _copy(seen: Observed, record: MoveRecord, wish: Wish) -> Step:
    """Return a step of the copy: a repository at the origin is filled from the original, and read at the target."""
    if seen.claim is None or seen.claim.uid != record.uid or seen.claim.deleting:
        return Refused("ClaimGone", "the claim that was to be moved is gone: --cancel removes what was made for it")
    if seen.jobs.get("restore", _NONE).state == "succeeded":
        return _in_use(seen) or Note("copied")
    if refused := _in_use(seen):
        return refused
    if not seen.secret:
        # A server that is there has another password.
        return Remove("server") if seen.server is not None else Make("secret")
    if not seen.service:
        return Make("service")
    if seen.server is None:
        return Make("server")
    for stale in _FILLED:
        job = seen.jobs.get(stale)
        # The repository goes with its pod, and what was made of an earlier one is not in this one.
        if job is not None and job.repository != seen.server.uid:
            return Remove(stale)
    if not seen.server.ready:
        return Wait(seen.server.why or "the repository to be served")
    if (step := _job(seen, "backup", wish)) is not None:
        return step
    if seen.copy is None:
        return Make("copy")
    return _job(seen, "restore", wish) or Note("copied")


def _job(seen: Observed, name: JobName, wish: Wish) -> Step | None:
    """Return the step for a job; None when it has succeeded."""
    job = seen.jobs.get(name)
    if job is None:
        return Make(name)
    if job.state == "running":
        return Wait(f"{_WORDS[name]}{f' ({job.message})' if job.message else ''}")
    if job.state == "succeeded":
        return None
    if wish.again:
        return Remove(name)
    if _FULL.search(job.message):
        return Refused("DiskFull", f"{_WORDS[name]} found no room: {job.message}; make some, and run this again")
    return Refused("JobFailed", f"{_WORDS[name]} failed: {job.message or 'without a word'}; run this again to retry")


def _rest(seen: Observed, wish: Wish) -> Step:
    if (left := _first_of(seen, _OF_COPYING)) is not None:
        return left
    if seen.copy is None or seen.copy.deleting or not seen.copy.bound:
        return Refused("CopyGone", "the copy is gone: --cancel, and begin again; the original is untouched")
    if not wish.confirm:
        return Rest()
    return _in_use(seen) or Note("switching")


def _switch(seen: Observed, record: MoveRecord, wish: Wish) -> Step:
    """Return a step of the switch: the original goes, and a claim of its name is filled from the copy."""
    claim = seen.claim
    has_copy = seen.copy is not None and not seen.copy.deleting
    if claim is not None and claim.uid == record.uid:
        if claim.deleting:
            return Wait("the original to go; a pod may have it")
        # Nothing is given up yet, and without the copy nothing is.
        return (_in_use(seen) or Remove("claim")) if has_copy else Note("copied")
    if not has_copy and seen.jobs.get("refill", _NONE).state != "succeeded":
        return Refused("CopyGone", "somebody deleted the copy: what is left is in the claim, if there is one")
    if claim is None:
        return Make("claim")
    if claim.move != record.id:
        return Refused(
            "ClaimTaken",
            "another claim of that name was made meanwhile, such as by a StatefulSet: delete it, scale its owner to 0, "
            "and run this again; the data is in the copy",
        )
    return _in_use(seen) or _job(seen, "refill", wish) or Note("switched")


def _give_up(seen: Observed, record: MoveRecord) -> Step:
    if record.phase in ("switching", "switched"):
        return Refused("TooLate", "the original is given up already: --confirm goes on, and nothing is lost by it")
    return _first_of(seen, _MADE) or End(moved=False)


def _first_of(seen: Observed, parts: Sequence[Part]) -> Step | None:
    """Return the step that removes the first of these parts that is there."""
    for part in parts:
        if part == "copy" and seen.copy is not None and seen.copy.deleting:
            return Wait("the copy to be removed")
        if _is_there(seen, part):
            return Remove(part)
    return None


def _is_there(seen: Observed, part: Part) -> bool:
    match part:
        case "secret":
            return seen.secret
        case "service":
            return seen.service
        case "server":
            return seen.server is not None
        case "copy":
            return seen.copy is not None
        case "claim":
            return seen.claim is not None
        case _:
            return part in seen.jobs
