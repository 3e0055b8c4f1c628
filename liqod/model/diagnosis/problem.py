"""A problem: which object, which reason, since when. Pure."""

from __future__ import annotations

from typing import Literal

import attrs

Severity = Literal["error", "warning", "info"]
Kind = Literal["daemon", "host", "peer", "tunnel", "node", "namespace", "pod", "object"]

ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}
_ROOTS: tuple[Kind, ...] = ("daemon", "host", "peer", "tunnel", "node", "namespace", "pod", "object")
"""Kinds in the order in which one causes another."""


@attrs.frozen(kw_only=True)
class Problem:
    """One thing that is wrong.

    ``code`` is a reason in one word, ``cause`` a sentence, ``since`` RFC 3339 or empty where it is unknown, ``advice``
    empty where the table of reasons has it, ``peer`` the cluster ID of the peer that it is about, if any.
    """

    code: str
    kind: Kind
    name: str
    cause: str
    severity: Severity = "error"
    since: str = ""
    advice: str = ""
    peer: str = ""

    @property
    def rank(self) -> tuple[int, int, str, str]:
        """The order of problems: the worst first, and causes before what they cause."""
        return ORDER[self.severity], _ROOTS.index(self.kind), self.name, self.code
