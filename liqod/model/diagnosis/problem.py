"""A problem: which object, which reason, since when; and a check that found none. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import attrs

Severity = Literal["error", "warning", "info"]
Kind = Literal["daemon", "host", "peer", "tunnel", "node", "namespace", "pod", "object"]

ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}
_ROOTS: tuple[Kind, ...] = ("daemon", "host", "peer", "tunnel", "node", "namespace", "pod", "object")
"""Kinds in the order in which one causes another."""

PEERINGS: Final = "Peerings"
DAEMON: Final = "Daemon"
PROCESSES: Final = "Processes"
WORKLOADS: Final = "Workloads"
"""Topics: what is looked at."""


@attrs.frozen(kw_only=True)
class Problem:
    """One thing that is wrong.

    ``code`` is a reason in one word, ``cause`` a sentence, ``since`` RFC 3339 or empty where it is unknown, ``advice``
    empty where the table of reasons has it, ``peer`` the cluster ID of the peer that it is about, if any. ``topic`` is
    the check that finds it, ``hop`` the part of the path to a peer that it is on, if any.
    """

    code: str
    kind: Kind
    name: str
    cause: str
    severity: Severity = "error"
    since: str = ""
    advice: str = ""
    peer: str = ""
    topic: str = PEERINGS
    hop: str = ""

    @property
    def rank(self) -> tuple[int, int, str, str]:
        """The order of problems: the worst first, and causes before what they cause."""
        return ORDER[self.severity], _ROOTS.index(self.kind), self.name, self.code

    @property
    def text(self) -> str:
        """Reason and sentence in one line, for logs and pages."""
        return f"{self.code}: {self.cause}" if self.code and self.cause else self.code or self.cause

    @property
    def failing(self) -> bool:
        """Whether nobody may say of its subject that all is well."""
        return self.severity != "info"


@attrs.frozen
class Passed:
    """A check that found nothing wrong, with what it saw; about one peer or object where these are named."""

    topic: str
    text: str
    peer: str = attrs.field(default="", kw_only=True)
    name: str = attrs.field(default="", kw_only=True)

    def contradicts(self, problem: Problem) -> bool:
        """Return whether a problem forbids to say this."""
        return (
            problem.failing
            and self.topic in (problem.topic, problem.hop)
            and (not self.peer or problem.peer in ("", self.peer))
            and (not self.name or problem.name in ("", self.name))
        )


@attrs.frozen
class Diagnosis:
    """What is wrong, the worst first, and what was looked at and is not."""

    problems: tuple[Problem, ...]
    passed: tuple[Passed, ...]


def diagnosis(problems: Iterable[Problem], passed: Iterable[Passed]) -> Diagnosis:
    """Return problems, each once and the worst first, with the checks that none of them contradicts.

    On the path to a peer a code stands once for each hop: that of a probe, which comes first, with the date that the
    record has.
    """
    once: dict[tuple[str, ...], Problem] = {}
    for one in problems:
        key = (one.code, one.peer, one.hop) if one.hop else (one.code, one.kind, one.name, one.peer, one.cause)
        known = once.get(key)
        once[key] = one if known is None else attrs.evolve(known, since=known.since or one.since)
    found = tuple(sorted(once.values(), key=lambda problem: problem.rank))
    return Diagnosis(found, tuple(one for one in passed if not any(map(one.contradicts, found))))
