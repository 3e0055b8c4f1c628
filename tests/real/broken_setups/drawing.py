"""Draws broken set-ups by chance from a seed: which fault, how bad, on which side, and when it is made. Pure.

The same seed gives the same set-ups, with the cause and the object that must be named. Each is looked at from the side
whose administrator could do something about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from attrs import frozen

from tests.real.broken_setups import setups
from tests.real.broken_setups.setups import ACTIVITIES, MILAN, NAMED, REPORTED, ROME, Fault, Moment, Setup

SEED: Final = 20
COUNT: Final = 10
FIRST: Final = len({one.number for one in (*NAMED, *REPORTED)}) + 1
LONGEST_WAIT: Final = 8.0
"""Seconds into an activity at which a fault is made at the latest."""
BOTH: Final = (ROME, MILAN)

Words = Callable[[Random], tuple[str, ...]]


@frozen(kw_only=True)
class Kind:
    """One kind of fault; ``seen_by`` is the side that looks: the broken one ("own"), or the other.

    ``object`` says what must be named: "other", the side that does not look; "daemon" and "host", of the side that
    does; "peer or host"; "pod", the last of the words.
    """

    kind: str
    title: str
    cause: str
    object: str
    sides: Sequence[str] = BOTH
    seen_by: str = "own"
    words: Words = lambda chance: ()


def _of(*words: str) -> Words:
    return lambda chance: words


def _of_pod(*words: str) -> Words:
    return lambda chance: (*words, f"pod-{chance.randrange(16**5):05x}")


def _lossy(chance: Random) -> tuple[str, ...]:
    return "input", f"udp dport 5871 numgen random mod 100 < {chance.randint(35, 70)} drop"


def _narrow(chance: Random) -> tuple[str, ...]:
    return "input", f"udp dport 5871 meta length > {chance.randint(700, 1250)} drop"


KINDS: Final[Sequence[Kind]] = (
    Kind(
        kind="port",
        title="no packet passes 5872/tcp",
        cause=setups.NO_ANSWER,
        object="other",
        seen_by="other",
        words=_of("tcp", "5872"),
    ),
    Kind(
        kind="port",
        title="no packet passes 5871/udp",
        cause=setups.NO_HANDSHAKE,
        object="other",
        seen_by="other",
        words=_of("udp", "5871"),
    ),
    Kind(kind="killed", title="the daemon was killed", cause=setups.NO_LEASE, object="daemon"),
    Kind(kind="killed", title="the peer's daemon was killed", cause=setups.NO_ANSWER, object="other", seen_by="other"),
    Kind(kind="frozen", title="the daemon hangs", cause=setups.NO_LEASE, object="daemon"),
    Kind(kind="frozen", title="the peer's daemon hangs", cause=setups.SLEEPS, object="other", seen_by="other"),
    Kind(kind="forwarding", title="the peer forwards no packets", cause=setups.CUT, object="other", seen_by="other"),
    Kind(
        kind="rules",
        title="packets to the peer's pods are dropped",
        cause=setups.CUT,
        object="other",
        seen_by="other",
        words=_of(*setups.PODS_CUT),
    ),
    Kind(kind="rules", title="packets are lost", cause=setups.LOSS, object="other", seen_by="other", words=_lossy),
    Kind(
        kind="rules", title="large packets are lost", cause=setups.SIZES, object="other", seen_by="other", words=_narrow
    ),
    Kind(
        kind="no api",
        title="the lender's API server is gone",
        cause=r"PeerUnreachable|PeerNotReady|LenderUnreachable|API server",
        object="other",
        sides=(MILAN,),
        seen_by="other",
    ),
    Kind(kind="rights", title="the daemon's rights were taken", cause=setups.RIGHTS, object="daemon"),
    Kind(kind="credential", title="the daemon's credential was deleted", cause=setups.CREDENTIAL, object="daemon"),
    Kind(kind="no nft", title="nft was removed", cause=setups.NFT, object="host"),
    Kind(kind="again", title="something removes routes", cause=setups.ROUTES, object="host", words=_of(setups.FLUSH)),
    Kind(
        kind="again",
        title="something removes the nftables table",
        cause=setups.RULES,
        object="peer or host",
        words=_of(setups.DROP_TABLE),
    ),
    Kind(
        kind="clock",
        title="the clocks differ",
        cause=setups.CLOCK,
        object="daemon",
        words=lambda chance: (str(chance.choice((-1, 1)) * chance.randint(310, 5000)),),
    ),
    Kind(
        kind="image",
        title="a pod's image is nowhere",
        cause=setups.IMAGE,
        object="pod",
        sides=(ROME,),
        words=_of_pod(),
    ),
    Kind(
        kind="quota",
        title="the lender's quota is used up",
        cause=setups.QUOTA,
        object="pod",
        sides=(MILAN,),
        seen_by="other",
        words=_of_pod("pods", "0"),
    ),
)
"""What is drawn from."""


def drawn(seed: int = SEED, count: int = COUNT) -> list[Setup]:
    """Return so many set-ups, each of another kind, in the order in which they are tried."""
    chance = Random(seed)
    return [_setup(number, kind, chance, seed) for number, kind in enumerate(chance.sample(KINDS, count), FIRST)]


def _setup(number: int, kind: Kind, chance: Random, seed: int) -> Setup:
    side = chance.choice(kind.sides)
    at = side if kind.seen_by == "own" else _other(side)
    words = kind.words(chance)
    activity = chance.choice(ACTIVITIES)
    after = 0.0 if activity == "rest" else round(chance.uniform(0.0, LONGEST_WAIT), 1)
    return Setup(
        number=number,
        name=f"{kind.title} ({', '.join((side, *words))}; {activity}, {after} s)",
        source=f"seed {seed}",
        fault=Fault(kind.kind, side, words),
        cause=kind.cause,
        object=_object(kind.object, at, words),
        at=at,
        moment=Moment(activity, after),
    )


def _object(which: str, at: str, words: tuple[str, ...]) -> str:
    peer = rf"\b{_other(at)}\b"
    if which == "pod":
        return rf"\b{words[-1]}\b"
    return {
        "other": peer,
        "daemon": setups.daemon(at),
        "host": setups.host(at),
        "peer or host": rf"{peer}|{setups.host(at)}",
    }[which]


def _other(side: str) -> str:
    return MILAN if side == ROME else ROME


def thirty(seed: int = SEED) -> list[Setup]:
    """Return all set-ups: the named ones, the reported ones, and those of a seed."""
    return [*NAMED, *REPORTED, *drawn(seed)]
