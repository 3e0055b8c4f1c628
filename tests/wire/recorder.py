"""Records what two peers of this checkout's protocol say to each other: ``python -m tests.wire.recorder FILE.json``.

Run once for every minor version that is released, from the release itself, and kept for ever: ``test_wire_releases``
plays all recordings against the protocol as it is now. A recording is never made again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from liqod.peering import sessions
from liqod.wire.events import Bye, Event, Hello, Join
from liqod.wire.session import NEED_DATA, SessionProtocol
from tests.wire.pairs import ORDINARY

PROOF = "5" * 64


def record() -> dict[str, object]:
    """Return a whole conversation: greeting, joining, every event in both directions, and the end."""
    newest = getattr(sessions, "NEWEST_MINOR", 0)
    said: list[tuple[str, str]] = []
    ends = {"dialer": SessionProtocol("dialer"), "listener": SessionProtocol("listener")}

    def say(role: str, event: Event) -> None:
        data = ends[role].send(event)
        other = ends["listener" if role == "dialer" else "dialer"]
        other.receive_data(data)
        if other.next_event() is NEED_DATA:
            raise SystemExit(f"{type(event).__name__} did not arrive whole")
        said.append((role, data.hex()))

    say("dialer", Hello("turin", "turin", 7, 0, newest, ["joining"]))
    say("listener", Hello("milan", "milan.site", 3, 0, newest, []))
    say("dialer", Join("0123456789abcdef", PROOF))
    say("dialer", ends["dialer"].welcome())
    say("listener", ends["listener"].welcome())
    for event in ORDINARY:
        say("dialer", event)
        say("listener", event)
    say("listener", Bye("Stopping", "the daemon is stopping; its records stay", 1.0))
    return {"protocol": "liqod/1", "minor": newest, "said": said}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record(), indent=0) + "\n")
