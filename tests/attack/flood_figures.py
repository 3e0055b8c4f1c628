"""What a flood did to a daemon and to its other peers, the verdict on it, and the table. Pure."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import asdict, frozen

FEWEST: Final = 50
"""Items below which there was no flood."""
ITEM: Final = 0.030
"""Seconds of the daemon's CPU that one item may take: 25 ms is the costliest review (docs/attacks.md)."""
TURN: Final = 1.0
"""Seconds that the daemon may be without a turn of its event loop: the lead ends after several without a renewal."""
TIMES: Final = 2.0
"""How many times longer another peer may wait than before the flood."""
_LAG: Final = re.compile(r'^liqod_reactor_lag_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)$', re.MULTILINE)
SHORT: Final = 0.005
"""Seconds that any wait counts as at least: below that chance decides."""
RARE: Final = 0.99
"""The share of another peer's requests that is judged beside the one in the middle."""
SHORT_AT_TIMES: Final = 0.020
"""Seconds that the wait at this share counts as at least: those of a turn of a watch (``kube.cache.watch_stream``)."""


@frozen(kw_only=True)
class Flood:
    """One flood: what was sent, how much of it and for how long, and what was seen meanwhile.

    ``cpu`` are the CPU seconds of the daemon, ``rest`` those of as long a time before. ``turns`` are the waits for
    ``/healthz`` on the daemon's own host, ``lag`` is how late its own timer was at most (an upper bound of its metric).
    ``before`` and ``during`` are the waits of another peer for one request, ``lost`` how many of its requests failed.
    ``ready``, ``leading``: whether that was so all the time. ``refused`` counts by reason.
    """

    kind: str
    shape: str
    items: int
    seconds: float
    cpu: float
    rest: float
    turns: tuple[float, ...]
    lag: float
    before: tuple[float, ...]
    during: tuple[float, ...]
    lost: int
    ready: bool
    leading: bool
    refused: Mapping[str, float]

    @property
    def name(self) -> str:
        """The flood in a word or two."""
        return f"{self.kind} ({self.shape})"

    @property
    def item(self) -> float:
        """The CPU seconds that one item took."""
        return max(0.0, self.cpu - self.rest) / self.items if self.items else 0.0

    def text(self) -> str:
        """Return the flood as JSON."""
        return json.dumps(asdict(self)) + "\n"


def parse(text: str) -> Flood:
    """Return what ``text`` wrote; ValueError, TypeError or KeyError for anything else."""
    body: dict[str, Any] = json.loads(text)
    return Flood(**{**body, **{name: tuple(body[name]) for name in ("turns", "before", "during")}})


def lag(before: str, after: str) -> float:
    """Return below which bound the daemon's timer was late between two pages of metrics; 0 where it never ran."""
    earlier, later = dict(_LAG.findall(before)), dict(_LAG.findall(after))
    grown = {float(bound): float(count) - float(earlier.get(bound, 0.0)) for bound, count in later.items()}
    most = max(grown.values(), default=0.0)
    return min((bound for bound, count in grown.items() if count == most), default=0.0) if most else 0.0


def slower(before: Sequence[float], during: Sequence[float]) -> float:
    """Return how many times longer the wait in the middle is; infinite where one of them was not measured."""
    if not before or not during:
        return float("inf")
    return max(SHORT, statistics.median(during)) / max(SHORT, statistics.median(before))


def slower_at_times(before: Sequence[float], during: Sequence[float]) -> float:
    """Return how many times longer the wait is that one request of a hundred exceeds; infinite as well."""
    if not before or not during:
        return float("inf")
    return max(SHORT_AT_TIMES, _at(during, RARE)) / max(SHORT_AT_TIMES, _at(before, RARE))


def judge(flood: Flood) -> Iterator[str]:
    """Yield what is wrong after a flood, in words."""
    if flood.items < FEWEST:
        yield f"only {flood.items} items were sent"
    if flood.item > ITEM:
        yield f"an item takes {flood.item * 1000:.0f} ms"
    longest = max(flood.turns, default=float("inf"))
    if longest > TURN:
        yield f"{longest:.1f} s without a turn"
    if flood.lag > TURN:
        yield f"a timer of the daemon was up to {flood.lag:.0f} s late"
    times, at_times = slower(flood.before, flood.during), slower_at_times(flood.before, flood.during)
    if times > TIMES:
        yield f"another peer waits {times:.1f} times longer"
    elif at_times > TIMES:
        yield f"another peer waits {at_times:.1f} times longer in one request of a hundred"
    if flood.lost:
        yield f"another peer lost {flood.lost} requests"
    if not flood.leading:
        yield "the lead was lost"
    if not flood.ready:
        yield "the daemon was not ready"


def table(floods: Iterable[Flood], head: str) -> str:
    """Return the floods as Markdown."""
    columns = (
        "flood",
        "items",
        "a second",
        "CPU ms an item",
        "longest turn, ms",
        "timer late, ms",
        "another peer before, ms",
        "during",
        "99 % before",
        "99 %",
        "refused as",
        "verdict",
    )
    lines = ["# Floods", "", head, "", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for one in sorted(floods, key=lambda one: one.name):
        cells = (
            one.name,
            str(one.items),
            f"{one.items / one.seconds:.0f}" if one.seconds else "-",
            f"{one.item * 1000:.2f}",
            _ms(max(one.turns, default=0.0)),
            _ms(one.lag),
            _middle(one.before),
            _middle(one.during),
            _ms(_at(one.before, RARE)) if one.before else "-",
            _ms(_at(one.during, RARE)) if one.during else "-",
            ", ".join(f"{reason} {count:.0f}" for reason, count in sorted(one.refused.items())) or "-",
            "; ".join(judge(one)) or "good",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def _middle(waits: Sequence[float]) -> str:
    return _ms(statistics.median(waits)) if waits else "-"


def _at(waits: Sequence[float], share: float) -> float:
    return sorted(waits)[min(len(waits) - 1, int(len(waits) * share))]
