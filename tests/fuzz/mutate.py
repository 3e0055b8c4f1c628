"""Changes of JSON that leave it JSON: fields left out, doubled, put elsewhere, renamed, with values of other types.

Bytes that are changed anywhere are mostly refused by the first parser, and what comes behind it stays untried. One
value may also become as long as it is accepted: what costs more than in proportion to its size shows there alone.
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
"""Bytes of an input whose JSON is changed by default."""
MOST_PLACES: Final = 64 << 10
"""The same for the fuzzer: to look at all places of a larger one takes too long."""
DEEP: Final = b"[" * 64
"""What is in an input whose nesting is what it is for."""


def mutated(data: bytes, random: Random, most: int = MOST) -> bytes | None:
    """Return an input with its JSON changed in one place or a few, a first byte that is none kept; None without any."""
    found = _read(data) if len(data) <= most else None
    if found is None:
        return None
    before, value = found
    holder = [value]
    for _ in range(random.randint(1, 3)):
        _change(holder, random)
    made = before + _written(holder[0])
    return made if len(made) <= most else None


def grown(data: bytes, random: Random, size: int) -> bytes:
    """Return an input of about a size: of its JSON a list, an object or a text becomes longer, of others some bytes."""
    found, more = _read(data) if len(data) <= MOST_PLACES else None, max(0, size - len(data))
    if found is not None:
        before, value = found
        holder = [value]
        _lengthen(holder, random, more)
        return before + _written(holder[0])
    at = random.randint(0, len(data))
    part = data[at : at + random.randint(1, 64)] or b"a"
    return data[:at] + part * (more // len(part)) + data[at:]


def _read(data: bytes) -> tuple[bytes, Any] | None:
    """Return the JSON of an input, and what is before it; None where there is none that can be changed."""
    if DEEP in data:
        return None
    for start in (0, 1):
        try:
            value = json.loads(data[start:])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list):
            return data[:start], value
    return None


def _written(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _lengthen(holder: list[Any], random: Random, more: int) -> None:
    """Make one value longer by about so many bytes, each time by what is in it already."""
    container, key = random.choice(list(_places(holder)))
    value = container[key]
    if isinstance(value, list):
        one = random.choice(value) if value else ""
        value.extend([one] * (more // (len(_written(one)) + 1)))
    elif isinstance(value, dict):
        name, one = random.choice(list(value.items())) if value else ("a", "")
        count = more // (len(_written({name: one})) + 6)
        value.update({f"{name}{number}": one for number in range(count)})
    elif isinstance(value, str):
        text = value or "a"
        container[key] = value + text * (more // (len(_written(text)) - 2))
    else:
        container[key] = [value] * (more // (len(_written(value)) + 1))


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
