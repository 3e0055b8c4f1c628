"""Changes of JSON that leave it JSON: fields left out, doubled, put elsewhere, renamed, with values of other types.

Bytes that are changed anywhere are mostly refused by the first parser, and what comes behind it stays untried.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any, Final

VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    2**63,
    1e308,
    "",
    "\u2028\x00",
    "a" * 300,
    "::1",
    "0.0.0.0/0",
    "10.0.0.0/8",
    "../x",
    'x"; drop',
    "1e9",
    [],
    {},
    [[]],
    [None],
    {"": ""},
)
NAMES: Final = (
    "",
    "host",
    "hostPath",
    "hostNetwork",
    "privileged",
    "nodeName",
    "namespaces",
    "namespaceSelector",
    "serviceAccountToken",
    "addedTomorrow",
)
MOST: Final = 4096
DEEP: Final = b"[" * 64
"""What is in an input whose nesting is what it is for."""


def mutated(data: bytes, random: Random) -> bytes | None:
    """Return an input with its JSON changed in one place or a few, a first byte that is none kept; None without any."""
    if DEEP in data:
        return None
    for start in (0, 1):
        try:
            value = json.loads(data[start:])
        except (ValueError, RecursionError):
            continue
        if not isinstance(value, dict | list):
            continue
        holder = [value]
        for _ in range(random.randint(1, 3)):
            _change(holder, random)
        made = data[:start] + json.dumps(holder[0], separators=(",", ":")).encode()
        return made if len(made) <= MOST else None
    return None


def _change(holder: list[Any], random: Random) -> None:
    places = list(_places(holder))
    container, key = random.choice(places)
    _, other = random.choice(places)
    source, place = random.choice(places)
    match random.randrange(7):
        case 0:
            container[key] = deepcopy(random.choice(VALUES))
        case 1 if container is not holder:
            del container[key]
        case 2:
            container[key] = deepcopy(source[place])
        case 3 if isinstance(container, dict):
            name = random.choice((other, random.choice(NAMES), _misspelt(key, random)))
            container[str(name)] = container.pop(key)
        case 4 if isinstance(container, dict):
            container[random.choice(NAMES)] = deepcopy(random.choice((*VALUES, {"path": "/"})))
        case 5 if isinstance(container, list) and container is not holder:
            container.insert(key, deepcopy(source[place]))
        case 6 if isinstance(container[key], str):
            container[key] = _misspelt(container[key], random)
        case _:
            container[key] = [container[key]]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        keys: Any = one.keys() if isinstance(one, dict) else range(len(one))
        for key in keys:
            yield one, key
            if isinstance(one[key], dict | list):
                waiting.append(one[key])


def _misspelt(text: str, random: Random) -> str:
    at = random.randint(0, len(text))
    return text[:at] + random.choice(("", "x", "A", "0", "-", "/", ".", ":", " ", '"', "\n", "é")) + text[at + 1 :]
