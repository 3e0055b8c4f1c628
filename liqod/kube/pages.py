"""Pages of a list, as the API server sends them."""

from __future__ import annotations

from typing import Any, Final, Generic

import msgspec
from typing_extensions import TypeVar

from liqod.kube.nesting import items_of

T = TypeVar("T", default=dict[str, Any])


class ListMeta(msgspec.Struct, rename="camel"):
    """The metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class ListPage(msgspec.Struct, Generic[T]):
    """One page of a list as the API sends it; ``metadata.continue_`` is the token of the next page."""

    metadata: ListMeta
    items: list[T] | None = None


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """All objects of a list, and the list's resource version."""

    items: list[T]
    resource_version: str


_RAW: Final[msgspec.json.Decoder[ListPage[msgspec.Raw]]] = msgspec.json.Decoder(ListPage[msgspec.Raw])


def decode_raw(answer: bytes) -> ListPage[msgspec.Raw]:
    """Return a page with its objects as they stand, whatever is in them: one that is nested deeply spoils no other.

    Raises MsgspecError or UnicodeDecodeError for what is no page.
    """
    try:
        return _RAW.decode(answer)
    except RecursionError:
        items, rest = items_of(answer)
        return ListPage(_RAW.decode(rest).metadata, [msgspec.Raw(item) for item in items])
