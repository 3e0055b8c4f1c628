"""A fair queue: tenants take turns, and within a tenant the first to come is the first to go.

A thousand items of one tenant then delay one item of another by a single turn. Round-robin as in fair queueing of
packets of one size (RFC 970).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Waiting items by tenant; a tenant is known only while something of it waits.

    The n-th item of a tenant has its turn after at most n turns of each tenant.
    """

    def __init__(self) -> None:
        self._tenant_of: dict[T, Hashable] = {}
        # Dicts, for their order and because an item may leave from the middle.
        self._tenants: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()

    def __len__(self) -> int:
        """The number of items that wait."""
        return len(self._tenant_of)

    @property
    def tenants(self) -> int:
        """The number of tenants of which something waits."""
        return len(self._tenants)

    def add(self, tenant: Hashable, item: T) -> None:
        """Append an item, as the last of its tenant; it must not wait already."""
        self._tenant_of[item] = tenant
        self._tenants.setdefault(tenant, OrderedDict())[item] = None

    def next(self) -> T:
        """Remove and return the item whose turn it is; KeyError when nothing waits."""
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
        """Remove an item out of turn; KeyError when it does not wait."""
        tenant = self._tenant_of.pop(item)
        waiting = self._tenants[tenant]
        del waiting[item]
        if not waiting:
            del self._tenants[tenant]

    def clear(self) -> None:
        """Remove everything."""
        self._tenant_of.clear()
        self._tenants.clear()
