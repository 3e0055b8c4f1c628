"""Structural schemas of custom resources: pruning, defaults, validation. Pure.

Understood: type, properties, additionalProperties, items, required, enum, minimum and maximum (also exclusive),
multipleOf, minLength, maxLength, minItems, maxItems, minProperties, maxProperties, uniqueItems, pattern, format
(date-time, int32, int64), nullable, default, allOf, anyOf, oneOf, not,
``x-kubernetes-preserve-unknown-fields``, ``x-kubernetes-int-or-string``, ``x-kubernetes-embedded-resource``,
list types. CEL rules are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from functools import lru_cache
from typing import Any

from kubesandbox.kinds.statuses import Cause, quoted

Schema = Mapping[str, Any]
_ROOT = ("apiVersion", "kind", "metadata")


def prune(body: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return an object without the fields its schema does not name."""
    pruned = _prune(dict(body), schema)
    return {**pruned, **{name: body[name] for name in _ROOT if name in body}}


def _prune(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        keep = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        result = {}
        for name, inner in value.items():
            if name in properties:
                result[name] = _prune(inner, properties[name])
            elif isinstance(extra, Mapping):
                result[name] = _prune(inner, extra)
            elif keep or extra is True or (schema.get("x-kubernetes-embedded-resource") and name in _ROOT):
                result[name] = inner
        return result
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_prune(each, schema["items"]) for each in value]
    return value


def unknown_fields(body: Mapping[str, Any], schema: Schema) -> list[str]:
    """Return the paths that pruning would remove."""
    return [path for path in _unknown(dict(body), schema, "") if path.split(".")[0] not in _ROOT]


def _unknown(value: Any, schema: Schema, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        kept = _prune(value, schema)
        for name, inner in value.items():
            path = f"{at}.{name}" if at else name
            if name not in kept:
                yield path
                continue
            properties = schema.get("properties") or {}
            extra = schema.get("additionalProperties")
            inner_schema = properties.get(name) or (extra if isinstance(extra, Mapping) else None)
            if inner_schema is not None:
                yield from _unknown(inner, inner_schema, path)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for i, each in enumerate(value):
            yield from _unknown(each, schema["items"], f"{at}[{i}]")


def with_defaults(value: Any, schema: Schema) -> Any:
    """Return a value with the schema's defaults where fields are absent (or null, where null is not allowed)."""
    if isinstance(value, dict):
        result = dict(value)
        properties = schema.get("properties") or {}
        for name, inner in properties.items():
            absent = name not in result or (result[name] is None and not inner.get("nullable"))
            if absent and "default" in inner:
                result[name] = deepcopy(inner["default"])
            if name in result:
                if result[name] is None and not inner.get("nullable"):
                    del result[name]
                    continue
                result[name] = with_defaults(result[name], inner)
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            for name in result.keys() - properties.keys():
                result[name] = with_defaults(result[name], extra)
        return result
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [with_defaults(each, schema["items"]) for each in value]
    return value


def validate(body: Mapping[str, Any], schema: Schema) -> list[Cause]:
    """Return what is wrong with an object, by field."""
    return list(_validate(body, schema, ""))


def _validate(value: Any, schema: Schema, at: str) -> Iterator[Cause]:
    if value is None and schema.get("nullable"):
        return
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, str) and _type_of(value) != "integer":
            yield Cause.wrong_type(
                at, _shown(value), f'{at} in body must be of type int-or-string: "{_type_of(value)}"'
            )
            return
    elif kind and not _is(value, kind):
        found = _type_of(value)
        yield Cause.wrong_type(at, found if found in ("object", "array") else value,
                               f'{at} in body must be of type {kind}: "{found}"')  # fmt: skip
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Cause.unsupported(at, value, [str(each) for each in schema["enum"]])
    if isinstance(value, str):
        yield from _text(value, schema, at)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number(value, schema, at)
    elif isinstance(value, dict):
        yield from _map(value, schema, at)
    elif isinstance(value, list):
        yield from _list(value, schema, at)
    yield from _combined(value, schema, at)


def _shown(value: Any) -> Any:
    return _type_of(value) if isinstance(value, (dict, list)) else value


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case list():
            return "array"
        case dict():
            return "object"
    return "null"


def _is(value: Any, kind: str) -> bool:
    found = _type_of(value)
    return found == kind or (kind == "number" and found == "integer")


def _text(value: str, schema: Schema, at: str) -> Iterator[Cause]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield Cause("FieldValueTooLong", at, f"Too long: may not be more than {schema['maxLength']} bytes")
    if len(value) < schema.get("minLength", 0):
        yield Cause.invalid(at, value, f"{at} in body should be at least {schema['minLength']} chars long")
    if "pattern" in schema and _pattern(schema["pattern"]).search(value) is None:
        yield Cause.invalid(at, value, f"{at} in body should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield Cause.invalid(at, value, f"{at} in body must be of type date-time: {quoted(value)}")


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _number(value: float, schema: Schema, at: str) -> Iterator[Cause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield Cause.invalid(at, value, f"{at} in body should be {word} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield Cause.invalid(at, value, f"{at} in body should be {word} {high}")
    if "multipleOf" in schema and value % schema["multipleOf"]:
        yield Cause.invalid(at, value, f"{at} in body should be a multiple of {schema['multipleOf']}")


def _map(value: dict[str, Any], schema: Schema, at: str) -> Iterator[Cause]:
    properties = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield Cause.required(f"{at}.{name}" if at else name)
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield Cause(
            "FieldValueTooMany", at, f"Too many: {len(value)}: must have at most {schema['maxProperties']} items"
        )
    if len(value) < schema.get("minProperties", 0):
        yield Cause.invalid(at, value, f"{at} in body should have at least {schema['minProperties']} properties")
    extra = schema.get("additionalProperties")
    for name in sorted(value):
        if name in properties:
            yield from _validate(value[name], properties[name], f"{at}.{name}" if at else name)
        elif isinstance(extra, Mapping):
            yield from _validate(value[name], extra, f"{at}.{name}" if at else name)


def _list(value: list[Any], schema: Schema, at: str) -> Iterator[Cause]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield Cause("FieldValueTooMany", at, f"Too many: {len(value)}: must have at most {schema['maxItems']} items")
    if len(value) < schema.get("minItems", 0):
        yield Cause.invalid(at, len(value), f"{at} in body should have at least {schema['minItems']} items")
    items = schema.get("items")
    if isinstance(items, Mapping):
        for i, each in enumerate(value):
            yield from _validate(each, items, f"{at}[{i}]")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    kind = schema.get("x-kubernetes-list-type")
    seen: list[Any] = []
    for i, each in enumerate(value):
        mark = each
        if kind == "map":
            mark = {key: each[key] for key in keys if key in each} if isinstance(each, dict) else each
        if kind in ("map", "set") and mark in seen:
            yield Cause.duplicate(f"{at}[{i}]", mark)
        seen.append(mark)


def _combined(value: Any, schema: Schema, at: str) -> Iterator[Cause]:
    for inner in schema.get("allOf") or ():
        yield from _validate(value, inner, at)
    if schema.get("anyOf") and not any(not list(_validate(value, inner, at)) for inner in schema["anyOf"]):
        yield Cause.invalid(at, _shown(value), f"{at} in body must validate at least one schema (anyOf)")
    if schema.get("oneOf"):
        fitting = sum(not list(_validate(value, inner, at)) for inner in schema["oneOf"])
        if fitting != 1:
            yield Cause.invalid(at, _shown(value), f"{at} in body must validate one and only one schema (oneOf)")
    if isinstance(schema.get("not"), Mapping) and not list(_validate(value, schema["not"], at)):
        yield Cause.invalid(at, _shown(value), f"{at} in body must not validate the schema (not)")
