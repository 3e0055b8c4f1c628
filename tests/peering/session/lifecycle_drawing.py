"""The drawing of a peer's life in docs/peering.md, made from the table of ``peering.session.lifecycle``.

``python -m tests.peering.session.lifecycle_drawing`` prints it, ``--write`` puts it into the page.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Final

from liqod.peering.session.lifecycle import (
    STATES,
    Acknowledged,
    Admitted,
    Connected,
    Disconnected,
    Dismissed,
    LifecycleEvent,
    NoRoom,
    PeeringState,
    Pending,
    RecordGone,
    RecordObserved,
    SessionClosed,
    SessionOpened,
    Stranger,
    Unknown,
    Unpeered,
    UnpeeredByPeer,
    UntrustedKeyShown,
    WaitingFor,
    Withdrawing,
    WithdrawReceived,
    next_state,
)

PAGE: Final = Path(__file__).parents[3] / "docs" / "peering.md"
BEGIN: Final = "<!-- lifecycle: written by tests.peering.session.lifecycle_drawing -->\n"
END: Final = "<!-- end of lifecycle -->\n"

SAMPLES: Final[tuple[PeeringState, ...]] = (
    Unknown(),
    *(Stranger(recorded) for recorded in (False, True)),
    Pending(),
    *(Connected(owed) for owed in (None, 4)),
    *(Disconnected(suspect, owed) for suspect in (False, True) for owed in (None, 4)),
    Unpeered("by-peer", owed=4),
    Unpeered("ended", finished=True),
    *(
        Withdrawing(
            since=10.0,
            ever_connected=connected,
            unpeered_by_peer=ended,
            finished=finished,
            owed=owed,
            dismissal_owed=dismissal,
        )
        for connected, ended, finished in itertools.product((False, True), repeat=3)
        for owed in (None, 4)
        for dismissal in (False, True)
    ),
)
"""States of every kind, with every value of their fields that a transition looks at."""

EVENTS: Final[tuple[tuple[str, LifecycleEvent], ...]] = (
    ("record, pinned", RecordObserved(pinned=True, deleting=False, authenticated=False, lent=False, since=50.0)),
    ("record, pinned and met before", RecordObserved(True, deleting=False, authenticated=True, lent=True, since=50.0)),
    ("record, no pin", RecordObserved(pinned=False, deleting=False, authenticated=False, lent=False, since=50.0)),
    ("record being deleted", RecordObserved(pinned=True, deleting=True, authenticated=False, lent=False, since=50.0)),
    ("record being deleted", RecordObserved(pinned=True, deleting=True, authenticated=True, lent=True, since=50.0)),
    ("record gone", RecordGone()),
    ("untrusted key", UntrustedKeyShown()),
    ("no room", NoRoom(sighted=False)),
    ("no room", NoRoom(sighted=True)),
    ("session opened", SessionOpened()),
    ("session closed", SessionClosed(unresponsive=False)),
    ("session closed", SessionClosed(unresponsive=True)),
    ("Withdraw", WithdrawReceived(5, unpeering=False)),
    ("Withdraw(Unpeered)", WithdrawReceived(5, unpeering=True)),
    ("acknowledged", Acknowledged()),
    ("Bye(Unpeered)", UnpeeredByPeer()),
    ("admitted", Admitted()),
    ("dismissed", Dismissed()),
    ("waiting", WaitingFor("something")),
)
"""What may happen, by the words that the drawing uses."""


def drawing() -> str:
    """Return the transitions between states of different kinds, as a Mermaid state diagram in Markdown."""
    arrows: dict[tuple[str, str], dict[str, None]] = {}
    for state in SAMPLES:
        for words, event in EVENTS:
            after, _ = next_state(state, event)
            if type(after) is not type(state):
                arrows.setdefault((type(state).__name__, type(after).__name__), {})[words] = None
    order = [state.__name__ for state in STATES]
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> Unknown"]
    for (start, end), labels in sorted(arrows.items(), key=lambda one: [order.index(name) for name in one[0]]):
        lines.append(f"    {start} --> {end}: {', '.join(labels)}")
    return "\n".join([*lines, "```", ""])


def split(page: str) -> tuple[str, str, str]:
    """Return what is before, in and after the drawing of a page; raises ValueError when it has no place for one."""
    before, begin, rest = page.partition(BEGIN)
    found, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no place for the drawing: it needs the lines {BEGIN!r} and {END!r}")
    return before + begin, found, end + after


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        before, _, after = split(PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(before + drawing() + after, encoding="utf-8")
    else:
        print(drawing(), end="")
