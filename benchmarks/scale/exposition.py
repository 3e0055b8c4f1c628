"""Reads the text of a daemon's ``/metrics``, and the table of connections of a process. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_SERIES: Final = re.compile(r"^(\w+)(?:\{([^}]*)\})? ([0-9.eE+-]+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESTABLISHED: Final = "01"
"""The state in ``/proc/net/tcp`` (Linux: include/net/tcp_states.h)."""


def series(text: str, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield labels and value of every series of a name."""
    for found in _SERIES.finditer(text):
        if found[1] == name:
            yield dict(_LABEL.findall(found[2] or "")), float(found[3])


def total(text: str, name: str, *, without: Iterable[str] = (), **selected: str) -> float:
    """Return the sum of a name's series that have the labels; ``without`` are values of ``verb`` that do not count."""
    left_out = frozenset(without)
    return sum(
        value
        for labels, value in series(text, name)
        if labels.get("verb") not in left_out and all(labels.get(key) == one for key, one in selected.items())
    )


def connections(table: str, inodes: Iterable[str], ports: Iterable[int]) -> int:
    """Return how many connections there are to ports of others, in the form of ``/proc/net/tcp``, by sockets known."""
    ours, wanted = frozenset(inodes), frozenset(ports)
    count = 0
    for line in table.splitlines()[1:]:
        columns = line.split()
        if len(columns) < 10:
            continue
        remote, state, inode = columns[2], columns[3], columns[9]
        port = int(remote.rpartition(":")[2], 16)
        count += state == _ESTABLISHED and inode in ours and port in wanted
    return count
