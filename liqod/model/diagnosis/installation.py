"""Finds what is wrong with the installation: clocks, keys, definitions, and a daemon that is not ready. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import attrs

from liqod.model.diagnosis.problem import DAEMON, Passed, Problem, Severity

CLOCK: Final = "Clock"
KEYS: Final = "Keys"
CRDS: Final = "CRDs"
RIGHTS: Final = "Rights"

SKEW_WARNING: Final = 30.0
# The skew beyond which peers refuse a CA's certificate as expired or not yet valid (identity.tls, CLOCK_SKEW).
SKEW_FATAL: Final = 300.0
EXPIRES_SOON: Final = timedelta(days=21)


@attrs.frozen
class ClockFacts:
    """By how many seconds this host's clock is ahead of the API server's; None: that does not tell its time."""

    skew: float | None


def clock_problems(clock: ClockFacts) -> Iterator[Problem]:
    """Yield what is wrong with the clocks; an error keeps the daemon from starting."""
    skew = clock.skew
    if skew is None:
        text = "the API server does not reveal its time"
        yield _problem(
            CLOCK, "NotExamined", "clock", text, "warning", advice="synchronize the clocks of both hosts by NTP"
        )
    elif abs(skew) >= SKEW_WARNING:
        side = "ahead of" if skew > 0 else "behind"
        text = f"this host's clock is {abs(skew):.0f} seconds {side} the API server's"
        advice = "have both set by NTP (`timedatectl set-ntp true`)"
        yield _problem(
            CLOCK, "ClockSkew", "clock", text, "error" if abs(skew) >= SKEW_FATAL else "warning", advice=advice
        )


@attrs.frozen(kw_only=True)
class SecretFacts:
    """A Secret of the daemon's namespace, a file, or a kubeconfig: when what it has ends.

    ``expired_token``: it is a pairing token that has expired. ``endless_token``: it has a token of one of liqod's
    accounts that does not end, as earlier versions had made. ``token_end``: that of a token that nothing renews.
    """

    name: str
    expired_token: bool = False
    endless_token: bool = False
    certificate_end: datetime | None = None
    token_end: datetime | None = None


def key_problems(secrets: Sequence[SecretFacts], now: datetime) -> Iterator[Problem]:
    """Yield pairing tokens that have expired, tokens without end, and certificates that have ended or will."""
    for one in secrets:
        if one.endless_token:
            text = f"the Secret {one.name} has a token of the daemon's account that never ends"
            advice = "`liqodctl install --daemon-kubeconfig FILE`, on each host that uses it, replaces and removes it"
            yield _problem(KEYS, "TokenWithoutEnd", one.name, text, "warning", advice=advice)
        if one.expired_token:
            advice = "liqodctl doctor --fix deletes it"
            yield _problem(
                KEYS, "TokenExpired", one.name, f"the pairing token {one.name} has expired", "warning", advice=advice
            )
        elif one.certificate_end is not None and one.certificate_end - now < EXPIRES_SOON:
            ended = one.certificate_end < now
            code: str = "CertificateExpired" if ended else "CertificateExpiring"
            text = f"the certificate in {one.name} ends on {one.certificate_end:%Y-%m-%d}"
            yield _problem(KEYS, code, one.name, text, "error" if ended else "warning")
        if one.token_end is not None and one.token_end - now < EXPIRES_SOON:
            text = f"the token in {one.name} ends on {one.token_end:%Y-%m-%d}, and nothing renews it"
            yield _problem(KEYS, "TokenExpiring", one.name, text, "warning")


@attrs.frozen
class DefinitionFacts:
    """A CustomResourceDefinition of this release, and how the cluster has it."""

    name: str
    state: Literal["same", "missing", "not served", "other release", "later release"]


_DEFINITIONS: Final[Mapping[str, tuple[str, Severity, str]]] = {
    "missing": ("DefinitionsMissing", "error", "is missing"),
    "not served": ("DefinitionNotServed", "error", "is not served yet"),
    "other release": ("OtherRelease", "warning", "belongs to another release"),
    "later release": ("LaterRelease", "error", "was written by liqod more than one minor release after this one"),
}


def definition_problems(definitions: Sequence[DefinitionFacts]) -> Iterator[Problem]:
    """Yield the definitions that are not those of this release."""
    for one in definitions:
        if one.state != "same":
            code, severity, words = _DEFINITIONS[one.state]
            yield _problem(CRDS, code, one.name, f"{one.name} {words}", severity)


@attrs.frozen
class Unread:
    """What the user may not read, or the API server did not give: nothing is said of it."""

    topic: str
    cause: str
    advice: str


def unread_problems(unread: Sequence[Unread]) -> Iterator[Problem]:
    """Yield what was not looked at."""
    for one in unread:
        yield _problem(one.topic, "NotExamined", "", one.cause, "warning", advice=one.advice)


@attrs.frozen
class Unmet:
    """One thing that a daemon's process lacks to do its work: a reason, and a sentence."""

    code: str
    cause: str


def process_problems(unmet: Sequence[Unmet]) -> list[Problem]:
    """Return why a daemon's process is not ready, in the order in which one causes another."""
    return [Problem(code=one.code, kind="daemon", name="this process", cause=one.cause, topic=DAEMON) for one in unmet]


def installation_passed(
    clock: ClockFacts | None, secrets: Sequence[SecretFacts] | None, definitions: Sequence[DefinitionFacts] | None
) -> Iterator[Passed]:
    """Yield what was looked at."""
    if clock is not None:
        yield Passed(CLOCK, "is synchronized with the API server's")
    if secrets is not None:
        yield Passed(KEYS, "no certificate ends within three weeks, of those that could be read")
    if definitions is not None:
        yield Passed(CRDS, "the CRDs are those of this release")


def _problem(topic: str, code: str, name: str, cause: str, severity: Severity, *, advice: str = "") -> Problem:
    return Problem(code=code, kind="object", name=name, cause=cause, severity=severity, advice=advice, topic=topic)
