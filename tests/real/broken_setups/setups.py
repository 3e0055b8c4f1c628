"""The broken set-ups, written down before anything is broken: the fault, and the cause and object to be named. Pure.

Ten are the mistakes that are made most, ten are what users of such systems have reported, by project and number of the
report; ``drawing`` adds ten that nobody chose. A number may have several set-ups: all of them count as one.

``cause`` and ``object`` are patterns, whatever the case of letters; both must be in one paragraph of the screen. They
are broad where a cause has several right names, and never met by what a healthy screen says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from attrs import field, frozen

ROME: Final = "rome"
MILAN: Final = "milan"
NOWHERE: Final = "10.99.0.99"
"""An address of the test network that nobody has."""
DAEMONS: Final = {ROME: "c1-one", MILAN: "c2-one"}
HOSTS: Final = {ROME: "rome-one", MILAN: "milan-one"}
"""The daemon of each side by the name that it has in its lease, and its host."""

Activity = Literal["rest", "scale", "restart"]
ACTIVITIES: Final[tuple[Activity, ...]] = ("rest", "scale", "restart")


@frozen
class Fault:
    """What is broken on purpose: its kind (``faults.MAKERS``), the side, and what the kind takes besides."""

    kind: str
    side: str = MILAN
    words: tuple[str, ...] = ()


@frozen
class Moment:
    """When a fault is made: so many seconds after something began, or at rest."""

    activity: Activity = "rest"
    after: float = 0.0


@frozen(kw_only=True)
class Setup:
    """One broken set-up; ``at`` is the side whose administrator looks."""

    number: int
    name: str
    source: str
    fault: Fault
    cause: str
    object: str
    at: str = ROME
    moment: Moment = field(factory=Moment)


CLOCK: Final = r"ClockSkew|\bclock\b"
CREDENTIAL: Final = r"credential|TokenMissing|liqod-account"
CUT: Final = r"PodPathCut|ProbesLost|forward"
IMAGE: Final = r"ImageMissing|ErrImage|ImagePull|\bimage\b"
KEY: Final = r"KeyNotOnDevice|NoHandshake|TunnelSilent|\bkey\b"
LOSS: Final = r"PacketLoss|\bloss\b|packets? .{0,30}\blost\b"
NFT: Final = r"\bnft\b|nftables"
NO_ANSWER: Final = r"Unreachable|\b5872\b"
NO_HANDSHAKE: Final = r"NoHandshake|TunnelSilent|PortClosed|\b5871\b"
NO_LEASE: Final = r"DaemonSilent|NoDaemon|renewed its lease"
QUOTA: Final = r"quota"
RIGHTS: Final = r"RightsMissing|may not|not allowed"
ROUTES: Final = r"LocalRouteMissing|\broutes?\b"
RULES: Final = r"RulesMissing|nftables|\brules?\b"
SIZES: Final = r"\bMTU\b|SizesLost|packets of"
SLEEPS: Final = r"Unresponsive|Unreachable|does not answer"
STANDBY: Final = r"StandbySilent|would take over|\bstandby .{0,40}(silent|gone|dead|renewed)"
HOST: Final = r"\bhost\b|gateway"

FLUSH: Final = "ip route flush table 18952"
FORGET_PEER: Final = 'wg set liqod peer "$(wg show liqod peers | head -n 1)" remove'
DROP_TABLE: Final = "nft delete table inet liqod"
PODS_CUT: Final = ("forward", 'iifname "liqod" drop')


def host(side: str) -> str:
    """Return the pattern of a side's gateway, by whichever of its names."""
    return rf"{HOST}|\b{DAEMONS[side]}\b|\b{HOSTS[side]}\b"


def daemon(side: str) -> str:
    """Return the pattern of a side's daemon: by its name, its host's, or that of its account."""
    return rf"\b{DAEMONS[side]}\b|\b{HOSTS[side]}\b|\baccount liqod\b|liqo-system/liqod\b"


def _named(number: int, name: str, fault: Fault, cause: str, object: str) -> Setup:
    return Setup(number=number, name=name, source="named", fault=fault, cause=cause, object=object)


NAMED: Final[Sequence[Setup]] = (
    _named(1, "firewall on 5872/tcp", Fault("port", MILAN, ("tcp", "5872")), NO_ANSWER, r"\bmilan\b"),
    _named(1, "firewall on 5871/udp", Fault("port", MILAN, ("udp", "5871")), NO_HANDSHAKE, r"\bmilan\b"),
    _named(1, "firewall on 5873/tcp", Fault("port", ROME, ("tcp", "5873")), "webhook", r"\b5873\b"),
    _named(1, "firewall on 5875/tcp", Fault("port", ROME, ("tcp", "5875")), r"\blogs\b|\bexec\b|pages", r"\b5875\b"),
    _named(2, "wrong clock", Fault("clock", ROME, ("400",)), CLOCK, rf"{daemon(ROME)}|this host"),
    _named(
        3, "wrong MTU", Fault("rules", MILAN, ("input", "udp dport 5871 meta length > 1100 drop")), SIZES, r"\bmilan\b"
    ),
    _named(4, "no nft", Fault("no nft", ROME), NFT, host(ROME)),
    _named(5, "no rights", Fault("rights", ROME), RIGHTS, daemon(ROME)),
    _named(6, "deleted credential", Fault("credential", ROME), CREDENTIAL, daemon(ROME)),
    _named(7, "full quota", Fault("quota", MILAN, ("pods", "0", "crowd")), QUOTA, r"\bcrowd\b"),
    _named(8, "dead standby", Fault("standby", ROME), STANDBY, r"\bc1-two\b|\brome-two\b"),
    _named(9, "image missing", Fault("image", ROME, ("painter",)), IMAGE, r"\bpainter\b"),
    _named(10, "webhook unreachable", Fault("webhook", ROME), "webhook", NOWHERE.replace(".", r"\.")),
)
"""The mistakes that are made most. 5874 is on loopback and 5353 finds peers: no firewall there breaks a peering."""


def _reported(number: int, source: str, name: str, fault: Fault, *expected: str) -> Setup:
    cause, object = expected
    return Setup(number=number, name=name, source=source, fault=fault, cause=cause, object=object)


REPORTED: Final[Sequence[Setup]] = (
    _reported(
        11,
        "liqo#2692",
        "packets of more than 850 bytes vanish",
        Fault("rules", MILAN, ("forward", 'iifname "liqod" meta length > 850 drop')),
        SIZES,
        r"\bmilan\b",
    ),
    _reported(
        12, "liqo#3082", "no traffic after a node's restart, all looks well", Fault("forwarding"), CUT, r"\bmilan\b"
    ),
    _reported(13, "liqo#264", "routes are gone and gone again", Fault("again", ROME, (FLUSH,)), ROUTES, host(ROME)),
    _reported(
        14,
        "skupper-router#1062",
        "a link that loses packets",
        Fault("rules", MILAN, ("input", "udp dport 5871 numgen random mod 10 < 4 drop")),
        LOSS,
        r"\bmilan\b",
    ),
    _reported(15, "liqo#2605", "the daemon hangs", Fault("frozen", ROME), NO_LEASE, r"\bc1-one\b"),
    _reported(
        16,
        "liqo#924",
        "a pod from before its namespace was offloaded",
        Fault("unlabelled", ROME, ("early-bird",)),
        r"not offloaded|NamespaceNotOffloaded|taint|tolerat|liqo\.io/enabled",
        r"\bearly-bird\b",
    ),
    _reported(
        17,
        "liqo#3007",
        "the lender's quota, which nobody at home sees",
        Fault("quota", MILAN, ("requests.cpu", "1m", "greedy")),
        QUOTA,
        r"\bgreedy\b",
    ),
    _reported(18, "submariner#2571", "a host that was put to sleep", Fault("frozen", MILAN), SLEEPS, r"\bmilan\b"),
    _reported(
        19,
        "submariner#3188",
        "connected, says one; no connection, says the other",
        Fault("again", ROME, (FORGET_PEER,)),
        KEY,
        rf"\bmilan\b|{host(ROME)}",
    ),
    _reported(
        20,
        "cilium#22923",
        "connected on both sides, while entries are lost",
        Fault("again", ROME, (DROP_TABLE,)),
        RULES,
        rf"\bmilan\b|{host(ROME)}",
    ),
)
"""What users have reported of such systems."""
