"""Whose turn it is when many wait: flows take turns, and within a flow whoever came first.

A thousand of one kind then delay one of another kind by a single turn. Round-robin as in fair queueing of packets with
packets of one size (RFC 970).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Fair(Generic[T]):
    """What waits, by flow; a flow is known only while something of it waits.

    Whatever waits as the n-th of its flow has its turn after at most n turns of each flow.
    """

    def __init__(self) -> None:
        self._flow_of: dict[T, Hashable] = {}
        # Dicts, for their order and because whoever leaves does so from the middle.
        self._flows: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._flow_of)

    @property
    def flows(self) -> int:
        """Of how many flows something waits."""
        return len(self._flows)

    def add(self, flow: Hashable, one: T) -> None:
        """Let one wait, as the last of its flow; it must not wait already."""
        self._flow_of[one] = flow
        self._flows.setdefault(flow, OrderedDict())[one] = None

    def next(self) -> T:
        """Return whose turn it is, who waits no longer; KeyError when nothing waits."""
        flow, waiting = next(iter(self._flows.items()), (None, None))
        if waiting is None:
            raise KeyError("nothing waits")
        one, _ = waiting.popitem(last=False)
        del self._flow_of[one]
        if waiting:
            self._flows.move_to_end(flow)
        else:
            del self._flows[flow]
        return one

    def remove(self, one: T) -> None:
        """Let one wait no longer; KeyError when it does not."""
        flow = self._flow_of.pop(one)
        waiting = self._flows[flow]
        del waiting[one]
        if not waiting:
            del self._flows[flow]
