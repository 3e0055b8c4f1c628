"""Observables on one reactor: a value that changes, and a one-time event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

S = TypeVar("S", bound=Callable[..., None])
T = TypeVar("T")


class Subscribers(Generic[S]):
    """Functions to be called when something changes, in the order of subscription."""

    def __init__(self) -> None:
        self._functions: dict[object, S] = {}

    def add(self, function: S) -> Callable[[], None]:
        """Add a function; returns the idempotent unsubscribe function. One that is added twice is called twice."""
        token = object()
        self._functions[token] = function

        def unsubscribe() -> None:
            self._functions.pop(token, None)

        return unsubscribe

    def __iter__(self) -> Iterator[S]:
        # Over a copy: a subscriber may unsubscribe, itself or others, while it is called.
        return iter(list(self._functions.values()))


class Latest(Generic[T]):
    """A value with subscribers, which are notified of changes; setting an equal value is no change.

    Subscribers are called with each new value, in the order of subscription, and not at subscription: read ``value``
    for the current one. A subscriber that raises is logged; the others are still called.
    """

    _log = Logger()

    def __init__(self, value: T) -> None:
        self.value = value
        self._subscribers: Subscribers[Callable[[T], None]] = Subscribers()

    def set(self, value: T) -> None:
        """Replace the value and notify subscribers, unless it equals the old one."""
        if value == self.value:
            return
        self.value = value
        for subscriber in self._subscribers:
            try:
                subscriber(value)
            except Exception:
                self._log.failure("an observer failed on a new value")

    def subscribe(self, subscriber: Callable[[T], None]) -> Callable[[], None]:
        """Call ``subscriber`` with each new value; return the idempotent unsubscribe function."""
        return self._subscribers.add(subscriber)

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
