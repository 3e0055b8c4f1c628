"""How a process whose reactor runs ends when what it was to prepare failed."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.python import log
from twisted.python.failure import Failure


@attrs.define
class Outcome:
    """Whether everything was made; without that nobody waits for anything."""

    status: int = 0

    def failed(self, failure: Failure) -> None:
        """Log why, and end the process: who reads its standard output would wait for ever."""
        # Which reactor it is, the program decides before anything imports it.
        from twisted.internet import reactor

        running: Any = reactor
        log.err(failure, "what this process is for was not made")
        self.status = 1
        running.callWhenRunning(running.stop)
