"""What creating pods needs to know of home's NetworkPolicies; ``hosting.isolation`` implements it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from liqod.flow.controller import After
from liqod.hosting.shadowpods.admission import Refuse
from liqod.hosting.shadowpods.forge import labels_of
from liqod.model.ids import Key
from liqod.model.names import ISOLATED_LABEL, NETWORK_POLICIES_ANNOTATION
from liqod.model.records.views import ShadowPod

SOON: Final = 5.0
"""Seconds after its ShadowPod in which home's policies for a pod may arrive: they come by another watch."""
_UNKNOWN: Final = Refuse(
    "PoliciesUnknown", "the NetworkPolicies of its home have not come yet, or are not in force at the lender yet"
)
_SHOWN: Final = 3
"""Refusals in an event at most: one has room for a thousand characters."""


class Isolation(Protocol):
    """Which pods home's NetworkPolicies isolate."""

    def of(self, namespace: str, labels: Mapping[str, str], *, awaited: bool) -> str | None:
        """Return the value of ``ISOLATED_LABEL`` for a pod; empty: none; None while that is not known.

        ``awaited``: its home sends policies, so that none at all means that they have not come yet.
        """
        ...

    def refused_of(self, namespace: str, labels: Mapping[str, str]) -> Sequence[str]:
        """Return what is closed for a pod though home may allow it, as sentences."""
        ...

    def unenforced(self) -> str:
        """Return why nothing here enforces policies, as far as is known; empty: something does."""
        ...

    def subscribe(self, subscriber: Callable[[str], None]) -> Callable[[], None]:
        """Call ``subscriber`` with the namespace of which more is known; return the unsubscribe function."""
        ...


class NoIsolation:
    """Null object: no home has policies."""

    def of(self, namespace: str, labels: Mapping[str, str], *, awaited: bool) -> str | None:
        """Return an empty text."""
        return ""

    def refused_of(self, namespace: str, labels: Mapping[str, str]) -> Sequence[str]:
        """Return nothing."""
        return ()

    def unenforced(self) -> str:
        """Return an empty text."""
        return ""

    def subscribe(self, subscriber: Callable[[str], None]) -> Callable[[], None]:
        """Return a function that does nothing."""
        return _nothing


class PodIsolation:
    """Labels pods as home's policies isolate them, from their first packet on; remembers which wait for that."""

    def __init__(self, isolation: Isolation, *, refuse_unenforced: bool) -> None:
        self._isolation = isolation
        self._refuses = refuse_unenforced
        self._waiting: dict[str, set[Key]] = {}

    def label(self, body: dict[str, Any], shadow: ShadowPod, age: float) -> list[tuple[str, str]] | After | Refuse:
        """Set the label of a pod to create; return the events to record, by reason.

        While it is not known, when to look again, or after some ``age`` of the ShadowPod in seconds a refusal; the pod
        is then one of ``known_now``. A refusal too where nothing would enforce it.
        """
        key, labels = shadow.metadata.key, body["metadata"]["labels"]
        self._waiting.setdefault(key.namespace, set()).add(key)
        awaited = NETWORK_POLICIES_ANNOTATION in shadow.metadata.annotations
        value = self._isolation.of(key.namespace, labels, awaited=awaited)
        if value is None:
            return After(SOON - age) if age < SOON else _UNKNOWN
        events: list[tuple[str, str]] = []
        if value and (why := self._isolation.unenforced()):
            message = f"NetworkPolicies of its home isolate this pod, and at the lender {why}"
            if self._refuses:
                return Refuse("PoliciesNotEnforced", message)
            events.append(("PoliciesNotEnforced", f"{message}; it runs all the same"))
        self.forget(key)
        if refused := self._isolation.refused_of(key.namespace, labels):
            events.append(("PolicyNotApplied", _closed(refused)))
        if value:
            labels[ISOLATED_LABEL] = value
        return events

    def of_running(self, shadow: ShadowPod, before: str) -> str:
        """Return the label of a pod whose other labels change at the same moment: it is less isolated only later."""
        wanted = self._isolation.of(shadow.metadata.namespace, labels_of(shadow), awaited=False)
        return widened(before, "both" if wanted is None else wanted)

    def known_now(self, namespace: str) -> Iterable[Key]:
        """Return the pods of a namespace that waited."""
        return self._waiting.pop(namespace, ())

    def forget(self, key: Key) -> None:
        """Forget a pod that waited."""
        waiting = self._waiting.get(key.namespace, set())
        waiting.discard(key)
        if not waiting:
            self._waiting.pop(key.namespace, None)

    def subscribe(self, subscriber: Callable[[str], None]) -> Callable[[], None]:
        """Call ``subscriber`` with the namespace of which more is known; return the unsubscribe function."""
        return self._isolation.subscribe(subscriber)


def _closed(refused: Sequence[str]) -> str:
    """Return one sentence about all that is closed for a pod."""
    more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
    return "; ".join(refused[:_SHOWN]) + more


def widened(one: str, other: str) -> str:
    """Return the value of ``ISOLATED_LABEL`` that isolates in each direction in which one of two values does."""
    if not one or not other or one == other:
        return one or other
    return "both"


def _nothing() -> None:
    """Do nothing."""
