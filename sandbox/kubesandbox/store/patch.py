"""The three patch formats: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7396), strategic merge patch. Pure.

Inputs are never changed; results share what did not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from kubesandbox.kinds.merge_schema import Shape


class PatchError(ValueError):
    """The patch is malformed (``wrong_document`` False) or does not fit the object it is for."""

    def __init__(self, message: str, *, wrong_document: bool = False) -> None:
        super().__init__(message)
        self.wrong_document = wrong_document


def merge(target: Any, change: Any) -> Any:
    """Return the target after a merge patch: null removes, maps merge, all else replaces."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def strategic(target: Any, change: Any, shape: Shape) -> Any:
    """Return the target after a strategic merge patch, whose lists merge as the shape says."""
    if not isinstance(change, dict):
        return change
    directive = change.get("$patch")
    if directive == "replace":
        return {name: value for name, value in change.items() if name != "$patch"}
    if directive == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    retained = change.get("$retainKeys")
    if retained is not None:
        result = {name: value for name, value in result.items() if name in retained}
    for name, value in change.items():
        _strategic_field(result, name, value, shape)
    for name, order in change.items():
        if name.startswith("$setElementOrder/"):
            _reorder(result, name.partition("/")[2], order, shape)
    return result


def _strategic_field(result: dict[str, Any], name: str, value: Any, shape: Shape) -> None:
    if name.startswith("$deleteFromPrimitiveList/"):
        name = name.partition("/")[2]
        result[name] = [each for each in result.get(name) or [] if each not in value]
    elif name.startswith("$"):
        return
    elif value is None:
        result.pop(name, None)
    elif isinstance(value, list):
        result[name] = _strategic_list(result.get(name) or [], value, shape.of(name))
    elif shape.of(name).atomic and isinstance(value, dict) and "$patch" not in value:
        # The patch strategy of atomic maps is still to merge; only server-side apply takes them as one.
        result[name] = merge(result.get(name), value)
    else:
        result[name] = strategic(result.get(name), value, shape.of(name))


def _strategic_list(current: list[Any], change: list[Any], shape: Shape) -> list[Any]:
    if shape.is_set:
        return [*current, *(each for each in change if each not in current)]
    if not shape.keys:
        return [each for each in change if not _is_directive(each, "replace")]
    if any(_is_directive(each, "replace") for each in change):
        return [each for each in change if not _is_directive(each, "replace")]
    key = shape.keys[0]
    result = list(current)
    for each in change:
        if not isinstance(each, dict) or key not in each:
            raise PatchError(f"map: {each} does not contain declared merge key: {key}")
        at = next((i for i, old in enumerate(result) if old.get(key) == each[key]), None)
        if each.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != each[key]]
        elif at is None:
            result.append(strategic({}, each, shape.element))
        else:
            result[at] = strategic(result[at], each, shape.element)
    return result


def _is_directive(value: Any, which: str) -> bool:
    return isinstance(value, dict) and value.get("$patch") == which


def _reorder(result: dict[str, Any], name: str, order: list[Any], shape: Shape) -> None:
    current = result.get(name)
    if not isinstance(current, list):
        return
    inner = shape.of(name)
    if inner.keys:
        key = inner.keys[0]
        wanted = [each.get(key) for each in order]
        place = {value: i for i, value in enumerate(wanted)}
        listed = sorted((each for each in current if each.get(key) in place), key=lambda each: place[each[key]])
        result[name] = listed + [each for each in current if each.get(key) not in place]
    else:
        result[name] = [each for each in order if each in current] + [each for each in current if each not in order]


def json_patch(target: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return the target after a JSON patch; raises PatchError."""
    result = deepcopy(target)
    for operation in operations:
        if not isinstance(operation, Mapping) or not isinstance(operation.get("path"), str):
            raise PatchError("json patch operations need an 'op' and a 'path'")
        result = _operate(result, operation)
    return result


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            return _add(document, path, deepcopy(operation.get("value")))
        case "replace":
            _look_up(document, path, "replace operation does not apply")
            return _add(_remove(document, path), path, deepcopy(operation.get("value"))) if path else operation["value"]
        case "remove":
            return _remove(document, path)
        case "test":
            value = _look_up(document, path, "testing path failed")
            if value != operation.get("value"):
                raise PatchError(f"testing value {operation['path']} failed: test failed", wrong_document=True)
            return document
        case "move":
            source = _pointer(str(operation.get("from", "")))
            value = _look_up(document, source, "move operation does not apply")
            return _add(_remove(document, source), path, value)
        case "copy":
            source = _pointer(str(operation.get("from", "")))
            return _add(document, path, deepcopy(_look_up(document, source, "copy operation does not apply")))
        case other:
            raise PatchError(f"Unexpected kind: {other}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise PatchError(f"{text!r} is not a JSON pointer: it must begin with '/'")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _look_up(document: Any, path: list[str], what: str) -> Any:
    for part in path:
        try:
            document = document[int(part)] if isinstance(document, list) else document[part]
        except (KeyError, IndexError, ValueError, TypeError):
            text = "/" + "/".join(path)
            raise PatchError(f"{what}: doc is missing key: {text}: missing value", wrong_document=True) from None
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _look_up(document, path[:-1], "add operation does not apply")
    last = path[-1]
    if isinstance(parent, list):
        if last == "-":
            parent.append(value)
            return document
        if not last.isdigit() or int(last) > len(parent):
            raise PatchError(f"add operation does not apply: index {last} is out of range", wrong_document=True)
        parent.insert(int(last), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise PatchError(f"add operation does not apply: /{'/'.join(path)} is not in a map", wrong_document=True)
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    _look_up(document, path, "remove operation does not apply")
    parent = _look_up(document, path[:-1], "remove operation does not apply")
    if isinstance(parent, list):
        del parent[int(path[-1])]
    else:
        del parent[path[-1]]
    return document
