"""Observables on one reactor: a value that changes, and a one-time event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

T = TypeVar("T")


class Latest(Generic[T]):
    """A value with subscribers, which are notified of changes; setting an equal value is no change.

    Subscribers are called with each new value, in the order of subscription, and not at subscription: read ``value``
    for the current one. A subscriber that raises is logged; the others are still called.
    """

    _log = Logger()

    def __init__(self, value: T) -> None:
        self.value = value
        self._subscribers: dict[object, Callable[[T], None]] = {}

    def set(self, value: T) -> None:
        """Replace the value and notify subscribers, unless it equals the old one."""
        if value == self.value:
            return
        self.value = value
        for subscriber in list(self._subscribers.values()):
            try:
                subscriber(value)
            except Exception:
                self._log.failure("an observer failed on a new value")

    def subscribe(self, subscriber: Callable[[T], None]) -> Callable[[], None]:
        """Call ``subscriber`` with each new value; return the idempotent unsubscribe function."""
        token = object()
        self._subscribers[token] = subscriber

        def unsubscribe() -> None:
            self._subscribers.pop(token, None)

        return unsubscribe

    def when(self, holds: Callable[[T], bool]) -> Deferred[T]:
        """Return a Deferred that fires with the first value, the present one included, for which ``holds`` is true."""
        if holds(self.value):
            return succeed(self.value)

        def compare(value: T) -> None:
            if holds(value):
                unsubscribe()
                deferred.callback(value)

        unsubscribe = self.subscribe(compare)
        deferred: Deferred[T] = Deferred(lambda _: unsubscribe())
        return deferred


class Gate:
    """A one-time event: closed until ``open``, then open permanently."""

    def __init__(self) -> None:
        self.is_open = False
        self._waiting: dict[Deferred[None], None] = {}

    def open(self) -> None:
        """Fire all waiting and future Deferreds; idempotent."""
        if self.is_open:
            return
        self.is_open = True
        # One at a time: a callback may cancel another waiting Deferred, which must then not be fired.
        while self._waiting:
            deferred = next(iter(self._waiting))
            del self._waiting[deferred]
            deferred.callback(None)

    def wait(self) -> Deferred[None]:
        """Return a Deferred that fires when the gate is open; cancelling it affects no other."""
        if self.is_open:
            return succeed(None)
        deferred: Deferred[None] = Deferred(lambda cancelled: self._waiting.pop(cancelled, None))
        self._waiting[deferred] = None
        return deferred
