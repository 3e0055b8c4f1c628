"""What caches held when they stopped, for those that take their place when a daemon begins or ceases to lead (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from liqod.kube.resources import Resource
from liqod.model.ids import Key


@attrs.frozen(kw_only=True)
class Watched:
    """What a cache is of: a kind at one API server, as a view of it, and which of its objects."""

    server: str
    resource: Resource
    view: type[Any]
    namespace: str = ""
    labels: str = ""
    fields: str = ""


@attrs.frozen(kw_only=True)
class CacheContents:
    """The objects of a cache as of ``resource_version``, from which they can be watched further.

    ``newest`` is the highest version that was seen, ``went_back`` how often versions were lower than before.
    ``sizes`` and ``usage`` are the bytes of the objects where these are noted, and where there is a quota; else None.
    """

    objects: Mapping[Key, Any]
    resource_version: str
    newest: int = 0
    went_back: int = 0
    has_bookmarks: bool = False
    sizes: Mapping[Key, int] | None = None
    usage: Mapping[Key, int] | None = None


class KeptCaches:
    """The contents of stopped caches, by what they are of; nothing is kept but between ``open`` and ``close``.

    They stay until ``clear``, so that several caches of the same objects may begin with them. Objects are never copied.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._contents: dict[Watched, CacheContents] = {}

    def __len__(self) -> int:
        return len(self._contents)

    def open(self) -> None:
        """Keep what caches hold that stop from now on."""
        self.is_open = True

    def close(self) -> None:
        """Keep nothing more."""
        self.is_open = False

    def keep(self, watched: Watched, contents: CacheContents) -> None:
        """Keep what a cache holds, in place of what was kept of the same objects, unless this is closed."""
        if self.is_open:
            self._contents[watched] = contents

    def get(self, watched: Watched) -> CacheContents | None:
        """Return what was kept of these objects; None if nothing was."""
        return self._contents.get(watched)

    def clear(self) -> None:
        """Drop everything."""
        self._contents.clear()
