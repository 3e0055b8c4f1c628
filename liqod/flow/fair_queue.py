"""Fair queue: round-robin over tenants, first-in first-out within a tenant.

A thousand items of one tenant delay an item of another by a single turn. Source: fair queueing of packets (RFC 970).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Waiting items by tenant; a tenant takes memory only while it has items.

    The n-th item of a tenant is served after at most n items of each tenant.
    """

    def __init__(self) -> None:
        self._tenant_of: dict[T, Hashable] = {}
        # Dicts keep the order and allow to remove an item from the middle in constant time.
        self._tenants: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()

    def __len__(self) -> int:
        """The number of waiting items."""
        return len(self._tenant_of)

    @property
    def tenants(self) -> int:
        """The number of tenants with waiting items."""
        return len(self._tenants)

    def add(self, tenant: Hashable, item: T) -> None:
        """Append an item as the last of its tenant; it must not be in the queue."""
        self._tenant_of[item] = tenant
        self._tenants.setdefault(tenant, OrderedDict())[item] = None

    def next(self) -> T:
        """Remove and return the next item; raise KeyError if the queue is empty."""
        tenant, waiting = next(iter(self._tenants.items()), (None, None))
        if waiting is None:
            raise KeyError("nothing waits")
        item, _ = waiting.popitem(last=False)
        del self._tenant_of[item]
        if waiting:
            self._tenants.move_to_end(tenant)
        else:
            del self._tenants[tenant]
        return item

    def remove(self, item: T) -> None:
        """Remove an item out of turn; raise KeyError if it is not in the queue."""
        tenant = self._tenant_of.pop(item)
        waiting = self._tenants[tenant]
        del waiting[item]
        if not waiting:
            del self._tenants[tenant]

    def clear(self) -> None:
        """Remove everything."""
        self._tenant_of.clear()
        self._tenants.clear()
