"""JSON that must not be decoded: nested deeper than its decoder goes, or of more parts than memory is for. Pure.

It is read as far as it is shallow, so that its name is known.

API servers take 10,000 levels (sigs.k8s.io/json, maxNestingDepth), also in metadata.managedFields of any kind; msgspec
raises RecursionError below 1,000. So one object, of a user who may write a single one, could keep a cache of all of
them from being read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

SHALLOW: Final = 12
"""Levels that are kept: enough for the metadata of an object in an event of a watch."""
MAX_TOKENS: Final = 50_000
"""Brackets and texts that are looked at, some 10 ms of them; what comes behind is cut off."""
# Possessive quantifiers do not backtrack: the time is linear in the length.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_CLOSING: Final = {ord("["): b"]", ord("{"): b"}"}


def count_parts(data: bytes) -> int:
    """Return the objects, lists and items of a JSON text, at least: brackets and commas in its strings count, too.

    Decoding ``[{},{}]`` takes twenty times its length: what a part costs in memory depends little on how it is written.
    """
    return data.count(b"{") + data.count(b"[") + data.count(b",")


def shallow(data: bytes) -> bytes:
    """Return JSON with null for what is nested deeper than ``SHALLOW``, and for what comes after ``MAX_TOKENS``.

    It is JSON again if the data is.
    """
    kept: list[bytes] = []
    closing: list[bytes] = []
    depth = start = 0
    for count, match in enumerate(_TOKEN.finditer(data)):
        at = match.start()
        if data[at] in b"[{":
            depth += 1
            if depth == SHALLOW + 1 or (depth <= SHALLOW and count >= MAX_TOKENS):
                kept.append(data[start:at] + b"null")
                start = len(data)
            if count >= MAX_TOKENS:
                return b"".join([*kept, *reversed(closing)])
            if depth <= SHALLOW:
                closing.append(_CLOSING[data[at]])
        elif data[at] != ord('"'):
            depth -= 1
            if depth == SHALLOW:
                start = match.end()
            elif closing and depth < SHALLOW:
                closing.pop()
    return b"".join([*kept, data[start:]])


def items_of(page: bytes) -> tuple[list[bytes], bytes]:
    """Return the objects in ``items`` of a list, each as it stands, and the list without them.

    Its cost is that of all its brackets and texts, some 0.1 s for each MiB: it is for a list that cannot be decoded.
    """
    spans = list(_spans(page))
    if not spans:
        return [], page
    return [page[start:end] for start, end in spans], page[: spans[0][0]] + page[spans[-1][1] :]


def _spans(page: bytes) -> Iterator[tuple[int, int]]:
    depth = start = 0
    name = b""
    for match in _TOKEN.finditer(page):
        at = match.start()
        if page[at] == ord('"'):
            name = match[0] if depth == 1 else name
        elif page[at] in b"[{":
            depth += 1
            if depth == 3:
                start = at
        else:
            depth -= 1
            if depth == 2 and name == b'"items"':
                yield start, match.end()
