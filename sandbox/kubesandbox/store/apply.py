"""Field ownership and server-side apply, as structured-merge-diff does them. Pure.

A field is a path of elements spelled as in ``fieldsV1``: ``f:name``, ``k:{"name":"x"}`` for an element of a list with
keys, ``v:"x"`` for one of a set. An owner is (name, operation, version, subresource).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from kubesandbox.kinds.kinds import Json
from kubesandbox.kinds.merge_schema import KEY_DEFAULTS, Shape

Path = tuple[str, ...]
Fields = frozenset[Path]

_SKIPPED: Final = frozenset({("f:apiVersion",), ("f:kind",)})
_UNOWNED_METADATA: Final = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)


@attrs.frozen
class Owner:
    """Who owns fields: operation is Apply or Update."""

    name: str
    operation: str
    version: str
    subresource: str = ""


Owners = dict[Owner, tuple[Fields, str]]
"""The fields of each owner and when it last changed them (RFC 3339)."""


class ApplyConflict(Exception):
    """Fields that others own and that this apply would change: (owner, path) pairs."""

    def __init__(self, fields: Sequence[tuple[Owner, Path]]) -> None:
        super().__init__(f"{len(fields)} conflicts")
        self.fields = fields


class KeyMissing(ValueError):
    """An element of a list with keys does not have them all."""


def fields_of(body: Any, shape: Shape) -> Fields:
    """Return the fields that an object sets."""
    return frozenset(path for path in _walk(body, shape, ()) if path and not _unowned(path))


def _unowned(path: Path) -> bool:
    return path in _SKIPPED or (path[0] == "f:metadata" and (len(path) == 1 or path[1][2:] in _UNOWNED_METADATA))


def _walk(value: Any, shape: Shape, at: Path) -> Iterator[Path]:
    if isinstance(value, dict) and value and not shape.atomic:
        for name, inner in value.items():
            yield from _walk(inner, shape.of(name), (*at, f"f:{name}"))
    elif isinstance(value, list) and value and shape.keys:
        for each in value:
            here = (*at, element_of(each, shape))
            yield here
            yield from _walk(each, shape.element, here)
    elif isinstance(value, list) and shape.is_set:
        yield from ((*at, f"v:{_json(each)}") for each in value)
    else:
        yield at


def element_of(item: Any, shape: Shape) -> str:
    """Return the path element of a list item; raises KeyMissing."""
    keys = {}
    for key in sorted(shape.keys):
        value = item.get(key, KEY_DEFAULTS.get(key)) if isinstance(item, dict) else None
        if value is None:
            raise KeyMissing(f'associative list with keys has an element that omits key field "{key}"')
        keys[key] = value
    return f"k:{_json(keys)}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def changed_fields(old: Any, new: Any, shape: Shape) -> tuple[Fields, Fields]:
    """Return the fields that were set or changed, and those that were removed."""
    put: set[Path] = set()
    gone: set[Path] = set()
    _compare(old, new, shape, (), put=put, gone=gone)
    return (
        frozenset(path for path in put if path and not _unowned(path)),
        frozenset(path for path in gone if path and not _unowned(path)),
    )


def _compare(old: Any, new: Any, shape: Shape, at: Path, *, put: set[Path], gone: set[Path]) -> None:
    if old is new or old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and old and new and not shape.atomic:
        for name in old.keys() | new.keys():
            here = (*at, f"f:{name}")
            if name not in new:
                gone.update(_walk(old[name], shape.of(name), here))
            elif name not in old:
                put.update(_walk(new[name], shape.of(name), here))
            else:
                _compare(old[name], new[name], shape.of(name), here, put=put, gone=gone)
    elif isinstance(old, list) and isinstance(new, list) and (shape.keys or shape.is_set):
        before, after = _by_element(old, shape), _by_element(new, shape)
        for element in before.keys() | after.keys():
            here = (*at, element)
            if element not in after:
                gone.add(here)
                gone.update(_walk(before[element], shape.element, here) if shape.keys else ())
            elif element not in before:
                put.add(here)
                put.update(_walk(after[element], shape.element, here) if shape.keys else ())
            elif shape.keys:
                _compare(before[element], after[element], shape.element, here, put=put, gone=gone)
    else:
        after_set = set(_walk(new, shape, at))
        put.update(after_set)
        gone.update(set(_walk(old, shape, at)) - after_set)


def _by_element(items: list[Any], shape: Shape) -> dict[str, Any]:
    if shape.is_set:
        return {f"v:{_json(each)}": each for each in items}
    return {element_of(each, shape): each for each in items}


def read_owners(body: Mapping[str, Any]) -> Owners:
    """Return the owners that an object's ``managedFields`` name."""
    found: Owners = {}
    for entry in body.get("metadata", {}).get("managedFields") or ():
        owner = Owner(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        found[owner] = (frozenset(_unfold(entry.get("fieldsV1") or {}, ())), entry.get("time", ""))
    return found


def _unfold(tree: Mapping[str, Any], at: Path) -> Iterator[Path]:
    for name, inner in tree.items():
        if name == ".":
            yield at
        elif inner:
            yield from _unfold(inner, (*at, name))
        else:
            yield (*at, name)


def write_owners(owners: Owners) -> list[Json]:
    """Return ``managedFields``, in a stable order; owners of nothing are dropped."""
    entries: list[Json] = []
    for owner, (fields, time) in owners.items():
        if not fields:
            continue
        tree: Json = {}
        for path in sorted(fields):
            node = tree
            for part in path:
                node = node.setdefault(part, {})
        for path in fields:
            node = tree
            for part in path:
                node = node[part]
            if node and any(name != "." for name in node):
                node["."] = {}
        entry: Json = {
            "manager": owner.name,
            "operation": owner.operation,
            "apiVersion": owner.version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": tree,
        }
        if owner.subresource:
            entry["subresource"] = owner.subresource
        entries.append(entry)
    entries.sort(key=lambda entry: (entry["operation"], entry["time"], entry["manager"]))
    return entries


def after_update(owners: Owners, by: Owner, old: Any, new: Any, *, shape: Shape, now: str) -> Owners:
    """Return the owners after an update by ``by``: it owns the changed fields, removed fields have no owner."""
    put, gone = changed_fields(old, new, shape)
    if not put and not gone:
        return owners
    result: Owners = {}
    for owner, (fields, time) in owners.items():
        kept = fields - gone - (put if owner != by else frozenset())
        if kept:
            result[owner] = (kept, time)
    mine = result.get(by, (frozenset(), ""))[0] | put
    if mine:
        result[by] = (mine, now)
    return result


def apply(live: Json | None, config: Json, by: Owner, shape: Shape, *, force: bool, now: str) -> tuple[Json, Owners]:
    """Return the object and its owners after an apply; raises ApplyConflict and KeyMissing."""
    wanted = fields_of(config, shape)
    current: Json = live or {}
    owners = read_owners(current)
    merged = merge(current, config, shape)
    put, _ = changed_fields(current, merged, shape)
    clashes = [
        (owner, path)
        for owner, (fields, _) in owners.items()
        if owner != by and not (owner.name == by.name and owner.operation == "Apply")
        for path in sorted(fields & put)
    ]
    if clashes and not force:
        raise ApplyConflict(clashes)
    before = owners.get(by, (frozenset(), ""))[0]
    left: Owners = {}
    for owner, (fields, time) in owners.items():
        if owner == by:
            continue
        kept = fields - (put & wanted)
        if kept:
            left[owner] = (kept, time)
    others: set[Path] = set()
    for fields, _ in left.values():
        others.update(fields)
    dropped = [path for path in before - wanted if path not in others]
    merged = _without(merged, sorted(dropped, key=len), others | wanted, shape)
    left[by] = (wanted, owners[by][1] if by in owners and before == wanted and merged == current else now)
    return merged, left


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """Return the live object merged with the applied configuration."""
    if isinstance(live, dict) and isinstance(config, dict) and not shape.atomic:
        result = dict(live)
        for name, value in config.items():
            result[name] = merge(live[name], value, shape.of(name)) if name in live else value
        return result
    if isinstance(live, list) and isinstance(config, list):
        if shape.is_set:
            return [*live, *(each for each in config if each not in live)]
        if shape.keys:
            wanted = _by_element(config, shape)
            kept = {}
            for element, each in _by_element(live, shape).items():
                kept[element] = merge(each, wanted[element], shape.element) if element in wanted else each
            return [*kept.values(), *(each for element, each in wanted.items() if element not in kept)]
    return config


def _without(body: Json, paths: Sequence[Path], owned: set[Path] | Fields, shape: Shape) -> Json:
    prefixes = {path[:i] for path in owned for i in range(1, len(path) + 1)}
    result: Any = body
    for path in paths:
        # Whole elements are removed first; an element partly owned by others remains and keeps its merge keys.
        if path in prefixes or (len(path) > 1 and path[-2].startswith("k:") and f'"{path[-1][2:]}":' in path[-2]):
            continue
        result = _prune(result, path, shape)
    return result if isinstance(result, dict) else {}


def _prune(value: Any, path: Path, shape: Shape) -> Any:
    """Return the value without one field; containers that become empty go with it, as in the reference."""
    head, rest = path[0], path[1:]
    if head.startswith("f:"):
        name = head[2:]
        if not isinstance(value, dict) or name not in value:
            return value
        if not rest:
            return {key: each for key, each in value.items() if key != name}
        inner = _prune(value[name], rest, shape.of(name))
        if inner in ({}, []) and value[name] != inner:
            return {key: each for key, each in value.items() if key != name}
        return value | {name: inner}
    if not isinstance(value, list):
        return value
    if head.startswith("v:"):
        gone = msgspec.json.decode(head[2:])
        return [each for each in value if each != gone]
    result = []
    for each in value:
        if element_of(each, shape) != head:
            result.append(each)
        elif rest:
            result.append(_prune(each, rest, shape.element))
    return result


def path_text(path: Path) -> str:
    """Return a field as the server names it in a conflict: ``.spec.ports[containerPort=80,protocol="TCP"].name``."""
    text = ""
    for part in path:
        if part.startswith("f:"):
            text += f".{part[2:]}"
        elif part.startswith("k:"):
            keys = msgspec.json.decode(part[2:])
            text += "[" + ",".join(f"{key}={_json(value)}" for key, value in keys.items()) + "]"
        else:
            text += f"[={part[2:]}]"
    return text
